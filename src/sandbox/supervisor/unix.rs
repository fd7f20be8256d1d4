//! The supervisor's main loop on Unix: receive the request, start the shell, reap, kill the process tree.
//!
//! The module `platform` has what differs between systems: how the process tree is found, and when it is empty.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};

use crate::sandbox::confinement::{ConfinementSpec, Mechanism};
use crate::sandbox::supervisor_protocol::{
    ActiveLayers, ConfinementFailure, FailureCause, REPORT_LEN, REQUEST_MAX, Report, StepRequest, Workspace,
};
use crate::sandbox::workspace::FileId;

#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod platform;
#[cfg(not(target_os = "linux"))]
#[path = "posix.rs"]
mod platform;
#[cfg(target_os = "linux")]
mod process_table;

#[cfg(target_os = "linux")]
pub(super) use platform::kill_orphans;
pub(super) use platform::{
    ANCESTRY_SUPPORTED, ORPHAN_LAYER, ancestry, clean_up_cgroup, find_cgroup_parent, hold, inside, process_layers,
};
use platform::{MemoryMonitor, NamespacedStep, StepCgroup, Wakeup, restrict_self};

/// The initial interval between two attempts to kill the process tree.
const KILL_INTERVAL: Duration = Duration::from_millis(10);

/// The maximum interval, for processes that do not die because they are blocked in the kernel.
const KILL_INTERVAL_MAX: Duration = Duration::from_millis(320);

/// Runs the supervisor until no process of its step remains.
pub(super) fn main() -> ExitCode {
    if supervise() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Supervises one step, whose request is read from standard input; returns whether no process of it remains.
fn supervise() -> bool {
    let input = io::stdin();
    let socket = input.as_fd();
    platform::prepare_supervisor();
    // Ctrl-C in a terminal must reach only the daemon; the supervisor is stopped through its socket.
    let _leader_already = nix::unistd::setsid();
    match run_request(socket) {
        Ok(()) => {
            send_report(socket, Report::TreeEmpty);
            true
        }
        Err(_) => false,
    }
}

/// Runs the step of one request; returns when no process of it remains.
fn run_request(socket: BorrowedFd<'_>) -> nix::Result<()> {
    let wakeup = Wakeup::new()?;
    let Some((request, body)) = receive_request(socket)? else { return Ok(()) };
    let limits = request.confinement.as_ref().map(|spec| spec.limits);
    let cgroup = StepCgroup::create(&request.cgroup_parent, limits);
    let memory = limits.map(MemoryMonitor::new);
    let started = match &request.confinement {
        Some(spec) if spec.mechanism != Mechanism::Rules => start_in_namespaces(&request, &body, spec, cgroup.as_ref()),
        Some(_) | None => start_shell(socket, &request, cgroup.as_ref()),
    };
    let result = match started {
        Ok(shell) => {
            send_report(socket, Report::Started(shell.pid.as_raw()));
            watch(socket, &wakeup, &shell, cgroup.as_ref(), memory)
        }
        Err(failure) => {
            send_report(socket, failure);
            Ok(())
        }
    };
    if let Some(cgroup) = cgroup {
        cgroup.remove();
    }
    result
}

/// The shell, or the init process of its namespaces.
struct Shell {
    pid: Pid,
    /// The state of the namespaces, if the step has its own.
    namespaced: Option<NamespacedStep>,
}

/// Reads the request, decoded and as raw bytes; `None` if the daemon closed the socket before it was complete.
fn receive_request(socket: BorrowedFd<'_>) -> nix::Result<Option<(StepRequest, Vec<u8>)>> {
    let mut length = [0; 4];
    if !read_exact(socket, &mut length)? {
        return Ok(None);
    }
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_| Errno::EMSGSIZE)?;
    if length > REQUEST_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let mut body = vec![0; length];
    if !read_exact(socket, &mut body)? {
        return Ok(None);
    }
    let request = StepRequest::decode(&body).ok_or(Errno::EBADMSG)?;
    Ok(Some((request, body)))
}

/// Fills `buffer`; returns false if the input ended first.
fn read_exact(socket: BorrowedFd<'_>, mut buffer: &mut [u8]) -> nix::Result<bool> {
    while !buffer.is_empty() {
        match nix::unistd::read(socket, buffer) {
            Ok(0) => return Ok(false),
            Ok(length) => buffer = &mut buffer[length..],
            Err(Errno::EINTR) => {}
            Err(Errno::ECONNRESET) => return Ok(false),
            Err(errno) => return Err(errno),
        }
    }
    Ok(true)
}

/// Sends a report to the daemon, if it still exists.
fn send_report(socket: BorrowedFd<'_>, report: Report) {
    // Reports are few and small, so the socket buffer holds all of them; if the daemon is dead they are not needed.
    let _unheard = nix::unistd::write(socket, &report.encode());
}

