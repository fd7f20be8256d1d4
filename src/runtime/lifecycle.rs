//! Startup and shutdown of the daemon: it locks its state, serves, drains, and closes the journal.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, broadcast, mpsc, watch};
use tracing::{debug, error, info, warn};

use super::clock::Clock;
use super::confinement::Sandboxes;
use super::connection;
use super::daily_spend::DailySpend;
use super::environments::Environments;
use super::grants::GrantStore;
use super::hub::Hub;
use super::index::{self, SearchIndex};
use super::login::LoginEnvironment;
use super::maintenance;
use super::model_config::ModelConfig;
use super::notify::{self, NoticeQueue};
use super::os;
use super::process::Signal;
use super::protocols::{ProtocolRegistry, Protocols};
use super::retention;
use super::server::Server;
use super::services::{BROADCAST_CAPACITY, Latch, RunEndChannel, Services};
use super::session_files::{self, SessionFiles};
use super::web::{WebError, WebServer};
use crate::bounded_io::FileTasks;
use crate::config::limits::Limits;
use crate::config::listener::WebListener;
use crate::config::paths::Paths;
use crate::journal::{CommitError, Journal, Loss, LossReason, OpenError, Options};
use crate::kernel::audience::Audience;
use crate::kernel::event::{Event, EventKind, LossCause, NoticeEvent};
use crate::kernel::id::{ConnectionId, SessionId};
use crate::kernel::limits::Limits as SessionLimits;
use crate::kernel::session::Session;
use crate::kernel::time::Now;
use crate::private_file;
use crate::provider::Provider;
use crate::provider::dialect::Dialects;
use crate::provider::limits::Limits as ModelLimits;
use crate::provider::playbook::Playbook;
use crate::record::{self, summary};
use crate::sandbox::{LocalSandbox, ProcessOrigin};
use crate::tools::ToolSet;
use crate::transport::local::{AcceptError, BindError, Listener, Peer, Stream};

/// The configuration of a daemon, set at its start.
#[derive(Debug, Clone)]
pub struct Config {
    /// All paths.
    pub paths: Paths,
    /// All limits.
    pub limits: Limits,
    /// The owner's home directories, whose contents are hidden from commands of models.
    pub homes: Vec<PathBuf>,
    /// Toolchain directories named by the daemon's own environment.
    pub toolchains: Vec<PathBuf>,
    /// The ports for WebSockets.
    pub listeners: Vec<WebListener>,
    /// The protocols that connections can select, besides the native one.
    pub protocols: Protocols,
    /// The dialects that model providers may have.
    pub dialects: Dialects,
    /// The tools of models.
    pub tools: ToolSet,
}

/// The number of threads that may block on files at paths which clients and repositories choose, and the deadline for
/// each file.
const FILE_SLOTS: usize = 64;
const FILE_DEADLINE: Duration = Duration::from_secs(5);

