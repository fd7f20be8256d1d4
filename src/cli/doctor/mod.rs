//! `push doctor`: diagnoses problems and suggests remedies.
//!
//! It does not start the daemon and changes nothing itself. With `--full` the daemon checks every event; it removes
//! damaged events from their histories and records this there.

mod configuration;
mod confinement;
mod journal;
#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
mod storage;

use serde_json::{Value, json};

use super::console::{Palette, Style};
use super::context::{Context, now};
use super::exit::{CliError, Exit};
use super::sanitize::sanitize_line;
use crate::client::{Client, Request};
use crate::config::paths::user_home;

/// Diagnose problems and suggest remedies; exit code 1 if there is a problem
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Checks directories, the file system, the configuration, the socket and, if the daemon is running, its journal and its sandbox. Every finding is ok, a note, \
or a problem with a remedy.

Examples:
  push doctor
  push doctor --full              check every event of every session
  push doctor --json | jq '.findings[] | select(.level == \"problem\")'")]
pub(crate) struct DoctorArgs {
    /// Check every stored event; takes as long as reading all of them
    #[arg(long)]
    full: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// No problem.
    Ok,
    /// Worth knowing; no action is required.
    Note,
    /// Action is required.
    Problem,
}

impl Level {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// The result of one check; its texts are sanitized.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    level: Level,
    /// The subject of the check.
    about: &'static str,
    text: String,
    remedy: Option<String>,
}

impl Finding {
    fn ok(about: &'static str, text: impl AsRef<str>) -> Self {
        Self { level: Level::Ok, about, text: sanitize_line(text.as_ref()), remedy: None }
    }

    fn note(about: &'static str, text: impl AsRef<str>) -> Self {
        Self { level: Level::Note, ..Self::ok(about, text) }
    }

    fn problem(about: &'static str, text: impl AsRef<str>) -> Self {
        Self { level: Level::Problem, ..Self::ok(about, text) }
    }

    fn is_problem_with(&self, about: &str) -> bool {
        self.level == Level::Problem && self.about == about
    }

    fn with_remedy(mut self, remedy: impl AsRef<str>) -> Self {
        self.remedy = Some(sanitize_line(remedy.as_ref()));
        self
    }
}

/// Runs all checks and prints the findings.
pub(crate) async fn run(args: DoctorArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut findings = Vec::new();
    let mut check = Value::Null;
    match context.paths() {
        Err(error) => findings.push(Finding::problem("paths", error.to_string())),
        Ok(paths) => {
            findings.extend(storage::check_directories(&paths));
            findings.extend(storage::check_file_system(&paths));
            let home = std::env::var_os("PUSH_HOME").is_none().then(|| user_home(&|name| std::env::var_os(name)).ok());
            findings.extend(storage::check_writable(&paths, home.flatten().as_deref()));
            findings.extend(configuration::check(&paths));
            match context.client_if_running().await {
                Ok(mut client) => match check_daemon(&mut client, &args, context, &mut findings).await {
                    Ok(answer) => check = answer,
                    Err(error) => findings.push(
                        Finding::problem("daemon", error.to_string())
                            .with_remedy("`push daemon logs` may have the reason"),
                    ),
                },
                Err(error) if error.is_not_running() => {
                    findings.extend(storage::check_without_daemon(&paths, args.full));
                }
                Err(error) => findings.push(Finding::problem("daemon", error.to_string()).with_remedy(
                    "`push daemon logs` may have the reason; `push daemon stop --force` kills the daemon",
                )),
            }
            findings.extend(storage::check_set_aside(&paths));
            findings.extend(storage::check_private_caches(&paths));
        }
    }
    let sound = findings.iter().all(|finding| finding.level != Level::Problem);
    if args.json {
        let findings: Vec<_> = findings.iter().map(to_json).collect();
        context.console.json(&json!({"ok": sound, "findings": findings, "journal": check}))?;
    } else {
        let palette = context.console.palette;
        context.console.text(&findings.iter().map(|finding| render(finding, palette)).collect::<String>())?;
    }
    Ok(if sound { Exit::SUCCESS } else { Exit::FAILURE })
}

/// Adds findings about the daemon, its sandbox and its journal, and returns the reply of the journal check.
async fn check_daemon(
    client: &mut Client,
    args: &DoctorArgs,
    context: &mut Context,
    findings: &mut Vec<Finding>,
) -> Result<Value, CliError> {
    let is_reported = findings.iter().any(|finding| finding.is_problem_with(configuration::ABOUT));
    let metrics = match client.request(Request::metrics().with("sandbox", true)).await {
        // The daemon cannot describe the sandbox without a valid configuration, whose error is a finding already.
        Err(error) if error.code() == Some("INVALID_CONFIGURATION") && is_reported => {
            client.request(Request::metrics()).await?
        }
        answer => answer?,
    };
    let version = metrics.version.unwrap_or_default();
    let pid = metrics.pid.unwrap_or_default();
    let runs = format!("pushd {version} is running (pid {pid})");
    findings.push(if version == env!("CARGO_PKG_VERSION") {
        Finding::ok("daemon", runs)
    } else {
        Finding::note("daemon", format!("{runs}, but this client is version {}", env!("CARGO_PKG_VERSION")))
            .with_remedy("`push daemon restart` starts the version of this client")
    });
    findings.extend(metrics.sandbox.as_ref().map(confinement::layers_finding));
    findings.extend(metrics.sandbox.as_ref().and_then(confinement::home_finding));
    if let Some(error) = &metrics.search_index_error {
        let text = format!("new events are not indexed, and `push search` may miss them: {error}");
        findings.push(Finding::problem("search", text).with_remedy(
            "check the disk of the state directory; the index is built again if pushd.index is removed while the daemon is stopped",
        ));
    }
    if args.full {
        context.console.note("checking every event; this may take a while");
    }
    match client.request_with_json(Request::check_journal(args.full)).await {
        Ok((check, json)) => {
            findings.extend(journal::findings(&check, now()));
            Ok(json)
        }
        Err(error) if error.code().is_some() => {
            findings.push(
                Finding::problem("journal", format!("the journal cannot be checked: {error}")).with_remedy(
                    "`push daemon logs` may have the reason; `push daemon restart` opens the journal again",
                ),
            );
            Ok(Value::Null)
        }
        Err(error) => Err(error.into()),
    }
}

fn to_json(finding: &Finding) -> Value {
    let Finding { level, about, text, remedy } = finding;
    let mut object = json!({"level": level.as_str(), "about": about, "text": text});
    if let Some(remedy) = remedy {
        object["remedy"] = json!(remedy);
    }
    object
}

fn render(finding: &Finding, palette: Palette) -> String {
    let style = match finding.level {
        Level::Ok => Style::Good,
        Level::Note => Style::Attention,
        Level::Problem => Style::Bad,
    };
    let word = palette.paint(style, &format!("{:<7}", finding.level.as_str()));
    let mut lines = format!("{word}  {}: {}\n", finding.about, finding.text);
    if let Some(remedy) = &finding.remedy {
        lines += &format!("         {remedy}\n");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_and_its_remedy_are_one_line_each() {
        let finding = Finding::problem("disk", "it is \u{1b}[2Jfull").with_remedy("make room");
        assert_eq!(render(&finding, Palette::Plain), "problem  disk: it is full\n         make room\n");
        assert_eq!(
            to_json(&finding),
            json!({"level": "problem", "about": "disk", "text": "it is full", "remedy": "make room"})
        );
        assert_eq!(render(&Finding::ok("disk", "fine"), Palette::Plain), "ok       disk: fine\n");
    }
}
