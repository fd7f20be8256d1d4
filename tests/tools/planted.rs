//! Attempts of a repository, or of an earlier command, to take control of git or of programs that the daemon starts.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pushd::tools::FaultKind;
use serde_json::json;

use crate::ordinary_user::also_as_an_ordinary_user;
use crate::stage::Stage;

#[tokio::test]
async fn a_git_that_was_planted_on_the_path_is_not_run() {
    also_as_an_ordinary_user("planted::a_git_that_was_planted_on_the_path_is_not_run");
    let mut stage = Stage::repository();
    let places = [".venv/bin", "node_modules/.bin"].map(|place| stage.path(place));
    let open = stage.beside("open");
    let links = stage.beside("links");
    for place in places.iter().chain([&open, &links]) {
        fs::create_dir_all(place).unwrap();
        trap(&place.join("git"), &stage.path("sprung"));
    }
    fs::remove_file(links.join("git")).unwrap();
    symlink(places[0].join("git"), links.join("git")).unwrap();
    symlink(&places[0], stage.beside("linked")).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let [venv, node] = places.map(|place| place.display().to_string());
    let linked = stage.beside("linked").display().to_string();
    let (open, links) = (open.display().to_string(), links.display().to_string());
    for path in [&*venv, &node, ".venv/bin", "node_modules/.bin", "./.venv/bin", &linked, &open, &links] {
        let before = stage.bench.env.clone();
        stage.put_on_path(path);
        work(&stage, path).await;
        stage.bench.env = before;
    }
    stage.put_on_path(&[&*venv, &node, ".venv/bin", &linked, &open, &links].join(":"));
    work(&stage, "all of them").await;
}

#[tokio::test]
async fn a_git_in_a_directory_that_commands_may_write_is_not_run() {
    also_as_an_ordinary_user("planted::a_git_in_a_directory_that_commands_may_write_is_not_run");
    let mut stage = Stage::repository();
    let tools = stage.beside("tools");
    fs::create_dir(&tools).unwrap();
    trap(&tools.join("git"), &stage.path("sprung"));
    stage.bench.writable = vec![tools.clone()];
    stage.put_on_path(&tools.display().to_string());
    work(&stage, "a writable directory").await;
}

#[tokio::test]
async fn where_only_planted_programs_are_on_the_path_the_usual_places_are_looked_at() {
    also_as_an_ordinary_user(
        "planted::where_only_planted_programs_are_on_the_path_the_usual_places_are_looked_at",
    );
    let mut stage = Stage::repository();
    fs::create_dir(stage.path("bin")).unwrap();
    trap(&stage.path("bin/git"), &stage.path("sprung"));
    stage.bench.env.retain(|(name, _)| name != "PATH");
    stage.bench.env.push(("PATH".into(), stage.path("bin").into()));
    work(&stage, "a PATH of the workspace alone").await;
    stage.bench.env.retain(|(name, _)| name != "PATH");
    work(&stage, "no PATH").await;
}

#[tokio::test]
async fn what_git_starts_itself_is_not_found_in_the_workspace() {
    also_as_an_ordinary_user("planted::what_git_starts_itself_is_not_found_in_the_workspace");
    let mut stage = Stage::repository();
    fs::create_dir(stage.path("bin")).unwrap();
    trap(&stage.path("bin/cleaner"), &stage.path("sprung"));
    // A filter of the user's configuration, which a planted program of the same name would replace.
    let own = stage.beside("home/.gitconfig");
    let config = fs::read_to_string(&own).unwrap() + "[filter \"x\"]\n\tclean = cleaner\n";
    fs::write(&own, config).unwrap();
    fs::write(stage.path(".gitattributes"), "tracked filter=x\n").unwrap();
    stage.put_on_path(&stage.path("bin").display().to_string());
    work(&stage, "a filter").await;
}

