//! Tests of workspace file access with real files, also while another thread replaces them.

use std::fs;
use std::path::Path;

use super::*;

#[test]
fn a_file_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let ground = Ground::open(dir.path(), Reach::Workspace).unwrap();
    let written = ground.replace(Path::new("a/b/c.txt"), "héllo\n".as_bytes()).unwrap();
    assert_eq!(written, Written { bytes: 7, created: true });
    assert_eq!(ground.content(Path::new("a/b/c.txt"), 7).unwrap(), "héllo\n".as_bytes());
    let too_large = ground.content(Path::new("a/b/c.txt"), 6);
    assert!(matches!(too_large, Err(GroundError::TooLarge { limit: 6, .. })), "{too_large:?}");
    let again = ground.replace(&dir.path().join("a/b/../b/c.txt"), b"").unwrap();
    assert_eq!(again, Written { bytes: 0, created: false });
    assert_eq!(names(&dir.path().join("a/b")), ["c.txt"]);
    ground.remove(Path::new("a/b/c.txt")).unwrap();
    assert!(matches!(ground.remove(Path::new("a/b/c.txt")), Err(GroundError::NotFound { .. })));
    assert_eq!(names(&dir.path().join("a/b")), Vec::<String>::new());
}

#[test]
fn what_is_no_file_is_refused_by_its_kind() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    let ground = Ground::open(dir.path(), Reach::Workspace).unwrap();
    for path in ["sub", ".", "", "sub/.."] {
        let read = ground.file(Path::new(path));
        assert!(matches!(read, Err(GroundError::IsDirectory { .. })), "{path}: {read:?}");
        let written = ground.replace(Path::new(path), b"x");
        assert!(matches!(written, Err(GroundError::IsDirectory { .. })), "{path}: {written:?}");
    }
    assert!(matches!(ground.file(Path::new("none")), Err(GroundError::NotFound { .. })));
    assert!(matches!(ground.folder(Path::new("file")), Err(GroundError::NotADirectory { .. })));
    assert!(matches!(ground.replace(Path::new("file/x"), b"x"), Err(GroundError::NotADirectory { .. })));
    assert!(Ground::open(&dir.path().join("none"), Reach::Workspace).is_err());
}

#[test]
fn nothing_outside_is_reached_by_words() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("root/sub")).unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    let ground = Ground::open(&dir.path().join("root"), Reach::Workspace).unwrap();
    let absolute = dir.path().join("secret");
    let twisted = dir.path().join("root/../secret");
    for path in [Path::new("../secret"), Path::new("sub/../../secret"), &absolute, &twisted] {
        assert_outside(&ground, path);
    }
    assert!(matches!(ground.replace(Path::new("../new/x"), b"x"), Err(GroundError::Outside { .. })));
    assert_eq!(names(dir.path()), ["root", "secret"]);
    let anywhere = Ground::open(&dir.path().join("root"), Reach::Anywhere).unwrap();
    assert_eq!(anywhere.content(Path::new("../secret"), 9).unwrap(), b"secret");
    anywhere.replace(&absolute, b"told").unwrap();
    assert_eq!(fs::read(&absolute).unwrap(), b"told");
}

#[test]
fn a_path_that_stays_beneath_is_told_from_one_that_leaves() {
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
    let ground = Ground::open(dir.path(), Reach::Workspace).unwrap();
    ground.replace(Path::new("link"), b"new").unwrap();
    assert_eq!(fs::read(&script).unwrap(), b"new");
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o7777, 0o751);
    assert!(fs::symlink_metadata(dir.path().join("link")).unwrap().is_symlink());
    assert!(ground.replace(Path::new("dangling"), b"x").unwrap().created);
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
    let ground = Ground::open(dir.path(), Reach::Workspace).unwrap();
    ground.replace(Path::new("program"), b"new").unwrap();
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("mkfifo").arg(dir.path().join("fifo")).status().unwrap();
    assert!(made.success());
    for reach in [Reach::Workspace, Reach::Anywhere] {
        let ground = Ground::open(dir.path(), reach).unwrap();
        assert!(matches!(ground.file(Path::new("fifo")), Err(GroundError::NotAFile { .. })));
        assert!(matches!(ground.replace(Path::new("fifo"), b"x"), Err(GroundError::NotAFile { .. })));
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
    let ground = Ground::open(&root, Reach::Workspace).unwrap();
    for path in ["leak", "up/secret", "absolute/secret", "a/b/chain", "loop", "magic/etc/passwd"] {
        assert_outside(&ground, Path::new(path));
    }
    if cfg!(target_os = "linux") {
        assert_eq!(ground.content(Path::new("a/b/inner"), 9).unwrap(), b"in");
    }
    ground.replace(Path::new("a/b/inner"), b"new").unwrap();
    assert_eq!(fs::read(root.join("a/f")).unwrap(), b"new");
    assert_eq!(fs::read(dir.path().join("secret")).unwrap(), b"secret");
    let listed = ground.folder(Path::new("up"));
    assert!(matches!(listed, Err(GroundError::Outside { .. })), "{listed:?}");
    let folder = ground.folder(Path::new("")).unwrap();
    assert!(folder.folder(OsStr::new("up")).is_err());
}

