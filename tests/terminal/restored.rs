//! The terminal after signals: its modes are those of before, and nothing of the view is left.
//!
//! A panic is injected where the terminal is handled, in `src/tui/terminal.rs`.

use nix::sys::signal::Signal;

use crate::inline::{READY, client_of, send_signal};
use crate::support::home::{Home, is_alive, wait_until};
use crate::support::pty::Pty;
use crate::{Terminal, support};

/// What is written when the view ends: the modes, the style and the cursor.
const LEAVE: &str = "\x1b[?2026l\x1b[0m\x1b[?1004l\x1b[?2004l\x1b[?25h";

#[test]
fn a_signal_that_ends_the_view_restores_the_terminal() {
    let home = Home::new();
    home.ok(&["daemon", "start"]);
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let mut client = start(&home, &["chat"]);
        client.type_text("a draft");
        client.wait_for("a draft");
        assert_ne!(client.modes(), client.initial_modes, "raw mode");
        send_signal(client.pid().cast_signed(), signal);
        client.wait_for("not sent:");
        client.wait_for(LEAVE);
        assert_is_restored(client);
    }
}

#[test]
fn two_interrupts_cancel_the_run_and_restore_the_terminal() {
    let home = Home::new();
    home.ok(&["daemon", "start"]);
    let mut client = start(&home, &["chat"]);
    client.type_text("$ echo begun; sleep 1000\r");
    client.wait_for("  begun");
    let pid = client.pid().cast_signed();
    send_signal(pid, Signal::SIGINT);
    client.wait_for("✗ cancelled");
    loop {
        send_signal(pid, Signal::SIGINT);
        // On a busy machine two seconds may have passed: the hint about the first one disappears.
        if client.wait_for_one(&[LEAVE, "? keys"]) == 0 {
            break;
        }
    }
    assert_is_restored(client);
    assert_eq!(home.json(&["show", "@last", "--json"])["state"], "cancelled");
}

#[test]
fn a_terminal_that_is_gone_ends_the_view_and_not_the_run() {
    let home = Home::new();
    home.ok(&["daemon", "start"]);
    let mut client = start(&home, &["chat"]);
    client.type_text("$ echo begun; until test -e go; do sleep 0.01; done\r");
    client.wait_for("  begun");
    let mut program = client.hang_up();
    wait_until("the client has ended", || program.0.try_wait().unwrap().is_some());
    assert_eq!(home.json(&["show", "@last", "--json"])["state"], "running");
    home.write("go", "");
    assert_eq!(home.push(&["wait", "@last"]).code, Some(0));
}

#[test]
fn a_signal_suspends_the_view_and_its_continuation_draws_it_again() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.type_line("push chat");
    terminal.wait_for(READY);
    terminal.type_text("my draft");
    terminal.wait_for("› my draft");
    let client = client_of(&terminal);
    send_signal(client, Signal::SIGTSTP);
    let screen = terminal.wait_for("Stopped");
    assert!(!screen.contains("? keys"), "the region is removed: {screen}");
    terminal.type_line("stty -a");
    terminal.wait_for("isig icanon iexten echo");
    terminal.type_line("echo visible");
    terminal.wait_for("echo visible\nvisible\n");
    terminal.type_line("fg");
    terminal.wait_for("› my draft");
    terminal.type_text(" goes on");
    let screen = terminal.wait_for("› my draft goes on");
    assert_eq!(screen.matches("? keys").count(), 1, "{screen}");
    send_signal(client, Signal::SIGHUP);
    wait_until("the client is gone", || !is_alive(client));
    terminal.wait_for("not sent:\n  my draft goes on\n");
}

/// Waits for the end of the client, after which the terminal is as it was.
fn assert_is_restored(mut client: Pty) {
    let rest = client.wait_for_end();
    assert!(!rest.contains("\x1b[?"), "nothing is drawn afterwards: {rest:?}");
    assert_eq!(client.modes(), client.initial_modes);
    assert_eq!(client.program.0.wait().unwrap().code(), Some(0), "{rest}");
}

fn start(home: &support::home::Home, words: &[&str]) -> Pty {
    let mut command = home.command(words);
    command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
    let mut client = Pty::start(command, (100, 30));
    client.wait_for("? keys");
    client
}
