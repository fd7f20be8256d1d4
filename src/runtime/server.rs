//! The state that all connections share: the hub, session start, metrics, and the request to stop.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedMutexGuard, watch};
use tokio::time::timeout;

use super::confinement;
use super::fingerprints;
use super::generate;
use super::hub::Hub;
use super::lane::{LaneError, LaneHandle};
use super::os;
use super::session_locks::KeyedLocks;
use super::token_throttle::TokenThrottle;
use super::workspace;
use crate::config::file::ConfigError;
use crate::config::listener::WebScope;
use crate::config::sandbox::SandboxKind;
use crate::config::settings::ModelSelection;
use crate::journal::{Batch, Create, Durability};
use crate::kernel::command::{Phase, Repetition};
use crate::kernel::event::{Opening, WorkspaceIdentity};
use crate::kernel::id::{ConnectionId, Fingerprint, Json, SessionId};
use crate::protocol::error::{Code, ErrorBody};
use crate::protocol::intent::StartSession;
use crate::protocol::reply::{CircuitRow, Metrics, ProviderRow};
use crate::provider::playbook;
use crate::provider::registry::CircuitReport;
use crate::sandbox::HomeAccess;
use crate::token;

/// The time that the writer of a connection has for its remaining output when the connection closes.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_millis(250);

/// The daemon as its connections see it.
pub struct Server {
    hub: Arc<Hub>,
    socket: PathBuf,
    connections: AtomicU64,
    disconnected: Notify,
    token_throttle: TokenThrottle<SessionId>,
    /// The last number given to a connection.
    last_connection: AtomicU64,
    /// The address of the WebSocket port.
    web_addresses: std::sync::Mutex<Vec<(WebScope, SocketAddr)>>,
    /// Serialize the starts under one key, so that it starts one session; other keys do not wait.
    start_locks: KeyedLocks<String>,
    stop_grace: watch::Sender<Option<Duration>>,
}

/// A session that was started, or found under its idempotency key.
pub(super) struct StartedSession {
    pub(super) id: SessionId,
    pub(super) lane: LaneHandle,
    pub(super) token: String,
    pub(super) repetition: Repetition,
    /// Held until the session is stored, so that the next start under its key finds it.
    pub(super) start_guard: Option<OwnedMutexGuard<()>>,
}

/// The resolved settings of a new session.
pub(super) struct SessionChoice {
    pub(super) model_choice: ModelSelection,
    pub(super) sandbox: SandboxKind,
    /// The description of the confinement of its commands.
    pub(super) confinement: Json,
    /// The identity of its workspace directory.
    pub(super) workspace: WorkspaceIdentity,
}

impl SessionChoice {
    /// Returns the opening of the session.
    pub(super) fn into_opening(self, start: StartSession) -> Opening {
        Opening {
            mode: start.mode,
            provider: self.model_choice.provider,
            model: self.model_choice.model,
            sandbox: self.sandbox.as_str().to_owned(),
            confinement: Some(self.confinement),
            cwd: start.cwd,
            workspace: Some(self.workspace),
            repo: start.repo,
            metadata: start.metadata,
            name: start.name,
            parent: None,
            forked_at: None,
        }
    }
}

impl Server {
    /// Creates the server of a hub.
    pub fn new(hub: Arc<Hub>, socket: &Path) -> Arc<Self> {
        let limits = hub.services().limits;
        Arc::new(Self {
            token_throttle: TokenThrottle::new(limits.wrong_tokens, limits.wrong_token_interval),
            hub,
            socket: socket.to_path_buf(),
            connections: AtomicU64::new(0),
            last_connection: AtomicU64::new(0),
            web_addresses: std::sync::Mutex::default(),
            disconnected: Notify::new(),
            start_locks: KeyedLocks::default(),
            stop_grace: watch::Sender::new(None),
        })
    }

    /// Returns the hub.
    pub const fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Counts a connection until the guard is dropped; also returns the number of connections.
    pub(super) fn count_connection(self: &Arc<Self>) -> (ConnectionGuard, u64) {
        let count = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        (ConnectionGuard(Arc::clone(self)), count)
    }

