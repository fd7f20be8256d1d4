//! Salvage of a database that SQLite cannot read: it is set aside, and everything that verifies is copied into a
//! fresh one.
//!
//! SQLite reads the files page by page, without their B-trees, including pages of the log that it would not accept
//! ([`reader`]). A block or a checkpoint is recovered only if its checksums verify. A session's row, which
//! has no checksum, is recovered only if another source names the session. Holes in a history stay holes. Nothing
//! is removed from the damaged files, and nothing is guessed.
//!
//! # Crash safety
//!
//! The fresh database is built as `pushd.db.salvage-N`, and the existence of this file marks an unfinished
//! salvage: it is created before the damaged files are renamed to `pushd.db.damaged-N`, and disappears when it is
//! renamed to `pushd.db`. Opening a journal calls [`resume`] first. If the file exists, `resume` completes the
//! renames, discards the partial database and builds it again from the files set aside. N is the time in seconds,
//! or the next free number.

mod chain;
mod fill;
mod pages;
mod reader;
mod rows;
mod scan;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::error::{CommitError, OpenError};
use super::files::{RawFile, StorageEnv};
use super::os;
use super::record::Options;
use super::schema;
use super::{DATABASE, LOG};
use crate::kernel::id::SessionId;
use reader::PageReader;

/// What is known about sessions from outside the database.
pub(super) struct SalvageContext<'a> {
    /// Returns the name of the session with a key; it takes precedence over the database.
    pub(super) name_of: &'a dyn Fn(i64) -> Option<SessionId>,
    /// Returns whether the session with a key was deleted and must not be recovered.
    pub(super) is_deleted: &'a dyn Fn(i64) -> bool,
    /// Encodes the list entry of a session whose row is lost.
    pub(super) lost_summary: &'a dyn Fn(&SessionId) -> String,
    /// Records what was not recovered, before the fresh database becomes the current one.
    pub(super) before_swap: &'a dyn Fn(&Connection, &SalvageReport) -> Result<(), CommitError>,
}

/// The result of a salvage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SalvageReport {
    /// The path of the damaged database; its log has the same name with the suffix `-wal`.
    pub(super) set_aside: PathBuf,
    /// How many sessions were recovered.
    pub(super) sessions: u64,
    /// How many of them had lost their row: their token, their times and their list entry.
    pub(super) sessions_without_row: u64,
    /// How many blocks were recovered.
    pub(super) blocks: u64,
    /// How many checkpoints were recovered.
    pub(super) checkpoints: u64,
    /// How many pages of the database and its log were searched.
    pub(super) pages: u64,
    /// How many of them could not be read completely.
    pub(super) unreadable_pages: u64,
}

/// Sets the database aside and replaces it by a fresh one with everything that verifies.
///
/// The journal must not be open. If a crash interrupted an earlier salvage, it is resumed and `seconds` is
/// ignored.
pub(super) fn rebuild(
    env: &StorageEnv,
    options: &Options,
    context: &SalvageContext<'_>,
    seconds: u64,
) -> Result<SalvageReport, OpenError> {
    if let Some(report) = resume(env, options, context)? {
        return Ok(report);
    }
    let paths = SalvagePaths::free(env, seconds)?;
    os::prepare(&paths.fresh).map_err(OpenError::io("prepare", &paths.fresh))?;
    sync_directory(env)?;
    finish(env, options, context, &paths)
}

/// Resumes an interrupted salvage; `None` if there is none.
///
/// Call it before anything else accesses the database.
pub(super) fn resume(
    env: &StorageEnv,
    options: &Options,
    context: &SalvageContext<'_>,
) -> Result<Option<SalvageReport>, OpenError> {
    match find_unfinished(&env.dir).map_err(OpenError::io("list", &env.dir))? {
        Some(number) => finish(env, options, context, &SalvagePaths::new(env, number)).map(Some),
        None => Ok(None),
    }
}

/// The paths of one salvage.
struct SalvagePaths {
    number: u64,
    /// The database under construction, whose existence marks an unfinished salvage.
    fresh: PathBuf,
    damaged: PathBuf,
    damaged_log: PathBuf,
}

impl SalvagePaths {
    fn new(env: &StorageEnv, number: u64) -> Self {
        let damaged = format!("{DATABASE}{DAMAGED}{number}");
        Self {
            number,
            fresh: env.path(&format!("{DATABASE}{SALVAGE}{number}")),
            damaged_log: env.path(&format!("{damaged}-wal")),
            damaged: env.path(&damaged),
        }
    }

    /// Returns the first paths from `number` on that are all free.
    fn free(env: &StorageEnv, mut number: u64) -> Result<Self, OpenError> {
        loop {
            let paths = Self::new(env, number);
            if !exists(&paths.fresh)? && !exists(&paths.damaged)? && !exists(&paths.damaged_log)? {
                return Ok(paths);
            }
            number = number.saturating_add(1);
        }
    }

    /// Returns the path of a file that exists beside the fresh database while it is built.
    fn fresh_sibling(&self, suffix: &str) -> PathBuf {
        let mut path = self.fresh.clone().into_os_string();
        path.push(suffix);
        path.into()
    }
}

