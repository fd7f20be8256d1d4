//! What the daemon writes down about itself: rotating files of bounded size, fields and ids, no secret at any level.
//!
//! `PUSH_LOG` sets what is written (`info` by default; `debug`, `pushd::runtime=trace` and so on). Texts of users and
//! arguments of tools appear at no level; what a library might say still passes the redactor. A record is one line, in which
//! nothing acts on the terminal of whoever reads the file, and nothing is hidden.

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
mod rolling;

use std::any::Any;
use std::error::Error;
use std::io::{self, Write};
use std::panic;
use std::path::Path;

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::invisible_chars::is_unseen;
use crate::redact::Redactor;
use rolling::Rolling;

/// The variable that sets what is written.
const VARIABLE: &str = "PUSH_LOG";
/// How large a log file may become.
const FILE_BYTES: u64 = 4 * 1024 * 1024;
/// How many full ones are kept.
const KEPT_FILES: usize = 4;
/// How many records may wait to be written before others are dropped; their places take memory from the start.
const WAITING_RECORDS: usize = 2048;

/// Begins to write into `directory`; what is still in memory is written when the guard is dropped.
pub fn begin(directory: &Path) -> io::Result<WorkerGuard> {
    let rolling = Rolling::open(directory, FILE_BYTES, KEPT_FILES)?;
    let safe = Redacting { redactor: Redactor::default(), to: rolling };
    let (writer, guard) = NonBlockingBuilder::default().buffered_lines_limit(WAITING_RECORDS).finish(safe);
    let filter = std::env::var(VARIABLE).ok().and_then(|text| EnvFilter::try_new(text).ok());
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|| EnvFilter::new("info")))
        .with_writer(writer)
        .with_ansi(false)
        .finish();
    // A second daemon in one process, as tests start them, writes into the log of the first.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(guard)
}

/// Says on standard error why something failed, with everything that led to it.
pub fn report(error: &(dyn Error + 'static)) {
    let mut text = format!("pushd: {error}");
    let mut cause = error.source();
    while let Some(next) = cause {
        // Some errors name their cause in their own words.
        let words = next.to_string();
        if !text.ends_with(&words) {
            text.push_str(&format!(": {words}"));
        }
        cause = next.source();
    }
    // There is nobody left to tell if that fails.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Has every panic written down: where it was, and its words only where they stand in our source.
///
/// A text that was put together may hold whatever the daemon has in its hands.
pub fn write_down_panics() {
    panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        let words = words_of(panic.payload());
        tracing::error!(%at, words, "panic");
        // There is nobody left to tell if that fails.
        let _ = writeln!(io::stderr(), "pushd: panic at {at}: {words}");
    }));
}

fn words_of(payload: &dyn Any) -> &'static str {
    payload.downcast_ref::<&'static str>().copied().unwrap_or("(its words may hold what is not to be kept)")
}

/// Returns a record with everything written out that would act on a terminal, hide something or look like another record.
fn one_line(record: &str) -> String {
    let (words, end) = record.strip_suffix('\n').map_or((record, ""), |words| (words, "\n"));
    let mut line = String::with_capacity(record.len());
    for c in words.chars() {
        match c {
            '\t' => line.push(c),
            _ if c.is_control() || is_unseen(c) => line.extend(c.escape_default()),
            _ => line.push(c),
        }
    }
    line + end
}

/// Passes each record on without the shapes of secrets.
struct Redacting<W> {
    redactor: Redactor,
    to: W,
}

impl<W: Write> Write for Redacting<W> {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(record);
        self.to.write_all(one_line(&self.redactor.text(&text)).as_bytes())?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_loses_the_shapes_of_secrets() {
        let mut log = Redacting { redactor: Redactor::default(), to: Vec::new() };
        log.write_all(b"token=ghp_0123456789abcdefghijklmnopqrstuvwxyz went by\n").unwrap();
        let text = String::from_utf8(log.to).unwrap();
        assert!(!text.contains("ghp_0123"), "{text}");
        assert!(text.ends_with("went by\n"), "{text}");
    }

    #[test]
    fn a_panic_says_nothing_that_was_put_together() {
        let said = |panics: fn()| words_of(&*panic::catch_unwind(panics).unwrap_err());
        assert_eq!(said(|| panic!("plain words")), "plain words");
        let secret = said(|| panic!("no {}", std::hint::black_box("hunter2hunter2")));
        assert!(secret.contains("may hold what is not to be kept"), "{secret}");
        let cut = said(|| drop("hunter2hunter2é"[..std::hint::black_box(15)].to_owned()));
        assert!(!cut.contains("hunter2"), "{cut}");
    }

    #[test]
    fn a_record_is_one_line_and_acts_on_no_terminal() {
        let mut log = Redacting { redactor: Redactor::default(), to: Vec::new() };
        let hostile = "INFO a\u{1b}[2J\u{9b}1m\r\nERROR forged \u{202e}b\u{200b}\tc é\n";
        log.write_all(hostile.as_bytes()).unwrap();
        let text = String::from_utf8(log.to).unwrap();
        assert_eq!(text, "INFO a\\u{1b}[2J\\u{9b}1m\\r\\nERROR forged \\u{202e}b\\u{200b}\tc é\n");
        let every: String = (0..0x11_0000).filter_map(char::from_u32).collect();
        assert!(one_line(&every).chars().all(|c| c == '\t' || !c.is_control() && !is_unseen(c)));
    }
}
