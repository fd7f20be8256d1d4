//! Texts and bodies that users and other programs see, compared with the snapshots in `tests/snapshots`.
//!
//! CONTRIBUTING.md says how to write them again.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(unix)]

#[path = "cli/home.rs"]
mod home;
#[path = "support/model/mod.rs"]
mod model;
#[path = "docs/normalize.rs"]
mod normalize;
#[path = "support/schemas.rs"]
mod schemas;
#[path = "support/skip.rs"]
mod skip;

#[path = "snapshots/approvals.rs"]
mod approvals;
#[path = "snapshots/help.rs"]
mod help;
#[path = "snapshots/requests.rs"]
mod requests;

/// Compares a text with the snapshot `tests/snapshots/FOLDER/NAME.snap`.
fn compare(folder: &str, name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(snapshots(folder));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// The folder does not depend on the file of the test, so that a test can be moved.
fn snapshots(folder: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(folder)
}
