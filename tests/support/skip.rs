//! Reports that a test could not run because a privilege or a program is missing.
//!
//! A skip is never silent: it is printed, and appended to the file that `PUSH_SKIPS` names.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;

/// Reports why the test is skipped; the caller then returns.
#[allow(dead_code, reason = "not every test file that shares this folder can be skipped")]
pub(crate) fn skip(why: &str) {
    let line = format!("skipped: {why}\n");
    print!("{line}");
    if let Some(path) = env::var_os("PUSH_SKIPS").filter(|path| !path.is_empty()) {
        // One write to a file opened for appending: concurrent test programs do not mix their lines.
        let written = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "cannot count a skip in {}: {written:?}", path.display());
    }
}
