//! The port where programs come in by WebSocket: who they are, whether they need a token, how many there may be.
//!
//! Every user of the machine reaches the port, and so does every command that a model runs with the network. The first are
//! told apart by the system's table of connections, and need a token where they are not the owner; the second never come in.

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
use crate::sandbox::{Lineage, Origin};
use crate::token::{Tokens, TokensError};
use crate::transport::web::{
    Door, Entry, Identity, Refusal, SocketLimits, Unwelcome, WelcomeLimits, Welcomed, Whose, welcome,
};

/// Why the port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// Anybody on the network could come in.
    #[error(
        "{0} can be reached from other machines, and there is no token: `push token new` makes one, or listen at 127.0.0.1"
    )]
    Unprotected(SocketAddr),
    /// Nobody could come in.
    #[error("everybody who connects at {0} needs a token, and there is none: `push token new` makes one")]
    NoToken(SocketAddr),
    /// The tokens cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// Something else is there, or the address is none of this machine.
    #[error("cannot listen at {at} for Pi (`[pi] listen`, PI_SERVER_PORT or --pi sets another place)")]
    Bind {
        /// Where.
        at: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// The port.
#[derive(Debug)]
pub(super) struct Web {
    listener: TcpListener,
    address: SocketAddr,
    door: Door,
    /// Whether being the owner is not enough.
    everybody_needs_a_token: bool,
    tokens: Tokens,
    guesses: Guesses<Guesser>,
    limits: WelcomeLimits,
    /// How many may be served.
    seats: Arc<Semaphore>,
    /// How many of the owner's may be on their way in.
    own: Arc<Semaphore>,
    /// How many others may; they take nothing from the owner.
    others: Arc<Semaphore>,
}

/// Who tries tokens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Guesser {
    User(u32),
    Machine(IpAddr),
}

/// Somebody on the way in.
struct Arrival {
    stream: TcpStream,
    from: SocketAddr,
    identity: Identity,
    permit: OwnedSemaphorePermit,
}

impl Web {
    /// Opens the port; refuses where nobody could come in, or anybody.
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
        let socket = SocketLimits { message: limits.pi_message_bytes, stalled: limits.stalled };
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

    /// Returns where it listens.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes connections until the daemon closes.
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
                    // The listener may stay readable, so that asking again at once would only spin.
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }

    /// Finds out whose a connection is, and lets it try to come in.
    async fn receive(self: &Arc<Self>, server: &Arc<Server>, stream: TcpStream, from: SocketAddr) {
        let here = stream.local_addr().unwrap_or(self.address);
        let looked_up = tokio::task::spawn_blocking(move || Identity::of(from, here)).await;
        let identity = looked_up.unwrap_or(Identity::UNKNOWN);
        let room = match identity.whose {
            Whose::Own => &self.own,
            Whose::Foreign { .. } | Whose::Unknown => &self.others,
        };
        let Ok(permit) = Arc::clone(room).try_acquire_owned() else {
            return warn!(%from, whose = ?identity.whose, "too many connections are on their way in");
        };
        let (web, server) = (Arc::clone(self), Arc::clone(server));
        let arrival = Arrival { stream, from, identity, permit };
        tokio::spawn(async move { web.admit(server, arrival).await });
    }

    async fn admit(&self, server: Arc<Server>, arrival: Arrival) {
        let Arrival { stream, from, identity, permit } = arrival;
        // Small messages are not to wait for one another; where that cannot be had, they do.
        let _ = stream.set_nodelay(true);
        let entrance = Entrance { web: self, server: &server, identity, from };
        match welcome(stream, &self.door, self.limits, &entrance).await {
            Ok(Welcomed { pass: _seat, receiving, sending }) => {
                drop(permit);
                let (_counted, _) = server.count();
                let id = server.participant();
                debug!(connection = id.0, %from, whose = ?identity.whose, "connection for Pi");
                let peer = PiPeer { id, via: Via::Web, cwd: None, environment: None };
                pi::serve(Arc::clone(&server), peer, receiving, sending).await;
            }
            Err(Unwelcome::Refused(refusal)) => {
                warn!(%from, whose = ?identity.whose, %refusal, "a request was refused");
            }
            Err(problem @ (Unwelcome::Slow | Unwelcome::Broken(_))) => {
                debug!(%from, %problem, "no handshake");
            }
        }
    }

    /// Looks at a token, unless its bearer has tried too many wrong ones.
    fn check(&self, token: &str, identity: Identity, from: IpAddr, now: Duration) -> Result<(), Refusal> {
        let guesser = match identity.whose {
            Whose::Foreign { uid } => Guesser::User(uid),
            Whose::Own | Whose::Unknown => Guesser::Machine(from.to_canonical()),
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
                error!(%error, "tokens cannot be looked at");
                Err(Refusal::TokensUnreadable)
            }
        }
    }
}

/// Somebody at the door.
struct Entrance<'a> {
    web: &'a Web,
    server: &'a Server,
    identity: Identity,
    from: SocketAddr,
}

impl Entry for Entrance<'_> {
    type Pass = OwnedSemaphorePermit;

    async fn enter(&self, token: Option<String>) -> Result<OwnedSemaphorePermit, Refusal> {
        let (identity, from, world) = (self.identity, self.from.ip(), self.server.hub().world());
        let lineage = world.sandboxes.lineage().clone();
        let asked = tokio::task::spawn_blocking(move || is_of_a_tool(&lineage, identity, from));
        // Whoever cannot be told from one counts as one.
        if asked.await.unwrap_or(true) {
            return Err(Refusal::OfATool);
        }
        let everybody = self.web.everybody_needs_a_token;
        match (token, identity.whose) {
            (Some(token), _) => self.web.check(&token, identity, from, world.clock.uptime())?,
            (None, Whose::Own) if !everybody => {}
            (None, Whose::Foreign { .. }) if !everybody => return Err(Refusal::Stranger),
            (None, Whose::Own | Whose::Foreign { .. } | Whose::Unknown) => return Err(Refusal::NoToken),
        }
        Arc::clone(&self.web.seats).try_acquire_owned().map_err(|_| Refusal::Full)
    }
}

/// Tells whether a command that a model chose connects; whoever of this machine cannot be told from one counts as one.
fn is_of_a_tool(lineage: &Lineage, identity: Identity, from: IpAddr) -> bool {
    if lineage.is_empty() || !Identity::is_told() {
        return false;
    }
    let origins =
        |processes: &[u32]| processes.iter().map(|pid| lineage.origin(Some(*pid))).collect::<Vec<_>>();
    match identity.whose {
        Whose::Unknown => from.to_canonical().is_loopback(),
        Whose::Foreign { .. } => origins(&identity.processes()).contains(&Origin::Tool),
        Whose::Own => {
            let before = identity.processes();
            let elsewhere = |origin: &Origin| *origin == Origin::Elsewhere;
            let all_elsewhere = origins(&before).iter().all(elsewhere);
            // One that has it before and after was the same all along, and not another under its id.
            let after = identity.processes();
            !(all_elsewhere && before.iter().any(|pid| after.contains(pid)))
        }
    }
}

/// Writes an address as a `Host` header does.
fn host_of(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(four) => four.to_string(),
        IpAddr::V6(six) => format!("[{six}]"),
    }
}

/// How many of the owner's connections may be on their way in at once.
const ARRIVING: usize = 256;

/// How many of others may.
const OTHERS_ARRIVING: usize = 64;

/// How long the daemon waits when it cannot take a connection.
const BREATH: Duration = Duration::from_millis(50);
