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

use super::guesses::Guesses;
use super::pi::{self, PiPeer, Via};
use super::server::Server;
use crate::config::limits::Limits;
use crate::config::pi::PiSettings;
use crate::config::settings::Switch;
use crate::protocol::pi::decode;
use crate::sandbox::{Lineage, Origin};
use crate::token::{Tokens, TokensError};
use crate::transport::web::{
    Door, Entry, Identity, Refusal, SocketLimits, Unwelcome, WelcomeLimits, Welcomed, Whose, welcome,
};

/// Why the port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// Clients on the network could connect without a token.
    #[error(
        "{0} can be reached from other machines, and there is no token: `push token new` makes one, or listen at 127.0.0.1"
    )]
    Unprotected(SocketAddr),
    /// No client could connect.
    #[error("every client at {0} needs a token, and there is none: `push token new` makes one")]
    NoToken(SocketAddr),
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// The port is in use, or the address is not one of this machine.
    #[error("cannot listen at {at} for Pi (`[pi] listen`, PI_SERVER_PORT or --pi sets another place)")]
    Bind {
        /// The address.
        at: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
}

/// The WebSocket server.
#[derive(Debug)]
pub(super) struct Web {
    listener: TcpListener,
    address: SocketAddr,
    door: Door,
    /// Whether the owner needs a token, too.
    everybody_needs_a_token: bool,
    tokens: Tokens,
    guesses: Guesses<Guesser>,
    limits: WelcomeLimits,
    /// The slots of open connections.
    seats: Arc<Semaphore>,
    /// The slots of handshakes of the owner.
    own: Arc<Semaphore>,
    /// The slots of handshakes of other users, separate from the owner's.
    others: Arc<Semaphore>,
}

/// The key under which wrong tokens are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Guesser {
    User(u32),
    Machine(IpAddr),
}

/// A connection whose handshake has not finished.
struct Arrival {
    stream: TcpStream,
    from: SocketAddr,
    here: SocketAddr,
    /// Its owner when it was accepted, which selects the handshake limit and nothing else.
    whose: Whose,
    permit: OwnedSemaphorePermit,
}

impl Web {
    /// Opens the port; refuses a configuration under which no client, or any client, could connect.
    pub(super) async fn open(settings: &PiSettings, state: &Path, limits: &Limits) -> Result<Self, WebError> {
        let tokens = Tokens::new(state);
        let (at, is_local) = (settings.listen, settings.listen.ip().to_canonical().is_loopback());
        let everybody_needs_a_token =
            settings.require_token == Switch::On || !is_local || !Identity::is_told();
        if everybody_needs_a_token && tokens.list()?.is_empty() {
            return Err(if is_local { WebError::NoToken(at) } else { WebError::Unprotected(at) });
        }
        let listener = TcpListener::bind(at).await.map_err(|source| WebError::Bind { at, source })?;
        let address = listener.local_addr().map_err(|source| WebError::Bind { at, source })?;
        let mut hosts = settings.hosts.clone();
        if !address.ip().is_unspecified() {
            hosts.push(host_of(address.ip()));
        }
        let door = Door { hosts, origins: settings.origins.clone(), paths: &["/", "/pi"], protocol: "pi" };
        let (message, stalled, is_named) = (limits.pi_message_bytes, limits.stalled, decode::names_itself);
        let socket = SocketLimits { message, stalled, is_named };
        Ok(Self {
            listener,
            address,
            door,
            everybody_needs_a_token,
            tokens,
            guesses: Guesses::new(limits.wrong_tokens, limits.wrong_token_pause),
            limits: WelcomeLimits { handshake: limits.handshake, socket },
            seats: Arc::new(Semaphore::new(limits.pi_connections)),
            own: Arc::new(Semaphore::new(ARRIVING)),
            others: Arc::new(Semaphore::new(OTHERS_ARRIVING)),
        })
    }

