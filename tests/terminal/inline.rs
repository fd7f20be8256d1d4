//! The inline view of `push chat`, `push attach` and `push run`, in tmux.

use std::time::Duration;

use crate::support::home::{is_alive, wait_until};
use crate::support::model::{Delivery, ModelServer, Reply, call, say, think};
use crate::{GREEN, Terminal};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// The prompt of an empty composer without a run.
pub(crate) const READY: &str = "› message, /command";

#[test]
fn an_answer_is_streamed_into_the_scrollback() {
    let Some(terminal) = Terminal::open_inline(80, 24) else { return };
    let server = ModelServer::start();
    let words = (0..200).map(|n| say(&format!("word{n} ")));
    let text = [say("# Title\n\n")].into_iter().chain(words).chain([say("\n\n- 漢字 and 🙂\n- `code`\n\nThe end.")]);
    server.script([Reply::turn([think("hm")].into_iter().chain(text))]);
    start_chat(&terminal, &server);
    terminal.type_text("Tell me.");
    terminal.wait_for("› Tell me.");
    terminal.press("Enter");
    terminal.wait_for("The end.");
    terminal.wait_for("✓ success");
    let all = terminal.scrollback();
    assert!(all.contains("> Tell me.\n") && all.contains("∴ thought for"), "{all}");
    assert!(all.contains("漢字 and 🙂"), "{all}");
    for word in [0, 1, 99, 150, 199] {
        assert_eq!(
            all.matches(&format!("word{word} ")).count() + all.matches(&format!("word{word}\n")).count(),
            1,
            "{all}"
        );
    }
    assert_eq!(all.matches("? keys").count(), 1, "the region is drawn once: {all}");
    terminal.press("C-d");
    terminal.wait_for("done 0");
    assert!(!terminal.scrollback().contains("? keys"), "the region is removed: {}", terminal.scrollback());
}

#[test]
fn a_card_is_approved_denied_with_a_reason_and_remembered() {
    let Some(terminal) = Terminal::open_inline(100, 40) else { return };
    let server = ModelServer::start();
    let write = |content: &str| {
        let args = json!({"path": "note.txt", "content": content}).to_string();
        Reply::turn([call("c", "sandbox_write_file", &args)])
    };
    server.script([write("one\n"), write("two\n"), write("three\n"), Reply::says("Enough.")]);
    terminal.home.write("note.txt", "zero\n");
    terminal.type_line(&format!(
        "OLLAMA_HOST={} push run --sandbox none --provider ollama --model m 'Write.'",
        server.url()
    ));
    let screen = terminal.wait_for("y once, r this run");
    assert!(screen.contains("-zero\n") && screen.contains("+one\n") && screen.contains("expires in"), "{screen}");
    terminal.press("y");
    terminal.wait_for("approved by cli");
    let screen = terminal.wait_for("y once, r this run");
    assert!(screen.contains("+two\n"), "{screen}");
    terminal.press("n");
    terminal.wait_for("reason:");
    terminal.type_text("not this one");
    terminal.wait_for("reason: not this one");
    terminal.press("Enter");
    terminal.wait_for("denied by cli: not this one");
    terminal.wait_for("+three");
    terminal.wait_for("y once, r this run");
    terminal.press("w");
    terminal.wait_for("rule: allow: write(");
    terminal.press("Enter");
    terminal.wait_for("approved always in this repository");
    let screen = terminal.wait_for("done 0");
    assert!(screen.contains("Enough.") && screen.contains("✓ success"), "{screen}");
    assert_eq!(terminal.home.read("note.txt"), "three\n");
    assert!(server.seen().last().unwrap().body.to_string().contains("not this one"));
}

