//! All processes of one run, seen from the daemon.
//!
//! Each step has its keeper; a keeper lives on after its step while background processes of it do. Nothing here
//! signals a process: the order to end goes to the keepers, who own the processes, and their word that nothing is
//! left is waited for.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::confine::{TEMP, Walls, Way};
use super::keeper;
use super::lineage::Entered;
use super::local::Local;
use super::message::{self, Obstacle, REPORT_LEN, Report, Standing};
use super::os::{self, Link, Process, Spawned};
use super::provider::{Doing, Room, Terms};
use super::pump;
use super::scratch::Scratch;
use super::step::{Chunk, Left, Step, StepEnd, StepError, Stream};

/// How long a step that was ended is waited for before its end is reported all the same.
const GRACE: Duration = Duration::from_secs(5);

/// All processes of one run; handles are cloned, and when the last is dropped everything is ended.
#[derive(Clone)]
pub struct RunTree {
    trunk: Arc<Trunk>,
}

impl RunTree {
    /// A run of the user's own commands that has no process yet.
    pub fn new(local: Local) -> Self {
        Self::on(local, Terms::User)
    }

    /// A run that has no process yet.
    pub fn on(local: Local, terms: Terms) -> Self {
        let (stopped, kept) = (watch::Sender::new(false), Mutex::default());
        Self { trunk: Arc::new(Trunk { local, terms, stopped, kept, scratch: Mutex::default() }) }
    }

    /// Runs one step and returns when its shell has left and its output has been passed on.
    ///
    /// Output goes to `out` as it comes; while `out` is full the step waits. Background processes of a step without walls live
    /// on, unheard, until the run is stopped; those behind walls end with it. A future that is dropped ends its step, and
    /// everything it started.
    pub async fn run(&self, step: Step, out: mpsc::Sender<Chunk>) -> Result<StepEnd, StepError> {
        self.run_and_look(step, out).await.map(|(end, _)| end)
    }

    /// Runs one step, and says which walls stood around it.
    pub(super) async fn run_and_look(
        &self,
        mut step: Step,
        out: mpsc::Sender<Chunk>,
    ) -> Result<(StepEnd, Option<Standing>), StepError> {
        let mut stopped = self.trunk.stopped.subscribe();
        let walls = tokio::select! {
            biased;
            () = pump::set(&mut stopped) => return Ok((StepEnd::Stopped, None)),
            walls = self.trunk.walls(&mut step) => walls?,
        };
        let local = &self.trunk.local;
        let order = message::order(&step, local.cgroups(), local.descriptors(), walls.as_ref())?;
        let path = local.keeper();
        let spawned =
            os::spawn(path).map_err(|source| StepError::Keeper { path: path.to_path_buf(), source })?;
        let company = self.trunk.company(spawned.pid);
        let (kept, outputs) = Kept::attend(spawned, company);
        let unfinished = Unfinished(&kept);
        self.trunk.hold(&kept);
        let end = tokio::select! {
            biased;
            () = pump::set(&mut stopped) => {
                kept.gone_within(GRACE).await;
                return Ok((StepEnd::Stopped, None));
            }
            end = kept.follow(&order, step.time_limit, outputs, &out) => end,
        };
        let end = end.map_err(|lost| lost.into_error(step.cwd))?;
        unfinished.settle();
        let standing = kept.seen.borrow().standing;
        Ok((end, standing))
    }

    /// Ends everything of this run and waits until nothing is left, for at most `limit`.
    ///
    /// It may be called at any time, from any task, and again. Steps that run return [`StepEnd::Stopped`].
    pub async fn stop(&self, limit: Duration) -> Result<(), Left> {
        self.kill_now();
        let kept = self.trunk.kept().clone();
        let all = async {
            for kept in &kept {
                kept.gone().await;
            }
        };
        let _late = timeout(limit, all).await;
        let left = self.trunk.forget_gone().iter().map(|kept| kept.pid).collect::<Vec<_>>();
        if left.is_empty() { Ok(()) } else { Err(Left { keepers: left }) }
    }

    /// Orders everything of this run to be ended, without waiting; no later step is started.
    pub fn kill_now(&self) {
        self.trunk.end();
    }
}

