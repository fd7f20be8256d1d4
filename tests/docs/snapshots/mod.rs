//! Texts and bodies that users and other programs see, compared with the snapshots in `tests/docs/snapshots`.
//!
//! CONTRIBUTING.md says how to write them again.
mod approvals;
mod help;
mod requests;

/// Compares a text with the snapshot `tests/docs/snapshots/FOLDER/NAME.snap`.
fn compare(folder: &str, name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(snapshots(folder));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// The folder does not depend on the file of the test, so that a test can be moved.
fn snapshots(folder: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/docs/snapshots").join(folder)
}
