//! The client itself: asks, watches, and reconnects from where it was.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::backoff::{Backoff, chance};
use super::bridge::Bridge;
use super::link::{Link, Lost};
use super::start::{Missing, Unreachable, connect_or_start};
use super::watch::{Access, Attached, Watch};
use crate::config::limits::LINE_BYTES;
use crate::protocol::push::client::{Environment, Event, Fault, Incoming, Repeat, Request};
use crate::transport::local::Address;

/// What a client needs to know of its world.
pub struct Settings {
    /// Where the daemon listens.
    pub address: Address,
    /// What to do when there is none.
    pub missing: Missing,
    /// This client's version.
    pub version: &'static str,
    /// What goes with requests that may lead to a run.
    pub environment: Environment,
    /// How long to try to get a lost connection back.
    pub patience: Duration,
    /// Who is told what a person should know.
    pub notices: Box<dyn FnMut(Notice) + Send>,
}

impl fmt::Debug for Settings {
    // The environment is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("address", &self.address).field("missing", &self.missing).finish()
    }
}

/// What a person should know of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// There is no daemon and one is being started.
    Starting,
    /// The daemon is of another version; told once.
    OtherVersion {
        /// This client's.
        client: String,
        /// The daemon's.
        daemon: String,
    },
    /// The connection is lost and is being sought again.
    Lost,
    /// The daemon was stopped on purpose; its next start is waited for.
    Stopped,
    /// The connection is back, from the last event on.
    Back,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The daemon said no.
    #[error(transparent)]
    Refused(#[from] Fault),
    /// The daemon cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// The request does not fit into a line, so that it was not sent.
    #[error(
        "the message has {bytes} bytes as a request, and one line holds {limit}; put it into a file and name the file"
    )]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// The connection broke before the answer, and asking again could do it twice.
    #[error("the connection broke before {kind} was answered; it may or may not have happened")]
    Unanswered {
        /// What was asked.
        kind: &'static str,
    },
}

impl AskError {
    /// Returns the code of the refusal, if it is one.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(fault) => Some(&fault.code),
            Self::Unreachable(_) | Self::TooLong { .. } | Self::Unanswered { .. } => None,
        }
    }
}

/// How long the daemon may take to greet.
const GREETING: Duration = Duration::from_secs(10);
/// How long a connection must have held for its loss to be a new one, not the same trouble again.
const STEADY: Duration = Duration::from_secs(5);
/// How long a daemon that is gone, and that is not ours to start, may take to come back.
const ABSENT: Duration = Duration::from_secs(3);
/// How often a request is sent again before its sender gives up.
const REPEATS: u32 = 8;

/// How many bytes the id of a request and the end of its line have.
const ID_BYTES: usize = 31;

/// A client with its connection.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    link: Option<Link>,
    watch: Watch,
    backoff: Backoff,
    lost_since: Option<Instant>,
    linked_at: Instant,
    version_named: bool,
    /// Whether the daemon's pid file was there on an earlier connection; a forwarded socket has none.
    pid_file_seen: bool,
}

impl Client {
    /// Connects to the daemon, starting it if the settings say so.
    pub async fn open(settings: Settings) -> Result<Self, AskError> {
        let mut client = Self {
            settings,
            link: None,
            watch: Watch::default(),
            backoff: Backoff::new(),
            lost_since: None,
            linked_at: Instant::now(),
            version_named: false,
            pid_file_seen: false,
        };
        match client.establish().await {
            Ok(link) => client.progress(link),
            // A daemon that goes away just as we come is no different from one that goes later.
            Err(NoLink::Lost(_)) => client.lose(),
            Err(NoLink::Ask(error)) => return Err(error),
        }
        Ok(client)
    }

