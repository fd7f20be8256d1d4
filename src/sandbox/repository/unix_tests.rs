//! Tests of which repository is found for a workspace, and which are refused.

use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;

#[test]
fn a_repository_is_found_in_the_workspace_and_above_it() {
    let dir = Dir::new();
    dir.git("own", &["init", "-q", "."]);
    dir.make("own/a/b");
    let own = dir.find("own").unwrap();
    assert_eq!((own.work_tree, own.git_dir.clone()), (dir.at("own"), dir.at("own/.git")));
    assert_eq!((own.common_dir, own.foreign), (own.git_dir, false));
    assert_eq!(dir.find("own/a/b").unwrap().work_tree, dir.at("own"));
    // An empty `.git` exists in a workspace without a repository while a command runs there.
    dir.make("own/a/.git");
    assert_eq!(dir.find("own/a").unwrap().work_tree, dir.at("own"));
    dir.make("none");
    assert!(matches!(dir.find("none"), Err(RepositoryError::NotFound)));
}

#[test]
fn linked_working_trees_and_submodules_are_followed() {
    let dir = Dir::new();
    dir.git("main", &["init", "-q", "."]);
    dir.commit("main");
    dir.git("main", &["worktree", "add", "-q", "../linked"]);
    let linked = dir.find("linked").unwrap();
    assert_eq!((linked.git_dir, linked.common_dir), (dir.at("main/.git/worktrees/linked"), dir.at("main/.git")));
    dir.git("library", &["init", "-q", "."]);
    dir.commit("library");
    let library = dir.at("library");
    dir.git(
        "main",
        &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library.to_str().unwrap(), "sub"],
    );
    let sub = dir.find("main/sub").unwrap();
    assert_eq!((sub.git_dir, sub.common_dir), (dir.at("main/.git/modules/sub"), dir.at("main/.git/modules/sub")));
    // A separate git directory names its working tree only if `core.worktree` is set.
    dir.git("apart", &["init", "-q", "--separate-git-dir=../apart.git", "."]);
    assert!(dir.find("apart").unwrap_err().to_string().contains("does not name it in turn"));
    dir.git("apart", &["config", "core.worktree", dir.at("apart").to_str().unwrap()]);
    assert_eq!(dir.find("apart").unwrap().git_dir, dir.at("apart.git"));
}

#[test]
fn a_git_file_is_followed_only_to_a_repository_that_names_it() {
    let dir = Dir::new();
    dir.git("victim", &["init", "-q", "."]);
    dir.commit("victim");
    dir.git("victim", &["worktree", "add", "-q", "../victims-tree"]);
    let victim = dir.at("victim/.git").display().to_string();
    let tree = format!("{victim}/worktrees/victims-tree");
    dir.make("work");
    for (written, why) in [
        (format!("gitdir: {victim}\n"), "does not name it in turn"),
        (format!("gitdir: {tree}\n"), "does not name it in turn"),
        ("gitdir: ../victim/.git\n".to_owned(), "does not name it in turn"),
        ("gitdir: /\n".to_owned(), "not a repository"),
        ("gitdir: ..\n".to_owned(), "not a repository"),
        ("gitdir: /nowhere\n".to_owned(), "does not exist"),
        ("gitdir: \n".to_owned(), "does not have the form"),
        ("hello\n".to_owned(), "does not have the form"),
        (format!("gitdir: {victim}\ngitdir: {tree}\n"), "does not have the form"),
        (format!("gitdir: {}\n", "x".repeat(70_000)), "small text file"),
    ] {
        fs::write(dir.at("work/.git"), &written).unwrap();
        let error = dir.find("work").unwrap_err();
        assert!(
            matches!(error, RepositoryError::Untrusted { .. }) && error.to_string().contains(why),
            "{written:.80}: {error}"
        );
    }
}