/// Why a daemon could not run or stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The socket could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The journal could not be opened.
    #[error("cannot open the journal")]
    Journal(#[from] OpenError),
    /// The journal could not be closed cleanly.
    #[error("cannot close the journal")]
    Close(#[from] CommitError),
    /// Another daemon uses the same state directory at another socket.
    #[error("another daemon uses {}", .path.display())]
    StateInUse {
        /// The state directory.
        path: PathBuf,
    },
    /// The WebSocket port could not be opened.
    #[error(transparent)]
    Web(#[from] WebError),
    /// A system call failed.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The object of the action.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Runs a daemon until it is asked to stop.
///
/// `ready` is called when clients can connect.
pub async fn run(mut config: Config, ready: impl FnOnce()) -> Result<(), RunError> {
    let signals = os::stop_signals().map_err(io_error("listen to signals of", Path::new("this process")))?;
    let listener = Listener::bind(&config.paths.address())?;
    // Held until the end: two daemons must not write one journal, even at different sockets.
    let _state = lock_state_directory(&config.paths.state)?;
    let mut web = Vec::new();
    for listener in &config.listeners {
        web.push(WebServer::open(listener, &config.paths.state, &config.limits, config.protocols).await?);
    }
    let options = Options { boot: os::boot_id(), lost_line, lost_summary, ..Options::default() };
    let journal = Journal::open(&config.paths.state, options)?;
    let descriptors = os::raise_descriptor_limit();
    if let Some(descriptors) = descriptors {
        config.limits.connections = config.limits.connections.min(descriptors.max_connections());
    }
    let local = LocalSandbox::this_program().map_err(io_error("find", Path::new("this program")))?;
    let local = local.with_orphan_adoption().with_descriptor_limit(descriptors.map(|descriptors| descriptors.initial));
    let files = FileTasks::new(FILE_SLOTS, FILE_DEADLINE);
    let clock = Clock::start();
    let services = Arc::new(Services {
        limits: config.limits,
        clock,
        daily_spend: DailySpend::new(clock.now()),
        journal: journal.clone(),
        providers: providers(),
        model_config: ModelConfig::new(&config.paths, config.dialects, model_limits(&config.limits), files.clone()),
        tools: config.tools,
        files,
        grants: Arc::new(GrantStore::new(&config.paths.state)),
        index: SearchIndex::new(&config.paths.state),
        session_files: SessionFiles::new(&session_files::home(), &config.paths.state),
        environments: Environments::default(),
        login: LoginEnvironment::new(&config.paths.home),
        sandboxes: Sandboxes::new(local, &config.paths, config.homes).with_toolchains(config.toolchains),
        draining: Latch::new(),
        closing: Latch::new(),
        disconnecting: Latch::new(),
        phase_changed: Notify::new(),
        notices: NoticeQueue::default(),
        approvals_revision: watch::Sender::new(clock.now().0),
        run_ends: RunEndChannel::new(),
        deleted: broadcast::Sender::new(BROADCAST_CAPACITY),
        session_changes: broadcast::Sender::new(BROADCAST_CAPACITY),
    });
    let hub = Hub::new(services);
    let server = Server::new(Arc::clone(&hub), &config.paths.socket);
    let protocols = ProtocolRegistry::new(Arc::clone(&server), config.protocols);
    serve_web(web, &protocols);
    info!(version = env!("CARGO_PKG_VERSION"), socket = %config.paths.socket.display(), "daemon ready");
    ready();
    start_background_tasks(&hub);
    serve(&protocols, &listener, signals).await;
    hub.services().closing.set();
    hub.wait_for_lanes().await;
    hub.services().disconnecting.set();
    server.wait_for_disconnects().await;
    journal.close().await?;
    listener.close();
    info!("daemon ended");
    Ok(())
}

/// Serves the ports for WebSockets.
fn serve_web(ports: Vec<WebServer>, protocols: &Arc<ProtocolRegistry>) {
    for port in ports {
        protocols.server().add_web_address(port.scope(), port.address());
        tokio::spawn(Arc::new(port).serve(Arc::clone(protocols)));
    }
}

/// Starts the recovery of unfinished runs, retention, and the removal of the leftovers of earlier runs.
fn start_background_tasks(hub: &Arc<Hub>) {
    let recovering = Arc::clone(hub);
    tokio::spawn(async move { maintenance::recover(&recovering).await });
    tokio::spawn(retention::run(Arc::clone(hub)));
    tokio::spawn(notify::run(Arc::clone(hub.services())));
    tokio::spawn(index::run(Arc::clone(hub.services())));
    let local = hub.services().sandboxes.local().clone();
    tokio::task::spawn_blocking(move || local.remove_leftovers());
}

/// Encodes the event that stands for lost events.
pub(super) fn lost_line(session: &SessionId, loss: &Loss, at: Now) -> Vec<u8> {
    let cause = match loss.cause {
        LossReason::Damage => LossCause::Damage,
        LossReason::Power => LossCause::PowerLoss,
        LossReason::Retention => LossCause::Retention,
    };
    let kind = EventKind::Notice(NoticeEvent::EventsLost { after: loss.after, cause });
    let mut line = Vec::new();
    record::event_line(
        session,
        &Event { seq: loss.until, at, run: None, version: None, origin: None, audience: Audience::All, kind },
        &mut line,
    );
    line
}

/// Encodes the list entry of a session of which only the id and events are left.
fn lost_summary(session: &SessionId) -> String {
    let nothing = Session::new(SessionLimits::default()).snapshot();
    summary::session_item(&summary::SessionRow::of(session, &nothing)).as_str().to_owned()
}

/// Returns the limits of model servers, including those that the environment sets.
fn model_limits(limits: &Limits) -> ModelLimits {
    let mut of_models = ModelLimits::default();
    if let Some(silence) = limits.model_silence_timeout {
        (of_models.idle_timeout, of_models.first_byte_timeout) = (silence, silence);
    }
    if let Some(attempts) = limits.model_attempts {
        of_models.retry.attempts = attempts;
    }
    of_models
}

fn providers() -> BTreeMap<&'static str, Arc<dyn Provider>> {
    let playbook: Arc<dyn Provider> = Arc::new(Playbook);
    BTreeMap::from([(playbook.name(), playbook)])
}

fn lock_state_directory(state: &Path) -> Result<File, RunError> {
    os::create_private_dir_all(state).map_err(io_error("create", state))?;
    let path = state.join("pushd.lock");
    let file = private_file::open(&path).map_err(io_error("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(RunError::StateInUse { path: state.to_path_buf() }),
        Err(TryLockError::Error(source)) => Err(io_error("lock", &path)(source)),
    }
}

/// Accepts connections until the daemon has drained or receives a stop signal.
async fn serve(protocols: &Arc<ProtocolRegistry>, listener: &Listener, mut signals: mpsc::Receiver<Signal>) {
    let server = protocols.server();
    let stopped = wait_for_stop(server, &mut signals);
    tokio::pin!(stopped);
    loop {
        tokio::select! {
            biased;
            () = &mut stopped => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    if let Some(refusal) = refusal(server, &stream, peer) {
                        warn!(pid = peer.pid, "{refusal}");
                        continue;
                    }
                    let id = server.next_connection_id();
                    admit(protocols, stream, id);
                    debug!(connection = id.0, pid = peer.pid, "connection");
                }
                Err(AcceptError::Exhausted { source }) => {
                    warn!(error = %source, "cannot accept a connection: out of file descriptors");
                    // The listener stays readable, so that an immediate retry would spin.
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
                Err(error @ (AcceptError::OtherUser { .. } | AcceptError::Unidentified { .. })) => {
                    warn!(error = %error, "connection refused");
                }
                Err(AcceptError::Io { source }) => {
                    error!(error = %source, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
        }
    }
}

/// Returns why a connection is refused: a model's command opened it, or the process that opened it is unknown.
fn refusal(server: &Server, stream: &Stream, peer: Peer) -> Option<&'static str> {
    match server.hub().services().sandboxes.supervisors().origin(peer.pid) {
        ProcessOrigin::ModelCommand => Some("connection of a model's command refused"),
        // The process that connected may have exited, and another may have its id.
        ProcessOrigin::NotModelCommand if !stream.peer_has_exited() => None,
        ProcessOrigin::NotModelCommand | ProcessOrigin::Unknown => {
            Some("connection refused: the process that opened it has exited or is in another PID namespace")
        }
    }
}

/// The delay before the next accept after a failed one.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

fn admit(protocols: &Arc<ProtocolRegistry>, stream: Stream, id: ConnectionId) {
    let server = protocols.server();
    let (counted, count) = server.count_connection();
    if count > server.hub().services().limits.connections as u64 {
        return warn!(connections = count, "too many connections");
    }
    let protocols = Arc::clone(protocols);
    tokio::spawn(async move {
        let _counted = counted;
        connection::serve(protocols, stream, id).await;
    });
}

/// Waits until the daemon is asked to stop and has drained, or its grace period has expired.
///
/// A repeated request restarts the grace period with its own duration.
async fn wait_for_stop(server: &Arc<Server>, signals: &mut mpsc::Receiver<Signal>) {
    let mut requests = server.stop_requests();
    tokio::select! {
        _ = requests.wait_for(Option::is_some) => {}
        _ = signals.recv() => server.drain(None),
    }
    loop {
        let grace = requests.borrow_and_update().unwrap_or_default();
        info!(?grace, working = server.hub().running_count(), "daemon draining");
        tokio::select! {
            biased;
            () = server.hub().wait_until_idle() => return,
            Ok(()) = requests.changed() => {}
            () = tokio::time::sleep(grace) => return warn!("grace period expired; stopping active runs"),
            _ = signals.recv() => return warn!("second stop signal; stopping active runs"),
        }
    }
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RunError {
    let path = path.to_path_buf();
    move |source| RunError::Io { action, path, source }
}
