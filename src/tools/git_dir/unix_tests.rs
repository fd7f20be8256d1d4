//! Which paths are read-only, which are compared, and which are restored.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

#[test]
fn what_is_there_is_closed_by_mounts_and_what_is_missing_is_compared() {
    let repository = Made::new();
    fs::remove_dir(repository.at("branches")).unwrap();
    let dir = repository.prepare(Way::Namespaces);
    for (path, closed) in [
        ("hooks", true),
        ("config", true),
        ("info", true),
        ("worktrees/side", true),
        ("branches", false),
        ("remotes", false),
        ("commondir", false),
        ("sequencer", false),
        ("objects/info/alternates", false),
    ] {
        assert_eq!(dir.closed.contains(Path::new(path)), closed, "{path}");
        assert_eq!(dir.compared.contains(Path::new(path)), !closed, "{path}");
    }
    let mut leave = Leave::default();
    dir.open_to(&mut leave);
    assert_eq!(
        leave.writable,
        [repository.at(""), repository.at("worktrees")].map(|path| path.components().collect::<PathBuf>())
    );
    assert!(leave.closed.contains(&repository.at("hooks")));
    // Without mounts everything is compared.
    assert!(repository.prepare(Way::Rules).closed.is_empty());
}

#[test]
fn a_git_directory_in_which_git_believes_a_link_is_not_opened() {
    for way in [Way::Namespaces, Way::Rules] {
        for link in ["remotes", "commondir", "objects/info/alternates"] {
            let repository = Made::new();
            symlink("/nowhere", repository.at(link)).unwrap();
            let refused = WritableGitDir::prepare(&repository.found(), way).unwrap_err();
            assert!(refused.message.contains(&format!("{link} is a link")), "{}", refused.message);
        }
    }
}

#[test]
fn what_git_believes_is_found_however_much_was_put_beside_it() {
    let repository = Made::new();
    let dir = repository.prepare(Way::Namespaces);
    for number in 0..40 {
        fs::write(repository.at(&format!("a{number}")), "").unwrap();
    }
    fs::write(repository.at("commondir"), "../evil\n").unwrap();
    fs::write(repository.at("objects/info/alternates"), "/evil\n").unwrap();
    let fault = dir.check_within(Limits { entries: 20, ..Limits::default() }).unwrap_err();
    for gone in ["commondir", "objects/info/alternates"] {
        assert!(fs::symlink_metadata(repository.at(gone)).is_err(), "{gone}");
    }
    assert!(!fault.message.contains("was reverted"), "{}", fault.message);
    assert!(fault.message.contains("inspect it before you use git again"), "{}", fault.message);
}

#[test]
fn the_working_tree_of_a_command_is_open_and_those_of_others_are_closed() {
    let repository = Made::new();
    let side = Repository { git_dir: repository.at("worktrees/side"), ..repository.found() };
    let dir = WritableGitDir::prepare(&side, Way::Namespaces).unwrap();
    let closed: Vec<&Path> =
        dir.closed.iter().map(PathBuf::as_path).filter(|path| path.starts_with("worktrees")).collect();
    assert_eq!(
        closed,
        ["worktrees/other", "worktrees/side/commondir", "worktrees/side/gitdir"].map(Path::new)
    );
    assert!(dir.compared.contains(Path::new("worktrees/side/config.worktree")));
    assert!(dir.compared.contains(Path::new("worktrees/side/rebase-merge")));
    assert!(!dir.compared.contains(Path::new("worktrees/other/config.worktree")));
    let mut leave = Leave::default();
    dir.open_to(&mut leave);
    assert!(leave.writable.contains(&repository.at("worktrees/side")));
    assert!(leave.writable.contains(&repository.at("worktrees")), "no directory above can be renamed");
}

