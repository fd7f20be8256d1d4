//! The holder: the parent of all supervisors of a daemon, and the subreaper of the processes that a lost supervisor
//! leaves behind.
//!
//! It is started as `push __hold`, has one thread and no runtime, and forks a supervisor at the daemon's request. The
//! three descriptors of the supervisor are received over a socket, with duplicates of the daemon's ends of them, which
//! the holder keeps until the step has ended; it neither reads nor writes them. The holder reports the end of a
//! supervisor only after every process that the supervisor left behind has been killed and reaped. Until then the dead
//! supervisor is not reaped either, so its process id cannot be reused. When the daemon's end of the socket closes, the
//! holder kills all processes and exits.
//!
//! A child of the holder that is not a supervisor is an orphan of a lost supervisor, and is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{ForkResult, Pid, getpid};

use super::super::{KILL_INTERVAL, KILL_INTERVAL_MAX, ignore_sigpipe, reset_signals, supervise};
use super::process_table::{self, ProcessEntry};
use super::{Wakeup, close_inherited_fds, fork_plain, kill_descendants, watch_daemon};
use crate::sandbox::holder_protocol::{HolderReply, HolderRequest, REQUEST_FDS_MAX, REQUEST_LEN, SUPERVISOR_FDS};

/// How long supervisors may take to kill their steps after the daemon has ended.
const GRACE: Duration = Duration::from_secs(5);

