//! The daemon's handle of one supervisor: its reports, its output and its end.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::os::{self, ControlSocket, Process, SpawnedSupervisor};
use super::process_origin::RegistrationGuard;
use super::pump;
use super::scratch::ScratchDir;
use super::step::{Chunk, StepEnd, StepError, Stream};
use super::supervisor;
use super::supervisor_protocol::{ActiveLayers, ConfinementFailure, REPORT_LEN, Report};

/// How long the end of a killed step is awaited before the step is reported as ended anyway.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// How long a supervisor may take to end after a stop request before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Resources that are held while a supervisor lives.
pub(super) struct SupervisorResources {
    pub(super) _registration: RegistrationGuard,
    pub(super) _scratch: Option<Arc<ScratchDir>>,
}

/// A supervisor that was started.
pub(super) struct SupervisorHandle {
    pub(super) pid: u32,
    socket: ControlSocket,
    /// Whether it was requested to stop.
    stop_requested: watch::Sender<bool>,
    pub(super) status: watch::Receiver<SupervisorStatus>,
}

impl SupervisorHandle {
    /// Starts a task that reads the supervisor's reports and waits for its end.
    pub(super) fn monitor(spawned: SpawnedSupervisor, resources: SupervisorResources) -> (Arc<Self>, OutputPipes) {
        let SpawnedSupervisor { pid, start_time: _, process, socket, stdout, stderr } = spawned;
        let (sender, status) = watch::channel(SupervisorStatus::default());
        let supervisor = Arc::new(Self { pid, socket, stop_requested: watch::Sender::new(false), status });
        tokio::spawn(Arc::clone(&supervisor).read_reports(process, sender, resources));
        (supervisor, OutputPipes { stdout, stderr })
    }

    /// Reads reports until the supervisor has ended.
    async fn read_reports(
        self: Arc<Self>,
        mut process: Process,
        sender: watch::Sender<SupervisorStatus>,
        resources: SupervisorResources,
    ) {
        let mut tree_empty = false;
        let mut record = [0; REPORT_LEN];
        let mut filled = 0;
        let overdue = self.stop_overdue();
        tokio::pin!(overdue);
        loop {
            let received = tokio::select! {
                received = self.socket.receive(&mut record[filled..]) => received,
                () = &mut overdue => {
                    process.kill().await;
                    break;
                }
            };
            let Ok(length @ 1..) = received else { break };
            filled += length;
            if filled == REPORT_LEN {
                filled = 0;
                tree_empty |= record_report(record, &sender);
            }
        }
        // However the socket was closed, the supervisor must end.
        self.request_stop();
        // An overdue supervisor was stopped by a signal, or cannot kill a process of its step.
        if timeout(STOP_TIMEOUT, process.wait()).await.is_err() {
            process.kill().await;
            process.wait().await;
        }
        if !tree_empty {
            supervisor::clean_up_cgroup(self.pid);
        }
        drop(resources);
        sender.send_modify(|status| status.ended = true);
    }

    /// Requests that the supervisor kills all processes of its step; never waits, and can be repeated.
    pub(super) fn request_stop(&self) {
        self.stop_requested.send_replace(true);
        self.socket.close();
    }

    /// Waits until a requested stop is overdue.
    async fn stop_overdue(&self) {
        pump::wait_until_set(&mut self.stop_requested.subscribe()).await;
        sleep(STOP_TIMEOUT).await;
    }

    /// Runs the step of the encoded request and forwards its output.
    pub(super) async fn run_step(
        self: &Arc<Self>,
        request: &[u8],
        limit: Duration,
        outputs: OutputPipes,
        out: &mpsc::Sender<Chunk>,
    ) -> Result<StepEnd, StepFailure> {
        let over = watch::Sender::new(false);
        let (stdout_over, stderr_over) = (over.subscribe(), over.subscribe());
        let outcome = async {
            let outcome = tokio::select! {
                ended = self.send_and_wait(request) => ended,
                () = sleep(limit) => {
                    self.request_stop();
                    self.wait_ended_within(GRACE).await;
                    Ok(StepEnd::TimedOut)
                }
            };
            over.send_replace(true);
            outcome
        };
        let (outcome, stdout, stderr) =
            tokio::join!(outcome, pump::forward(outputs.stdout, Stream::Stdout, out, stdout_over), async {
                match outputs.stderr {
                    Some(stderr) => pump::forward(stderr, Stream::Stderr, out, stderr_over).await,
                    None => None,
                }
            },);
        for pipe in [stdout, stderr].into_iter().flatten() {
            let supervisor = Arc::clone(self);
            tokio::spawn(async move {
                tokio::select! {
                    () = pump::drain(pipe) => {}
                    () = supervisor.wait_ended() => {}
                }
            });
        }
        outcome
    }

