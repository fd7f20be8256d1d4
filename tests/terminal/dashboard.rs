//! The dashboard of `push` without a verb, in tmux.

use crate::Terminal;
use crate::inline::{READY, client_of, send_signal};
use crate::support::home::{is_alive, wait_until};
use crate::support::model::{ModelServer, Reply, ServerDialect};
use nix::sys::signal::Signal;

/// The status row.
const DASHBOARD: &str = "? keys · q quit";

#[test]
fn sessions_are_listed_filtered_previewed_and_opened() {
    let Some(terminal) = Terminal::open_inline(120, 30) else { return };
    terminal.home.ok(&["run", "--name", "the first one", "$ echo first output"]);
    terminal.home.ok(&["run", "--name", "the second one", "$ echo second output"]);
    open(&terminal);
    let screen = terminal.wait_for("the first one");
    assert!(screen.contains("[1 Sessions (2)]") && screen.contains("completed"), "{screen}");
    // The latest one is selected, and its end is shown.
    terminal.wait_for("│   second output");
    terminal.press("Down");
    terminal.wait_for("│   first output");
    terminal.type_text("/second");
    wait_until("the filter hides the first one", || !terminal.screen(&[]).contains("the first one"));
    terminal.press("Enter");
    terminal.wait_for("Esc removes it");
    terminal.press("Enter");
    let screen = terminal.wait_for(READY);
    assert!(!screen.contains(DASHBOARD), "{screen}");
    terminal.type_line("$ echo from the inside");
    terminal.wait_for("  from the inside\n");
    terminal.press("C-d");
    terminal.wait_for(DASHBOARD);
    terminal.wait_for("│   from the inside");
    terminal.press("q");
    let screen = terminal.wait_for("done 0");
    assert!(!screen.contains(DASHBOARD), "the screen is as before: {screen}");
}

#[test]
fn a_waiting_approval_is_decided_and_the_preview_follows_its_run() {
    let Some(terminal) = Terminal::open_inline(120, 40) else { return };
    open(&terminal);
    terminal.wait_for("no sessions: n starts one");
    // It is found although it started after the dashboard.
    terminal.home.start_detached("$ echo begun\n$? echo went; until test -e go; do sleep 0.01; done; echo ended");
    terminal.wait_for("!2 Approvals (1)");
    terminal.wait_for("! approval wanted");
    terminal.press("2");
    let screen = terminal.wait_for("y once");
    assert!(screen.contains("echo went; until test -e go"), "{screen}");
    terminal.press("y");
    terminal.wait_for("no approval is pending");
    terminal.press("1");
    terminal.wait_for("│   went");
    terminal.home.write("go", "");
    terminal.wait_for("│   ended");
    terminal.wait_for("completed");
    terminal.press("q");
    terminal.wait_for("done 0");
}

#[test]
fn an_approval_is_denied_with_a_reason() {
    let Some(terminal) = Terminal::open_inline(80, 24) else { return };
    terminal.home.start_detached("$? echo went");
    open(&terminal);
    terminal.wait_for("! waiting");
    terminal.press("2");
    terminal.wait_for("y once");
    terminal.press("n");
    terminal.wait_for("reason:");
    terminal.type_text("quite wrong");
    terminal.wait_for("reason: quite wrong");
    terminal.press("Enter");
    terminal.wait_for("no approval is pending");
    assert!(terminal.home.ok(&["log", "@last"]).contains("quite wrong"));
}

#[test]
fn a_session_is_started_renamed_ended_and_deleted() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    open(&terminal);
    terminal.wait_for("no sessions: n starts one");
    terminal.press("n");
    terminal.wait_for("new session in: ");
    terminal.press("Enter");
    terminal.wait_for(READY);
    terminal.press("C-d");
    terminal.wait_for("[1 Sessions (1)]");
    terminal.press("r");
    terminal.wait_for("name: ");
    terminal.type_text("my session");
    terminal.press("Enter");
    terminal.wait_for("renamed to my session");
    assert_eq!(terminal.home.json(&["sessions", "--json"])["sessions"][0]["name"], "my session");
    terminal.press("e");
    terminal.wait_for("it accepts no more messages?");
    terminal.press("y");
    terminal.wait_for("session ended");
    terminal.wait_for(" ended ");
    terminal.press("d");
    terminal.wait_for("with its history?");
    terminal.press("y");
    terminal.wait_for("no sessions: n starts one");
    // A directory that does not exist is an error, and the dashboard stays.
    terminal.press("n");
    terminal.wait_for("new session in: ");
    terminal.type_text("/missing");
    terminal.press("Enter");
    terminal.wait_for("error: ");
    terminal.wait_for("[1 Sessions (0)]");
}

