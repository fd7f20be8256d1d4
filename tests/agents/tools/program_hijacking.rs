//! Attempts of a repository, or of an earlier command, to take control of git or of programs that the daemon starts.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pushd::tools::ToolErrorKind;
use serde_json::json;

use crate::support::ordinary_user::also_as_an_ordinary_user;
use crate::tools::fixture::Fixture;

#[tokio::test]
async fn a_git_that_was_planted_on_the_path_is_not_run() {
    also_as_an_ordinary_user(a_git_that_was_planted_on_the_path_is_not_run);
    let mut fixture = Fixture::repository();
    let places = [".venv/bin", "node_modules/.bin"].map(|parent| fixture.path(parent));
    let open = fixture.sibling("open");
    let links = fixture.sibling("links");
    for parent in places.iter().chain([&open, &links]) {
        fs::create_dir_all(parent).unwrap();
        write_recording_script(&parent.join("git"), &fixture.path("executed"));
    }
    fs::remove_file(links.join("git")).unwrap();
    symlink(places[0].join("git"), links.join("git")).unwrap();
    symlink(&places[0], fixture.sibling("linked")).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let [venv, node] = places.map(|parent| parent.display().to_string());
    let linked = fixture.sibling("linked").display().to_string();
    let (open, links) = (open.display().to_string(), links.display().to_string());
    for path in [&*venv, &node, ".venv/bin", "node_modules/.bin", "./.venv/bin", &linked, &open, &links] {
        let before = fixture.context.env.clone();
        fixture.prepend_path(path);
        use_every_git_tool(&fixture, path).await;
        fixture.context.env = before;
    }
    fixture.prepend_path(&[&*venv, &node, ".venv/bin", &linked, &open, &links].join(":"));
    use_every_git_tool(&fixture, "all of them").await;
}

#[tokio::test]
async fn a_git_in_a_directory_that_commands_may_write_is_not_run() {
    also_as_an_ordinary_user(a_git_in_a_directory_that_commands_may_write_is_not_run);
    let mut fixture = Fixture::repository();
    let tools = fixture.sibling("tools");
    fs::create_dir(&tools).unwrap();
    write_recording_script(&tools.join("git"), &fixture.path("executed"));
    fixture.context.writable = vec![tools.clone()];
    fixture.prepend_path(&tools.display().to_string());
    use_every_git_tool(&fixture, "a writable directory").await;
}

#[tokio::test]
async fn with_only_planted_programs_on_the_path_the_usual_directories_are_searched() {
    also_as_an_ordinary_user(with_only_planted_programs_on_the_path_the_usual_directories_are_searched);
    let mut fixture = Fixture::repository();
    fs::create_dir(fixture.path("bin")).unwrap();
    write_recording_script(&fixture.path("bin/git"), &fixture.path("executed"));
    fixture.context.env.retain(|(name, _)| name != "PATH");
    fixture.context.env.push(("PATH".into(), fixture.path("bin").into()));
    use_every_git_tool(&fixture, "a PATH of the workspace alone").await;
    fixture.context.env.retain(|(name, _)| name != "PATH");
    use_every_git_tool(&fixture, "no PATH").await;
}

#[tokio::test]
async fn helper_programs_of_git_are_not_taken_from_the_workspace() {
    also_as_an_ordinary_user(helper_programs_of_git_are_not_taken_from_the_workspace);
    let mut fixture = Fixture::repository();
    fs::create_dir(fixture.path("bin")).unwrap();
    write_recording_script(&fixture.path("bin/cleaner"), &fixture.path("executed"));
    // A filter of the user's configuration, which a planted program of the same name would replace.
    let own = fixture.sibling("home/.gitconfig");
    let config = fs::read_to_string(&own).unwrap() + "[filter \"x\"]\n\tclean = cleaner\n";
    fs::write(&own, config).unwrap();
    fs::write(fixture.path(".gitattributes"), "tracked filter=x\n").unwrap();
    fixture.prepend_path(&fixture.path("bin").display().to_string());
    use_every_git_tool(&fixture, "a filter").await;
}