#[test]
fn what_is_typed_before_a_card_can_be_read_does_not_answer_it() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.type_line("push run '$ echo begun; until test -e go; do sleep 0.01; done\n$? echo went'");
    terminal.wait_for("  begun");
    terminal.type_text("a draft with y and n");
    terminal.wait_for("› a draft");
    terminal.home.write("go", "");
    terminal.wait_for("Tab answers");
    terminal.type_text("yyy");
    terminal.wait_for("y and nyyy");
    assert_eq!(terminal.home.json(&["approvals", "--json"])["approvals"].as_array().unwrap().len(), 1);
    terminal.press("Tab");
    terminal.wait_for("y once");
    terminal.press("y");
    let screen = terminal.wait_for("done 0");
    assert!(screen.contains("  went\n"), "{screen}");
    assert!(screen.contains("not sent:\n  a draft with y and nyyy\n"), "the draft is not lost: {screen}");
}

#[test]
fn an_approval_of_another_session_is_announced_to_an_idle_view() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.type_line("push chat");
    terminal.wait_for(READY);
    terminal.home.start_detached("$? echo went");
    terminal.wait_for("! 1 approval in another session: /approvals");
    terminal.home.kill_daemon();
    terminal.home.ok(&["approve"]);
    wait_until("nothing is announced after the decision", || !terminal.screen(&[]).contains("in another session"));
    terminal.wait_for("reconnected to pushd");
}

#[test]
fn ctrl_c_cancels_and_ctrl_d_detaches() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.type_line("push run '$ echo begun; sleep 1000'");
    terminal.wait_for("  begun");
    terminal.press("C-c");
    let screen = terminal.wait_for("done 2");
    assert!(screen.contains("✗ cancelled"), "{screen}");
    terminal.wipe();
    terminal.type_line("push run '$ echo begun; until test -e go; do sleep 0.01; done; exit 3'");
    terminal.wait_for("  begun");
    terminal.press("C-d");
    let screen = terminal.wait_for("done 0");
    assert!(screen.contains("the run continues: `push attach "), "{screen}");
    terminal.home.write("go", "");
    assert_eq!(terminal.home.push(&["wait", "@last"]).code, Some(1));
}

#[test]
fn a_large_paste_during_a_run_is_one_message_and_nothing_is_lost() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    let server = ModelServer::start();
    let words = (0..400).map(|n| say(&format!("w{n} ")));
    server.script([
        Reply::turn(words).delivered(Delivery::Paced(Duration::from_millis(5))),
        Reply::says("I have read it."),
    ]);
    start_chat(&terminal, &server);
    terminal.type_line("Write.");
    terminal.wait_for("w3 ");
    let paste: String = (0..5000).map(|n| format!("pasted line {n}\n")).collect();
    terminal.paste(&paste);
    terminal.wait_for("› [pasted 5,000 lines]");
    terminal.type_text(" and more");
    terminal.wait_for("lines] and more");
    terminal.press("Enter");
    terminal.wait_for("I have read it.");
    let messages = messages(&terminal);
    assert_eq!(messages.len(), 2, "one message for the paste");
    assert_eq!(messages[1], format!("{paste} and more"));
    terminal.press("C-d");
    terminal.wait_for("done 0");
}

#[test]
fn queued_messages_are_edited_and_removed() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.type_line("push chat");
    terminal.wait_for(READY);
    terminal.type_line("$ echo begun; until test -e go; do sleep 0.01; done");
    terminal.wait_for("  begun");
    terminal.type_line("$ echo first");
    terminal.wait_for("queued 1: $ echo first");
    terminal.type_line("$ echo second");
    terminal.wait_for("queued 2: $ echo second");
    terminal.press("Tab");
    terminal.wait_for("› queued 1");
    terminal.press("d");
    terminal.wait_for("› queued 1: $ echo second");
    terminal.press("Enter");
    terminal.wait_for("› $ echo second");
    terminal.type_text(" changed");
    terminal.wait_for("second changed");
    terminal.press("Enter");
    terminal.wait_for("queued 1: $ echo second changed");
    terminal.home.write("go", "");
    let screen = terminal.wait_for("  second changed\n");
    assert!(!screen.contains("  first\n"), "{screen}");
    assert_eq!(messages(&terminal).len(), 2);
}

