//! The client at a real terminal: prompts, keys and signals.
//!
//! The terminal is tmux; without it these tests are skipped.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(unix)]

mod dashboard;
mod display;
mod inline;
mod output;
mod restarts;
mod restored;
mod scrolled;
#[path = "../support/mod.rs"]
mod support;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::rc::Rc;

use crate::support::home::{Home, wait_until};
use crate::support::model::{ModelServer, Reply, ServerDialect, call, say, think};
use crate::support::skip;
use serde_json::json;

#[test]
fn a_question_is_answered_at_the_prompt() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.type_line("push run '$? echo went'");
    terminal.wait_for("approve? [y/n]");
    terminal.type_line("perhaps");
    terminal.wait_for("[y/n] perhaps\napprove? [y/n]");
    terminal.type_line("y");
    terminal.wait_for("success: 1 step done");
    let screen = terminal.wait_for("done 0");
    assert!(screen.contains("approved by cli\n  went\n"), "{screen}");
}

#[test]
fn stop_asks_after_the_grace_period_whether_to_wait_for_a_run() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.home.start_detached("$ until test -e go; do sleep 0.01; done; touch went");
    terminal.type_line("push daemon stop --grace 0.2");
    terminal.wait_for("stop active runs now? (n waits for them) [y/n]");
    terminal.type_line("n");
    terminal.home.write("go", "");
    terminal.wait_for("done 0");
    assert!(terminal.home.path().join("went").exists(), "it was waited for");
    let session = terminal.home.start_detached("$ echo $$ > step; sleep 1000");
    terminal.home.wait_for_text("step", "\n");
    // The first question must not be taken for the second one.
    terminal.wipe();
    terminal.type_line("push daemon stop --grace 0.2");
    terminal.wait_for("stop active runs now? (n waits for them) [y/n]");
    terminal.type_line("y");
    terminal.wait_for("done 0");
    assert_eq!(terminal.home.push(&["wait", &session]).code, Some(1));
}

#[test]
fn stopping_asks_after_the_grace_of_the_daemon_and_not_of_the_client() {
    let Some(terminal) = Terminal::open() else { return };
    let started = terminal.home.command(&["daemon", "start"]).env("PUSH_GRACE_SECONDS", "300").status().unwrap();
    assert!(started.success());
    terminal.home.start_detached("$ until test -e go; do sleep 0.01; done; touch went");
    terminal.type_line("PUSH_GRACE_SECONDS=0.1 push daemon stop");
    // Progress is shown until the question is asked.
    let mut screen = String::new();
    wait_until("progress is shown a second time", || {
        screen = terminal.screen(&[]);
        screen.matches("waiting for 1 run to finish").count() > 1
    });
    assert!(!screen.contains("stop active runs now?"), "{screen}");
    terminal.home.write("go", "");
    terminal.wait_for("done 0");
    assert!(terminal.home.path().join("went").exists(), "it was waited for");
}

#[test]
fn the_end_of_input_at_the_question_of_stop_ends_no_run() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.home.start_detached("$ until test -e go; do sleep 0.01; done; touch went");
    terminal.type_line("push daemon stop --grace 0.2");
    terminal.wait_for("stop active runs now? (n waits for them) [y/n]");
    terminal.press("C-d");
    terminal.wait_for("no answer: active runs are stopped 60 s after the prompt");
    terminal.home.write("go", "");
    terminal.wait_for("done 0");
    assert!(terminal.home.path().join("went").exists(), "it was waited for");
}

#[test]
fn n_at_the_prompt_denies() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.type_line("push run '$? echo went'");
    terminal.wait_for("approve? [y/n]");
    terminal.type_line("n");
    let screen = terminal.wait_for("done 3");
    assert!(screen.contains("denied by cli") && !screen.contains("  went"), "{screen}");
}