/// One thread keeps replacing `swap`: a directory, then a link that leads outside. The other thread reads, writes and
/// removes files beneath it. Nothing outside may be read or changed.
#[cfg(unix)]
#[test]
fn nobody_escapes_while_directories_and_links_are_exchanged() {
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
    let ground = Ground::open(&root, Reach::Workspace).unwrap();
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
        let _when_dropped = Done(&done);
        for count in 0..TRIES {
            let path = ["swap/file", "swap/deep/../file", "honest/../swap/file"][count % 3];
            match ground.content(Path::new(path), 100) {
                Ok(content) => {
                    assert!(content == b"inside" || content == b"new", "{path}: {content:?}");
                    reached += 1;
                }
                Err(_) => refused += 1,
            }
            // Writes sync to disk, so there are fewer of them.
            if count % 30 == 0 {
                let _either = ground.replace(Path::new(path), b"new");
                let _either = ground.replace(Path::new("swap/deep/made/here"), b"new");
                let _either = ground.remove(Path::new("swap/file"));
            }
            if let Ok(folder) = ground.folder(Path::new("swap")) {
                let (entries, _) = folder.entries(100).unwrap();
                assert!(entries.iter().all(|entry| entry.bytes != 7), "{entries:?}");
            }
            fs::write(root.join("honest/file"), "inside").or_else(gone_for_a_moment).unwrap();
        }
    });
    assert!(reached > 0 && refused > 0, "the swaps never met a try: {reached} reached, {refused} refused");
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"OUTSIDE");
    assert_eq!((names(&outside), names(&outside.join("deep"))), (vec!["deep".into(), "file".into()], vec![]));
}

#[test]
fn the_repository_and_the_project_s_rules_are_read_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("sub/.git/hooks")).unwrap();
    fs::write(dir.path().join("sub/.git/config"), "old").unwrap();
    let ground = Ground::open(dir.path(), Reach::Workspace).unwrap();
    assert_eq!(ground.content(Path::new("sub/.git/config"), 9).unwrap(), b"old");
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
        let written = ground.replace(Path::new(path), b"x");
        assert!(matches!(written, Err(GroundError::Protected { .. })), "{path}: {written:?}");
        let absolute = ground.replace(&dir.path().join(path), b"x");
        assert!(matches!(absolute, Err(GroundError::Protected { .. })), "{path}: {absolute:?}");
    }
    assert!(matches!(ground.remove(Path::new("sub/.git/config")), Err(GroundError::Protected { .. })));
    assert_eq!(names(dir.path()), ["sub"]);
    assert_eq!(names(&dir.path().join("sub/.git")), ["config", "hooks"]);
    for path in [".gitignore", "git/x", ".github/x", "a.git/x", ".pushed"] {
        ground.replace(Path::new(path), b"x").unwrap();
    }
    let own = Ground::open(dir.path(), Reach::Anywhere).unwrap();
    own.replace(Path::new("sub/.git/config"), b"the user's own").unwrap();
}

#[cfg(unix)]
#[test]
fn no_link_leads_to_what_is_protected() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(".git/hooks")).unwrap();
    fs::write(dir.path().join(".git/config"), "old").unwrap();
    for (link, target) in
        [("dir", ".git"), ("hooks", ".git/hooks"), ("file", ".git/config"), ("new", ".git/new")]
    {
        std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
    }
    fs::hard_link(dir.path().join(".git/config"), dir.path().join("hard")).unwrap();
    let ground = Ground::open(dir.path(), Reach::Workspace).unwrap();
    for path in ["dir/config", "dir/made/x", "hooks/pre-commit", "file", "new"] {
        let written = ground.replace(Path::new(path), b"x");
        let refused = matches!(written, Err(GroundError::Protected { .. } | GroundError::Outside { .. }));
        assert!(refused, "{path}: {written:?}");
    }
    // A write to one of two hard links replaces that link by a new file.
    ground.replace(Path::new("hard"), b"x").unwrap();
    assert_eq!(fs::read(dir.path().join(".git/config")).unwrap(), b"old");
    assert_eq!(names(&dir.path().join(".git")), ["config", "hooks"]);
    assert_eq!(names(&dir.path().join(".git/hooks")), Vec::<String>::new());
}

