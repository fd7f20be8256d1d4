//! Reads single pages of a damaged database through SQLite.
//!
//! The schema of the page file has one table and one table without rowids, with columns of any type. Before a page is
//! read, both get it as their root page. SQLite then interprets the page, its records and their overflow pages, and
//! detects what cannot be interpreted. Neither the B-trees nor the schema of the damaged database are needed.

use std::cell::Cell;
use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Params, Row};

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
        let (mut whole, mut next) = (true, Some(i64::MIN));
        for _ in 0..MAX_ROWS {
            let Some(after) = next else { break };
            let mut last = after;
            let read = self.each(ROWS, [after], |row| {
                last = row.get(0)?;
                if let Some(found) = TableRow::read(row) {
                    visit(RowLocation { page, row: last }, found);
                }
                Ok(())
            });
            if readable(read)?.is_some() {
                break;
            }
            whole = false;
            // The row that stopped the query is left out, if its rowid can be read.
            next = readable(self.connection.prepare_cached(NEXT_ROW)?.query_row([last], |row| row.get(0)))?;
        }
        Ok(whole)
    }

    /// Visits every entry of an index page, and of the pages below it, that can be read; returns whether that is all.
    pub(super) fn entries(&self, page: u32, mut visit: impl FnMut(&Row<'_>)) -> rusqlite::Result<bool> {
        self.select(page)?;
        let mut visit = |row: &Row<'_>| {
            visit(row);
            Ok(())
        };
        let whole = readable(self.each(ENTRIES, [], &mut visit))?.is_some();
        if !whole {
            readable(self.each(ENTRIES_BACKWARDS, [], visit))?;
        }
        Ok(whole)
    }

    /// Reads one row; `None` if it cannot be read. `read` returns `None` for a row that is not the wanted one.
    pub(super) fn row<T>(
        &self,
        location: RowLocation,
        mut read: impl FnMut(TableRow<'_>) -> Option<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.select(location.page)?;
        let mut statement = self.connection.prepare_cached(ROW)?;
        let found = statement.query_row([location.row], |row| Ok(TableRow::read(row).and_then(&mut read)));
        if let Some(found) = readable(found)?.flatten() {
            return Ok(Some(found));
        }
        // SQLite finds a rowid by binary search, which misses a row whose rowid was damaged: it is out of order, or
        // equal to another one.
        let mut found = None;
        self.rows(location.page, |at, row| {
            if found.is_none() && at.row == location.row {
                found = read(row);
            }
        })?;
        Ok(found)
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
        params: impl Params,
        mut visit: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(query)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            visit(row)?;
        }
        Ok(())
    }
}

/// Turns an error that the content of a page causes into `None`.
fn readable<T>(read: rusqlite::Result<T>) -> rusqlite::Result<Option<T>> {
    match read.optional() {
        Err(error) if error::is_corrupt(&error) || error.sqlite_error_code() == Some(ErrorCode::TooBig) => Ok(None),
        read => read,
    }
}

/// The page file is not kept after a crash, and only this process uses it. The pages have their own numbers, so none
/// may be reserved for a pointer map.
const SETTINGS: &str = "PRAGMA page_size = 4096; PRAGMA auto_vacuum = NONE; PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; PRAGMA writable_schema = ON";
/// As many columns as the widest row has.
const TABLES: &str = "CREATE TABLE row (c0, c1, c2, c3, c4, c5, c6, c7, c8, c9);
    CREATE TABLE entry (c0, c1, c2, PRIMARY KEY (c0, c1, c2)) WITHOUT ROWID";
const ROWS: &str = "SELECT rowid, * FROM row WHERE rowid > ?1 ORDER BY rowid";
const NEXT_ROW: &str = "SELECT rowid FROM row WHERE rowid > ?1 ORDER BY rowid LIMIT 1";
const ROW: &str = "SELECT rowid, * FROM row WHERE rowid = ?1";
/// An interior page leads to other pages, and a damaged one to the same pages many times.
const ENTRIES: &str = "SELECT * FROM entry ORDER BY c0, c1, c2 LIMIT 1000000";
const ENTRIES_BACKWARDS: &str = "SELECT * FROM entry ORDER BY c0 DESC, c1 DESC, c2 DESC LIMIT 1000000";
/// More rows than a page can hold.
const MAX_ROWS: usize = 2048;
