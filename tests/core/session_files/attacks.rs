//! Paths that lead out of the session directories, and special files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::stat::Mode;
use nix::unistd::{geteuid, mkfifo};
use pushd::protocol::pi::session_file::Limits;
use pushd::runtime::session_files::store::{ListLimits, StoreError};

use super::{Fixture, OUTSIDE, header, is_link, names};
use crate::support::skip::skip;

#[test]
fn a_path_outside_of_the_directories_is_refused_by_its_text() {
    let fixture = Fixture::new();
    fs::write(fixture.path("home/.pi/agent/auth.jsonl"), super::session("secret")).unwrap();
    fs::write(fixture.path("outside/a.jsonl"), super::session("secret")).unwrap();
    for path in [
        PathBuf::from("a.jsonl"),
        PathBuf::from(".pi/sessions/a.jsonl"),
        PathBuf::from("/etc/passwd"),
        PathBuf::from(""),
        fixture.path("outside/a.jsonl"),
        fixture.path("home/.pi/agent/auth.jsonl"),
        fixture.user_session("../auth.jsonl"),
        fixture.user_session("x/../../auth.jsonl"),
        fixture.user_session("./a.jsonl"),
        fixture.project_session("../../../outside/a.jsonl"),
        fixture.store.directory(),
        fixture.path("project/.pi/sessions"),
        PathBuf::from(format!("{}/a\0.jsonl", fixture.store.directory().display())),
        fixture.user_session(&"a/".repeat(2100)).join("a.jsonl"),
    ] {
        assert_eq!(fixture.refusal(&path), OUTSIDE, "{path:?}");
        assert_eq!(fixture.store.check(&path).unwrap_err().to_string(), OUTSIDE);
    }
    assert_eq!(names(&fixture.store.directory()), Vec::<String>::new());
}

#[test]
fn a_link_is_not_followed_anywhere_in_a_path() {
    let fixture = Fixture::new();
    let real = fixture.user_session("slug/deep/a.jsonl");
    fixture.session(&real, "own");
    fixture.session(&fixture.project_session("deep/a.jsonl"), "project");
    assert_eq!(fixture.store.read(&real).unwrap().header.id, "own");
    let ways: [(PathBuf, &[&str]); 2] = [
        (fixture.path("home"), &[".pi", "agent", "sessions", "slug", "deep", "a.jsonl"]),
        (fixture.path(""), &["project", ".pi", "sessions", "deep", "a.jsonl"]),
    ];
    for (root, parts) in ways {
        let whole: PathBuf = parts.iter().fold(root.clone(), |path, name| path.join(name));
        fixture.store.read(&whole).unwrap();
        let mut path = root;
        for name in parts {
            path.push(name);
            let moved = path.with_file_name("moved");
            fs::rename(&path, &moved).unwrap();
            symlink(&moved, &path).unwrap();
            let expected = format!("{OUTSIDE}: {} is a symbolic link", path.display());
            assert_eq!(fixture.refusal(&whole), expected);
            fs::remove_file(&path).unwrap();
            symlink("moved", &path).unwrap();
            assert_eq!(fixture.refusal(&whole), expected);
            fs::remove_file(&path).unwrap();
            fs::rename(&moved, &path).unwrap();
            fixture.store.read(&whole).unwrap();
        }
    }
}

#[test]
fn links_that_dangle_loop_or_are_magic_are_refused() {
    let fixture = Fixture::new();
    fs::write(fixture.path("outside/a.jsonl"), super::session("secret")).unwrap();
    for target in ["nowhere", "loop.jsonl", "/proc/self/fd/0", "/proc/self/root/etc/passwd"] {
        let path = fixture.user_session("loop.jsonl");
        symlink(target, &path).unwrap();
        assert_eq!(fixture.refusal(&path), format!("{OUTSIDE}: {} is a symbolic link", path.display()));
        fs::remove_file(&path).unwrap();
    }
    let path = fixture.user_session("up");
    symlink(fixture.path("outside"), &path).unwrap();
    assert_eq!(fixture.refusal(path.join("a.jsonl")), format!("{OUTSIDE}: {} is a symbolic link", path.display()));
    assert_eq!(names(&fixture.path("outside")), ["a.jsonl"]);
}

