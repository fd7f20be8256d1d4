//! Paths that lead out of the session directories, and special files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::stat::Mode;
use nix::unistd::{geteuid, mkfifo};
use pushd::protocol::pi::session_file::Limits;
use pushd::runtime::session_files::store::{Bounds, StoreError};

use super::skip::skip;
use super::{OUTSIDE, World, header, is_link, names};

#[test]
fn a_path_outside_of_the_directories_is_refused_by_its_words() {
    let world = World::new();
    fs::write(world.at("home/.pi/agent/auth.jsonl"), super::session("secret")).unwrap();
    fs::write(world.at("outside/a.jsonl"), super::session("secret")).unwrap();
    for path in [
        PathBuf::from("a.jsonl"),
        PathBuf::from(".pi/sessions/a.jsonl"),
        PathBuf::from("/etc/passwd"),
        PathBuf::from(""),
        world.at("outside/a.jsonl"),
        world.at("home/.pi/agent/auth.jsonl"),
        world.own("../auth.jsonl"),
        world.own("x/../../auth.jsonl"),
        world.own("./a.jsonl"),
        world.project("../../../outside/a.jsonl"),
        world.store.directory(),
        world.at("project/.pi/sessions"),
        PathBuf::from(format!("{}/a\0.jsonl", world.store.directory().display())),
        world.own(&"a/".repeat(2100)).join("a.jsonl"),
    ] {
        assert_eq!(world.refused(&path), OUTSIDE, "{path:?}");
        assert_eq!(world.store.check(&path).unwrap_err().to_string(), OUTSIDE);
    }
    assert_eq!(names(&world.store.directory()), Vec::<String>::new());
}

#[test]
fn a_link_is_not_followed_wherever_it_stands_on_the_way() {
    let world = World::new();
    let real = world.own("slug/deep/a.jsonl");
    world.session(&real, "own");
    world.session(&world.project("deep/a.jsonl"), "project");
    assert_eq!(world.store.read(&real).unwrap().header.id, "own");
    let ways: [(PathBuf, &[&str]); 2] = [
        (world.at("home"), &[".pi", "agent", "sessions", "slug", "deep", "a.jsonl"]),
        (world.at(""), &["project", ".pi", "sessions", "deep", "a.jsonl"]),
    ];
    for (root, parts) in ways {
        let whole: PathBuf = parts.iter().fold(root.clone(), |path, name| path.join(name));
        world.store.read(&whole).unwrap();
        let mut path = root;
        for name in parts {
            path.push(name);
            let moved = path.with_file_name("moved");
            fs::rename(&path, &moved).unwrap();
            symlink(&moved, &path).unwrap();
            let expected = format!("{OUTSIDE}: {} is a link", path.display());
            assert_eq!(world.refused(&whole), expected);
            fs::remove_file(&path).unwrap();
            symlink("moved", &path).unwrap();
            assert_eq!(world.refused(&whole), expected);
            fs::remove_file(&path).unwrap();
            fs::rename(&moved, &path).unwrap();
            world.store.read(&whole).unwrap();
        }
    }
}

#[test]
fn links_that_dangle_loop_or_are_magic_are_refused() {
    let world = World::new();
    fs::write(world.at("outside/a.jsonl"), super::session("secret")).unwrap();
    for target in ["nowhere", "loop.jsonl", "/proc/self/fd/0", "/proc/self/root/etc/passwd"] {
        let path = world.own("loop.jsonl");
        symlink(target, &path).unwrap();
        assert_eq!(world.refused(&path), format!("{OUTSIDE}: {} is a link", path.display()));
        fs::remove_file(&path).unwrap();
    }
    let path = world.own("up");
    symlink(world.at("outside"), &path).unwrap();
    assert_eq!(world.refused(path.join("a.jsonl")), format!("{OUTSIDE}: {} is a link", path.display()));
    assert_eq!(names(&world.at("outside")), ["a.jsonl"]);
}

#[test]
fn links_above_the_home_are_the_user_s_own_arrangement() {
    let world = World::new();
    symlink(world.at("home"), world.at("linked")).unwrap();
    let store = pushd::runtime::session_files::store::Store::new(world.at("linked"));
    store.prepare().unwrap();
    let path = store.path_for(Path::new("/work"), "s-1", header().created);
    assert!(path.starts_with(world.at("linked")));
    store.write(&path, &header(), &[]).unwrap();
    // Its canonical path names the same file.
    let real = world.at("home").join(path.strip_prefix(world.at("linked")).unwrap());
    assert_eq!(store.read(&real).unwrap(), store.read(&path).unwrap());
}

