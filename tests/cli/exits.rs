//! Exit codes: of runs, of bad usage, and of a daemon that cannot start.

use std::fs;
use std::os::unix::fs::symlink;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::home::{Home, is_alive, until};
use super::model::{ModelServer, Reply, call};
use super::skip::skip;

#[test]
fn a_run_ends_with_what_became_of_it() {
    let home = Home::new();
    for (words, code, line) in [
        (&["$ true"][..], 0, "success: 1 step done\n"),
        (&["$ exit 9"], 1, "failed (step_failed): step 1 of 1 failed (exit code 9): exit 9\n"),
        (&["--headless", "$? true"], 3, "denied"),
        (&["--approve", "deny", "$? true"], 3, "denied"),
        (&["--accept", "exit 8", "--accept", "true", "$ true"], 4, "failed (acceptance): "),
        (&["--timeout", "0.2", "$ sleep 1000"], 1, "failed (timeout)"),
    ] {
        let said = home.push(&[&["run"], words].concat());
        assert_eq!(said.code, Some(code), "{words:?}: {said:?}");
        assert!(said.err.contains(line), "{words:?}: {said:?}");
        assert_eq!(said.out, "", "{words:?}");
    }
}

#[test]
fn acceptance_is_part_of_the_result() {
    let home = Home::new();
    let said = home.push(&["run", "--json", "--accept", "true", "--accept", "exit 8", "$ true"]);
    let result = said.json();
    assert_eq!((said.code, result["exitCode"].as_u64()), (Some(4), Some(4)));
    assert_eq!(result["acceptance"]["passed"], 1);
    assert_eq!(result["acceptance"]["results"][1]["exitCode"], 8);
}

#[test]
fn a_message_without_a_step_says_what_is_missing() {
    let home = Home::new();
    let said = home.push(&["run", "Please fix the tests."]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("provider_not_configured") && said.err.contains("`$ `"), "{said:?}");
    assert_eq!((said.err.matches("no model").count(), said.out.as_str()), (1, ""), "said twice: {said:?}");
}

#[test]
fn headless_a_model_is_denied_what_it_wants_and_yes_raises_no_budget() {
    let home = Home::new();
    let server = ModelServer::start();
    server.usually(Reply::turn([call("c", "sandbox_exec", "{\"command\":\"echo x >> ran\"}")]));
    let run = |flags: &[&str]| {
        let words =
            ["run", "--headless", "--json", "--provider", "ollama", "--model", "m", "--sandbox", "none"];
        let words: Vec<&str> = words.into_iter().chain(flags.iter().copied()).chain(["Go."]).collect();
        home.push_with(&words, &[("OLLAMA_HOST", &server.url())], "")
    };
    let said = run(&[]);
    let result = said.json();
    assert_eq!((said.code, result["outcome"].as_str()), (Some(3), Some("denied")), "{said:?}");
    assert_eq!(
        (&result["denials"][0]["kind"], &result["denials"][0]["summary"]),
        (&"exec".into(), &"echo x >> ran".into())
    );
    let reason = result["denials"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("the preset standard asks about"), "{reason}");
    assert!(
        reason.ends_with("; `push run --allow 'write(/ran)' --allow 'exec(echo x)'` allows it"),
        "{reason}"
    );
    assert_eq!(home.read("ran"), "");
    let said = run(&["--yes", "--max-turns", "2"]);
    let result = said.json();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!((&result["reason"], &result["denials"][0]["kind"]), (&"budget".into(), &"budget".into()));
    assert!(result["denials"][0]["reason"].as_str().unwrap().contains("--max-turns"), "{result}");
    assert_eq!(home.read("ran"), "x\nx\n");
    assert_eq!(result["usage"]["models"], serde_json::json!(["m"]));
    // One rule allows it, and another denies it.
    let said = run(&["--allow", "exec(echo*)", "--allow", "write(ran)", "--max-turns", "1"]);
    assert_eq!((said.code, home.read("ran").as_str()), (Some(1), "x\nx\nx\n"), "{said:?}");
    let said = run(&["--yes", "--deny", "deny: write(ran)", "--max-turns", "1"]);
    assert_eq!((said.code, home.read("ran").as_str()), (Some(1), "x\nx\nx\n"), "{said:?}");
    assert_eq!(run(&["--allow", "exec("]).code, Some(64));
}

#[test]
fn a_mistake_in_a_playbook_runs_nothing_and_names_the_line() {
    let home = Home::new();
    let said = home.push(&["run", "$ echo x > ran\n\n```sh sometimes\ntrue\n```\n"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("line 3"), "{said:?}");
    assert_eq!(home.read("ran"), "");
}

#[test]
fn one_signal_cancels_and_reports() {
    for (signal, words) in [
        (Signal::SIGINT, &["run"][..]),
        (Signal::SIGINT, &["run", "--headless"]),
        (Signal::SIGTERM, &["run", "--headless"]),
    ] {
        let home = Home::new();
        let mut run = home.start(&[words, &["$ echo $$; sleep 1000"]].concat());
        let step: i32 = run.until_line("").trim().parse().unwrap();
        run.signal(signal);
        let said = run.said();
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.ends_with("cancelled\n") || said.err.contains("\ncancelled"), "{said:?}");
        until("the step to be gone", || !is_alive(step));
    }
}

