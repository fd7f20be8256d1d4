//! Commands that use git: an approved one works, one that cannot work in the sandbox says so, and errors are
//! those of git.

use std::fs;
#[cfg(target_os = "linux")]
use std::os::unix::fs::PermissionsExt;

use pushd::tools::{FaultKind, Outcome};
use serde_json::json;

use crate::stage::{Server, Stage};

#[cfg(target_os = "linux")]
#[tokio::test]
async fn git_commands_change_the_repository_in_the_sandbox() {
    for stage in Stage::confined_in_every_way().await {
        // None of these can work there: keys and agents are hidden, and background processes end.
        for (name, value) in [
            ("commit.gpgSign", "true"),
            ("gpg.program", "/nowhere"),
            ("gc.auto", "1"),
            ("core.fsmonitor", "true"),
        ] {
            stage.git(&["config", name, value]);
        }
        fs::write(stage.path("new"), "new\n").unwrap();
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
            let (outcome, printed) = stage.exec(json!({ "command": command })).await;
            assert_eq!((outcome.exit_code, &outcome.fault), (Some(0), &None), "{command}: {printed}");
        }
        assert_eq!(stage.git(&["log", "-1", "--format=%s", "main"]), "fifth\n");
        assert_eq!(stage.git(&["status", "--porcelain"]), "");
        assert_eq!(stage.git(&["stash", "list"]), "");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn git_commands_work_in_a_linked_working_tree_and_below_the_repository() {
    for mut stage in Stage::confined_in_every_way().await {
        stage.git(&["worktree", "add", "-q", "../other", "-b", "side"]);
        fs::create_dir(stage.path("sub")).unwrap();
        for (folder, branch) in [("../other", "topic"), ("sub", "below")] {
            stage.enter(folder);
            stage.confine().await;
            let command = format!(
                "echo {branch} > {branch} && git add {branch} && git commit -q -m {branch} && git checkout -q -b {branch}"
            );
            let (outcome, printed) = stage.exec(json!({ "command": command })).await;
            assert_eq!((outcome.exit_code, &outcome.fault), (Some(0), &None), "{folder}: {printed}");
            assert_eq!(stage.git(&["log", "-1", "--format=%s", branch]), format!("{branch}\n"));
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_commit_with_another_submodule_is_checked_out_as_a_whole() {
    for stage in Stage::confined_in_every_way().await {
        let first = stage.git(&["rev-parse", "HEAD"]);
        stage.git(&["checkout", "-q", "-b", "with"]);
        let entry = format!("160000,{},vendor/lib", first.trim());
        stage.git(&["update-index", "--add", "--cacheinfo", &entry]);
        stage.git(&["commit", "-q", "-m", "with a submodule"]);
        let with = stage.git(&["rev-parse", "HEAD"]);
        stage.git(&["checkout", "-q", "main"]);
        for command in [
            "git checkout -q with",
            "git switch -q main",
            "git merge -q with",
            "git reset -q --hard HEAD~1",
            "git reset -q --hard with",
        ] {
            let (outcome, printed) = stage.exec(json!({ "command": command })).await;
            assert_eq!((outcome.exit_code, &outcome.fault), (Some(0), &None), "{command}: {printed}");
            assert_eq!(stage.git(&["status", "--porcelain"]), "", "{command}");
        }
        assert_eq!(stage.git(&["rev-parse", "main"]), with);
        assert_eq!(stage.git(&["ls-files", "--stage", "vendor/lib"]).split(' ').next(), Some("160000"));
        // With a repository at that path, `git status` would enter it.
        stage.git(&["reset", "-q", "--hard", "HEAD~1"]);
        let command = "git init -q vendor/lib && git reset -q --hard with";
        let (outcome, printed) = stage.exec(json!({ "command": command })).await;
        assert_eq!(kind(&outcome), Some(FaultKind::ProtectedPath), "{printed}");
        assert_eq!(stage.git(&["ls-files", "vendor/lib"]), "");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_branch_that_follows_another_is_made_without_the_configuration() {
    let Some(stage) = Stage::confined().await else { return };
    stage.git(&["clone", "-q", ".", "../upstream"]);
    stage.git(&["-C", "../upstream", "branch", "feature"]);
    stage.git(&["remote", "add", "origin", stage.beside("upstream").to_str().unwrap()]);
    stage.git(&["fetch", "-q", "origin"]);
    let (outcome, printed) = stage.exec(json!({ "command": "git checkout feature" })).await;
    assert_eq!((outcome.exit_code, &outcome.fault), (Some(0), &None), "{printed}");
    assert_eq!(stage.git(&["branch", "--show-current"]), "feature\n");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_branch_that_is_deleted_leaves_its_settings_and_that_is_explained() {
    for stage in Stage::confined_in_every_way().await {
        stage.git(&["branch", "old"]);
        let (outcome, printed) = stage.exec(json!({ "command": "git branch -d old" })).await;
        assert_eq!((outcome.exit_code, &outcome.fault), (Some(0), &None), "{printed}");
        assert_eq!(stage.git(&["branch", "--list", "old"]), "");
        let complains = printed.contains("could not write config file");
        let explains = printed.ends_with("the rest of the command was done)\n");
        assert_eq!(explains, complains, "{printed}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_command_whose_words_do_not_name_git_finds_the_git_directory_read_only() {
    let Some(stage) = Stage::confined().await else { return };
    fs::write(stage.path("script"), "git add -A\n").unwrap();
    let (outcome, printed) = stage.exec(json!({ "command": "sh ./script" })).await;
    assert_eq!(kind(&outcome), Some(FaultKind::ExitCode));
    assert!(printed.contains("Read-only file system"), "{printed}");
    assert_eq!(stage.git(&["status", "--porcelain"]), "?? script\n");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn nothing_that_a_caller_chooses_runs_beside_a_command_that_changes_the_repository() {
    let Some(mut stage) = Stage::confined().await else { return };
    let script = "#!/bin/sh\necho planted > .git/commondir\necho ran > ran\n";
    for name in ["script", "bin/git"] {
        fs::create_dir_all(stage.path(name).parent().unwrap()).unwrap();
        fs::write(stage.path(name), script).unwrap();
        fs::set_permissions(stage.path(name), fs::Permissions::from_mode(0o755)).unwrap();
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
        let asked = stage.question("sandbox_exec", args.clone()).await.unwrap_err();
        let (done, _) = stage.exec(args).await;
        for fault in [asked, done.fault.unwrap()] {
            assert_eq!(fault.kind, FaultKind::ProtectedPath, "{command}: {}", fault.message);
            assert!(fault.message.contains("`outside`"), "{}", fault.message);
        }
    }
    // Programs are searched where no command can write, and hooks do not run.
    let hook = stage.path(".git/hooks/pre-commit");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\nsh ./script\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let bin = stage.path("bin").display().to_string();
    stage.put_on_path(&bin);
    let (outcome, printed) = stage.exec(json!({ "command": "git add -A && git commit -q -m x" })).await;
    assert_eq!((outcome.exit_code, &outcome.fault), (Some(0), &None), "{printed}");
    assert!(!stage.path("ran").exists() && !stage.path(".git/commondir").exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_changes_the_configuration_or_other_working_trees_needs_to_run_outside() {
    let Some(stage) = Stage::confined().await else { return };
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
        let asked = stage.question("sandbox_exec", args.clone()).await.unwrap_err();
        let (done, printed) = stage.exec(args).await;
        for fault in [asked, done.fault.unwrap()] {
            assert_eq!((fault.kind, printed.as_str()), (FaultKind::ProtectedPath, ""), "{command}");
            assert!(fault.message.contains(&format!("`git {verb}`")), "{}", fault.message);
            assert!(fault.message.contains("`outside`"), "{}", fault.message);
        }
    }
    let args = json!({ "command": "git config some.key value", "outside": true });
    stage.question("sandbox_exec", args.clone()).await.unwrap();
    let (outcome, printed) = stage.exec(args).await;
    assert_eq!(outcome.fault, None, "{printed}");
    assert_eq!(stage.git(&["config", "some.key"]), "value\n");
    // A read is no change.
    for command in ["git config --get some.key", "git worktree list", "git submodule status"] {
        let (outcome, printed) = stage.exec(json!({ "command": command })).await;
        assert_eq!(outcome.fault, None, "{command}: {printed}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_question_of_a_command_says_what_it_is_given() {
    let Some(stage) = Stage::confined().await else { return };
    let details = async |command: &str| {
        stage.question("sandbox_exec", json!({ "command": command })).await.unwrap().details
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
async fn an_approved_command_that_talks_to_other_machines_has_the_network() {
    let Some(mut stage) = Stage::confined().await else { return };
    let server = Server::start(|_| {
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello".into()
    });
    let url = server.url("/").replace("127.0.0.1", "localhost");
    let fetch = format!("curl -sS --noproxy '*' {url}");
    if stage.exec(json!({ "command": "curl --version" })).await.0.fault.is_some() {
        return crate::skip::skip("there is no curl");
    }
    // Rules allow it: it runs alone, or with read-only commands.
    for command in [fetch.clone(), format!("{fetch} && pwd")] {
        let (outcome, printed) = stage.exec(json!({ "command": command })).await;
        assert!(outcome.fault.is_none() && printed.starts_with("hello"), "{command}: {printed}");
    }
    // With an unknown program in it, the command gets no network without an approval.
    fs::write(stage.path("script"), format!("{fetch}\n")).unwrap();
    let args = json!({ "command": format!("sh ./script; {fetch}") });
    let (outcome, printed) = stage.exec(args.clone()).await;
    assert!(outcome.fault.is_some() && !printed.contains("hello"), "{printed}");
    // A person has seen the complete command and approved it.
    let question = stage.question("sandbox_exec", args.clone()).await.unwrap();
    assert_eq!(question.details["network"], json!(true));
    stage.bench.bound = Some(question.digest);
    let (outcome, printed) = stage.exec(args).await;
    assert_eq!((outcome.fault, printed.as_str()), (None, "hellohello"));
}

#[tokio::test]
async fn a_commit_is_made_by_whom_the_environment_names() {
    let mut stage = Stage::repository().without_identity();
    fs::write(stage.path("new"), "new\n").unwrap();
    for (name, value) in [
        ("GIT_AUTHOR_NAME", "Ann"),
        ("GIT_AUTHOR_EMAIL", "ann@example.org"),
        ("GIT_COMMITTER_NAME", "Bob"),
        ("GIT_COMMITTER_EMAIL", "bob@example.org"),
    ] {
        stage.bench.env.push((name.into(), value.into()));
    }
    stage.json("sandbox_git_commit", json!({ "message": "m", "all": true })).await;
    let who = stage.git(&["log", "-1", "--format=%an <%ae> %cn <%ce>"]);
    assert_eq!(who, "Ann <ann@example.org> Bob <bob@example.org>\n");
}

#[tokio::test]
async fn a_commit_that_fails_says_what_git_said_and_leaves_the_index_as_it_was() {
    let stage = Stage::repository().without_identity();
    for name in ["staged", "new"] {
        fs::write(stage.path(name), "x\n").unwrap();
    }
    stage.git(&["add", "staged"]);
    let index = fs::read(stage.path(".git/index")).unwrap();
    for args in [
        json!({ "message": "m", "all": true }),
        json!({ "message": "m", "paths": ["new"] }),
        json!({ "message": "m" }),
    ] {
        let fault = stage.run("sandbox_git_commit", args.clone()).await.fault.unwrap();
        assert_eq!(fault.kind, FaultKind::GitFailed, "{args}");
        assert!(
            fault.message.contains("fatal:") && fault.message.contains("exit code 128"),
            "{}",
            fault.message
        );
        assert!(fault.detail.unwrap().contains("Please tell me who you are"), "{args}");
        assert_eq!(fs::read(stage.path(".git/index")).unwrap(), index, "{args}");
    }
    assert_eq!(stage.git(&["status", "--porcelain"]), "A  staged\n?? new\n");
}

#[tokio::test]
async fn the_first_commit_that_fails_leaves_no_index() {
    let stage = Stage::new();
    stage.git(&["init", "-q", "-b", "main"]);
    let stage = stage.without_identity();
    fs::write(stage.path("new"), "x\n").unwrap();
    let fault = stage.run("sandbox_git_commit", json!({ "message": "m", "all": true })).await.fault.unwrap();
    assert_eq!(fault.kind, FaultKind::GitFailed);
    assert!(!stage.path(".git/index").exists());
}

#[tokio::test]
async fn a_commit_of_what_is_staged_says_which_files_are_not() {
    let stage = Stage::repository();
    let args = json!({ "message": "m" });
    let plain = stage.run("sandbox_git_commit", args.clone()).await.fault.unwrap();
    assert_eq!((plain.kind, &*plain.message), (FaultKind::NothingToCommit, "there is nothing to commit"));
    for number in 0..12 {
        fs::write(stage.path(&format!("new{number:02}")), "x\n").unwrap();
    }
    fs::write(stage.path("tracked"), "changed\n").unwrap();
    let asked = stage.question("sandbox_git_commit", args.clone()).await.unwrap_err();
    let done = stage.run("sandbox_git_commit", args).await.fault.unwrap();
    for fault in [asked, done] {
        assert_eq!(fault.kind, FaultKind::NothingToCommit);
        for part in [
            "nothing is staged",
            "untracked: new00, ",
            "new09 and 2 more",
            "changed: tracked",
            "`paths`",
            "`all`",
        ] {
            assert!(fault.message.contains(part), "{part}: {}", fault.message);
        }
    }
}

/// As on a terminal; with two pipes the order would be lost.
#[tokio::test]
async fn what_a_command_prints_comes_in_its_order_whichever_output_it_chose() {
    let stage = Stage::new();
    let command = "i=0; while [ $i -lt 1000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let (outcome, printed) = stage.exec(json!({ "command": command })).await;
    assert_eq!(outcome.fault, None);
    let wanted: String = (0..1000).map(|number| format!("out {number}\nerr {number}\n")).collect();
    assert!(printed == wanted, "{:.500}", printed);
}

fn kind(outcome: &Outcome) -> Option<FaultKind> {
    outcome.fault.as_ref().map(|fault| fault.kind)
}