    /// Asks and waits for the answer.
    ///
    /// When the connection breaks meanwhile, the question is asked again where that is safe.
    pub async fn ask(&mut self, request: Request) -> Result<Value, AskError> {
        let bytes = request.line("").len() + ID_BYTES;
        if bytes > LINE_BYTES {
            return Err(AskError::TooLong { bytes, limit: LINE_BYTES });
        }
        for _ in 0..REPEATS {
            let mut link = self.take_link().await?;
            if let Ok(outcome) = link.exchange(&request, &mut self.watch).await {
                self.progress(link);
                return Ok(outcome?);
            }
            self.lose();
            if request.repeat() == Repeat::Never {
                break;
            }
        }
        Err(AskError::Unanswered { kind: request.kind() })
    }

    /// Has the connection go on in another protocol, and hands it over.
    pub async fn speak(mut self, request: Request) -> Result<Bridge, AskError> {
        let mut link = self.take_link().await?;
        match link.exchange(&request, &mut self.watch).await {
            Ok(outcome) => {
                outcome?;
                Ok(link.into_bridge())
            }
            Err(_) => Err(AskError::Unreachable(self.silent())),
        }
    }

    /// Attaches to a session: everything after `seen` comes as events, each once.
    pub async fn attach(&mut self, session: &str, seen: u64, access: Access) -> Result<Attached, AskError> {
        let payload = self.ask(attach_request(session, seen, access, &self.settings.environment)).await?;
        let attached = Attached::read(&payload);
        self.watch.rewind(session, seen, access, attached);
        Ok(attached)
    }

    /// Takes the events of a session to which a request has subscribed this connection, or is about to.
    ///
    /// After a lost connection they are asked for from `seen` on.
    pub fn expect(&mut self, session: &str, seen: u64) {
        self.watch.expect(session, seen, Access::Full);
    }

    /// Returns the next event, however many connections it takes; giving it up half-way loses nothing.
    pub async fn next(&mut self) -> Result<Event, AskError> {
        loop {
            if let Some(event) = self.watch.pop() {
                return if event.kind == "session_deleted" { Err(self.forget(&event)) } else { Ok(event) };
            }
            self.ensure_link().await?;
            let Some(link) = &mut self.link else { continue };
            match link.read().await {
                Ok(incoming) => {
                    self.at_ease();
                    if let Incoming::Event(event) = incoming {
                        self.watch.take(*event);
                    }
                }
                Err(_) => self.lose(),
            }
        }
    }

    /// Watches a session no longer that somebody has deleted, and says so as the daemon would from now on.
    fn forget(&mut self, event: &Event) -> AskError {
        self.watch.forget(&event.session);
        let message = format!("the session {} was deleted", event.session);
        Fault { code: "SESSION_DELETED".to_owned(), message, retryable: false, detail: None }.into()
    }

    /// Waits until the daemon closes the connection; events are dropped. Giving it up half-way loses nothing.
    pub async fn closed(&mut self) {
        while let Some(link) = &mut self.link {
            if link.read().await.is_err() {
                self.link = None;
            }
        }
    }

    /// Returns what goes with requests that may lead to a run.
    pub const fn environment(&self) -> &Environment {
        &self.settings.environment
    }

    /// Takes the link out, so that a question given up half-way does not leave its answer to the next one.
    async fn take_link(&mut self) -> Result<Link, AskError> {
        loop {
            self.ensure_link().await?;
            if let Some(link) = self.link.take() {
                return Ok(link);
            }
        }
    }

    fn progress(&mut self, link: Link) {
        self.link = Some(link);
        self.at_ease();
    }

    /// Forgets past troubles.
    const fn at_ease(&mut self) {
        self.backoff.reset();
        self.lost_since = None;
    }

    fn lose(&mut self) {
        self.link = None;
        if self.linked_at.elapsed() > STEADY {
            self.at_ease();
        }
        if self.lost_since.is_none() {
            self.lost_since = Some(Instant::now());
            (self.settings.notices)(Notice::Lost);
        }
    }