/// One thread swaps a directory and a file with links that lead out, as fast as it can, while the other reads and
/// writes. Nothing outside may be read or changed.
#[test]
fn nobody_escapes_while_links_are_swapped_in() {
    const TRIES: usize = 20_000;
    let world = World::new();
    let outside = world.at("outside");
    fs::write(outside.join("a.jsonl"), super::session("OUTSIDE")).unwrap();
    let folder = world.own("");
    for honest in ["honest/a.jsonl", "swap/a.jsonl"] {
        world.session(&folder.join(honest), "inside");
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
        let _when_dropped = Done(&done);
        for count in 0..TRIES {
            let path = folder.join(["honest/a.jsonl", "swap/a.jsonl"][count % 2]);
            match world.store.read(&path) {
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
                let _either = world.store.write(&path, &header(), &[]);
            }
        }
    });
    assert!(reached > 0 && refused > 0, "the swaps never met a try: {reached} reached, {refused} refused");
    assert_eq!(fs::read_to_string(outside.join("a.jsonl")).unwrap(), super::session("OUTSIDE"));
    assert_eq!(names(&outside), ["a.jsonl"]);
}

#[test]
fn a_file_with_a_second_name_is_refused() {
    let world = World::new();
    fs::write(world.at("outside/a.jsonl"), super::session("elsewhere")).unwrap();
    let path = world.own("a.jsonl");
    fs::hard_link(world.at("outside/a.jsonl"), &path).unwrap();
    assert_eq!(world.refused(&path), format!("{OUTSIDE}: {} has more than one name", path.display()));
    fs::remove_file(world.at("outside/a.jsonl")).unwrap();
    assert_eq!(world.store.read(&path).unwrap().header.id, "elsewhere");
}

#[test]
fn pipes_sockets_devices_and_directories_are_no_files_and_never_waited_for() {
    let world = World::new();
    let path = world.own("a.jsonl");
    let not_a_file = format!("{} is not a regular file", path.display());
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    assert_eq!(world.refused(&path), not_a_file);
    assert_eq!(world.refused(path.join("b.jsonl")), format!("{} is not a directory", path.display()));
    fs::remove_file(&path).unwrap();
    let socket = UnixListener::bind(&path).unwrap();
    assert_eq!(world.refused(&path), not_a_file);
    drop(socket);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(world.refused(&path), not_a_file);
    fs::remove_dir(&path).unwrap();
    if make_null(&path) {
        assert_eq!(world.refused(&path), not_a_file);
    } else {
        skip("making a device takes a privilege");
    }
}

#[test]
fn what_belongs_to_somebody_else_is_refused() {
    let world = World::new();
    if !geteuid().is_root() {
        skip("giving a file away takes a privilege");
        return;
    }
    let path = world.project("deep/a.jsonl");
    world.session(&path, "given");
    world.store.read(&path).unwrap();
    for (given, counts) in [
        (path.clone(), true),
        (path.parent().unwrap().to_owned(), true),
        (world.at("project/.pi/sessions"), true),
        (world.at("project/.pi"), true),
        (world.at("project"), false),
    ] {
        chown(&given, Some(4242), None).unwrap();
        if counts {
            let expected = format!("{OUTSIDE}: {} belongs to another user", given.display());
            assert_eq!(world.refused(&path), expected);
        } else {
            // The project directory may belong to another user; its session files may not.
            world.store.read(&path).unwrap();
        }
        chown(&given, Some(geteuid().as_raw()), None).unwrap();
    }
    let own = world.at("home/.pi/agent");
    chown(&own, Some(4242), None).unwrap();
    let expected = format!("{OUTSIDE}: {} belongs to another user", own.display());
    assert_eq!(world.store.prepare().unwrap_err().to_string(), expected);
    assert_eq!(world.refused(world.own("a.jsonl")), expected);
}

#[test]
fn a_file_that_may_not_be_read_says_so() {
    let world = World::new();
    if geteuid().is_root() {
        skip("root may read every file");
        return;
    }
    let path = world.own("a.jsonl");
    world.session(&path, "closed");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let error = world.store.read(&path).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot read {}: ", path.display())), "{error}");
}

#[test]
fn a_huge_file_is_refused_without_being_read() {
    let world = World::new();
    let path = world.own("a.jsonl");
    world.session(&path, "huge");
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    // The file is sparse: only its start is on disk.
    file.set_len(1 << 40).unwrap();
    let error = world.store.read(&path).unwrap_err().to_string();
    assert_eq!(error, format!("{} is not a session file: it has more than 67108864 bytes", path.display()));
    let small = world.store.clone().limited(Limits { bytes: 100, ..Limits::default() }, Bounds::default());
    file.set_len(101).unwrap();
    let error = small.read(&path).unwrap_err().to_string();
    assert!(error.ends_with("it has more than 100 bytes"), "{error}");
    let error = small
        .write(&world.own("b.jsonl"), &header(), &[super::entry("a", None, "x")])
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("it has more than 100 bytes"), "{error}");
    assert_eq!(names(&world.store.directory()), ["a.jsonl"], "nothing is left of it");
}

#[test]
fn what_is_no_session_is_said_to_be_none() {
    let world = World::new();
    let path = world.own("a.jsonl");
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
        let error = world.store.read(&path).unwrap_err().to_string();
        assert_eq!(error, format!("{} is not a session file: {why}", path.display()));
    }
    let missing = world.own("none.jsonl");
    assert_eq!(
        world.store.read(&missing).unwrap_err().to_string(),
        format!("{} does not exist", missing.display())
    );
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
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
