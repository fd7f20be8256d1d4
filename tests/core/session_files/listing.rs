//! The listing of sessions, and what it skips.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use nix::sys::stat::Mode;
use pushd::protocol::pi::session_file::Limits;
use pushd::runtime::session_files::store::{ListLimits, Listing};

use super::{Fixture, OUTSIDE};

fn ids(listing: &Listing) -> Vec<&str> {
    listing.sessions.iter().map(|session| session.header.id.as_str()).collect()
}

/// Sets the modification time of a file.
fn set_modified(path: &std::path::Path, seconds: u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 - seconds)).unwrap();
}

#[test]
fn sessions_of_the_user_and_of_the_projects_are_listed_newest_first() {
    let fixture = Fixture::new();
    let files = [
        (fixture.user_session("--work--/a.jsonl"), "a", 30),
        (fixture.user_session("b.jsonl"), "b", 10),
        (fixture.user_session("--other--/c.json"), "c", 20),
        (fixture.project_session("d.jsonl"), "d", 5),
    ];
    for (path, id, age) in &files {
        fixture.session(path, id);
        set_modified(path, *age);
    }
    fs::write(fixture.user_session("notes.txt"), "no").unwrap();
    fs::write(fixture.user_session(".push-draft-1-1.jsonl"), "no").unwrap();
    let project = fixture.path("project");
    let listing = fixture.store.list(&[project.clone(), project.clone(), fixture.path("gone"), "relative".into()]);
    assert_eq!(ids(&listing), ["d", "b", "c", "a"]);
    assert_eq!((listing.skipped, listing.more), (vec![], false));
    let first = &listing.sessions[0];
    assert_eq!((first.messages, first.header.cwd.as_str(), &first.path), (1, "/work", &files[3].0));
    for session in &listing.sessions {
        assert_eq!(fixture.store.read(&session.path).unwrap().header, session.header, "what is listed can be read");
    }
    assert_eq!(ids(&fixture.store.list(&[])), ["b", "c", "a"]);
    // A project behind a link is listed with its canonical path, under which its files can be read.
    symlink(&project, fixture.path("linked")).unwrap();
    assert_eq!(fixture.store.list(&[fixture.path("linked")]).sessions[0].path, files[3].0);
}

#[test]
fn a_store_without_directories_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let store = pushd::runtime::session_files::store::Store::new(dir.path().join("nobody"));
    assert_eq!(store.list(&[]), Listing::default());
    assert_eq!(store.files(dir.path()), []);
}

#[test]
fn unloadable_files_are_skipped_with_a_reason() {
    let fixture = Fixture::new();
    fixture.session(&fixture.user_session("good.jsonl"), "good");
    fs::write(fixture.user_session("bad.jsonl"), "no session").unwrap();
    symlink(fixture.user_session("good.jsonl"), fixture.user_session("link.jsonl")).unwrap();
    nix::unistd::mkfifo(&fixture.user_session("pipe.jsonl"), Mode::S_IRWXU).unwrap();
    fs::create_dir(fixture.user_session("folder.jsonl")).unwrap();
    symlink(fixture.path("outside"), fixture.user_session("elsewhere")).unwrap();
    fixture.session(&fixture.path("outside/x.jsonl"), "outside");
    let listing = fixture.store.list(&[]);
    assert_eq!(ids(&listing), ["good"]);
    let mut reasons: Vec<(String, String)> = listing
        .skipped
        .into_iter()
        .map(|skipped| (skipped.path.file_name().unwrap().to_string_lossy().into_owned(), skipped.reason))
        .collect();
    reasons.sort();
    let path = |name: &str| fixture.user_session(name).display().to_string();
    let expected = [
        ("bad.jsonl", format!("{} is not a session file: it does not begin with a session header", path("bad.jsonl"))),
        ("folder.jsonl", format!("{} is not a regular file", path("folder.jsonl"))),
        ("link.jsonl", format!("{OUTSIDE}: {} is a symbolic link", path("link.jsonl"))),
        ("pipe.jsonl", format!("{} is not a regular file", path("pipe.jsonl"))),
    ];
    assert_eq!(reasons, expected.map(|(name, reason)| (name.to_owned(), reason)));
}

#[test]
fn a_link_in_place_of_the_directory_is_reported() {
    let fixture = Fixture::new();
    let sessions = fixture.store.directory();
    fs::rename(&sessions, fixture.path("outside/sessions")).unwrap();
    symlink(fixture.path("outside/sessions"), &sessions).unwrap();
    fixture.session(&fixture.path("outside/sessions/a.jsonl"), "a");
    let listing = fixture.store.list(&[]);
    assert_eq!(ids(&listing), Vec::<&str>::new());
    assert_eq!(listing.skipped[0].reason, format!("{OUTSIDE}: {} is a symbolic link", sessions.display()));
}

#[test]
fn the_newest_are_listed_when_there_are_too_many() {
    let fixture = Fixture::new();
    for age in 0..9_u64 {
        let path = fixture.user_session(&format!("{age}.jsonl"));
        fixture.session(&path, &format!("s{age}"));
        set_modified(&path, age);
    }
    let listed = |bounds: ListLimits| {
        let listing = fixture.store.clone().with_limits(Limits::default(), bounds).list(&[]);
        (ids(&listing).join(" "), listing.more)
    };
    let all = ListLimits { names: 100, files: 9, bytes: 1 << 20 };
    assert_eq!(listed(all), ("s0 s1 s2 s3 s4 s5 s6 s7 s8".to_owned(), false));
    assert_eq!(listed(ListLimits { files: 3, ..all }), ("s0 s1 s2".to_owned(), true));
    let (two, more) = listed(ListLimits { bytes: super::session("s0").len() as u64 + 1, ..all });
    assert_eq!((two.as_str(), more), ("s0 s1", true));
    let (some, more) = listed(ListLimits { names: 4, ..all });
    assert_eq!((some.split(' ').count(), more), (4, true));
}

#[test]
fn the_files_of_one_working_directory_are_listed_without_being_read() {
    let fixture = Fixture::new();
    let project = fixture.path("project");
    let created = super::header().created;
    let own = fixture.store.path_for(&project, "s-1", created);
    fixture.store.write(&own, &super::header(), &[]).unwrap();
    fs::write(fixture.project_session("b.jsonl"), "anything").unwrap();
    fixture.session(&fixture.user_session("--other--/c.jsonl"), "c");
    set_modified(&own, 1);
    set_modified(&fixture.project_session("b.jsonl"), 2);
    let files = fixture.store.files(&project);
    let found: Vec<_> = files.iter().map(|file| (&file.path, file.name.as_str())).collect();
    assert_eq!(found, [(&own, "2026-02-28T10-00-00-000Z_s-1.jsonl"), (&fixture.project_session("b.jsonl"), "b.jsonl")]);
}