#[test]
fn what_was_typed_before_a_question_does_not_answer_it() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.type_line("push run '$ echo begun; until test -e go; do sleep 0.01; done\n$? echo went'");
    terminal.wait_for("  begun");
    terminal.type_line("y");
    terminal.home.write("go", "");
    terminal.wait_for("approve? [y/n]");
    assert_eq!(terminal.home.json(&["approvals", "--json"])["approvals"].as_array().unwrap().len(), 1);
    terminal.type_line("n");
    terminal.wait_for("done 3");
}

#[test]
fn ctrl_c_cancels_and_reports() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.type_line("push run '$ echo begun; sleep 1000'");
    terminal.wait_for("  begun");
    terminal.press("C-c");
    let screen = terminal.wait_for("done 2");
    assert!(screen.contains("cancelling the run; press Ctrl-C again to exit at once"), "{screen}");
    assert!(screen.contains("\ncancelled by cli\n"), "{screen}");
}

#[test]
fn ctrl_d_leaves_the_run_alone_and_says_how_to_come_back() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.type_line("push run '$ echo begun; until test -e go; do sleep 0.01; done; exit 3'");
    terminal.wait_for("  begun");
    terminal.press("C-d");
    let screen = terminal.wait_for("done 0");
    let handle = screen.split("push wait ").nth(1).unwrap().split('`').next().unwrap().to_owned();
    assert!(screen.contains(&format!("the run continues: `push attach {handle}` attaches")), "{screen}");
    terminal.home.write("go", "");
    assert_eq!(terminal.home.push(&["wait", &handle]).code, Some(1));
    terminal.wipe();
    terminal.type_line("push run '?$ echo went'");
    terminal.wait_for("approve? [y/n]");
    terminal.press("C-d");
    terminal.wait_for("done 0");
    terminal.home.ok(&["approve"]);
    assert_eq!(terminal.home.push(&["wait", "@last"]).code, Some(0));
}

#[test]
fn the_loss_of_the_terminal_leaves_the_run_alone() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.type_line("push run '$ echo begun; until test -e go; do sleep 0.01; done; exit 3'");
    terminal.wait_for("  begun");
    terminal.tmux(&["kill-server"]);
    wait_until("the client is gone", || {
        let clients = Command::new("pgrep").args(["-f", "push run "]).output().expect("pgrep").stdout;
        let is_ours = |pid: &str| {
            let place = std::fs::read_link(format!("/proc/{pid}/cwd"));
            place.is_ok_and(|place| place == terminal.home.path().canonicalize().unwrap())
        };
        !String::from_utf8(clients).unwrap().lines().any(is_ours)
    });
    let session = terminal.home.json(&["show", "@last", "--json"]);
    assert_eq!(session["state"], "running", "{session}");
    terminal.home.write("go", "");
    assert_eq!(terminal.home.push(&["wait", "@last"]).code, Some(1));
}

#[test]
fn a_suspended_client_comes_back_and_follows_the_run_to_its_end() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.type_line("push run '$ echo begun; until test -e go; do sleep 0.01; done; echo went\n$? echo asked'");
    terminal.wait_for("  begun");
    terminal.press("C-z");
    terminal.wait_for("done ");
    terminal.home.write("go", "");
    terminal.home.wait_for_approval();
    assert!(!terminal.screen(&[]).contains("  went"), "a suspended client shows nothing");
    terminal.wipe();
    terminal.type_line("fg; echo back $?");
    terminal.wait_for("approve? [y/n]");
    terminal.type_line("y");
    let screen = terminal.wait_for("back 0");
    assert!(screen.contains("  went") && screen.contains("success: 2 steps done"), "{screen}");
}

#[test]
fn quiet_at_a_terminal_shows_the_answer_and_still_asks() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.type_line("push run -q 'Words.\n\n?$ echo went'");
    let screen = terminal.wait_for("approve? [y/n]");
    assert!(screen.contains("? Approve command"), "{screen}");
    terminal.type_line("y");
    let screen = terminal.wait_for("done 0");
    assert!(screen.contains("\nwent\n") && !screen.contains("success"), "{screen}");
}

