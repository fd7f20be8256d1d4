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

use crate::sandbox::confine::{Walls, Way};
use crate::sandbox::ground::FileId;
use crate::sandbox::message::{ORDER_MAX, Obstacle, Order, Part, REPORT_LEN, Report, Standing, Workspace};

#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod platform;
#[cfg(not(target_os = "linux"))]
#[path = "posix.rs"]
mod platform;
#[cfg(target_os = "linux")]
mod table;

#[cfg(target_os = "linux")]
pub(super) use platform::end_orphans;
pub(super) use platform::{HOLDER, TELLS_DESCENT, ancestry, clean_after, find_cgroups, hold, inside, layers};
use platform::{Inside, MemoryWatch, Room, Wakeup, seal};

/// The initial interval between two attempts to kill the process tree.
const ROUND: Duration = Duration::from_millis(10);

/// The maximum interval, for processes that do not die because they are blocked in the kernel.
const ROUND_MAX: Duration = Duration::from_millis(320);

/// Runs the supervisor until no process of its step remains.
pub(super) fn main() -> ExitCode {
    if supervise() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Supervises one step, whose request is read from standard input; returns whether no process of it remains.
fn supervise() -> bool {
    let input = io::stdin();
    let link = input.as_fd();
    platform::settle();
    // Ctrl-C in a terminal must reach only the daemon; the supervisor is stopped through its socket.
    let _leader_already = nix::unistd::setsid();
    match keep(link) {
        Ok(()) => {
            report(link, Report::Gone);
            true
        }
        Err(_) => false,
    }
}

/// Runs the step of one request; returns when no process of it remains.
fn keep(link: BorrowedFd<'_>) -> nix::Result<()> {
    let wakeup = Wakeup::new()?;
    let Some((order, body)) = receive(link)? else { return Ok(()) };
    let bounds = order.walls.as_ref().map(|walls| walls.bounds);
    let room = Room::open(&order.cgroups, bounds);
    let memory = bounds.map(MemoryWatch::new);
    let started = match &order.walls {
        Some(walls) if walls.way != Way::Rules => start_inside(&order, &body, walls, room.as_ref()),
        Some(_) | None => start(link, &order, room.as_ref()),
    };
    let kept = match started {
        Ok(shell) => {
            report(link, Report::Started(shell.pid.as_raw()));
            watch(link, &wakeup, &shell, room.as_ref(), memory)
        }
        Err(refused) => {
            report(link, refused);
            Ok(())
        }
    };
    if let Some(room) = room {
        room.close();
    }
    kept
}

/// The shell, or the init process of its namespaces.
struct Shell {
    pid: Pid,
    /// The state of the namespaces, if the step has its own.
    inside: Option<Inside>,
}

/// Reads the request, decoded and as raw bytes; `None` if the daemon closed the socket before it was complete.
fn receive(link: BorrowedFd<'_>) -> nix::Result<Option<(Order, Vec<u8>)>> {
    let mut length = [0; 4];
    if !read_exact(link, &mut length)? {
        return Ok(None);
    }
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_| Errno::EMSGSIZE)?;
    if length > ORDER_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let mut body = vec![0; length];
    if !read_exact(link, &mut body)? {
        return Ok(None);
    }
    let order = Order::decode(&body).ok_or(Errno::EBADMSG)?;
    Ok(Some((order, body)))
}

