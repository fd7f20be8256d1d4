//! The region of the inline view: sizes that change, and a terminal that takes no output.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;

use crate::Terminal;
use crate::support::home::{Home, wait_until};
use crate::support::skip::skip;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;

#[test]
fn frames_that_are_drawn_before_a_new_size_is_reported_leave_no_copies() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    // A terminal that makes more rows of the region moves the screen up, so the region must not start at its top.
    terminal.type_line("seq -f 'line %g' 15");
    terminal.wait_for("line 15\n");
    // Every frame has rows that a narrower terminal wraps: the running call and the queue.
    terminal.type_line("push chat");
    terminal.wait_for("› message, /command");
    let long = "a command that is long enough for two or three rows of a narrow terminal, also behind its name";
    terminal.type_line(&format!("$ echo begun; until test -e go; do sleep 0.01; done; : {long}"));
    terminal.wait_for("  begun");
    terminal.type_line(&format!("$ : queued, {long}"));
    terminal.wait_for("queued 1: ");
    wait_until("the cursor rests", || terminal.tmux(&["display-message", "-p", "#{cursor_flag}"]).trim() == "0");
    // tmux wraps at once, and reports at most four sizes a second.
    for width in [100, 60, 90, 40, 70, 45].repeat(4) {
        terminal.tmux(&["resize-window", "-x", &width.to_string(), "-y", "30"]);
        let seen = spinner(&terminal);
        wait_until("another frame is drawn", || spinner(&terminal) != seen);
    }
    terminal.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    terminal.home.write("go", "");
    terminal.wait_for_times("✓ success", 2);
    terminal.press("C-d");
    terminal.wait_for("done 0");
    let all = terminal.scrollback();
    for (text, count) in [("running $", 0), ("queued 1: ", 0), ("? keys", 0), ("begun\n", 1), ("line 15\n", 1)] {
        assert_eq!(all.matches(text).count(), count, "{text}: {all}");
    }
}

/// Returns the row with the spinner.
fn spinner(terminal: &Terminal) -> String {
    let screen = terminal.screen(&[]);
    screen.lines().rev().find(|row| row.contains(" running $")).unwrap_or_default().chars().take(2).collect()
}

#[test]
fn sigterm_ends_a_client_whose_terminal_takes_no_output() {
    if !std::path::Path::new("/usr/bin/setsid").exists() {
        return skip("setsid is not installed");
    }
    let home = Home::new();
    home.ok(&[
        "run",
        "$ i=0; while test $i -lt 2000; do echo \"line $i, long enough to fill the buffer\"; i=$((i+1)); done",
    ]);
    let terminal = openpty(None, None).unwrap();
    let slave = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
    let push = env!("CARGO_BIN_EXE_push");
    let mut client = home
        .program("setsid", &["--ctty", push, "attach"])
        .env("TERM", "xterm-256color")
        .stdin(slave(&terminal.slave))
        .stdout(slave(&terminal.slave))
        .stderr(slave(&terminal.slave))
        .spawn()
        .unwrap();
    let is_canonical = || tcgetattr(&terminal.slave).unwrap().local_flags.contains(LocalFlags::ICANON);
    wait_until("the client uses the terminal", || !is_canonical());
    // Nobody reads: the history is longer than what a terminal buffers.
    wait_until("the client has written", || {
        let mut fds = [PollFd::new(terminal.master.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    });
    kill(Pid::from_raw(i32::try_from(client.id()).unwrap()), Signal::SIGTERM).unwrap();
    wait_until("the client has ended", || client.try_wait().unwrap().is_some());
    assert!(is_canonical(), "the terminal is restored as far as that needs no output");
}