#[test]
fn ctrl_c_at_a_question_cancels_too() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.type_line("push run '$? echo went'");
    terminal.wait_for("approve? [y/n]");
    terminal.press("C-c");
    let screen = terminal.wait_for("done 2");
    assert!(!screen.contains("  went"), "{screen}");
}

#[test]
fn in_an_attached_session_a_line_is_a_message_or_an_answer() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.home.ok(&["run", "$ echo one"]);
    terminal.type_line("push attach");
    terminal.wait_for("success: 1 step done");
    terminal.type_line("$ echo two; echo three");
    terminal.wait_for("  two\n  three\n");
    // A line that is typed while a run is active is a message into that run.
    terminal.wait_for_times("success: 1 step done", 2);
    terminal.type_line("$? echo four");
    terminal.wait_for("approve? [y/n]");
    terminal.type_line("y");
    terminal.wait_for("  four\n");
    terminal.wait_for_times("success: 1 step done", 3);
    terminal.type_line("$ echo five; sleep 1000");
    terminal.wait_for("  five\n");
    terminal.press("C-c");
    terminal.wait_for("\ncancelled by cli\n");
    terminal.press("C-d");
    terminal.wait_for("done 0");
    let sessions = terminal.home.json(&["sessions", "--json"]);
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn a_killed_daemon_is_reported_and_the_step_needs_a_decision() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.type_line("push run '$ echo begun; test -e go || sleep 1000; echo ended'");
    terminal.wait_for("  begun");
    terminal.home.kill_daemon();
    terminal.wait_for("choose one: [run_again/skip/stop]");
    terminal.home.write("go", "");
    terminal.type_line("run");
    let screen = terminal.wait_for("done 0");
    assert!(screen.contains("reconnected to pushd") && screen.contains("  ended\n"), "{screen}");
}

#[test]
fn stopping_says_what_it_waits_for() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.home.start_detached("$ echo begun > begun; until test -e go; do sleep 0.01; done");
    terminal.home.wait_for_text("begun", "begun");
    terminal.type_line("push daemon stop");
    terminal.wait_for("waiting for 1 run to finish (0 s)");
    terminal.home.write("go", "");
    terminal.wait_for("pushd has stopped");
    terminal.wait_for("done 0");
}

#[test]
fn colours_are_used_and_can_be_refused() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.type_line("push run '$ true'");
    terminal.wait_for("done 0");
    assert!(terminal.screen(&["-e"]).contains(GREEN), "{:?}", terminal.screen(&["-e"]));
    terminal.wipe();
    terminal.type_line("NO_COLOR=1 push log");
    terminal.wait_for("> $ true");
    terminal.wait_for("done 0");
    assert!(!terminal.screen(&["-e"]).contains(GREEN), "{:?}", terminal.screen(&["-e"]));
}

#[test]
fn hostile_output_does_not_act_on_the_terminal() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.type_line(r#"push run '$ printf "a\033[2J\033]0;stolen\007b\033[8mc\n"'"#);
    let screen = terminal.wait_for("done 0");
    assert!(screen.contains("push run") && screen.contains("  abc\n"), "{screen}");
    assert!(!terminal.tmux(&["display-message", "-p", "#{pane_title}"]).contains("stolen"));
}

/// The escape sequence with which tmux captures green text.
const GREEN: &str = "\u{1b}[32m";

#[test]
fn a_deletion_is_shown_and_confirmed() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.home.ok(&["run", "--name", "first", "$ echo one"]);
    terminal.home.ok(&["run", "--name", "second", "$ echo two"]);
    terminal.type_line("push delete --older-than 0m");
    let screen = terminal.wait_for("permanently? [y/n]");
    assert!(screen.contains("  first\n") && screen.contains("  second\n"), "{screen}");
    assert!(screen.contains("delete 2 sessions, "), "{screen}");
    terminal.type_line("n");
    assert!(terminal.wait_for("done 2").contains("nothing was deleted"));
    assert_eq!(terminal.home.ok(&["sessions"]).lines().count(), 3, "a heading and two sessions");
    terminal.wipe();
    terminal.type_line("push delete @last");
    terminal.wait_for("delete 1 session, ");
    terminal.type_line("y");
    assert!(terminal.wait_for("done 0").contains("deleted 1 session, "));
    assert!(terminal.home.ok(&["sessions"]).contains("  first  "));
}

