//! The WebSocket port: identification of clients, token checks and connection limits.
//!
//! Every local user can reach the port, and so can every command that a model runs with network access. The system's
//! connection table tells users apart: users other than the owner need a token. Commands of models are always
//! refused.
//!
//! The owner of a connection is looked up after its handshake request is complete. A process that queued its
//! handshake and exited has no known ancestry, so its connection is refused.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{debug, error, warn};

use super::commands::Peer;
use super::connection;
use super::identity::Identity;
use super::protocols::{ProtocolRegistry, Protocols, web_endpoints};
use super::server::Server;
use super::token_throttle::TokenThrottle;
use crate::config::limits::Limits;
use crate::config::listener::{WebListener, WebScope};
use crate::config::settings::Switch;
use crate::sandbox::{ProcessOrigin, SupervisorRegistry};
use crate::token::{TokenStore, TokenStoreError};
use crate::transport::web::{
    AccessPolicy, AccessRefusal, Authorizer, HandshakeError, PeerIdentity, PeerOwner, UpgradedConnection, handshake,
};

/// Why the port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// Clients on the network could connect without a token.
    #[error(
        "{0} can be reached from other machines, and there is no token; create one with `push token new`, or listen at 127.0.0.1"
    )]
    Unprotected(SocketAddr),
    /// No client could connect.
    #[error("every client at {0} needs a token, and there is none; create one with `push token new`")]
    NoToken(SocketAddr),
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokenStoreError),
    /// The port is in use, or the address is not one of this machine.
    #[error("cannot listen at {at} {}", .scope.purpose())]
    Bind {
        /// What the port is for.
        scope: WebScope,
        /// The address.
        at: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
}

/// The WebSocket server.
#[derive(Debug)]
pub(super) struct WebServer {
    scope: WebScope,
    listener: TcpListener,
    address: SocketAddr,
    access_policy: AccessPolicy,
    /// Whether the owner needs a token, too.
    token_required: bool,
    tokens: TokenStore,
    token_throttle: TokenThrottle<ThrottleKey>,
    handshake_timeout: Duration,
    /// The slots of open connections.
    connection_slots: Arc<Semaphore>,
    /// The slots of handshakes of the owner.
    own_handshakes: Arc<Semaphore>,
    /// The slots of handshakes of other users, separate from the owner's.
    other_handshakes: Arc<Semaphore>,
}

/// The key under which wrong tokens are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ThrottleKey {
    User(u32),
    Address(IpAddr),
}

/// A connection whose handshake has not finished.
struct IncomingConnection {
    stream: TcpStream,
    from: SocketAddr,
    here: SocketAddr,
    /// Its owner when it was accepted, which selects the handshake limit and nothing else.
    owner: PeerOwner,
    permit: OwnedSemaphorePermit,
}

impl WebServer {
    /// Opens the port; refuses a configuration under which no client, or any client, could connect.
    pub(super) async fn open(
        listener: &WebListener,
        state: &Path,
        limits: &Limits,
        protocols: Protocols,
    ) -> Result<Self, WebError> {
        let WebListener { scope, settings } = listener;
        let scope = *scope;
        let tokens = TokenStore::new(state);
        let (at, is_local) = (settings.listen, settings.listen.ip().to_canonical().is_loopback());
        let token_required = settings.require_token == Switch::On || !is_local || !PeerIdentity::is_supported();
        if token_required && tokens.list()?.is_empty() {
            return Err(if is_local { WebError::NoToken(at) } else { WebError::Unprotected(at) });
        }
        let listener = TcpListener::bind(at).await.map_err(|source| WebError::Bind { scope, at, source })?;
        let address = listener.local_addr().map_err(|source| WebError::Bind { scope, at, source })?;
        let mut hosts = settings.hosts.clone();
        if !address.ip().is_unspecified() {
            hosts.push(host_header(address.ip()));
        }
        let endpoints = web_endpoints(scope, protocols, limits);
        let access_policy = AccessPolicy { hosts, origins: settings.origins.clone(), endpoints };
        Ok(Self {
            scope,
            listener,
            address,
            access_policy,
            token_required,
            tokens,
            token_throttle: TokenThrottle::new(limits.wrong_tokens, limits.wrong_token_interval),
            handshake_timeout: limits.handshake_timeout,
            connection_slots: Arc::new(Semaphore::new(limits.pi_connections)),
            own_handshakes: Arc::new(Semaphore::new(MAX_OWN_HANDSHAKES)),
            other_handshakes: Arc::new(Semaphore::new(MAX_OTHER_HANDSHAKES)),
        })
    }

