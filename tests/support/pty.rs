//! A program at a pseudo-terminal of its own, which is its controlling terminal.
#![allow(dead_code, reason = "not every program uses everything")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::setsid;

/// The longest wait before it fails.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running program at a pseudo-terminal.
pub(crate) struct Pty {
    pub(crate) program: Program,
    terminal: File,
    /// Kept open, so that the terminal and its modes outlive the program.
    slave: OwnedFd,
    /// The modes of the terminal before the program has started.
    pub(crate) initial_modes: Termios,
    /// What the program wrote and nobody has asked for.
    unread: Vec<u8>,
}

impl Pty {
    /// Starts a program at a terminal of this size.
    pub(crate) fn start(mut command: Command, (columns, rows): (u16, u16)) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(&size, None).expect("a pseudo-terminal");
        for end in [&master, &slave] {
            // A program that holds an end of it keeps the terminal open.
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("a flag");
        }
        let end = || Stdio::from(slave.try_clone().expect("another handle"));
        command.stdin(end()).stdout(end()).stderr(end());
        take_terminal(&mut command);
        let initial_modes = tcgetattr(&slave).expect("its modes");
        let program = Program(command.spawn().expect("a program"));
        Self { program, terminal: File::from(master), slave, initial_modes, unread: Vec::new() }
    }

    /// Returns the id of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.program.0.id()
    }

    /// Types a text.
    pub(crate) fn type_text(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).expect("the terminal takes keys");
    }

    /// Reads until the program has written this text, and forgets everything up to its end; returns when it arrived.
    pub(crate) fn wait_for(&mut self, text: &str) -> Instant {
        self.wait_for_one(&[text]);
        Instant::now()
    }

    /// Reads until the program has written one of these texts, and forgets everything up to its end; returns which.
    pub(crate) fn wait_for_one(&mut self, texts: &[&str]) -> usize {
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or_default();
        let mut searched = 0;
        loop {
            let from = &self.unread[searched..];
            let found = texts.iter().map(|text| memchr::memmem::find(from, text.as_bytes())).enumerate();
            if let Some((at, index)) = found.filter_map(|(index, at)| Some((at?, index))).min() {
                self.unread.drain(..searched + at + texts[index].len());
                return index;
            }
            searched = self.unread.len().saturating_sub(longest);
            let is_read = self.read(Instant::now() + TIMEOUT);
            assert!(is_read, "none of {texts:?} in {:?}", String::from_utf8_lossy(&self.unread));
        }
    }

    /// Reads what the program writes until a moment, and forgets it.
    pub(crate) fn skip_until(&mut self, until: Instant) {
        while self.read(until) {}
        self.unread.clear();
    }

    /// Reads to the end of the program and returns what it wrote that nobody has asked for.
    pub(crate) fn wait_for_end(&mut self) -> String {
        let deadline = Instant::now() + TIMEOUT;
        while self.program.0.try_wait().expect("its end").is_none() {
            assert!(Instant::now() < deadline, "it does not end: {:?}", String::from_utf8_lossy(&self.unread));
            self.read(Instant::now() + Duration::from_millis(10));
        }
        while self.read(Instant::now()) {}
        String::from_utf8_lossy(&self.unread).into_owned()
    }

    /// Closes the terminal and returns the program.
    pub(crate) fn hang_up(self) -> Program {
        self.program
    }

    /// Returns the modes of the terminal.
    pub(crate) fn modes(&self) -> Termios {
        tcgetattr(&self.slave).expect("its modes")
    }

    /// Reads once; returns false if nothing arrives until a moment.
    fn read(&mut self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).expect("a short time");
        let mut ready = [PollFd::new(self.terminal.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, timeout).expect("a terminal") == 0 {
            return false;
        }
        let mut buffer = [0; 64 * 1024];
        let read = self.terminal.read(&mut buffer).expect("the slave is open");
        self.unread.extend_from_slice(&buffer[..read]);
        true
    }
}

/// A process; dropping it kills it.
pub(crate) struct Program(pub(crate) Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes the standard input of a program its controlling terminal.
#[allow(unsafe_code, reason = "the system calls are made between fork and exec")]
fn take_terminal(command: &mut Command) {
    let take = || {
        setsid()?;
        // SAFETY: the descriptor is open, and the request takes no pointer.
        nix::errno::Errno::result(unsafe { nix::libc::ioctl(0, nix::libc::TIOCSCTTY, 0) })?;
        Ok(())
    };
    // SAFETY: both are system calls that may be made after a fork.
    unsafe { command.pre_exec(take) };
}
