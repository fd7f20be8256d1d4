//! Tests of which directories and programs are trusted.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

#[test]
fn relative_missing_workspace_and_foreign_writable_directories_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for name in ["work/.venv/bin", "extra/bin", "open/bin", "loose", "mine/bin"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    let mode = |name: &str, mode| fs::set_permissions(root.join(name), Permissions::from_mode(mode)).unwrap();
    for name in ["work", "work/.venv", "work/.venv/bin", "extra", "extra/bin", "open/bin", "mine", "mine/bin"] {
        mode(name, 0o755);
    }
    mode("open", 0o777);
    mode("loose", 0o757);
    symlink(root.join("work/.venv/bin"), root.join("mine/link")).unwrap();
    let named = [
        "relative/bin",
        ".",
        "",
        &format!("{}/work/.venv/bin", root.display()),
        &format!("{}/mine/../work/.venv/bin", root.display()),
        &format!("{}/mine/link", root.display()),
        &format!("{}/extra/bin", root.display()),
        &format!("{}/open/bin", root.display()),
        &format!("{}/loose", root.display()),
        &format!("{}/missing", root.display()),
        &format!("{}/mine/bin", root.display()),
    ]
    .join(":");
    let writable = [root.join("work"), root.join("extra")];
    let SearchPath { directories: found, .. } = SearchPath::trusted(Some(OsStr::new(&named)), &writable);
    let below: Vec<_> = found.iter().filter(|directory| directory.starts_with(&root)).collect();
    assert_eq!(below, [&root.join("mine/bin")]);
    assert!(found.iter().any(|directory| directory == Path::new("/usr/bin")), "{found:?}");
    assert!(found.iter().all(|directory| directory.is_absolute()));
    let SearchPath { directories: usual, .. } = SearchPath::trusted(None, &writable);
    assert!(usual.iter().any(|directory| directory == Path::new("/usr/bin")), "{usual:?}");
}

#[test]
fn a_program_that_others_can_replace_is_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::create_dir_all(root.join("work")).unwrap();
    for directory in ["bin", "work"] {
        fs::set_permissions(root.join(directory), Permissions::from_mode(0o755)).unwrap();
    }
    let program = |name: &str, mode| {
        fs::write(root.join(name), "#!/bin/sh\n").unwrap();
        fs::set_permissions(root.join(name), Permissions::from_mode(mode)).unwrap();
    };
    program("bin/good", 0o755);
    program("bin/loose", 0o777);
    program("bin/data", 0o644);
    program("work/planted", 0o755);
    symlink(root.join("work/planted"), root.join("bin/planted")).unwrap();
    symlink("good", root.join("bin/linked")).unwrap();
    fs::create_dir(root.join("bin/folder")).unwrap();
    let writable = [root.join("work")];
    let path = SearchPath::trusted(Some(root.join("bin").as_os_str()), &writable);
    for (name, found) in [
        ("good", true),
        ("linked", true),
        ("loose", false),
        ("data", false),
        ("planted", false),
        ("folder", false),
        ("missing", false),
    ] {
        let expected = found.then(|| root.join("bin").join(name));
        assert_eq!(path.find(name), expected, "{name}");
    }
}

#[test]
fn system_directories_come_first() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
    fs::write(root.join("sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("sh"), Permissions::from_mode(0o755)).unwrap();
    let named = format!("{}:/usr/bin:/bin", root.display());
    let path = SearchPath::trusted(Some(OsStr::new(&named)), &[]);
    let found = path.find("sh").unwrap();
    assert!(!found.starts_with(&root), "{found:?}");
    fs::rename(root.join("sh"), root.join("only-here")).unwrap();
    assert_eq!(path.find("only-here"), Some(root.join("only-here")));
}