#[tokio::test]
async fn variables_of_the_environment_lead_git_nowhere() {
    also_as_an_ordinary_user("planted::variables_of_the_environment_lead_git_nowhere");
    let mut stage = Stage::repository();
    let victim = victim(&stage);
    trap(&stage.path("trap"), &stage.path("sprung"));
    let trap = stage.path("trap").display().to_string();
    for (name, value) in [
        ("GIT_DIR", victim.join(".git").display().to_string()),
        ("GIT_WORK_TREE", victim.display().to_string()),
        ("GIT_COMMON_DIR", victim.join(".git").display().to_string()),
        ("GIT_EXEC_PATH", stage.path(".").display().to_string()),
        ("GIT_EXTERNAL_DIFF", trap.clone()),
        ("GIT_CONFIG_COUNT", "1".to_owned()),
        ("GIT_CONFIG_KEY_0", "core.fsmonitor".to_owned()),
        ("GIT_CONFIG_VALUE_0", trap.clone()),
        ("BASH_FUNC_git%%", format!("() {{ {trap}; }}")),
        ("LD_LIBRARY_PATH", ".".to_owned()),
    ] {
        stage.bench.env.push((name.into(), value.into()));
    }
    let before = tree(&victim);
    work(&stage, "variables").await;
    assert_eq!(tree(&victim), before);
}

#[tokio::test]
async fn a_git_file_does_not_lead_to_the_repository_of_somebody_else() {
    also_as_an_ordinary_user("planted::a_git_file_does_not_lead_to_the_repository_of_somebody_else");
    let stage = Stage::new();
    let victim = victim(&stage);
    let before = tree(&victim);
    fs::write(stage.path("mine"), "x\n").unwrap();
    for written in [
        format!("gitdir: {}\n", victim.join(".git").display()),
        "gitdir: ../victim/.git\n".to_owned(),
        format!("gitdir: {}\n", stage.beside("home").display()),
        "gitdir: /\n".to_owned(),
    ] {
        fs::write(stage.path(".git"), &written).unwrap();
        refused(&stage, &written).await;
        assert_eq!(tree(&victim), before, "{written}");
    }
}

#[tokio::test]
async fn a_directory_that_shares_the_repository_of_somebody_else_is_refused() {
    also_as_an_ordinary_user("planted::a_directory_that_shares_the_repository_of_somebody_else_is_refused");
    let stage = Stage::repository();
    let victim = victim(&stage);
    let before = tree(&victim);
    fs::write(stage.path(".git/commondir"), format!("{}\n", victim.join(".git").display())).unwrap();
    refused(&stage, "commondir").await;
    assert_eq!(tree(&victim), before);
}

#[tokio::test]
async fn a_configuration_does_not_choose_another_work_tree() {
    also_as_an_ordinary_user("planted::a_configuration_does_not_choose_another_work_tree");
    let stage = Stage::repository();
    fs::write(stage.beside("home/private"), "private\n").unwrap();
    stage.git(&["config", "core.worktree", stage.beside("home").to_str().unwrap()]);
    fs::write(stage.path("new"), "new\n").unwrap();
    let status = stage.json("sandbox_git_status", json!({})).await;
    assert_eq!((&status["untracked"], &status["unstaged"]), (&json!(["new"]), &json!([])), "{status}");
    let committed = stage.json("sandbox_git_commit", json!({"message": "m", "all": true})).await;
    assert_eq!(committed["filesChanged"], 1, "{committed}");
}

#[tokio::test]
async fn what_a_configuration_includes_runs_nothing_either() {
    also_as_an_ordinary_user("planted::what_a_configuration_includes_runs_nothing_either");
    let stage = Stage::repository();
    trap(&stage.path("trap"), &stage.path("sprung"));
    let trap = stage.path("trap").display().to_string();
    let included = format!(
        "[core]\n\tfsmonitor = {trap}\n\thooksPath = {0}\n\tsshCommand = {trap}\n\teditor = {trap}\n\tpager = {trap}\n\
         [diff]\n\texternal = {trap}\n[gpg]\n\tprogram = {trap}\n[commit]\n\tgpgSign = true\n\
         [diff \"x\"]\n\ttextconv = {trap}\n\tcommand = {trap}\n[credential]\n\thelper = {trap}\n",
        stage.path("hooks").display()
    );
    fs::write(stage.path("included"), included).unwrap();
    fs::create_dir(stage.path("hooks")).unwrap();
    for hook in ["pre-commit", "post-commit", "post-index-change", "reference-transaction"] {
        fs::copy(stage.path("trap"), stage.path(&format!("hooks/{hook}"))).unwrap();
    }
    fs::write(stage.path(".gitattributes"), "* diff=x\n").unwrap();
    stage.git(&["config", "include.path", "../included"]);
    work(&stage, "include.path").await;
}