#[test]
fn links_above_the_home_are_followed() {
    let fixture = Fixture::new();
    symlink(fixture.path("home"), fixture.path("linked")).unwrap();
    let store = pushd::runtime::session_files::store::Store::new(fixture.path("linked"));
    store.prepare().unwrap();
    let path = store.path_for(Path::new("/work"), "s-1", header().created);
    assert!(path.starts_with(fixture.path("linked")));
    store.write(&path, &header(), &[]).unwrap();
    // Its canonical path names the same file.
    let real = fixture.path("home").join(path.strip_prefix(fixture.path("linked")).unwrap());
    assert_eq!(store.read(&real).unwrap(), store.read(&path).unwrap());
}

/// One thread swaps a directory and a file with links that lead out, as fast as it can, while the other reads and
/// writes. Nothing outside may be read or changed.
#[test]
fn no_access_escapes_while_links_are_swapped() {
    const TRIES: usize = 20_000;
    let fixture = Fixture::new();
    let outside = fixture.path("outside");
    fs::write(outside.join("a.jsonl"), super::session("OUTSIDE")).unwrap();
    let folder = fixture.user_session("");
    for honest in ["honest/a.jsonl", "swap/a.jsonl"] {
        fixture.session(&folder.join(honest), "inside");
    }
    symlink(&outside, folder.join("liar")).unwrap();
    symlink(outside.join("a.jsonl"), folder.join("swap/liar")).unwrap();
    let done = AtomicBool::new(false);
    let (mut reached, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                exchange(&folder.join("honest"), &folder.join("liar"));
                exchange(&folder.join("swap/a.jsonl"), &folder.join("swap/liar"));
            }
        });
        let _when_dropped = SetOnDrop(&done);
        for count in 0..TRIES {
            let path = folder.join(["honest/a.jsonl", "swap/a.jsonl"][count % 2]);
            match fixture.store.read(&path) {
                Ok(stored) => {
                    assert!(["inside", "s-1"].contains(&stored.header.id.as_str()), "{stored:?}");
                    reached += 1;
                }
                Err(error) => {
                    assert!(is_link(&error) || matches!(error, StoreError::NotFound { .. }), "{error}");
                    refused += 1;
                }
            }
            // Writes wait for the disk, so there are fewer of them.
            if count % 500 == 0 {
                let _either = fixture.store.write(&path, &header(), &[]);
            }
        }
    });
    assert!(reached > 0 && refused > 0, "the swaps never met a try: {reached} reached, {refused} refused");
    assert_eq!(fs::read_to_string(outside.join("a.jsonl")).unwrap(), super::session("OUTSIDE"));
    assert_eq!(names(&outside), ["a.jsonl"]);
}

#[test]
fn a_file_with_a_second_hard_link_is_refused() {
    let fixture = Fixture::new();
    fs::write(fixture.path("outside/a.jsonl"), super::session("elsewhere")).unwrap();
    let path = fixture.user_session("a.jsonl");
    fs::hard_link(fixture.path("outside/a.jsonl"), &path).unwrap();
    assert_eq!(fixture.refusal(&path), format!("{OUTSIDE}: {} has more than one hard link", path.display()));
    fs::remove_file(fixture.path("outside/a.jsonl")).unwrap();
    assert_eq!(fixture.store.read(&path).unwrap().header.id, "elsewhere");
}

#[test]
fn pipes_sockets_devices_and_directories_are_refused_without_waiting() {
    let fixture = Fixture::new();
    let path = fixture.user_session("a.jsonl");
    let not_a_file = format!("{} is not a regular file", path.display());
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    assert_eq!(fixture.refusal(&path), not_a_file);
    assert_eq!(fixture.refusal(path.join("b.jsonl")), format!("{} is not a directory", path.display()));
    fs::remove_file(&path).unwrap();
    let socket = UnixListener::bind(&path).unwrap();
    assert_eq!(fixture.refusal(&path), not_a_file);
    drop(socket);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(fixture.refusal(&path), not_a_file);
    fs::remove_dir(&path).unwrap();
    if make_null(&path) {
        assert_eq!(fixture.refusal(&path), not_a_file);
    } else {
        skip("making a device takes a privilege");
    }
}