impl Room for RunTree {
    fn run(&self, step: Step, out: mpsc::Sender<Chunk>) -> Doing<'_, Result<StepEnd, StepError>> {
        Box::pin(Self::run(self, step, out))
    }

    fn stop(&self, limit: Duration) -> Doing<'_, Result<(), Left>> {
        Box::pin(Self::stop(self, limit))
    }

    fn kill_now(&self) {
        Self::kill_now(self);
    }
}

/// What the handles of a run share.
struct Trunk {
    local: Local,
    terms: Terms,
    stopped: watch::Sender<bool>,
    kept: Mutex<Vec<Arc<Kept>>>,
    /// The run's own directory, once a step needs one.
    scratch: Mutex<Option<Arc<Scratch>>>,
}

impl Trunk {
    /// Says what is to stand around a step, and takes out of its environment what does not belong there.
    async fn walls(&self, step: &mut Step) -> Result<Option<Walls>, StepError> {
        let confinement = match &self.terms {
            Terms::User => return Ok(None),
            Terms::Model(_) if step.leave.outside => return Ok(None),
            Terms::Model(confinement) => confinement,
        };
        let Some(way) = self.local.way().await else { return Ok(None) };
        let scratch = self.scratch()?;
        let walls = confinement.walls(way, scratch.path(), &step.leave);
        let temp = match way {
            Way::Bubblewrap | Way::Namespaces => Path::new(TEMP),
            Way::Rules => &walls.temp,
        };
        step.env = confinement.environment(&step.env, temp);
        Ok(Some(walls))
    }

