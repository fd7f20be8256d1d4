//! Checks that a skipped test is counted: a suite that skips silently proves nothing.

use std::env;
use std::fs;
use std::process::Command;

use crate::support::skip;
use crate::support::test_name::test_name;

const ROLE: &str = "PUSH_TEST_SKIPS_FOR_REAL";

#[test]
fn a_skip_is_printed_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("skips");
    for expected in 1..=2 {
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", test_name(a_test_that_cannot_run_here), "--nocapture"])
            .env(ROLE, "yes")
            .env("PUSH_SKIPS", &file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("skipped: nothing is missing here\n"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "skipped: nothing is missing here\n".repeat(expected));
    }
}

#[test]
fn a_test_that_cannot_run_here() {
    if env::var_os(ROLE).is_some() {
        skip::skip("nothing is missing here");
    }
}