/// Stops the other thread when it is dropped.
#[cfg(unix)]
struct Done<'a>(&'a std::sync::atomic::AtomicBool);

#[cfg(unix)]
impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(unix)]
fn gone_for_a_moment(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn assert_outside(ground: &Ground, path: &Path) {
    let read = ground.file(path);
    assert!(matches!(read, Err(GroundError::Outside { .. })), "{}: {read:?}", path.display());
    let written = ground.replace(path, b"x");
    assert!(matches!(written, Err(GroundError::Outside { .. })), "{}: {written:?}", path.display());
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[cfg(unix)]
#[test]
fn a_store_is_closed_under_every_name() {
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
    let stores = ClosedPaths { stores, ..ClosedPaths::default() };
    let ground = Ground::open_without_links(&home, Reach::Workspace).unwrap().closing(&stores);
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
        let read = ground.content(Path::new(path), 100);
        let outside = matches!(read, Err(GroundError::Hidden { .. } | GroundError::Outside { .. }));
        assert!(outside, "read {path}: {read:?}");
        let written = ground.replace(Path::new(path), b"changed");
        let refused = matches!(written, Err(GroundError::Hidden { .. } | GroundError::Outside { .. }));
        assert!(refused, "write {path}: {written:?}");
        assert!(ground.remove(Path::new(path)).is_err(), "remove {path}");
    }
    for path in [".aws/credentials", ".push/state/x", ".AWS/credentials", ".ssh/new/deep", "link/new"] {
        let written = ground.replace(Path::new(path), b"new");
        let refused = matches!(
            written,
            Err(GroundError::Hidden { .. } | GroundError::Outside { .. } | GroundError::Protected { .. })
        );
        assert!(refused, "create {path}: {written:?}");
    }
    assert!(!at(".aws").exists() && !at(".push").exists() && !at(".ssh/new").exists());
    for path in [".ssh", "link", "link/keys", ".config/push", "work/keys"] {
        assert!(ground.folder(Path::new(path)).is_err(), "list {path}");
    }
    let folder = ground.folder(Path::new(".")).unwrap();
    assert!(matches!(folder.folder(OsStr::new(".ssh")), Err(GroundError::Hidden { .. })));
    assert!(matches!(folder.file(OsStr::new(".netrc")), Err(GroundError::Hidden { .. })));
    assert!(ground.may_change(Path::new(".aws/x")).is_err());
    assert_eq!(ground.content(Path::new("work/f"), 100).unwrap(), b"secret");
    // A command that the user wrote may name any path.
    let own = Ground::open(&home, Reach::Anywhere).unwrap().closing(&stores);
    assert_eq!(own.content(Path::new(".ssh/id"), 100).unwrap(), b"secret");
}

#[cfg(unix)]
#[test]
fn a_workspace_inside_a_store_is_closed_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().canonicalize().unwrap();
    fs::create_dir_all(home.join(".ssh/sub")).unwrap();
    fs::write(home.join(".ssh/sub/f"), "secret").unwrap();
    for workspace in [".ssh", ".ssh/sub"] {
        let ground = Ground::open_without_links(&home.join(workspace), Reach::Workspace).unwrap();
        let ground =
            ground.closing(&ClosedPaths { stores: vec![home.join(".ssh")], ..ClosedPaths::default() });
        assert!(matches!(ground.folder(Path::new(".")), Err(GroundError::Hidden { .. })), "{workspace}");
        let written = ground.replace(Path::new("x"), b"x");
        assert!(matches!(written, Err(GroundError::Hidden { .. })), "{workspace}: {written:?}");
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
    let ground = Ground::open_without_links(&root, Reach::Workspace).unwrap();
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
        assert_eq!(ground.real(Path::new(path)), root.join(real), "{path}");
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
    let ground = Ground::open_without_links(&base.join("real/work"), Reach::Workspace).unwrap();
    let same = Ground::open(&base.join("last"), Reach::Workspace).unwrap();
    assert_eq!(ground.file_id().unwrap(), same.file_id().unwrap());
    let id: FileId = ground.file_id().unwrap().to_string().parse().unwrap();
    assert_eq!(id, ground.file_id().unwrap());
    for path in ["link/work", "last"] {
        let opened = Ground::open_without_links(&base.join(path), Reach::Workspace);
        assert!(matches!(opened, Err(GroundError::Outside { .. })), "{path}: {opened:?}");
    }
    let id = std::process::id();
    let magic = PathBuf::from(format!("/proc/{id}/cwd"));
    assert!(!magic.exists() || Ground::open_without_links(&magic, Reach::Workspace).is_err());
}