#[test]
fn a_client_that_is_terminated_or_loses_its_terminal_leaves_the_run_to_itself() {
    for (signal, words) in [
        (Signal::SIGTERM, &["run"][..]),
        (Signal::SIGHUP, &["run"]),
        (Signal::SIGTERM, &["playbook", "steps.md"]),
        (Signal::SIGHUP, &["run", "--headless"]),
    ] {
        if signal == Signal::SIGHUP && has_in("self", "SigIgn:", signal) {
            skip("SIGHUP is ignored here, as under nohup, and a client keeps that");
            continue;
        }
        let home = Home::new();
        let steps = "$ echo begun; until test -e go; do sleep 0.01; done; exit 3";
        home.write("steps.md", steps);
        let words = if words[0] == "run" { [words, &[steps]].concat() } else { words.to_vec() };
        let mut run = home.start(&words);
        run.until_line("begun");
        run.signal(signal);
        let said = run.said();
        assert_eq!(said.code, Some(0), "{signal}: {said:?}");
        assert!(said.err.contains("the run continues: `push attach "), "{signal}: {said:?}");
        home.write("go", "");
        assert_eq!(home.push(&["wait", "@last"]).code, Some(1), "{signal}");
    }
}

#[test]
fn a_second_signal_leaves_at_once() {
    let home = Home::new();
    let mut run = home.start(&["run", "$ trap '' TERM INT; echo begun; sleep 1000"]);
    run.until_line("begun");
    run.signal(Signal::SIGINT);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.said().code, Some(2));
    home.push(&["wait", "@last"]);
    assert_eq!(home.json(&["wait", "@last", "--json"])["outcome"], "cancelled");
}

#[test]
fn one_signal_ends_a_client_whose_daemon_does_not_answer() {
    let home = Home::new();
    let mut run = home.start(&["run", "$ echo begun; sleep 1000"]);
    run.until_line("begun");
    let daemon = Pid::from_raw(home.daemon_pid());
    kill(daemon, Signal::SIGSTOP).unwrap();
    run.signal(Signal::SIGINT);
    let said = run.said();
    assert_eq!(said.code, Some(69), "{said:?}");
    assert!(said.err.contains("`push cancel sess_"), "{said:?}");
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let run = home.start(&["run", "$ true"]);
        until("a client that listens", || catches(run.pid(), signal));
        run.signal(signal);
        let said = run.said();
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{said:?}");
    }
    // The daemon handles now what it received meanwhile.
    kill(daemon, Signal::SIGCONT).unwrap();
    home.push(&["cancel", "@last"]);
    assert_eq!(home.push(&["wait", "@last"]).code, Some(2));
}

/// Whether a process has a handler for a signal.
fn catches(pid: i32, signal: Signal) -> bool {
    has_in(&pid.to_string(), "SigCgt:", signal)
}

/// Whether a set of signals of a process contains a signal.
fn has_in(process: &str, set: &str, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let signals = status.lines().find_map(|line| line.strip_prefix(set)).unwrap_or_default().trim();
    let signals = u64::from_str_radix(signals, 16).unwrap_or_default();
    signals & (1 << (signal as u32 - 1)) != 0
}

#[test]
fn a_client_that_is_killed_leaves_its_run_alone() {
    let home = Home::new();
    let mut run = home.start(&["run", "$ echo begun; until test -e go; do sleep 0.01; done"]);
    run.until_line("begun");
    run.signal(Signal::SIGKILL);
    run.said();
    home.write("go", "");
    assert_eq!(home.push(&["wait", "@last"]).code, Some(0));
}

#[test]
fn bad_usage_is_64_and_begins_nothing() {
    let home = Home::new();
    for words in [
        &["run", "--nonsense"][..],
        &["run", "--json", "--jsonl", "x"],
        &["run", "--approve", "perhaps", "x"],
        &["run", "--timeout", "soon", "x"],
        &["run", "--cwd", "/no/such/place", "x"],
        &["run", "--report", "junit=/no/such/place/r.xml", "x"],
        &["run", "--max-cost", "much", "x"],
        &["run", "@/no/such/file"],
        &["run", "  "],
        &["run"],
        &["send", "@last"],
        &["dance"],
        &["daemon"],
        &["daemon", "stop", "--force", "--grace", "1"],
    ] {
        let said = home.push(words);
        assert_eq!(said.code, Some(64), "{words:?}: {said:?}");
        assert!(said.out.is_empty() && !said.err.is_empty(), "{words:?}: {said:?}");
    }
    assert!(!home.push_path("").exists(), "a daemon was started for nothing");
}

