//! Tests of workspace file access with real files, also while another thread replaces them.

use std::fs;
use std::path::Path;

use super::*;

#[test]
fn a_file_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let workspace_dir = WorkspaceDir::open(dir.path(), ReachPolicy::Workspace).unwrap();
    let written = workspace_dir.replace(Path::new("a/b/c.txt"), "héllo\n".as_bytes()).unwrap();
    assert_eq!(written, WriteOutcome { bytes: 7, created: true });
    assert_eq!(workspace_dir.read(Path::new("a/b/c.txt"), 7).unwrap(), "héllo\n".as_bytes());
    let too_large = workspace_dir.read(Path::new("a/b/c.txt"), 6);
    assert!(matches!(too_large, Err(WorkspaceError::TooLarge { limit: 6, .. })), "{too_large:?}");
    let again = workspace_dir.replace(&dir.path().join("a/b/../b/c.txt"), b"").unwrap();
    assert_eq!(again, WriteOutcome { bytes: 0, created: false });
    assert_eq!(names(&dir.path().join("a/b")), ["c.txt"]);
    workspace_dir.remove(Path::new("a/b/c.txt")).unwrap();
    assert!(matches!(workspace_dir.remove(Path::new("a/b/c.txt")), Err(WorkspaceError::NotFound { .. })));
    assert_eq!(names(&dir.path().join("a/b")), Vec::<String>::new());
}

#[test]
fn what_is_no_file_is_refused_by_its_kind() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    let workspace_dir = WorkspaceDir::open(dir.path(), ReachPolicy::Workspace).unwrap();
    for path in ["sub", ".", "", "sub/.."] {
        let read = workspace_dir.open_file(Path::new(path));
        assert!(matches!(read, Err(WorkspaceError::IsDirectory { .. })), "{path}: {read:?}");
        let written = workspace_dir.replace(Path::new(path), b"x");
        assert!(matches!(written, Err(WorkspaceError::IsDirectory { .. })), "{path}: {written:?}");
    }
    assert!(matches!(workspace_dir.open_file(Path::new("none")), Err(WorkspaceError::NotFound { .. })));
    assert!(matches!(workspace_dir.open_directory(Path::new("file")), Err(WorkspaceError::NotADirectory { .. })));
    assert!(matches!(workspace_dir.replace(Path::new("file/x"), b"x"), Err(WorkspaceError::NotADirectory { .. })));
    assert!(WorkspaceDir::open(&dir.path().join("none"), ReachPolicy::Workspace).is_err());
}

#[test]
fn no_path_text_leads_outside() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("root/sub")).unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    let workspace_dir = WorkspaceDir::open(&dir.path().join("root"), ReachPolicy::Workspace).unwrap();
    let absolute = dir.path().join("secret");
    let twisted = dir.path().join("root/../secret");
    for path in [Path::new("../secret"), Path::new("sub/../../secret"), &absolute, &twisted] {
        assert_outside(&workspace_dir, path);
    }
    assert!(matches!(workspace_dir.replace(Path::new("../new/x"), b"x"), Err(WorkspaceError::Outside { .. })));
    assert_eq!(names(dir.path()), ["root", "secret"]);
    let anywhere = WorkspaceDir::open(&dir.path().join("root"), ReachPolicy::Anywhere).unwrap();
    assert_eq!(anywhere.read(Path::new("../secret"), 9).unwrap(), b"secret");
    anywhere.replace(&absolute, b"told").unwrap();
    assert_eq!(fs::read(&absolute).unwrap(), b"told");
}

#[test]
fn a_path_that_leaves_its_start_is_recognised() {
    for path in ["a", "a/..", "a/../b", "./a", ""] {
        assert!(stays_beneath(Path::new(path)), "{path}");
    }
    for path in ["..", "a/../..", "/a", "a/../../a"] {
        assert!(!stays_beneath(Path::new(path)), "{path}");
    }
}