/// Fills `buffer`; returns false if the input ended first.
fn read_exact(link: BorrowedFd<'_>, mut buffer: &mut [u8]) -> nix::Result<bool> {
    while !buffer.is_empty() {
        match nix::unistd::read(link, buffer) {
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
fn report(link: BorrowedFd<'_>, report: Report) {
    // Reports are few and small, so the socket buffer holds all of them; if the daemon is dead they are not needed.
    let _unheard = nix::unistd::write(link, &report.encode());
}

/// Starts the shell and releases the step's outputs in this process.
fn start(link: BorrowedFd<'_>, order: &Order, room: Option<&Room>) -> Result<Shell, Report> {
    let no_shell = |errno: Errno| Report::NoShell(errno as i32);
    enter(order)?;
    let null = null().map_err(no_shell)?;
    let (word, tell) = close_on_exec_pipe().map_err(no_shell)?;
    let keeper = nix::unistd::getpid();
    match platform::fork(room).map_err(no_shell)? {
        ForkResult::Child => {
            let told = |said: Report| report(tell.as_fd(), said);
            told(become_shell(order, &null, keeper, &told));
            platform::leave()
        }
        ForkResult::Parent { child } => {
            drop(tell);
            // The supervisor must not keep the directory busy.
            let _stays = nix::unistd::chdir("/");
            let_go(&null).map_err(no_shell)?;
            let mut said = [0; REPORT_LEN];
            while let Ok(true) = read_exact(word.as_fd(), &mut said) {
                match Report::decode(said) {
                    Some(standing @ Report::Walled(_)) => report(link, standing),
                    Some(failed) => {
                        let _reaped = waitpid(child, None);
                        return Err(failed);
                    }
                    None => {}
                }
            }
            Ok(Shell { pid: child, inside: None })
        }
    }
}

/// Enters the working directory of the step, which must lie in the session's workspace if that is known.
///
/// The entered directory is compared, not its path: a process that can write to the workspace or its parents can
/// replace the path with another directory or a symbolic link at any time.
fn enter(order: &Order) -> Result<(), Report> {
    let failed = |errno: Errno| Report::NoDirectory(errno as i32);
    let replaced = || Report::NoWalls(Obstacle { part: Part::Replaced, errno: 0 });
    let Some(Workspace { path, id }) = &order.workspace else {
        return nix::unistd::chdir(order.cwd.as_c_str()).map_err(failed);
    };
    nix::unistd::chdir(path.as_c_str()).map_err(|_| replaced())?;
    let there = fs::metadata(".").map_err(|_| replaced())?;
    if (FileId { device: there.dev(), inode: there.ino() }) != *id {
        return Err(replaced());
    }
    let workspace = nix::unistd::getcwd().map_err(failed)?;
    let [path, cwd] = [path, &order.cwd].map(|path| Path::new(OsStr::from_bytes(path.to_bytes())));
    let inner = cwd.strip_prefix(path).unwrap_or(cwd);
    if inner.as_os_str().is_empty() {
        return Ok(());
    }
    nix::unistd::chdir(inner).map_err(failed)?;
    let entered = nix::unistd::getcwd().map_err(failed)?;
    if entered.starts_with(&workspace) { Ok(()) } else { Err(replaced()) }
}

/// Starts the shell in its own namespaces.
fn start_inside(order: &Order, body: &[u8], walls: &Walls, room: Option<&Room>) -> Result<Shell, Report> {
    let (pid, inside) = platform::start_inside(order, body, walls, room)?;
    let no_shell = |errno: Errno| Report::NoShell(errno as i32);
    null().and_then(|null| let_go(&null)).map_err(no_shell)?;
    Ok(Shell { pid, inside: Some(inside) })
}

fn null() -> nix::Result<File> {
    let null = File::options().read(true).write(true).open("/dev/null");
    null.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))
}

/// Closes this process's copies of the step's outputs.
fn let_go(null: &File) -> nix::Result<()> {
    nix::unistd::dup2_stdout(null)?;
    nix::unistd::dup2_stderr(null)
}

/// Turns this forked process into the shell; returns only on failure.
fn become_shell(order: &Order, null: &File, keeper: Pid, told: &dyn Fn(Report)) -> Report {
    let ready = || {
        nix::unistd::setsid()?;
        platform::die_with_keeper(keeper)
    };
    if let Err(errno) = ready() {
        return Report::NoShell(errno as i32);
    }
    if let Some(walls) = &order.walls {
        match seal(walls) {
            Ok(standing) => told(Report::Walled(standing)),
            Err(obstacle) => return Report::NoWalls(obstacle),
        }
    }
    execute(order, null)
}

/// Executes the shell in the session that was already created; returns only on failure.
fn execute(order: &Order, null: &File) -> Report {
    let execute = || {
        standard_signals()?;
        limit_descriptors(order.descriptors)?;
        nix::unistd::dup2_stdin(null)?;
        let arguments = [c"/bin/sh", c"-c", order.command.as_c_str()];
        nix::unistd::execve(c"/bin/sh", &arguments, &order.env)
    };
    match execute() {
        Ok(never) => match never {},
        Err(errno) => Report::NoShell(errno as i32),
    }
}

/// Sets the descriptor limit that the daemon was started with: some programs close every possible descriptor one by
/// one.
fn limit_descriptors(descriptors: Option<u64>) -> nix::Result<()> {
    let Some(wanted) = descriptors else { return Ok(()) };
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, wanted.min(most), most)
}

