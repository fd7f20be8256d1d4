//! Exit codes: of runs, of bad usage, and of a daemon that cannot start.

use std::fs;
use std::os::unix::fs::symlink;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::home::{Home, is_alive, wait_until};
use crate::support::model::{ModelServer, Reply, call};
use crate::support::skip::skip;

#[test]
fn the_exit_code_is_the_outcome_of_the_run() {
    let home = Home::new();
    for (words, code, line) in [
        (&["$ true"][..], 0, "success: 1 step done\n"),
        (&["$ exit 9"], 1, "failed (step_failed): step 1 of 1 failed (exit code 9): exit 9\n"),
        (&["--headless", "$? true"], 3, "denied"),
        (&["--approve", "deny", "$? true"], 3, "denied"),
        (&["--accept", "exit 8", "--accept", "true", "$ true"], 4, "failed (acceptance): "),
        (&["--timeout", "0.2", "$ sleep 1000"], 1, "failed (timeout)"),
    ] {
        let output = home.push(&[&["run"], words].concat());
        assert_eq!(output.code, Some(code), "{words:?}: {output:?}");
        assert!(output.err.contains(line), "{words:?}: {output:?}");
        assert_eq!(output.out, "", "{words:?}");
    }
}

#[test]
fn acceptance_is_part_of_the_result() {
    let home = Home::new();
    let output = home.push(&["run", "--json", "--accept", "true", "--accept", "exit 8", "$ true"]);
    let result = output.json();
    assert_eq!((output.code, result["exitCode"].as_u64()), (Some(4), Some(4)));
    assert_eq!(result["acceptance"]["passed"], 1);
    assert_eq!(result["acceptance"]["results"][1]["exitCode"], 8);
}

#[test]
fn a_message_without_a_step_says_what_is_missing() {
    let home = Home::new();
    let output = home.push(&["run", "Please fix the tests."]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("provider_not_configured") && output.err.contains("`$ `"), "{output:?}");
    assert_eq!((output.err.matches("no model").count(), output.out.as_str()), (1, ""), "said twice: {output:?}");
}

#[test]
fn a_headless_call_of_a_model_is_denied_and_yes_raises_no_budget() {
    let home = Home::new();
    let server = ModelServer::start();
    server.usually(Reply::turn([call("c", "sandbox_exec", "{\"command\":\"echo x >> ran\"}")]));
    let run = |flags: &[&str]| {
        let words = ["run", "--headless", "--json", "--provider", "ollama", "--model", "m", "--sandbox", "none"];
        let words: Vec<&str> = words.into_iter().chain(flags.iter().copied()).chain(["Go."]).collect();
        home.push_with(&words, &[("OLLAMA_HOST", &server.url())], "")
    };
    let output = run(&[]);
    let result = output.json();
    assert_eq!((output.code, result["outcome"].as_str()), (Some(3), Some("denied")), "{output:?}");
    assert_eq!(
        (&result["denials"][0]["kind"], &result["denials"][0]["summary"]),
        (&"exec".into(), &"echo x >> ran".into())
    );
    let reason = result["denials"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("the preset standard asks about"), "{reason}");
    assert!(reason.ends_with("; `push run --allow 'write(/ran)' --allow 'exec(echo x)'` allows it"), "{reason}");
    assert_eq!(home.read("ran"), "");
    let output = run(&["--yes", "--max-turns", "2"]);
    let result = output.json();
    assert_eq!(output.code, Some(1), "{output:?}");
    assert_eq!((&result["reason"], &result["denials"][0]["kind"]), (&"budget".into(), &"budget".into()));
    assert!(result["denials"][0]["reason"].as_str().unwrap().contains("--max-turns"), "{result}");
    assert_eq!(home.read("ran"), "x\nx\n");
    assert_eq!(result["usage"]["models"], serde_json::json!(["m"]));
    // One rule allows it, and another denies it.
    let output = run(&["--allow", "exec(echo*)", "--allow", "write(ran)", "--max-turns", "1"]);
    assert_eq!((output.code, home.read("ran").as_str()), (Some(1), "x\nx\nx\n"), "{output:?}");
    let output = run(&["--yes", "--deny", "deny: write(ran)", "--max-turns", "1"]);
    assert_eq!((output.code, home.read("ran").as_str()), (Some(1), "x\nx\nx\n"), "{output:?}");
    assert_eq!(run(&["--allow", "exec("]).code, Some(64));
}

#[test]
fn a_mistake_in_a_playbook_runs_nothing_and_names_the_line() {
    let home = Home::new();
    let output = home.push(&["run", "$ echo x > ran\n\n```sh sometimes\ntrue\n```\n"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("line 3"), "{output:?}");
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
        let step: i32 = run.wait_for_line("").trim().parse().unwrap();
        run.signal(signal);
        let output = run.wait_for_output();
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.err.ends_with("cancelled\n") || output.err.contains("\ncancelled"), "{output:?}");
        wait_until("the step to be gone", || !is_alive(step));
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
        run.wait_for_line("begun");
        run.signal(signal);
        let output = run.wait_for_output();
        assert_eq!(output.code, Some(0), "{signal}: {output:?}");
        assert!(output.err.contains("the run continues: `push attach "), "{signal}: {output:?}");
        home.write("go", "");
        assert_eq!(home.push(&["wait", "@last"]).code, Some(1), "{signal}");
    }
}

