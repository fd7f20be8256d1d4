//! The client: sends requests, receives events, and reconnects from the last event it received.

use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::bridge::Bridge;
use super::endpoint::{self, Connector, Endpoint, StoppedDaemon};
use super::link::{Link, LinkError};
use super::request_error::RequestError;
use super::ssh::{EstablishedLink, SshHost};
use super::start::UnreachableError;
use super::subscriptions::{Access, Subscriptions};
use crate::backoff::random_fraction;
use crate::config::limits::LINE_BYTES;
use crate::protocol::push::client::{
    ApprovalsReply, AttachReply, Environment, Event, EventContent, HelloReply, Incoming, Replay, Request, RequestBody,
    ResponseError, RetrySafety,
};

/// Configuration of a client.
pub struct ClientConfig {
    /// Where the daemon is.
    pub endpoint: Endpoint,
    /// This client's version.
    pub version: &'static str,
    /// The environment that is sent with requests that may start a run; none to let the daemon use that of the owner's
    /// login shell.
    pub environment: Option<Environment>,
    /// How long to try to reconnect after a lost connection.
    pub reconnect_timeout: Duration,
    /// Called with notices for the user.
    pub on_notice: Box<dyn FnMut(Notice) + Send>,
}

impl fmt::Debug for ClientConfig {
    // The environment may hold secrets, so it is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// A change of the connection that is worth showing to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// No daemon is running, and the client starts one.
    Starting,
    /// The daemon has another version. Reported once per client.
    VersionMismatch {
        /// The version of this client.
        client: String,
        /// The version of the daemon.
        daemon: String,
    },
    /// The connection was lost, and the client reconnects.
    ConnectionLost,
    /// The daemon was stopped on purpose; the client waits for its next start.
    DaemonStopped,
    /// The client has reconnected and continues after the last event.
    Reconnected,
}

/// What a client receives without asking each time.
#[derive(Debug)]
pub enum Update {
    /// An event of a session.
    Event(Box<Event>),
    /// The pending approvals of all sessions have changed.
    Approvals(ApprovalsReply),
}

/// After how long a connection counts as stable, so that its loss starts a new reconnect period.
const STABLE_AFTER: Duration = Duration::from_secs(5);
/// How long to wait for a daemon that is not running and that this client does not start: a restart takes no longer.
const RESTART_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a request is sent before it fails.
const MAX_ATTEMPTS: u32 = 8;

/// Length of a request id plus the line feed.
const ID_BYTES: usize = 31;

/// A client with its connection.
pub struct Client {
    connector: Connector,
    version: &'static str,
    environment: Option<Environment>,
    reconnect_timeout: Duration,
    on_notice: Box<dyn FnMut(Notice) + Send>,
    link: Option<Link>,
    subscriptions: Subscriptions,
    /// The connection attempts since the last success.
    attempts: u32,
    lost_since: Option<Instant>,
    /// When the next attempt begins. It is kept when the client is cancelled, so that a client that is cancelled often
    /// reconnects, too.
    retry_at: Option<Instant>,
    /// Whether the user knows that the daemon was stopped.
    stop_reported: bool,
    connected_at: Instant,
    version_reported: bool,
    home_directory: Option<String>,
    /// Whether it waits for the next start of a daemon that was stopped on purpose, also without subscriptions.
    stays: bool,
}

impl fmt::Debug for Client {
    // The environment may hold secrets, so it is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("connector", &self.connector).field("link", &self.link).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to the daemon and starts it if the configuration allows that.
    pub async fn open(settings: ClientConfig) -> Result<Self, RequestError> {
        let mut client = Self {
            connector: Connector::new(settings.endpoint),
            version: settings.version,
            environment: settings.environment,
            reconnect_timeout: settings.reconnect_timeout,
            on_notice: settings.on_notice,
            link: None,
            subscriptions: Subscriptions::default(),
            attempts: 0,
            lost_since: None,
            retry_at: None,
            stop_reported: false,
            connected_at: Instant::now(),
            version_reported: false,
            home_directory: None,
            stays: false,
        };
        match client.establish().await {
            Ok(link) => client.restore_link(link),
            // A connection that is lost during the handshake is handled like one that is lost later.
            Err(ConnectError::Link(_)) => client.drop_link(),
            Err(ConnectError::Request(error)) => return Err(error),
        }
        Ok(client)
    }