#[test]
fn a_file_that_git_would_wait_for_is_refused() {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    let dir = Dir::new();
    dir.git("main", &["init", "-q", "."]);
    dir.commit("main");
    dir.git("main", &["worktree", "add", "-q", "../linked"]);
    let head = fs::read_to_string(dir.at("main/.git/HEAD")).unwrap();
    let branch = head.trim().strip_prefix("ref: ").unwrap().to_owned();
    let own = "main/.git/worktrees/linked";
    for (file, workspaces) in [
        ("main/.git/HEAD".to_owned(), &["main", "linked"][..]),
        ("main/.git/config".to_owned(), &["main", "linked"]),
        ("main/.git/packed-refs".to_owned(), &["main", "linked"]),
        ("main/.git/info/exclude".to_owned(), &["main", "linked"]),
        ("main/.git/info/attributes".to_owned(), &["main", "linked"]),
        ("main/.git/index".to_owned(), &["main"]),
        (format!("main/.git/{branch}"), &["main"]),
        (format!("{own}/HEAD"), &["linked"]),
        (format!("{own}/index"), &["linked"]),
    ] {
        let path = dir.at(&file);
        let before = fs::read(&path).ok();
        for through_link in [false, true] {
            let _moved = fs::remove_file(&path);
            let pipe = if through_link { dir.at("pipe") } else { path.clone() };
            mkfifo(&pipe, Mode::S_IRWXU).unwrap();
            if through_link {
                symlink(&pipe, &path).unwrap();
            }
            for workspace in workspaces {
                let error = dir.find(workspace).unwrap_err().to_string();
                assert!(error.contains("not a regular file"), "{file} for {workspace}: {error}");
            }
            fs::remove_file(&pipe).unwrap();
        }
        let _link = fs::remove_file(&path);
        if let Some(before) = before {
            fs::write(&path, before).unwrap();
        }
        assert!(dir.find("main").is_ok() && dir.find("linked").is_ok(), "{file}");
    }
}