#[test]
fn a_killed_daemon_is_reconnected_and_the_draft_stays() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.type_line("push chat");
    terminal.wait_for(READY);
    terminal.type_line("$ echo begun; test -e go || sleep 1000; echo ended");
    terminal.wait_for("  begun");
    terminal.type_text("my draft");
    terminal.wait_for("› my draft");
    terminal.home.kill_daemon();
    terminal.wait_for("reconnected to pushd");
    terminal.wait_for("1 run_again");
    terminal.wait_for("› my draft");
    terminal.home.write("go", "");
    terminal.press("Tab");
    terminal.wait_for("Enter or a number chooses");
    terminal.press("1");
    let screen = terminal.wait_for("✓ success");
    assert!(screen.contains("  ended\n") && screen.contains("› my draft"), "{screen}");
}

#[test]
fn a_storm_of_resizes_leaves_one_region_and_the_whole_text() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.type_line("push chat");
    terminal.wait_for(READY);
    terminal
        .type_line("$ for n in 1 2 3 4 5; do echo \"line $n of the output, which is long enough to be wrapped\"; done");
    terminal.wait_for("✓ success");
    terminal.type_text("draft");
    for width in [90, 60, 41, 100, 77, 50, 120, 40, 100] {
        terminal.tmux(&["resize-window", "-x", &width.to_string(), "-y", if width % 2 == 0 { "30" } else { "20" }]);
    }
    terminal.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    terminal.type_text(" after");
    terminal.wait_for("› draft after");
    let all = terminal.scrollback();
    assert_eq!(all.matches("› draft").count(), 1, "{all}");
    assert_eq!(all.matches("? keys").count(), 1, "{all}");
    for n in 1..=5 {
        assert_eq!(all.matches(&format!("line {n} of the output")).count(), 1, "{n}: {all}");
    }
}

#[test]
fn a_region_that_a_narrower_terminal_has_wrapped_is_drawn_once() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.type_line("push chat");
    terminal.wait_for(READY);
    terminal.type_text(&format!("first {} last", "x".repeat(70)));
    terminal.wait_for("x last");
    for width in [50, 100, 45] {
        terminal.tmux(&["resize-window", "-x", &width.to_string(), "-y", "30"]);
        wait_until("the region has the new width", || {
            let screen = terminal.tmux(&["capture-pane", "-p", "-S", "-"]);
            let is_wrapped = !screen.lines().any(|line| line.contains("first") && line.contains("last"));
            is_wrapped == (width < 80) && screen.matches("? keys").count() == 1
        });
    }
    let all = terminal.tmux(&["capture-pane", "-p", "-S", "-"]);
    assert_eq!((all.matches("first").count(), all.matches(" last").count()), (1, 1), "{all}");
}

#[test]
fn forty_columns_are_enough() {
    let Some(terminal) = Terminal::open_inline(40, 20) else { return };
    terminal.type_line("push chat");
    terminal.wait_for("› message");
    terminal.type_line("?$ echo 漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字 🙂");
    terminal.wait_for("y once");
    terminal.press("y");
    let screen = terminal.wait_for("✓ success");
    assert!(screen.contains("漢字") && screen.contains("🙂"), "{screen}");
    terminal.type_text(&"漢".repeat(50));
    terminal.wait_for("漢漢漢漢漢");
    terminal.press("C-u");
    terminal.wait_for("› message");
}

#[test]
fn the_terminal_is_restored_after_sigterm_and_after_a_suspension() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.type_line("push chat");
    terminal.wait_for(READY);
    terminal.press("C-z");
    terminal.wait_for("Stopped");
    terminal.type_line("echo visible");
    terminal.wait_for("echo visible\nvisible\n");
    terminal.wipe();
    terminal.type_line("fg; echo back $?");
    terminal.wait_for(READY);
    let child = client_of(&terminal);
    send_signal(child, Signal::SIGTERM);
    terminal.wait_for("back 0");
    wait_until("the client is gone", || !is_alive(child));
    terminal.type_line("stty -a");
    terminal.wait_for("isig icanon iexten echo");
    terminal.type_line("echo again");
    terminal.wait_for("echo again\nagain\n");
}

