//! Which paths are read-only, which are compared, and which are restored.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

#[test]
fn existing_paths_are_mounted_read_only_and_missing_ones_are_compared() {
    let repository = TestRepository::new();
    fs::remove_dir(repository.at("branches")).unwrap();
    let dir = repository.prepare(Mechanism::Namespaces);
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
        assert_eq!(dir.read_only.contains(Path::new(path)), closed, "{path}");
        assert_eq!(dir.compared.contains(Path::new(path)), !closed, "{path}");
    }
    let mut permissions = StepPermissions::default();
    dir.grant(&mut permissions);
    assert_eq!(
        permissions.writable,
        [repository.at(""), repository.at("worktrees")].map(|path| path.components().collect::<PathBuf>())
    );
    assert!(permissions.read_only.contains(&repository.at("hooks")));
    // Without mounts everything is compared.
    assert!(repository.prepare(Mechanism::Rules).read_only.is_empty());
}

#[test]
fn a_git_directory_with_a_trusted_path_that_is_a_link_is_refused() {
    for mechanism in [Mechanism::Namespaces, Mechanism::Rules] {
        for link in ["remotes", "commondir", "objects/info/alternates"] {
            let repository = TestRepository::new();
            symlink("/nowhere", repository.at(link)).unwrap();
            let refused = WritableGitDir::prepare(&repository.repository(), mechanism).unwrap_err();
            assert!(refused.message.contains(&format!("{link} is a link")), "{}", refused.message);
        }
    }
}

#[test]
fn trusted_paths_are_compared_however_many_files_were_added() {
    let repository = TestRepository::new();
    let dir = repository.prepare(Mechanism::Namespaces);
    for number in 0..40 {
        fs::write(repository.at(&format!("a{number}")), "").unwrap();
    }
    fs::write(repository.at("commondir"), "../evil\n").unwrap();
    fs::write(repository.at("objects/info/alternates"), "/evil\n").unwrap();
    let error = dir.check_with_limits(SnapshotLimits { entries: 20, ..SnapshotLimits::default() }).unwrap_err();
    for gone in ["commondir", "objects/info/alternates"] {
        assert!(fs::symlink_metadata(repository.at(gone)).is_err(), "{gone}");
    }
    assert!(!error.message.contains("was reverted"), "{}", error.message);
    assert!(error.message.contains("inspect it before you use git again"), "{}", error.message);
}

#[test]
fn the_working_tree_of_a_command_is_writable_and_others_are_read_only() {
    let repository = TestRepository::new();
    let side = Repository { git_dir: repository.at("worktrees/side"), ..repository.repository() };
    let dir = WritableGitDir::prepare(&side, Mechanism::Namespaces).unwrap();
    let closed: Vec<&Path> =
        dir.read_only.iter().map(PathBuf::as_path).filter(|path| path.starts_with("worktrees")).collect();
    assert_eq!(closed, ["worktrees/other", "worktrees/side/commondir", "worktrees/side/gitdir"].map(Path::new));
    assert!(dir.compared.contains(Path::new("worktrees/side/config.worktree")));
    assert!(dir.compared.contains(Path::new("worktrees/side/rebase-merge")));
    assert!(!dir.compared.contains(Path::new("worktrees/other/config.worktree")));
    let mut permissions = StepPermissions::default();
    dir.grant(&mut permissions);
    assert!(permissions.writable.contains(&repository.at("worktrees/side")));
    assert!(permissions.writable.contains(&repository.at("worktrees")), "no directory above can be renamed");
}

#[test]
fn every_change_is_reverted_and_the_rejected_files_are_kept() {
    let repository = TestRepository::new();
    symlink("here", repository.at("hooks/linked")).unwrap();
    let hook = repository.at("hooks/pre-push");
    fs::write(&hook, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o750)).unwrap();
    let config = fs::read(repository.at("config")).unwrap();
    let dir = repository.prepare(Mechanism::Rules);
    fs::write(repository.at("config"), "[core]\n\tfsmonitor = evil\n").unwrap();
    fs::remove_dir_all(repository.at("hooks")).unwrap();
    fs::write(repository.at("hooks"), "a file").unwrap();
    symlink("elsewhere", repository.at("remotes")).unwrap();
    fs::create_dir_all(repository.at("sequencer/deep")).unwrap();
    fs::write(repository.at("sequencer/deep/todo"), "exec evil\n").unwrap();
    fs::write(repository.at("objects/info/alternates"), "/evil\n").unwrap();
    symlink("/evil", repository.at("COMMIT_EDITMSG")).unwrap();
    let error = dir.check().unwrap_err();
    assert_eq!(error.kind, ToolErrorKind::ProtectedPath);
    for part in ["/config", "/hooks", "/remotes", "/sequencer", "was reverted", "`outside`"] {
        assert!(error.message.contains(part), "{part}: {}", error.message);
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
    repository.prepare(Mechanism::Rules).check().unwrap();
}

