//! The state that all connections share: the hub, session start, metrics, and the request to stop.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Mutex, Notify, OnceCell, OwnedMutexGuard, watch};
use tokio::time::timeout;

use super::connection::FAREWELL;
use super::fingerprints;
use super::guesses::Guesses;
use super::hub::Hub;
use super::lane::{LaneHandle, Trouble};
use super::mint;
use super::os;
use super::pi::Bureau;
use super::requests;
use super::walls;
use super::workspace;
use crate::config::file::ConfigError;
use crate::config::sandbox::SandboxChoice;
use crate::config::settings::Choice;
use crate::journal::{Batch, Create, Durability, ReadError};
use crate::kernel::command::{Phase, Repetition};
use crate::kernel::event::{Opening, WorkspaceIdentity};
use crate::kernel::id::{Fingerprint, Json, ParticipantId, SessionId};
use crate::protocol::push::decode::{DecodeLimits, StartSession};
use crate::protocol::push::encode::{CircuitRow, Metrics, ProviderRow};
use crate::protocol::push::error::{Code, ErrorBody};
use crate::provider::playbook;
use crate::provider::registry::CircuitReport;
use crate::sandbox::HomeAccess;
use crate::token;

/// The daemon as its connections see it.
pub struct Server {
    hub: Arc<Hub>,
    socket: PathBuf,
    decode_limits: DecodeLimits,
    connections: AtomicU64,
    left: Notify,
    guesses: Guesses<SessionId>,
    /// The last number given to a connection.
    participants: AtomicU64,
    /// The address of the Pi endpoint.
    pi: OnceLock<SocketAddr>,
    /// The state that Pi connections share; the first one creates it.
    bureau: OnceCell<Arc<Bureau>>,
    /// Serializes starts under a key, so that a key starts one session.
    starting: Arc<Mutex<()>>,
    stopping: watch::Sender<Option<Duration>>,
}

/// A session that was started, or found under its idempotency key.
pub(super) struct Started {
    pub(super) id: SessionId,
    pub(super) lane: LaneHandle,
    pub(super) token: String,
    pub(super) repetition: Repetition,
    /// Held until the session is stored, so that the next start under its key finds it.
    pub(super) turn: Option<OwnedMutexGuard<()>>,
    /// The model and the sandbox of the session.
    pub(super) choice: Chosen,
}

/// The resolved settings of a new session.
pub(super) struct Chosen {
    pub(super) who: Choice,
    pub(super) sandbox: SandboxChoice,
    /// The description of the confinement of its commands.
    pub(super) walls: Json,
    /// The identity of its workspace directory.
    pub(super) workspace: WorkspaceIdentity,
}

impl Chosen {
    /// Returns the opening of the session.
    pub(super) fn opening(self, start: StartSession) -> Opening {
        Opening {
            mode: start.mode,
            provider: self.who.provider,
            model: self.who.model,
            sandbox: self.sandbox.word().to_owned(),
            walls: Some(self.walls),
            cwd: start.cwd,
            workspace: Some(self.workspace),
            repo: start.repo,
            metadata: start.metadata,
            name: start.name,
            parent: None,
        }
    }
}

impl Server {
    /// Creates the server of a hub.
    pub fn new(hub: Arc<Hub>, socket: &Path) -> Arc<Self> {
        let limits = hub.world().limits;
        Arc::new(Self {
            guesses: Guesses::new(limits.wrong_tokens, limits.wrong_token_pause),
            hub,
            socket: socket.to_path_buf(),
            decode_limits: DecodeLimits::default(),
            connections: AtomicU64::new(0),
            participants: AtomicU64::new(0),
            pi: OnceLock::new(),
            bureau: OnceCell::new(),
            left: Notify::new(),
            starting: Arc::default(),
            stopping: watch::Sender::new(None),
        })
    }

    /// Returns the hub.
    pub const fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    pub(super) const fn decode_limits(&self) -> &DecodeLimits {
        &self.decode_limits
    }

    /// Counts a connection until the guard is dropped; also returns the number of connections.
    pub(super) fn count(self: &Arc<Self>) -> (Counted, u64) {
        let count = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        (Counted(Arc::clone(self)), count)
    }