    /// Returns what the port is for.
    pub(super) const fn scope(&self) -> WebScope {
        self.scope
    }

    /// Returns the listening address.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections until the daemon shuts down.
    pub(super) async fn serve(self: Arc<Self>, protocols: Arc<ProtocolRegistry>) {
        let services = Arc::clone(protocols.server().hub().services());
        loop {
            let accepted = tokio::select! {
                () = services.closing.wait() => return,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => self.accept(&protocols, stream, from).await,
                Err(error) => {
                    error!(%error, "cannot accept a WebSocket");
                    // The listener may stay readable, so that an immediate retry would spin.
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    /// Looks up the owner of a connection and starts its handshake.
    async fn accept(self: &Arc<Self>, protocols: &Arc<ProtocolRegistry>, stream: TcpStream, from: SocketAddr) {
        let here = stream.local_addr().unwrap_or(self.address);
        let looked_up = tokio::task::spawn_blocking(move || PeerIdentity::lookup(from, here)).await;
        let identity = looked_up.unwrap_or(PeerIdentity::UNKNOWN);
        let slots = match identity.owner {
            PeerOwner::Own => &self.own_handshakes,
            PeerOwner::OtherUser { .. } | PeerOwner::Orphaned | PeerOwner::Unknown => &self.other_handshakes,
        };
        let Ok(permit) = Arc::clone(slots).try_acquire_owned() else {
            return warn!(%from, owner = ?identity.owner, "too many handshakes in progress");
        };
        let (web, protocols) = (Arc::clone(self), Arc::clone(protocols));
        let incoming = IncomingConnection { stream, from, here, owner: identity.owner, permit };
        tokio::spawn(async move { web.admit(&protocols, incoming).await });
    }

    async fn admit(&self, protocols: &ProtocolRegistry, incoming: IncomingConnection) {
        let server = protocols.server();
        let IncomingConnection { stream, from, here, owner, permit } = incoming;
        // Disables Nagle's algorithm; a failure only costs latency.
        let _ = stream.set_nodelay(true);
        let authorizer = HandshakeAuthorizer { web: self, server, from, here };
        match handshake(stream, &self.access_policy, self.handshake_timeout, &authorizer).await {
            Ok(UpgradedConnection { permit: AdmittedPeer { identity, _slot }, protocol, reader, writer }) => {
                drop(permit);
                let (_counted, _) = server.count_connection();
                let id = server.next_connection_id();
                debug!(connection = id.0, %from, ?owner, "WebSocket");
                // A WebSocket stays in the protocol of its path.
                connection::serve_protocol(protocols, protocol, Peer::remote(identity), id, reader, writer).await;
            }
            Err(HandshakeError::Refused(refusal)) => {
                warn!(%from, ?owner, %refusal, "handshake refused");
            }
            Err(problem @ (HandshakeError::TimedOut | HandshakeError::Failed(_))) => {
                debug!(%from, %problem, "handshake not completed");
            }
        }
    }

    /// Checks a token, unless its source is throttled.
    fn check_token(
        &self,
        token: &str,
        identity: PeerIdentity,
        from: IpAddr,
        now: Duration,
    ) -> Result<Identity, AccessRefusal> {
        let key = match identity.owner {
            PeerOwner::OtherUser { uid } => ThrottleKey::User(uid),
            PeerOwner::Own | PeerOwner::Orphaned | PeerOwner::Unknown => ThrottleKey::Address(from.to_canonical()),
        };
        self.token_throttle.try_acquire(&key, now).map_err(|pause| AccessRefusal::TokensThrottled {
            seconds: u64::try_from(pause.as_millis().div_ceil(1000)).unwrap_or(u64::MAX),
        })?;
        match self.tokens.find(token) {
            Ok(Some(token)) => {
                self.token_throttle.refund(&key);
                Ok(Identity::of_token(&token))
            }
            Ok(None) => Err(AccessRefusal::InvalidToken),
            Err(error) => {
                error!(%error, "cannot read tokens");
                Err(AccessRefusal::TokensUnreadable)
            }
        }
    }
}

/// Who was admitted, and the slot of its connection.
struct AdmittedPeer {
    identity: Identity,
    _slot: OwnedSemaphorePermit,
}

/// Authorizes one handshake.
struct HandshakeAuthorizer<'a> {
    web: &'a WebServer,
    server: &'a Server,
    from: SocketAddr,
    here: SocketAddr,
}

impl Authorizer for HandshakeAuthorizer<'_> {
    type Permit = AdmittedPeer;

    async fn authorize(&self, token: Option<String>) -> Result<AdmittedPeer, AccessRefusal> {
        let (from, here, services) = (self.from, self.here, self.server.hub().services());
        let supervisors = services.sandboxes.supervisors().clone();
        let looked_up = tokio::task::spawn_blocking(move || {
            let identity = PeerIdentity::lookup(from, here);
            check_holders(&supervisors, identity).map(|holder| (identity, holder))
        });
        // A client that cannot be distinguished from a command of a model counts as one.
        let (identity, holder) = looked_up.await.unwrap_or(Err(AccessRefusal::ToolProcess))?;
        let everybody = self.web.token_required;
        let identity = match (token, identity.owner, holder) {
            (Some(token), _, _) => self.web.check_token(&token, identity, from.ip(), services.clock.uptime())?,
            (None, PeerOwner::Own, HolderVisibility::Visible) if !everybody => Identity::LOCAL_OWNER,
            (None, PeerOwner::OtherUser { .. }, _) if !everybody => return Err(AccessRefusal::OtherUser),
            (None, PeerOwner::Own | PeerOwner::OtherUser { .. } | PeerOwner::Orphaned | PeerOwner::Unknown, _) => {
                return Err(AccessRefusal::TokenRequired);
            }
        };
        let slot = Arc::clone(&self.web.connection_slots).try_acquire_owned();
        Ok(AdmittedPeer { identity, _slot: slot.map_err(|_| AccessRefusal::TooManyConnections)? })
    }
}

/// Whether the process that holds a connection is visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HolderVisibility {
    Visible,
    Hidden,
}

/// Checks the processes that hold a connection at this moment; none may descend from a command of a model.
///
/// A holder may be invisible: on another machine, of another user, or not inspectable. It could then be any process
/// of the same user, so none of these may be a model's.
fn check_holders(supervisors: &SupervisorRegistry, identity: PeerIdentity) -> Result<HolderVisibility, AccessRefusal> {
    match identity.owner {
        PeerOwner::Orphaned => return Err(AccessRefusal::NoOwningProcess),
        PeerOwner::Unknown => return Ok(HolderVisibility::Hidden),
        PeerOwner::Own | PeerOwner::OtherUser { .. } => {}
    }
    let origin = |pid: &u32| supervisors.origin(Some(*pid));
    let holders = identity.holders();
    if holders.is_empty() {
        let origin = |pid| supervisors.origin(Some(pid));
        return check_possible_holders(|| identity.possible_holders(), origin, |pid| identity.may_be_held_by(pid));
    }
    if !holders.iter().all(|pid| origin(pid) == ProcessOrigin::NotModelCommand) {
        return Err(AccessRefusal::ToolProcess);
    }
    // A process that holds the connection before and after the check kept its id throughout.
    let is_held = holders.iter().any(|pid| identity.is_held_by(*pid));
    if is_held { Ok(HolderVisibility::Visible) } else { Err(AccessRefusal::NoOwningProcess) }
}

/// Checks every process that may hold a connection invisibly: each must be known not to be a model's.
///
/// A process that exited before it was inspected may have passed the connection on, so all are inspected again.
fn check_possible_holders<P: IntoIterator<Item = u32>>(
    possible: impl Fn() -> P,
    origin: impl Fn(u32) -> ProcessOrigin,
    is_there: impl Fn(u32) -> bool,
) -> Result<HolderVisibility, AccessRefusal> {
    for _ in 0..MAX_SCANS {
        let mut ended = false;
        for pid in possible() {
            match origin(pid) {
                ProcessOrigin::NotModelCommand => {}
                ProcessOrigin::Unknown if !is_there(pid) => ended = true,
                ProcessOrigin::ModelCommand | ProcessOrigin::Unknown => return Err(AccessRefusal::ToolProcess),
            }
        }
        if !ended {
            return Ok(HolderVisibility::Hidden);
        }
    }
    Err(AccessRefusal::ToolProcess)
}

/// How often the possible holders are inspected while some of them exit.
const MAX_SCANS: usize = 16;

/// Formats an address as in a `Host` header.
fn host_header(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(four) => four.to_string(),
        IpAddr::V6(six) => format!("[{six}]"),
    }
}

