//! Replacement of a corrupt database: it is set aside, and the journal continues with what was salvaged.
//!
//! This happens when a journal is opened, and at run time when corruption is found. Every history is then compared
//! with its mark, so that everything the salvage did not recover is reported.

use std::sync::atomic::Ordering;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::oneshot;

use super::error::{CommitError, OpenError, ReadError};
use super::files::StorageEnv;
use super::high_water_marks::{self, HighWaterMark, HighWaterMarks};
use super::open::OpenState;
use super::record::{LossRecord, Options};
use super::repair::{self, EndEvidence};
use super::salvage::{self, SalvageContext, SalvageReport};
use super::schema;
use super::task::Task;
use super::writer::Writer;
use super::{DATABASE, Journal, LOG, MARKS, now};
use crate::kernel::id::{Seq, SessionId};

/// Opens the database and recovers its state; replaces it by a salvaged one if it is damaged.
pub(super) fn open_or_salvage(env: &StorageEnv, options: &Options) -> Result<(Connection, OpenState), OpenError> {
    let marks = read_marks(env)?;
    let with_context = |work: &dyn Fn(&SalvageContext<'_>) -> Result<Option<SalvageReport>, OpenError>| {
        with_salvage_context(&marks, options, work)
    };
    let resumed = with_context(&|outside| salvage::resume(env, options, outside))?;
    let opened = open_checked(env, options, &marks).and_then(|connection| {
        let opened = OpenState::recover(env, &connection, options)?;
        Ok((connection, opened))
    });
    match opened {
        Err(error) if resumed.is_none() && is_damage(&error, &marks) => {
            tracing::error!(%error, "the database is damaged; salvaging it");
            let seconds = now().0 / 1000;
            with_context(&|outside| salvage::rebuild(env, options, outside, seconds).map(Some))?;
            let connection = schema::open(&env.path(DATABASE), env.vfs.as_deref(), options)?;
            let opened = OpenState::recover(env, &connection, options)?;
            Ok((connection, opened))
        }
        outcome => outcome,
    }
}

/// Records for every session what a salvage did not recover.
fn record_unrecovered(
    connection: &Connection,
    marks: &HighWaterMarks,
    options: &Options,
    report: &SalvageReport,
) -> Result<(), CommitError> {
    let at = now();
    let detail = format!(
        "the database could not be read and was set aside as {}; {} sessions and {} blocks were recovered",
        report.set_aside.display(),
        report.sessions,
        report.blocks
    );
    let found = |session: String, until, cause: &str, detail: String| LossRecord {
        at,
        session,
        after: Seq::ZERO,
        until,
        cause: cause.to_owned(),
        detail,
    };
    repair::record_loss(connection, &found(String::new(), Seq::ZERO, "database", detail))?;
    for key in 1..=marks.highest_key().unwrap_or(0) {
        let Ok(Some(HighWaterMark::Synced { session, seq, .. })) = marks.read(key) else { continue };
        let id = SessionId::from(session.as_str());
        match repair::plan(connection, &id, marks, EndEvidence::Mark) {
            Ok(Some(plan)) => drop(plan.execute(connection, &id, options.lost_line, at)?),
            Ok(None) => {}
            Err(ReadError::NoSuchSession { .. }) => {
                let detail = "nothing of the session could be recovered".to_owned();
                repair::record_loss(connection, &found(session, seq, "session", detail))?;
                if let Err(error) = marks.retire(key) {
                    tracing::warn!(%error, "cannot retire the mark of a lost session");
                }
            }
            Err(error) => tracing::error!(session = %id, %error, "cannot check a salvaged history"),
        }
    }
    for id in sessions_without_mark(connection, marks)? {
        // No mark says how far the history reached, so it may be shorter than it was.
        if let Ok(Some(plan)) = repair::plan(connection, &id, marks, EndEvidence::Missing) {
            plan.execute(connection, &id, options.lost_line, at)?;
        }
    }
    Ok(())
}

fn sessions_without_mark(connection: &Connection, marks: &HighWaterMarks) -> rusqlite::Result<Vec<SessionId>> {
    let mut statement = connection.prepare("SELECT key, id FROM session")?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))?;
    let mut found = Vec::new();
    for row in rows {
        let (key, id) = row?;
        if !matches!(marks.read(key), Ok(Some(HighWaterMark::Synced { .. }))) {
            found.push(SessionId::from(id));
        }
    }
    Ok(found)
}

impl Journal {
    /// Replaces a corrupt database, unless that was done since `generation`.
    pub(super) async fn replace_database(&self, generation: u64) -> Result<(), ReadError> {
        let (reply, answer) = oneshot::channel();
        self.send(Task::Replace { generation, reply });
        answer.await.unwrap_or(Err(CommitError::Closed)).map_err(ReadError::Repair)
    }

    /// Runs a read, and repeats it on a salvaged database if the current one is corrupt.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        job: impl Fn(&Connection) -> Result<T, ReadError> + Clone + Send + 'static,
    ) -> Result<T, ReadError> {
        let generation = self.shared.readers.generation();
        match self.shared.readers.run(job.clone()).await {
            Err(error) if error.is_corrupt() => {
                tracing::error!(%error, "the database is corrupt; replacing it");
                self.replace_database(generation).await?;
                self.shared.readers.run(job).await
            }
            outcome => outcome,
        }
    }
}

