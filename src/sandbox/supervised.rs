//! The daemon's handle of one supervisor: its reports, its output and its end.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::keeper;
use super::lineage::Entered;
use super::message::{Obstacle, REPORT_LEN, Report, Standing};
use super::os::{self, Link, Process, Spawned};
use super::pump;
use super::scratch::Scratch;
use super::step::{Chunk, StepEnd, StepError, Stream};

/// How long the end of a killed step is awaited before the step is reported as ended anyway.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// How long a supervisor may take to end after a stop request before it is killed.
const OVERDUE: Duration = Duration::from_secs(2);

/// Resources that are held while a supervisor lives.
pub(super) struct Company {
    pub(super) _entered: Entered,
    pub(super) _scratch: Option<Arc<Scratch>>,
}

/// A supervisor that was started.
pub(super) struct Kept {
    pub(super) pid: u32,
    link: Link,
    /// Whether it was requested to stop.
    ending: watch::Sender<bool>,
    pub(super) seen: watch::Receiver<Seen>,
}

impl Kept {
    /// Starts a task that reads the supervisor's reports and waits for its end.
    pub(super) fn attend(spawned: Spawned, company: Company) -> (Arc<Self>, OutputPipes) {
        let Spawned { pid, born: _, process, link, stdout, stderr } = spawned;
        let (tell, seen) = watch::channel(Seen::default());
        let kept = Arc::new(Self { pid, link, ending: watch::Sender::new(false), seen });
        tokio::spawn(Arc::clone(&kept).listen(process, tell, company));
        (kept, OutputPipes { stdout, stderr })
    }

    /// Reads reports until the supervisor has ended.
    async fn listen(self: Arc<Self>, mut process: Process, tell: watch::Sender<Seen>, company: Company) {
        let mut said_gone = false;
        let mut record = [0; REPORT_LEN];
        let mut filled = 0;
        let overdue = self.overdue();
        tokio::pin!(overdue);
        loop {
            let received = tokio::select! {
                received = self.link.receive(&mut record[filled..]) => received,
                () = &mut overdue => {
                    process.kill().await;
                    break;
                }
            };
            let Ok(length @ 1..) = received else { break };
            filled += length;
            if filled == REPORT_LEN {
                filled = 0;
                said_gone |= tell_report(record, &tell);
            }
        }
        // However the socket was closed, the supervisor must end.
        self.end();
        // An overdue supervisor was stopped by a signal, or cannot kill a process of its step.
        if timeout(OVERDUE, process.wait()).await.is_err() {
            process.kill().await;
            process.wait().await;
        }
        if !said_gone {
            keeper::clean_after(self.pid);
        }
        drop(company);
        tell.send_modify(|seen| seen.gone = true);
    }

    /// Requests that the supervisor kills all processes of its step; never waits, and can be repeated.
    pub(super) fn end(&self) {
        self.ending.send_replace(true);
        self.link.close();
    }

    /// Waits until a requested stop is overdue.
    async fn overdue(&self) {
        pump::set(&mut self.ending.subscribe()).await;
        sleep(OVERDUE).await;
    }

    /// Runs the step of the encoded request and forwards its output.
    pub(super) async fn follow(
        self: &Arc<Self>,
        order: &[u8],
        limit: Duration,
        outputs: OutputPipes,
        out: &mpsc::Sender<Chunk>,
    ) -> Result<StepEnd, Lost> {
        let over = watch::Sender::new(false);
        let (stdout_over, stderr_over) = (over.subscribe(), over.subscribe());
        let verdict = async {
            let verdict = tokio::select! {
                ended = self.ended(order) => ended,
                () = sleep(limit) => {
                    self.end();
                    self.gone_within(GRACE).await;
                    Ok(StepEnd::TimedOut)
                }
            };
            over.send_replace(true);
            verdict
        };
        let (verdict, stdout, stderr) =
            tokio::join!(verdict, pump::pass_on(outputs.stdout, Stream::Stdout, out, stdout_over), async {
                match outputs.stderr {
                    Some(stderr) => pump::pass_on(stderr, Stream::Stderr, out, stderr_over).await,
                    None => None,
                }
            },);
        for pipe in [stdout, stderr].into_iter().flatten() {
            let kept = Arc::clone(self);
            tokio::spawn(async move {
                tokio::select! {
                    () = pump::discard(pipe) => {}
                    () = kept.gone() => {}
                }
            });
        }
        verdict
    }

