//! The report file of a run and its format.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::cli::console::Console;
use crate::cli::exit::{CliError, Exit};
use crate::cli::report::Report;
use crate::cli::sanitize::sanitize_line;
use crate::cli::{atomic_file, junit};

/// A requested report: `junit=FILE`, the only format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReportFile {
    path: PathBuf,
}

impl FromStr for ReportFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("junit", path)) if !path.is_empty() => Ok(Self { path: path.into() }),
            Some(_) | None => Err("expected FORMAT=FILE, such as junit=push.xml".to_owned()),
        }
    }
}

impl ReportFile {
    /// Checks before the run whether the file can be written, because a run may be expensive.
    pub(super) fn check(&self) -> Result<(), CliError> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if !folder.unwrap_or(Path::new(".")).is_dir() || self.path.is_dir() {
            return Err(CliError::Usage(format!(
                "cannot write a report to {}: its directory does not exist, or it is a directory",
                self.path.display()
            )));
        }
        Ok(())
    }

    /// Writes the report of a run, also of a failed one.
    ///
    /// A write error makes a successful outcome a failure; any other outcome stays.
    pub(super) fn write(
        &self,
        report: &Report,
        outcome: Result<Exit, CliError>,
        console: &mut Console,
    ) -> Result<Exit, CliError> {
        let written = atomic_file::replace(&self.path, junit::write(report).as_bytes());
        match (outcome, written) {
            (Ok(Exit::SUCCESS), Err(error)) => Err(error),
            (outcome, Err(error)) => {
                console.warn(&sanitize_line(&error.to_string()));
                outcome
            }
            (outcome, Ok(())) => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::console::testing::{CapturedStream, console};

    #[test]
    fn a_report_is_a_format_and_a_file() {
        assert_eq!("junit=a=b.xml".parse(), Ok(ReportFile { path: "a=b.xml".into() }));
        for text in ["", "junit", "junit=", "tap=x", "x.xml"] {
            assert!(text.parse::<ReportFile>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_that_cannot_be_written_is_refused_before_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = |path: PathBuf| ReportFile { path };
        assert!(file(folder.path().join("r.xml")).check().is_ok());
        assert!(file("r.xml".into()).check().is_ok());
        assert_eq!(file(folder.path().to_owned()).check().unwrap_err().exit(), Exit::USAGE);
        assert_eq!(file(folder.path().join("none/r.xml")).check().unwrap_err().exit(), Exit::USAGE);
    }

    #[test]
    fn a_failed_report_turns_success_into_failure_and_keeps_other_outcomes() {
        let folder = tempfile::tempdir().unwrap();
        let lost = ReportFile { path: folder.path().join("none/r.xml") };
        let report = Report::new("s", "r");
        let (mut console, err) = console(CapturedStream::default());
        assert!(lost.write(&report, Ok(Exit::SUCCESS), &mut console).is_err());
        assert_eq!(err.text(), "");
        assert_eq!(lost.write(&report, Ok(Exit::CANCELLED), &mut console).unwrap(), Exit::CANCELLED);
        assert!(err.text().starts_with("push: cannot write "), "{}", err.text());
        let kept = ReportFile { path: folder.path().join("r.xml") };
        assert_eq!(kept.write(&report, Ok(Exit::SUCCESS), &mut console).unwrap(), Exit::SUCCESS);
        assert!(kept.write(&report, Err(CliError::OutcomeLost), &mut console).is_err());
        assert!(std::fs::read_to_string(&kept.path).unwrap().contains("<error type=\"unknown\""));
    }
}
