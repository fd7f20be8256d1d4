//! The tools that need more than files: commands, git and the network, with real processes, repositories and sockets.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken fixture is a failed test")]

mod fetching;
mod fixture;
mod git_commands;
mod program_hijacking;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use fixture::{Fixture, Server, parse};
use pushd::agent::inquiry;
use pushd::kernel::event::ToolOutcome;
use pushd::redact::Redactor;
use pushd::tools::{ExecutionResult, Limits, Network, Risk, ToolErrorKind, ToolSet, run};
use serde_json::{Value, json};
use tokio::sync::mpsc;

#[tokio::test]
async fn a_command_runs_in_the_workspace_and_reports_its_exit() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("sub")).unwrap();
    let (outcome, printed) = fixture.exec(json!({ "command": "pwd; echo oops >&2; exit 3", "cwd": "sub" })).await;
    assert_eq!((outcome.outcome, outcome.exit_code), (ToolOutcome::Failed, Some(3)));
    assert_eq!(error_kind(&outcome), Some(ToolErrorKind::ExitCode));
    assert!(printed.contains("/sub\n") && printed.contains("oops\n"), "{printed}");
    let (outcome, _) = fixture.exec(json!({ "command": "true" })).await;
    assert_eq!((outcome.outcome, outcome.exit_code, outcome.error), (ToolOutcome::Succeeded, Some(0), None));
}

#[tokio::test]
async fn a_command_does_not_start_outside_of_the_workspace() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), "").unwrap();
    for (cwd, expected) in [
        ("..", ToolErrorKind::OutsideWorkspace),
        ("/", ToolErrorKind::OutsideWorkspace),
        ("none", ToolErrorKind::NotFound),
        ("file", ToolErrorKind::NotADirectory),
    ] {
        let (outcome, printed) = fixture.exec(json!({ "command": "echo ran", "cwd": cwd })).await;
        assert_eq!((error_kind(&outcome), printed.as_str()), (Some(expected), ""), "{cwd}");
    }
}

#[tokio::test]
async fn a_command_is_ended_at_its_own_time_limit_and_at_the_session_s() {
    let mut fixture = Fixture::new();
    let (outcome, _) = fixture.exec(json!({ "command": "sleep 1000", "timeoutSeconds": 0 })).await;
    assert_eq!(error_kind(&outcome), Some(ToolErrorKind::TimeLimit));
    fixture.context.limits.step_timeout = Duration::ZERO;
    let (outcome, _) = fixture.exec(json!({ "command": "sleep 1000", "timeoutSeconds": 600 })).await;
    assert_eq!(error_kind(&outcome), Some(ToolErrorKind::TimeLimit));
}