    /// Returns a new connection number.
    pub(super) fn participant(&self) -> ParticipantId {
        ParticipantId(self.participants.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Sets the address of the Pi endpoint, once.
    pub(super) fn speaks_pi_at(&self, address: SocketAddr) {
        let _ = self.pi.set(address);
    }

    /// Returns whether the Pi endpoint is open.
    pub(super) fn speaks_pi(&self) -> bool {
        self.pi.get().is_some()
    }

    /// Returns the state that Pi connections share; the first call creates it.
    pub(super) async fn bureau(self: &Arc<Self>) -> Result<&Arc<Bureau>, ReadError> {
        self.bureau.get_or_try_init(|| Bureau::open(Arc::clone(self))).await
    }

    /// Waits until every connection has closed. The shutdown was signalled before, and each has a short deadline.
    pub(super) async fn all_left(&self) {
        let all = async {
            loop {
                let left = self.left.notified();
                if self.connections.load(Ordering::Acquire) == 0 {
                    return;
                }
                left.await;
            }
        };
        // Each connection has its own deadline; this one covers a connection whose guard was never dropped.
        let _ = timeout(2 * FAREWELL, all).await;
    }

    /// Asks the daemon to stop when no run is active, or after the grace period.
    pub fn drain(&self, grace_ms: Option<u64>) {
        let grace = grace_ms.map_or(self.hub.world().limits.grace, Duration::from_millis);
        self.hub.drain();
        self.stopping.send_replace(Some(grace));
    }

    /// Returns the grace period of the latest stop request; `None` until one arrives.
    pub(super) fn stop_requests(&self) -> watch::Receiver<Option<Duration>> {
        self.stopping.subscribe()
    }

    /// Returns the lane of a session, or the error that the session does not exist.
    pub(super) async fn lane(&self, id: &SessionId) -> Result<LaneHandle, ErrorBody> {
        match self.hub.lane(id).await {
            Ok(Some(lane)) => Ok(lane),
            Ok(None) => Err(ErrorBody::lasting(Code::SessionNotFound, format!("there is no session {id}"))),
            Err(error) => Err(ErrorBody::passing(Code::InternalError, error.to_string())),
        }
    }

    /// Refuses a token that is not the session's, and every token while the session is throttled.
    pub(super) fn check_token(&self, lane: &LaneHandle, token: &str) -> Result<(), ErrorBody> {
        if let Err(pause) = self.guesses.take(lane.id(), self.hub.world().clock.uptime()) {
            let message =
                format!("too many wrong attach tokens; try again in {} s", pause.as_millis().div_ceil(1000));
            return Err(ErrorBody::passing(Code::AttachForbidden, message));
        }
        if !token::matches(token, &lane.token_hash()) {
            let message = "the attach token does not belong to this session";
            return Err(ErrorBody::lasting(Code::AttachForbidden, message));
        }
        self.guesses.give_back(lane.id());
        Ok(())
    }

    /// Starts a session, or returns the one that was started under the same key.
    pub(super) async fn start_session(&self, start: &StartSession) -> Result<Started, ErrorBody> {
        let choice = self.check(start).await?;
        let token = mint::token()
            .map_err(|error| ErrorBody::passing(Code::InternalError, format!("no random bytes: {error}")))?;
        let Some(key) = &start.idempotency_key else { return Ok(self.create(token, None, choice)) };
        let turn = Arc::clone(&self.starting).lock_owned().await;
        let known = self.hub.world().journal.started_by_key(key.as_str()).await;
        match known.map_err(|error| ErrorBody::passing(Code::InternalError, error.to_string()))? {
            Some((kept, id)) if fingerprints::is_of_start(kept, start) => {
                let lane = self.lane(&id).await?;
                self.replace_token(&lane, &token).await?;
                Ok(Started { id, lane, token, repetition: Repetition::Again, turn: None, choice })
            }
            Some(_) => {
                let message = "idempotencyKey: already used to start a different session";
                Err(ErrorBody::lasting(Code::InvalidRequest, message))
            }
            None => {
                let fingerprint = fingerprints::start(start);
                let started = self.create(token, Some((key.clone(), fingerprint)), choice);
                Ok(Started { turn: Some(turn), ..started })
            }
        }
    }

    /// Creates a session under an id that its client chose. No token attaches to it.
    ///
    /// The caller has checked that the session does not exist, and opens it with the result.
    pub(super) async fn begin(&self, id: &SessionId, start: StartSession) -> Result<Opening, ErrorBody> {
        let opening = self.opening(start).await?;
        let token = mint::token()
            .map_err(|error| ErrorBody::passing(Code::InternalError, format!("no random bytes: {error}")))?;
        let opened_at = self.hub.world().clock.now();
        self.hub.create(id, Create { token_hash: token::hash(&token), start_key: None, opened_at });
        Ok(opening)
    }

    /// Returns the opening of a new session, or why no session can be opened.
    pub(super) async fn opening(&self, start: StartSession) -> Result<Opening, ErrorBody> {
        if self.hub.is_draining() {
            return Err(requests::stopping());
        }
        if let Some(trouble) = self.unable_to_keep() {
            return Err(requests::trouble(&trouble));
        }
        Ok(self.check(&start).await?.opening(start))
    }

    /// Returns why nothing new can be stored; `None` if storage works.
    pub(super) fn unable_to_keep(&self) -> Option<Trouble> {
        let journal = &self.hub.world().journal;
        if journal.has_failed() { Some(Trouble::Failed) } else { journal.is_full().then_some(Trouble::Full) }
    }

    /// Lists the providers.
    pub(super) async fn provider_rows(&self) -> Result<Vec<ProviderRow>, ErrorBody> {
        let world = self.hub.world();
        let settings = world.house.settings().map_err(|error| misconfigured(&error))?;
        let default = settings.choose(None, None).provider;
        let models = world.house.models(&settings);
        let row = |name: &str, configured| ProviderRow {
            name: name.to_owned(),
            models: settings.choose(Some(name), None).model.into_iter().collect(),
            configured,
            default: name == default,
        };
        let mut rows: Vec<_> = world.providers.keys().map(|name| row(name, true)).collect();
        for name in models.names() {
            rows.push(row(name, models.can_be_asked(name).await));
        }
        Ok(rows)
    }

    /// Returns the metrics of the daemon.
    pub(super) fn metrics(&self) -> Metrics {
        let world = self.hub.world();
        let (stats, lanes) = (world.journal.stats(), self.hub.lanes());
        let active = lanes.iter().filter(|lane| matches!(lane.phase(), Phase::Running | Phase::Waiting));
        Metrics {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: world.clock.uptime().as_secs(),
            socket: self.socket.display().to_string(),
            pi: self.pi.get().map(SocketAddr::to_string),
            sessions: stats.sessions,
            resident_sessions: lanes.len() as u64,
            active_runs: active.count() as u64,
            connections: self.connections.load(Ordering::Relaxed),
            events: stats.events,
            journal_bytes: stats.bytes,
            memory_bytes: os::resident_bytes(),
            draining: self.hub.is_draining(),
            grace_ms: u64::try_from(world.limits.grace.as_millis()).unwrap_or(u64::MAX),
            circuits: world.house.circuits().into_iter().map(circuit).collect(),
            sandbox: None,
        }
    }

    /// Describes the confinement of a model's commands under the default configuration.
    pub(super) async fn walls(&self) -> Result<Json, ErrorBody> {
        let world = self.hub.world();
        let settings = world.house.settings().map_err(|error| misconfigured(&error))?;
        let provider = world.sandboxes.provider(settings.sandbox.provider);
        let described = walls::described(Some(provider.name()), &provider.layers().await);
        let terms = world.sandboxes.confinement_of_nobody(&settings);
        let access = world.files.run(move || HomeAccess::of(&terms)).await.map_err(|why| {
            let message = format!("cannot inspect the access of commands to the home directory: {why}");
            ErrorBody::passing(Code::SandboxUnavailable, message)
        })?;
        Ok(walls::with_home_access(&described, &access))
    }

    /// Revokes the attach token of a session.
    pub(super) async fn void_token(&self, id: &SessionId) -> Result<(), ErrorBody> {
        let token = mint::token()
            .map_err(|error| ErrorBody::passing(Code::InternalError, format!("no random bytes: {error}")))?;
        let lane = self.lane(id).await?;
        self.replace_token(&lane, &token).await
    }

    /// Stores a new token hash. Tokens are not stored, so a repeated start gets a new token and the old one is revoked.
    async fn replace_token(&self, lane: &LaneHandle, token: &str) -> Result<(), ErrorBody> {
        let hash = token::hash(token);
        let mut batch = Batch::new(lane.id().clone());
        batch.token_hash = Some(hash);
        batch.durability = Durability::Synced;
        match self.hub.world().journal.commit(batch).await {
            Ok(Ok(())) => {
                lane.replace_token(hash);
                Ok(())
            }
            Ok(Err(error)) => Err(ErrorBody::passing(Code::InternalError, error.to_string())),
            Err(_) => Err(ErrorBody::passing(Code::InternalError, "the journal is closed")),
        }
    }

    fn create(&self, token: String, start_key: Option<(String, Fingerprint)>, choice: Chosen) -> Started {
        let id = mint::session();
        let opened_at = self.hub.world().clock.now();
        let create = Create { token_hash: token::hash(&token), start_key, opened_at };
        let lane = self.hub.create(&id, create);
        Started { id, lane, token, repetition: Repetition::First, turn: None, choice }
    }

    /// Resolves the model, the sandbox and the workspace of a session that may be started.
    async fn check(&self, start: &StartSession) -> Result<Chosen, ErrorBody> {
        let world = self.hub.world();
        let settings = world.house.settings().map_err(|error| misconfigured(&error))?;
        let choice = settings.choose(start.provider.as_deref(), start.model.as_deref());
        let models = world.house.models(&settings);
        let known: Vec<_> = world.providers.keys().copied().chain(models.names()).collect();
        if !known.contains(&choice.provider.as_str()) {
            let (name, known) = (&choice.provider, known.join(", "));
            let message = format!("there is no provider {name:?}; known are {known}");
            let detail = format!("add a section [providers.{name}] with its kind to config.toml");
            return Err(ErrorBody::lasting(Code::ProviderNotConfigured, message).with_detail(detail));
        }
        let rules =
            world.house.rules_in(Path::new(&start.cwd)).await.map_err(|error| misconfigured(&error))?;
        let sandbox = walls::asked_for(start.sandbox_provider.as_deref(), &rules)?;
        let workspace = self.identify(PathBuf::from(&start.cwd)).await?;
        let walls = if choice.provider == playbook::NAME {
            walls::of_playbooks()
        } else {
            walls::described(None, &world.sandboxes.provider(sandbox).layers().await)
        };
        Ok(Chosen { who: choice, sandbox, walls, workspace })
    }

    /// Identifies the workspace directory of a session.
    async fn identify(&self, cwd: PathBuf) -> Result<WorkspaceIdentity, ErrorBody> {
        let (named, place) = (cwd.display().to_string(), cwd.clone());
        match self.hub.world().files.run_in(&place, move || workspace::identify(&cwd)).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(ErrorBody::lasting(Code::SandboxUnavailable, error.to_string())),
            Err(why) => {
                let message = format!("cannot inspect the directory {named}: {why}");
                Err(ErrorBody::passing(Code::SandboxUnavailable, message))
            }
        }
    }
}

fn circuit(report: CircuitReport) -> CircuitRow {
    CircuitRow {
        provider: report.provider,
        base_url: report.base_url,
        state: report.state.name().to_owned(),
        failures_in_a_row: report.counts.failures_in_a_row,
        opened: report.counts.opened,
        refused: report.counts.refused,
    }
}

fn misconfigured(error: &ConfigError) -> ErrorBody {
    let message = format!("the configuration cannot be used: {error}");
    ErrorBody::lasting(Code::InvalidConfiguration, message).with_detail("run `push config check`")
}

/// Keeps a connection in the count until it is dropped.
pub(super) struct Counted(Arc<Server>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
        self.0.left.notify_waiters();
    }
}