#[cfg(unix)]
#[test]
fn a_replaced_file_keeps_its_mode_and_links_stay_links() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "old").unwrap();
    fs::set_permissions(&script, PermissionsExt::from_mode(0o751)).unwrap();
    symlink("script", dir.path().join("link")).unwrap();
    symlink("later", dir.path().join("dangling")).unwrap();
    let workspace_dir = WorkspaceDir::open(dir.path(), ReachPolicy::Workspace).unwrap();
    workspace_dir.replace(Path::new("link"), b"new").unwrap();
    assert_eq!(fs::read(&script).unwrap(), b"new");
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o7777, 0o751);
    assert!(fs::symlink_metadata(dir.path().join("link")).unwrap().is_symlink());
    assert!(workspace_dir.replace(Path::new("dangling"), b"x").unwrap().created);
    assert_eq!(names(dir.path()), ["dangling", "later", "link", "script"]);
    let fresh = fs::metadata(dir.path().join("later")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(fresh & !0o644, 0, "mode {fresh:o}");
}

#[cfg(unix)]
#[test]
fn a_replaced_file_loses_its_set_uid_and_set_gid_bits() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    fs::write(&program, "old").unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o6755)).unwrap();
    let workspace_dir = WorkspaceDir::open(dir.path(), ReachPolicy::Workspace).unwrap();
    workspace_dir.replace(Path::new("program"), b"new").unwrap();
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("mkfifo").arg(dir.path().join("fifo")).status().unwrap();
    assert!(made.success());
    for reach in [ReachPolicy::Workspace, ReachPolicy::Anywhere] {
        let workspace_dir = WorkspaceDir::open(dir.path(), reach).unwrap();
        assert!(matches!(workspace_dir.open_file(Path::new("fifo")), Err(WorkspaceError::NotAFile { .. })));
        assert!(matches!(workspace_dir.replace(Path::new("fifo"), b"x"), Err(WorkspaceError::NotAFile { .. })));
    }
}

#[cfg(unix)]
#[test]
fn links_inside_work_and_links_that_lead_out_are_refused() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/f"), "in").unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    symlink("../secret", root.join("leak")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink(dir.path(), root.join("absolute")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("../f", root.join("a/b/inner")).unwrap();
    symlink("../../leak", root.join("a/b/chain")).unwrap();
    let workspace_dir = WorkspaceDir::open(&root, ReachPolicy::Workspace).unwrap();
    for path in ["leak", "up/secret", "absolute/secret", "a/b/chain", "loop", "magic/etc/passwd"] {
        assert_outside(&workspace_dir, Path::new(path));
    }
    if cfg!(target_os = "linux") {
        assert_eq!(workspace_dir.read(Path::new("a/b/inner"), 9).unwrap(), b"in");
    }
    workspace_dir.replace(Path::new("a/b/inner"), b"new").unwrap();
    assert_eq!(fs::read(root.join("a/f")).unwrap(), b"new");
    assert_eq!(fs::read(dir.path().join("secret")).unwrap(), b"secret");
    let listed = workspace_dir.open_directory(Path::new("up"));
    assert!(matches!(listed, Err(WorkspaceError::Outside { .. })), "{listed:?}");
    let folder = workspace_dir.open_directory(Path::new("")).unwrap();
    assert!(folder.open_directory(OsStr::new("up")).is_err());
}