    /// Returns the listening address.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections until the daemon shuts down.
    pub(super) async fn serve(self: Arc<Self>, server: Arc<Server>) {
        let world = Arc::clone(server.hub().world());
        loop {
            let accepted = tokio::select! {
                () = world.closing.wait() => return,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => self.receive(&server, stream, from).await,
                Err(error) => {
                    error!(%error, "cannot accept a connection for Pi");
                    // The listener may stay readable, so that an immediate retry would spin.
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }

    /// Looks up the owner of a connection and starts its handshake.
    async fn receive(self: &Arc<Self>, server: &Arc<Server>, stream: TcpStream, from: SocketAddr) {
        let here = stream.local_addr().unwrap_or(self.address);
        let looked_up = tokio::task::spawn_blocking(move || Identity::of(from, here)).await;
        let identity = looked_up.unwrap_or(Identity::UNKNOWN);
        let room = match identity.whose {
            Whose::Own => &self.own,
            Whose::Foreign { .. } | Whose::Orphaned | Whose::Unknown => &self.others,
        };
        let Ok(permit) = Arc::clone(room).try_acquire_owned() else {
            return warn!(%from, whose = ?identity.whose, "too many handshakes in progress");
        };
        let (web, server) = (Arc::clone(self), Arc::clone(server));
        let arrival = Arrival { stream, from, here, whose: identity.whose, permit };
        tokio::spawn(async move { web.admit(server, arrival).await });
    }

    async fn admit(&self, server: Arc<Server>, arrival: Arrival) {
        let Arrival { stream, from, here, whose, permit } = arrival;
        // Disables Nagle's algorithm; a failure only costs latency.
        let _ = stream.set_nodelay(true);
        let entrance = Entrance { web: self, server: &server, from, here };
        match welcome(stream, &self.door, self.limits, &entrance).await {
            Ok(Welcomed { pass: _seat, receiving, sending }) => {
                drop(permit);
                let (_counted, _) = server.count();
                let id = server.participant();
                debug!(connection = id.0, %from, ?whose, "connection for Pi");
                let peer = PiPeer { id, via: Via::Web, cwd: None, environment: None };
                pi::serve(Arc::clone(&server), peer, receiving, sending).await;
            }
            Err(Unwelcome::Refused(refusal)) => {
                warn!(%from, ?whose, %refusal, "handshake refused");
            }
            Err(problem @ (Unwelcome::Slow | Unwelcome::Broken(_))) => {
                debug!(%from, %problem, "handshake not completed");
            }
        }
    }

    /// Checks a token, unless its source is throttled.
    fn check(&self, token: &str, identity: Identity, from: IpAddr, now: Duration) -> Result<(), Refusal> {
        let guesser = match identity.whose {
            Whose::Foreign { uid } => Guesser::User(uid),
            Whose::Own | Whose::Orphaned | Whose::Unknown => Guesser::Machine(from.to_canonical()),
        };
        self.guesses.take(&guesser, now).map_err(|pause| Refusal::TooManyTokens {
            seconds: u64::try_from(pause.as_millis().div_ceil(1000)).unwrap_or(u64::MAX),
        })?;
        match self.tokens.holds(token) {
            Ok(true) => {
                self.guesses.give_back(&guesser);
                Ok(())
            }
            Ok(false) => Err(Refusal::WrongToken),
            Err(error) => {
                error!(%error, "cannot read tokens");
                Err(Refusal::TokensUnreadable)
            }
        }
    }
}

/// Authorizes one handshake.
struct Entrance<'a> {
    web: &'a Web,
    server: &'a Server,
    from: SocketAddr,
    here: SocketAddr,
}

impl Entry for Entrance<'_> {
    type Pass = OwnedSemaphorePermit;

    async fn enter(&self, token: Option<String>) -> Result<OwnedSemaphorePermit, Refusal> {
        let (from, here, world) = (self.from, self.here, self.server.hub().world());
        let lineage = world.sandboxes.lineage().clone();
        let looked_up = tokio::task::spawn_blocking(move || {
            let identity = Identity::of(from, here);
            find_holder(&lineage, identity).map(|holder| (identity, holder))
        });
        // A client that cannot be distinguished from a command of a model counts as one.
        let (identity, holder) = looked_up.await.unwrap_or(Err(Refusal::OfATool))?;
        let everybody = self.web.everybody_needs_a_token;
        match (token, identity.whose, holder) {
            (Some(token), _, _) => self.web.check(&token, identity, from.ip(), world.clock.uptime())?,
            (None, Whose::Own, Holder::Seen) if !everybody => {}
            (None, Whose::Foreign { .. }, _) if !everybody => return Err(Refusal::Stranger),
            (None, Whose::Own | Whose::Foreign { .. } | Whose::Orphaned | Whose::Unknown, _) => {
                return Err(Refusal::NoToken);
            }
        }
        Arc::clone(&self.web.seats).try_acquire_owned().map_err(|_| Refusal::Full)
    }
}

/// Whether the process that holds a connection is visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Seen,
    Unseen,
}