    /// Sends a request and waits for the reply.
    ///
    /// After a lost connection the request is sent again if it is idempotent.
    pub async fn request<R: DeserializeOwned>(&mut self, request: Request<R>) -> Result<R, RequestError> {
        let payload = self.exchange(request.body()).await?;
        decode_reply(request.body(), &payload)
    }

    /// Like [`request`](Self::request), and also returns the reply as JSON, for verbs that print it.
    pub async fn request_with_json<R: DeserializeOwned>(
        &mut self,
        request: Request<R>,
    ) -> Result<(R, Value), RequestError> {
        let payload = self.exchange(request.body()).await?;
        Ok((decode_reply(request.body(), &payload)?, decode_reply(request.body(), &payload)?))
    }

    async fn exchange(&mut self, request: &RequestBody) -> Result<String, RequestError> {
        let bytes = request.line("").len() + ID_BYTES;
        if bytes > LINE_BYTES {
            return Err(RequestError::TooLong { bytes, limit: LINE_BYTES });
        }
        for _ in 0..MAX_ATTEMPTS {
            let mut link = self.take_link().await?;
            if let Ok(outcome) = link.exchange(request, &mut self.subscriptions).await {
                self.restore_link(link);
                return Ok(outcome?);
            }
            self.drop_link();
            if request.retry_safety() == RetrySafety::Unsafe {
                break;
            }
        }
        Err(RequestError::NoReply { kind: request.kind() })
    }

    /// Returns the connection itself, for a client on another machine.
    pub async fn into_bridge(mut self) -> Result<Bridge, RequestError> {
        Ok(self.take_link().await?.into_bridge())
    }

    /// Switches the connection to another protocol and returns it.
    pub async fn switch_protocol(mut self, request: Request) -> Result<Bridge, RequestError> {
        let mut link = self.take_link().await?;
        match link.exchange(request.body(), &mut self.subscriptions).await {
            Ok(outcome) => {
                outcome?;
                Ok(link.into_bridge())
            }
            Err(_) => Err(RequestError::Unreachable(self.connector.no_answer())),
        }
    }

    /// Attaches to a session: every event after `seen` is delivered once.
    pub async fn attach(&mut self, session: &str, seen: u64, access: Access) -> Result<Replay, RequestError> {
        let AttachReply { replay } =
            self.request(attach_request(session, seen, access, self.environment.as_ref())).await?;
        self.subscriptions.rewind(session, seen, access, &replay);
        Ok(replay)
    }

    /// Ends the subscription to a session.
    pub async fn detach(&mut self, session: &str) -> Result<(), RequestError> {
        self.subscriptions.unsubscribe(session);
        self.request(Request::detach_session(session)).await.map(drop)
    }

    /// Forgets all subscriptions, for instance after the daemon has refused to renew one of them.
    pub fn forget_subscriptions(&mut self) {
        self.subscriptions = Subscriptions::default();
    }

    /// Returns whether it is subscribed to a session.
    pub fn is_subscribed(&self, session: &str) -> bool {
        self.subscriptions.contains(session)
    }

    /// Waits from here on for the next start of a daemon that was stopped on purpose, also without subscriptions.
    pub const fn stay(&mut self) {
        self.stays = true;
    }

    /// Delivers the events of a session to which a request has subscribed this connection, or is about to.
    ///
    /// After a reconnect the client attaches to the session again, from `seen` on.
    pub fn track(&mut self, session: &str, seen: u64) {
        self.subscriptions.track(session, seen, Access::Full);
    }

    /// Requests the pending approvals of all sessions, which [`next_update`](Self::next_update) returns as soon as their
    /// revision is not `known`; at once for 0, and after a reconnect.
    pub async fn watch_approvals(&mut self, known: u64) -> Result<(), RequestError> {
        self.subscriptions.watch_approvals(String::new());
        let mut link = self.take_link().await?;
        match link.send(Request::await_approvals(known).body()).await {
            Ok(id) => {
                self.subscriptions.watch_approvals(id);
                self.restore_link(link);
            }
            // The next connection sends it again.
            Err(_) => self.drop_link(),
        }
        Ok(())
    }

    /// Returns the next event and reconnects as often as necessary. Cancel-safe.
    pub async fn next(&mut self) -> Result<Event, RequestError> {
        loop {
            if let Update::Event(event) = self.next_update().await? {
                return Ok(*event);
            }
        }
    }