    /// Gets the connection back, with every watched session from its last event on.
    async fn ensure_link(&mut self) -> Result<(), AskError> {
        if self.link.is_some() {
            return Ok(());
        }
        let told = self.lost_since.is_some();
        // A question that was given up half-way leaves no link and nothing lost.
        let mut since = *self.lost_since.get_or_insert_with(Instant::now);
        let mut stopped = false;
        loop {
            sleep(self.backoff.advance(chance())).await;
            let error = match self.establish().await {
                Ok(link) => {
                    self.link = Some(link);
                    self.linked_at = Instant::now();
                    if told {
                        (self.settings.notices)(Notice::Back);
                    }
                    return Ok(());
                }
                Err(NoLink::Ask(AskError::Refused(fault))) => return Err(fault.into()),
                Err(NoLink::Ask(error)) => error,
                Err(NoLink::Lost(_)) => self.silent().into(),
            };
            if self.awaits_start() {
                // The time for getting the connection back begins with the next start.
                since = Instant::now();
                if !std::mem::replace(&mut stopped, true) {
                    (self.settings.notices)(Notice::Stopped);
                }
                continue;
            }
            let patience = match &error {
                // Nobody is there and nobody is to be started: a restart takes no longer.
                AskError::Unreachable(Unreachable::NotRunning) => self.settings.patience.min(ABSENT),
                AskError::Refused(_)
                | AskError::Unreachable(_)
                | AskError::TooLong { .. }
                | AskError::Unanswered { .. } => self.settings.patience,
            };
            if since.elapsed() >= patience {
                return Err(error);
            }
        }
    }

    /// Connects, greets, and attaches to what was watched.
    async fn establish(&mut self) -> Result<Link, NoLink> {
        let leave = self.awaits_start();
        let Settings { address, missing, notices, .. } = &mut self.settings;
        let missing = if leave { &Missing::Leave } else { &*missing };
        let stream = connect_or_start(address, missing, &mut || notices(Notice::Starting))
            .await
            .map_err(AskError::from)?;
        let mut link = Link::new(stream);
        let greeting = Request::hello(self.settings.version);
        let answer = timeout(GREETING, link.exchange(&greeting, &mut self.watch)).await;
        let hello = answer.map_err(|_| AskError::from(self.silent()))??.map_err(AskError::from)?;
        self.name_version(&hello);
        self.pid_file_seen |= self.settings.address.pid.exists();
        for (session, position) in self.watch.positions() {
            let request =
                attach_request(&session, position.seen, position.access, &self.settings.environment);
            let payload = link.exchange(&request, &mut self.watch).await?.map_err(AskError::from)?;
            self.watch.rewind(&session, position.seen, position.access, Attached::read(&payload));
        }
        Ok(link)
    }

    /// Tells whether the next start of the daemon is waited for: sessions are watched, and it was stopped on purpose.
    ///
    /// A daemon that is told to stop removes its pid file; one that crashed leaves it, and is started again. Where there
    /// never was a pid file its absence says nothing.
    fn awaits_start(&self) -> bool {
        self.lost_since.is_some()
            && !self.watch.is_empty()
            && self.pid_file_seen
            && !self.settings.address.pid.exists()
    }

    fn name_version(&mut self, hello: &Value) {
        let daemon = hello.get("runtimeVersion").and_then(Value::as_str).unwrap_or("unknown");
        if daemon != self.settings.version && !self.version_named {
            self.version_named = true;
            let client = self.settings.version.to_owned();
            (self.settings.notices)(Notice::OtherVersion { client, daemon: daemon.to_owned() });
        }
    }

    fn silent(&self) -> Unreachable {
        Unreachable::Silent { path: self.settings.address.socket.clone() }
    }
}

/// Why there is no connection.
#[derive(Debug)]
enum NoLink {
    /// It was made and broke at once; worth another try.
    Lost(#[expect(dead_code, reason = "shown when debugging")] Lost),
    /// It was not made.
    Ask(AskError),
}

impl From<Lost> for NoLink {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

impl From<AskError> for NoLink {
    fn from(error: AskError) -> Self {
        Self::Ask(error)
    }
}

fn attach_request(session: &str, seen: u64, access: Access, environment: &Environment) -> Request {
    let request = Request::attach_session(session, seen);
    match access {
        Access::Full => request.with_environment(environment),
        Access::ReadOnly => request.with("readOnly", true),
    }
}
