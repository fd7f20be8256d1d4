//! The tools that need more than files: commands, git and the network, with real processes, repositories and sockets.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken fixture is a failed test")]

#[path = "tools/fetching.rs"]
mod fetching;
#[path = "tools/git_commands.rs"]
mod git_commands;
#[path = "support/ordinary_user.rs"]
mod ordinary_user;
#[path = "tools/planted.rs"]
mod planted;
#[path = "support/skip.rs"]
mod skip;
#[path = "tools/stage.rs"]
mod stage;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use pushd::agent::inquiry;
use pushd::kernel::event::Ending;
use pushd::redact::Redactor;
use pushd::tools::{FaultKind, Limits, Network, Outcome, Risk, catalogue, parse, run};
use serde_json::{Value, json};
use stage::{Server, Stage};
use tokio::sync::mpsc;

#[tokio::test]
async fn a_command_runs_in_the_workspace_and_says_how_it_ended() {
    let stage = Stage::new();
    fs::create_dir(stage.path("sub")).unwrap();
    let (outcome, printed) =
        stage.exec(json!({ "command": "pwd; echo oops >&2; exit 3", "cwd": "sub" })).await;
    assert_eq!((outcome.ending, outcome.exit_code), (Ending::Failed, Some(3)));
    assert_eq!(kind(&outcome), Some(FaultKind::ExitCode));
    assert!(printed.contains("/sub\n") && printed.contains("oops\n"), "{printed}");
    let (outcome, _) = stage.exec(json!({ "command": "true" })).await;
    assert_eq!((outcome.ending, outcome.exit_code, outcome.fault), (Ending::Done, Some(0), None));
}

#[tokio::test]
async fn a_command_does_not_begin_outside_of_the_workspace() {
    let stage = Stage::new();
    fs::write(stage.path("file"), "").unwrap();
    for (cwd, expected) in [
        ("..", FaultKind::OutsideWorkspace),
        ("/", FaultKind::OutsideWorkspace),
        ("none", FaultKind::NotFound),
        ("file", FaultKind::NotADirectory),
    ] {
        let (outcome, printed) = stage.exec(json!({ "command": "echo ran", "cwd": cwd })).await;
        assert_eq!((kind(&outcome), printed.as_str()), (Some(expected), ""), "{cwd}");
    }
}

#[tokio::test]
async fn a_command_is_ended_at_its_own_time_limit_and_at_the_session_s() {
    let mut stage = Stage::new();
    let (outcome, _) = stage.exec(json!({ "command": "sleep 1000", "timeoutSeconds": 0 })).await;
    assert_eq!(kind(&outcome), Some(FaultKind::TimeLimit));
    stage.bench.limits.step = Duration::ZERO;
    let (outcome, _) = stage.exec(json!({ "command": "sleep 1000", "timeoutSeconds": 600 })).await;
    assert_eq!(kind(&outcome), Some(FaultKind::TimeLimit));
}