    /// Sends the request and waits for the end of the shell.
    async fn send_and_wait(&self, request: &[u8]) -> Result<StepEnd, StepFailure> {
        // If sending fails, the supervisor ends without a report, which is handled below.
        let _sent = self.socket.send(request).await;
        let mut status = self.status.clone();
        let outcome = match status.wait_for(|status| status.outcome.is_some() || status.ended).await {
            Ok(status) => status.outcome,
            Err(_) => None,
        };
        match outcome {
            Some(Report::Exited(code)) => Ok(StepEnd::Exited(code)),
            Some(Report::Signaled(signal)) => Ok(StepEnd::Signaled(signal)),
            Some(Report::OutOfMemory) => {
                self.wait_ended_within(GRACE).await;
                Ok(StepEnd::OutOfMemory)
            }
            Some(Report::DirectoryFailed(errno)) => Err(StepFailure::Directory(errno)),
            Some(Report::ShellFailed(errno)) => Err(StepFailure::Shell(errno)),
            Some(Report::ConfinementFailed(failure)) => Err(StepFailure::Confinement(failure)),
            Some(Report::Started(_) | Report::Confined(_) | Report::TreeEmpty) | None => {
                Err(StepFailure::SupervisorLost)
            }
        }
    }

    pub(super) async fn wait_ended_within(&self, limit: Duration) {
        // After the limit the supervisor keeps trying; stopping the run reports the processes that remain.
        let _late = timeout(limit, self.wait_ended()).await;
    }

    pub(super) async fn wait_ended(&self) {
        // The sender is dropped only when the runtime shuts down, and then the socket is closed too.
        let mut status = self.status.clone();
        let _ended = status.wait_for(|status| status.ended).await;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.status.borrow().ended
    }
}

/// The state of a supervisor, according to its reports.
#[derive(Debug, Default)]
pub(super) struct SupervisorStatus {
    outcome: Option<Report>,
    pub(super) layers: Option<ActiveLayers>,
    ended: bool,
}

/// Records a report; returns whether it states that no process remains.
fn record_report(record: [u8; REPORT_LEN], sender: &watch::Sender<SupervisorStatus>) -> bool {
    match Report::decode(record) {
        Some(Report::TreeEmpty) => true,
        Some(Report::Started(_)) | None => false,
        Some(Report::Confined(layers)) => {
            sender.send_modify(|status| status.layers = Some(layers));
            false
        }
        Some(
            outcome @ (Report::DirectoryFailed(_)
            | Report::ShellFailed(_)
            | Report::ConfinementFailed(_)
            | Report::Exited(_)
            | Report::Signaled(_)
            | Report::OutOfMemory),
        ) => {
            // The first outcome counts: a step that is killed for its memory use is reported as killed afterwards.
            sender.send_modify(|status| status.outcome = status.outcome.or(Some(outcome)));
            false
        }
    }
}

/// The output pipes of a step; `stderr` is `None` if both streams share one pipe.
pub(super) struct OutputPipes {
    stdout: os::OutputPipe,
    stderr: Option<os::OutputPipe>,
}

/// Requests the stop of a step when it is dropped without being disarmed, as happens when a future is cancelled.
pub(super) struct StopGuard<'a>(pub(super) &'a SupervisorHandle);

impl StopGuard<'_> {
    pub(super) fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.request_stop();
    }
}

/// Why the outcome of a step is unknown or it did not run; the numbers are errno values.
pub(super) enum StepFailure {
    Directory(i32),
    Shell(i32),
    Confinement(ConfinementFailure),
    SupervisorLost,
}

impl StepFailure {
    pub(super) fn into_error(self, cwd: PathBuf) -> StepError {
        match self {
            Self::Directory(errno) => StepError::Directory { path: cwd, source: io::Error::from_raw_os_error(errno) },
            Self::Shell(errno) => StepError::Shell { source: io::Error::from_raw_os_error(errno) },
            Self::Confinement(ConfinementFailure { cause: part, errno }) => {
                let source = (errno != 0).then(|| io::Error::from_raw_os_error(errno));
                StepError::Confinement { what: part.description(), source }
            }
            Self::SupervisorLost => StepError::SupervisorLost,
        }
    }
}
