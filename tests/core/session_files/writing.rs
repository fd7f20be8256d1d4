//! Writing session files: atomically, private to the owner, and never through a link.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use pushd::runtime::session_files::store::{StoreError, TornLine};

use super::{Fixture, entry, header, names, session};

#[test]
fn directories_are_made_on_first_use_and_closed_to_others() {
    let fixture = Fixture::new();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for path in ["home/.pi", "home/.pi/agent", "home/.pi/agent/sessions"] {
        assert_eq!(mode(&fixture.path(path)), 0o700, "{path}");
    }
    fixture.store.prepare().unwrap();
    let path = fixture.store.path_for(Path::new("/home/ann/p"), "s-1", header().created);
    assert_eq!(path, fixture.user_session("--home-ann-p--/2026-02-28T10-00-00-000Z_s-1.jsonl"));
    fixture.store.check(&path).unwrap();
    fixture.store.write(&path, &header(), &[entry("a", None, "hello")]).unwrap();
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let stored = fixture.store.read(&path).unwrap();
    assert_eq!((stored.header, stored.entries), (header(), vec![entry("a", None, "hello")]));
    assert_eq!(names(path.parent().unwrap()).len(), 1, "no draft is left");
}

#[test]
fn an_existing_directory_keeps_its_mode() {
    let fixture = Fixture::new();
    let directory = fixture.store.directory();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o750)).unwrap();
    fixture.store.write(&fixture.user_session("a.jsonl"), &header(), &[]).unwrap();
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o750);
}

#[test]
fn a_file_is_replaced_as_a_whole() {
    let fixture = Fixture::new();
    let path = fixture.user_session("a.jsonl");
    fixture.session(&path, "old");
    let old = fs::File::open(&path).unwrap();
    fixture.store.write(&path, &header(), &[entry("a", None, "new")]).unwrap();
    assert_ne!(old.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
    assert_eq!(std::io::read_to_string(old).unwrap(), session("old"), "who reads it still sees the old one");
    assert_eq!(fixture.store.read(&path).unwrap().header.id, "s-1");
}

#[test]
fn a_project_s_directory_is_written_to_and_never_made() {
    let fixture = Fixture::new();
    fixture.store.write(&fixture.project_session("a.jsonl"), &header(), &[]).unwrap();
    let missing = fixture.path("project/other/.pi/sessions/a.jsonl");
    let error = fixture.store.write(&missing, &header(), &[]).unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    let missing = fixture.project_session("made/a.jsonl");
    let error = fixture.store.write(&missing, &header(), &[]).unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    assert_eq!(names(&fixture.path("project/.pi/sessions")), ["a.jsonl"]);
}

#[test]
fn entries_are_appended_and_the_rest_stays_identical() {
    let fixture = Fixture::new();
    let path = fixture.user_session("a.jsonl");
    let odd = "{\"type\":\"label\",  \"id\":\"l\",\"parentId\":\"a\",\"label\":\"here\"}";
    for (cut, end) in [("", "\n"), ("", ""), ("\n{\"type\":\"mess", "")] {
        let before = format!("{}{odd}{cut}", session("old"));
        fs::write(&path, format!("{before}{end}")).unwrap();
        let stored = fixture.store.read(&path).unwrap();
        let file = fs::metadata(&path).unwrap().ino();
        fixture.store.extend(&path, &stored, &[entry("b", Some("l"), "more")], TornLine::Terminate).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), file, "it is the same file");
        let after = fs::read_to_string(&path).unwrap();
        let added = after.strip_prefix(&format!("{before}\n")).expect("what was there is there");
        assert_eq!(added.lines().count(), 1, "{added}");
        let stored = fixture.store.read(&path).unwrap();
        assert_eq!((stored.torn, stored.leaf()), (false, Some("b")));
        assert_eq!(stored.entries.last(), Some(&entry("b", Some("l"), "more")));
    }
    for bad in [entry("a", None, "twice"), entry("c", Some("nobody"), "lost")] {
        let before = fs::read(&path).unwrap();
        let stored = fixture.store.read(&path).unwrap();
        let error = fixture.store.extend(&path, &stored, &[bad], TornLine::Wait).unwrap_err();
        assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

#[test]
fn nothing_is_added_to_a_file_that_somebody_else_has_written_to() {
    let fixture = Fixture::new();
    let path = fixture.user_session("a.jsonl");
    fixture.session(&path, "old");
    let stored = fixture.store.read(&path).unwrap();
    let foreign = "{\"type\":\"label\",\"id\":\"l\",\"parentId\":null}\n";
    fs::write(&path, format!("{}{foreign}", session("old"))).unwrap();
    let error = fixture.store.extend(&path, &stored, &[entry("b", None, "more")], TornLine::Terminate).unwrap_err();
    assert!(matches!(error, StoreError::Changed { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}{foreign}", session("old")));
}

#[test]
fn a_line_that_somebody_may_be_writing_is_left_alone() {
    let fixture = Fixture::new();
    let path = fixture.user_session("a.jsonl");
    let before = format!("{}{{\"type\":\"mess", session("old"));
    fs::write(&path, &before).unwrap();
    let stored = fixture.store.read(&path).unwrap();
    let error = fixture.store.extend(&path, &stored, &[entry("b", None, "more")], TornLine::Wait).unwrap_err();
    assert!(matches!(error, StoreError::Changed { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
}

#[test]
fn chosen_entries_are_copied_verbatim_and_a_file_is_removed() {
    let fixture = Fixture::new();
    let (from, to) = (fixture.user_session("a.jsonl"), fixture.user_session("slug/b.jsonl"));
    let odd = "{\"type\":\"label\",  \"id\":\"l\",\"parentId\":null,\"label\":\"here\"}";
    fs::write(&from, format!("{}{odd}\n{{\"type\":\"label\",\"id\":\"m\"}}\n", session("old"))).unwrap();
    fixture.store.copy(&from, &to, &header(), &["l"].into()).unwrap();
    let copied = fs::read_to_string(&to).unwrap();
    assert_eq!(copied.lines().nth(1), Some(odd));
    assert_eq!((copied.lines().count(), fixture.store.read(&to).unwrap().header), (2, header()));
    assert_eq!(fixture.store.size(&to).unwrap(), Some(copied.len() as u64));
    assert_eq!(fixture.store.remove(&to).unwrap(), Some(copied.len() as u64));
    assert_eq!((fixture.store.remove(&to).unwrap(), fixture.store.size(&to).unwrap()), (None, None));
    assert!(fixture.store.remove(&fixture.path("home/elsewhere.jsonl")).is_err());
}

#[test]
fn a_full_or_closed_directory_leaves_the_old_file_and_no_draft() {
    let fixture = Fixture::new();
    let path = fixture.user_session("slug/a.jsonl");
    fixture.session(&path, "old");
    // A name that no file system accepts fails when the draft is renamed.
    let long = path.with_file_name(format!("{}.jsonl", "x".repeat(300)));
    fixture.store.write(&long, &header(), &[]).unwrap_err();
    assert_eq!(names(path.parent().unwrap()), ["a.jsonl"]);
    assert_eq!(fixture.store.read(&path).unwrap().header.id, "old");
}