#[tokio::test]
async fn a_command_ends_with_its_run() {
    let fixture = Fixture::new();
    let (out, mut received) = mpsc::channel(4);
    let bench = fixture.context.clone();
    let request = parse("sandbox_exec", r#"{"command":"echo up; sleep 1000"}"#).unwrap();
    let going = tokio::spawn(async move { run(request, &bench, out).await });
    assert!(received.recv().await.is_some());
    fixture.context.sandbox.stop(Duration::from_secs(10)).await.unwrap();
    let outcome = going.await.unwrap();
    assert_eq!((outcome.outcome, error_kind(&outcome)), (ToolOutcome::Aborted, Some(ToolErrorKind::Aborted)));
}

#[tokio::test]
async fn a_change_of_a_protected_file_is_refused_without_approval() {
    let fixture = Fixture::new();
    for (tool, args) in [
        ("sandbox_write_file", json!({"path": ".git/hooks/pre-commit", "content": "x"})),
        ("sandbox_write_file", json!({"path": "sub/.GIT/config", "content": "x"})),
        ("sandbox_edit_file", json!({"path": ".push/config.toml", "old": "a", "new": "b"})),
        ("sandbox_edit_file", json!({"patch": "--- /dev/null\n+++ b/.push/x\n@@ -0,0 +1 @@\n+x\n"})),
    ] {
        let refused = fixture.approval_question(tool, args).await.unwrap_err();
        assert_eq!(refused.kind, ToolErrorKind::ProtectedPath, "{tool}");
    }
}

#[tokio::test]
async fn the_approval_of_a_command_shows_it() {
    let fixture = Fixture::new();
    let question =
        fixture.approval_question("sandbox_exec", json!({ "command": "sudo make", "cwd": "sub" })).await.unwrap();
    assert_eq!((question.kind, question.summary.as_str(), question.risk), ("exec", "sudo make", Risk::High));
    assert_eq!((&question.details["cwd"], &question.details["risk"]), (&json!("sub"), &json!("high")));
}

#[tokio::test]
async fn the_approval_of_a_change_shows_the_diff_or_says_why_there_is_none() {
    let fixture = Fixture::new();
    fs::write(fixture.path("f"), "one\ntwo\n").unwrap();
    let edit = |old: &str| json!({ "path": "f", "old": old, "new": "2" });
    let question = fixture.approval_question("sandbox_edit_file", edit("two")).await.unwrap();
    assert_eq!((question.kind, question.title.as_str()), ("write", "Approve writing f"));
    assert_eq!(question.details["diff"], "--- f\n+++ f\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n");
    let hopeless = fixture.approval_question("sandbox_edit_file", edit("three")).await.unwrap_err();
    assert_eq!(hopeless.kind, ToolErrorKind::NoMatch);
    let write =
        fixture.approval_question("sandbox_write_file", json!({ "path": "new/f", "content": "x\n" })).await.unwrap();
    assert_eq!(write.summary, "create new/f: 1 insertion, 0 deletions");
    assert!(!fixture.path("new").exists());
    assert_eq!(fs::read_to_string(fixture.path("f")).unwrap(), "one\ntwo\n");
    let outside =
        fixture.approval_question("sandbox_write_file", json!({ "path": "../f", "content": "" })).await.unwrap_err();
    assert_eq!(outside.kind, ToolErrorKind::OutsideWorkspace);
}

#[tokio::test]
async fn the_status_of_a_repository_is_reported() {
    let fixture = Fixture::repository();
    fs::write(fixture.path("tracked"), "changed\n").unwrap();
    fs::write(fixture.path("fresh file"), "x").unwrap();
    fs::write(fixture.path("staged"), "x").unwrap();
    fixture.git(&["add", "staged"]);
    let status = fixture.json("sandbox_git_status", json!({})).await;
    assert_eq!(status["branch"], "main");
    assert_eq!(status["commit"].as_str().unwrap().len(), 40);
    assert_eq!(status["staged"], json!([{ "path": "staged", "change": "added" }]));
    assert_eq!(status["unstaged"], json!([{ "path": "tracked", "change": "modified" }]));
    assert_eq!(status["untracked"], json!(["fresh file"]));
}

#[tokio::test]
async fn a_workspace_inside_a_repository_sees_its_own_paths() {
    let mut fixture = Fixture::repository();
    fs::create_dir(fixture.path("sub")).unwrap();
    fs::write(fixture.path("sub/inner"), "x\n").unwrap();
    fs::write(fixture.path("outer"), "x\n").unwrap();
    fixture.enter("sub");
    let status = fixture.json("sandbox_git_status", json!({})).await;
    assert_eq!(status["untracked"], json!(["inner"]));
    let committed = fixture.json("sandbox_git_commit", json!({ "message": "inner", "all": true })).await;
    assert_eq!(committed["filesChanged"], 1);
    assert_eq!(fixture.git(&["status", "--porcelain"]), "?? outer\n");
    let outside = fixture.run("sandbox_git_diff", json!({ "paths": ["../outer"] })).await;
    assert_eq!(error_kind(&outside), Some(ToolErrorKind::OutsideWorkspace));
}

#[tokio::test]
async fn differences_are_shown_staged_and_not() {
    let fixture = Fixture::repository();
    assert_eq!(fixture.run("sandbox_git_diff", json!({})).await.text, "no changes\n");
    fs::write(fixture.path("tracked"), "staged\n").unwrap();
    fixture.git(&["add", "tracked"]);
    fs::write(fixture.path("tracked"), "unstaged\n").unwrap();
    let unstaged = fixture.run("sandbox_git_diff", json!({})).await.text;
    assert!(unstaged.contains("-staged\n+unstaged\n"), "{unstaged}");
    let staged = fixture.run("sandbox_git_diff", json!({ "staged": true, "paths": ["tracked"] })).await.text;
    assert!(staged.contains("-first\n+staged\n"), "{staged}");
    let other = fixture.run("sandbox_git_diff", json!({ "paths": ["none"] })).await.text;
    assert_eq!(other, "no changes\n");
}

#[tokio::test]
async fn a_commit_is_previewed_as_it_will_be_and_then_made() {
    let fixture = Fixture::repository();
    fs::write(fixture.path("tracked"), "second\nthird\n").unwrap();
    fs::write(fixture.path("new"), "1\n2\n3").unwrap();
    let args = json!({ "message": "feat: two files\n\nMore.", "all": true });
    let before = fixture.git(&["status", "--porcelain"]);
    let question = fixture.approval_question("sandbox_git_commit", args.clone()).await.unwrap();
    assert_eq!((question.kind, question.title.as_str()), ("commit", "Approve commit"));
    assert_eq!(question.summary, "feat: two files");
    let counts = |value: &Value| ["filesChanged", "insertions", "deletions"].map(|name| value[name].as_u64().unwrap());
    assert_eq!(counts(&question.details), [2, 5, 1]);
    assert_eq!(question.details["message"], "feat: two files\n\nMore.");
    assert_eq!(fixture.git(&["status", "--porcelain"]), before, "a question changes nothing");
    let result = fixture.run("sandbox_git_commit", args.clone()).await;
    let diff = result.diff.unwrap();
    assert!(diff.text.starts_with("diff --git a/new b/new\n") && diff.text.contains("\n+third\n"), "{diff:?}");
    assert!(!diff.truncated);
    let committed: Value = serde_json::from_str(&result.text).unwrap();
    assert_eq!(counts(&committed), [2, 5, 1]);
    assert_eq!(committed["branch"], "main");
    assert_eq!(fixture.git(&["log", "-1", "--format=%H %s %b"]).trim(), {
        format!("{} feat: two files More.", committed["commit"].as_str().unwrap())
    });
    let again = fixture.run("sandbox_git_commit", args.clone()).await;
    assert_eq!(error_kind(&again), Some(ToolErrorKind::NothingToCommit), "{again:?}");
    let nothing = fixture.approval_question("sandbox_git_commit", args).await.unwrap_err();
    assert_eq!(nothing.kind, ToolErrorKind::NothingToCommit);
}

#[tokio::test]
async fn a_commit_of_paths_leaves_the_rest_alone() {
    let fixture = Fixture::repository();
    for name in ["a", "b", "it's"] {
        fs::write(fixture.path(name), "x\n").unwrap();
    }
    fixture.git(&["add", "b"]);
    let args = json!({ "message": "a alone", "paths": ["a", "it's"] });
    assert_eq!(fixture.approval_question("sandbox_git_commit", args.clone()).await.unwrap().details["filesChanged"], 2);
    assert_eq!(fixture.json("sandbox_git_commit", args).await["filesChanged"], 2);
    assert_eq!(fixture.git(&["status", "--porcelain"]), "A  b\n");
    let args = json!({ "message": "what is staged" });
    assert_eq!(fixture.approval_question("sandbox_git_commit", args.clone()).await.unwrap().details["filesChanged"], 1);
    assert_eq!(fixture.json("sandbox_git_commit", args).await["filesChanged"], 1);
    let missing = fixture.run("sandbox_git_commit", json!({ "message": "m", "paths": ["none"] })).await;
    assert_eq!(error_kind(&missing), Some(ToolErrorKind::NotFound), "{missing:?}");
}

#[tokio::test]
async fn the_first_commit_of_a_repository_is_previewed_and_made() {
    let fixture = Fixture::new();
    fixture.git(&["init", "-q", "-b", "main"]);
    fs::write(fixture.path("a"), "1\n2\n").unwrap();
    let args = json!({ "message": "begin", "all": true });
    let question = fixture.approval_question("sandbox_git_commit", args.clone()).await.unwrap();
    assert_eq!((&question.details["insertions"], &question.details["branch"]), (&json!(2), &json!("main")));
    assert_eq!(fixture.json("sandbox_git_commit", args).await["insertions"], 2);
}

#[tokio::test]
async fn nothing_of_a_repository_is_run() {
    let fixture = Fixture::repository();
    let trap = fixture.path("trap");
    fs::write(&trap, format!("#!/bin/sh\necho $0 >> {}\n", fixture.path("executed").display())).unwrap();
    fs::set_permissions(&trap, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for hook in ["pre-commit", "commit-msg", "post-commit", "post-index-change", "prepare-commit-msg"] {
        fs::copy(&trap, fixture.path(&format!(".git/hooks/{hook}"))).unwrap();
    }
    for name in ["core.fsmonitor", "core.pager", "core.editor", "diff.external", "gpg.program", "diff.x.textconv"] {
        fixture.git(&["config", name, trap.to_str().unwrap()]);
    }
    fixture.git(&["config", "commit.gpgSign", "true"]);
    fs::write(fixture.path(".gitattributes"), "* diff=x\n").unwrap();
    fs::write(fixture.path("tracked"), "changed\n").unwrap();
    fixture.json("sandbox_git_status", json!({})).await;
    fixture.run("sandbox_git_diff", json!({})).await;
    let args = json!({ "message": "m", "all": true });
    fixture.approval_question("sandbox_git_commit", args.clone()).await.unwrap();
    fixture.json("sandbox_git_commit", args).await;
    let executed = fs::read_to_string(fixture.path("executed")).unwrap_or_default();
    assert_eq!(executed, "", "these were run");
}

#[tokio::test]
async fn without_a_repository_git_says_so() {
    let fixture = Fixture::new();
    for (tool, args) in [
        ("sandbox_git_status", json!({})),
        ("sandbox_git_diff", json!({})),
        ("sandbox_git_commit", json!({ "message": "m", "all": true })),
    ] {
        assert_eq!(error_kind(&fixture.run(tool, args).await), Some(ToolErrorKind::NotARepository), "{tool}");
    }
    let question = fixture.approval_question("sandbox_git_commit", json!({ "message": "m" })).await.unwrap_err();
    assert_eq!(question.kind, ToolErrorKind::NotARepository);
}

#[tokio::test]
async fn a_page_is_fetched_as_text() {
    let fixture = Fixture::new();
    let server = Server::start(|path| match path {
        "/" => "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello".into(),
        "/moved" => "HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n".into(),
        "/away" => "HTTP/1.1 302 Found\r\nlocation: http://other.example/x\r\ncontent-length: 0\r\n\r\n".into(),
        "/loop" => "HTTP/1.1 302 Found\r\nlocation: /loop\r\ncontent-length: 0\r\n\r\n".into(),
        "/image" => "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 1\r\n\r\nx".into(),
        "/busy" => "HTTP/1.1 503 Busy\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nlater".into(),
        "/broken" => "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 500\r\n\r\nhel".into(),
        _ => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".into(),
    });
    let fetch = async |path: &str| fixture.run("sandbox_fetch", json!({ "url": server.url(path) })).await;
    assert_eq!(fetch("/").await.text, format!("[200 text/plain, 5 bytes, {}]\nhello", server.url("/")));
    assert!(fetch("/moved").await.text.ends_with("/]\nhello"));
    for (path, expected) in [
        ("/away", ToolErrorKind::RedirectedAway),
        ("/loop", ToolErrorKind::NetworkFailed),
        ("/image", ToolErrorKind::NotText),
        ("/busy", ToolErrorKind::NetworkFailed),
        ("/broken", ToolErrorKind::NetworkFailed),
        ("/none", ToolErrorKind::HttpStatus),
    ] {
        assert_eq!(error_kind(&fetch(path).await), Some(expected), "{path}");
    }
    let away = fetch("/away").await.error.unwrap();
    assert_eq!(away.detail.as_deref(), Some("http://other.example/x"));
}

#[tokio::test]
async fn fetching_is_bounded_and_off_unless_it_is_allowed() {
    let mut fixture = Fixture::new();
    let server = Server::start(|path| match path {
        "/silent" => String::new(),
        _ => format!("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n{}", "x".repeat(100_000)),
    });
    fixture.context.limits = Limits { fetch_bytes: 50, fetch_timeout: Duration::from_millis(300), ..Limits::default() };
    let long = fixture.run("sandbox_fetch", json!({ "url": server.url("/") })).await.text;
    assert!(long.contains("more than 50 bytes") && long.ends_with(&format!("]\n{}", "x".repeat(50))), "{long}");
    let silent = fixture.run("sandbox_fetch", json!({ "url": server.url("/silent") })).await;
    assert_eq!(error_kind(&silent), Some(ToolErrorKind::TimeLimit));
    fixture.context.network = Network::Off;
    let off = fixture.run("sandbox_fetch", json!({ "url": server.url("/") })).await;
    assert_eq!(error_kind(&off), Some(ToolErrorKind::NetworkOff));
}

#[tokio::test]
async fn a_private_key_is_redacted_in_whatever_parts_it_is_read() {
    let mut fixture = Fixture::new();
    fixture.context.redact = Arc::new(|text| Redactor::default().redact(text).into_owned());
    let body: Vec<String> = (0..40).map(|line| format!("MIIEow{line:02}{}", "IBAAKCAQEA".repeat(5))).collect();
    let key = format!("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----", body.join("\n"));
    let long = "x = 1\n".repeat(20_000);
    let code = "let marker = \"-----BEGIN PRIVATE KEY-----\";\nlet IBAAKCAQEA = 1;\n";
    std::fs::write(fixture.path("key"), format!("{code}{long}{key}\nafter IBAAKCAQEA\n")).unwrap();
    for offset in [20_004, 20_010, 20_042] {
        let read = fixture.run("sandbox_read_file", json!({"path": "key", "offset": offset})).await.text;
        assert!(!read.contains("MIIEow") && read.contains("after IBAAKCAQEA"), "{offset}: {read}");
    }
    let read = fixture.run("sandbox_read_file", json!({"path": "key", "offset": 20_010, "limit": 3})).await.text;
    assert_eq!(read, "[lines 20010-20012 of 20045]\n[redacted]");
    let read = fixture.run("sandbox_read_file", json!({"path": "key", "offset": 2, "limit": 1})).await.text;
    assert_eq!(read, "[lines 2-2 of 20045]\nlet IBAAKCAQEA = 1;\n", "code that speaks of keys is none");
    let found = fixture.json("sandbox_search", json!({"pattern": "IBAAKCAQEA"})).await;
    let hits: Vec<_> = found["hits"].as_array().unwrap().iter().map(|hit| hit["text"].as_str().unwrap()).collect();
    assert_eq!(hits.len(), 42);
    assert_eq!((hits[0], hits[41]), ("let IBAAKCAQEA = 1;", "after IBAAKCAQEA"));
    assert!(hits[1..41].iter().all(|hit| *hit == "[redacted]"), "{hits:?}");
}

#[test]
fn every_tool_is_documented_with_arguments_that_it_takes() {
    let page = include_str!("../../docs/tools.md");
    for tool in ToolSet::builtin().available(Network::Allowed) {
        let name = tool.name();
        let (_, section) = page.split_once(&format!("\n## {name}\n")).expect(name);
        let section = section.split("\n## ").next().unwrap();
        let examples: Vec<Value> = section
            .split("```json\n")
            .skip(1)
            .map(|rest| serde_json::from_str(rest.split("\n```").next().unwrap()).unwrap())
            .collect();
        assert!(!examples.is_empty(), "{name} has no example");
        for example in examples {
            assert_eq!(example["tool"], name);
            parse(name, &example["args"].to_string()).unwrap();
        }
        for argument in tool.schema()["properties"].as_object().unwrap().keys() {
            assert!(section.contains(&format!("`{argument}`")), "{name}: {argument}");
        }
    }
}

#[test]
fn the_question_to_the_user_is_documented_like_a_tool() {
    let page = include_str!("../../docs/tools.md");
    let (_, section) = page.split_once("\n## ask_user\n").expect("a section");
    let section = section.split("\n## ").next().unwrap();
    let example = section.split("```json\n").nth(1).expect("an example").split("\n```").next().unwrap();
    let example: Value = serde_json::from_str(example).unwrap();
    assert_eq!(example["tool"], inquiry::ASK_USER);
    inquiry::parse_question(&example["args"].to_string()).expect("it can be asked");
    for argument in inquiry::tool().schema["properties"].as_object().unwrap().keys() {
        assert!(section.contains(&format!("`{argument}`")), "{argument}");
    }
}

fn error_kind(outcome: &ExecutionResult) -> Option<ToolErrorKind> {
    outcome.error.as_ref().map(|fault| fault.kind)
}

/// The filters of a nested repository belong to its author, and a commit may change the outer one.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_commit_runs_nothing_of_a_nested_repository() {
    let Some(fixture) = Fixture::confined().await else { return };
    std::fs::create_dir(fixture.path("inner")).unwrap();
    std::fs::write(fixture.path("inner/f"), "x\n").unwrap();
    let modules = "[submodule \"inner\"]\n\tpath = inner\n\turl = ./inner\n\tignore = none\n";
    std::fs::write(fixture.path(".gitmodules"), modules).unwrap();
    fixture.git(&["init", "-q", "inner"]);
    fixture.git(&["-C", "inner", "add", "f"]);
    fixture.git(&["-C", "inner", "commit", "-q", "-m", "inner"]);
    fixture.git(&["-c", "advice.addEmbeddedRepo=false", "add", "--all"]);
    fixture.git(&["commit", "-q", "-m", "with inner"]);
    let plant = format!("touch {0}/PWNED {0}/hooks/pre-push; cat", fixture.path(".git").display());
    fixture.git(&["-C", "inner", "config", "filter.x.clean", &plant]);
    std::fs::create_dir_all(fixture.path("inner/.git/info")).unwrap();
    std::fs::write(fixture.path("inner/.git/info/attributes"), "* filter=x\n").unwrap();
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
        std::fs::write(fixture.path("inner/f"), format!("{number}\n")).unwrap();
        if number < 2 {
            std::fs::write(fixture.path("new"), format!("{number}\n")).unwrap();
            assert_eq!(fixture.json("sandbox_git_commit", args).await["filesChanged"], 1);
        } else {
            let nothing = fixture.run("sandbox_git_commit", args).await;
            assert_eq!(nothing.error.unwrap().kind, ToolErrorKind::NothingToCommit);
        }
        for planted in ["PWNED", "hooks/pre-push"] {
            assert!(!fixture.path(".git").join(planted).exists(), "{planted} by commit {number}");
        }
    }
}