#[tokio::test]
async fn what_a_repository_lacks_is_not_fetched_by_its_own_program() {
    also_as_an_ordinary_user("planted::what_a_repository_lacks_is_not_fetched_by_its_own_program");
    let stage = Stage::repository();
    trap(&stage.path("trap"), &stage.path("sprung"));
    let trap = stage.path("trap").display().to_string();
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
        stage.git(&["config", name, value]);
    }
    // The content of the committed file is gone, so that a difference would have to fetch it.
    let blob = stage.git(&["rev-parse", "HEAD:tracked"]);
    let blob = blob.trim();
    fs::remove_file(stage.path(&format!(".git/objects/{}/{}", &blob[..2], &blob[2..]))).unwrap();
    fs::write(stage.path("tracked"), "changed\n").unwrap();
    for url in ["ssh://example.org/x".to_owned(), format!("ext::{trap}")] {
        stage.git(&["config", "remote.origin.url", &url]);
        stage.run("sandbox_git_status", json!({})).await;
        stage.run("sandbox_git_diff", json!({})).await;
        let _asked = stage.question("sandbox_git_commit", json!({"message": "m", "all": true})).await;
        assert_eq!(fs::read_to_string(stage.path("sprung")).unwrap_or_default(), "", "{url}");
    }
}

#[tokio::test]
async fn a_pipe_in_the_place_of_git_is_not_waited_for() {
    also_as_an_ordinary_user("planted::a_pipe_in_the_place_of_git_is_not_waited_for");
    let stage = Stage::new();
    let made = Command::new("mkfifo").arg(stage.path(".git")).status().unwrap();
    assert!(made.success());
    tokio::time::timeout(Duration::from_secs(30), refused(&stage, "a pipe")).await.expect("it does not wait");
}