    fn scratch(&self) -> Result<Arc<Scratch>, StepError> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scratch) = &*scratch {
            return Ok(Arc::clone(scratch));
        }
        let made = Scratch::make(self.local.scratch_root());
        let what = "its temporary directory cannot be made";
        let made = made.map_err(|source| StepError::Walls { what, source: Some(source) })?;
        Ok(Arc::clone(scratch.insert(Arc::new(made))))
    }

    /// What a keeper keeps for as long as it lives.
    fn company(&self, keeper: u32) -> Company {
        let entered = match self.terms {
            Terms::User => None,
            Terms::Model(_) => Some(self.local.lineage().enter(keeper)),
        };
        let scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Company { _entered: entered, _scratch: scratch }
    }

    /// Takes a keeper in, and forgets those which are gone.
    fn hold(&self, new: &Arc<Kept>) {
        let mut kept = self.forget_gone();
        kept.push(Arc::clone(new));
        // A stop that came while the keeper was started has not seen it.
        if *self.stopped.borrow() {
            new.link.close();
        }
    }

    /// Lets go of the keepers that are gone; the others are given back.
    fn forget_gone(&self) -> MutexGuard<'_, Vec<Arc<Kept>>> {
        let mut kept = self.kept();
        kept.retain(|kept| !kept.is_gone());
        kept
    }

    fn end(&self) {
        // The mark comes first: whoever sees a step end by our signal sees that we gave it.
        self.stopped.send_replace(true);
        for kept in self.kept().iter() {
            kept.link.close();
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Arc<Kept>>> {
        // The list is whole between any two statements, so a panic elsewhere does not spoil it.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Trunk {
    fn drop(&mut self) {
        self.end();
    }
}

/// What has to stay while a keeper lives.
struct Company {
    _entered: Option<Entered>,
    _scratch: Option<Arc<Scratch>>,
}

/// One keeper that was started.
struct Kept {
    pid: u32,
    link: Link,
    seen: watch::Receiver<Seen>,
}

impl Kept {
    /// Takes a keeper into care: its reports are read and its end is waited for by a task of its own.
    fn attend(spawned: Spawned, company: Company) -> (Arc<Self>, Outputs) {
        let Spawned { pid, process, link, stdout, stderr } = spawned;
        let (tell, seen) = watch::channel(Seen::default());
        let kept = Arc::new(Self { pid, link, seen });
        tokio::spawn(Arc::clone(&kept).listen(process, tell, company));
        (kept, Outputs { stdout, stderr })
    }

    /// Reads reports until the keeper has ended.
    async fn listen(self: Arc<Self>, mut process: Process, tell: watch::Sender<Seen>, company: Company) {
        let mut said_gone = false;
        let mut record = [0; REPORT_LEN];
        let mut filled = 0;
        while let Ok(length @ 1..) = self.link.receive(&mut record[filled..]).await {
            filled += length;
            if filled == REPORT_LEN {
                filled = 0;
                said_gone |= tell_report(record, &tell);
            }
        }
        // Whatever happened to the socket, a keeper is not left to itself.
        self.link.close();
        let _status = process.wait().await;
        if !said_gone {
            keeper::clean_after(self.pid);
        }
        drop(company);
        tell.send_modify(|seen| seen.gone = true);
    }

    /// Has the order carried out and passes the output on.
    async fn follow(
        self: &Arc<Self>,
        order: &[u8],
        limit: Duration,
        outputs: Outputs,
        out: &mpsc::Sender<Chunk>,
    ) -> Result<StepEnd, Lost> {
        let over = watch::Sender::new(false);
        let (stdout_over, stderr_over) = (over.subscribe(), over.subscribe());
        let verdict = async {
            let verdict = tokio::select! {
                ended = self.ended(order) => ended,
                () = sleep(limit) => {
                    self.link.close();
                    self.gone_within(GRACE).await;
                    Ok(StepEnd::TimedOut)
                }
            };
            over.send_replace(true);
            verdict
        };
        let (verdict, stdout, stderr) = tokio::join!(
            verdict,
            pump::pass_on(outputs.stdout, Stream::Stdout, out, stdout_over),
            pump::pass_on(outputs.stderr, Stream::Stderr, out, stderr_over),
        );
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

    /// Sends the order and waits for the shell's end.
    async fn ended(&self, order: &[u8]) -> Result<StepEnd, Lost> {
        // A failure to send shows as an end without a word, which is told apart below.
        let _sent = self.link.send(order).await;
        let mut seen = self.seen.clone();
        let outcome = match seen.wait_for(|seen| seen.outcome.is_some() || seen.gone).await {
            Ok(seen) => seen.outcome,
            Err(_) => None,
        };
        match outcome {
            Some(Report::Exited(code)) => Ok(StepEnd::Exited(code)),
            Some(Report::Signaled(signal)) => Ok(StepEnd::Signaled(signal)),
            Some(Report::NoDirectory(errno)) => Err(Lost::Directory(errno)),
            Some(Report::NoShell(errno)) => Err(Lost::Shell(errno)),
            Some(Report::NoWalls(obstacle)) => Err(Lost::Walls(obstacle)),
            Some(Report::Started(_) | Report::Walled(_) | Report::Gone) | None => Err(Lost::Keeper),
        }
    }

    async fn gone_within(&self, limit: Duration) {
        // Past the limit the keeper goes on trying; a stop of the run reports what is left.
        let _late = timeout(limit, self.gone()).await;
    }

    async fn gone(&self) {
        // The sender is dropped only by a runtime that ends, and then the socket is closed with it.
        let mut seen = self.seen.clone();
        let _ended = seen.wait_for(|seen| seen.gone).await;
    }

    fn is_gone(&self) -> bool {
        self.seen.borrow().gone
    }
}

/// What a keeper has reported so far.
#[derive(Debug, Default)]
struct Seen {
    outcome: Option<Report>,
    standing: Option<Standing>,
    gone: bool,
}

/// Notes a report; whether it said that nothing is left.
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
            | Report::Signaled(_)),
        ) => {
            tell.send_modify(|seen| seen.outcome = Some(outcome));
            false
        }
    }
}

/// The two outputs of a step.
struct Outputs {
    stdout: os::Pipe,
    stderr: os::Pipe,
}

/// Ends its step when it is dropped unsettled, as happens to a future nobody waits for any more.
struct Unfinished<'a>(&'a Kept);

impl Unfinished<'_> {
    fn settle(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.link.close();
    }
}

/// Why a step has no end of its own; numbers are the system's.
enum Lost {
    Directory(i32),
    Shell(i32),
    Walls(Obstacle),
    Keeper,
}

impl Lost {
    fn into_error(self, cwd: PathBuf) -> StepError {
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