/// A filter of the user runs during a commit, and files that git executes or trusts stay closed to it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn files_that_git_executes_or_trusts_are_closed_to_a_commit() {
    let Some(fixture) = Fixture::confined().await else { return };
    let git = fixture.path(".git").display().to_string();
    let plant = format!("touch {git}/ran; echo x > {git}/hooks/pre-push; echo x >> {git}/config; cat");
    fixture.git(&["config", "filter.x.clean", &plant]);
    std::fs::write(fixture.path(".gitattributes"), "filtered filter=x\n").unwrap();
    std::fs::write(fixture.path("filtered"), "1\n").unwrap();
    let config = std::fs::read(fixture.path(".git/config")).unwrap();
    fixture.json("sandbox_git_commit", json!({ "message": "m", "all": true })).await;
    assert!(fixture.path(".git/ran").exists());
    assert!(!fixture.path(".git/hooks/pre-push").exists());
    assert_eq!(std::fs::read(fixture.path(".git/config")).unwrap(), config);
    // A missing file cannot be closed, but its creation is detected.
    fixture.git(&["config", "filter.x.clean", &format!("echo /tmp > {git}/commondir; cat")]);
    std::fs::write(fixture.path("filtered"), "2\n").unwrap();
    let done = fixture.run("sandbox_git_commit", json!({ "message": "m", "all": true })).await;
    let fault = done.error.unwrap();
    assert_eq!(fault.kind, ToolErrorKind::ProtectedPath);
    assert!(fault.message.contains("commondir; the change was reverted"), "{}", fault.message);
    assert!(!fixture.path(".git/commondir").exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn git_works_in_confinement_and_changes_the_repository_only_to_commit() {
    let Some(fixture) = Fixture::confined().await else { return };
    fs::write(fixture.path("tracked"), "second\n").unwrap();
    let status = fixture.json("sandbox_git_status", json!({})).await;
    assert_eq!(status["unstaged"][0]["path"], "tracked");
    let outcome = fixture.run("sandbox_git_diff", json!({})).await;
    assert!(outcome.text.contains("+second"), "{outcome:?}");
    let done = fixture.json("sandbox_git_commit", json!({ "message": "in the sandbox", "all": true })).await;
    assert_eq!((&done["branch"], &done["filesChanged"]), (&json!("main"), &json!(1)));
    assert!(fixture.git(&["log", "-1", "--format=%s"]).starts_with("in the sandbox"));
    // A program that the repository contains runs in confinement, too, and reaches nothing.
    let filter = format!("echo ran > {0}; echo ran > .git/hooks/ran; cat", fixture.path("../home/escaped").display());
    fixture.git(&["config", "filter.evil.clean", &filter]);
    fs::write(fixture.path(".gitattributes"), "* filter=evil\n").unwrap();
    fs::write(fixture.path("tracked"), "third\n").unwrap();
    let status = fixture.json("sandbox_git_status", json!({})).await;
    assert_eq!(status["unstaged"][0]["path"], "tracked");
    assert!(!fixture.path("../home/escaped").exists() && !fixture.path(".git/hooks/ran").exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_confined_commit_reaches_a_repository_elsewhere() {
    let Some(mut fixture) = Fixture::confined().await else { return };
    fixture.git(&["worktree", "add", "-q", "../other", "-b", "side"]);
    fs::create_dir(fixture.path("sub")).unwrap();
    for (folder, branch) in [("../other", "side"), ("sub", "main")] {
        fixture.enter(folder);
        fixture.confine().await;
        let wrote = fixture.run("sandbox_write_file", json!({ "path": "new", "content": "x" })).await;
        assert_eq!(wrote.error, None);
        let done = fixture.json("sandbox_git_commit", json!({ "message": "elsewhere", "all": true })).await;
        assert_eq!((&done["branch"], &done["filesChanged"]), (&json!(branch), &json!(1)), "{folder}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_confined_command_reports_denied_access_and_runs_outside_where_allowed() {
    let Some(fixture) = Fixture::confined().await else { return };
    let out = fixture.path("../home/file");
    let command = format!("echo x > {}", out.display());
    let (outcome, printed) = fixture.exec(json!({ "command": command })).await;
    assert_eq!(error_kind(&outcome), Some(ToolErrorKind::ExitCode), "{printed}");
    assert!(printed.contains("Read-only file system") && !out.exists(), "{printed}");
    let (outcome, printed) = fixture.exec(json!({ "command": command, "outside": true })).await;
    assert_eq!((outcome.error, out.exists()), (None, true), "{printed}");
    let (outcome, _) = fixture.exec(json!({ "command": "sleep 1000 & echo left" })).await;
    assert_eq!(outcome.exit_code, Some(0));
}