#[tokio::test]
async fn environment_variables_do_not_redirect_git() {
    also_as_an_ordinary_user(environment_variables_do_not_redirect_git);
    let mut fixture = Fixture::repository();
    let victim = other_repository(&fixture);
    write_recording_script(&fixture.path("trap"), &fixture.path("executed"));
    let trap = fixture.path("trap").display().to_string();
    for (name, value) in [
        ("GIT_DIR", victim.join(".git").display().to_string()),
        ("GIT_WORK_TREE", victim.display().to_string()),
        ("GIT_COMMON_DIR", victim.join(".git").display().to_string()),
        ("GIT_EXEC_PATH", fixture.path(".").display().to_string()),
        ("GIT_EXTERNAL_DIFF", trap.clone()),
        ("GIT_CONFIG_COUNT", "1".to_owned()),
        ("GIT_CONFIG_KEY_0", "core.fsmonitor".to_owned()),
        ("GIT_CONFIG_VALUE_0", trap.clone()),
        ("BASH_FUNC_git%%", format!("() {{ {trap}; }}")),
        ("LD_LIBRARY_PATH", ".".to_owned()),
    ] {
        fixture.context.env.push((name.into(), value.into()));
    }
    let before = list_files(&victim);
    use_every_git_tool(&fixture, "variables").await;
    assert_eq!(list_files(&victim), before);
}

#[tokio::test]
async fn a_git_file_does_not_lead_to_the_repository_of_somebody_else() {
    also_as_an_ordinary_user(a_git_file_does_not_lead_to_the_repository_of_somebody_else);
    let fixture = Fixture::new();
    let victim = other_repository(&fixture);
    let before = list_files(&victim);
    fs::write(fixture.path("mine"), "x\n").unwrap();
    for written in [
        format!("gitdir: {}\n", victim.join(".git").display()),
        "gitdir: ../victim/.git\n".to_owned(),
        format!("gitdir: {}\n", fixture.sibling("home").display()),
        "gitdir: /\n".to_owned(),
    ] {
        fs::write(fixture.path(".git"), &written).unwrap();
        assert_every_git_tool_refuses(&fixture, &written).await;
        assert_eq!(list_files(&victim), before, "{written}");
    }
}

#[tokio::test]
async fn a_directory_that_shares_the_repository_of_somebody_else_is_refused() {
    also_as_an_ordinary_user(a_directory_that_shares_the_repository_of_somebody_else_is_refused);
    let fixture = Fixture::repository();
    let victim = other_repository(&fixture);
    let before = list_files(&victim);
    fs::write(fixture.path(".git/commondir"), format!("{}\n", victim.join(".git").display())).unwrap();
    assert_every_git_tool_refuses(&fixture, "commondir").await;
    assert_eq!(list_files(&victim), before);
}

#[tokio::test]
async fn a_configuration_does_not_choose_another_work_tree() {
    also_as_an_ordinary_user(a_configuration_does_not_choose_another_work_tree);
    let fixture = Fixture::repository();
    fs::write(fixture.sibling("home/private"), "private\n").unwrap();
    fixture.git(&["config", "core.worktree", fixture.sibling("home").to_str().unwrap()]);
    fs::write(fixture.path("new"), "new\n").unwrap();
    let status = fixture.json("sandbox_git_status", json!({})).await;
    assert_eq!((&status["untracked"], &status["unstaged"]), (&json!(["new"]), &json!([])), "{status}");
    let committed = fixture.json("sandbox_git_commit", json!({"message": "m", "all": true})).await;
    assert_eq!(committed["filesChanged"], 1, "{committed}");
}

#[tokio::test]
async fn an_included_configuration_runs_nothing() {
    also_as_an_ordinary_user(an_included_configuration_runs_nothing);
    let fixture = Fixture::repository();
    write_recording_script(&fixture.path("trap"), &fixture.path("executed"));
    let trap = fixture.path("trap").display().to_string();
    let included = format!(
        "[core]\n\tfsmonitor = {trap}\n\thooksPath = {0}\n\tsshCommand = {trap}\n\teditor = {trap}\n\tpager = {trap}\n\
         [diff]\n\texternal = {trap}\n[gpg]\n\tprogram = {trap}\n[commit]\n\tgpgSign = true\n\
         [diff \"x\"]\n\ttextconv = {trap}\n\tcommand = {trap}\n[credential]\n\thelper = {trap}\n",
        fixture.path("hooks").display()
    );
    fs::write(fixture.path("included"), included).unwrap();
    fs::create_dir(fixture.path("hooks")).unwrap();
    for hook in ["pre-commit", "post-commit", "post-index-change", "reference-transaction"] {
        fs::copy(fixture.path("trap"), fixture.path(&format!("hooks/{hook}"))).unwrap();
    }
    fs::write(fixture.path(".gitattributes"), "* diff=x\n").unwrap();
    fixture.git(&["config", "include.path", "../included"]);
    use_every_git_tool(&fixture, "include.path").await;
}