#[test]
fn a_session_that_is_not_there_is_bad_usage() {
    let home = Home::new();
    home.ok(&["run", "$ true"]);
    let unknown = "sess_01HXYZ01HXYZ01HXYZ01HXYZ01";
    for words in [
        &["wait", "nosuch"][..],
        &["wait", unknown],
        &["run", "--session", "nosuch", "$ true"],
        &["run", "--session", unknown, "$ true"],
        &["show", "nosuch"],
    ] {
        let said = home.push(words);
        assert_eq!((said.code, said.out.as_str()), (Some(64), ""), "{words:?}: {said:?}");
        assert!(said.err.contains("push sessions"), "{words:?}: {said:?}");
    }
}

#[test]
fn durations_take_units_everywhere() {
    let home = Home::new();
    home.detached("$ until test -e go; do sleep 0.01; done");
    for time in ["50ms", "0.05", "0.001m"] {
        assert_eq!(home.push(&["wait", "@last", "--timeout", time]).code, Some(124), "{time}");
    }
    home.write("go", "");
    assert_eq!(home.push(&["wait", "@last", "--timeout", "1h"]).code, Some(0));
    let said = home.push(&["run", "--timeout", "200ms", "$ sleep 1000"]);
    assert!(said.code == Some(1) && said.err.contains("failed (timeout)"), "{said:?}");
    assert_eq!(
        home.json(&["delete", "--older-than", "7d", "--yes", "--json"])["deleted"].as_array().unwrap().len(),
        0
    );
    home.ok(&["daemon", "stop", "--grace", "1m"]);
}

#[test]
fn help_and_version_are_results() {
    let home = Home::new();
    for words in [&["--help"][..], &["help"], &["run", "--help"], &["daemon", "stop", "-h"], &["--version"]] {
        let said = home.push(words);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{words:?}");
        assert!(!said.out.is_empty());
    }
    for verb in [
        "run",
        "playbook",
        "attach",
        "sessions",
        "show",
        "log",
        "send",
        "steer",
        "queue",
        "approvals",
        "approve",
        "deny",
        "cancel",
        "wait",
        "rename",
        "end",
        "config",
        "daemon",
    ] {
        assert!(home.ok(&[verb, "--help"]).contains("Examples:\n  push "), "{verb} has no example");
    }
}

#[test]
fn the_readme_names_every_verb() {
    let readme = include_str!("../../README.md");
    let help = Home::new().ok(&["--help"]);
    let verbs =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let verbs: Vec<&str> = verbs.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(verbs.len() > 10, "{help}");
    for verb in verbs.into_iter().filter(|verb| *verb != "help") {
        assert!(readme.contains(&format!("`push {verb}")), "{verb} is not in the README");
    }
}

#[test]
fn a_daemon_that_cannot_be_there_is_69_and_says_why() {
    let home = Home::new();
    fs::create_dir_all(home.path().join("elsewhere")).unwrap();
    fs::create_dir_all(home.push_path("")).unwrap();
    symlink(home.path().join("elsewhere"), home.push_path("run")).unwrap();
    unavailable(&home, "link");
    fs::remove_file(home.push_path("run")).unwrap();

    fs::create_dir_all(home.push_path("run")).unwrap();
    home.write(".push/run/pushd.sock", "precious");
    unavailable(&home, "not a socket");
    assert_eq!(home.read(".push/run/pushd.sock"), "precious");
}

#[test]
fn a_state_that_cannot_be_used_is_69_and_says_why() {
    let home = Home::new();
    fs::create_dir_all(home.push_path("state/pushd.db")).unwrap();
    unavailable(&home, "pushd.db");
    assert!(home.push_path("state/pushd.db").is_dir(), "what is no file is left alone");
}

#[test]
fn an_address_that_cannot_be_used_is_69_and_says_why() {
    for (socket, why) in [
        ("relative", "absolute"),
        ("/tmp/pushd-test.sock", "/tmp"),
        (&format!("/{}", "x".repeat(120)), "bytes"),
    ] {
        unavailable(&Home::with(&[("PUSHD_SOCKET", socket)]), why);
    }
}

/// Checks that commands exit with 69, print nothing to standard output, and give the reason.
fn unavailable(home: &Home, why: &str) {
    for words in [&["run", "--json", "$ true"][..], &["sessions"], &["daemon", "start"]] {
        let said = home.push(words);
        assert_eq!((said.code, said.out.as_str()), (Some(69), ""), "{words:?}: {said:?}");
        assert!(said.err.starts_with("push: ") && said.err.contains(why), "{words:?}: {said:?}");
    }
}
