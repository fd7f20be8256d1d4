//! The holder: the parent of all supervisors of a daemon, and the subreaper of the processes that a lost supervisor
//! leaves behind.
//!
//! It is started as `push __hold`, has one thread and no runtime, and forks a supervisor at the daemon's request. The
//! three descriptors of the supervisor are received over a socket. The holder reports the end of a supervisor only
//! after every process that the supervisor left behind has been killed and reaped. Until then the dead supervisor is
//! not reaped either, so its process id cannot be reused. When the daemon's end of the socket closes, the holder kills
//! all processes and exits.
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
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{ForkResult, Pid, getpid};

use super::super::{ROUND, ROUND_MAX, ignore_broken_pipes, standard_signals, supervise};
use super::table::{self, Entry};
use super::{Wakeup, close_the_rest, plain, strike_children};
use crate::sandbox::hold::{HoldReply, HoldRequest, REQUEST_LEN};

/// How long supervisors may take to kill their steps after the daemon has ended.
const GRACE: Duration = Duration::from_secs(5);

/// Runs the holder until the daemon closes its socket and no process remains.
pub(in super::super::super) fn main() -> ExitCode {
    let input = io::stdin();
    // The parent of the daemon may have ignored SIGCHLD, and the holder has to wait for its children.
    let _standard = standard_signals();
    ignore_broken_pipes();
    let _named = prctl::set_name(c"step-holder");
    let _reaper = prctl::set_child_subreaper(true);
    // An unconfined command must not be able to trace the process that cleans up after it.
    let _untraced = prctl::set_dumpable(false);
    continue_with_parent();
    // Signals to the daemon's process group must not reach the holder.
    let _leader_already = nix::unistd::setsid();
    close_the_rest();
    match Wakeup::new() {
        Ok(wakeup) => {
            Holder { control: input.as_fd(), wakeup, running: BTreeSet::new(), ended: BTreeMap::new() }
                .serve();
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// Requests SIGCONT when the parent dies: a stopped process would not notice that its socket was closed.
fn continue_with_parent() {
    let _continued = prctl::set_pdeathsig(Signal::SIGCONT);
}

struct Holder<'a> {
    control: BorrowedFd<'a>,
    wakeup: Wakeup,
    /// The supervisors that are not known to have ended.
    running: BTreeSet<i32>,
    /// The supervisors that have ended but are not reported yet.
    ended: BTreeMap<i32, Exit>,
}

/// How a supervisor ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exit {
    /// It exited when no process of its step remained.
    Clean,
    /// It ended in any other way.
    Lost,
}

impl Holder<'_> {
    /// Serves the daemon until its end of the socket closes.
    fn serve(mut self) {
        let mut round = ROUND;
        let mut all = Cleaned::Completely;
        loop {
            let limit = (all == Cleaned::Partly).then_some(round);
            match self.wakeup.wait_beside(self.control, limit) {
                Ok(true) => match receive(self.control) {
                    Ok(Some((request, descriptors))) => self.answer(request, descriptors),
                    Ok(None) | Err(_) => break,
                },
                Ok(false) => {}
                Err(_) => break,
            }
            all = self.collect();
            round = if all == Cleaned::Completely { ROUND } else { (round * 2).min(ROUND_MAX) };
        }
        self.end();
    }

    fn answer(&mut self, request: HoldRequest, descriptors: Vec<OwnedFd>) {
        match request {
            HoldRequest::Spawn => {
                let reply = match self.spawn(descriptors) {
                    Ok((pid, born)) => HoldReply::Spawned { pid, born },
                    Err(errno) => HoldReply::Failed(errno as i32),
                };
                self.reply(reply);
            }
            HoldRequest::Kill(pid) => {
                if self.running.contains(&pid) {
                    // The supervisor is not reaped before its end is reported, so the process id is still its own.
                    let _dead = kill(Pid::from_raw(pid), Signal::SIGKILL);
                }
                self.reply(HoldReply::Killed);
            }
        }
    }

    /// Forks a supervisor with the descriptors of its step; returns its process id and start time.
    fn spawn(&mut self, descriptors: Vec<OwnedFd>) -> nix::Result<(i32, u64)> {
        let [link, stdout, stderr] = <[OwnedFd; 3]>::try_from(descriptors).map_err(|_| Errno::EBADMSG)?;
        match plain()? {
            ForkResult::Parent { child } => {
                let pid = child.as_raw();
                self.running.insert(pid);
                let born = Entry::read(pid).map_or(0, |entry| entry.born);
                Ok((pid, born))
            }
            ForkResult::Child => {
                let adopt = || {
                    // The supervisor's control socket replaces the holder's socket to the daemon.
                    nix::unistd::dup2_stdin(&link)?;
                    nix::unistd::dup2_stdout(&stdout)?;
                    nix::unistd::dup2_stderr(&stderr)?;
                    // Only a dumpable process can write the id maps of a user namespace.
                    prctl::set_dumpable(true)
                };
                let is_clean = adopt().is_ok_and(|()| {
                    continue_with_parent();
                    drop((link, stdout, stderr));
                    supervise()
                });
                exit(i32::from(!is_clean))
            }
        }
    }

    /// Finds supervisors that have ended, kills the processes they left behind, and reports those of which no process
    /// remains.
    fn collect(&mut self) -> Cleaned {
        for pid in self.running.clone() {
            if let Some(exit) = exit_of(pid) {
                self.running.remove(&pid);
                self.ended.insert(pid, exit);
            }
        }
        let is_clean = self.ended.values().all(|exit| *exit == Exit::Clean);
        let look = if is_clean { Look::Quick } else { Look::Thorough };
        // Only a scan that finds no orphan is conclusive: while dead processes are unreaped, their children may be
        // about to be reparented to the holder.
        loop {
            let mut orphans = self.orphans(look);
            if orphans.is_empty() {
                break;
            }
            orphans.retain(|pid| {
                let reaped = waitpid(Pid::from_raw(*pid), Some(WaitPidFlag::WNOHANG));
                matches!(reaped, Ok(WaitStatus::StillAlive))
            });
            if !orphans.is_empty() {
                strike_children(&self.supervisors());
                return Cleaned::Partly;
            }
        }
        self.ended.retain(|pid, _| {
            let reaped = waitpid(Pid::from_raw(*pid), Some(WaitPidFlag::WNOHANG));
            // The status of a traced process goes to its tracer first.
            let is_left = matches!(reaped, Ok(WaitStatus::StillAlive));
            if !is_left {
                send(self.control, HoldReply::Ended(*pid));
            }
            is_left
        });
        if self.ended.is_empty() { Cleaned::Completely } else { Cleaned::Partly }
    }

    /// Returns the children that are not supervisors, including zombies.
    fn orphans(&self, look: Look) -> Vec<i32> {
        let supervisors = self.supervisors();
        let own = getpid().as_raw();
        let by_table = || {
            let entries = table::pids().filter_map(Entry::read);
            entries.filter(|entry| entry.parent == own).map(|entry| entry.pid).collect()
        };
        let children = match look {
            Look::Quick => table::own_children().unwrap_or_else(by_table),
            // The quick list can miss a child when another one exits while it is read.
            Look::Thorough => by_table(),
        };
        children.into_iter().filter(|pid| !supervisors.contains(pid)).collect()
    }

    fn supervisors(&self) -> BTreeSet<i32> {
        self.running.iter().chain(self.ended.keys()).copied().collect()
    }

    /// Kills all processes; supervisors kill their own steps as far as they can.
    fn end(&mut self) {
        for pid in &self.running {
            for signal in [Signal::SIGTERM, Signal::SIGCONT] {
                let _dead = kill(Pid::from_raw(*pid), signal);
            }
        }
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if self.collect() == Cleaned::Completely && self.running.is_empty() {
                break;
            }
            self.wakeup.pause(ROUND);
        }
        let mut round = ROUND;
        while has_children() {
            strike_children(&BTreeSet::new());
            self.wakeup.pause(round);
            round = (round * 2).min(ROUND_MAX);
        }
    }

    fn reply(&self, reply: HoldReply) {
        send(self.control, reply);
    }
}