#[tokio::test]
async fn a_command_ends_with_its_run() {
    let stage = Stage::new();
    let (out, mut heard) = mpsc::channel(4);
    let bench = stage.bench.clone();
    let request = parse("sandbox_exec", r#"{"command":"echo up; sleep 1000"}"#).unwrap();
    let going = tokio::spawn(async move { run(request, &bench, out).await });
    assert!(heard.recv().await.is_some());
    stage.bench.tree.stop(Duration::from_secs(10)).await.unwrap();
    let outcome = going.await.unwrap();
    assert_eq!((outcome.ending, kind(&outcome)), (Ending::Cut, Some(FaultKind::Cut)));
}

#[tokio::test]
async fn nobody_is_asked_about_a_change_of_what_is_protected() {
    let stage = Stage::new();
    for (tool, args) in [
        ("sandbox_write_file", json!({"path": ".git/hooks/pre-commit", "content": "x"})),
        ("sandbox_write_file", json!({"path": "sub/.GIT/config", "content": "x"})),
        ("sandbox_edit_file", json!({"path": ".push/config.toml", "old": "a", "new": "b"})),
        ("sandbox_edit_file", json!({"patch": "--- /dev/null\n+++ b/.push/x\n@@ -0,0 +1 @@\n+x\n"})),
    ] {
        let refused = stage.question(tool, args).await.unwrap_err();
        assert_eq!(refused.kind, FaultKind::ProtectedPath, "{tool}");
    }
}

#[tokio::test]
async fn the_question_of_a_command_shows_it() {
    let stage = Stage::new();
    let question =
        stage.question("sandbox_exec", json!({ "command": "sudo make", "cwd": "sub" })).await.unwrap();
    assert_eq!((question.kind, question.summary.as_str(), question.risk), ("exec", "sudo make", Risk::High));
    assert_eq!((&question.details["cwd"], &question.details["risk"]), (&json!("sub"), &json!("high")));
}

#[tokio::test]
async fn the_question_of_a_change_shows_the_difference_or_says_why_there_is_none() {
    let stage = Stage::new();
    fs::write(stage.path("f"), "one\ntwo\n").unwrap();
    let edit = |old: &str| json!({ "path": "f", "old": old, "new": "2" });
    let question = stage.question("sandbox_edit_file", edit("two")).await.unwrap();
    assert_eq!((question.kind, question.title.as_str()), ("write", "Approve writing f"));
    assert_eq!(question.details["diff"], "--- f\n+++ f\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n");
    let hopeless = stage.question("sandbox_edit_file", edit("three")).await.unwrap_err();
    assert_eq!(hopeless.kind, FaultKind::NoMatch);
    let write =
        stage.question("sandbox_write_file", json!({ "path": "new/f", "content": "x\n" })).await.unwrap();
    assert_eq!(write.summary, "create new/f: 1 insertion, 0 deletions");
    assert!(!stage.path("new").exists());
    assert_eq!(fs::read_to_string(stage.path("f")).unwrap(), "one\ntwo\n");
    let outside =
        stage.question("sandbox_write_file", json!({ "path": "../f", "content": "" })).await.unwrap_err();
    assert_eq!(outside.kind, FaultKind::OutsideWorkspace);
}

#[tokio::test]
async fn the_status_of_a_repository_is_told() {
    let stage = Stage::repository();
    fs::write(stage.path("tracked"), "changed\n").unwrap();
    fs::write(stage.path("fresh file"), "x").unwrap();
    fs::write(stage.path("staged"), "x").unwrap();
    stage.git(&["add", "staged"]);
    let status = stage.json("sandbox_git_status", json!({})).await;
    assert_eq!(status["branch"], "main");
    assert_eq!(status["commit"].as_str().unwrap().len(), 40);
    assert_eq!(status["staged"], json!([{ "path": "staged", "change": "added" }]));
    assert_eq!(status["unstaged"], json!([{ "path": "tracked", "change": "modified" }]));
    assert_eq!(status["untracked"], json!(["fresh file"]));
}

#[tokio::test]
async fn a_workspace_inside_a_repository_sees_its_own_paths() {
    let mut stage = Stage::repository();
    fs::create_dir(stage.path("sub")).unwrap();
    fs::write(stage.path("sub/inner"), "x\n").unwrap();
    fs::write(stage.path("outer"), "x\n").unwrap();
    stage.enter("sub");
    let status = stage.json("sandbox_git_status", json!({})).await;
    assert_eq!(status["untracked"], json!(["inner"]));
    let committed = stage.json("sandbox_git_commit", json!({ "message": "inner", "all": true })).await;
    assert_eq!(committed["filesChanged"], 1);
    assert_eq!(stage.git(&["status", "--porcelain"]), "?? outer\n");
    let outside = stage.run("sandbox_git_diff", json!({ "paths": ["../outer"] })).await;
    assert_eq!(kind(&outside), Some(FaultKind::OutsideWorkspace));
}

#[tokio::test]
async fn differences_are_shown_staged_and_not() {
    let stage = Stage::repository();
    assert_eq!(stage.run("sandbox_git_diff", json!({})).await.text, "no changes\n");
    fs::write(stage.path("tracked"), "staged\n").unwrap();
    stage.git(&["add", "tracked"]);
    fs::write(stage.path("tracked"), "unstaged\n").unwrap();
    let unstaged = stage.run("sandbox_git_diff", json!({})).await.text;
    assert!(unstaged.contains("-staged\n+unstaged\n"), "{unstaged}");
    let staged = stage.run("sandbox_git_diff", json!({ "staged": true, "paths": ["tracked"] })).await.text;
    assert!(staged.contains("-first\n+staged\n"), "{staged}");
    let other = stage.run("sandbox_git_diff", json!({ "paths": ["none"] })).await.text;
    assert_eq!(other, "no changes\n");
}

#[tokio::test]
async fn a_commit_is_previewed_as_it_will_be_and_then_made() {
    let stage = Stage::repository();
    fs::write(stage.path("tracked"), "second\nthird\n").unwrap();
    fs::write(stage.path("new"), "1\n2\n3").unwrap();
    let args = json!({ "message": "feat: two files\n\nMore.", "all": true });
    let before = stage.git(&["status", "--porcelain"]);
    let question = stage.question("sandbox_git_commit", args.clone()).await.unwrap();
    assert_eq!((question.kind, question.title.as_str()), ("commit", "Approve commit"));
    assert_eq!(question.summary, "feat: two files");
    let counts =
        |value: &Value| ["filesChanged", "insertions", "deletions"].map(|name| value[name].as_u64().unwrap());
    assert_eq!(counts(&question.details), [2, 5, 1]);
    assert_eq!(question.details["message"], "feat: two files\n\nMore.");
    assert_eq!(stage.git(&["status", "--porcelain"]), before, "a question changes nothing");
    let committed = stage.json("sandbox_git_commit", args.clone()).await;
    assert_eq!(counts(&committed), [2, 5, 1]);
    assert_eq!(committed["branch"], "main");
    assert_eq!(stage.git(&["log", "-1", "--format=%H %s %b"]).trim(), {
        format!("{} feat: two files More.", committed["commit"].as_str().unwrap())
    });
    let again = stage.run("sandbox_git_commit", args.clone()).await;
    assert_eq!(kind(&again), Some(FaultKind::NothingToCommit), "{again:?}");
    let nothing = stage.question("sandbox_git_commit", args).await.unwrap_err();
    assert_eq!(nothing.kind, FaultKind::NothingToCommit);
}

#[tokio::test]
async fn a_commit_of_paths_leaves_the_rest_alone() {
    let stage = Stage::repository();
    for name in ["a", "b", "it's"] {
        fs::write(stage.path(name), "x\n").unwrap();
    }
    stage.git(&["add", "b"]);
    let args = json!({ "message": "a alone", "paths": ["a", "it's"] });
    assert_eq!(stage.question("sandbox_git_commit", args.clone()).await.unwrap().details["filesChanged"], 2);
    assert_eq!(stage.json("sandbox_git_commit", args).await["filesChanged"], 2);
    assert_eq!(stage.git(&["status", "--porcelain"]), "A  b\n");
    let args = json!({ "message": "what is staged" });
    assert_eq!(stage.question("sandbox_git_commit", args.clone()).await.unwrap().details["filesChanged"], 1);
    assert_eq!(stage.json("sandbox_git_commit", args).await["filesChanged"], 1);
    let missing = stage.run("sandbox_git_commit", json!({ "message": "m", "paths": ["none"] })).await;
    assert_eq!(kind(&missing), Some(FaultKind::NotFound), "{missing:?}");
}

#[tokio::test]
async fn the_first_commit_of_a_repository_is_previewed_and_made() {
    let stage = Stage::new();
    stage.git(&["init", "-q", "-b", "main"]);
    fs::write(stage.path("a"), "1\n2\n").unwrap();
    let args = json!({ "message": "begin", "all": true });
    let question = stage.question("sandbox_git_commit", args.clone()).await.unwrap();
    assert_eq!((&question.details["insertions"], &question.details["branch"]), (&json!(2), &json!("main")));
    assert_eq!(stage.json("sandbox_git_commit", args).await["insertions"], 2);
}

#[tokio::test]
async fn nothing_of_a_repository_is_run() {
    let stage = Stage::repository();
    let trap = stage.path("trap");
    fs::write(&trap, format!("#!/bin/sh\necho $0 >> {}\n", stage.path("sprung").display())).unwrap();
    fs::set_permissions(&trap, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for hook in ["pre-commit", "commit-msg", "post-commit", "post-index-change", "prepare-commit-msg"] {
        fs::copy(&trap, stage.path(&format!(".git/hooks/{hook}"))).unwrap();
    }
    for name in
        ["core.fsmonitor", "core.pager", "core.editor", "diff.external", "gpg.program", "diff.x.textconv"]
    {
        stage.git(&["config", name, trap.to_str().unwrap()]);
    }
    stage.git(&["config", "commit.gpgSign", "true"]);
    fs::write(stage.path(".gitattributes"), "* diff=x\n").unwrap();
    fs::write(stage.path("tracked"), "changed\n").unwrap();
    stage.json("sandbox_git_status", json!({})).await;
    stage.run("sandbox_git_diff", json!({})).await;
    let args = json!({ "message": "m", "all": true });
    stage.question("sandbox_git_commit", args.clone()).await.unwrap();
    stage.json("sandbox_git_commit", args).await;
    let sprung = fs::read_to_string(stage.path("sprung")).unwrap_or_default();
    assert_eq!(sprung, "", "these were run");
}

#[tokio::test]
async fn without_a_repository_git_says_so() {
    let stage = Stage::new();
    for (tool, args) in [
        ("sandbox_git_status", json!({})),
        ("sandbox_git_diff", json!({})),
        ("sandbox_git_commit", json!({ "message": "m", "all": true })),
    ] {
        assert_eq!(kind(&stage.run(tool, args).await), Some(FaultKind::NotARepository), "{tool}");
    }
    let question = stage.question("sandbox_git_commit", json!({ "message": "m" })).await.unwrap_err();
    assert_eq!(question.kind, FaultKind::NotARepository);
}

#[tokio::test]
async fn a_page_is_fetched_as_text() {
    let stage = Stage::new();
    let server = Server::start(|path| match path {
        "/" => "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello".into(),
        "/moved" => "HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n".into(),
        "/away" => {
            "HTTP/1.1 302 Found\r\nlocation: http://other.example/x\r\ncontent-length: 0\r\n\r\n".into()
        }
        "/loop" => "HTTP/1.1 302 Found\r\nlocation: /loop\r\ncontent-length: 0\r\n\r\n".into(),
        "/image" => "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 1\r\n\r\nx".into(),
        "/busy" => "HTTP/1.1 503 Busy\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nlater".into(),
        "/broken" => "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 500\r\n\r\nhel".into(),
        _ => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".into(),
    });
    let fetch = async |path: &str| stage.run("sandbox_fetch", json!({ "url": server.url(path) })).await;
    assert_eq!(fetch("/").await.text, format!("[200 text/plain, 5 bytes, {}]\nhello", server.url("/")));
    assert!(fetch("/moved").await.text.ends_with("/]\nhello"));
    for (path, expected) in [
        ("/away", FaultKind::RedirectedAway),
        ("/loop", FaultKind::NetworkFailed),
        ("/image", FaultKind::NotText),
        ("/busy", FaultKind::NetworkFailed),
        ("/broken", FaultKind::NetworkFailed),
        ("/none", FaultKind::HttpStatus),
    ] {
        assert_eq!(kind(&fetch(path).await), Some(expected), "{path}");
    }
    let away = fetch("/away").await.fault.unwrap();
    assert_eq!(away.detail.as_deref(), Some("http://other.example/x"));
}

#[tokio::test]
async fn fetching_is_bounded_and_off_unless_it_is_allowed() {
    let mut stage = Stage::new();
    let server = Server::start(|path| match path {
        "/silent" => String::new(),
        _ => format!("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n{}", "x".repeat(100_000)),
    });
    stage.bench.limits = Limits { fetch_bytes: 50, fetch: Duration::from_millis(300), ..Limits::default() };
    let long = stage.run("sandbox_fetch", json!({ "url": server.url("/") })).await.text;
    assert!(
        long.contains("more than 50 bytes") && long.ends_with(&format!("]\n{}", "x".repeat(50))),
        "{long}"
    );
    let silent = stage.run("sandbox_fetch", json!({ "url": server.url("/silent") })).await;
    assert_eq!(kind(&silent), Some(FaultKind::TimeLimit));
    stage.bench.network = Network::Off;
    let off = stage.run("sandbox_fetch", json!({ "url": server.url("/") })).await;
    assert_eq!(kind(&off), Some(FaultKind::NetworkOff));
}

#[tokio::test]
async fn a_private_key_is_hidden_in_whatever_pieces_it_is_looked_at() {
    let mut stage = Stage::new();
    stage.bench.safe = Arc::new(|text| Redactor::default().text(text).into_owned());
    let body: Vec<String> =
        (0..40).map(|line| format!("MIIEow{line:02}{}", "IBAAKCAQEA".repeat(5))).collect();
    let key = format!("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----", body.join("\n"));
    let long = "x = 1\n".repeat(20_000);
    let code = "let marker = \"-----BEGIN PRIVATE KEY-----\";\nlet IBAAKCAQEA = 1;\n";
    std::fs::write(stage.path("key"), format!("{code}{long}{key}\nafter IBAAKCAQEA\n")).unwrap();
    for offset in [20_004, 20_010, 20_042] {
        let read = stage.run("sandbox_read_file", json!({"path": "key", "offset": offset})).await.text;
        assert!(!read.contains("MIIEow") && read.contains("after IBAAKCAQEA"), "{offset}: {read}");
    }
    let read =
        stage.run("sandbox_read_file", json!({"path": "key", "offset": 20_010, "limit": 3})).await.text;
    assert_eq!(read, "[lines 20010-20012 of 20045]\n[redacted]");
    let read = stage.run("sandbox_read_file", json!({"path": "key", "offset": 2, "limit": 1})).await.text;
    assert_eq!(read, "[lines 2-2 of 20045]\nlet IBAAKCAQEA = 1;\n", "code that speaks of keys is none");
    let found = stage.json("sandbox_search", json!({"pattern": "IBAAKCAQEA"})).await;
    let hits: Vec<_> =
        found["hits"].as_array().unwrap().iter().map(|hit| hit["text"].as_str().unwrap()).collect();
    assert_eq!(hits.len(), 42);
    assert_eq!((hits[0], hits[41]), ("let IBAAKCAQEA = 1;", "after IBAAKCAQEA"));
    assert!(hits[1..41].iter().all(|hit| *hit == "[redacted]"), "{hits:?}");
}

#[test]
fn every_tool_is_documented_with_arguments_that_it_takes() {
    let page = include_str!("../docs/tools.md");
    for tool in catalogue(Network::Allowed) {
        let (_, section) = page.split_once(&format!("\n## {}\n", tool.name)).expect(tool.name);
        let section = section.split("\n## ").next().unwrap();
        let examples: Vec<Value> = section
            .split("```json\n")
            .skip(1)
            .map(|rest| serde_json::from_str(rest.split("\n```").next().unwrap()).unwrap())
            .collect();
        assert!(!examples.is_empty(), "{} has no example", tool.name);
        for example in examples {
            assert_eq!(example["tool"], tool.name);
            parse(tool.name, &example["args"].to_string()).unwrap();
        }
        for argument in tool.schema["properties"].as_object().unwrap().keys() {
            assert!(section.contains(&format!("`{argument}`")), "{}: {argument}", tool.name);
        }
    }
}

#[test]
fn the_question_to_the_user_is_documented_like_a_tool() {
    let page = include_str!("../docs/tools.md");
    let (_, section) = page.split_once("\n## ask_user\n").expect("a section");
    let section = section.split("\n## ").next().unwrap();
    let example = section.split("```json\n").nth(1).expect("an example").split("\n```").next().unwrap();
    let example: Value = serde_json::from_str(example).unwrap();
    assert_eq!(example["tool"], inquiry::ASK_USER);
    inquiry::question(&example["args"].to_string()).expect("it can be asked");
    for argument in inquiry::tool().schema["properties"].as_object().unwrap().keys() {
        assert!(section.contains(&format!("`{argument}`")), "{argument}");
    }
}

fn kind(outcome: &Outcome) -> Option<FaultKind> {
    outcome.fault.as_ref().map(|fault| fault.kind)
}

/// The filters of a nested repository belong to its author, and a commit may change the outer one.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_commit_runs_nothing_of_a_repository_inside() {
    let Some(stage) = Stage::confined().await else { return };
    std::fs::create_dir(stage.path("inner")).unwrap();
    std::fs::write(stage.path("inner/f"), "x\n").unwrap();
    let modules = "[submodule \"inner\"]\n\tpath = inner\n\turl = ./inner\n\tignore = none\n";
    std::fs::write(stage.path(".gitmodules"), modules).unwrap();
    stage.git(&["init", "-q", "inner"]);
    stage.git(&["-C", "inner", "add", "f"]);
    stage.git(&["-C", "inner", "commit", "-q", "-m", "inner"]);
    stage.git(&["-c", "advice.addEmbeddedRepo=false", "add", "--all"]);
    stage.git(&["commit", "-q", "-m", "with inner"]);
    let plant = format!("touch {0}/PWNED {0}/hooks/pre-push; cat", stage.path(".git").display());
    stage.git(&["-C", "inner", "config", "filter.x.clean", &plant]);
    std::fs::create_dir_all(stage.path("inner/.git/info")).unwrap();
    std::fs::write(stage.path("inner/.git/info/attributes"), "* filter=x\n").unwrap();
    for (number, args) in [
        json!({ "message": "m", "all": true }),
        json!({ "message": "m", "paths": ["new", "inner"] }),
        json!({ "message": "nothing", "all": true }),
        json!({ "message": "nothing" }),
    ]
    .into_iter()
    .enumerate()
    {
        // The same length and a newer time: only the content differs.
        std::fs::write(stage.path("inner/f"), format!("{number}\n")).unwrap();
        if number < 2 {
            std::fs::write(stage.path("new"), format!("{number}\n")).unwrap();
            assert_eq!(stage.json("sandbox_git_commit", args).await["filesChanged"], 1);
        } else {
            let nothing = stage.run("sandbox_git_commit", args).await;
            assert_eq!(nothing.fault.unwrap().kind, FaultKind::NothingToCommit);
        }
        for planted in ["PWNED", "hooks/pre-push"] {
            assert!(!stage.path(".git").join(planted).exists(), "{planted} by commit {number}");
        }
    }
}

/// A filter of the user runs during a commit, and files that git executes or trusts stay closed to it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_a_repository_runs_or_believes_is_closed_to_a_commit() {
    let Some(stage) = Stage::confined().await else { return };
    let git = stage.path(".git").display().to_string();
    let plant = format!("touch {git}/ran; echo x > {git}/hooks/pre-push; echo x >> {git}/config; cat");
    stage.git(&["config", "filter.x.clean", &plant]);
    std::fs::write(stage.path(".gitattributes"), "filtered filter=x\n").unwrap();
    std::fs::write(stage.path("filtered"), "1\n").unwrap();
    let config = std::fs::read(stage.path(".git/config")).unwrap();
    stage.json("sandbox_git_commit", json!({ "message": "m", "all": true })).await;
    assert!(stage.path(".git/ran").exists());
    assert!(!stage.path(".git/hooks/pre-push").exists());
    assert_eq!(std::fs::read(stage.path(".git/config")).unwrap(), config);
    // A missing file cannot be closed, but its creation is detected.
    stage.git(&["config", "filter.x.clean", &format!("echo /tmp > {git}/commondir; cat")]);
    std::fs::write(stage.path("filtered"), "2\n").unwrap();
    let done = stage.run("sandbox_git_commit", json!({ "message": "m", "all": true })).await;
    let fault = done.fault.unwrap();
    assert_eq!(fault.kind, FaultKind::ProtectedPath);
    assert!(fault.message.contains("commondir; the change was reverted"), "{}", fault.message);
    assert!(!stage.path(".git/commondir").exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn git_works_behind_walls_and_changes_the_repository_only_to_commit() {
    let Some(stage) = Stage::confined().await else { return };
    fs::write(stage.path("tracked"), "second\n").unwrap();
    let status = stage.json("sandbox_git_status", json!({})).await;
    assert_eq!(status["unstaged"][0]["path"], "tracked");
    let outcome = stage.run("sandbox_git_diff", json!({})).await;
    assert!(outcome.text.contains("+second"), "{outcome:?}");
    let done = stage.json("sandbox_git_commit", json!({ "message": "behind walls", "all": true })).await;
    assert_eq!((&done["branch"], &done["filesChanged"]), (&json!("main"), &json!(1)));
    assert!(stage.git(&["log", "-1", "--format=%s"]).starts_with("behind walls"));
    // A program that the repository contains runs in confinement, too, and reaches nothing.
    let filter =
        format!("echo ran > {0}; echo ran > .git/hooks/ran; cat", stage.path("../home/escaped").display());
    stage.git(&["config", "filter.evil.clean", &filter]);
    fs::write(stage.path(".gitattributes"), "* filter=evil\n").unwrap();
    fs::write(stage.path("tracked"), "third\n").unwrap();
    let status = stage.json("sandbox_git_status", json!({})).await;
    assert_eq!(status["unstaged"][0]["path"], "tracked");
    assert!(!stage.path("../home/escaped").exists() && !stage.path(".git/hooks/ran").exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_commit_behind_walls_reaches_a_repository_that_lies_elsewhere() {
    let Some(mut stage) = Stage::confined().await else { return };
    stage.git(&["worktree", "add", "-q", "../other", "-b", "side"]);
    fs::create_dir(stage.path("sub")).unwrap();
    for (folder, branch) in [("../other", "side"), ("sub", "main")] {
        stage.enter(folder);
        stage.confine().await;
        let wrote = stage.run("sandbox_write_file", json!({ "path": "new", "content": "x" })).await;
        assert_eq!(wrote.fault, None);
        let done = stage.json("sandbox_git_commit", json!({ "message": "elsewhere", "all": true })).await;
        assert_eq!((&done["branch"], &done["filesChanged"]), (&json!(branch), &json!(1)), "{folder}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_command_behind_walls_says_what_it_may_not_and_goes_outside_where_that_was_allowed() {
    let Some(stage) = Stage::confined().await else { return };
    let out = stage.path("../home/file");
    let command = format!("echo x > {}", out.display());
    let (outcome, printed) = stage.exec(json!({ "command": command })).await;
    assert_eq!(kind(&outcome), Some(FaultKind::ExitCode), "{printed}");
    assert!(printed.contains("Read-only file system") && !out.exists(), "{printed}");
    let (outcome, printed) = stage.exec(json!({ "command": command, "outside": true })).await;
    assert_eq!((outcome.fault, out.exists()), (None, true), "{printed}");
    let (outcome, _) = stage.exec(json!({ "command": "sleep 1000 & echo left" })).await;
    assert_eq!(outcome.exit_code, Some(0));
}
