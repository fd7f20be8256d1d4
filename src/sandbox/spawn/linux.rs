//! Starts supervisors on Linux: the holder forks a supervisor and reports when no process of it remains.
//!
//! The holder is started with the first supervisor and restarted when it was lost. A dedicated thread starts it and
//! waits for it: the kernel sends the parent-death signal when the thread that started a child exits, so that thread
//! has to live as long as the holder.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, IoSlice, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessage, MsgFlags, Shutdown, sendmsg, shutdown};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::timeout;
use tracing::warn;

use super::Descriptors;
use crate::sandbox::holder_protocol::{HolderReply, HolderRequest, REPLY_LEN};
use crate::sandbox::supervisor;

/// How long the holder may take to answer before it is killed and replaced.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of unanswered requests: more would not fit into the socket buffer, which would look like a holder
/// that does not read, and requests at the end of a long queue would time out without a fault of the holder.
const IN_FLIGHT_MAX: usize = 16;

/// The interval between two attempts to kill what a lost holder left behind: the initial one and the maximum.
const KILL_INTERVAL: Duration = Duration::from_millis(10);
const KILL_INTERVAL_MAX: Duration = Duration::from_millis(320);

/// The process ids of all live holders of this process.
static HOLDERS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Starts supervisors.
#[derive(Debug, Default)]
pub(in super::super) struct Spawner {
    /// Whether this process adopts and kills what a lost holder leaves behind.
    adopt_orphans: AtomicBool,
    holder: tokio::sync::Mutex<Option<Arc<Holder>>>,
}

impl Spawner {
    /// Makes this process adopt and kill what a lost holder leaves behind.
    pub(in super::super) fn enable_orphan_adoption(&self) {
        self.adopt_orphans.store(true, Ordering::Relaxed);
    }

