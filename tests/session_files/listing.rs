//! The listing of sessions, and what it skips.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use nix::sys::stat::Mode;
use pushd::protocol::pi::session_file::Limits;
use pushd::runtime::session_files::store::{Bounds, Listing};

use super::{OUTSIDE, World};

fn ids(listing: &Listing) -> Vec<&str> {
    listing.sessions.iter().map(|session| session.header.id.as_str()).collect()
}

/// Sets the modification time of a file.
fn aged(path: &std::path::Path, seconds: u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 - seconds)).unwrap();
}

#[test]
fn sessions_of_the_user_and_of_the_projects_are_listed_newest_first() {
    let world = World::new();
    let files = [
        (world.own("--work--/a.jsonl"), "a", 30),
        (world.own("b.jsonl"), "b", 10),
        (world.own("--other--/c.json"), "c", 20),
        (world.project("d.jsonl"), "d", 5),
    ];
    for (path, id, age) in &files {
        world.session(path, id);
        aged(path, *age);
    }
    fs::write(world.own("notes.txt"), "no").unwrap();
    fs::write(world.own(".push-draft-1-1.jsonl"), "no").unwrap();
    let project = world.at("project");
    let listing = world.store.list(&[project.clone(), project.clone(), world.at("gone"), "relative".into()]);
    assert_eq!(ids(&listing), ["d", "b", "c", "a"]);
    assert_eq!((listing.skipped, listing.more), (vec![], false));
    let first = &listing.sessions[0];
    assert_eq!((first.messages, first.header.cwd.as_str(), &first.path), (1, "/work", &files[3].0));
    for session in &listing.sessions {
        assert_eq!(
            world.store.read(&session.path).unwrap().header,
            session.header,
            "what is listed can be read"
        );
    }
    assert_eq!(ids(&world.store.list(&[])), ["b", "c", "a"]);
    // A project behind a link is listed with its canonical path, under which its files can be read.
    symlink(&project, world.at("linked")).unwrap();
    assert_eq!(world.store.list(&[world.at("linked")]).sessions[0].path, files[3].0);
}

#[test]
fn a_store_without_directories_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let store = pushd::runtime::session_files::store::Store::new(dir.path().join("nobody"));
    assert_eq!(store.list(&[]), Listing::default());
    assert_eq!(store.files(dir.path()), []);
}

#[test]
fn what_cannot_be_loaded_is_left_out_with_its_reason() {
    let world = World::new();
    world.session(&world.own("good.jsonl"), "good");
    fs::write(world.own("bad.jsonl"), "no session").unwrap();
    symlink(world.own("good.jsonl"), world.own("link.jsonl")).unwrap();
    nix::unistd::mkfifo(&world.own("pipe.jsonl"), Mode::S_IRWXU).unwrap();
    fs::create_dir(world.own("folder.jsonl")).unwrap();
    symlink(world.at("outside"), world.own("elsewhere")).unwrap();
    world.session(&world.at("outside/x.jsonl"), "outside");
    let listing = world.store.list(&[]);
    assert_eq!(ids(&listing), ["good"]);
    let mut reasons: Vec<(String, String)> = listing
        .skipped
        .into_iter()
        .map(|skipped| (skipped.path.file_name().unwrap().to_string_lossy().into_owned(), skipped.reason))
        .collect();
    reasons.sort();
    let path = |name: &str| world.own(name).display().to_string();
    let expected = [
        (
            "bad.jsonl",
            format!("{} is not a session file: it does not begin with a session header", path("bad.jsonl")),
        ),
        ("folder.jsonl", format!("{} is not a regular file", path("folder.jsonl"))),
        ("link.jsonl", format!("{OUTSIDE}: {} is a link", path("link.jsonl"))),
        ("pipe.jsonl", format!("{} is not a regular file", path("pipe.jsonl"))),
    ];
    assert_eq!(reasons, expected.map(|(name, reason)| (name.to_owned(), reason)));
}

#[test]
fn a_link_in_place_of_the_directory_is_said_to_be_one() {
    let world = World::new();
    let sessions = world.store.directory();
    fs::rename(&sessions, world.at("outside/sessions")).unwrap();
    symlink(world.at("outside/sessions"), &sessions).unwrap();
    world.session(&world.at("outside/sessions/a.jsonl"), "a");
    let listing = world.store.list(&[]);
    assert_eq!(ids(&listing), Vec::<&str>::new());
    assert_eq!(listing.skipped[0].reason, format!("{OUTSIDE}: {} is a link", sessions.display()));
}

#[test]
fn the_newest_are_listed_when_there_are_too_many() {
    let world = World::new();
    for age in 0..9_u64 {
        let path = world.own(&format!("{age}.jsonl"));
        world.session(&path, &format!("s{age}"));
        aged(&path, age);
    }
    let listed = |bounds: Bounds| {
        let listing = world.store.clone().limited(Limits::default(), bounds).list(&[]);
        (ids(&listing).join(" "), listing.more)
    };
    let all = Bounds { names: 100, files: 9, bytes: 1 << 20 };
    assert_eq!(listed(all), ("s0 s1 s2 s3 s4 s5 s6 s7 s8".to_owned(), false));
    assert_eq!(listed(Bounds { files: 3, ..all }), ("s0 s1 s2".to_owned(), true));
    let (two, more) = listed(Bounds { bytes: super::session("s0").len() as u64 + 1, ..all });
    assert_eq!((two.as_str(), more), ("s0 s1", true));
    let (some, more) = listed(Bounds { names: 4, ..all });
    assert_eq!((some.split(' ').count(), more), (4, true));
}

#[test]
fn the_files_of_one_working_directory_are_listed_without_a_look_into_them() {
    let world = World::new();
    let project = world.at("project");
    let created = super::header().created;
    let own = world.store.path_for(&project, "s-1", created);
    world.store.write(&own, &super::header(), &[]).unwrap();
    fs::write(world.project("b.jsonl"), "anything").unwrap();
    world.session(&world.own("--other--/c.jsonl"), "c");
    aged(&own, 1);
    aged(&world.project("b.jsonl"), 2);
    let files = world.store.files(&project);
    let found: Vec<_> = files.iter().map(|file| (&file.path, file.name.as_str())).collect();
    assert_eq!(found, [(&own, "2026-02-28T10-00-00-000Z_s-1.jsonl"), (&world.project("b.jsonl"), "b.jsonl")]);
}