#[tokio::test]
async fn a_pipe_in_the_place_of_a_file_of_git_is_not_waited_for() {
    also_as_an_ordinary_user("planted::a_pipe_in_the_place_of_a_file_of_git_is_not_waited_for");
    let stage = Stage::repository();
    for file in ["HEAD", "config", "index", "packed-refs", "info/exclude"] {
        let path = stage.path(".git").join(file);
        let kept = fs::read(&path).ok();
        let _replaced = fs::remove_file(&path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let refusal = refused(&stage, file);
        tokio::time::timeout(Duration::from_secs(30), refusal).await.expect("it does not wait");
        let fault = stage.run("sandbox_git_status", json!({})).await.fault.unwrap();
        let said = format!("{fault:?}");
        assert!(said.contains(&format!(".git/{file} is not a regular file")), "{said}");
        fs::remove_file(&path).unwrap();
        if let Some(kept) = kept {
            fs::write(&path, kept).unwrap();
        }
    }
}

#[tokio::test]
async fn a_repository_of_another_user_is_left_to_git_to_refuse() {
    also_as_an_ordinary_user("planted::a_repository_of_another_user_is_left_to_git_to_refuse");
    let stage = Stage::repository();
    if std::os::unix::fs::chown(stage.path(".git"), Some(12_345), Some(12_345)).is_err() {
        return crate::skip::skip("only root can give a directory away");
    }
    let outcome = stage.run("sandbox_git_status", json!({})).await;
    let fault = outcome.fault.expect("git refuses it");
    assert_eq!(fault.kind, FaultKind::GitFailed);
    assert!(fault.detail.as_deref().unwrap_or_default().contains("dubious ownership"), "{fault:?}");
    // A user who has marked it as safe may use it.
    let own = stage.beside("home/.gitconfig");
    let config = fs::read_to_string(&own).unwrap() + "[safe]\n\tdirectory = *\n";
    fs::write(&own, config).unwrap();
    stage.json("sandbox_git_status", json!({})).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_planted_git_makes_nothing_writable_for_confined_commands() {
    also_as_an_ordinary_user("planted::a_planted_git_makes_nothing_writable_for_confined_commands");
    let Some(mut stage) = Stage::confined().await else { return };
    let victim = victim(&stage);
    fs::create_dir(stage.path("bin")).unwrap();
    let planted = format!("#!/bin/sh\necho {0}\necho {0}\ntouch {0}/PWNED\n", victim.display());
    fs::write(stage.path("bin/git"), planted).unwrap();
    fs::set_permissions(stage.path("bin/git"), fs::Permissions::from_mode(0o755)).unwrap();
    stage.put_on_path(&stage.path("bin").display().to_string());
    fs::write(stage.path("new"), "new\n").unwrap();
    let committed = stage.json("sandbox_git_commit", json!({"message": "m", "paths": ["new"]})).await;
    assert_eq!(committed["filesChanged"], 1, "the true git was used");
    assert!(!victim.join("PWNED").exists());
}

/// Uses every git tool, and checks that no trap has run.
async fn work(stage: &Stage, what: &str) {
    let before = fs::read_to_string(stage.path("tracked")).unwrap();
    fs::write(stage.path("tracked"), format!("{before}{what}\n")).unwrap();
    let status = stage.json("sandbox_git_status", json!({})).await;
    assert_eq!(status["branch"], "main", "{what}: {status}");
    let diff = stage.run("sandbox_git_diff", json!({})).await.text;
    assert!(diff.contains("+++ b/tracked"), "{what}: {diff}");
    let args = json!({"message": "m", "paths": ["tracked"]});
    stage.question("sandbox_git_commit", args.clone()).await.unwrap();
    let committed = stage.json("sandbox_git_commit", args).await;
    assert_eq!(committed["filesChanged"], 1, "{what}");
    assert_eq!(fs::read_to_string(stage.path("sprung")).unwrap_or_default(), "", "{what}");
}

/// Uses every git tool, which all refuse.
async fn refused(stage: &Stage, what: &str) {
    for (tool, args) in [
        ("sandbox_git_status", json!({})),
        ("sandbox_git_diff", json!({})),
        ("sandbox_git_commit", json!({"message": "m", "all": true})),
    ] {
        let fault = stage.run(tool, args).await.fault;
        assert!(fault.is_some(), "{what}: {tool}");
        let fault = fault.unwrap();
        assert_eq!(fault.kind, FaultKind::GitFailed, "{what}: {tool}: {fault:?}");
    }
}

/// A program that creates a trace file when it runs.
fn trap(at: &Path, trace: &Path) {
    // Another process writes it, so that no child of this process holds it open for writing when it starts.
    let program = format!("#!/bin/sh\necho $0 >> {}\necho {}\n", trace.display(), trace.display());
    let mut writing = Command::new("/bin/sh");
    writing.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""]).arg(at).arg(program);
    assert!(writing.status().unwrap().success());
}

/// A repository of the user next to the workspace.
fn victim(stage: &Stage) -> std::path::PathBuf {
    let victim = stage.beside("victim");
    fs::create_dir(&victim).unwrap();
    let script = "git init -q . && echo private > private && git add . && \
        git -c user.name=v -c user.email=v@example.org commit -q -m private";
    let made = Command::new("/bin/sh").args(["-c", script]).current_dir(&victim).status().unwrap();
    assert!(made.success());
    victim
}

/// The names and sizes of everything in a directory.
fn tree(at: &Path) -> Vec<(std::path::PathBuf, u64)> {
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
