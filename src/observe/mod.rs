//! The log of the daemon: rotating files of bounded size, with fields and ids and without secrets at any level.
//!
//! `PUSH_LOG` sets the filter (`info` by default; `debug`, `pushd::runtime=trace` and so on). Texts of users and
//! arguments of tools are logged at no level; messages of libraries pass the redactor. A record is one line, in
//! which terminal control characters and invisible characters are escaped.

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

use crate::invisible_chars::is_invisible;
use crate::redact::Redactor;
use rolling::RollingLog;

/// The variable that sets the log filter.
const VARIABLE: &str = "PUSH_LOG";
/// The maximum size of a log file.
const FILE_BYTES: u64 = 4 * 1024 * 1024;
/// How many full log files are kept.
const KEPT_FILES: usize = 4;
/// The capacity of the queue of records; further records are dropped. The queue is allocated at the start.
const QUEUED_RECORDS_MAX: usize = 2048;

/// Starts logging into `directory`; dropping the guard flushes the queue.
pub fn init(directory: &Path) -> io::Result<WorkerGuard> {
    let rolling = RollingLog::open(directory, FILE_BYTES, KEPT_FILES)?;
    let redacting = RedactingWriter { redactor: Redactor::default(), to: rolling };
    let (writer, guard) = NonBlockingBuilder::default().buffered_lines_limit(QUEUED_RECORDS_MAX).finish(redacting);
    let filter = std::env::var(VARIABLE).ok().and_then(|text| EnvFilter::try_new(text).ok());
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|| EnvFilter::new("info")))
        .with_writer(writer)
        .with_ansi(false)
        .finish();
    // A second daemon in the same process, as in tests, uses the log of the first.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(guard)
}

/// Prints an error with its chain of causes to standard error.
pub fn report_error(error: &(dyn Error + 'static)) {
    let mut text = format!("pushd: {error}");
    let mut cause = error.source();
    while let Some(next) = cause {
        // Some errors include the text of their cause.
        let message = next.to_string();
        if !text.ends_with(&message) {
            text.push_str(&format!(": {message}"));
        }
        cause = next.source();
    }
    // If standard error fails too, the error cannot be reported.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Installs a hook that logs every panic: its location, and its message only if that is a string literal.
///
/// A formatted message may contain any data of the daemon, so it is not logged.
pub fn install_panic_hook() {
    panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = panic_message(panic.payload());
        tracing::error!(%at, message, "panic");
        // If standard error fails too, the panic cannot be reported.
        let _ = writeln!(io::stderr(), "pushd: panic at {at}: {message}");
    }));
}

fn panic_message(payload: &dyn Any) -> &'static str {
    payload.downcast_ref::<&'static str>().copied().unwrap_or("(message omitted: it may contain data)")
}

/// Escapes the characters of a record that would control a terminal, be invisible or start another record.
fn escape_record(record: &str) -> String {
    let (text, end) = record.strip_suffix('\n').map_or((record, ""), |text| (text, "\n"));
    let mut line = String::with_capacity(record.len());
    for c in text.chars() {
        match c {
            '\t' => line.push(c),
            _ if c.is_control() || is_invisible(c) => line.extend(c.escape_default()),
            _ => line.push(c),
        }
    }
    line + end
}

/// Removes the shapes of secrets from each record before it is written.
struct RedactingWriter<W> {
    redactor: Redactor,
    to: W,
}

impl<W: Write> Write for RedactingWriter<W> {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(record);
        self.to.write_all(escape_record(&self.redactor.redact(&text)).as_bytes())?;
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
    fn secret_shapes_are_removed_from_a_record() {
        let mut log = RedactingWriter { redactor: Redactor::default(), to: Vec::new() };
        log.write_all(b"token=ghp_0123456789abcdefghijklmnopqrstuvwxyz went by\n").unwrap();
        let text = String::from_utf8(log.to).unwrap();
        assert!(!text.contains("ghp_0123"), "{text}");
        assert!(text.ends_with("went by\n"), "{text}");
    }

    #[test]
    fn a_formatted_panic_message_is_not_logged() {
        let message_of = |panics: fn()| panic_message(&*panic::catch_unwind(panics).unwrap_err());
        assert_eq!(message_of(|| panic!("plain text")), "plain text");
        let secret = message_of(|| panic!("no {}", std::hint::black_box("hunter2hunter2")));
        assert!(secret.contains("message omitted"), "{secret}");
        let cut = message_of(|| drop("hunter2hunter2é"[..std::hint::black_box(15)].to_owned()));
        assert!(!cut.contains("hunter2"), "{cut}");
    }

    #[test]
    fn a_record_is_one_line_without_terminal_control_characters() {
        let mut log = RedactingWriter { redactor: Redactor::default(), to: Vec::new() };
        let hostile = "INFO a\u{1b}[2J\u{9b}1m\r\nERROR forged \u{202e}b\u{200b}\tc é\n";
        log.write_all(hostile.as_bytes()).unwrap();
        let text = String::from_utf8(log.to).unwrap();
        assert_eq!(text, "INFO a\\u{1b}[2J\\u{9b}1m\\r\\nERROR forged \\u{202e}b\\u{200b}\tc é\n");
        let every: String = (0..0x11_0000).filter_map(char::from_u32).collect();
        assert!(escape_record(&every).chars().all(|c| c == '\t' || !c.is_control() && !is_invisible(c)));
    }
}