/// One thread keeps replacing `swap`: a directory, then a link that leads outside. The other thread reads, writes and
/// removes files beneath it. Nothing outside may be read or changed.
#[cfg(unix)]
#[test]
fn swapping_directories_and_links_never_leads_outside() {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::AtomicBool;
    const TRIES: usize = 6000;
    let dir = tempfile::tempdir().unwrap();
    let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
    for folder in [&root.join("honest/deep"), &outside.join("deep")] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(root.join("honest/file"), "inside").unwrap();
    fs::write(outside.join("file"), "OUTSIDE").unwrap();
    symlink(&outside, root.join("liar")).unwrap();
    symlink("../outside", root.join("other")).unwrap();
    let workspace_dir = WorkspaceDir::open(&root, ReachPolicy::Workspace).unwrap();
    let done = AtomicBool::new(false);
    let (mut reached, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for thing in ["honest", "liar", "other"] {
                    // A write may just have created the missing directory.
                    if fs::rename(root.join(thing), root.join("swap")).is_err() {
                        let _gone = fs::remove_dir_all(root.join("swap"));
                        continue;
                    }
                    fs::rename(root.join("swap"), root.join(thing)).unwrap();
                }
            }
        });
        // Stops the other thread also when an assertion fails.
        let _when_dropped = SetOnDrop(&done);
        for count in 0..TRIES {
            let path = ["swap/file", "swap/deep/../file", "honest/../swap/file"][count % 3];
            match workspace_dir.read(Path::new(path), 100) {
                Ok(content) => {
                    assert!(content == b"inside" || content == b"new", "{path}: {content:?}");
                    reached += 1;
                }
                Err(_) => refused += 1,
            }
            // Writes sync to disk, so there are fewer of them.
            if count % 30 == 0 {
                let _either = workspace_dir.replace(Path::new(path), b"new");
                let _either = workspace_dir.replace(Path::new("swap/deep/made/here"), b"new");
                let _either = workspace_dir.remove(Path::new("swap/file"));
            }
            if let Ok(folder) = workspace_dir.open_directory(Path::new("swap")) {
                let (entries, _) = folder.entries(100).unwrap();
                assert!(entries.iter().all(|entry| entry.bytes != 7), "{entries:?}");
            }
            fs::write(root.join("honest/file"), "inside").or_else(ignore_not_found).unwrap();
        }
    });
    assert!(reached > 0 && refused > 0, "the swaps never met a try: {reached} reached, {refused} refused");
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"OUTSIDE");
    assert_eq!((names(&outside), names(&outside.join("deep"))), (vec!["deep".into(), "file".into()], vec![]));
}

#[test]
fn the_git_and_push_directories_are_readable_and_not_writable() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("sub/.git/hooks")).unwrap();
    fs::write(dir.path().join("sub/.git/config"), "old").unwrap();
    let workspace_dir = WorkspaceDir::open(dir.path(), ReachPolicy::Workspace).unwrap();
    assert_eq!(workspace_dir.read(Path::new("sub/.git/config"), 9).unwrap(), b"old");
    for path in [
        ".git",
        ".git/hooks/pre-commit",
        ".GIT/config",
        ".push/config.toml",
        "deep/er/.git/config",
        "sub/.git/config",
        "sub/.git/hooks/../config",
        ".git./x",
        ".git /x",
        "GIT~1/x",
        ".gi\u{200c}t/x",
    ] {
        let written = workspace_dir.replace(Path::new(path), b"x");
        assert!(matches!(written, Err(WorkspaceError::Protected { .. })), "{path}: {written:?}");
        let absolute = workspace_dir.replace(&dir.path().join(path), b"x");
        assert!(matches!(absolute, Err(WorkspaceError::Protected { .. })), "{path}: {absolute:?}");
    }
    assert!(matches!(workspace_dir.remove(Path::new("sub/.git/config")), Err(WorkspaceError::Protected { .. })));
    assert_eq!(names(dir.path()), ["sub"]);
    assert_eq!(names(&dir.path().join("sub/.git")), ["config", "hooks"]);
    for path in [".gitignore", "git/x", ".github/x", "a.git/x", ".pushed"] {
        workspace_dir.replace(Path::new(path), b"x").unwrap();
    }
    let own = WorkspaceDir::open(dir.path(), ReachPolicy::Anywhere).unwrap();
    own.replace(Path::new("sub/.git/config"), b"the user's own").unwrap();
}