/// Resets the signal handlers and the signal mask that the daemon, the supervisor or their parents have changed.
#[expect(unsafe_code, reason = "there is no safe call that sets a signal's handler")]
fn standard_signals() -> nix::Result<()> {
    for number in Signal::iterator() {
        // SAFETY: the default handler is not a function of this program.
        let _fixed = unsafe { signal(number, SigHandler::SigDfl) };
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// Makes a write to a closed socket fail instead of killing this process: the daemon may be dead, and its processes
/// still have to be killed.
#[expect(unsafe_code, reason = "the wrapper takes any handler")]
fn ignore_broken_pipes() {
    // SAFETY: ignoring a signal installs no handler function.
    let _ignored = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
}

/// Creates a pipe that executed programs do not inherit.
fn close_on_exec_pipe() -> nix::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) =
        io::pipe().map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))?;
    Ok((reader.into(), writer.into()))
}

/// Reaps until no process remains or all have to be killed, by request or because the memory limit is exceeded.
fn watch(
    link: BorrowedFd<'_>,
    wakeup: &Wakeup,
    shell: &Shell,
    room: Option<&Room>,
    mut memory: Option<MemoryWatch>,
) -> nix::Result<()> {
    loop {
        if reap(link, shell, room) == Tree::Empty {
            return Ok(());
        }
        let told = wakeup.wait(link, memory.as_ref().map(MemoryWatch::due_in))?;
        let exceeded = memory.as_mut().is_some_and(MemoryWatch::is_exceeded);
        if exceeded {
            report(link, Report::OutOfMemory);
        }
        if exceeded || told == Told::End {
            end(link, wakeup, shell, room);
            return Ok(());
        }
    }
}

/// Kills the process tree repeatedly until no process remains.
fn end(link: BorrowedFd<'_>, wakeup: &Wakeup, shell: &Shell, room: Option<&Room>) {
    let mut round = ROUND;
    while reap(link, shell, room) == Tree::Alive {
        platform::strike(shell.pid, room);
        let next = Instant::now() + round;
        while reap(link, shell, room) == Tree::Alive {
            match next.checked_duration_since(Instant::now()) {
                Some(left) => wakeup.pause(left),
                None => break,
            }
        }
        round = (round * 2).min(ROUND_MAX);
    }
}

/// Reaps dead children, and reports the end of the shell.
fn reap(link: BorrowedFd<'_>, shell: &Shell, room: Option<&Room>) -> Tree {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == shell.pid => {
                report_end(link, shell, Report::Exited(code));
            }
            Ok(WaitStatus::Signaled(pid, number, _)) if pid == shell.pid => {
                // The kernel kills the whole cgroup, so an earlier report of the init process no longer matters.
                if number == Signal::SIGKILL && room.is_some_and(Room::ran_out_of_memory) {
                    report(link, Report::OutOfMemory);
                }
                report_end(link, shell, Report::Signaled(number as i32));
            }
            Ok(WaitStatus::StillAlive) => return Tree::Alive,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return platform::without_children(shell.pid),
        }
    }
}

/// Reports how the shell ended; in namespaces, the reports of the init process are more precise than its exit status.
fn report_end(link: BorrowedFd<'_>, shell: &Shell, outside: Report) {
    let Some(inside) = &shell.inside else { return report(link, outside) };
    let (standing, end) = inside.end(outside);
    if let Some(standing) = standing {
        report(link, Report::Walled(standing));
    }
    report(link, end);
}

/// The reports of the init process: the layers in force, and how the shell ended.
type Said = (Option<Standing>, Report);

/// Whether any process of the step remains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tree {
    Alive,
    Empty,
}

/// Why a supervisor's wait returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    End,
}

/// Returns whether the daemon has closed its side of the socket; unexpected bytes are discarded.
fn is_closed(link: BorrowedFd<'_>) -> bool {
    !matches!(nix::unistd::read(link, &mut [0; 64]), Ok(1..) | Err(Errno::EINTR))
}