/// Whether every ended supervisor is cleaned up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cleaned {
    Completely,
    Partly,
}

/// How children are enumerated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Quick,
    Thorough,
}

/// Returns how a supervisor has ended, without reaping it; `None` while it runs.
fn exit_of(pid: i32) -> Option<Exit> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(Pid::from_raw(pid)), flags) {
        Ok(WaitStatus::Exited(_, 0)) => Some(Exit::Clean),
        // The end of a traced process is reported to its tracer first, which may be a process that it left behind.
        Ok(WaitStatus::StillAlive) => Entry::read(pid).is_none_or(|entry| entry.dead).then_some(Exit::Lost),
        Ok(_) | Err(Errno::ECHILD) => Some(Exit::Lost),
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
fn receive(control: BorrowedFd<'_>) -> nix::Result<Option<(HoldRequest, Vec<OwnedFd>)>> {
    let mut bytes = [0; REQUEST_LEN];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 3]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = loop {
        match recvmsg::<()>(control.as_raw_fd(), &mut parts, Some(&mut space), flags) {
            Err(Errno::EINTR) => {}
            result => break result?,
        }
    };
    let length = received.bytes;
    let mut descriptors = Vec::new();
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = message {
            descriptors.extend(numbers.into_iter().map(owned));
        }
    }
    if length == 0 {
        return Ok(None);
    }
    // A request is sent as a single message.
    let request = HoldRequest::decode(bytes).filter(|_| length == REQUEST_LEN).ok_or(Errno::EBADMSG)?;
    Ok(Some((request, descriptors)))
}

#[expect(unsafe_code, reason = "descriptors are received as numbers")]
fn owned(number: std::os::fd::RawFd) -> OwnedFd {
    // SAFETY: the descriptor was just received and has no other owner.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Sends a reply to the daemon, if it still exists.
fn send(control: BorrowedFd<'_>, reply: HoldReply) {
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