#[cfg(unix)]
#[test]
fn no_link_leads_to_what_is_protected() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(".git/hooks")).unwrap();
    fs::write(dir.path().join(".git/config"), "old").unwrap();
    for (link, target) in [("dir", ".git"), ("hooks", ".git/hooks"), ("file", ".git/config"), ("new", ".git/new")] {
        std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
    }
    fs::hard_link(dir.path().join(".git/config"), dir.path().join("hard")).unwrap();
    let workspace_dir = WorkspaceDir::open(dir.path(), ReachPolicy::Workspace).unwrap();
    for path in ["dir/config", "dir/made/x", "hooks/pre-commit", "file", "new"] {
        let written = workspace_dir.replace(Path::new(path), b"x");
        let refused = matches!(written, Err(WorkspaceError::Protected { .. } | WorkspaceError::Outside { .. }));
        assert!(refused, "{path}: {written:?}");
    }
    // A write to one of two hard links replaces that link by a new file.
    workspace_dir.replace(Path::new("hard"), b"x").unwrap();
    assert_eq!(fs::read(dir.path().join(".git/config")).unwrap(), b"old");
    assert_eq!(names(&dir.path().join(".git")), ["config", "hooks"]);
    assert_eq!(names(&dir.path().join(".git/hooks")), Vec::<String>::new());
}

/// Stops the other thread when it is dropped.
#[cfg(unix)]
struct SetOnDrop<'a>(&'a std::sync::atomic::AtomicBool);

