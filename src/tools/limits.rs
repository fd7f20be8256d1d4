//! The limits of the tools. They are passed in, so that tests can use small values.

use std::time::Duration;

use super::ignores::IgnoreLimits;

/// The limits of the tools.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum duration of a command.
    pub step_timeout: Duration,
    /// The maximum size of a result, in bytes.
    pub result_bytes: usize,
    /// The maximum size of a file that is edited, previewed or written.
    pub file_bytes: u64,
    /// How many bytes of a file are scanned for its lines.
    pub scan_bytes: u64,
    /// The maximum number of entries in a listing.
    pub entries: usize,
    /// The maximum depth of a listing.
    pub depth: u32,
    /// The maximum number of results of a search.
    pub hits: usize,
    /// The maximum number of bytes of a line in a search result.
    pub hit_bytes: usize,
    /// The maximum duration of a search.
    pub search_timeout: Duration,
    /// The limits of ignore files in a search.
    pub ignores: IgnoreLimits,
    /// The maximum size of the output of git; the rest is dropped.
    pub git_bytes: usize,
    /// The maximum duration of a git call.
    pub git_timeout: Duration,
    /// The maximum size of a diff in an approval question.
    pub diff_bytes: usize,
    /// The maximum size of a fetched body.
    pub fetch_bytes: usize,
    /// The maximum duration of a fetch, including the lookup.
    pub fetch_timeout: Duration,
    /// The maximum number of redirects.
    pub redirects: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            step_timeout: Duration::from_secs(60 * 60),
            result_bytes: 64 * 1024,
            file_bytes: 8 * 1024 * 1024,
            scan_bytes: 64 * 1024 * 1024,
            entries: 1000,
            depth: 5,
            hits: 200,
            hit_bytes: 400,
            search_timeout: Duration::from_secs(30),
            ignores: IgnoreLimits::default(),
            git_bytes: 4 * 1024 * 1024,
            git_timeout: Duration::from_secs(120),
            diff_bytes: 128 * 1024,
            fetch_bytes: 1024 * 1024,
            fetch_timeout: Duration::from_secs(30),
            redirects: 5,
        }
    }
}