    /// Returns the next event, or pending approvals that are watched. Cancel-safe.
    pub async fn next_update(&mut self) -> Result<Update, RequestError> {
        loop {
            if let Some(event) = self.subscriptions.pop() {
                let is_deleted = event.content == EventContent::Deleted;
                let event = Box::new(event);
                return if is_deleted { Err(self.session_deleted(&event)) } else { Ok(Update::Event(event)) };
            }
            if let Some(payload) = self.subscriptions.take_approvals() {
                return Ok(Update::Approvals(decode_reply(Request::await_approvals(0).body(), &payload)?));
            }
            self.ensure_link().await?;
            let Some(link) = &mut self.link else { continue };
            match link.read().await {
                Ok(incoming) => {
                    self.reset_backoff();
                    match incoming {
                        Incoming::Event(event) => self.subscriptions.accept(*event),
                        Incoming::Response(response) => self.subscriptions.accept_response(response),
                        Incoming::Unknown => {}
                    }
                }
                Err(_) => self.drop_link(),
            }
        }
    }

    /// Unsubscribes from a deleted session and returns the error that the daemon gives for it from now on.
    fn session_deleted(&mut self, event: &Event) -> RequestError {
        self.subscriptions.unsubscribe(&event.session);
        let message = format!("session {} was deleted", event.session);
        ResponseError { code: "SESSION_DELETED".to_owned(), message, retryable: false, detail: None }.into()
    }

    /// Waits until the daemon closes the connection and drops all events. Cancel-safe.
    pub async fn closed(&mut self) {
        while let Some(link) = &mut self.link {
            if link.read().await.is_err() {
                self.link = None;
            }
        }
    }

    /// Returns the environment that is sent with requests that may start a run; none if the daemon uses that of the
    /// owner's login shell.
    pub const fn environment(&self) -> Option<&Environment> {
        self.environment.as_ref()
    }

    /// Returns the machine of the daemon, if it is another one.
    pub const fn host(&self) -> Option<&SshHost> {
        self.connector.host()
    }

    /// Returns the home directory of the daemon's user, if the daemon has reported it.
    pub fn home_directory(&self) -> Option<&str> {
        self.home_directory.as_deref()
    }

    /// Takes the link out of the client, so that a cancelled request does not leave its reply to the next request.
    async fn take_link(&mut self) -> Result<Link, RequestError> {
        loop {
            self.ensure_link().await?;
            if let Some(link) = self.link.take() {
                return Ok(link);
            }
        }
    }

    fn restore_link(&mut self, link: Link) {
        self.link = Some(link);
        self.reset_backoff();
    }

    /// Resets the backoff and the reconnect timeout.
    const fn reset_backoff(&mut self) {
        self.attempts = 0;
        self.lost_since = None;
    }

    fn drop_link(&mut self) {
        self.link = None;
        if self.connected_at.elapsed() > STABLE_AFTER {
            self.reset_backoff();
        }
        if self.lost_since.is_none() {
            self.lost_since = Some(Instant::now());
            (self.on_notice)(Notice::ConnectionLost);
        }
    }

    /// Reconnects if necessary, and attaches to every subscribed session after its last event.
    async fn ensure_link(&mut self) -> Result<(), RequestError> {
        if self.link.is_some() {
            return Ok(());
        }
        let was_lost = self.lost_since.is_some();
        // After a cancelled request there is no link although the connection was not lost.
        let mut since = *self.lost_since.get_or_insert_with(Instant::now);
        loop {
            if let Some(backoff) = self.connector.backoff() {
                let delay = backoff.delay(self.attempts, random_fraction());
                sleep_until(*self.retry_at.get_or_insert_with(|| Instant::now() + delay)).await;
                self.retry_at = None;
                self.attempts = self.attempts.saturating_add(1);
            }
            let error = match self.establish().await {
                Ok(link) => {
                    self.link = Some(link);
                    self.connected_at = Instant::now();
                    self.stop_reported = false;
                    if was_lost {
                        (self.on_notice)(Notice::Reconnected);
                    }
                    return Ok(());
                }
                Err(ConnectError::Request(RequestError::Refused(fault))) => return Err(fault.into()),
                Err(ConnectError::Request(error)) => error,
                Err(ConnectError::Link(_)) => self.connector.no_answer().into(),
            };
            if self.awaits_start() {
                // The reconnect timeout starts with the next start of the daemon.
                since = Instant::now();
                self.lost_since = Some(since);
                if !std::mem::replace(&mut self.stop_reported, true) {
                    (self.on_notice)(Notice::DaemonStopped);
                }
                continue;
            }
            let patience = match &error {
                // No daemon listens, and this client starts none.
                RequestError::Unreachable(UnreachableError::NotRunning) => self.reconnect_timeout.min(RESTART_TIMEOUT),
                RequestError::Unreachable(error) if error.is_permanent() => Duration::ZERO,
                RequestError::Refused(_)
                | RequestError::Unreachable(_)
                | RequestError::TooLong { .. }
                | RequestError::NoReply { .. }
                | RequestError::UnreadableReply { .. } => self.reconnect_timeout,
            };
            if since.elapsed() >= patience {
                return Err(error);
            }
        }
    }