#[test]
fn the_text_of_sessions_is_searched_and_reports_are_shown() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.home.ok(&["run", "$ echo a remarkable word"]);
    open(&terminal);
    terminal.wait_for("completed");
    terminal.press("3");
    terminal.wait_for("every word must occur");
    terminal.type_text("remarkable");
    terminal.press("Enter");
    terminal.wait_for("[remarkable]");
    terminal.press("Enter");
    terminal.wait_for(READY);
    terminal.press("C-d");
    terminal.wait_for("[3 Search]");
    terminal.press("Tab");
    terminal.wait_for("config.toml (does not exist)");
    terminal.press("Tab");
    terminal.wait_for("daemon: pushd");
    terminal.type_text("?");
    terminal.wait_for("any key goes back");
    terminal.press("Escape");
    terminal.wait_for("daemon: pushd");
    terminal.press("Escape");
    terminal.wait_for("[1 Sessions (1)]");
}

#[test]
fn the_cost_of_a_session_is_listed() {
    // Without the preview, which may show a cost as well.
    let Some(terminal) = Terminal::open_inline(90, 30) else { return };
    let server = ModelServer::start();
    server.script([Reply::says("Done.")]);
    let config = ".config/push/config.toml";
    std::fs::create_dir_all(terminal.home.path().join(".config/push")).unwrap();
    terminal.home.write(config, "[[prices]]\nmodel = \"m\"\ninput = 100000.0\noutput = 100000.0\n");
    let url = server.base_url(ServerDialect::OpenAi);
    let run = "push run --provider openai --model m 'Work.'";
    terminal.type_line(&format!("OPENAI_API_KEY=k OPENAI_BASE_URL={url} {run}"));
    terminal.wait_for("done 0");
    let rows = terminal.home.json(&["stats", "--json"])["rows"].clone();
    let cost = rows[0]["costMicroUsd"].as_u64().unwrap();
    assert!(cost > 0, "{rows}");
    open(&terminal);
    terminal.wait_for(&format!("${}.{:04}", cost / 1_000_000, cost % 1_000_000 / 100));
}

#[test]
fn the_dashboard_survives_a_killed_and_a_restarted_daemon() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.home.ok(&["run", "--name", "before", "$ true"]);
    open(&terminal);
    terminal.wait_for("before");
    terminal.home.kill_daemon();
    terminal.wait_for("reconnected to pushd");
    terminal.home.ok(&["run", "--name", "between", "$ true"]);
    terminal.wait_for("between");
    // A daemon that was stopped on purpose is not started by the dashboard.
    terminal.home.ok(&["daemon", "stop"]);
    terminal.wait_for("! pushd was stopped");
    terminal.home.ok(&["run", "--name", "after", "$ true"]);
    terminal.wait_for("after");
    terminal.wait_for("[1 Sessions (3)]");
    terminal.press("q");
    terminal.wait_for("done 0");
}

#[test]
fn forty_columns_are_enough() {
    let Some(terminal) = Terminal::open_inline(40, 20) else { return };
    terminal.home.ok(&["run", "--name", "漢字漢字漢字漢字漢字漢字漢字漢字", "$ echo output 🙂"]);
    open(&terminal);
    let screen = terminal.wait_for("漢字");
    assert!(screen.lines().all(|line| line.chars().count() <= 40), "{screen}");
    terminal.press("Space");
    terminal.wait_for("  output 🙂");
    terminal.press("Space");
    terminal.wait_for("SESSION");
    terminal.home.start_detached("?$ echo 漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字");
    terminal.wait_for("!2 (1)");
    terminal.press("2");
    terminal.wait_for("y once");
    terminal.press("y");
    terminal.wait_for("no approval is pending");
    // Another size is drawn anew.
    terminal.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    terminal.wait_for("3 Search  4 Settings  5 Doctor");
}

#[test]
fn the_terminal_is_restored_after_sigterm_and_after_a_suspension() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.type_line("echo before");
    terminal.wait_for("echo before\nbefore\n");
    open(&terminal);
    terminal.press("C-z");
    let screen = terminal.wait_for("Stopped");
    assert!(screen.contains("before\n") && !screen.contains(DASHBOARD), "{screen}");
    terminal.type_line("fg; echo back $?");
    terminal.wait_for(DASHBOARD);
    let child = client_of(&terminal);
    send_signal(child, Signal::SIGTERM);
    terminal.wait_for("back 0");
    wait_until("the client is gone", || !is_alive(child));
    terminal.type_line("stty -a");
    terminal.wait_for("isig icanon iexten echo");
}

#[test]
fn sigterm_in_an_opened_session_ends_the_program() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.home.ok(&["run", "$ true"]);
    open(&terminal);
    terminal.wait_for("completed");
    terminal.press("Enter");
    terminal.wait_for(READY);
    send_signal(client_of(&terminal), Signal::SIGTERM);
    terminal.wait_for("done 0");
}

#[test]
fn without_a_terminal_the_sessions_are_printed() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.home.ok(&["run", "--name", "the only one", "$ true"]);
    let printed = terminal.home.ok(&[]);
    assert!(printed.contains("the only one") && printed.contains("push attach @last"), "{printed}");
    terminal.type_line("PUSH_PLAIN=1 push ");
    terminal.wait_for("push attach @last");
    terminal.wait_for("done 0");
}

/// Opens the dashboard.
fn open(terminal: &Terminal) {
    terminal.type_line("push ");
    terminal.wait_for(DASHBOARD);
}