#[tokio::test]
async fn missing_objects_are_not_fetched_by_a_program_of_the_repository() {
    also_as_an_ordinary_user(missing_objects_are_not_fetched_by_a_program_of_the_repository);
    let fixture = Fixture::repository();
    write_recording_script(&fixture.path("trap"), &fixture.path("executed"));
    let trap = fixture.path("trap").display().to_string();
    for (name, value) in [
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", "ssh://example.org/x"),
        ("remote.origin.uploadpack", &*trap),
        ("core.sshCommand", &trap),
        ("protocol.ssh.allow", "always"),
        ("protocol.ext.allow", "always"),
    ] {
        fixture.git(&["config", name, value]);
    }
    // The content of the committed file is gone, so that a difference would have to fetch it.
    let blob = fixture.git(&["rev-parse", "HEAD:tracked"]);
    let blob = blob.trim();
    fs::remove_file(fixture.path(&format!(".git/objects/{}/{}", &blob[..2], &blob[2..]))).unwrap();
    fs::write(fixture.path("tracked"), "changed\n").unwrap();
    for url in ["ssh://example.org/x".to_owned(), format!("ext::{trap}")] {
        fixture.git(&["config", "remote.origin.url", &url]);
        fixture.run("sandbox_git_status", json!({})).await;
        fixture.run("sandbox_git_diff", json!({})).await;
        let _asked = fixture.approval_question("sandbox_git_commit", json!({"message": "m", "all": true})).await;
        assert_eq!(fs::read_to_string(fixture.path("executed")).unwrap_or_default(), "", "{url}");
    }
}

#[tokio::test]
async fn a_pipe_in_the_place_of_git_is_not_waited_for() {
    also_as_an_ordinary_user(a_pipe_in_the_place_of_git_is_not_waited_for);
    let fixture = Fixture::new();
    let made = Command::new("mkfifo").arg(fixture.path(".git")).status().unwrap();
    assert!(made.success());
    tokio::time::timeout(Duration::from_secs(30), assert_every_git_tool_refuses(&fixture, "a pipe"))
        .await
        .expect("it does not wait");
}