    /// Connects, sends `hello`, and attaches to the subscribed sessions.
    async fn establish(&mut self) -> Result<Link, ConnectError> {
        let stopped = if self.can_wait() { self.connector.on_stopped() } else { StoppedDaemon::Start };
        let Self { connector, version, on_notice, .. } = self;
        let EstablishedLink { mut link, hello } =
            connector.connect(stopped, version, &mut || on_notice(Notice::Starting)).await?;
        let hello = hello.map_err(RequestError::from)?;
        let hello: HelloReply = decode_reply(Request::hello(self.version).body(), &hello)?;
        self.home_directory.clone_from(&hello.home_directory);
        self.report_version(hello);
        for (session, position) in self.subscriptions.positions() {
            let request = attach_request(&session, position.seen, position.access, self.environment.as_ref());
            let payload = link.exchange(request.body(), &mut self.subscriptions).await?.map_err(RequestError::from)?;
            let reply: AttachReply = decode_reply(request.body(), &payload)?;
            self.subscriptions.rewind(&session, position.seen, position.access, &reply.replay);
        }
        if self.subscriptions.watches_approvals() {
            let id = link.send(Request::await_approvals(0).body()).await?;
            self.subscriptions.watch_approvals(id);
        }
        Ok(link)
    }

    /// Returns whether the client waits for the next start of the daemon: it has subscriptions or stays, and the daemon was
    /// stopped on purpose. A daemon that crashed is started again.
    pub fn awaits_start(&self) -> bool {
        self.can_wait() && self.connector.daemon_was_stopped()
    }

    /// Returns whether the client has lost a connection with subscriptions, or one that it stays at.
    fn can_wait(&self) -> bool {
        self.lost_since.is_some() && (self.stays || !self.subscriptions.is_empty())
    }

    fn report_version(&mut self, hello: HelloReply) {
        let daemon = hello.runtime_version.unwrap_or_else(|| "unknown".to_owned());
        if daemon != self.version && !self.version_reported {
            self.version_reported = true;
            let client = self.version.to_owned();
            (self.on_notice)(Notice::VersionMismatch { client, daemon });
        }
    }
}

/// Why connecting failed.
#[derive(Debug)]
enum ConnectError {
    /// The connection was lost during the handshake; the client tries again.
    Link(#[expect(dead_code, reason = "shown when debugging")] LinkError),
    /// The daemon could not be reached or refused a request.
    Request(RequestError),
}

impl From<LinkError> for ConnectError {
    fn from(lost: LinkError) -> Self {
        Self::Link(lost)
    }
}

impl From<endpoint::ConnectError> for ConnectError {
    fn from(error: endpoint::ConnectError) -> Self {
        match error {
            endpoint::ConnectError::Lost(lost) => Self::Link(lost),
            endpoint::ConnectError::Unreachable(error) => Self::Request(error.into()),
        }
    }
}

impl From<RequestError> for ConnectError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

fn decode_reply<R: DeserializeOwned>(request: &RequestBody, payload: &str) -> Result<R, RequestError> {
    serde_json::from_str(payload).map_err(|source| RequestError::UnreadableReply { kind: request.kind(), source })
}

fn attach_request(session: &str, seen: u64, access: Access, environment: Option<&Environment>) -> Request<AttachReply> {
    let request = Request::attach_session(session, seen);
    match access {
        Access::Full => request.with_environment(environment),
        Access::History => Request::resume_session(session, seen).with("readOnly", true),
        Access::ReadOnly => request.with("readOnly", true),
        Access::AsOwner => request.with("asOwner", true),
    }
}