/// The maximum number of concurrent handshakes of the owner.
const MAX_OWN_HANDSHAKES: usize = 256;

/// The maximum number of concurrent handshakes of other users.
const MAX_OTHER_HANDSHAKES: usize = 64;

/// The delay before the next accept after a failed one.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_hidden_holder_is_admitted_only_if_no_possible_holder_is_a_tool_process() {
        let check = |origins: &'static [ProcessOrigin]| {
            let origin = |pid: u32| usize::try_from(pid).map_or(ProcessOrigin::Unknown, |at| origins[at]);
            check_possible_holders(|| 0..u32::try_from(origins.len()).unwrap_or_default(), origin, |_| true)
        };
        assert_eq!(check(&[]), Ok(HolderVisibility::Hidden));
        assert_eq!(
            check(&[ProcessOrigin::NotModelCommand, ProcessOrigin::NotModelCommand]),
            Ok(HolderVisibility::Hidden)
        );
        assert_eq!(
            check(&[ProcessOrigin::NotModelCommand, ProcessOrigin::ModelCommand]),
            Err(AccessRefusal::ToolProcess)
        );
        // The process runs, and its origin is unknown.
        assert_eq!(check(&[ProcessOrigin::NotModelCommand, ProcessOrigin::Unknown]), Err(AccessRefusal::ToolProcess));
    }

    #[test]
    fn an_exiting_process_does_not_hide_its_child() {
        let listings = Cell::new(0);
        let listed = || {
            listings.set(listings.get() + 1);
            [listings.get()]
        };
        // The first process has exited, and its child is a model's.
        let origin = |pid| if pid == 1 { ProcessOrigin::Unknown } else { ProcessOrigin::ModelCommand };
        assert_eq!(check_possible_holders(listed, origin, |_| false), Err(AccessRefusal::ToolProcess));
        assert_eq!(listings.get(), 2);
        listings.set(0);
        let origin = |pid| if pid == 1 { ProcessOrigin::Unknown } else { ProcessOrigin::NotModelCommand };
        assert_eq!(check_possible_holders(listed, origin, |_| false), Ok(HolderVisibility::Hidden));
        // A process that keeps forking and exiting is never inspected.
        assert_eq!(
            check_possible_holders(listed, |_| ProcessOrigin::Unknown, |_| false),
            Err(AccessRefusal::ToolProcess)
        );
    }
}
