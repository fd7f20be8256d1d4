//! The holder: the parent of all supervisors of a daemon, and the subreaper of whatever a lost one leaves behind.
//!
//! It is started as `push __hold`, has one thread and no runtime, and forks a supervisor when the daemon asks for one: the
//! three descriptors of the supervisor come over a socket. It reports the end of a supervisor only after everything that the
//! supervisor left behind has been killed and reaped. Until then the dead supervisor is not reaped, so that no other process
//! can have its id. When the daemon's end of the socket closes, the holder ends everything and then itself.
//!
//! Whatever is a child of the holder and no supervisor of it is an orphan of a lost supervisor, and is killed.

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

/// How long supervisors have to end their steps themselves when the daemon is gone.
const GRACE: Duration = Duration::from_secs(5);

/// Is a holder until the daemon lets go of it and nothing is left.
pub(in super::super::super) fn main() -> ExitCode {
    let input = io::stdin();
    // Whoever started the daemon may have had the system forget its children, which are waited for here.
    let _standard = standard_signals();
    ignore_broken_pipes();
    let _named = prctl::set_name(c"step-holder");
    let _reaper = prctl::set_child_subreaper(true);
    // A command without confinement is not to trace the one that cleans up after it.
    let _untraced = prctl::set_dumpable(false);
    continue_with_parent();
    // A signal to the daemon's process group is the daemon's business.
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

/// Has the system continue this process when its parent dies: a stopped one would not see that its socket was closed.
fn continue_with_parent() {
    let _continued = prctl::set_pdeathsig(Signal::SIGCONT);
}

struct Holder<'a> {
    control: BorrowedFd<'a>,
    wakeup: Wakeup,
    /// The supervisors that are not known to have ended.
    running: BTreeSet<i32>,
    /// Those that have ended and are not reported yet, and how.
    ended: BTreeMap<i32, Exit>,
}

/// How a supervisor ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exit {
    /// By itself, when nothing was left of its step.
    Clean,
    /// In any other way.
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
                    // It is not reaped before it is reported, so that the id is still its own.
                    let _dead = kill(Pid::from_raw(pid), Signal::SIGKILL);
                }
                self.reply(HoldReply::Killed);
            }
        }
    }

    /// Forks a supervisor with the descriptors of its step; returns its id and when it was born.
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
                    // The first of them takes the place of the socket to the daemon.
                    nix::unistd::dup2_stdin(&link)?;
                    nix::unistd::dup2_stdout(&stdout)?;
                    nix::unistd::dup2_stderr(&stderr)?;
                    // The maps of a user namespace can be written by a process that may be looked at alone.
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

    /// Finds supervisors that have ended, kills what they left behind, and reports those after which nothing is left.
    fn collect(&mut self) -> Cleaned {
        for pid in self.running.clone() {
            if let Some(exit) = exit_of(pid) {
                self.running.remove(&pid);
                self.ended.insert(pid, exit);
            }
        }
        let is_clean = self.ended.values().all(|exit| *exit == Exit::Clean);
        let look = if is_clean { Look::Quick } else { Look::Thorough };
        // Only a look that finds nobody proves anything: while the dead are unreaped, their children may be just becoming ours.
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
            // One that is traced is its tracer's first.
            let is_left = matches!(reaped, Ok(WaitStatus::StillAlive));
            if !is_left {
                send(self.control, HoldReply::Ended(*pid));
            }
            is_left
        });
        if self.ended.is_empty() { Cleaned::Completely } else { Cleaned::Partly }
    }

    /// The children that are no supervisors, the dead among them.
    fn orphans(&self, look: Look) -> Vec<i32> {
        let supervisors = self.supervisors();
        let own = getpid().as_raw();
        let by_table = || {
            let entries = table::pids().filter_map(Entry::read);
            entries.filter(|entry| entry.parent == own).map(|entry| entry.pid).collect()
        };
        let children = match look {
            Look::Quick => table::own_children().unwrap_or_else(by_table),
            // The quick list may leave out one when another ends while it is read.
            Look::Thorough => by_table(),
        };
        children.into_iter().filter(|pid| !supervisors.contains(pid)).collect()
    }

    fn supervisors(&self) -> BTreeSet<i32> {
        self.running.iter().chain(self.ended.keys()).copied().collect()
    }

    /// Ends everything: supervisors end their steps themselves as far as they can.
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

/// Whether anything is left that is to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cleaned {
    Completely,
    Partly,
}

/// How well children are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Quick,
    Thorough,
}

/// How a supervisor has ended, which stays unreaped; `None` while it runs.
fn exit_of(pid: i32) -> Option<Exit> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(Pid::from_raw(pid)), flags) {
        Ok(WaitStatus::Exited(_, 0)) => Some(Exit::Clean),
        // The end of one that is traced is told to its tracer first, which may be what it left behind.
        Ok(WaitStatus::StillAlive) => Entry::read(pid).is_none_or(|entry| entry.dead).then_some(Exit::Lost),
        Ok(_) | Err(Errno::ECHILD) => Some(Exit::Lost),
        Err(_) => None,
    }
}

/// Reaps the dead; whether anybody is left.
fn has_children() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return true,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// Receives a request with its descriptors; `None` when the daemon is gone.
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
    // A request is sent in one piece.
    let request = HoldRequest::decode(bytes).filter(|_| length == REQUEST_LEN).ok_or(Errno::EBADMSG)?;
    Ok(Some((request, descriptors)))
}

#[expect(unsafe_code, reason = "descriptors are received as numbers")]
fn owned(number: std::os::fd::RawFd) -> OwnedFd {
    // SAFETY: the descriptor was just received and is nobody else's.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Tells the daemon, if there still is one.
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

/// Ends a supervisor that was forked, without the holder's own last acts.
#[expect(unsafe_code, reason = "the call has no wrapper")]
fn exit(code: i32) -> ! {
    // SAFETY: ends the process at once, running no code of ours.
    unsafe { libc::_exit(code) }
}
