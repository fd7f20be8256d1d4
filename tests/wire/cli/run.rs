//! `push run`: its output, the sources of its message, and how runs continue.

use std::fs;

use serde_json::Value;

use crate::support::home::{Home, Running, wait_until};
use crate::support::model::{ModelServer, Reply, call, say};

#[test]
fn a_first_run_starts_the_daemon_and_streams_to_the_end() {
    let home = Home::new();
    let output = home.push(&["run", "Say hello.\n\n$ echo hello; echo oops >&2\n"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.out, "hello\n");
    let lines: Vec<&str> = output.err.lines().collect();
    assert_eq!(lines[..3], ["Say hello.", "$ echo hello; echo oops >&2", "oops"]);
    assert!(lines[3].starts_with("  exit 0, "), "{lines:?}");
    assert_eq!(lines[4..], ["success: 1 step done"]);
    assert!(home.daemon().is_some());
}

#[test]
fn quiet_prints_only_the_answer_and_errors() {
    let home = Home::new();
    let output = home.push(&["run", "-q", "Words.\n\n$ printf hello; echo oops >&2"]);
    assert_eq!((output.code, output.out.as_str(), output.err.as_str()), (Some(0), "hello", ""), "{output:?}");
    let output = home.push(&["run", "-q", "--accept", "echo checked", "$ echo why >&2; exit 3"]);
    assert_eq!((output.code, output.out.as_str()), (Some(1), ""), "{output:?}");
    assert_eq!(output.err, "why\nfailed (step_failed): step 1 of 1 failed (exit code 3): echo why >&2; exit 3\n");
}

#[test]
fn the_answer_of_a_model_is_its_final_message_once() {
    let home = Home::new();
    let server = ModelServer::start();
    let long = format!("The answer, {}.\n\nIts second part.", "which goes on and on, ".repeat(20));
    server.script([
        Reply::turn([say("I look first."), call("c", "sandbox_list_dir", "{}")]),
        Reply::says(&long),
        Reply::says(&long),
    ]);
    let words = ["run", "--headless", "--provider", "ollama", "--model", "m", "What is it?"];
    let output = home.push_with(&words, &[("OLLAMA_HOST", &server.url())], "");
    assert_eq!((output.code, output.out), (Some(0), format!("{long}\n")), "{}", output.err);
    assert!(output.err.starts_with("I look first.\n") && output.err.ends_with("\nsuccess\n"), "{}", output.err);
    let quiet: Vec<&str> = words.into_iter().chain(["-q"]).collect();
    let output = home.push_with(&quiet, &[("OLLAMA_HOST", &server.url())], "");
    assert_eq!((output.out, output.err.as_str()), (format!("{long}\n"), ""));
}

#[test]
fn step_output_is_streamed() {
    let home = Home::new();
    let mut run = home.start(&["run", "$ echo begun; until test -e go; do sleep 0.01; done; echo ended"]);
    run.wait_for_line("begun");
    home.write("go", "");
    let output = run.wait_for_output();
    assert_eq!((output.code, output.out.as_str()), (Some(0), "begun\nended\n"), "{output:?}");
}

#[test]
fn json_is_the_result_and_nothing_else() {
    let home = Home::new();
    let output = home.push(&["run", "--json", "Words.\n\n$ echo out; echo err >&2\n$ exit 7\n"]);
    assert_eq!((output.code, output.err.as_str()), (Some(1), ""));
    let result = output.json();
    assert_eq!(result["outcome"], "failed");
    assert_eq!(result["exitCode"], 1);
    assert_eq!(result["reason"], "step_failed");
    assert_eq!(result["text"], "out", "as standard output has it");
    assert_eq!((&result["stdout"], &result["stderr"]), (&"out\n".into(), &"err\n".into()));
    assert_eq!(result["denials"], Value::Array(Vec::new()));
    assert!(result["sessionId"].as_str().unwrap().starts_with("sess_"));
    assert!(result["runId"].as_str().unwrap().starts_with("run_"));
}

#[test]
fn jsonl_is_every_event_as_the_daemon_sent_it() {
    let home = Home::new();
    let output = home.push(&["run", "--jsonl", "--accept", "true", "Words.\n\n$ echo out\n"]);
    assert_eq!((output.code, output.err.as_str()), (Some(0), ""));
    let events = output.events();
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    for expected in ["session_started", "user_message", "assistant_token", "tool_call", "tool_output", "tool_result"] {
        assert!(types.contains(&expected), "no {expected} in {types:?}");
    }
    assert_eq!(types.last(), Some(&"run_complete"));
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
}

#[test]
fn a_message_comes_from_arguments_standard_input_or_a_file() {
    let home = Home::new();
    home.write("plan.md", "A plan.\n\n```sh\necho one\necho two\n```\n");
    let output = home.push(&["run", "@plan.md"]);
    assert!(output.code == Some(0) && output.out == "one\ntwo\n", "{output:?}");
    for words in [&["run", "-"][..], &["run"]] {
        let output = home.push_with_input(words, "$ echo from input\n");
        assert!(output.code == Some(0) && output.out == "from input\n", "{output:?}");
    }
}

#[test]
fn standard_input_is_appended_to_a_message_and_never_run() {
    let home = Home::new();
    let server = ModelServer::start();
    server.usually(Reply::says("Fine."));
    let words = ["run", "--headless", "--provider", "ollama", "--model", "m", "review this"];
    let variables = [("OLLAMA_HOST", server.url())];
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let last_prompt = |server: &ModelServer| {
        let seen = server.seen().into_iter().rfind(|seen| seen.method == "POST").expect("a request");
        let messages = seen.body["messages"].as_array().expect("messages").clone();
        messages.last().expect("a message")["content"].as_str().expect("a text").to_owned()
    };
    assert_eq!(home.push_with(&words, &variables, "-old\n+new\n").code, Some(0));
    assert_eq!(last_prompt(&server), "review this\n\n-old\n+new\n");
    let without: Vec<&str> = words.into_iter().chain(["--no-stdin"]).collect();
    assert_eq!(home.push_with(&without, &variables, "-old\n").code, Some(0));
    assert_eq!(last_prompt(&server), "review this");
    home.write("diff", "-a\n+b\n");
    let mut command = home.command(&words);
    command.envs(variables.iter().copied()).stdin(fs::File::open(home.path().join("diff")).unwrap());
    assert_eq!(Running::start(command).wait_for_output().code, Some(0));
    assert_eq!(last_prompt(&server), "review this\n\n-a\n+b\n");
    let output = home.push_with_input(&["run", "$ echo typed"], "$ echo piped > ran\n");
    assert_eq!((output.code, output.out.as_str()), (Some(0), "typed\n"), "{output:?}");
    assert_eq!(home.read("ran"), "");
    assert_eq!(home.push_with_input(&["run", "-", "--no-stdin"], "$ true").code, Some(64));
}

#[test]
fn a_message_that_is_too_long_is_refused_at_once_with_the_limit() {
    let home = Home::new();
    home.write("long.txt", &"x".repeat(9 << 20));
    // Encoded as JSON it is twice as long.
    home.write("quotes.txt", &"\"".repeat(4 << 20));
    for (words, limit) in [(["run", "@long.txt"], "4.0 MiB"), (["run", "@quotes.txt"], "8388608")] {
        let output = home.push(&words);
        assert_eq!((output.code, output.out.as_str()), (Some(64), ""), "{words:?}: {}", output.err);
        assert!(output.err.contains(limit), "{}", output.err);
    }
    let output = home.push_with_input(&["run", "review this"], &"x".repeat(9 << 20));
    assert_eq!(output.code, Some(64), "{}", output.err);
}

#[test]
fn a_playbook_runs_whatever_provider_is_configured() {
    let home = Home::with(&[("PUSH_PROVIDER", "ollama"), ("PUSH_MODEL", "m"), ("OLLAMA_HOST", "127.0.0.1:1")]);
    home.write("plan.md", "Words.\n\n```bash\necho one\n```\n\n```console\n$ echo two\ntwo\n```\n\n?$ echo three\n");
    let output = home.push(&["playbook", "--yes", "plan.md"]);
    assert_eq!((output.code, output.out.as_str()), (Some(0), "one\ntwo\nthree\n"), "{output:?}");
    let output = home.push_with_input(&["playbook", "-"], "$ echo from input\n");
    assert_eq!((output.code, output.out.as_str()), (Some(0), "from input\n"), "{output:?}");
    assert_eq!(home.push(&["playbook", "missing.md"]).code, Some(64));
    assert_eq!(home.push(&["playbook"]).code, Some(64));
    let output = home.push(&["run", "--timeout", "20", "--detach", "$ echo one\n$ echo two"]);
    assert!(output.err.contains("`push playbook FILE` runs steps"), "{output:?}");
    let output = home.push(&["playbook", "--session", "@last", "plan.md"]);
    assert!(output.code == Some(64) && output.err.contains("uses the provider ollama"), "{output:?}");
}

#[test]
fn a_malformed_step_fails_with_its_line() {
    let home = Home::new();
    for message in ["$ touch ran\n\n- $ echo hi\n", "$ touch ran\n\n```zsh\necho hi\n```\n"] {
        let output = home.push(&["run", message]);
        assert_eq!((output.code, output.out.as_str()), (Some(1), ""), "{output:?}");
        assert!(output.err.contains("line 3: "), "{output:?}");
    }
    assert!(!home.path().join("ran").exists());
}

#[test]
fn steps_run_where_the_user_is_or_says() {
    let home = Home::new();
    fs::create_dir(home.path().join("there")).unwrap();
    let here = home.path().canonicalize().unwrap();
    let out = home.ok(&["run", "$ pwd"]);
    assert_eq!(out, format!("{}\n", here.display()));
    let out = home.ok(&["run", "--cwd", "there", "$ pwd"]);
    assert_eq!(out, format!("{}\n", here.join("there").display()));
}

#[test]
fn a_session_is_continued_and_named() {
    let home = Home::new();
    home.ok(&["run", "--name", "first things", "$ echo one"]);
    home.ok(&["run", "--session", "@last", "$ echo two"]);
    let sessions = home.json(&["sessions", "--json"]);
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(sessions["sessions"][0]["name"], "first things");
    let log = home.ok(&["log"]);
    assert!(log.contains("> $ echo one\n") && log.contains("> $ echo two\n"), "{log}");
    assert!(home.ok(&["sessions"]).contains("first things"));
}

#[test]
fn a_continued_session_shows_the_new_run_alone() {
    let home = Home::new();
    home.ok(&["run", "$ echo one"]);
    let out = home.ok(&["run", "--session", "@last", "$ echo two"]);
    assert_eq!(out, "two\n");
}

#[test]
fn a_continued_run_works_in_the_directory_of_its_session_and_says_so() {
    let home = Home::new();
    fs::create_dir(home.path().join("there")).unwrap();
    let there = home.path().canonicalize().unwrap().join("there").display().to_string();
    let session = home.json(&["run", "--json", "--cwd", "there", "$ true"])["sessionId"].as_str().unwrap().to_owned();
    let output = home.push(&["run", "--session", &session, "$ pwd"]);
    assert_eq!((output.code, output.out), (Some(0), format!("{there}\n")));
    assert!(output.err.starts_with(&format!("push: the run continues in {there}, ")), "{}", output.err);
    let mut command = home.command(&["run", "--session", "@last", "$ true"]);
    command.current_dir(&there);
    assert!(!Running::start(command).wait_for_output().err.contains("continues in"));
}

#[test]
fn a_second_session_in_a_directory_is_announced_and_may_have_a_worktree() {
    let home = Home::new();
    let git = "git init -q -b main repo && cd repo && git -c user.name=t -c user.email=t@example.org commit -q --allow-empty -m x";
    let output = Running::start(home.program("/bin/sh", &["-c", git])).wait_for_output();
    assert_eq!(output.code, Some(0), "{output:?}");
    let first = home.json(&["run", "--detach", "--json", "--cwd", "repo", "$ until test -e go; do sleep 0.01; done"]);
    let first = first["sessionId"].as_str().unwrap().to_owned();
    let output = home.push(&["run", "--cwd", "repo", "$ true"]);
    assert!(output.code == Some(0) && output.err.contains("has an active run in the same directory"), "{output:?}");
    assert!(output.err.contains(&first[first.len() - 6..]), "{output:?}");
    let output = home.push(&["run", "--cwd", "repo", "--worktree=try/it", "$ pwd; git branch --show-current"]);
    let root = home.path().canonicalize().unwrap().join("repo-try-it");
    assert_eq!((output.code, output.out), (Some(0), format!("{}\ntry/it\n", root.display())), "{}", output.err);
    assert!(output.err.contains("on branch try/it") && !output.err.contains("is active"), "{}", output.err);
    let output = home.push(&["run", "--cwd", "repo", "--worktree=try/it", "$ true"]);
    assert_eq!(output.code, Some(64), "{output:?}");
    assert!(output.err.contains(&format!("--cwd {} runs in it", root.display())), "{output:?}");
    assert!(!output.err.contains("already exists"), "{output:?}");
    let output = home.push(&["run", "--cwd", "repo", "--worktree", "$ git branch --show-current"]);
    assert!(output.code == Some(0) && output.out.starts_with("push/"), "{output:?}");
    let output = home.push(&["run", "--worktree", "$ true"]);
    assert!(output.code == Some(64) && output.err.contains("requires a git repository"), "{output:?}");
    home.write("repo/go", "");
    assert_eq!(home.push(&["wait", &first]).code, Some(0));
}

#[test]
fn a_worktree_is_added_by_no_git_of_the_repository() {
    let home = Home::new();
    let made = "git init -q -b main repo && cd repo && mkdir -p .venv/bin \
        && git -c user.name=t -c user.email=t@example.org commit -q --allow-empty -m x \
        && printf '#!/bin/sh\\n: > \"$HOME/planted\"\\nexit 1\\n' > .venv/bin/git && chmod 755 .venv/bin/git";
    let output = Running::start(home.program("/bin/sh", &["-c", made])).wait_for_output();
    assert_eq!(output.code, Some(0), "{output:?}");
    let usual = std::env::var("PATH").unwrap();
    let planted = home.path().join("repo/.venv/bin");
    for (number, first) in [planted.to_str().unwrap(), ".venv/bin", "repo/.venv/bin"].iter().enumerate() {
        let branch = format!("--worktree=try{number}");
        let mut command =
            home.command(&["run", "--cwd", home.path().join("repo").to_str().unwrap(), &branch, "$ true"]);
        command.env("PATH", format!("{first}:{usual}"));
        let output = Running::start(command).wait_for_output();
        assert_eq!(output.code, Some(0), "{first}: {output:?}");
        assert!(!home.path().join("planted").exists(), "{first}: a program of the repository was run");
        assert!(home.path().join(format!("repo-try{number}/.git")).exists(), "{first}: {output:?}");
    }
}

#[test]
fn a_worktree_is_added_without_hooks_and_monitors_of_the_repository() {
    let home = Home::new();
    let made = "git init -q -b main repo && cd repo && mkdir hooks \
        && git -c user.name=t -c user.email=t@example.org commit -q --allow-empty -m x \
        && printf '#!/bin/sh\\n: > \"$HOME/ran-${0##*/}\"\\n' > hooks/post-checkout && chmod 755 hooks/post-checkout \
        && for name in reference-transaction monitor; do cp hooks/post-checkout hooks/$name; done \
        && cp hooks/post-checkout .git/hooks/post-checkout \
        && git config core.hooksPath \"$PWD/hooks\" && git config core.fsmonitor \"$PWD/hooks/monitor\"";
    let output = Running::start(home.program("/bin/sh", &["-c", made])).wait_for_output();
    assert_eq!(output.code, Some(0), "{output:?}");
    let output = home.push(&["run", "--cwd", "repo", "--worktree=try", "$ true"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let ran: Vec<_> = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!ran.iter().any(|name| name.to_string_lossy().starts_with("ran-")), "{ran:?}");
}

#[test]
fn a_fifo_among_the_files_of_a_repository_does_not_hold_the_client_up() {
    let home = Home::new();
    for name in ["HEAD", "config", "commondir"] {
        let directory = format!("repo-{name}");
        let made = format!(
            "mkdir -p {directory}/.git && cd {directory}/.git && echo 'ref: refs/heads/main' > HEAD \
             && rm -f {name} && mkfifo {name}"
        );
        let output = Running::start(home.program("/bin/sh", &["-c", &made])).wait_for_output();
        assert_eq!(output.code, Some(0), "{output:?}");
        let output = home.push(&["run", "--cwd", &directory, "$ echo went"]);
        assert_eq!((output.code, output.out.as_str()), (Some(0), "went\n"), "{name}: {output:?}");
    }
}

#[test]
fn a_mistake_in_the_configuration_of_a_project_is_reported_as_one() {
    let home = Home::new();
    fs::create_dir_all(home.path().join("work/.push")).unwrap();
    home.write("work/.push/config.toml", "[providers.mine]\nkind = \"ollama\"\n");
    let output = home.push(&["run", "--cwd", "work", "$ echo went"]);
    assert_eq!((output.code, output.out.as_str()), (Some(1), ""), "{output:?}");
    assert!(output.err.contains("work/.push/config.toml"), "{output:?}");
    // Another provider would not help.
    assert!(!output.err.contains("playbook"), "{output:?}");
    let output = home.push(&["run", "--json", "--cwd", "work", "$ echo went"]);
    assert!(output.err.contains("INVALID_CONFIGURATION") || output.out.contains("INVALID_CONFIGURATION"), "{output:?}");
}

#[test]
fn a_detached_run_goes_on_and_is_waited_for() {
    let home = Home::new();
    let output = home.push(&["run", "--detach", "$ until test -e go; do sleep 0.01; done; exit 3"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let ids: Vec<&str> = output.out.split_whitespace().collect();
    assert!(ids[0].starts_with("sess_") && ids[1].starts_with("run_"), "{output:?}");
    let waited = home.push(&["wait", ids[0], "--timeout", "0.05"]);
    assert_eq!(waited.code, Some(124), "{waited:?}");
    home.write("go", "");
    let waited = home.push(&["wait", ids[0]]);
    assert_eq!(waited.code, Some(1), "{waited:?}");
    let again = home.push(&["wait", "--json", ids[0]]);
    assert_eq!((again.code, again.json()["outcome"].as_str()), (Some(1), Some("failed")));
}

#[test]
fn the_approvals_of_a_detached_run_are_those_of_the_run() {
    let home = Home::new();
    for (flags, code, ran) in [
        (&["--yes"][..], 0, "x\n"),
        (&["--headless", "--approve", "all"], 0, "x\nx\n"),
        (&["--approve", "deny"], 3, "x\nx\n"),
        (&["--headless"], 3, "x\nx\n"),
    ] {
        let words = [&["run", "--detach", "--json"], flags, &["?$ echo x >> ran"]].concat();
        let session = home.json(&words)["sessionId"].as_str().unwrap().to_owned();
        let output = home.push(&["wait", &session, "--timeout", "1m"]);
        assert_eq!((output.code, home.read("ran").as_str()), (Some(code), ran), "{flags:?}: {output:?}");
    }
    assert!(home.ok(&["log"]).contains("by the policy of the run"));
    // Without these flags it waits for a decision.
    let session = home.start_detached("?$ echo x >> ran");
    home.wait_for_approval();
    home.ok(&["approve"]);
    assert_eq!(home.push(&["wait", &session]).code, Some(0));
}

#[test]
fn a_retry_with_the_same_key_attaches_to_the_first_run() {
    let home = Home::new();
    let words = ["run", "--headless", "--idempotency-key", "job 7", "$ echo once >> ran; echo out; exit 5"];
    let first = home.push(&words);
    let second = home.push(&words);
    assert_eq!((first.code, second.code), (Some(1), Some(1)), "{second:?}");
    assert_eq!(first.out, second.out);
    assert_eq!(home.read("ran"), "once\n");
    assert_eq!(home.json(&["sessions", "--json"])["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn a_retry_while_the_first_run_is_active_reports_how_it_ends() {
    let home = Home::new();
    let words = ["run", "--json", "--idempotency-key", "k", "$ echo x >> ran; until test -e go; do sleep 0.01; done"];
    let first = home.start(&words);
    home.wait_for_text("ran", "x");
    let second = home.start(&words);
    wait_until("two clients", || home.json(&["daemon", "status", "--json"])["connections"] == 3);
    home.write("go", "");
    let (first, second) = (first.wait_for_output(), second.wait_for_output());
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{second:?}");
    assert_eq!(first.json(), second.json());
    assert_eq!(home.read("ran"), "x\n");
}

#[test]
fn a_key_with_another_message_is_refused() {
    let home = Home::new();
    home.ok(&["run", "--idempotency-key", "k", "$ true"]);
    let output = home.push(&["run", "--idempotency-key", "k", "$ false"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("push: ") && output.out.is_empty(), "{output:?}");
}

#[test]
fn approve_all_goes_ahead_and_ask_waits_for_another_client() {
    let home = Home::new();
    let out = home.ok(&["run", "--headless", "--yes", "$? echo went"]);
    assert_eq!(out, "went\n");
    let run = home.start(&["run", "--headless", "--approve", "ask", "$? echo went there"]);
    let id = home.wait_for_approval();
    let word = home.ok(&["approve", &id, "--comment", "fine with me"]);
    assert!(word.starts_with("approved appr_"), "{word}");
    let output = run.wait_for_output();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.err.contains("fine with me") && output.out == "went there\n", "{output:?}");
}

#[test]
fn a_step_has_its_clients_environment_and_not_the_daemons() {
    let home = Home::with(&[("FOO", "of the starter"), ("STARTER", "yes")]);
    home.ok(&["daemon", "start"]);
    let message = "$ echo foo=$FOO starter=$STARTER path=$PATH";
    for (foo, path) in [("one", "/usr/bin:/bin"), ("two", "/bin:/usr/bin:/nowhere")] {
        let mut command = home.command(&["run", message]);
        command.env("FOO", foo).env("PATH", path).env_remove("STARTER");
        let output = Running::start(command).wait_for_output();
        assert_eq!(output.out, format!("foo={foo} starter= path={path}\n"), "{output:?}");
    }
}