#[test]
fn a_purge_shows_sizes_and_asks() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.home.ok(&["run", "$ echo one"]);
    terminal.type_line("push purge");
    let screen = terminal.wait_for("remove all of it, permanently? [y/n]");
    assert!(screen.contains("iB  all sessions (") && screen.contains("  logs (1 file in "), "{screen}");
    terminal.type_line("no");
    assert!(terminal.wait_for("done 2").contains("nothing was removed"));
    assert_eq!(terminal.home.ok(&["sessions"]).lines().count(), 2, "a heading and a session");
    terminal.wipe();
    terminal.type_line("push purge");
    let screen = terminal.wait_for("permanently? [y/n]");
    let sum = screen.split("  total").next().unwrap().rsplit("  ").next().unwrap().to_owned();
    terminal.type_line("yes");
    let screen = terminal.wait_for("done 0");
    assert!(screen.contains(&format!("removed {sum}\n")), "{sum:?}: {screen}");
    assert_eq!(terminal.home.ok(&["sessions"]), "");
}

#[test]
fn a_first_set_up_finds_ollama_and_keeps_other_settings() {
    let Some(terminal) = Terminal::open() else { return };
    let server = ModelServer::start();
    server.has_models(&["one:7b", "two:7b"]);
    std::fs::create_dir_all(terminal.home.path().join(".config/push")).unwrap();
    terminal.home.write(".config/push/config.toml", "# mine\n[limits]\nmax_turns = 3\n");
    terminal.type_line(&format!("OLLAMA_HOST={} push config", server.url()));
    let screen = terminal.wait_for("provider [ollama]:");
    assert!(screen.contains("1  ollama       running here, with 2 models\n"), "{screen}");
    terminal.type_line("");
    terminal.wait_for("model [one:7b]:");
    terminal.type_line("2");
    let screen = terminal.wait_for("done 0");
    assert!(screen.contains("\nwrote ") && screen.contains("try it with: push run "), "{screen}");
    let text = terminal.home.read(".config/push/config.toml");
    assert_eq!(text, "provider = \"ollama\"\nmodel = \"two:7b\"\n# mine\n[limits]\nmax_turns = 3\n");
}

#[test]
fn an_aborted_setup_writes_nothing() {
    let Some(terminal) = Terminal::open() else { return };
    terminal.type_line("OLLAMA_HOST=127.0.0.1:1 push config");
    terminal.wait_for("provider:");
    terminal.type_line("anthropic");
    let screen = terminal.wait_for("key storage [file]:");
    assert!(screen.contains("you export ANTHROPIC_API_KEY"), "{screen}");
    terminal.press("C-d");
    assert!(terminal.wait_for("done 2").contains("nothing was written"));
    assert!(!terminal.home.path().join(".config").exists());
}