impl Writer {
    /// Sets the database aside and continues with what can be salvaged; `generation` is the corrupt one.
    pub(super) fn replace_generation(&mut self, generation: u64) -> Result<(), CommitError> {
        if self.generation.load(Ordering::Acquire) != generation {
            return Ok(());
        }
        if self.failed() {
            return Err(CommitError::StorageFailed);
        }
        // The marks must cover everything that was acknowledged before the salvage uses them.
        self.sync_log()?;
        let replaced = self.replace_database();
        if let Err(error) = replaced {
            tracing::error!(%error, "cannot salvage the database; all writes are refused until the daemon is restarted");
            self.fail_permanently();
            return Err(CommitError::StorageFailed);
        }
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Replaces the database if an error reports corruption; returns whether it was replaced.
    pub(super) fn replace_if_corrupt(&mut self, error: &CommitError) -> bool {
        error.is_corrupt() && self.replace_generation(self.generation.load(Ordering::Acquire)).is_ok()
    }

    fn replace_database(&mut self) -> Result<(), OpenError> {
        let database = self.env.path(DATABASE);
        let failed = OpenError::sqlite(&database);
        let nothing = Connection::open_in_memory().map_err(&failed)?;
        let broken = std::mem::replace(&mut self.connection, nothing);
        broken.flush_prepared_statement_cache();
        // The salvage reads the log itself, so closing must not checkpoint it.
        broken.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(&failed)?;
        drop(broken);
        let (env, options) = (&self.env, &self.options);
        let seconds = now().0 / 1000;
        with_salvage_context(self.mark_writer.marks(), options, &|context| {
            salvage::rebuild(env, options, context, seconds)
        })?;
        self.connection = schema::open(&database, env.vfs.as_deref(), options)?;
        let log = (env.open_file)(&env.path(LOG)).map_err(OpenError::io("open", &env.path(LOG)))?;
        self.sync = Box::new(move || log.sync());
        (self.sync)().map_err(OpenError::io("sync the log of", &database))
    }
}

/// Reads the marks without beginning an epoch.
fn read_marks(env: &StorageEnv) -> Result<HighWaterMarks, OpenError> {
    let path = env.path(MARKS);
    let file = (env.open_file)(&path).map_err(OpenError::io("open", &path))?;
    HighWaterMarks::open(file, 0, 0).map(|(marks, _)| marks).map_err(OpenError::io("read", &path))
}

fn open_checked(env: &StorageEnv, options: &Options, marks: &HighWaterMarks) -> Result<Connection, OpenError> {
    let path = env.path(DATABASE);
    let empty = std::fs::metadata(&path).is_ok_and(|found| found.len() == 0);
    if empty && marks.highest_key().map_err(OpenError::io("read", &env.path(MARKS)))? > 0 {
        return Err(OpenError::Emptied { path });
    }
    let connection = schema::open(&path, env.vfs.as_deref(), options)?;
    // Reads the root of every B-tree, so that a corrupt one is found here rather than by a later request.
    connection
        .query_row(
            "SELECT (SELECT count(*) FROM (SELECT 1 FROM session LIMIT 1)), (SELECT count(*) FROM (SELECT 1 FROM block LIMIT 1)),
                    (SELECT count(*) FROM (SELECT 1 FROM checkpoint LIMIT 1)), (SELECT count(*) FROM (SELECT 1 FROM command LIMIT 1)),
                    (SELECT sessions FROM tally)",
            [],
            |_| Ok(()),
        )
        .map_err(OpenError::sqlite(&path))?;
    Ok(connection)
}

/// Distinguishes damage from a database of another program and from a temporary failure.
fn is_damage(error: &OpenError, marks: &HighWaterMarks) -> bool {
    let ours = marks.schema_before();
    match error {
        OpenError::Unreadable { .. } | OpenError::Emptied { .. } => true,
        // There are marks of this journal, and the value is overwritten with zeros or differs from ours in one bit.
        OpenError::Foreign { owner, .. } => {
            ours.is_some() && (*owner == 0 || differs_in_one_bit(*owner, schema::APPLICATION_ID))
        }
        OpenError::Newer { found, .. } => ours.is_some_and(|ours| differs_in_one_bit(*found, ours)),
        OpenError::Sqlite { source, .. } => {
            ours.is_some() && source.sqlite_error_code().is_none_or(|code| code == ErrorCode::Unknown)
        }
        OpenError::RecordLosses { error, .. } | OpenError::Replay { error, .. } => error.is_corrupt(),
        OpenError::Io { .. } | OpenError::NoLog { .. } => false,
    }
}

/// Returns whether two numbers differ in exactly one bit; the number of a newer program differs in more.
const fn differs_in_one_bit(one: i64, other: i64) -> bool {
    (one ^ other).count_ones() == 1
}

fn with_salvage_context<T>(
    marks: &HighWaterMarks,
    options: &Options,
    work: &dyn Fn(&SalvageContext<'_>) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let names = |key| match marks.read(key) {
        // A name that fills its slot may have been truncated.
        Ok(Some(HighWaterMark::Synced { session, .. })) if !high_water_marks::may_be_truncated(&session) => {
            Some(SessionId::from(session))
        }
        Ok(_) | Err(_) => None,
    };
    let deleted = |key| matches!(marks.read(key), Ok(Some(HighWaterMark::Retired)));
    let last = |connection: &Connection, report: &SalvageReport| record_unrecovered(connection, marks, options, report);
    work(&SalvageContext {
        name_of: &names,
        is_deleted: &deleted,
        lost_summary: &options.lost_summary,
        before_swap: &last,
    })
}