    /// Makes the holder start a supervisor; `program` is executed as the holder.
    pub(super) async fn start(&self, program: &Path, descriptors: Descriptors<'_>) -> io::Result<Process> {
        let mut failed = io::Error::from(io::ErrorKind::BrokenPipe);
        // The second attempt uses a new holder.
        for _ in 0..2 {
            let holder = self.holder(program).await?;
            match holder.request(HolderRequest::Spawn, Some(&descriptors)).await {
                Ok(HolderAnswer::Spawned(started)) => return Ok(Process { started, holder }),
                Ok(HolderAnswer::Failed(errno)) => return Err(io::Error::from_raw_os_error(errno)),
                Ok(HolderAnswer::Killed) => failed = io::ErrorKind::InvalidData.into(),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Returns the holder, and starts one if there is none.
    async fn holder(&self, program: &Path) -> io::Result<Arc<Holder>> {
        let mut current = self.holder.lock().await;
        if let Some(holder) = current.as_ref().filter(|holder| !holder.shared.is_lost()) {
            return Ok(Arc::clone(holder));
        }
        let holder = Arc::new(Holder::start(program, self.adopt_orphans.load(Ordering::Relaxed)).await?);
        Ok(Arc::clone(current.insert(holder)))
    }
}

/// The daemon's side of a holder; dropping it makes the holder kill all processes.
#[derive(Debug)]
struct Holder {
    control: UnixStream,
    shared: Arc<HolderState>,
    in_flight: Semaphore,
}

impl Holder {
    async fn start(program: &Path, adopt_orphans: bool) -> io::Result<Self> {
        let (control, theirs) = UnixStream::pair()?;
        let reader = control.try_clone()?;
        let shared = Arc::new(HolderState::default());
        let (sender, receiver) = oneshot::channel();
        let (thread_shared, program) = (Arc::clone(&shared), program.to_path_buf());
        let run = move || run_holder(program, theirs.into(), reader, &thread_shared, adopt_orphans, sender);
        // Created before the wait: if the caller is cancelled meanwhile, dropping it ends the holder. Closing `control`
        // would not, because the thread has a second descriptor of it.
        let holder = Self { control, shared, in_flight: Semaphore::new(IN_FLIGHT_MAX) };
        std::thread::Builder::new().name("step-holder".to_owned()).spawn(run)?;
        receiver.await.map_err(|_| io::ErrorKind::BrokenPipe)??;
        Ok(holder)
    }

    /// Sends a request and waits for the answer; a holder that does not answer in time is killed.
    async fn request(&self, request: HolderRequest, descriptors: Option<&Descriptors<'_>>) -> io::Result<HolderAnswer> {
        let _turn = self.in_flight.acquire().await.map_err(|_| io::ErrorKind::BrokenPipe)?;
        let (sender, receiver) = oneshot::channel();
        // A signal may have stopped the holder.
        self.shared.signal(Signal::SIGCONT);
        let sent = {
            // The holder answers requests in the order in which they were sent.
            let mut pending = self.shared.pending();
            let sent = self.send(request, descriptors);
            if sent.is_ok() {
                pending.push_back(sender);
            }
            sent
        };
        let answered = match sent {
            Ok(()) => match timeout(ANSWER_TIMEOUT, receiver).await {
                Ok(answered) => answered.map_err(|_| io::ErrorKind::BrokenPipe.into()),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            },
            // The holder has ended, or has not read for so long that the socket buffer is full.
            Err(error) => Err(error),
        };
        answered.inspect_err(|_| self.shared.signal(Signal::SIGKILL))
    }

    fn send(&self, request: HolderRequest, descriptors: Option<&Descriptors<'_>>) -> io::Result<()> {
        let numbers = descriptors.map(Descriptors::raw_fds);
        let rights: Vec<_> = numbers.iter().map(|numbers| ControlMessage::ScmRights(numbers)).collect();
        let bytes = request.encode();
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        loop {
            match sendmsg::<()>(self.control.as_raw_fd(), &[IoSlice::new(&bytes)], &rights, flags, None) {
                Err(Errno::EINTR) => {}
                result => return result.map(drop).map_err(io::Error::from),
            }
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.shared.shutting_down.store(true, Ordering::Relaxed);
        // It fails only if the holder has ended already.
        let _gone = shutdown(self.control.as_raw_fd(), Shutdown::Write);
    }
}

/// The holder's answer to a request.
#[derive(Debug)]
enum HolderAnswer {
    Spawned(StartedSupervisor),
    Failed(i32),
    Killed,
}

/// A supervisor that was started.
#[derive(Debug)]
struct StartedSupervisor {
    pid: u32,
    start_time: u64,
    /// Becomes true when no process of it remains.
    ended: watch::Receiver<bool>,
}

/// The state that the holder's thread shares with the senders of requests.
#[derive(Debug, Default)]
struct HolderState {
    /// The holder's process id until it is reaped, so that no other process is ever signalled.
    pid: Mutex<Option<i32>>,
    /// The senders of unanswered requests, in order.
    pending: Mutex<VecDeque<oneshot::Sender<HolderAnswer>>>,
    /// The channels that signal the ends of supervisors.
    supervisors: Mutex<BTreeMap<i32, watch::Sender<bool>>>,
    lost: AtomicBool,
    shutting_down: AtomicBool,
}

impl HolderState {
    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = *lock(&self.pid) {
            let _dead = kill(Pid::from_raw(pid), signal);
        }
    }

    fn pending(&self) -> MutexGuard<'_, VecDeque<oneshot::Sender<HolderAnswer>>> {
        lock(&self.pending)
    }

    /// Dispatches a reply of the holder.
    fn handle_reply(&self, reply: HolderReply) {
        let answer = match reply {
            HolderReply::Spawned { pid, start_time } => {
                let (sender, ended) = watch::channel(false);
                lock(&self.supervisors).insert(pid, sender);
                HolderAnswer::Spawned(StartedSupervisor { pid: pid.cast_unsigned(), start_time, ended })
            }
            HolderReply::Failed(errno) => HolderAnswer::Failed(errno),
            HolderReply::Killed => HolderAnswer::Killed,
            HolderReply::Ended(pid) => {
                if let Some(sender) = lock(&self.supervisors).remove(&pid) {
                    sender.send_replace(true);
                }
                return;
            }
        };
        if let Some(sender) = self.pending().pop_front() {
            // If no caller waits any more, the supervisor finds its socket closed and ends.
            let _nobody = sender.send(answer);
        }
    }
}

/// Starts a holder, dispatches its replies, and cleans up after it.
fn run_holder(
    program: PathBuf,
    theirs: OwnedFd,
    mut reader: UnixStream,
    shared: &HolderState,
    adopt_orphans: bool,
    sender: oneshot::Sender<io::Result<()>>,
) {
    let mut child = match spawn_holder(&program, theirs, adopt_orphans) {
        Ok(child) => child,
        Err(error) => {
            shared.lost.store(true, Ordering::Release);
            // A caller that no longer waits needs no error.
            let _nobody = sender.send(Err(error));
            return;
        }
    };
    *lock(&shared.pid) = Some(child.id().cast_signed());
    // A caller that no longer waits has dropped its `Holder`, which ends the holder.
    let _nobody = sender.send(Ok(()));
    let mut record = [0; REPLY_LEN];
    while reader.read_exact(&mut record).is_ok() {
        if let Some(reply) = HolderReply::decode(record) {
            shared.handle_reply(reply);
        }
    }
    let died = waitid(Id::Pid(Pid::from_raw(child.id().cast_signed())), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
    shared.lost.store(true, Ordering::Release);
    lock(&shared.pid).take();
    lock(&HOLDERS).remove(&child.id());
    let status = child.wait();
    let supervisors = lock(&shared.supervisors).len();
    if !shared.shutting_down.load(Ordering::Relaxed) {
        warn!(?died, ?status, supervisors, "the holder of the supervisors was lost; its steps are killed");
    }
    // Dropping the senders fails the pending requests.
    shared.pending().clear();
    let mut round = KILL_INTERVAL;
    while adopt_orphans && kill_orphans() {
        std::thread::sleep(round);
        round = (round * 2).min(KILL_INTERVAL_MAX);
    }
    // Dropping the senders signals the end of the supervisors: no process remains.
    lock(&shared.supervisors).clear();
}

/// Executes `program` as a holder.
fn spawn_holder(program: &Path, theirs: OwnedFd, adopt_orphans: bool) -> io::Result<Child> {
    if adopt_orphans {
        prctl::set_child_subreaper(true)?;
    }
    // Locked until the holder is registered: a concurrent `kill_orphans` would take it for an orphan.
    let mut holders = lock(&HOLDERS);
    let child = Command::new(program)
        .arg0("push")
        .arg(supervisor::HOLDER_ARGUMENT)
        .env_clear()
        .current_dir("/")
        .stdin(theirs)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    holders.insert(child.id());
    Ok(child)
}

/// Kills the processes that this process has adopted; returns whether any remains.
fn kill_orphans() -> bool {
    let holders = lock(&HOLDERS);
    supervisor::kill_orphans(&holders)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every statement leaves the guarded value consistent, so a poisoned lock can be used.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A supervisor's process.
#[derive(Debug)]
pub(in super::super) struct Process {
    started: StartedSupervisor,
    holder: Arc<Holder>,
}

impl Process {
    /// Its process id.
    pub(super) fn pid(&self) -> io::Result<u32> {
        Ok(self.started.pid)
    }

    /// When it was started.
    pub(super) const fn start_time(&self) -> u64 {
        self.started.start_time
    }

    /// Waits until it has ended and no process that it started remains.
    pub(in super::super) async fn wait(&mut self) {
        // A dropped sender also means that the supervisor has ended.
        let _lost = self.started.ended.wait_for(|ended| *ended).await;
    }

    /// Kills it; the holder kills the processes that it leaves behind.
    pub(in super::super) async fn kill(&mut self) {
        let request = HolderRequest::Kill(self.started.pid.cast_signed());
        // A holder that does not answer is killed, which ends all its supervisors.
        let _replaced = self.holder.request(request, None).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn a_holder_whose_start_is_cancelled_ends() {
        let root = tempfile::tempdir().unwrap();
        let (program, ended) = (root.path().join("holder"), root.path().join("ended"));
        // Like a holder, it ends when its standard input does. Another process writes it: a descriptor for writing that
        // a concurrent fork inherits would prevent its execution.
        let script = format!("#!/bin/sh\ncat\n: > '{}'\n", ended.display());
        let mut writer = Command::new("sh");
        writer.args(["-c", r#"printf %s "$2" > "$1" && chmod 700 "$1""#, "sh"]).arg(&program).arg(script);
        assert!(writer.status().unwrap().success());
        let mut start = Box::pin(Holder::start(&program, false));
        // The first poll starts the thread that starts the program.
        let polled = std::future::poll_fn(|context| std::task::Poll::Ready(start.as_mut().poll(context))).await;
        drop((polled, start));
        let deadline = Instant::now() + Duration::from_secs(30);
        while !ended.exists() {
            assert!(Instant::now() < deadline, "the holder is still there");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
