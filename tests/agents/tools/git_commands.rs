//! Commands that use git: an approved one works, one that cannot work in the sandbox says so, and errors are
//! those of git.

use std::fs;
#[cfg(target_os = "linux")]
use std::os::unix::fs::PermissionsExt;

use pushd::tools::{ExecutionResult, ToolErrorKind};
use serde_json::json;

use crate::tools::fixture::{Fixture, Server};

#[cfg(target_os = "linux")]
#[tokio::test]
async fn git_commands_change_the_repository_in_the_sandbox() {
    for fixture in Fixture::confined_by_every_mechanism().await {
        // None of these can work there: keys and agents are hidden, and background processes end.
        for (name, value) in
            [("commit.gpgSign", "true"), ("gpg.program", "/nowhere"), ("gc.auto", "1"), ("core.fsmonitor", "true")]
        {
            fixture.git(&["config", name, value]);
        }
        fs::write(fixture.path("new"), "new\n").unwrap();
        for command in [
            "git add new",
            "git commit -m second",
            "git checkout -b topic",
            "echo more >> new && git stash",
            "git stash pop && git add -A && git commit -q -m third",
            "git checkout main",
            "git merge -q topic",
            "git tag v1 && git branch -d topic",
            "git switch -c other && git commit -q --allow-empty -m fourth && git switch main && git cherry-pick --allow-empty other",
            "git reset --hard HEAD~1",
            "git rm -q tracked && git mv new newer && git commit -q -m fifth",
            "git notes add -m note && git pack-refs --all && git gc -q",
        ] {
            let (outcome, printed) = fixture.exec(json!({ "command": command })).await;
            assert_eq!((outcome.exit_code, &outcome.error), (Some(0), &None), "{command}: {printed}");
        }
        assert_eq!(fixture.git(&["log", "-1", "--format=%s", "main"]), "fifth\n");
        assert_eq!(fixture.git(&["status", "--porcelain"]), "");
        assert_eq!(fixture.git(&["stash", "list"]), "");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn git_commands_work_in_a_linked_working_tree_and_below_the_repository() {
    for mut fixture in Fixture::confined_by_every_mechanism().await {
        fixture.git(&["worktree", "add", "-q", "../other", "-b", "side"]);
        fs::create_dir(fixture.path("sub")).unwrap();
        for (folder, branch) in [("../other", "topic"), ("sub", "below")] {
            fixture.enter(folder);
            fixture.confine().await;
            let command = format!(
                "echo {branch} > {branch} && git add {branch} && git commit -q -m {branch} && git checkout -q -b {branch}"
            );
            let (outcome, printed) = fixture.exec(json!({ "command": command })).await;
            assert_eq!((outcome.exit_code, &outcome.error), (Some(0), &None), "{folder}: {printed}");
            assert_eq!(fixture.git(&["log", "-1", "--format=%s", branch]), format!("{branch}\n"));
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_commit_with_another_submodule_is_checked_out_as_a_whole() {
    for fixture in Fixture::confined_by_every_mechanism().await {
        let first = fixture.git(&["rev-parse", "HEAD"]);
        fixture.git(&["checkout", "-q", "-b", "with"]);
        let entry = format!("160000,{},vendor/lib", first.trim());
        fixture.git(&["update-index", "--add", "--cacheinfo", &entry]);
        fixture.git(&["commit", "-q", "-m", "with a submodule"]);
        let with = fixture.git(&["rev-parse", "HEAD"]);
        fixture.git(&["checkout", "-q", "main"]);
        for command in [
            "git checkout -q with",
            "git switch -q main",
            "git merge -q with",
            "git reset -q --hard HEAD~1",
            "git reset -q --hard with",
        ] {
            let (outcome, printed) = fixture.exec(json!({ "command": command })).await;
            assert_eq!((outcome.exit_code, &outcome.error), (Some(0), &None), "{command}: {printed}");
            assert_eq!(fixture.git(&["status", "--porcelain"]), "", "{command}");
        }
        assert_eq!(fixture.git(&["rev-parse", "main"]), with);
        assert_eq!(fixture.git(&["ls-files", "--stage", "vendor/lib"]).split(' ').next(), Some("160000"));
        // With a repository at that path, `git status` would enter it.
        fixture.git(&["reset", "-q", "--hard", "HEAD~1"]);
        let command = "git init -q vendor/lib && git reset -q --hard with";
        let (outcome, printed) = fixture.exec(json!({ "command": command })).await;
        assert_eq!(error_kind(&outcome), Some(ToolErrorKind::ProtectedPath), "{printed}");
        assert_eq!(fixture.git(&["ls-files", "vendor/lib"]), "");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_tracking_branch_is_created_without_its_configuration() {
    let Some(fixture) = Fixture::confined().await else { return };
    fixture.git(&["clone", "-q", ".", "../upstream"]);
    fixture.git(&["-C", "../upstream", "branch", "feature"]);
    fixture.git(&["remote", "add", "origin", fixture.sibling("upstream").to_str().unwrap()]);
    fixture.git(&["fetch", "-q", "origin"]);
    let (outcome, printed) = fixture.exec(json!({ "command": "git checkout feature" })).await;
    assert_eq!((outcome.exit_code, &outcome.error), (Some(0), &None), "{printed}");
    assert_eq!(fixture.git(&["branch", "--show-current"]), "feature\n");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_branch_that_is_deleted_leaves_its_settings_and_that_is_explained() {
    for fixture in Fixture::confined_by_every_mechanism().await {
        fixture.git(&["branch", "old"]);
        let (outcome, printed) = fixture.exec(json!({ "command": "git branch -d old" })).await;
        assert_eq!((outcome.exit_code, &outcome.error), (Some(0), &None), "{printed}");
        assert_eq!(fixture.git(&["branch", "--list", "old"]), "");
        let complains = printed.contains("could not write config file");
        let explains = printed.ends_with("the rest of the command was done)\n");
        assert_eq!(explains, complains, "{printed}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_command_that_does_not_name_git_sees_the_git_directory_read_only() {
    let Some(fixture) = Fixture::confined().await else { return };
    fs::write(fixture.path("script"), "git add -A\n").unwrap();
    let (outcome, printed) = fixture.exec(json!({ "command": "sh ./script" })).await;
    assert_eq!(error_kind(&outcome), Some(ToolErrorKind::ExitCode));
    assert!(printed.contains("Read-only file system"), "{printed}");
    assert_eq!(fixture.git(&["status", "--porcelain"]), "?? script\n");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn nothing_chosen_by_the_caller_runs_with_a_writable_git_directory() {
    let Some(mut fixture) = Fixture::confined().await else { return };
    let script = "#!/bin/sh\necho planted > .git/commondir\necho ran > ran\n";
    for name in ["script", "bin/git"] {
        fs::create_dir_all(fixture.path(name).parent().unwrap()).unwrap();
        fs::write(fixture.path(name), script).unwrap();
        fs::set_permissions(fixture.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for command in [
        "sh ./script & git add -A; wait",
        "git add -A; ./script",
        "git add -A && make",
        "git -c core.fsmonitor=./script add -A",
        "GIT_EDITOR=./script git commit",
        "git add -A; xargs ./script < /dev/null",
        "git add -A; eval ./script",
        "git add -A; git fetch --upload-pack=./script .",
        "git add -A; git grep -O./script x",
        "echo x > .git/commondir; git add -A",
    ] {
        let args = json!({ "command": command });
        let approval = fixture.approval_question("sandbox_exec", args.clone()).await.unwrap_err();
        let (done, _) = fixture.exec(args).await;
        for fault in [approval, done.error.unwrap()] {
            assert_eq!(fault.kind, ToolErrorKind::ProtectedPath, "{command}: {}", fault.message);
            assert!(fault.message.contains("`outside`"), "{}", fault.message);
        }
    }
    // Programs are searched where no command can write, and hooks do not run.
    let hook = fixture.path(".git/hooks/pre-commit");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\nsh ./script\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let bin = fixture.path("bin").display().to_string();
    fixture.prepend_path(&bin);
    let (outcome, printed) = fixture.exec(json!({ "command": "git add -A && git commit -q -m x" })).await;
    assert_eq!((outcome.exit_code, &outcome.error), (Some(0), &None), "{printed}");
    assert!(!fixture.path("ran").exists() && !fixture.path(".git/commondir").exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn commands_that_change_the_configuration_or_other_working_trees_need_to_run_outside() {
    let Some(fixture) = Fixture::confined().await else { return };
    for (command, verb) in [
        ("git rebase main", "rebase"),
        ("git add -A && git rebase --continue", "rebase"),
        ("git submodule add ./x", "submodule"),
        ("git worktree add ../other", "worktree"),
        ("git config user.name x", "config"),
        ("git init -b main", "init"),
        ("sh -c 'git config core.fsmonitor x'", "config"),
    ] {
        let args = json!({ "command": command });
        let approval = fixture.approval_question("sandbox_exec", args.clone()).await.unwrap_err();
        let (done, printed) = fixture.exec(args).await;
        for fault in [approval, done.error.unwrap()] {
            assert_eq!((fault.kind, printed.as_str()), (ToolErrorKind::ProtectedPath, ""), "{command}");
            assert!(fault.message.contains(&format!("`git {verb}`")), "{}", fault.message);
            assert!(fault.message.contains("`outside`"), "{}", fault.message);
        }
    }
    let args = json!({ "command": "git config some.key value", "outside": true });
    fixture.approval_question("sandbox_exec", args.clone()).await.unwrap();
    let (outcome, printed) = fixture.exec(args).await;
    assert_eq!(outcome.error, None, "{printed}");
    assert_eq!(fixture.git(&["config", "some.key"]), "value\n");
    // A read is no change.
    for command in ["git config --get some.key", "git worktree list", "git submodule status"] {
        let (outcome, printed) = fixture.exec(json!({ "command": command })).await;
        assert_eq!(outcome.error, None, "{command}: {printed}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_approval_of_a_command_shows_its_permissions() {
    let Some(fixture) = Fixture::confined().await else { return };
    let details = async |command: &str| {
        fixture.approval_question("sandbox_exec", json!({ "command": command })).await.unwrap().details
    };
    let git = details("echo x > new && git commit -am x").await;
    assert_eq!((&git["gitDirectory"], git.get("network")), (&json!(true), None));
    let both = details("git fetch origin").await;
    assert_eq!((&both["gitDirectory"], &both["network"]), (&json!(true), &json!(true)));
    let neither = details("make; git status").await;
    assert_eq!((neither.get("gitDirectory"), neither.get("network")), (None, None));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_approved_command_that_uses_the_network_has_network_access() {
    let Some(mut fixture) = Fixture::confined().await else { return };
    let server =
        Server::start(|_| "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello".into());
    let url = server.url("/").replace("127.0.0.1", "localhost");
    let fetch = format!("curl -sS --noproxy '*' {url}");
    if fixture.exec(json!({ "command": "curl --version" })).await.0.error.is_some() {
        return crate::support::skip::skip("there is no curl");
    }
    // Rules allow it: it runs alone, or with read-only commands.
    for command in [fetch.clone(), format!("{fetch} && pwd")] {
        let (outcome, printed) = fixture.exec(json!({ "command": command })).await;
        assert!(outcome.error.is_none() && printed.starts_with("hello"), "{command}: {printed}");
    }
    // With an unknown program in it, the command gets no network without an approval.
    fs::write(fixture.path("script"), format!("{fetch}\n")).unwrap();
    let args = json!({ "command": format!("sh ./script; {fetch}") });
    let (outcome, printed) = fixture.exec(args.clone()).await;
    assert!(outcome.error.is_some() && !printed.contains("hello"), "{printed}");
    // A person has seen the complete command and approved it.
    let question = fixture.approval_question("sandbox_exec", args.clone()).await.unwrap();
    assert_eq!(question.details["network"], json!(true));
    fixture.context.approved_digest = Some(question.digest);
    let (outcome, printed) = fixture.exec(args).await;
    assert_eq!((outcome.error, printed.as_str()), (None, "hellohello"));
}

#[tokio::test]
async fn a_commit_has_the_author_of_the_environment() {
    let mut fixture = Fixture::repository().without_identity();
    fs::write(fixture.path("new"), "new\n").unwrap();
    for (name, value) in [
        ("GIT_AUTHOR_NAME", "Ann"),
        ("GIT_AUTHOR_EMAIL", "ann@example.org"),
        ("GIT_COMMITTER_NAME", "Bob"),
        ("GIT_COMMITTER_EMAIL", "bob@example.org"),
    ] {
        fixture.context.env.push((name.into(), value.into()));
    }
    fixture.json("sandbox_git_commit", json!({ "message": "m", "all": true })).await;
    let who = fixture.git(&["log", "-1", "--format=%an <%ae> %cn <%ce>"]);
    assert_eq!(who, "Ann <ann@example.org> Bob <bob@example.org>\n");
}

#[tokio::test]
async fn a_failed_commit_reports_the_message_of_git_and_keeps_the_index() {
    let fixture = Fixture::repository().without_identity();
    for name in ["staged", "new"] {
        fs::write(fixture.path(name), "x\n").unwrap();
    }
    fixture.git(&["add", "staged"]);
    let index = fs::read(fixture.path(".git/index")).unwrap();
    for args in
        [json!({ "message": "m", "all": true }), json!({ "message": "m", "paths": ["new"] }), json!({ "message": "m" })]
    {
        let fault = fixture.run("sandbox_git_commit", args.clone()).await.error.unwrap();
        assert_eq!(fault.kind, ToolErrorKind::GitFailed, "{args}");
        assert!(fault.message.contains("fatal:") && fault.message.contains("exit code 128"), "{}", fault.message);
        assert!(fault.detail.unwrap().contains("Please tell me who you are"), "{args}");
        assert_eq!(fs::read(fixture.path(".git/index")).unwrap(), index, "{args}");
    }
    assert_eq!(fixture.git(&["status", "--porcelain"]), "A  staged\n?? new\n");
}

#[tokio::test]
async fn a_failed_first_commit_leaves_no_index() {
    let fixture = Fixture::new();
    fixture.git(&["init", "-q", "-b", "main"]);
    let fixture = fixture.without_identity();
    fs::write(fixture.path("new"), "x\n").unwrap();
    let fault = fixture.run("sandbox_git_commit", json!({ "message": "m", "all": true })).await.error.unwrap();
    assert_eq!(fault.kind, ToolErrorKind::GitFailed);
    assert!(!fixture.path(".git/index").exists());
}

#[tokio::test]
async fn a_commit_of_staged_files_lists_the_unstaged_ones() {
    let fixture = Fixture::repository();
    let args = json!({ "message": "m" });
    let plain = fixture.run("sandbox_git_commit", args.clone()).await.error.unwrap();
    assert_eq!((plain.kind, &*plain.message), (ToolErrorKind::NothingToCommit, "there is nothing to commit"));
    for number in 0..12 {
        fs::write(fixture.path(&format!("new{number:02}")), "x\n").unwrap();
    }
    fs::write(fixture.path("tracked"), "changed\n").unwrap();
    let approval = fixture.approval_question("sandbox_git_commit", args.clone()).await.unwrap_err();
    let done = fixture.run("sandbox_git_commit", args).await.error.unwrap();
    for fault in [approval, done] {
        assert_eq!(fault.kind, ToolErrorKind::NothingToCommit);
        for part in
            ["nothing is staged", "untracked: new00, ", "new09 and 2 more", "changed: tracked", "`paths`", "`all`"]
        {
            assert!(fault.message.contains(part), "{part}: {}", fault.message);
        }
    }
}

/// As on a terminal; with two pipes the order would be lost.
#[tokio::test]
async fn output_of_a_command_keeps_its_order_across_both_streams() {
    let fixture = Fixture::new();
    let command = "i=0; while [ $i -lt 1000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let (outcome, printed) = fixture.exec(json!({ "command": command })).await;
    assert_eq!(outcome.error, None);
    let wanted: String = (0..1000).map(|number| format!("out {number}\nerr {number}\n")).collect();
    assert!(printed == wanted, "{:.500}", printed);
}

fn error_kind(outcome: &ExecutionResult) -> Option<ToolErrorKind> {
    outcome.error.as_ref().map(|fault| fault.kind)
}