/// Runs the holder until the daemon closes its socket and no process remains.
pub(in super::super::super) fn main() -> ExitCode {
    let input = io::stdin();
    // The parent of the daemon may have ignored SIGCHLD, and the holder has to wait for its children.
    let _standard = reset_signals();
    ignore_sigpipe();
    let _named = prctl::set_name(c"step-holder");
    let _reaper = prctl::set_child_subreaper(true);
    // An unconfined command must not be able to trace the process that cleans up after it.
    let _untraced = prctl::set_dumpable(false);
    continue_on_parent_death();
    // Signals to the daemon's process group must not reach the holder.
    let _leader_already = nix::unistd::setsid();
    close_inherited_fds();
    // Supervisors inherit it: their sockets stay open while the holder exists, which a signal may have stopped.
    watch_daemon();
    match Wakeup::new() {
        Ok(wakeup) => {
            Holder { control: input.as_fd(), wakeup, running: BTreeMap::new(), ended: BTreeMap::new() }.serve();
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// Requests SIGCONT when the parent dies: a stopped process would not notice that its socket was closed.
fn continue_on_parent_death() {
    let _continued = prctl::set_pdeathsig(Signal::SIGCONT);
}

struct Holder<'a> {
    control: BorrowedFd<'a>,
    wakeup: Wakeup,
    /// The supervisors that are not known to have ended.
    running: BTreeMap<i32, DaemonEnds>,
    /// The supervisors that have ended but are not reported yet.
    ended: BTreeMap<i32, EndedSupervisor>,
}

/// Duplicates of the daemon's ends of the control socket and the output pipes of a step.
type DaemonEnds = Vec<OwnedFd>;

/// A supervisor that has ended.
struct EndedSupervisor {
    exit: SupervisorExit,
    /// They are closed when its end is reported.
    daemon_ends: DaemonEnds,
}

/// How a supervisor ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SupervisorExit {
    /// It exited when no process of its step remained.
    Clean,
    /// It ended in any other way.
    Lost,
}

impl Holder<'_> {
    /// Serves the daemon until its end of the socket closes.
    fn serve(mut self) {
        let mut round = KILL_INTERVAL;
        let mut all = Cleanup::Complete;
        loop {
            let limit = (all == Cleanup::Partial).then_some(round);
            match self.wakeup.wait_for_child_or(self.control, limit) {
                Ok(true) => match receive(self.control, self.capacity()) {
                    Ok(Some((request, descriptors))) => self.handle_request(request, descriptors),
                    Ok(None) | Err(_) => break,
                },
                Ok(false) => {}
                Err(_) => break,
            }
            all = self.reap_ended();
            round = if all == Cleanup::Complete { KILL_INTERVAL } else { (round * 2).min(KILL_INTERVAL_MAX) };
        }
        self.shut_down();
    }

    fn handle_request(&mut self, request: HolderRequest, descriptors: Vec<OwnedFd>) {
        match request {
            HolderRequest::Spawn => {
                let reply = match self.spawn(descriptors) {
                    Ok((pid, start_time)) => HolderReply::Spawned { pid, start_time },
                    Err(errno) => HolderReply::Failed(errno as i32),
                };
                self.reply(reply);
            }
            HolderRequest::Kill(pid) => {
                if self.running.contains_key(&pid) {
                    // The supervisor is not reaped before its end is reported, so the process id is still its own.
                    let _dead = kill(Pid::from_raw(pid), Signal::SIGKILL);
                }
                self.reply(HolderReply::Killed);
            }
        }
    }

    /// Forks a supervisor with the descriptors of its step; returns its process id and start time.
    fn spawn(&mut self, mut descriptors: Vec<OwnedFd>) -> nix::Result<(i32, u64)> {
        if descriptors.len() < REQUEST_FDS_MIN {
            return Err(Errno::EMFILE);
        }
        let daemon_ends = descriptors.split_off(SUPERVISOR_FDS);
        let [socket, stdout, stderr] =
            <[OwnedFd; SUPERVISOR_FDS]>::try_from(descriptors).map_err(|_| Errno::EBADMSG)?;
        let holder = getpid();
        match fork_plain()? {
            ForkResult::Parent { child } => {
                let pid = child.as_raw();
                self.running.insert(pid, daemon_ends);
                let start_time = ProcessEntry::read(pid).map_or(0, |entry| entry.start_time);
                Ok((pid, start_time))
            }
            ForkResult::Child => {
                // No supervisor may have the daemon's ends of any step: a dumpable process shows its descriptors.
                drop(daemon_ends);
                self.running.clear();
                self.ended.clear();
                let adopt = || {
                    // The supervisor's control socket replaces the holder's socket to the daemon.
                    nix::unistd::dup2_stdin(&socket)?;
                    nix::unistd::dup2_stdout(&stdout)?;
                    nix::unistd::dup2_stderr(&stderr)?;
                    // Only a dumpable process can write the id maps of a user namespace.
                    prctl::set_dumpable(true)
                };
                let is_clean = adopt().is_ok_and(|()| {
                    continue_on_parent_death();
                    drop((socket, stdout, stderr));
                    supervise()
                });
                // A step may have kept stopping the holder, and the daemon that would continue it may have ended.
                if nix::unistd::getppid() == holder {
                    let _continued = kill(holder, Signal::SIGCONT);
                }
                exit(i32::from(!is_clean))
            }
        }
    }

    /// Finds supervisors that have ended, kills the processes they left behind, and reports those of which no process
    /// remains.
    fn reap_ended(&mut self) -> Cleanup {
        for pid in self.running.keys().copied().collect::<Vec<_>>() {
            if let Some(exit) = exit_of(pid) {
                let daemon_ends = self.running.remove(&pid).unwrap_or_default();
                self.ended.insert(pid, EndedSupervisor { exit, daemon_ends });
            }
        }
        let is_clean = self.ended.values().all(|ended| ended.exit == SupervisorExit::Clean);
        let mode = if is_clean { ScanMode::Quick } else { ScanMode::Thorough };
        // Only a scan that finds no orphan is conclusive: while dead processes are unreaped, their children may be
        // about to be reparented to the holder.
        loop {
            let mut orphans = self.orphans(mode);
            if orphans.is_empty() {
                break;
            }
            orphans.retain(|pid| {
                let reaped = waitpid(Pid::from_raw(*pid), Some(WaitPidFlag::WNOHANG));
                matches!(reaped, Ok(WaitStatus::StillAlive))
            });
            if !orphans.is_empty() {
                kill_descendants(&self.supervisors());
                return Cleanup::Partial;
            }
        }
        self.ended.retain(|pid, _| {
            let reaped = waitpid(Pid::from_raw(*pid), Some(WaitPidFlag::WNOHANG));
            // The status of a traced process goes to its tracer first.
            let is_left = matches!(reaped, Ok(WaitStatus::StillAlive));
            if !is_left {
                send_reply(self.control, HolderReply::Ended(*pid));
            }
            is_left
        });
        if self.ended.is_empty() { Cleanup::Complete } else { Cleanup::Partial }
    }

    /// Returns the children that are not supervisors, including zombies.
    fn orphans(&self, mode: ScanMode) -> Vec<i32> {
        let supervisors = self.supervisors();
        let own = getpid().as_raw();
        let by_table = || {
            let entries = process_table::pids().filter_map(ProcessEntry::read);
            entries.filter(|entry| entry.parent == own).map(|entry| entry.pid).collect()
        };
        let children = match mode {
            ScanMode::Quick => process_table::own_children().unwrap_or_else(by_table),
            // The quick list can miss a child when another one exits while it is read.
            ScanMode::Thorough => by_table(),
        };
        children.into_iter().filter(|pid| !supervisors.contains(pid)).collect()
    }

    /// Returns whether the limit of descriptors leaves room for those of another request.
    fn capacity(&self) -> Capacity {
        let descriptors =
            self.running.values().chain(self.ended.values().map(|ended| &ended.daemon_ends)).map(Vec::len);
        let needed = descriptors.sum::<usize>() + REQUEST_FDS_MAX + OWN_FDS;
        match getrlimit(Resource::RLIMIT_NOFILE) {
            Ok((limit, _)) if (needed as u64) > limit => Capacity::Exhausted,
            Ok(_) | Err(_) => Capacity::Sufficient,
        }
    }

    fn supervisors(&self) -> BTreeSet<i32> {
        self.running.keys().chain(self.ended.keys()).copied().collect()
    }

    /// Kills all processes; supervisors kill their own steps as far as they can.
    fn shut_down(&mut self) {
        for (pid, daemon_ends) in &mut self.running {
            // The last copies: the supervisor finds its socket closed.
            daemon_ends.clear();
            for signal in [Signal::SIGTERM, Signal::SIGCONT] {
                let _dead = kill(Pid::from_raw(*pid), signal);
            }
        }
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if self.reap_ended() == Cleanup::Complete && self.running.is_empty() {
                break;
            }
            self.wakeup.pause(KILL_INTERVAL);
        }
        let mut round = KILL_INTERVAL;
        while has_children() {
            kill_descendants(&BTreeSet::new());
            self.wakeup.pause(round);
            round = (round * 2).min(KILL_INTERVAL_MAX);
        }
    }

    fn reply(&self, reply: HolderReply) {
        send_reply(self.control, reply);
    }
}