#[test]
fn a_key_is_typed_without_echo_and_a_run_uses_it() {
    let Some(terminal) = Terminal::open() else { return };
    let server = ModelServer::start();
    server.script([Reply::says("I have your key.")]);
    terminal.type_line("OLLAMA_HOST=127.0.0.1:1 push config");
    terminal.wait_for("provider:");
    terminal.type_line("openai");
    terminal.wait_for("not OpenAI:");
    terminal.type_line(&server.base_url(ServerDialect::OpenAi));
    terminal.wait_for("key storage [none]:");
    terminal.type_line("file");
    terminal.wait_for("(not shown):");
    terminal.type_line(KEY);
    let screen = terminal.wait_for("model [test-model]:");
    assert!(screen.contains("  1  test-model\n"), "{screen}");
    terminal.type_line("");
    let screen = terminal.wait_for("done 0");
    assert!(screen.contains("stored the key of openai in ") && screen.contains("\nwrote "), "{screen}");
    assert!(!terminal.screen(&["-S", "-"]).contains(KEY), "{screen}");
    let file = terminal.home.path().join(".config/push/keys.toml");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!terminal.home.read(".config/push/config.toml").contains(KEY));
    terminal.wipe();
    terminal.type_line("push run 'Who are you?'");
    terminal.wait_for("I have your key.");
    terminal.wait_for("done 0");
    for (method, path) in [("GET", "/v1/models"), ("POST", "/v1/chat/completions")] {
        let request = server.seen().into_iter().find(|seen| seen.method == method).unwrap();
        let bearer = format!("Bearer {KEY}");
        assert_eq!((request.path.as_str(), &request.headers["authorization"]), (path, &bearer));
    }
    terminal.wipe();
    terminal.type_line("push config show");
    let screen = terminal.wait_for(&format!("key of openai     {}\n", file.display()));
    assert!(!screen.contains(KEY), "{screen}");
}

#[test]
fn leaving_a_prompt_without_echo_restores_the_echo() {
    let Some(terminal) = Terminal::open() else { return };
    for (provider, key) in [("openai", "C-c"), ("anthropic", "C-d")] {
        terminal.wipe();
        terminal.type_line(&format!("push config key {provider}"));
        terminal.wait_for(&format!("key of {provider} (not shown):"));
        terminal.press(key);
        assert!(terminal.wait_for("done 2").contains("no key was stored"));
        terminal.type_line("echo visible");
        terminal.wait_for("echo visible\nvisible\n");
    }
    assert!(!terminal.home.path().join(".config").exists());
}

#[test]
fn a_running_ollama_is_mentioned_only_where_a_model_is_missing() {
    let Some(terminal) = Terminal::open() else { return };
    let server = ModelServer::start();
    server.has_models(&["one:7b", "two:7b"]);
    let run = |message: &str| format!("OLLAMA_HOST={} push run '{message}'", server.url());
    terminal.type_line(&run("$ true"));
    terminal.wait_for("done 0");
    assert_eq!(server.connections(), 0, "a playbook asks nobody");
    terminal.type_line(&run("Please fix it."));
    let screen = terminal.wait_for("done 1");
    assert!(screen.contains("push run --provider ollama --model one:7b"), "{screen}");
    assert!(screen.contains("`push config` chooses"), "{screen}");
}

#[test]
fn the_work_of_a_model_is_shown_and_approved_on_the_terminal() {
    let Some(terminal) = Terminal::open() else { return };
    let server = ModelServer::start();
    let using = |tool: &str, args: serde_json::Value| call(tool, tool, &args.to_string());
    server.script([
        Reply::turn([
            think("Let me look."),
            say("I look first."),
            using("sandbox_list_dir", json!({})),
            using("sandbox_read_file", json!({"path": "note.txt"})),
        ]),
        Reply::turn([using("sandbox_write_file", json!({"path": "note.txt", "content": "new\u{1b}[2J\n"}))]),
        Reply::turn([using("sandbox_exec", json!({"command": "git add note.txt"}))]),
        Reply::turn([using("sandbox_git_commit", json!({"message": "Say new\n\nIt was old."}))]),
        Reply::says("It says new."),
    ]);
    terminal.home.write("note.txt", "old\n");
    terminal.type_line("git init -q -b main && git config user.name t && git config user.email t@example.org; clear");
    terminal.type_line(&format!(
        "OLLAMA_HOST={} push run --sandbox none --provider ollama --model m 'Renew it.'",
        server.url()
    ));
    let screen = terminal.wait_for("approve? [y");
    assert!(terminal.screen(&["-e"]).contains("\u{1b}[2mLet me look."), "{screen}");
    assert!(screen.contains("read note.txt\n  old\n") && screen.contains("  note.txt\n"), "{screen}");
    assert!(screen.contains("1 insertion, 1 deletion\n") && screen.contains("  -old\n  +new<U+001B>[2J\n"), "{screen}");
    terminal.type_line("y");
    terminal.wait_for("$ git add note.txt\n? Approve command");
    terminal.type_line("y");
    let directory = terminal.home.path().display();
    terminal.wait_for(&format!(
        "can be remembered as allow: git(commit)\n  in {directory}\n  risk: medium\nthe approval expires in "
    ));
    let screen = terminal.wait_for("approve? [y once, r this run");
    assert!(screen.contains("  1 file changed, 1 insertion, 0 deletions\n"), "{screen}");
    assert!(screen.contains("  note.txt (+1 -0)\n  │ Say new\n") && screen.contains("  │ It was old.\n"), "{screen}");
    terminal.type_line("n");
    let screen = terminal.wait_for("done 3");
    assert!(screen.contains("not approved: Say new"), "{screen}");
}