#[test]
fn an_observer_watches_and_cannot_write() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.home.start_detached("$ echo begun; until test -e go; do sleep 0.01; done; echo went");
    terminal.type_line("push attach --read-only");
    terminal.wait_for("  begun");
    terminal.wait_for("read-only: Ctrl-D leaves");
    terminal.type_text("hello");
    terminal.home.write("go", "");
    let screen = terminal.wait_for("✓ success");
    assert!(screen.contains("  went\n") && !screen.contains("hello"), "{screen}");
    terminal.press("C-d");
    terminal.wait_for("done 0");
}

#[test]
fn a_session_with_a_long_history_starts_near_its_end() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal
        .home
        .ok(&["run", "$ i=0; while test $i -lt 20000; do echo \"line $i of many, long enough\"; i=$((i+1)); done"]);
    for n in 0..3 {
        terminal.home.ok(&["run", "--session", "@last", &format!("$ echo last{n}")]);
    }
    terminal.type_line("push attach");
    terminal.wait_for("  last2\n");
    terminal.wait_for(READY);
    terminal.press("C-d");
    terminal.wait_for("done 0");
}

#[test]
fn colours_follow_no_color() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.type_line("push run '$ true'");
    terminal.wait_for("done 0");
    assert!(terminal.screen(&["-e"]).contains(GREEN), "{:?}", terminal.screen(&["-e"]));
    terminal.wipe();
    terminal.type_line("NO_COLOR=1 push run '$ true'");
    terminal.wait_for("✓ success: 1 step done");
    terminal.wait_for("done 0");
    assert!(!terminal.screen(&["-e"]).contains(GREEN), "{:?}", terminal.screen(&["-e"]));
}

#[test]
fn a_command_of_the_user_runs_and_a_question_mark_shows_the_keys() {
    let Some(terminal) = Terminal::open_inline(100, 40) else { return };
    terminal.type_line("push chat");
    terminal.wait_for(READY);
    terminal.type_text("?");
    terminal.wait_for("Alt-Enter, Ctrl-J");
    terminal.press("Escape");
    terminal.wait_for(READY);
    terminal.type_line("!echo mine; echo yours");
    terminal.wait_for("  mine\n  yours\n");
    terminal.type_line("!echo waits; sleep 1000");
    terminal.wait_for("  waits\n");
    terminal.press("C-c");
    terminal.wait_for("stopping the command");
    terminal.wait_for("it was stopped");
    terminal.press("C-d");
    terminal.wait_for("done 0");
}

/// The process of the client in a terminal.
pub(crate) fn client_of(terminal: &Terminal) -> i32 {
    let pid = terminal.tmux(&["display-message", "-p", "#{pane_pid}"]);
    let children = std::process::Command::new("pgrep").args(["-P", pid.trim(), "push"]).output().unwrap();
    String::from_utf8(children.stdout).unwrap().trim().parse().unwrap()
}

pub(crate) fn send_signal(process: i32, signal: Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(process), signal).unwrap();
}

fn start_chat(terminal: &Terminal, server: &ModelServer) {
    terminal.type_line(&format!("OLLAMA_HOST={} push chat --provider ollama --model m", server.url()));
    terminal.wait_for(READY);
}

/// Returns the texts of the messages in the journal, in order.
fn messages(terminal: &Terminal) -> Vec<String> {
    let log = terminal.home.ok(&["log", "@last", "--jsonl"]);
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let messages = events.filter(|event| event["type"] == "user_message");
    messages.map(|event| event["payload"]["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_view_shows_what_happened_before_a_crash_of_the_daemon() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.home.ok(&["run", "--name", "crash", "$ echo be''fore"]);
    terminal.home.kill_daemon();
    terminal.home.ok(&["run", "--session", "crash", "$ echo af''ter"]);
    terminal.type_line("push attach crash");
    let screen = terminal.wait_for("  after");
    assert!(screen.contains("  before"), "{screen}");
    terminal.press("C-d");
    terminal.wait_for("done 0");
}