#[test]
fn a_forged_back_reference_is_refused() {
    let dir = Dir::new();
    dir.git("victim", &["init", "-q", "."]);
    dir.commit("victim");
    dir.make("work");
    // A forged linked working tree beside the workspace, which shares the repository of the victim.
    dir.make("made-up");
    fs::write(dir.at("made-up/HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(dir.at("made-up/gitdir"), format!("{}\n", dir.at("work/.git").display())).unwrap();
    fs::write(dir.at("made-up/commondir"), format!("{}\n", dir.at("victim/.git").display())).unwrap();
    fs::write(dir.at("work/.git"), "gitdir: ../made-up\n").unwrap();
    assert!(dir.find("work").unwrap_err().to_string().contains("does not name it in turn"));
    // A forged submodule with the same common directory.
    fs::remove_file(dir.at("made-up/gitdir")).unwrap();
    fs::write(dir.at("made-up/config"), "[core]\n\tworktree = ../work\n").unwrap();
    assert!(dir.find("work").unwrap_err().to_string().contains("does not name it in turn"));
    fs::remove_file(dir.at("made-up/commondir")).unwrap();
    assert_eq!(dir.find("work").unwrap().git_dir, dir.at("made-up"), "without it, nothing of others is touched");
    // A plain git directory that shares the common directory of another.
    fs::remove_file(dir.at("work/.git")).unwrap();
    dir.git("work", &["init", "-q", "."]);
    fs::write(dir.at("work/.git/commondir"), format!("{}\n", dir.at("victim/.git").display())).unwrap();
    assert!(dir.find("work").unwrap_err().to_string().contains("commondir"));
}

#[test]
fn a_repository_that_commands_could_change_is_refused() {
    let dir = Dir::new();
    dir.git("work", &["init", "-q", "--separate-git-dir=./inner", "."]);
    dir.git("work", &["config", "core.worktree", dir.at("work").to_str().unwrap()]);
    assert!(dir.find("work").unwrap_err().to_string().contains("can be changed by commands"));
    dir.make("store");
    dir.git("other", &["init", "-q", "--separate-git-dir=../store/other.git", "."]);
    dir.git("other", &["config", "core.worktree", dir.at("other").to_str().unwrap()]);
    assert!(dir.find("other").is_ok());
    let error = Repository::find(&dir.at("other"), &[dir.at("store")]).unwrap_err();
    assert!(error.to_string().contains("can be changed by commands"), "{}", error.to_string());
}

#[test]
fn links_pipes_and_devices_are_no_repositories_and_not_waited_for() {
    let dir = Dir::new();
    dir.git("victim", &["init", "-q", "."]);
    dir.make("work");
    let git = dir.at("work/.git");
    symlink(dir.at("victim/.git"), &git).unwrap();
    assert!(dir.find("work").unwrap_err().to_string().contains("symbolic link"));
    fs::remove_file(&git).unwrap();
    nix::unistd::mkfifo(&git, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(dir.find("work").unwrap_err().to_string().contains("small text file"));
    fs::remove_file(&git).unwrap();
    // A pipe in place of the file with the back reference.
    dir.make("made-up");
    fs::write(dir.at("made-up/HEAD"), "").unwrap();
    nix::unistd::mkfifo(&dir.at("made-up/gitdir"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    nix::unistd::mkfifo(&dir.at("made-up/config"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(&git, "gitdir: ../made-up\n").unwrap();
    assert!(dir.find("work").unwrap_err().to_string().contains("does not name it in turn"));
}

#[test]
fn a_work_tree_is_read_only_where_it_is_said_plainly() {
    for (config, found) in [
        ("[core]\n\tworktree = ../a b\n", Some("../a b")),
        ("[CORE]\nWorkTree=\"../a\"\n", Some("../a")),
        ("[core]\nbare = false\n[user]\nworktree = ../a\n", None),
        ("[core \"x\"]\nworktree = ../a\n", None),
        ("[core]\nworktree = ../a\nworktree = ../b\n", None),
        ("[core]\nworktree = \"../\\\"a\"\n", None),
        ("[core]\nworktree = ../a ; and more\n", None),
    ] {
        assert_eq!(core_worktree(config).as_deref(), found, "{config}");
    }
}

/// A directory with repositories in it.
struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn make(&self, name: &str) {
        fs::create_dir_all(self.at(name)).unwrap();
    }

    fn find(&self, name: &str) -> Result<Repository, RepositoryError> {
        Repository::find(&self.at(name), &[])
    }

    fn git(&self, name: &str, words: &[&str]) {
        self.make(name);
        let mut git = Command::new("git");
        git.args(words).current_dir(self.at(name)).env("HOME", self.0.path()).env_remove("GIT_DIR");
        let output = git.output().unwrap();
        assert!(output.status.success(), "git {words:?}: {output:?}");
    }

    fn commit(&self, name: &str) {
        let who = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        self.git(name, &[&who[..], &["commit", "-q", "--allow-empty", "-m", "m"]].concat());
    }
}

#[test]
fn only_a_repository_outside_of_the_workspace_and_not_of_a_home_is_opened_to_commands() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(base.join("main/sub")).unwrap();
    std::fs::create_dir_all(base.join("main/.git/objects")).unwrap();
    std::fs::write(base.join("main/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let outside = |workspace: &str, homes: &[PathBuf]| directories_outside(&base.join(workspace), &[], homes);
    assert_eq!(outside("main/sub", &[]), [base.join("main/.git")]);
    assert_eq!(outside("main", &[]), Vec::<PathBuf>::new());
    assert_eq!(outside("main/sub", &[base.join("main")]), Vec::<PathBuf>::new());
}

#[test]
fn a_pipe_on_the_way_to_a_repository_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(base.join("main/.git/worktrees/w")).unwrap();
    std::fs::create_dir(base.join("w")).unwrap();
    let known = base.join("main/.git/worktrees/w");
    std::fs::write(base.join("w/.git"), format!("gitdir: {}\n", known.display())).unwrap();
    std::fs::write(known.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    nix::unistd::mkfifo(&known.join("gitdir"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    assert_eq!(directories_outside(&base.join("w"), &[], &[]), Vec::<PathBuf>::new());
}