#[tokio::test]
async fn a_pipe_in_the_place_of_a_file_of_git_is_not_waited_for() {
    also_as_an_ordinary_user(a_pipe_in_the_place_of_a_file_of_git_is_not_waited_for);
    let fixture = Fixture::repository();
    for file in ["HEAD", "config", "index", "packed-refs", "info/exclude"] {
        let path = fixture.path(".git").join(file);
        let kept = fs::read(&path).ok();
        let _replaced = fs::remove_file(&path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let refusal = assert_every_git_tool_refuses(&fixture, file);
        tokio::time::timeout(Duration::from_secs(30), refusal).await.expect("it does not wait");
        let fault = fixture.run("sandbox_git_status", json!({})).await.error.unwrap();
        let text = format!("{fault:?}");
        assert!(text.contains(&format!(".git/{file} is not a regular file")), "{text}");
        fs::remove_file(&path).unwrap();
        if let Some(kept) = kept {
            fs::write(&path, kept).unwrap();
        }
    }
}

#[tokio::test]
async fn a_repository_of_another_user_is_left_to_git_to_refuse() {
    also_as_an_ordinary_user(a_repository_of_another_user_is_left_to_git_to_refuse);
    let fixture = Fixture::repository();
    if std::os::unix::fs::chown(fixture.path(".git"), Some(12_345), Some(12_345)).is_err() {
        return crate::support::skip::skip("only root can give a directory away");
    }
    let outcome = fixture.run("sandbox_git_status", json!({})).await;
    let fault = outcome.error.expect("git refuses it");
    assert_eq!(fault.kind, ToolErrorKind::GitFailed);
    assert!(fault.detail.as_deref().unwrap_or_default().contains("dubious ownership"), "{fault:?}");
    // A user who has marked it as safe may use it.
    let own = fixture.sibling("home/.gitconfig");
    let config = fs::read_to_string(&own).unwrap() + "[safe]\n\tdirectory = *\n";
    fs::write(&own, config).unwrap();
    fixture.json("sandbox_git_status", json!({})).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_planted_git_makes_nothing_writable_for_confined_commands() {
    also_as_an_ordinary_user(a_planted_git_makes_nothing_writable_for_confined_commands);
    let Some(mut fixture) = Fixture::confined().await else { return };
    let victim = other_repository(&fixture);
    fs::create_dir(fixture.path("bin")).unwrap();
    let planted = format!("#!/bin/sh\necho {0}\necho {0}\ntouch {0}/PWNED\n", victim.display());
    fs::write(fixture.path("bin/git"), planted).unwrap();
    fs::set_permissions(fixture.path("bin/git"), fs::Permissions::from_mode(0o755)).unwrap();
    fixture.prepend_path(&fixture.path("bin").display().to_string());
    fs::write(fixture.path("new"), "new\n").unwrap();
    let committed = fixture.json("sandbox_git_commit", json!({"message": "m", "paths": ["new"]})).await;
    assert_eq!(committed["filesChanged"], 1, "the true git was used");
    assert!(!victim.join("PWNED").exists());
}

/// Uses every git tool, and checks that no trap has run.
async fn use_every_git_tool(fixture: &Fixture, what: &str) {
    let before = fs::read_to_string(fixture.path("tracked")).unwrap();
    fs::write(fixture.path("tracked"), format!("{before}{what}\n")).unwrap();
    let status = fixture.json("sandbox_git_status", json!({})).await;
    assert_eq!(status["branch"], "main", "{what}: {status}");
    let diff = fixture.run("sandbox_git_diff", json!({})).await.text;
    assert!(diff.contains("+++ b/tracked"), "{what}: {diff}");
    let args = json!({"message": "m", "paths": ["tracked"]});
    fixture.approval_question("sandbox_git_commit", args.clone()).await.unwrap();
    let committed = fixture.json("sandbox_git_commit", args).await;
    assert_eq!(committed["filesChanged"], 1, "{what}");
    assert_eq!(fs::read_to_string(fixture.path("executed")).unwrap_or_default(), "", "{what}");
}

/// Uses every git tool, which all refuse.
async fn assert_every_git_tool_refuses(fixture: &Fixture, what: &str) {
    for (tool, args) in [
        ("sandbox_git_status", json!({})),
        ("sandbox_git_diff", json!({})),
        ("sandbox_git_commit", json!({"message": "m", "all": true})),
    ] {
        let fault = fixture.run(tool, args).await.error;
        assert!(fault.is_some(), "{what}: {tool}");
        let fault = fault.unwrap();
        assert_eq!(fault.kind, ToolErrorKind::GitFailed, "{what}: {tool}: {fault:?}");
    }
}

/// A program that creates a trace file when it runs.
fn write_recording_script(at: &Path, trace: &Path) {
    // Another process writes it, so that no child of this process holds it open for writing when it starts.
    let program = format!("#!/bin/sh\necho $0 >> {}\necho {}\n", trace.display(), trace.display());
    let mut writing = Command::new("/bin/sh");
    writing.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""]).arg(at).arg(program);
    assert!(writing.status().unwrap().success());
}

/// A repository of the user next to the workspace.
fn other_repository(fixture: &Fixture) -> std::path::PathBuf {
    let victim = fixture.sibling("victim");
    fs::create_dir(&victim).unwrap();
    let script = "git init -q . && echo private > private && git add . && \
        git -c user.name=v -c user.email=v@example.org commit -q -m private";
    let made = Command::new("/bin/sh").args(["-c", script]).current_dir(&victim).status().unwrap();
    assert!(made.success());
    victim
}

/// The names and sizes of everything in a directory.
fn list_files(at: &Path) -> Vec<(std::path::PathBuf, u64)> {
    let mut all = Vec::new();
    let mut folders = vec![at.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let there = fs::symlink_metadata(&entry).unwrap();
            all.push((entry.clone(), if there.is_dir() { 0 } else { there.len() }));
            if there.is_dir() {
                folders.push(entry);
            }
        }
    }
    all.sort();
    all
}
