//! Runs the same test again as an ordinary user, where it runs as root.
//!
//! The test program executes itself under another user id; a failure there is a failure of the test, and a skip there
//! is a skip.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::geteuid;

use super::skip::skip;
use super::test_name::test_name;

const NOBODY: u32 = 65534;

/// The variable that names a directory of the ordinary user.
const BASE: &str = "PUSH_TEST_USER_BASE";

const ONLY_ROOT: &str = "only root can be root";

/// Runs `test` again as an ordinary user if this process is root; otherwise does nothing.
pub(crate) fn also_as_an_ordinary_user(test: impl Fn()) {
    run_as_an_ordinary_user(test_name(test));
}

fn run_as_an_ordinary_user(test: &str) {
    if !geteuid().is_root() {
        return skip(&format!("{ONLY_ROOT}: attempts are made as an ordinary user alone"));
    }
    let base = tempfile::Builder::new().prefix("o").rand_bytes(4).tempdir_in(visible_dir()).unwrap();
    chown(base.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(BASE, base.path())
        .env("HOME", base.path())
        // The skip file belongs to root; skips of the child are counted here.
        .env_remove("PUSH_SKIPS")
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output();
    match other {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            skip("another user cannot execute this test program where it is");
        }
        other => {
            let other = other.unwrap();
            let text = String::from_utf8_lossy(&other.stdout).into_owned() + &String::from_utf8_lossy(&other.stderr);
            assert!(other.status.success(), "as an ordinary user:\n{text}");
            assert!(text.contains("1 passed"), "as an ordinary user:\n{text}");
            // A line may begin with the name of the test.
            for why in text.lines().filter_map(|line| Some(line.split_once("skipped: ")?.1)) {
                if !why.starts_with(ONLY_ROOT) {
                    skip(&format!("as an ordinary user: {why}"));
                }
            }
        }
    }
}

/// Does what `test` does, and runs the test again as an ordinary user at the same time if this process is root.
pub(crate) fn with_an_ordinary_user(test: impl Fn(), body: impl FnOnce()) {
    let test = test_name(test);
    std::thread::scope(|threads| {
        let other = threads.spawn(|| run_as_an_ordinary_user(test));
        body();
        if let Err(failed) = other.join() {
            std::panic::resume_unwind(failed);
        }
    });
}

/// The directory for files that a confined command sees: the target directory; where that lies in the machine's
/// `/tmp`, which such a command does not see, another directory that everybody may write.
pub(crate) fn visible_dir() -> PathBuf {
    let target = env!("CARGO_TARGET_TMPDIR");
    let usual = || if Path::new(target).starts_with("/tmp") { "/var/tmp" } else { target }.into();
    std::env::var_os(BASE).map_or_else(usual, PathBuf::from)
}