#[test]
fn a_question_cannot_be_repainted_by_what_it_asks_about() {
    let Some(terminal) = Terminal::open() else { return };
    let server = ModelServer::start();
    let hostile = "git commit -m ok\r\u{1b}[2K\u{1b}[1A\u{9b}2J\u{1b}]0;stolen\u{7}\u{202e}\u{200b}\u{2800}x\napprove? [y/n] y\n  risk: low";
    let want =
        || Reply::turn([say("Fine.\u{1b}[8m"), call("c", "sandbox_exec", &json!({"command": hostile}).to_string())]);
    server.script([want(), want()]);
    for (flag, answer) in [("", "n"), ("--json", "n")] {
        terminal.wipe();
        terminal.type_line(&format!(
            "OLLAMA_HOST={} push run {flag} --sandbox none --provider ollama --model m 'Go on.'",
            server.url()
        ));
        let screen = terminal.wait_for("approve? [y,");
        let shown = "  │ git commit -m ok<U+000D><U+001B>[2K<U+001B>[1A<U+009B>2J<U+001B>]0;stolen<U+0007><U+202E><U+200B><U+2800>x\n  \
                     │ approve? [y/n] y\n  │   risk: low\n";
        assert!(screen.contains(shown), "{flag}: {screen}");
        let rest = format!("  risk: high\n  in {}\nthe approval expires in ", terminal.home.path().display());
        assert!(screen.contains(&rest), "{flag}: {screen}");
        terminal.type_line("v");
        terminal.wait_for("approve? [y, n, n REASON, v view all] v\n  │ git commit");
        let waiting = terminal.home.ok(&["approvals"]);
        assert!(waiting.contains(shown), "{waiting}");
        assert!(!terminal.tmux(&["display-message", "-p", "#{pane_title}"]).contains("stolen"));
        terminal.type_line(answer);
        terminal.wait_for("done 3");
    }
}

#[test]
fn a_budget_is_raised_and_stopped_from_another_terminal() {
    let Some(terminal) = Terminal::open() else { return };
    let server = ModelServer::start();
    server.usually(Reply::turn([call("l", "sandbox_list_dir", "{}")]));
    terminal.type_line(&format!(
        "OLLAMA_HOST={} push run --yes --max-turns 1 --provider ollama --model m 'Go on.'",
        server.url()
    ));
    terminal.wait_for("the run has taken 1 of 1 turns");
    terminal.wait_for("choose one: [raise/stop]");
    terminal.home.ok(&["approve"]);
    terminal.wait_for("the run has taken 2 of 2 turns");
    terminal.home.ok(&["deny"]);
    assert!(terminal.wait_for("done 1").contains("failed (budget)"));
}

/// A key that must appear nowhere.
const KEY: &str = "sk-unseen-0123456789abcdef";

/// A shell in its own terminal and home; it prints `done CODE` after every command.
struct Terminal {
    home: Rc<Home>,
    socket: String,
}

