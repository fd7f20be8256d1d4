//! The bounds of the tools, passed in, so that tests set them to single digits and reach the edge.

use std::time::Duration;

use super::ignores::IgnoreLimits;

/// The bounds of the tools.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a command may take.
    pub step: Duration,
    /// How many bytes of text a result has.
    pub result_bytes: usize,
    /// How large a file may be that is edited or previewed, and how large one that is written.
    pub file_bytes: u64,
    /// How many bytes of a file are looked through for its lines.
    pub scan_bytes: u64,
    /// How many names a listing has.
    pub entries: usize,
    /// How deep a listing goes.
    pub depth: u32,
    /// How many lines or names a search finds.
    pub hits: usize,
    /// How many bytes of a line a search shows.
    pub hit_bytes: usize,
    /// How long a search may take.
    pub search: Duration,
    /// How many patterns of files that say what git ignores a search uses.
    pub ignores: IgnoreLimits,
    /// How many bytes git may print before the rest is left out.
    pub git_bytes: usize,
    /// How long git may take.
    pub git: Duration,
    /// How many bytes of a difference a question shows.
    pub diff_bytes: usize,
    /// How many bytes of an answer are fetched.
    pub fetch_bytes: usize,
    /// How long fetching may take, from the first address to the last byte.
    pub fetch: Duration,
    /// How many times a fetched address may lead to another.
    pub redirects: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            step: Duration::from_secs(60 * 60),
            result_bytes: 64 * 1024,
            file_bytes: 8 * 1024 * 1024,
            scan_bytes: 64 * 1024 * 1024,
            entries: 1000,
            depth: 5,
            hits: 200,
            hit_bytes: 400,
            search: Duration::from_secs(30),
            ignores: IgnoreLimits::default(),
            git_bytes: 4 * 1024 * 1024,
            git: Duration::from_secs(120),
            diff_bytes: 128 * 1024,
            fetch_bytes: 1024 * 1024,
            fetch: Duration::from_secs(30),
            redirects: 5,
        }
    }
}