#[test]
fn a_second_signal_leaves_at_once() {
    let home = Home::new();
    let mut run = home.start(&["run", "$ trap '' TERM INT; echo begun; sleep 1000"]);
    run.wait_for_line("begun");
    run.signal(Signal::SIGINT);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.wait_for_output().code, Some(2));
    home.push(&["wait", "@last"]);
    assert_eq!(home.json(&["wait", "@last", "--json"])["outcome"], "cancelled");
}

#[test]
fn one_signal_ends_a_client_whose_daemon_does_not_answer() {
    let home = Home::new();
    let mut run = home.start(&["run", "$ echo begun; sleep 1000"]);
    run.wait_for_line("begun");
    let daemon = Pid::from_raw(home.daemon_pid());
    kill(daemon, Signal::SIGSTOP).unwrap();
    run.signal(Signal::SIGINT);
    let output = run.wait_for_output();
    assert_eq!(output.code, Some(69), "{output:?}");
    assert!(output.err.contains("`push cancel sess_"), "{output:?}");
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let run = home.start(&["run", "$ true"]);
        wait_until("a client that listens", || catches(run.pid(), signal));
        run.signal(signal);
        let output = run.wait_for_output();
        assert_eq!((output.code, output.out.as_str()), (Some(2), ""), "{output:?}");
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
    run.wait_for_line("begun");
    run.signal(Signal::SIGKILL);
    run.wait_for_output();
    home.write("go", "");
    assert_eq!(home.push(&["wait", "@last"]).code, Some(0));
}

#[test]
fn bad_usage_exits_with_64_and_starts_nothing() {
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
        let output = home.push(words);
        assert_eq!(output.code, Some(64), "{words:?}: {output:?}");
        assert!(output.out.is_empty() && !output.err.is_empty(), "{words:?}: {output:?}");
    }
    assert!(!home.push_path("").exists(), "a daemon was started for nothing");
}

#[test]
fn an_unknown_session_is_bad_usage() {
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
        let output = home.push(words);
        assert_eq!((output.code, output.out.as_str()), (Some(64), ""), "{words:?}: {output:?}");
        assert!(output.err.contains("push sessions"), "{words:?}: {output:?}");
    }
}

#[test]
fn durations_take_units_everywhere() {
    let home = Home::new();
    home.start_detached("$ until test -e go; do sleep 0.01; done");
    for time in ["50ms", "0.05", "0.001m"] {
        assert_eq!(home.push(&["wait", "@last", "--timeout", time]).code, Some(124), "{time}");
    }
    home.write("go", "");
    assert_eq!(home.push(&["wait", "@last", "--timeout", "1h"]).code, Some(0));
    let output = home.push(&["run", "--timeout", "200ms", "$ sleep 1000"]);
    assert!(output.code == Some(1) && output.err.contains("failed (timeout)"), "{output:?}");
    assert_eq!(home.json(&["delete", "--older-than", "7d", "--yes", "--json"])["deleted"].as_array().unwrap().len(), 0);
    home.ok(&["daemon", "stop", "--grace", "1m"]);
}

#[test]
fn help_and_version_are_results() {
    let home = Home::new();
    for words in [&["--help"][..], &["help"], &["run", "--help"], &["daemon", "stop", "-h"], &["--version"]] {
        let output = home.push(words);
        assert_eq!((output.code, output.err.as_str()), (Some(0), ""), "{words:?}");
        assert!(!output.out.is_empty());
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
fn a_daemon_that_cannot_start_exits_with_69_and_a_reason() {
    let home = Home::new();
    fs::create_dir_all(home.path().join("elsewhere")).unwrap();
    fs::create_dir_all(home.push_path("")).unwrap();
    symlink(home.path().join("elsewhere"), home.push_path("run")).unwrap();
    assert_unavailable(&home, "link");
    fs::remove_file(home.push_path("run")).unwrap();

    fs::create_dir_all(home.push_path("run")).unwrap();
    home.write(".push/run/pushd.sock", "precious");
    assert_unavailable(&home, "not a socket");
    assert_eq!(home.read(".push/run/pushd.sock"), "precious");
}

#[test]
fn an_unusable_state_directory_exits_with_69_and_a_reason() {
    let home = Home::new();
    fs::create_dir_all(home.push_path("state/pushd.db")).unwrap();
    assert_unavailable(&home, "pushd.db");
    assert!(home.push_path("state/pushd.db").is_dir(), "what is no file is left alone");
}

#[test]
fn an_unusable_address_exits_with_69_and_a_reason() {
    for (socket, why) in
        [("relative", "absolute"), ("/tmp/pushd-test.sock", "/tmp"), (&format!("/{}", "x".repeat(120)), "bytes")]
    {
        assert_unavailable(&Home::with(&[("PUSHD_SOCKET", socket)]), why);
    }
}

/// Checks that commands exit with 69, print nothing to standard output, and give the reason.
fn assert_unavailable(home: &Home, why: &str) {
    for words in [&["run", "--json", "$ true"][..], &["sessions"], &["daemon", "start"]] {
        let output = home.push(words);
        assert_eq!((output.code, output.out.as_str()), (Some(69), ""), "{words:?}: {output:?}");
        assert!(output.err.starts_with("push: ") && output.err.contains(why), "{words:?}: {output:?}");
    }
}