/// Checks the processes that hold a connection at this moment; none may descend from a command of a model.
///
/// A holder may be invisible: on another machine, of another user, or not inspectable. It could then be any process
/// of the same user, so none of these may be a model's.
fn find_holder(lineage: &Lineage, identity: Identity) -> Result<Holder, Refusal> {
    match identity.whose {
        Whose::Orphaned => return Err(Refusal::NoHolder),
        Whose::Unknown => return Ok(Holder::Unseen),
        Whose::Own | Whose::Foreign { .. } => {}
    }
    let origin = |pid: &u32| lineage.origin(Some(*pid));
    let holders = identity.holders();
    if holders.is_empty() {
        let origin = |pid| lineage.origin(Some(pid));
        return check_unseen(|| identity.possible_holders(), origin, |pid| identity.may_be_held_by(pid));
    }
    if !holders.iter().all(|pid| origin(pid) == Origin::Elsewhere) {
        return Err(Refusal::OfATool);
    }
    // A process that holds the connection before and after the check kept its id throughout.
    let is_held = holders.iter().any(|pid| identity.is_held_by(*pid));
    if is_held { Ok(Holder::Seen) } else { Err(Refusal::NoHolder) }
}

/// Checks every process that may hold a connection invisibly: each must be known not to be a model's.
///
/// A process that exited before it was inspected may have passed the connection on, so all are inspected again.
fn check_unseen<P: IntoIterator<Item = u32>>(
    possible: impl Fn() -> P,
    origin: impl Fn(u32) -> Origin,
    is_there: impl Fn(u32) -> bool,
) -> Result<Holder, Refusal> {
    for _ in 0..READINGS {
        let mut ended = false;
        for pid in possible() {
            match origin(pid) {
                Origin::Elsewhere => {}
                Origin::Unknown if !is_there(pid) => ended = true,
                Origin::Tool | Origin::Unknown => return Err(Refusal::OfATool),
            }
        }
        if !ended {
            return Ok(Holder::Unseen);
        }
    }
    Err(Refusal::OfATool)
}

/// How often the possible holders are inspected while some of them exit.
const READINGS: usize = 16;

/// Formats an address as in a `Host` header.
fn host_of(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(four) => four.to_string(),
        IpAddr::V6(six) => format!("[{six}]"),
    }
}

/// The maximum number of concurrent handshakes of the owner.
const ARRIVING: usize = 256;

/// The maximum number of concurrent handshakes of other users.
const OTHERS_ARRIVING: usize = 64;

/// The delay before the next accept after a failed one.
const BREATH: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn an_unseen_holder_is_admitted_only_where_every_possible_holder_is_known_to_be_no_models() {
        let check = |origins: &'static [Origin]| {
            let origin = |pid: u32| usize::try_from(pid).map_or(Origin::Unknown, |at| origins[at]);
            check_unseen(|| 0..u32::try_from(origins.len()).unwrap_or_default(), origin, |_| true)
        };
        assert_eq!(check(&[]), Ok(Holder::Unseen));
        assert_eq!(check(&[Origin::Elsewhere, Origin::Elsewhere]), Ok(Holder::Unseen));
        assert_eq!(check(&[Origin::Elsewhere, Origin::Tool]), Err(Refusal::OfATool));
        // The process runs, and its origin is unknown.
        assert_eq!(check(&[Origin::Elsewhere, Origin::Unknown]), Err(Refusal::OfATool));
    }

    #[test]
    fn a_process_that_ends_meanwhile_does_not_hide_the_one_it_has_started() {
        let listings = Cell::new(0);
        let listed = || {
            listings.set(listings.get() + 1);
            [listings.get()]
        };
        // The first process has exited, and its child is a model's.
        let origin = |pid| if pid == 1 { Origin::Unknown } else { Origin::Tool };
        assert_eq!(check_unseen(listed, origin, |_| false), Err(Refusal::OfATool));
        assert_eq!(listings.get(), 2);
        listings.set(0);
        let origin = |pid| if pid == 1 { Origin::Unknown } else { Origin::Elsewhere };
        assert_eq!(check_unseen(listed, origin, |_| false), Ok(Holder::Unseen));
        // A process that keeps forking and exiting is never inspected.
        assert_eq!(check_unseen(listed, |_| Origin::Unknown, |_| false), Err(Refusal::OfATool));
    }
}
