//! The init process of a step's namespaces: it restricts itself, starts the shell, reaps, and reports to the
//! supervisor.
//!
//! When it exits, the kernel kills all remaining processes of the namespace. No process inside can signal, trace or
//! outlive it.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::process::ExitCode;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};

use super::super::{leave, plain};
use super::{rules, say, system, workspace};
use crate::sandbox::confine::Walls;
use crate::sandbox::keeper::os::{execute, let_go, null};
use crate::sandbox::message::{ORDER_MAX, Obstacle, Order, Part, Report};

/// The descriptor of the pipe to the supervisor.
pub(super) const TELL: RawFd = 3;

/// The descriptor of this program, for bubblewrap to execute.
pub(super) const PROGRAM: RawFd = 4;

/// Runs the init process in namespaces that bubblewrap has created; the request is read from standard input.
pub(in super::super::super::super) fn main() -> ExitCode {
    let Ok(tell) = system::taken_over(TELL) else { return ExitCode::FAILURE };
    system::close_from(PROGRAM);
    let mut body = Vec::new();
    let read = std::io::stdin().lock().take(ORDER_MAX as u64).read_to_end(&mut body);
    let order = read.ok().and_then(|_| Order::decode(&body));
    let failed = match order.as_ref().and_then(|order| Some((order, order.walls.as_ref()?))) {
        Some((order, walls)) => run(order, walls, &tell),
        None => Obstacle { part: Part::Bubblewrap, errno: Errno::EBADMSG as i32 },
    };
    say(&tell, Report::NoWalls(failed));
    ExitCode::FAILURE
}

/// Runs the init process; returns only if the shell cannot be confined.
pub(super) fn run(order: &Order, walls: &Walls, tell: &OwnedFd) -> Obstacle {
    let failed = |errno: Errno| Obstacle { part: Part::Rules, errno: errno as i32 };
    let null = match null() {
        Ok(null) => null,
        Err(errno) => return failed(errno),
    };
    // Standard input is the supervisor's control socket or the request, which no other process may access.
    if let Err(errno) = nix::unistd::dup2_stdin(&null).and_then(|()| die_with_keeper(tell)) {
        return failed(errno);
    }
    if let Err(obstacle) = workspace::stands(walls) {
        return obstacle;
    }
    match rules::seal(walls) {
        Ok(standing) => say(tell, Report::Walled(standing)),
        Err(obstacle) => return obstacle,
    }
    if let Err(errno) = nix::unistd::chdir(order.cwd.as_c_str()) {
        say(tell, Report::NoDirectory(errno as i32));
        leave();
    }
    match plain() {
        Ok(ForkResult::Child) => {
            let _leads_already = nix::unistd::setsid();
            say(tell, execute(order, &null));
            leave()
        }
        Ok(ForkResult::Parent { child }) => {
            let end = until_over(child, &null);
            say(tell, end);
            leave()
        }
        Err(errno) => {
            say(tell, Report::NoShell(errno as i32));
            leave()
        }
    }
}

/// Reaps until the shell has ended.
fn until_over(shell: Pid, null: &File) -> Report {
    // The outputs belong to the shell and to the processes that inherit them.
    let _let_go = let_go(null).and_then(|()| nix::unistd::chdir("/"));
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == shell => return Report::Exited(code),
            Ok(WaitStatus::Signaled(pid, number, _)) if pid == shell => {
                return Report::Signaled(number as i32);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Report::NoShell(errno as i32),
        }
    }
}

/// Makes this process die with its supervisor, and checks that the supervisor still has its end of the pipe open.
fn die_with_keeper(tell: &OwnedFd) -> nix::Result<()> {
    system::process_mark(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)?;
    let mut sources = [PollFd::new(tell.as_fd(), PollFlags::empty())];
    match poll(&mut sources, PollTimeout::ZERO)? {
        0 => Ok(()),
        _ => Err(Errno::EPIPE),
    }
}