#[cfg(unix)]
impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(unix)]
fn ignore_not_found(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn assert_outside(workspace_dir: &WorkspaceDir, path: &Path) {
    let read = workspace_dir.open_file(path);
    assert!(matches!(read, Err(WorkspaceError::Outside { .. })), "{}: {read:?}", path.display());
    let written = workspace_dir.replace(path, b"x");
    assert!(matches!(written, Err(WorkspaceError::Outside { .. })), "{}: {written:?}", path.display());
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[cfg(unix)]
#[test]
fn a_credential_store_is_denied_under_every_name() {
    use std::os::unix::fs::symlink;

    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().canonicalize().unwrap();
    let at = |name: &str| home.join(name);
    for folder in [".ssh/keys", "work", ".config/push"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    for file in [".ssh/id", ".ssh/keys/k", ".netrc", ".config/push/config.toml", "work/f"] {
        fs::write(at(file), "secret").unwrap();
    }
    symlink(".ssh", at("link")).unwrap();
    symlink("../.ssh/id", at("work/id")).unwrap();
    symlink("../link/keys", at("work/keys")).unwrap();
    fs::hard_link(at(".netrc"), at("work/netrc")).unwrap();
    let stores = [".ssh", ".netrc", ".config/push", ".push", ".aws"].map(at).to_vec();
    let stores = DeniedPaths { credential_stores: stores, ..DeniedPaths::default() };
    let workspace_dir =
        WorkspaceDir::open_without_links(&home, ReachPolicy::Workspace).unwrap().with_denied_paths(&stores);
    for path in [
        ".ssh/id",
        "./work/../.ssh/id",
        "link/id",
        "work/id",
        "work/keys/k",
        ".netrc",
        "work/netrc",
        ".config/push/config.toml",
    ] {
        let read = workspace_dir.read(Path::new(path), 100);
        let outside = matches!(read, Err(WorkspaceError::Hidden { .. } | WorkspaceError::Outside { .. }));
        assert!(outside, "read {path}: {read:?}");
        let written = workspace_dir.replace(Path::new(path), b"changed");
        let refused = matches!(written, Err(WorkspaceError::Hidden { .. } | WorkspaceError::Outside { .. }));
        assert!(refused, "write {path}: {written:?}");
        assert!(workspace_dir.remove(Path::new(path)).is_err(), "remove {path}");
    }
    for path in [".aws/credentials", ".push/state/x", ".AWS/credentials", ".ssh/new/deep", "link/new"] {
        let written = workspace_dir.replace(Path::new(path), b"new");
        let refused = matches!(
            written,
            Err(WorkspaceError::Hidden { .. } | WorkspaceError::Outside { .. } | WorkspaceError::Protected { .. })
        );
        assert!(refused, "create {path}: {written:?}");
    }
    assert!(!at(".aws").exists() && !at(".push").exists() && !at(".ssh/new").exists());
    for path in [".ssh", "link", "link/keys", ".config/push", "work/keys"] {
        assert!(workspace_dir.open_directory(Path::new(path)).is_err(), "list {path}");
    }
    let folder = workspace_dir.open_directory(Path::new(".")).unwrap();
    assert!(matches!(folder.open_directory(OsStr::new(".ssh")), Err(WorkspaceError::Hidden { .. })));
    assert!(matches!(folder.open_file(OsStr::new(".netrc")), Err(WorkspaceError::Hidden { .. })));
    assert!(workspace_dir.check_change(Path::new(".aws/x")).is_err());
    assert_eq!(workspace_dir.read(Path::new("work/f"), 100).unwrap(), b"secret");
    // A command that the user wrote may name any path.
    let own = WorkspaceDir::open(&home, ReachPolicy::Anywhere).unwrap().with_denied_paths(&stores);
    assert_eq!(own.read(Path::new(".ssh/id"), 100).unwrap(), b"secret");
}

#[cfg(unix)]
#[test]
fn a_workspace_inside_a_credential_store_is_denied_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().canonicalize().unwrap();
    fs::create_dir_all(home.join(".ssh/sub")).unwrap();
    fs::write(home.join(".ssh/sub/f"), "secret").unwrap();
    for workspace in [".ssh", ".ssh/sub"] {
        let workspace_dir = WorkspaceDir::open_without_links(&home.join(workspace), ReachPolicy::Workspace).unwrap();
        let workspace_dir = workspace_dir
            .with_denied_paths(&DeniedPaths { credential_stores: vec![home.join(".ssh")], ..DeniedPaths::default() });
        assert!(
            matches!(workspace_dir.open_directory(Path::new(".")), Err(WorkspaceError::Hidden { .. })),
            "{workspace}"
        );
        let written = workspace_dir.replace(Path::new("x"), b"x");
        assert!(matches!(written, Err(WorkspaceError::Hidden { .. })), "{workspace}: {written:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_path_is_followed_to_where_it_leads() {
    use std::os::unix::fs::symlink;

    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("a/b")).unwrap();
    symlink("a/b", root.join("link")).unwrap();
    symlink("link", root.join("again")).unwrap();
    symlink("../a/new", root.join("a/file")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    let workspace_dir = WorkspaceDir::open_without_links(&root, ReachPolicy::Workspace).unwrap();
    for (path, real) in [
        ("a/b/f", "a/b/f"),
        ("link/f", "a/b/f"),
        ("again", "a/b"),
        ("again/deep/er/f", "a/b/deep/er/f"),
        ("a/file", "a/new"),
        ("./a/../a/b", "a/b"),
        ("loop", "loop"),
        ("none/f", "none/f"),
    ] {
        assert_eq!(workspace_dir.resolve_links(Path::new(path)), root.join(real), "{path}");
    }
}

#[cfg(unix)]
#[test]
fn a_directory_is_opened_without_following_any_link() {
    use std::os::unix::fs::symlink;

    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().canonicalize().unwrap();
    fs::create_dir_all(base.join("real/work")).unwrap();
    symlink("real", base.join("link")).unwrap();
    symlink("real/work", base.join("last")).unwrap();
    let workspace_dir = WorkspaceDir::open_without_links(&base.join("real/work"), ReachPolicy::Workspace).unwrap();
    let same = WorkspaceDir::open(&base.join("last"), ReachPolicy::Workspace).unwrap();
    assert_eq!(workspace_dir.file_id().unwrap(), same.file_id().unwrap());
    let id: FileId = workspace_dir.file_id().unwrap().to_string().parse().unwrap();
    assert_eq!(id, workspace_dir.file_id().unwrap());
    for path in ["link/work", "last"] {
        let opened = WorkspaceDir::open_without_links(&base.join(path), ReachPolicy::Workspace);
        assert!(matches!(opened, Err(WorkspaceError::Outside { .. })), "{path}: {opened:?}");
    }
    let id = std::process::id();
    let magic = PathBuf::from(format!("/proc/{id}/cwd"));
    assert!(!magic.exists() || WorkspaceDir::open_without_links(&magic, ReachPolicy::Workspace).is_err());
}
