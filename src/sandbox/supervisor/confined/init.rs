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
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};

use super::super::{close_from, exit_child, fork_plain};
use super::{restrictions, send_report, syscalls, workspace_check};
use crate::sandbox::confinement::ConfinementSpec;
use crate::sandbox::supervisor::os::{exec_shell, open_null, release_outputs};
use crate::sandbox::supervisor_protocol::{ConfinementFailure, FailureCause, REQUEST_MAX, Report, StepRequest};

/// The descriptor of the socket to the supervisor.
pub(super) const REPORT_FD: RawFd = 3;

/// The descriptor of this program, for bubblewrap to execute.
pub(super) const PROGRAM_FD: RawFd = 4;

/// Runs the init process in namespaces that bubblewrap has created; the request is read from standard input.
pub(in super::super::super::super) fn main() -> ExitCode {
    let Ok(report_fd) = syscalls::take_inherited(REPORT_FD) else { return ExitCode::FAILURE };
    close_from(PROGRAM_FD);
    let mut body = Vec::new();
    let read = std::io::stdin().lock().take(REQUEST_MAX as u64).read_to_end(&mut body);
    let request = read.ok().and_then(|_| StepRequest::decode(&body));
    let failed = match request.as_ref().and_then(|request| Some((request, request.confinement.as_ref()?))) {
        Some((request, spec)) => run(request, spec, &report_fd),
        None => ConfinementFailure { cause: FailureCause::Bubblewrap, errno: Errno::EBADMSG as i32 },
    };
    send_report(&report_fd, Report::ConfinementFailed(failed));
    ExitCode::FAILURE
}

/// Runs the init process; returns only if the shell cannot be confined.
pub(super) fn run(request: &StepRequest, spec: &ConfinementSpec, report_fd: &OwnedFd) -> ConfinementFailure {
    let failed = |errno: Errno| ConfinementFailure { cause: FailureCause::Restrictions, errno: errno as i32 };
    let null = match open_null() {
        Ok(null) => null,
        Err(errno) => return failed(errno),
    };
    // Standard input is the supervisor's control socket or the request, which no other process may access.
    if let Err(errno) = nix::unistd::dup2_stdin(&null).and_then(|()| die_with_supervisor(report_fd)) {
        return failed(errno);
    }
    if let Err(failure) = workspace_check::verify(spec) {
        return failure;
    }
    match restrictions::restrict_self(spec) {
        Ok(layers) => send_report(report_fd, Report::Confined(layers)),
        Err(failure) => return failure,
    }
    if let Err(errno) = nix::unistd::chdir(request.cwd.as_c_str()) {
        send_report(report_fd, Report::DirectoryFailed(errno as i32));
        exit_child();
    }
    match fork_plain() {
        Ok(ForkResult::Child) => {
            let _leads_already = nix::unistd::setsid();
            send_report(report_fd, exec_shell(request, &null));
            exit_child()
        }
        Ok(ForkResult::Parent { child }) => {
            let end = reap_until_shell_ends(child, &null);
            send_report(report_fd, end);
            exit_child()
        }
        Err(errno) => {
            send_report(report_fd, Report::ShellFailed(errno as i32));
            exit_child()
        }
    }
}

/// Reaps until the shell has ended.
fn reap_until_shell_ends(shell: Pid, null: &File) -> Report {
    // The outputs belong to the shell and to the processes that inherit them.
    let _let_go = release_outputs(null).and_then(|()| nix::unistd::chdir("/"));
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == shell => return Report::Exited(code),
            Ok(WaitStatus::Signaled(pid, number, _)) if pid == shell => {
                return Report::Signaled(number as i32);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Report::ShellFailed(errno as i32),
        }
    }
}

/// Makes this process die with its supervisor, and checks that the supervisor still has its end of the socket open.
fn die_with_supervisor(report_fd: &OwnedFd) -> nix::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    let mut sources = [PollFd::new(report_fd.as_fd(), PollFlags::empty())];
    match poll(&mut sources, PollTimeout::ZERO)? {
        0 => Ok(()),
        _ => Err(Errno::EPIPE),
    }
}
