//! Reads single pages of a damaged database through SQLite.
//!
//! The schema of the page file has one table and one table without rowids, with columns of any type. Before a page is
//! read, both get it as their root page. SQLite then interprets the page, its records and their overflow pages, and
//! detects what cannot be interpreted. Neither the B-trees nor the schema of the damaged database are needed.

use std::cell::Cell;
use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row};

use super::pages::{self, PageList};
use super::rows::TableRow;
use crate::journal::error::{self, OpenError};
use crate::journal::files::{self, RawFile, StorageEnv};

/// A page file, open for reading.
pub(super) struct PageReader {
    connection: Connection,
    pub(super) list: PageList,
    /// The page that the schema refers to.
    root: Cell<u32>,
}

/// The location of a row: its page and its rowid.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowLocation {
    pub(super) page: u32,
    pub(super) row: i64,
}

/// The queries that read a page in one direction.
struct Direction {
    from: i64,
    /// Reads all rows beyond a rowid.
    rows: &'static str,
    /// Reads the next rowid beyond another.
    next: &'static str,
}

impl PageReader {
    /// Creates the page file `path` from a database and its log; either may be missing. The file must not exist.
    pub(super) fn create(
        env: &StorageEnv,
        path: &Path,
        database: Option<Box<dyn RawFile>>,
        log: Option<Box<dyn RawFile>>,
    ) -> Result<Self, OpenError> {
        let failed = OpenError::sqlite(path);
        // Creates the file so that only its owner may open it.
        drop((env.open_file)(path).map_err(OpenError::io("create", path))?);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let first_page = files::connect(path, flags, env.vfs.as_deref()).map_err(&failed)?;
        first_page.execute_batch(SETTINGS).and_then(|()| first_page.execute_batch(TABLES)).map_err(&failed)?;
        first_page.close().map_err(|(_, error)| failed(error))?;
        let file = (env.open_file)(path).map_err(OpenError::io("open", path))?;
        let list = pages::collect(file.as_ref(), database.as_deref(), log.as_deref())
            .map_err(OpenError::io("copy the damaged database to", path))?;
        drop(file);
        let connection = files::connect(path, flags, env.vfs.as_deref()).map_err(&failed)?;
        connection.execute_batch(SETTINGS).map_err(&failed)?;
        Ok(Self { connection, list, root: Cell::new(0) })
    }

    /// Visits every row of a table page that can be read; returns whether that is all of them.
    pub(super) fn rows(&self, page: u32, mut visit: impl FnMut(RowLocation, TableRow<'_>)) -> rusqlite::Result<bool> {
        self.select(page)?;
        let (mut whole, mut attempts) = (true, 0);
        for Direction { from, rows, next } in [FORWARDS, BACKWARDS] {
            let mut reached = Some(from);
            while let Some(after) = reached.filter(|_| attempts < MAX_ATTEMPTS) {
                let mut last = after;
                let read = self.each(rows, Some(after), |row| {
                    last = row.get(0)?;
                    if let Some(found) = TableRow::read(row) {
                        visit(RowLocation { page, row: last }, found);
                    }
                    Ok(())
                });
                if is_whole(read)? {
                    break;
                }
                (whole, attempts) = (false, attempts + 1);
                // The next row, whose content is damaged, is left out.
                reached = match self.connection.prepare_cached(next)?.query_row([last], |row| row.get(0)).optional() {
                    Err(error) if is_damage(&error) => None,
                    found => found?,
                };
            }
            if whole {
                break;
            }
        }
        Ok(whole)
    }

    /// Visits every entry of an index page, and of the pages below it, that can be read; returns whether that is all.
    pub(super) fn entries(&self, page: u32, mut visit: impl FnMut(&Row<'_>)) -> rusqlite::Result<bool> {
        self.select(page)?;
        for (query, whole) in [(ENTRIES, true), (ENTRIES_BACKWARDS, false)] {
            let read = self.each(query, None, |row| {
                visit(row);
                Ok(())
            });
            if is_whole(read)? {
                return Ok(whole);
            }
        }
        Ok(false)
    }

    /// Reads one row; `None` if it cannot be read.
    pub(super) fn row<T>(
        &self,
        location: RowLocation,
        read: impl FnOnce(TableRow<'_>) -> Option<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.select(location.page)?;
        let mut statement = self.connection.prepare_cached(ROW)?;
        match statement.query_row([location.row], |row| Ok(TableRow::read(row).and_then(read))).optional() {
            Err(error) if is_damage(&error) => Ok(None),
            found => found.map(Option::flatten),
        }
    }

    /// Makes `page` the root page of both tables.
    fn select(&self, page: u32) -> rusqlite::Result<()> {
        if self.root.replace(page) != page {
            self.connection.prepare_cached("UPDATE sqlite_schema SET rootpage = ?1")?.execute([page])?;
            // Writing the schema does not change the copy in memory, which this drops.
            self.connection.execute_batch("PRAGMA writable_schema = RESET; PRAGMA writable_schema = ON")?;
        }
        Ok(())
    }

    fn each(
        &self,
        query: &str,
        after: Option<i64>,
        mut visit: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(query)?;
        let mut rows = match after {
            Some(after) => statement.query([after])?,
            None => statement.query([])?,
        };
        while let Some(row) = rows.next()? {
            visit(row)?;
        }
        Ok(())
    }
}

/// Returns whether a page was read to its end; fails if the reason is not damage.
fn is_whole(read: rusqlite::Result<()>) -> rusqlite::Result<bool> {
    match read {
        Err(error) if is_damage(&error) => Ok(false),
        read => read.map(|()| true),
    }
}

/// Returns whether an error is caused by the content of a page.
fn is_damage(error: &rusqlite::Error) -> bool {
    error::is_corrupt(error) || error.sqlite_error_code() == Some(ErrorCode::TooBig)
}

/// The page file is not kept after a crash, and only this process uses it. The pages have their own numbers, so none
/// may be reserved for a pointer map.
const SETTINGS: &str = "PRAGMA page_size = 4096; PRAGMA auto_vacuum = NONE; PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; PRAGMA writable_schema = ON";
/// As many columns as the widest row has.
const TABLES: &str = "CREATE TABLE row (c0, c1, c2, c3, c4, c5, c6, c7, c8, c9);
    CREATE TABLE entry (c0, c1, c2, PRIMARY KEY (c0, c1, c2)) WITHOUT ROWID";
/// The first row first.
const FORWARDS: Direction = Direction {
    from: i64::MIN,
    rows: "SELECT rowid, * FROM row WHERE rowid > ?1 ORDER BY rowid",
    next: "SELECT rowid FROM row WHERE rowid > ?1 ORDER BY rowid LIMIT 1",
};
/// The last row first.
const BACKWARDS: Direction = Direction {
    from: i64::MAX,
    rows: "SELECT rowid, * FROM row WHERE rowid < ?1 ORDER BY rowid DESC",
    next: "SELECT rowid FROM row WHERE rowid < ?1 ORDER BY rowid DESC LIMIT 1",
};
const ROW: &str = "SELECT rowid, * FROM row WHERE rowid = ?1";
/// An interior page leads to other pages, and a damaged one to the same pages many times.
const ENTRIES: &str = "SELECT * FROM entry ORDER BY c0, c1, c2 LIMIT 1000000";
const ENTRIES_BACKWARDS: &str = "SELECT * FROM entry ORDER BY c0 DESC, c1 DESC, c2 DESC LIMIT 1000000";
/// How many damaged rows of a page are skipped; a page has fewer.
const MAX_ATTEMPTS: u32 = 1000;
