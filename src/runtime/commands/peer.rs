//! The peer of a connection, as the executions of its commands need it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::kernel::environment::Environment;
use crate::kernel::id::SessionId;
use crate::runtime::identity::Identity;
use crate::runtime::services::Services;
use crate::runtime::session_files;

/// The peer of a connection.
#[derive(Debug)]
pub(in crate::runtime) struct Peer {
    /// The environment of its runs.
    environment: PeerEnvironment,
    /// The working directory of its sessions, by default.
    pub(super) cwd: String,
    /// The sessions in which it continues, by the ids that it uses for them: the child of a fork has the id of its
    /// parent for the connection that forked.
    continued: Mutex<BTreeMap<SessionId, SessionId>>,
    /// Who it is.
    identity: Identity,
}

/// Where the environment of a peer's runs comes from.
#[derive(Debug)]
enum PeerEnvironment {
    /// The peer has sent it, or has none to send.
    Sent(Option<Environment>),
    /// The peer is on the network: its runs have the environment of the owner's login shell.
    Login,
}

impl Peer {
    /// Creates the peer of a local connection, with its environment and working directory if it has sent them.
    pub(in crate::runtime) fn new(environment: Option<Environment>, cwd: Option<PathBuf>) -> Self {
        Self {
            environment: PeerEnvironment::Sent(environment),
            cwd: directory(cwd),
            identity: Identity::LOCAL_OWNER,
            continued: Mutex::default(),
        }
    }

    /// Creates a peer on the network.
    pub(in crate::runtime) fn remote(identity: Identity) -> Self {
        Self { environment: PeerEnvironment::Login, cwd: directory(None), identity, continued: Mutex::default() }
    }

    /// Returns who it is.
    pub(in crate::runtime) const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns whether the peer is on the network.
    pub(in crate::runtime) const fn is_remote(&self) -> bool {
        matches!(self.environment, PeerEnvironment::Login)
    }

    /// Returns the environment to pass on with a request, given the one that came with it. `is_needed` if the request
    /// may start work; what a peer on the network sends is never used.
    pub(in crate::runtime) async fn environment(
        &self,
        sent: Option<Environment>,
        is_needed: bool,
        services: &Services,
    ) -> Option<Environment> {
        match &self.environment {
            PeerEnvironment::Sent(environment) => sent.or_else(|| environment.clone().filter(|_| is_needed)),
            PeerEnvironment::Login if !is_needed => None,
            PeerEnvironment::Login => Some(Arc::unwrap_or_clone(services.login_environment().await)),
        }
    }

    /// Returns the peer of requests that no client sent.
    pub(super) const fn none() -> Self {
        let continued = Mutex::new(BTreeMap::new());
        Self {
            environment: PeerEnvironment::Sent(None),
            cwd: String::new(),
            identity: Identity::LOCAL_OWNER,
            continued,
        }
    }

    /// Returns the session that the peer means by an id.
    pub(super) fn resolve(&self, id: &SessionId) -> SessionId {
        let continued = self.continued.lock().unwrap_or_else(PoisonError::into_inner);
        continued.get(id).unwrap_or(id).clone()
    }

    /// Makes the peer continue in another session under an id that it uses.
    pub(super) fn continue_in(&self, id: &SessionId, session: &SessionId) {
        let mut continued = self.continued.lock().unwrap_or_else(PoisonError::into_inner);
        continued.insert(id.clone(), session.clone());
    }
}

/// Returns a working directory, by default the user's home.
fn directory(cwd: Option<PathBuf>) -> String {
    cwd.unwrap_or_else(session_files::home).to_string_lossy().into_owned()
}