/// The minimum number of descriptors of a spawn request: with merged outputs the daemon has one pipe.
const REQUEST_FDS_MIN: usize = SUPERVISOR_FDS + 2;

/// The maximum number of descriptors that the holder itself has open, with those of `/proc` that it reads.
const OWN_FDS: usize = 16;

/// Whether the descriptors of another step can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Capacity {
    Sufficient,
    Exhausted,
}

/// Whether every ended supervisor is cleaned up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cleanup {
    Complete,
    Partial,
}

/// How children are enumerated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanMode {
    Quick,
    Thorough,
}

/// Returns how a supervisor has ended, without reaping it; `None` while it runs.
fn exit_of(pid: i32) -> Option<SupervisorExit> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(Pid::from_raw(pid)), flags) {
        Ok(WaitStatus::Exited(_, 0)) => Some(SupervisorExit::Clean),
        // The end of a traced process is reported to its tracer first, which may be a process that it left behind.
        Ok(WaitStatus::StillAlive) => {
            ProcessEntry::read(pid).is_none_or(|entry| entry.is_zombie).then_some(SupervisorExit::Lost)
        }
        Ok(_) | Err(Errno::ECHILD) => Some(SupervisorExit::Lost),
        Err(_) => None,
    }
}

/// Reaps zombies; returns whether any child remains.
fn has_children() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return true,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// Receives a request with its descriptors; `None` if the daemon has closed the socket.
///
/// With [`Capacity::Exhausted`] the kernel drops the descriptors.
fn receive(control: BorrowedFd<'_>, capacity: Capacity) -> nix::Result<Option<(HolderRequest, Vec<OwnedFd>)>> {
    let mut bytes = [0; REQUEST_LEN];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; REQUEST_FDS_MAX]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = loop {
        let space = (capacity == Capacity::Sufficient).then_some(space.as_mut_slice());
        match recvmsg::<()>(control.as_raw_fd(), &mut parts, space, flags) {
            Err(Errno::EINTR) => {}
            result => break result?,
        }
    };
    let length = received.bytes;
    let mut descriptors = Vec::new();
    if !received.flags.contains(MsgFlags::MSG_CTRUNC) {
        for message in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = message {
                descriptors.extend(numbers.into_iter().map(owned_fd));
            }
        }
    }
    if length == 0 {
        return Ok(None);
    }
    // A request is sent as a single message.
    let request = HolderRequest::decode(bytes).filter(|_| length == REQUEST_LEN).ok_or(Errno::EBADMSG)?;
    Ok(Some((request, descriptors)))
}

#[expect(unsafe_code, reason = "descriptors are received as numbers")]
fn owned_fd(number: std::os::fd::RawFd) -> OwnedFd {
    // SAFETY: the descriptor was just received and has no other owner.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Sends a reply to the daemon, if it still exists.
fn send_reply(control: BorrowedFd<'_>, reply: HolderReply) {
    let bytes = reply.encode();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        match nix::unistd::write(control, rest) {
            Ok(length) => rest = &rest[length..],
            Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

/// Exits a forked supervisor without running the holder's exit handlers.
#[expect(unsafe_code, reason = "the call has no wrapper")]
fn exit(code: i32) -> ! {
    // SAFETY: `_exit` ends the process at once and runs no exit handler.
    unsafe { libc::_exit(code) }
}