    /// Returns a new connection number.
    pub(super) fn next_connection_id(&self) -> ConnectionId {
        ConnectionId(self.last_connection.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Adds the address of a port for WebSockets.
    pub(super) fn add_web_address(&self, scope: WebScope, address: SocketAddr) {
        self.web_addresses().push((scope, address));
    }

    /// Returns whether clients can connect with WebSockets.
    pub(super) fn has_web_listener(&self) -> bool {
        !self.web_addresses().is_empty()
    }

    fn web_addresses(&self) -> MutexGuard<'_, Vec<(WebScope, SocketAddr)>> {
        self.web_addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn web_address(&self, is_wanted: impl Fn(WebScope) -> bool) -> Option<String> {
        let addresses = self.web_addresses();
        addresses.iter().find(|(scope, _)| is_wanted(*scope)).map(|(_, address)| address.to_string())
    }

    /// Waits until every connection has closed. The shutdown was signalled before, and each has a short deadline.
    pub(super) async fn wait_for_disconnects(&self) {
        let all = async {
            loop {
                let left = self.disconnected.notified();
                if self.connections.load(Ordering::Acquire) == 0 {
                    return;
                }
                left.await;
            }
        };
        // Each connection has its own deadline; this one covers a connection whose guard was never dropped.
        let _ = timeout(2 * CLOSE_TIMEOUT, all).await;
    }

    /// Asks the daemon to stop when no run is active, or after the grace period.
    pub fn drain(&self, grace_ms: Option<u64>) {
        let grace = grace_ms.map_or(self.hub.services().limits.grace_period, Duration::from_millis);
        self.hub.drain();
        self.stop_grace.send_replace(Some(grace));
    }

    /// Returns the grace period of the latest stop request; `None` until one arrives.
    pub(super) fn stop_requests(&self) -> watch::Receiver<Option<Duration>> {
        self.stop_grace.subscribe()
    }

    /// Returns the lane of a session, or the error that the session does not exist.
    pub(super) async fn lane(&self, id: &SessionId) -> Result<LaneHandle, ErrorBody> {
        match self.hub.lane(id).await {
            Ok(Some(lane)) => Ok(lane),
            Ok(None) => Err(ErrorBody::permanent(Code::SessionNotFound, format!("there is no session {id}"))),
            Err(error) => Err(ErrorBody::transient(Code::InternalError, error.to_string())),
        }
    }

    /// Refuses a token that is not the session's, and every token while the session is throttled.
    pub(super) fn check_token(&self, lane: &LaneHandle, token: &str) -> Result<(), ErrorBody> {
        if let Err(pause) = self.token_throttle.try_acquire(lane.id(), self.hub.services().clock.uptime()) {
            let message = format!("too many wrong attach tokens; try again in {} s", pause.as_millis().div_ceil(1000));
            return Err(ErrorBody::transient(Code::AttachForbidden, message));
        }
        if !token::matches(token, &lane.token_hash()) {
            let message = "the attach token does not belong to this session";
            return Err(ErrorBody::permanent(Code::AttachForbidden, message));
        }
        self.token_throttle.refund(lane.id());
        Ok(())
    }

    /// Starts a session, or returns the one that was started under the same key.
    pub(super) async fn start_session(
        &self,
        start: &StartSession,
    ) -> Result<(StartedSession, SessionChoice), ErrorBody> {
        let choice = self.resolve_start(start).await?;
        let Some(key) = &start.idempotency_key else { return Ok((self.create(None)?, choice)) };
        let start_guard = Some(self.lock_start(key).await);
        if let Some(found) = self.find_started(key, |kept| fingerprints::matches_start(kept, start)).await? {
            return Ok((found, choice));
        }
        let started = self.create(Some((key.clone(), fingerprints::start(start))))?;
        Ok((StartedSession { start_guard, ..started }, choice))
    }

    /// Waits for the lock of a key, under which the key is looked up and its session is created.
    pub(super) async fn lock_start(&self, key: &str) -> OwnedMutexGuard<()> {
        self.start_locks.lock(&key.to_owned()).await
    }

    /// Returns the session that was started under a key; refuses a key of another request.
    pub(super) async fn find_started(
        &self,
        key: &str,
        is_same: impl Fn(Fingerprint) -> bool,
    ) -> Result<Option<StartedSession>, ErrorBody> {
        let known = self.hub.services().journal.started_by_key(key).await;
        match known.map_err(|error| ErrorBody::transient(Code::InternalError, error.to_string()))? {
            Some((kept, id)) if is_same(kept) => {
                let (lane, token) = (self.lane(&id).await?, new_token()?);
                self.replace_token(&lane, &token, Durability::Synced).await?;
                let repetition = Repetition::Repeated;
                Ok(Some(StartedSession { id, lane, token, repetition, start_guard: None }))
            }
            Some(_) => {
                let message = "idempotencyKey: already used to start a different session";
                Err(ErrorBody::permanent(Code::InvalidRequest, message))
            }
            None => Ok(None),
        }
    }

    /// Creates a session under an id that its client chose. No token attaches to it.
    ///
    /// The caller has checked that the session does not exist, and opens it with the result.
    pub(super) async fn create_named(&self, id: &SessionId, start: StartSession) -> Result<Opening, ErrorBody> {
        let opening = self.prepare_opening(start).await?;
        self.create_lane(id)?;
        Ok(opening)
    }

    /// Creates the lane of a session to which no token attaches.
    pub(super) fn create_lane(&self, id: &SessionId) -> Result<(), ErrorBody> {
        let (token, opened_at) = (new_token()?, self.hub.services().clock.now());
        self.hub.create(id, Create { token_hash: token::hash(&token), start_key: None, opened_at });
        Ok(())
    }

    /// Returns the opening of a new session, or why no session can be opened.
    pub(super) async fn prepare_opening(&self, start: StartSession) -> Result<Opening, ErrorBody> {
        if self.hub.is_draining() {
            return Err(stopping_error());
        }
        if let Some(trouble) = self.storage_error() {
            return Err(lane_error(&trouble));
        }
        Ok(self.resolve_start(&start).await?.into_opening(start))
    }

    /// Returns why nothing new can be stored; `None` if storage works.
    pub(super) fn storage_error(&self) -> Option<LaneError> {
        let journal = &self.hub.services().journal;
        if journal.has_failed() {
            Some(LaneError::StorageFailed)
        } else {
            journal.is_full().then_some(LaneError::StorageFull)
        }
    }

    /// Lists the providers.
    pub(super) async fn provider_rows(&self) -> Result<Vec<ProviderRow>, ErrorBody> {
        let services = self.hub.services();
        let settings = services.model_config.settings().map_err(|error| config_error(&error))?;
        let default = settings.select_model(None, None).provider;
        let models = services.model_config.registry(&settings);
        let row = |name: &str, configured| ProviderRow {
            name: name.to_owned(),
            models: settings.select_model(Some(name), None).model.into_iter().collect(),
            configured,
            default: name == default,
        };
        let mut rows: Vec<_> = services.providers.keys().map(|name| row(name, true)).collect();
        for name in models.names() {
            rows.push(row(name, models.is_configured(name).await));
        }
        Ok(rows)
    }

    /// Returns the metrics of the daemon.
    pub(super) fn metrics(&self) -> Metrics {
        let services = self.hub.services();
        let (stats, lanes) = (services.journal.stats(), self.hub.lanes());
        let active = lanes.iter().filter(|lane| matches!(lane.phase(), Phase::Running | Phase::Waiting));
        Metrics {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: services.clock.uptime().as_secs(),
            socket: self.socket.display().to_string(),
            http: self.web_address(|scope| scope == WebScope::All),
            pi: self.web_address(|scope| matches!(scope, WebScope::One(_))),
            sessions: stats.sessions,
            resident_sessions: lanes.len() as u64,
            active_runs: active.count() as u64,
            connections: self.connections.load(Ordering::Relaxed),
            events: stats.events,
            journal_bytes: stats.bytes,
            memory_bytes: os::resident_bytes(),
            draining: self.hub.is_draining(),
            grace_ms: u64::try_from(services.limits.grace_period.as_millis()).unwrap_or(u64::MAX),
            circuits: self.circuit_rows(),
            search_index_error: services.index.failure(),
            sandbox: None,
        }
    }

    /// Returns the circuit breakers of the provider servers used so far.
    pub(super) fn circuit_rows(&self) -> Vec<CircuitRow> {
        self.hub.services().model_config.circuits().into_iter().map(circuit_row).collect()
    }

    /// Describes the confinement of a model's commands under the default configuration.
    pub(super) async fn describe_confinement(&self) -> Result<Json, ErrorBody> {
        let services = self.hub.services();
        let settings = services.model_config.settings().map_err(|error| config_error(&error))?;
        let mechanism = settings.sandbox.mechanism;
        let provider = services.sandboxes.provider(settings.sandbox.provider, mechanism);
        let chosen = Some((provider.name(), mechanism.as_str()));
        let described = confinement::layers_json(chosen, &provider.layers().await);
        let terms = services.sandboxes.default_confinement(&settings);
        let access = services.files.run(move || HomeAccess::inspect(&terms)).await.map_err(|why| {
            let message = format!("cannot inspect the access of commands to the home directory: {why}");
            ErrorBody::transient(Code::SandboxUnavailable, message)
        })?;
        Ok(confinement::with_home_access(&described, &access))
    }

    /// Revokes the attach token of a session. The next sync of the journal makes it final.
    pub(super) async fn revoke_token(&self, id: &SessionId) -> Result<(), ErrorBody> {
        let (token, lane) = (new_token()?, self.lane(id).await?);
        self.replace_token(&lane, &token, Durability::Written).await
    }

    /// Stores a new token hash. Tokens are not stored, so a repeated start gets a new token and the old one is revoked.
    async fn replace_token(&self, lane: &LaneHandle, token: &str, durability: Durability) -> Result<(), ErrorBody> {
        let hash = token::hash(token);
        let mut batch = Batch::new(lane.id().clone());
        batch.token_hash = Some(hash);
        batch.durability = durability;
        match self.hub.services().journal.commit(batch).await {
            Ok(Ok(())) => {
                lane.replace_token(hash);
                Ok(())
            }
            Ok(Err(error)) => Err(ErrorBody::transient(Code::InternalError, error.to_string())),
            Err(_) => Err(ErrorBody::transient(Code::InternalError, "the journal is closed")),
        }
    }

    /// Creates the lane of a new session.
    pub(super) fn create(&self, start_key: Option<(String, Fingerprint)>) -> Result<StartedSession, ErrorBody> {
        let (id, token, opened_at) = (generate::session(), new_token()?, self.hub.services().clock.now());
        let create = Create { token_hash: token::hash(&token), start_key, opened_at };
        let lane = self.hub.create(&id, create);
        Ok(StartedSession { id, lane, token, repetition: Repetition::First, start_guard: None })
    }

    /// Resolves the model, the sandbox and the workspace of a session that may be started.
    async fn resolve_start(&self, start: &StartSession) -> Result<SessionChoice, ErrorBody> {
        let services = self.hub.services();
        let settings = services.model_config.settings().map_err(|error| config_error(&error))?;
        let choice = settings.select_model(start.provider.as_deref(), start.model.as_deref());
        let models = services.model_config.registry(&settings);
        let known: Vec<_> = services.providers.keys().copied().chain(models.names()).collect();
        if !known.contains(&choice.provider.as_str()) {
            let (name, known) = (&choice.provider, known.join(", "));
            let message = format!("there is no provider {name:?}; known are {known}");
            let detail = format!("add a section [providers.{name}] with its kind to config.toml");
            return Err(ErrorBody::permanent(Code::ProviderNotConfigured, message).with_detail(detail));
        }
        let rules =
            services.model_config.run_config(Path::new(&start.cwd)).await.map_err(|error| config_error(&error))?;
        let sandbox = confinement::resolve_choice(start.sandbox_provider.as_deref(), &rules)?;
        let workspace = self.identify_workspace(PathBuf::from(&start.cwd)).await?;
        let confinement = if choice.provider == playbook::NAME {
            confinement::playbook_json()
        } else {
            let provider = services.sandboxes.provider(sandbox, rules.settings.sandbox.mechanism);
            confinement::layers_json(None, &provider.layers().await)
        };
        Ok(SessionChoice { model_choice: choice, sandbox, confinement, workspace })
    }

    /// Identifies the workspace directory of a session.
    async fn identify_workspace(&self, cwd: PathBuf) -> Result<WorkspaceIdentity, ErrorBody> {
        let (named, place) = (cwd.display().to_string(), cwd.clone());
        match self.hub.services().files.run_in(&place, move || workspace::identify(&cwd)).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(ErrorBody::permanent(Code::SandboxUnavailable, error.to_string())),
            Err(why) => {
                let message = format!("cannot inspect the directory {named}: {why}");
                Err(ErrorBody::transient(Code::SandboxUnavailable, message))
            }
        }
    }
}

fn new_token() -> Result<String, ErrorBody> {
    generate::token()
        .map_err(|error| ErrorBody::transient(Code::InternalError, format!("cannot generate random bytes: {error}")))
}

fn circuit_row(report: CircuitReport) -> CircuitRow {
    CircuitRow {
        provider: report.provider,
        base_url: report.base_url,
        state: report.state.name().to_owned(),
        failures_in_a_row: report.counts.consecutive_failures,
        opened: report.counts.opened,
        refused: report.counts.refused,
    }
}

/// Encodes why a session did not answer.
pub(super) fn lane_error(error: &LaneError) -> ErrorBody {
    let message = error.to_string();
    match error {
        LaneError::StorageFull => ErrorBody::transient(Code::StorageFull, message),
        LaneError::StorageFailed | LaneError::OutcomeUnknown | LaneError::Damaged => {
            ErrorBody::permanent(Code::StorageFailed, message)
        }
        LaneError::Storage(_) | LaneError::Interrupted | LaneError::Busy => {
            ErrorBody::transient(Code::InternalError, message)
        }
    }
}

/// The refusal of new work while the daemon stops.
pub(super) fn stopping_error() -> ErrorBody {
    ErrorBody::transient(Code::InternalError, "the daemon is stopping and accepts no new work; try again in a moment")
}

fn config_error(error: &ConfigError) -> ErrorBody {
    let message = format!("the configuration cannot be used: {error}");
    ErrorBody::permanent(Code::InvalidConfiguration, message).with_detail("run `push config check`")
}

/// Keeps a connection in the count until it is dropped.
pub(super) struct ConnectionGuard(Arc<Server>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
        self.0.disconnected.notify_waiters();
    }
}