#[test]
fn everything_that_was_changed_is_put_back_and_nothing_is_thrown_away() {
    let repository = Made::new();
    symlink("here", repository.at("hooks/linked")).unwrap();
    let hook = repository.at("hooks/pre-push");
    fs::write(&hook, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o750)).unwrap();
    let config = fs::read(repository.at("config")).unwrap();
    let dir = repository.prepare(Way::Rules);
    fs::write(repository.at("config"), "[core]\n\tfsmonitor = evil\n").unwrap();
    fs::remove_dir_all(repository.at("hooks")).unwrap();
    fs::write(repository.at("hooks"), "a file").unwrap();
    symlink("elsewhere", repository.at("remotes")).unwrap();
    fs::create_dir_all(repository.at("sequencer/deep")).unwrap();
    fs::write(repository.at("sequencer/deep/todo"), "exec evil\n").unwrap();
    fs::write(repository.at("objects/info/alternates"), "/evil\n").unwrap();
    symlink("/evil", repository.at("COMMIT_EDITMSG")).unwrap();
    let fault = dir.check().unwrap_err();
    assert_eq!(fault.kind, FaultKind::ProtectedPath);
    for part in ["/config", "/hooks", "/remotes", "/sequencer", "was reverted", "`outside`"] {
        assert!(fault.message.contains(part), "{part}: {}", fault.message);
    }
    assert_eq!(fs::read(repository.at("config")).unwrap(), config);
    assert_eq!(fs::read_to_string(&hook).unwrap(), "#!/bin/sh\n");
    assert_eq!(fs::metadata(&hook).unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(fs::read_link(repository.at("hooks/linked")).unwrap(), Path::new("here"));
    for gone in ["remotes", "sequencer", "objects/info/alternates", "COMMIT_EDITMSG"] {
        assert!(fs::symlink_metadata(repository.at(gone)).is_err(), "{gone}");
    }
    for (aside, text) in [
        ("config.rejected-1", "[core]\n\tfsmonitor = evil\n"),
        ("hooks.rejected-1", "a file"),
        ("sequencer.rejected-1/deep/todo", "exec evil\n"),
        ("objects/info/alternates.rejected-1", "/evil\n"),
    ] {
        assert_eq!(fs::read_to_string(repository.at(aside)).unwrap(), text);
    }
    repository.prepare(Way::Rules).check().unwrap();
}

#[test]
fn what_git_itself_changes_is_no_change() {
    let repository = Made::new();
    let dir = repository.prepare(Way::Namespaces);
    for (path, text) in [
        ("HEAD", "ref: refs/heads/x\n"),
        ("refs/heads/x", "1\n"),
        ("COMMIT_EDITMSG", "m\n"),
        ("objects/aa/bb", ""),
    ] {
        fs::create_dir_all(repository.at(path).parent().unwrap()).unwrap();
        fs::write(repository.at(path), text).unwrap();
    }
    // Only processes outside of the sandbox can change a read-only path.
    fs::write(repository.at("config"), "[user]\n\tname = Ann\n").unwrap();
    dir.check().unwrap();
}

#[test]
fn a_git_directory_that_is_too_large_or_too_deep_is_not_opened_and_one_that_became_so_is_said() {
    let repository = Made::new();
    let few = Limits { entries: 4, ..Limits::default() };
    let refused = WritableGitDir::prepare_within(&repository.found(), Way::Namespaces, few).unwrap_err();
    assert!(refused.message.contains("more files than can be compared"), "{}", refused.message);
    fs::create_dir_all(repository.at("refs/heads/a/b/c/d")).unwrap();
    let flat = Limits { depth: 3, ..Limits::default() };
    assert!(WritableGitDir::prepare_within(&repository.found(), Way::Namespaces, flat).is_err());
    let dir = repository.prepare(Way::Namespaces);
    assert!(dir.check_within(few).unwrap_err().message.contains("more than can be compared"));
}

#[test]
fn a_file_that_is_too_long_to_be_kept_is_not_taken_away() {
    let repository = Made::new();
    fs::write(repository.at("info/long"), "123456789").unwrap();
    let short = Limits { file_bytes: 4, ..Limits::default() };
    let dir = WritableGitDir::prepare_within(&repository.found(), Way::Rules, short).unwrap();
    fs::write(repository.at("info/long"), "1234567890").unwrap();
    let fault = dir.check_within(short).unwrap_err();
    assert!(fault.message.contains("could not be reverted completely"), "{}", fault.message);
    assert_eq!(fs::read_to_string(repository.at("info/long")).unwrap(), "1234567890");
}

/// A git directory with two linked working trees.
struct Made(tempfile::TempDir);

impl Made {
    fn new() -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        for folder in [
            "hooks",
            "info",
            "branches",
            "objects/info",
            "objects/pack",
            "refs/heads",
            "worktrees/side",
            "worktrees/other",
        ] {
            fs::create_dir_all(made.at(folder)).unwrap();
        }
        for (file, text) in [
            ("HEAD", "ref: refs/heads/main\n"),
            ("config", "[core]\n\tbare = false\n"),
            ("worktrees/side/gitdir", "/s/.git\n"),
            ("worktrees/side/commondir", "../..\n"),
            ("worktrees/other/gitdir", "/o/.git\n"),
        ] {
            fs::write(made.at(file), text).unwrap();
        }
        made
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(".git").join(name)
    }

    fn found(&self) -> Repository {
        let git_dir: PathBuf = self.at("").components().collect();
        Repository {
            work_tree: self.0.path().to_owned(),
            git_dir: git_dir.clone(),
            common_dir: git_dir,
            foreign: false,
        }
    }

    fn prepare(&self, way: Way) -> WritableGitDir {
        WritableGitDir::prepare(&self.found(), way).unwrap()
    }
}
