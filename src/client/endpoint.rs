//! Where the daemon is, and how a connection to it is established up to the handshake.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::timeout;

use super::link::{Link, LinkError};
use super::ssh::{Attempt, EstablishedLink, SshEndpoint, SshError, SshHost};
use super::start::{CONNECT_BACKOFF, MissingDaemon, UnreachableError, connect_or_start};
use super::subscriptions::Subscriptions;
use crate::backoff::Backoff;
use crate::protocol::push::client::Request;
use crate::transport::local::Address;

/// Where the daemon is.
#[derive(Debug, Clone)]
pub enum Endpoint {
    /// On this machine.
    Local(LocalEndpoint),
    /// On another machine.
    Ssh(SshEndpoint),
}

/// The daemon of this machine.
#[derive(Debug, Clone)]
pub struct LocalEndpoint {
    /// Where it listens.
    pub address: Address,
    /// What to do if no daemon listens.
    pub on_missing: MissingDaemon,
}

/// What to do about a daemon that was stopped on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoppedDaemon {
    /// Start it, as if it had never run.
    Start,
    /// Wait for its next start.
    Leave,
}

/// Why no connection was established.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// The connection was lost during the handshake.
    Lost(LinkError),
    /// The daemon cannot be reached.
    Unreachable(UnreachableError),
}

impl From<UnreachableError> for ConnectError {
    fn from(error: UnreachableError) -> Self {
        Self::Unreachable(error)
    }
}

/// How long the daemon may take to answer `hello`.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The delays between attempts to reach a daemon of another machine that was stopped: each is a login there.
const STOPPED_BACKOFF: Backoff = Backoff { first: Duration::from_secs(2), limit: Duration::from_secs(15) };

/// Establishes the connections of a client, one after the other.
pub(super) struct Connector {
    endpoint: Endpoint,
    /// Whether there was a connection.
    is_reconnect: bool,
    /// Whether the daemon's pid file existed on an earlier connection; a forwarded socket has none.
    pid_file_seen: bool,
    /// Whether the last attempt found that the daemon of another machine was stopped.
    remote_stopped: bool,
    /// The connection that ssh is establishing. It is kept when the client is cancelled, since it takes longer than
    /// a client may wait at a time.
    connecting: Option<ConnectFuture>,
}

type ConnectFuture = Pin<Box<dyn Future<Output = Result<EstablishedLink, SshError>> + Send>>;

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Connector {
    /// Creates a connector without a connection.
    pub(super) const fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, is_reconnect: false, pid_file_seen: false, remote_stopped: false, connecting: None }
    }

    /// Connects and sends `hello`. `starting` is called before a daemon is started.
    ///
    /// Cancel-safe: the next call continues with the connection that ssh is establishing.
    pub(super) async fn connect(
        &mut self,
        stopped: StoppedDaemon,
        version: &str,
        starting: &mut (dyn FnMut() + Send),
    ) -> Result<EstablishedLink, ConnectError> {
        let connected = match &self.endpoint {
            Endpoint::Local(local) => connect_locally(local, stopped, version, starting).await?,
            Endpoint::Ssh(ssh) => {
                let ssh = ssh.clone();
                let host = ssh.host.to_string();
                let attempt = if self.is_reconnect { Attempt::Reconnect(stopped) } else { Attempt::First };
                let greeting = Request::hello(version);
                let connecting = self.connecting.get_or_insert_with(|| Box::pin(ssh.connect(attempt, greeting)));
                let outcome = connecting.await;
                self.connecting = None;
                self.remote_stopped = matches!(outcome, Err(SshError::Stopped));
                outcome.map_err(|source| UnreachableError::Ssh { host, source })?
            }
        };
        self.is_reconnect = true;
        if let Endpoint::Local(local) = &self.endpoint {
            self.pid_file_seen |= local.address.pid.exists();
        }
        Ok(connected)
    }

    /// Returns whether the daemon was stopped on purpose.
    ///
    /// A daemon that is stopped removes its pid file, and one that crashed leaves it. If there never was a pid file,
    /// its absence means nothing.
    pub(super) fn daemon_was_stopped(&self) -> bool {
        match &self.endpoint {
            Endpoint::Local(local) => self.pid_file_seen && !local.address.pid.exists(),
            Endpoint::Ssh(_) => self.remote_stopped,
        }
    }

    /// Returns what the next connection does about a daemon that was stopped on purpose, if the client can wait.
    pub(super) fn on_stopped(&self) -> StoppedDaemon {
        match &self.endpoint {
            Endpoint::Local(_) if !self.daemon_was_stopped() => StoppedDaemon::Start,
            // The machine itself looks at the pid file.
            Endpoint::Local(_) | Endpoint::Ssh(_) => StoppedDaemon::Leave,
        }
    }

    /// Returns the delays before the next attempts; none if an attempt is under way.
    pub(super) const fn backoff(&self) -> Option<Backoff> {
        match (&self.connecting, self.remote_stopped) {
            (Some(_), _) => None,
            (None, true) => Some(STOPPED_BACKOFF),
            (None, false) => Some(CONNECT_BACKOFF),
        }
    }

    /// Returns the machine of the daemon, if it is another one.
    pub(super) const fn host(&self) -> Option<&SshHost> {
        match &self.endpoint {
            Endpoint::Local(_) => None,
            Endpoint::Ssh(ssh) => Some(&ssh.host),
        }
    }

    /// Returns the error for a connection that was lost before the daemon answered.
    pub(super) fn no_answer(&self) -> UnreachableError {
        match &self.endpoint {
            Endpoint::Local(local) => no_answer(local),
            Endpoint::Ssh(ssh) => UnreachableError::Ssh {
                host: ssh.host.to_string(),
                source: SshError::Disconnected { output: String::new() },
            },
        }
    }
}

async fn connect_locally(
    local: &LocalEndpoint,
    stopped: StoppedDaemon,
    version: &str,
    starting: &mut (dyn FnMut() + Send),
) -> Result<EstablishedLink, ConnectError> {
    let on_missing = match stopped {
        StoppedDaemon::Start => &local.on_missing,
        StoppedDaemon::Leave => &MissingDaemon::Fail,
    };
    let mut link = Link::local(connect_or_start(&local.address, on_missing, starting).await?);
    // A new connection has no events.
    let mut events = Subscriptions::default();
    match timeout(HANDSHAKE_TIMEOUT, link.exchange(Request::hello(version).body(), &mut events)).await {
        Ok(Ok(hello)) => Ok(EstablishedLink { link, hello }),
        Ok(Err(lost)) => Err(ConnectError::Lost(lost)),
        Err(_) => Err(no_answer(local).into()),
    }
}

fn no_answer(local: &LocalEndpoint) -> UnreachableError {
    UnreachableError::NoAnswer { path: local.address.socket.clone() }
}