#[test]
fn files_of_other_users_are_refused() {
    let fixture = Fixture::new();
    if !geteuid().is_root() {
        skip("giving a file away takes a privilege");
        return;
    }
    let path = fixture.project_session("deep/a.jsonl");
    fixture.session(&path, "given");
    fixture.store.read(&path).unwrap();
    for (given, counts) in [
        (path.clone(), true),
        (path.parent().unwrap().to_owned(), true),
        (fixture.path("project/.pi/sessions"), true),
        (fixture.path("project/.pi"), true),
        (fixture.path("project"), false),
    ] {
        chown(&given, Some(4242), None).unwrap();
        if counts {
            let expected = format!("{OUTSIDE}: {} belongs to another user", given.display());
            assert_eq!(fixture.refusal(&path), expected);
        } else {
            // The project directory may belong to another user; its session files may not.
            fixture.store.read(&path).unwrap();
        }
        chown(&given, Some(geteuid().as_raw()), None).unwrap();
    }
    let own = fixture.path("home/.pi/agent");
    chown(&own, Some(4242), None).unwrap();
    let expected = format!("{OUTSIDE}: {} belongs to another user", own.display());
    assert_eq!(fixture.store.prepare().unwrap_err().to_string(), expected);
    assert_eq!(fixture.refusal(fixture.user_session("a.jsonl")), expected);
}

#[test]
fn a_file_that_may_not_be_read_says_so() {
    let fixture = Fixture::new();
    if geteuid().is_root() {
        skip("root may read every file");
        return;
    }
    let path = fixture.user_session("a.jsonl");
    fixture.session(&path, "closed");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let error = fixture.store.read(&path).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot read {}: ", path.display())), "{error}");
}

#[test]
fn a_huge_file_is_refused_without_being_read() {
    let fixture = Fixture::new();
    let path = fixture.user_session("a.jsonl");
    fixture.session(&path, "huge");
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    // The file is sparse: only its start is on disk.
    file.set_len(1 << 40).unwrap();
    let error = fixture.store.read(&path).unwrap_err().to_string();
    assert_eq!(error, format!("{} is not a session file: it has more than 67108864 bytes", path.display()));
    let small = fixture.store.clone().with_limits(Limits { bytes: 100, ..Limits::default() }, ListLimits::default());
    file.set_len(101).unwrap();
    let error = small.read(&path).unwrap_err().to_string();
    assert!(error.ends_with("it has more than 100 bytes"), "{error}");
    let error = small
        .write(&fixture.user_session("b.jsonl"), &header(), &[super::entry("a", None, "x")])
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("it has more than 100 bytes"), "{error}");
    assert_eq!(names(&fixture.store.directory()), ["a.jsonl"], "nothing is left of it");
}

#[test]
fn a_file_that_is_no_session_is_reported_as_such() {
    let fixture = Fixture::new();
    let path = fixture.user_session("a.jsonl");
    for (bytes, why) in [
        (&b"root:x:0:0"[..], "it does not begin with a session header"),
        (b"", "it does not begin with a session header"),
        (b"\xff\x00\xfe", "it does not begin with a session header"),
        (b"{\"type\":\"session\",\"id\":\"a\",\"id\":\"b\"}", "line 1: duplicate key \"id\""),
        (
            b"{\"type\":\"session\",\"id\":\"a\",\"version\":9}",
            "it has format version 9, and the newest supported version is 3",
        ),
    ] {
        fs::write(&path, bytes).unwrap();
        let error = fixture.store.read(&path).unwrap_err().to_string();
        assert_eq!(error, format!("{} is not a session file: {why}", path.display()));
    }
    let missing = fixture.user_session("none.jsonl");
    assert_eq!(fixture.store.read(&missing).unwrap_err().to_string(), format!("{} does not exist", missing.display()));
}

/// Exchanges two names atomically, so that each always exists.
#[cfg(target_os = "linux")]
fn exchange(one: &Path, other: &Path) {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE).unwrap();
}

/// Exchanges two names in three steps, as this system has no atomic exchange.
#[cfg(not(target_os = "linux"))]
fn exchange(one: &Path, other: &Path) {
    let aside = one.with_file_name("aside");
    let _either = fs::rename(one, &aside).and_then(|()| fs::rename(other, one));
    let _either = fs::rename(&aside, other);
}

fn make_null(path: &Path) -> bool {
    use nix::sys::stat::{SFlag, makedev, mknod};
    mknod(path, SFlag::S_IFCHR, Mode::S_IRWXU, makedev(1, 3)).is_ok()
}

/// Stops the other thread, also after a panic.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