impl Terminal {
    /// Opens a terminal in which push prints lines.
    fn open() -> Option<Self> {
        Self::open_with(120, 50, "PUSH_PLAIN=1")
    }

    /// Opens a terminal of this size in which push uses the inline view.
    fn open_inline(width: u16, height: u16) -> Option<Self> {
        Self::open_with(width, height, "PUSH_PLAIN=")
    }

    fn open_with(width: u16, height: u16, mode: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            skip::skip("terminal tests: tmux is missing");
            return None;
        }
        Some(Self::open_at("tmux", Rc::new(Home::new()), (width, height), mode))
    }

    /// Opens another terminal at the same home, in which push uses the inline view.
    fn open_other(&self, name: &str, size: (u16, u16)) -> Self {
        Self::open_at(name, Rc::clone(&self.home), size, "PUSH_PLAIN=")
    }

    fn open_at(name: &str, home: Rc<Home>, (width, height): (u16, u16), mode: &str) -> Self {
        let socket = home.path().join(name).display().to_string();
        let terminal = Self { home, socket };
        let programs = std::path::Path::new(env!("CARGO_BIN_EXE_push")).parent().unwrap().display().to_string();
        let path = format!("PATH={programs}:{}", std::env::var("PATH").unwrap_or_default());
        let home = format!("HOME={}", terminal.home.path().display());
        let shell =
            ["env", "-i", &path, &home, mode, "LANG=C.UTF-8", "TERM=screen", "PS1=", "ENV=", "/bin/sh", "-i"].join(" ");
        let place = terminal.home.path().display().to_string();
        let (width, height) = (width.to_string(), height.to_string());
        let options = terminal.home.path().join("tmux.conf").display().to_string();
        terminal.home.write("tmux.conf", "set -g history-limit 50000\n");
        let open = ["new-session", "-d", "-x", &width, "-y", &height, "-c", &place, &shell];
        terminal.tmux(&[&["-u", "-f", &options], &open[..]].concat());
        terminal
    }

    /// Types a command, or an answer, and presses Enter.
    fn type_line(&self, line: &str) {
        let line = if line.starts_with("push ") || line.contains(" push ") {
            format!("{line}; echo done $?")
        } else {
            line.to_owned()
        };
        self.tmux(&["send-keys", "-l", &line]);
        self.press("Enter");
    }

    /// Types a text without Enter.
    fn type_text(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Pastes a text, as a terminal does with bracketed paste.
    fn paste(&self, text: &str) {
        let file = self.home.path().join("pasted");
        std::fs::write(&file, text).unwrap();
        self.tmux(&["load-buffer", &file.display().to_string()]);
        self.tmux(&["paste-buffer", "-p", "-r"]);
    }

    /// Returns everything that was written, from the start of the scrollback.
    fn scrollback(&self) -> String {
        self.screen(&["-S", "-"])
    }

    /// Clears the screen, so that old text does not match.
    fn wipe(&self) {
        self.tmux(&["send-keys", "-R"]);
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Waits for a text on the screen and returns the whole screen.
    fn wait_for(&self, text: &str) -> String {
        let mut screen = String::new();
        wait_until(&format!("{text:?} on the screen"), || {
            screen = self.screen(&[]);
            screen.contains(text)
        });
        screen
    }

    /// Waits until a text is on the screen so many times.
    fn wait_for_times(&self, text: &str, times: usize) {
        wait_until(&format!("{text:?} on the screen {times} times"), || {
            self.screen(&[]).matches(text).count() == times
        });
    }

    fn screen(&self, flags: &[&str]) -> String {
        self.tmux(&[&["capture-pane", "-p", "-J"], flags].concat())
    }

    fn tmux(&self, words: &[&str]) -> String {
        let output = Command::new("tmux").arg("-S").arg(&self.socket).args(words).output().expect("tmux");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.screen(&[]));
        }
        self.tmux(&["kill-server"]);
    }
}
