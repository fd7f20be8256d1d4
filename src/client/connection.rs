//! The client: sends requests, receives events, and reconnects from the last event it received.

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

/// Configuration of a client.
pub struct Settings {
    /// Where the daemon listens.
    pub address: Address,
    /// What to do if no daemon listens.
    pub missing: Missing,
    /// This client's version.
    pub version: &'static str,
    /// The environment that is sent with requests that may start a run.
    pub environment: Environment,
    /// How long to try to reconnect after a lost connection.
    pub patience: Duration,
    /// Called with notices for the user.
    pub notices: Box<dyn FnMut(Notice) + Send>,
}

impl fmt::Debug for Settings {
    // The environment may hold secrets, so it is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("address", &self.address)
            .field("missing", &self.missing)
            .finish()
    }
}

/// A change of the connection that is worth showing to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// No daemon is running, and the client starts one.
    Starting,
    /// The daemon has another version. Reported once per client.
    OtherVersion {
        /// The version of this client.
        client: String,
        /// The version of the daemon.
        daemon: String,
    },
    /// The connection was lost, and the client reconnects.
    Lost,
    /// The daemon was stopped on purpose; the client waits for its next start.
    Stopped,
    /// The client has reconnected and continues after the last event.
    Back,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The daemon refused the request.
    #[error(transparent)]
    Refused(#[from] Fault),
    /// The daemon cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// The request is longer than a protocol line may be; it was not sent.
    #[error(
        "the request has {bytes} bytes and the limit is {limit}; write the text to a file and name its path in the message, without @"
    )]
    TooLong {
        /// The length of the request.
        bytes: usize,
        /// The longest request that can be sent.
        limit: usize,
    },
    /// The connection was lost before the reply, and repeating the request could execute it twice.
    #[error(
        "the connection was lost before the reply to {kind}; the request may or may not have been executed"
    )]
    Unanswered {
        /// The type of the request.
        kind: &'static str,
    },
}

impl AskError {
    /// Returns the error code if the daemon refused the request.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(fault) => Some(&fault.code),
            Self::Unreachable(_) | Self::TooLong { .. } | Self::Unanswered { .. } => None,
        }
    }
}

/// How long the daemon may take to answer `hello`.
const GREETING: Duration = Duration::from_secs(10);
/// After how long a connection counts as stable, so that its loss starts a new reconnect period.
const STEADY: Duration = Duration::from_secs(5);
/// How long to wait for a daemon that is not running and that this client does not start: a restart takes no longer.
const ABSENT: Duration = Duration::from_secs(3);
/// How often a request is sent before it fails.
const REPEATS: u32 = 8;

/// Length of a request id plus the line feed.
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
    /// Whether the daemon's pid file existed on an earlier connection; a forwarded socket has none.
    pid_file_seen: bool,
}

impl Client {
    /// Connects to the daemon and starts it if the configuration allows that.
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
            // A connection that is lost during the handshake is handled like one that is lost later.
            Err(NoLink::Lost(_)) => client.lose(),
            Err(NoLink::Ask(error)) => return Err(error),
        }
        Ok(client)
    }

    /// Sends a request and waits for the reply.
    ///
    /// After a lost connection the request is sent again if it is idempotent.
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

    /// Switches the connection to another protocol and returns it.
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

    /// Attaches to a session: every event after `seen` is delivered once.
    pub async fn attach(&mut self, session: &str, seen: u64, access: Access) -> Result<Attached, AskError> {
        let payload = self.ask(attach_request(session, seen, access, &self.settings.environment)).await?;
        let attached = Attached::read(&payload);
        self.watch.rewind(session, seen, access, attached);
        Ok(attached)
    }

    /// Delivers the events of a session to which a request has subscribed this connection, or is about to.
    ///
    /// After a reconnect the client attaches to the session again, from `seen` on.
    pub fn expect(&mut self, session: &str, seen: u64) {
        self.watch.expect(session, seen, Access::Full);
    }

    /// Returns the next event and reconnects as often as necessary. Cancel-safe.
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

    /// Unsubscribes from a deleted session and returns the error that the daemon gives for it from now on.
    fn forget(&mut self, event: &Event) -> AskError {
        self.watch.forget(&event.session);
        let message = format!("session {} was deleted", event.session);
        Fault { code: "SESSION_DELETED".to_owned(), message, retryable: false, detail: None }.into()
    }

    /// Waits until the daemon closes the connection and drops all events. Cancel-safe.
    pub async fn closed(&mut self) {
        while let Some(link) = &mut self.link {
            if link.read().await.is_err() {
                self.link = None;
            }
        }
    }

    /// Returns the environment that is sent with requests that may start a run.
    pub const fn environment(&self) -> &Environment {
        &self.settings.environment
    }

    /// Takes the link out of the client, so that a cancelled request does not leave its reply to the next request.
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

    /// Resets the backoff and the reconnect timeout.
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

    /// Reconnects if necessary, and attaches to every subscribed session after its last event.
    async fn ensure_link(&mut self) -> Result<(), AskError> {
        if self.link.is_some() {
            return Ok(());
        }
        let told = self.lost_since.is_some();
        // After a cancelled request there is no link although the connection was not lost.
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
                // The reconnect timeout starts with the next start of the daemon.
                since = Instant::now();
                if !std::mem::replace(&mut stopped, true) {
                    (self.settings.notices)(Notice::Stopped);
                }
                continue;
            }
            let patience = match &error {
                // No daemon listens, and this client starts none.
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

    /// Connects, sends `hello`, and attaches to the subscribed sessions.
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

    /// Returns whether the client waits for the next start of the daemon: it has subscriptions, and the daemon was
    /// stopped on purpose.
    ///
    /// A daemon that is stopped removes its pid file. A daemon that crashed leaves it, and the client starts a new
    /// one. If there never was a pid file, its absence means nothing.
    pub fn awaits_start(&self) -> bool {
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

/// Why connecting failed.
#[derive(Debug)]
enum NoLink {
    /// The connection was lost during the handshake; the client tries again.
    Lost(#[expect(dead_code, reason = "shown when debugging")] Lost),
    /// The daemon could not be reached or refused a request.
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