/// Runs every step of the salvage; steps that were done before a crash have no effect.
fn finish(
    env: &StorageEnv,
    options: &Options,
    context: &SalvageContext<'_>,
    paths: &SalvagePaths,
) -> Result<SalvageReport, OpenError> {
    tracing::warn!(set_aside = %paths.damaged.display(), "salvaging a database that cannot be read");
    set_aside(env, paths)?;
    let report = build(env, options, context, paths)?;
    // One rename removes the marker and installs the database.
    rename(&paths.fresh, &env.path(DATABASE))?;
    sync_directory(env)?;
    tracing::warn!(
        set_aside = %paths.damaged.display(),
        sessions = report.sessions,
        sessions_without_row = report.sessions_without_row,
        blocks = report.blocks,
        checkpoints = report.checkpoints,
        pages = report.pages,
        unreadable_pages = report.unreadable_pages,
        "the database was salvaged"
    );
    Ok(report)
}

/// Renames the damaged files, unless that was done before.
fn set_aside(env: &StorageEnv, paths: &SalvagePaths) -> Result<(), OpenError> {
    let (database, log) = (env.path(DATABASE), env.path(LOG));
    let mut to = (&paths.damaged, &paths.damaged_log);
    let other;
    if exists(&database)? && exists(&paths.damaged)? {
        // A program that ignores the marker has created another database: it is set aside too, under other names.
        other = SalvagePaths::free(env, paths.number)?;
        tracing::warn!(set_aside = %other.damaged.display(), "another program created a database during a salvage; setting it aside");
        to = (&other.damaged, &other.damaged_log);
    }
    for (from, to) in [(&log, to.1), (&database, to.0)] {
        if exists(from)? {
            rename(from, to)?;
        }
    }
    remove(&env.path(SHARED_MEMORY))?;
    sync_directory(env)
}

/// Builds the fresh database from the files set aside; discards an earlier attempt.
fn build(
    env: &StorageEnv,
    options: &Options,
    context: &SalvageContext<'_>,
    paths: &SalvagePaths,
) -> Result<SalvageReport, OpenError> {
    let failed = OpenError::sqlite(&paths.fresh);
    let (fresh_log, fresh_shared) = (paths.fresh_sibling("-wal"), paths.fresh_sibling("-shm"));
    remove(&fresh_log)?;
    remove(&fresh_shared)?;
    let cleared = (env.open_file)(&paths.fresh).and_then(|file| file.set_len(0));
    cleared.map_err(OpenError::io("empty", &paths.fresh))?;
    let page_file = paths.fresh_sibling("-pages");
    remove(&page_file)?;
    let (database, log) = (open_if_present(env, &paths.damaged)?, open_if_present(env, &paths.damaged_log)?);
    let pages = PageReader::create(env, &page_file, database, log)?;
    let found = scan::scan(&pages, context).map_err(OpenError::sqlite(&page_file))?;
    let mut report = SalvageReport {
        set_aside: paths.damaged.clone(),
        sessions: 0,
        sessions_without_row: 0,
        blocks: 0,
        checkpoints: 0,
        pages: found.pages,
        unreadable_pages: found.unreadable_pages,
    };
    let connection = schema::open(&paths.fresh, env.vfs.as_deref(), options)?;
    // A crash restarts the build, so one sync at the end is enough.
    connection.pragma_update(None, "synchronous", "OFF").map_err(&failed)?;
    fill::fill(&connection, &pages, found, context.lost_summary, &mut report).map_err(&failed)?;
    drop(pages);
    remove(&page_file)?;
    (context.before_swap)(&connection, &report)
        .map_err(|error| OpenError::RecordLosses { path: paths.fresh.clone(), error })?;
    connection.flush_prepared_statement_cache();
    connection.close().map_err(|(_, error)| failed(error))?;
    if fs::metadata(&fresh_log).is_ok_and(|log| log.len() > 0) {
        let left = io::Error::other("its log is not empty");
        return Err(OpenError::io("finish", &paths.fresh)(left));
    }
    remove(&fresh_log)?;
    remove(&fresh_shared)?;
    let synced = (env.open_file)(&paths.fresh).and_then(|file| file.sync());
    synced.map_err(OpenError::io("sync", &paths.fresh))?;
    Ok(report)
}

/// Opens a file set aside, if it exists.
fn open_if_present(env: &StorageEnv, path: &Path) -> Result<Option<Box<dyn RawFile>>, OpenError> {
    if !exists(path)? {
        return Ok(None);
    }
    (env.open_file)(path).map(Some).map_err(OpenError::io("open", path))
}

/// Finds the number of an unfinished salvage.
fn find_unfinished(dir: &Path) -> io::Result<Option<u64>> {
    let mut lowest = None;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let mark = name.to_str().and_then(|name| name.strip_prefix(DATABASE)?.strip_prefix(SALVAGE));
        let Some(number) = mark.and_then(|number| number.parse::<u64>().ok()) else { continue };
        lowest = Some(lowest.map_or(number, |lowest: u64| lowest.min(number)));
    }
    Ok(lowest)
}

fn exists(path: &Path) -> Result<bool, OpenError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(OpenError::io("look at", path)(error)),
    }
}

fn rename(from: &Path, to: &Path) -> Result<(), OpenError> {
    fs::rename(from, to).map_err(OpenError::io("rename", from))
}

fn remove(path: &Path) -> Result<(), OpenError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(OpenError::io("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn sync_directory(env: &StorageEnv) -> Result<(), OpenError> {
    os::sync_directory(&env.dir).map_err(OpenError::io("sync", &env.dir))
}

/// Between the name of the database and the number, in the name of the fresh database.
const SALVAGE: &str = ".salvage-";
/// Between the name of the database and the number, in the name of the damaged database.
const DAMAGED: &str = ".damaged-";
/// The shared memory of the write-ahead log.
const SHARED_MEMORY: &str = "pushd.db-shm";