#[test]
fn ordinary_changes_by_git_are_accepted() {
    let repository = TestRepository::new();
    let dir = repository.prepare(Mechanism::Namespaces);
    for (path, text) in
        [("HEAD", "ref: refs/heads/x\n"), ("refs/heads/x", "1\n"), ("COMMIT_EDITMSG", "m\n"), ("objects/aa/bb", "")]
    {
        fs::create_dir_all(repository.at(path).parent().unwrap()).unwrap();
        fs::write(repository.at(path), text).unwrap();
    }
    // Only processes outside of the sandbox can change a read-only path.
    fs::write(repository.at("config"), "[user]\n\tname = Ann\n").unwrap();
    dir.check().unwrap();
}

#[test]
fn a_git_directory_beyond_the_limits_is_refused_before_and_reported_after_a_command() {
    let repository = TestRepository::new();
    let few = SnapshotLimits { entries: 4, ..SnapshotLimits::default() };
    let refused =
        WritableGitDir::prepare_with_limits(&repository.repository(), Mechanism::Namespaces, few).unwrap_err();
    assert!(refused.message.contains("more files than can be compared"), "{}", refused.message);
    fs::create_dir_all(repository.at("refs/heads/a/b/c/d")).unwrap();
    let flat = SnapshotLimits { depth: 3, ..SnapshotLimits::default() };
    assert!(WritableGitDir::prepare_with_limits(&repository.repository(), Mechanism::Namespaces, flat).is_err());
    let dir = repository.prepare(Mechanism::Namespaces);
    assert!(dir.check_with_limits(few).unwrap_err().message.contains("more than can be compared"));
}

#[test]
fn a_file_beyond_the_size_limit_is_left_in_place() {
    let repository = TestRepository::new();
    fs::write(repository.at("info/long"), "123456789").unwrap();
    let short = SnapshotLimits { file_bytes: 4, ..SnapshotLimits::default() };
    let dir = WritableGitDir::prepare_with_limits(&repository.repository(), Mechanism::Rules, short).unwrap();
    fs::write(repository.at("info/long"), "1234567890").unwrap();
    let error = dir.check_with_limits(short).unwrap_err();
    assert!(error.message.contains("could not be reverted completely"), "{}", error.message);
    assert_eq!(fs::read_to_string(repository.at("info/long")).unwrap(), "1234567890");
}

/// A git directory with two linked working trees.
struct TestRepository(tempfile::TempDir);

impl TestRepository {
    fn new() -> Self {
        let test_repository = Self(tempfile::tempdir().unwrap());
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
            fs::create_dir_all(test_repository.at(folder)).unwrap();
        }
        for (file, text) in [
            ("HEAD", "ref: refs/heads/main\n"),
            ("config", "[core]\n\tbare = false\n"),
            ("worktrees/side/gitdir", "/s/.git\n"),
            ("worktrees/side/commondir", "../..\n"),
            ("worktrees/other/gitdir", "/o/.git\n"),
        ] {
            fs::write(test_repository.at(file), text).unwrap();
        }
        test_repository
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(".git").join(name)
    }

    fn repository(&self) -> Repository {
        let git_dir: PathBuf = self.at("").components().collect();
        Repository {
            work_tree: self.0.path().to_owned(),
            git_dir: git_dir.clone(),
            common_dir: git_dir,
            foreign: false,
        }
    }

    fn prepare(&self, mechanism: Mechanism) -> WritableGitDir {
        WritableGitDir::prepare(&self.repository(), mechanism).unwrap()
    }
}