/// Starts the shell and releases the step's outputs in this process.
fn start_shell(socket: BorrowedFd<'_>, request: &StepRequest, cgroup: Option<&StepCgroup>) -> Result<Shell, Report> {
    let no_shell = |errno: Errno| Report::ShellFailed(errno as i32);
    enter_working_directory(request)?;
    let null = open_null().map_err(no_shell)?;
    let (reader, writer) = close_on_exec_pipe().map_err(no_shell)?;
    let supervisor = nix::unistd::getpid();
    match platform::fork(cgroup).map_err(no_shell)? {
        ForkResult::Child => {
            let report = |record: Report| send_report(writer.as_fd(), record);
            report(become_shell(request, &null, supervisor, &report));
            platform::exit_child()
        }
        ForkResult::Parent { child } => {
            drop(writer);
            // The supervisor must not keep the directory busy.
            let _stays = nix::unistd::chdir("/");
            release_outputs(&null).map_err(no_shell)?;
            let mut record = [0; REPORT_LEN];
            while let Ok(true) = read_exact(reader.as_fd(), &mut record) {
                match Report::decode(record) {
                    Some(layers @ Report::Confined(_)) => send_report(socket, layers),
                    Some(failed) => {
                        let _reaped = waitpid(child, None);
                        return Err(failed);
                    }
                    None => {}
                }
            }
            Ok(Shell { pid: child, namespaced: None })
        }
    }
}

/// Enters the working directory of the step, which must lie in the session's workspace if that is known.
///
/// The entered directory is compared, not its path: a process that can write to the workspace or its parents can
/// replace the path with another directory or a symbolic link at any time.
fn enter_working_directory(request: &StepRequest) -> Result<(), Report> {
    let failed = |errno: Errno| Report::DirectoryFailed(errno as i32);
    let replaced =
        || Report::ConfinementFailed(ConfinementFailure { cause: FailureCause::WorkspaceIsReplaced, errno: 0 });
    let Some(Workspace { path, id }) = &request.workspace else {
        return nix::unistd::chdir(request.cwd.as_c_str()).map_err(failed);
    };
    nix::unistd::chdir(path.as_c_str()).map_err(|_| replaced())?;
    let metadata = fs::metadata(".").map_err(|_| replaced())?;
    if (FileId { device: metadata.dev(), inode: metadata.ino() }) != *id {
        return Err(replaced());
    }
    let workspace = nix::unistd::getcwd().map_err(failed)?;
    let [path, cwd] = [path, &request.cwd].map(|path| Path::new(OsStr::from_bytes(path.to_bytes())));
    let inner = cwd.strip_prefix(path).unwrap_or(cwd);
    if inner.as_os_str().is_empty() {
        return Ok(());
    }
    nix::unistd::chdir(inner).map_err(failed)?;
    let entered = nix::unistd::getcwd().map_err(failed)?;
    if entered.starts_with(&workspace) { Ok(()) } else { Err(replaced()) }
}

/// Starts the shell in its own namespaces.
fn start_in_namespaces(
    request: &StepRequest,
    body: &[u8],
    spec: &ConfinementSpec,
    cgroup: Option<&StepCgroup>,
) -> Result<Shell, Report> {
    let (pid, inside) = platform::start_in_namespaces(request, body, spec, cgroup)?;
    let no_shell = |errno: Errno| Report::ShellFailed(errno as i32);
    open_null().and_then(|null| release_outputs(&null)).map_err(no_shell)?;
    Ok(Shell { pid, namespaced: Some(inside) })
}

fn open_null() -> nix::Result<File> {
    let null = File::options().read(true).write(true).open("/dev/null");
    null.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))
}

/// Closes this process's copies of the step's outputs.
fn release_outputs(null: &File) -> nix::Result<()> {
    nix::unistd::dup2_stdout(null)?;
    nix::unistd::dup2_stderr(null)
}

/// Turns this forked process into the shell; returns only on failure.
fn become_shell(request: &StepRequest, null: &File, supervisor: Pid, report: &dyn Fn(Report)) -> Report {
    let ready = || {
        nix::unistd::setsid()?;
        platform::die_with_supervisor(supervisor)
    };
    if let Err(errno) = ready() {
        return Report::ShellFailed(errno as i32);
    }
    if let Some(spec) = &request.confinement {
        match restrict_self(spec) {
            Ok(layers) => report(Report::Confined(layers)),
            Err(failure) => return Report::ConfinementFailed(failure),
        }
    }
    exec_shell(request, null)
}

/// Executes the shell in the session that was already created; returns only on failure.
fn exec_shell(request: &StepRequest, null: &File) -> Report {
    let execute = || {
        reset_signals()?;
        limit_descriptors(request.descriptor_limit)?;
        nix::unistd::dup2_stdin(null)?;
        let arguments = [c"/bin/sh", c"-c", request.command.as_c_str()];
        nix::unistd::execve(c"/bin/sh", &arguments, &request.env)
    };
    match execute() {
        Ok(never) => match never {},
        Err(errno) => Report::ShellFailed(errno as i32),
    }
}

