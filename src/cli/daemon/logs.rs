//! `push daemon logs`: prints the end of the daemon's newest log file.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::cli::sanitize::sanitize;

/// Show the end of the daemon's log
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  push daemon logs\n  push daemon logs -n 200\n  push daemon logs --follow")]
pub(crate) struct LogsArgs {
    /// Keep printing new lines
    #[arg(long, short)]
    follow: bool,
    /// Number of lines
    #[arg(short = 'n', long = "lines", value_name = "COUNT", default_value_t = 50)]
    lines: usize,
}

/// How often the log file is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How much of the end of a log file is read, in bytes.
const MAX_TAIL_BYTES: u64 = 4 * 1024 * 1024;

/// Prints the log; needs no daemon.
pub(super) async fn run(args: LogsArgs, context: &mut Context) -> Result<Exit, CliError> {
    let directory = context.paths()?.logs;
    let newest = newest(&directory)?.ok_or_else(|| no_log(&directory))?;
    let mut log = LogReader::open(newest)?;
    for line in log.last_lines(args.lines)? {
        context.console.line(&sanitize(&line))?;
    }
    if !args.follow {
        return Ok(Exit::SUCCESS);
    }
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        for line in log.new_lines()? {
            context.console.line(&sanitize(&line))?;
        }
        if let Some(newer) = self::newest(&directory)?.filter(|newer| *newer != log.path) {
            log = LogReader::open(newer)?;
        }
    }
}

/// One log file and the read position in it.
struct LogReader {
    path: PathBuf,
    reader: BufReader<File>,
    /// The start of a line that is not complete yet.
    partial: Vec<u8>,
}

impl LogReader {
    fn open(path: PathBuf) -> Result<Self, CliError> {
        let file = File::open(&path).map_err(|source| unreadable(&path, source))?;
        Ok(Self { path, reader: BufReader::new(file), partial: Vec::new() })
    }

    /// Returns the last `count` lines.
    fn last_lines(&mut self, count: usize) -> Result<Vec<String>, CliError> {
        let size = self.reader.get_ref().metadata().map_err(|source| unreadable(&self.path, source))?.len();
        if size > MAX_TAIL_BYTES {
            self.reader
                .seek(SeekFrom::Start(size - MAX_TAIL_BYTES))
                .map_err(|source| unreadable(&self.path, source))?;
        }
        let mut lines = VecDeque::from(self.new_lines()?);
        while lines.len() > count {
            lines.pop_front();
        }
        Ok(lines.into())
    }

    /// Returns the complete lines that were written since the last call.
    fn new_lines(&mut self) -> Result<Vec<String>, CliError> {
        let mut lines = Vec::new();
        loop {
            let read = self.reader.read_until(b'\n', &mut self.partial);
            read.map_err(|source| unreadable(&self.path, source))?;
            if self.partial.pop_if(|last| *last == b'\n').is_none() {
                return Ok(lines);
            }
            lines.push(String::from_utf8_lossy(&std::mem::take(&mut self.partial)).into_owned());
        }
    }
}

/// Returns the file with the latest modification time.
fn newest(directory: &Path) -> Result<Option<PathBuf>, CliError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(unreadable(directory, source)),
    };
    let written = |entry: fs::DirEntry| {
        let facts = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((facts.modified().ok()?, entry.path()))
    };
    Ok(entries.flatten().filter_map(written).max().map(|(_, path)| path))
}

fn unreadable(path: &Path, source: std::io::Error) -> CliError {
    CliError::File { action: "read", what: path.display().to_string(), source }
}

fn no_log(directory: &Path) -> CliError {
    CliError::NoLog { directory: directory.display().to_string() }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn the_last_lines_are_read_and_then_new_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        fs::write(&path, "one\ntwo\nthree\nfo").unwrap();
        let mut log = LogReader::open(path.clone()).unwrap();
        assert_eq!(log.last_lines(2).unwrap(), ["two", "three"]);
        let mut file = File::options().append(true).open(path).unwrap();
        file.write_all(b"ur\nfive\n").unwrap();
        assert_eq!(log.new_lines().unwrap(), ["four", "five"]);
        assert_eq!(log.new_lines().unwrap(), [""; 0]);
    }

    #[test]
    fn the_newest_file_is_the_one_written_last() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, seconds| {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        };
        at("b.log", 100);
        at("a.log", 200);
        fs::create_dir(dir.path().join("z")).unwrap();
        assert_eq!(newest(dir.path()).unwrap(), Some(dir.path().join("a.log")));
        assert_eq!(newest(&dir.path().join("no")).unwrap(), None);
    }
}