    /// Sends the request and waits for the end of the shell.
    async fn ended(&self, order: &[u8]) -> Result<StepEnd, Lost> {
        // If sending fails, the supervisor ends without a report, which is handled below.
        let _sent = self.link.send(order).await;
        let mut seen = self.seen.clone();
        let outcome = match seen.wait_for(|seen| seen.outcome.is_some() || seen.gone).await {
            Ok(seen) => seen.outcome,
            Err(_) => None,
        };
        match outcome {
            Some(Report::Exited(code)) => Ok(StepEnd::Exited(code)),
            Some(Report::Signaled(signal)) => Ok(StepEnd::Signaled(signal)),
            Some(Report::OutOfMemory) => {
                self.gone_within(GRACE).await;
                Ok(StepEnd::OutOfMemory)
            }
            Some(Report::NoDirectory(errno)) => Err(Lost::Directory(errno)),
            Some(Report::NoShell(errno)) => Err(Lost::Shell(errno)),
            Some(Report::NoWalls(obstacle)) => Err(Lost::Walls(obstacle)),
            Some(Report::Started(_) | Report::Walled(_) | Report::Gone) | None => Err(Lost::Keeper),
        }
    }

    pub(super) async fn gone_within(&self, limit: Duration) {
        // After the limit the supervisor keeps trying; stopping the run reports the processes that remain.
        let _late = timeout(limit, self.gone()).await;
    }

    pub(super) async fn gone(&self) {
        // The sender is dropped only when the runtime shuts down, and then the socket is closed too.
        let mut seen = self.seen.clone();
        let _ended = seen.wait_for(|seen| seen.gone).await;
    }

    pub(super) fn is_gone(&self) -> bool {
        self.seen.borrow().gone
    }
}

/// The state of a supervisor, according to its reports.
#[derive(Debug, Default)]
pub(super) struct Seen {
    outcome: Option<Report>,
    pub(super) standing: Option<Standing>,
    gone: bool,
}

/// Records a report; returns whether it states that no process remains.
fn tell_report(record: [u8; REPORT_LEN], tell: &watch::Sender<Seen>) -> bool {
    match Report::decode(record) {
        Some(Report::Gone) => true,
        Some(Report::Started(_)) | None => false,
        Some(Report::Walled(standing)) => {
            tell.send_modify(|seen| seen.standing = Some(standing));
            false
        }
        Some(
            outcome @ (Report::NoDirectory(_)
            | Report::NoShell(_)
            | Report::NoWalls(_)
            | Report::Exited(_)
            | Report::Signaled(_)
            | Report::OutOfMemory),
        ) => {
            // The first outcome counts: a step that is killed for its memory use is reported as killed afterwards.
            tell.send_modify(|seen| seen.outcome = seen.outcome.or(Some(outcome)));
            false
        }
    }
}

/// The output pipes of a step; `stderr` is `None` if both streams share one pipe.
pub(super) struct OutputPipes {
    stdout: os::Pipe,
    stderr: Option<os::Pipe>,
}

/// Requests the stop of a step when it is dropped without being disarmed, as happens when a future is cancelled.
pub(super) struct Unfinished<'a>(pub(super) &'a Kept);

impl Unfinished<'_> {
    pub(super) fn settle(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Why the outcome of a step is unknown or it did not run; the numbers are errno values.
pub(super) enum Lost {
    Directory(i32),
    Shell(i32),
    Walls(Obstacle),
    Keeper,
}

impl Lost {
    pub(super) fn into_error(self, cwd: PathBuf) -> StepError {
        match self {
            Self::Directory(errno) => {
                StepError::Directory { path: cwd, source: io::Error::from_raw_os_error(errno) }
            }
            Self::Shell(errno) => StepError::Shell { source: io::Error::from_raw_os_error(errno) },
            Self::Walls(Obstacle { part, errno }) => {
                let source = (errno != 0).then(|| io::Error::from_raw_os_error(errno));
                StepError::Walls { what: part.words(), source }
            }
            Self::Keeper => StepError::KeeperLost,
        }
    }
}