/// Sets the descriptor limit that the daemon was started with: some programs close every possible descriptor one by
/// one.
fn limit_descriptors(descriptors: Option<u64>) -> nix::Result<()> {
    let Some(limit) = descriptors else { return Ok(()) };
    let (_, max) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, limit.min(max), max)
}

/// Resets the signal handlers and the signal mask that the daemon, the supervisor or their parents have changed.
#[expect(unsafe_code, reason = "there is no safe call that sets a signal's handler")]
fn reset_signals() -> nix::Result<()> {
    for number in Signal::iterator() {
        // SAFETY: the default handler is not a function of this program.
        let _fixed = unsafe { signal(number, SigHandler::SigDfl) };
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// Makes a write to a closed socket fail instead of killing this process: the daemon may be dead, and its processes
/// still have to be killed.
#[expect(unsafe_code, reason = "the wrapper takes any handler")]
fn ignore_sigpipe() {
    // SAFETY: ignoring a signal installs no handler function.
    let _ignored = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
}

/// Creates a pipe that executed programs do not inherit.
fn close_on_exec_pipe() -> nix::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe().map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))?;
    Ok((reader.into(), writer.into()))
}

/// Reaps until no process remains or all have to be killed, by request or because the memory limit is exceeded.
fn watch(
    socket: BorrowedFd<'_>,
    wakeup: &Wakeup,
    shell: &Shell,
    cgroup: Option<&StepCgroup>,
    mut memory: Option<MemoryMonitor>,
) -> nix::Result<()> {
    loop {
        if reap(socket, shell, cgroup) == TreeState::Empty {
            return Ok(());
        }
        let outcome = wakeup.wait(socket, memory.as_ref().map(MemoryMonitor::due_in))?;
        let exceeded = memory.as_mut().is_some_and(MemoryMonitor::is_exceeded);
        if exceeded {
            send_report(socket, Report::OutOfMemory);
        }
        if exceeded || outcome == WaitOutcome::Stop {
            kill_until_empty(socket, wakeup, shell, cgroup);
            return Ok(());
        }
    }
}

/// Kills the process tree repeatedly until no process remains.
fn kill_until_empty(socket: BorrowedFd<'_>, wakeup: &Wakeup, shell: &Shell, cgroup: Option<&StepCgroup>) {
    let mut round = KILL_INTERVAL;
    while reap(socket, shell, cgroup) == TreeState::Alive {
        platform::kill_tree(shell.pid, cgroup);
        let next = Instant::now() + round;
        while reap(socket, shell, cgroup) == TreeState::Alive {
            match next.checked_duration_since(Instant::now()) {
                Some(left) => wakeup.pause(left),
                None => break,
            }
        }
        round = (round * 2).min(KILL_INTERVAL_MAX);
    }
}

/// Reaps dead children, and reports the end of the shell.
fn reap(socket: BorrowedFd<'_>, shell: &Shell, cgroup: Option<&StepCgroup>) -> TreeState {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == shell.pid => {
                report_end(socket, shell, Report::Exited(code));
            }
            Ok(WaitStatus::Signaled(pid, number, _)) if pid == shell.pid => {
                // The kernel kills the whole cgroup, so an earlier report of the init process no longer matters.
                if number == Signal::SIGKILL && cgroup.is_some_and(StepCgroup::ran_out_of_memory) {
                    send_report(socket, Report::OutOfMemory);
                }
                report_end(socket, shell, Report::Signaled(number as i32));
            }
            Ok(WaitStatus::StillAlive) => return TreeState::Alive,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return platform::state_without_children(shell.pid),
        }
    }
}

/// Reports how the shell ended; in namespaces, the reports of the init process are more precise than its exit status.
fn report_end(socket: BorrowedFd<'_>, shell: &Shell, outside: Report) {
    let Some(inside) = &shell.namespaced else { return send_report(socket, outside) };
    let (layers, end) = inside.finish(outside);
    if let Some(layers) = layers {
        send_report(socket, Report::Confined(layers));
    }
    send_report(socket, end);
}

/// The reports of the init process: the layers in force, and how the shell ended.
type InitReports = (Option<ActiveLayers>, Report);

/// Whether any process of the step remains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TreeState {
    Alive,
    Empty,
}

/// Why a supervisor's wait returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitOutcome {
    Continue,
    Stop,
}

/// Returns whether the daemon has closed its side of the socket; unexpected bytes are discarded.
fn is_closed(socket: BorrowedFd<'_>) -> bool {
    !matches!(nix::unistd::read(socket, &mut [0; 64]), Ok(1..) | Err(Errno::EINTR))
}
