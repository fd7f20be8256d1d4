//! `push doctor`: what is wrong, and what helps.
//!
//! It starts no daemon and changes nothing by itself. Asked in full, it has the daemon look at every event, which takes
//! damaged ones out of their histories and says so there.

mod configuration;
mod ground;
mod journal;
#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
mod walls;

use serde_json::{Value, json};

use super::console::{Palette, Style};
use super::context::{Context, now};
use super::exit::{CliError, Exit};
use super::plain::plain_line;
use crate::client::{Client, Request};
use crate::config::paths::user_home;

/// Look for what is wrong, and say what helps; 1 when there is a problem
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Looks at directories, the file system, the configuration, the socket and, where a daemon runs, at its journal and its sandbox. Every finding is ok, a note, \
or a problem with what helps against it.

Examples:
  push doctor
  push doctor --full              look at every event of every session
  push doctor --json | jq '.findings[] | select(.level == \"problem\")'")]
pub(crate) struct DoctorArgs {
    /// Look at every event that is stored; takes as long as reading all of it
    #[arg(long)]
    full: bool,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// How much somebody should care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// It is as it should be.
    Ok,
    /// Worth knowing; nothing has to be done.
    Note,
    /// Something has to be done.
    Problem,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// One thing that was looked at; its texts are harmless.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    level: Level,
    /// A word for what was looked at.
    about: &'static str,
    text: String,
    remedy: Option<String>,
}

impl Finding {
    fn ok(about: &'static str, text: impl AsRef<str>) -> Self {
        Self { level: Level::Ok, about, text: plain_line(text.as_ref()), remedy: None }
    }

    fn note(about: &'static str, text: impl AsRef<str>) -> Self {
        Self { level: Level::Note, ..Self::ok(about, text) }
    }

    fn problem(about: &'static str, text: impl AsRef<str>) -> Self {
        Self { level: Level::Problem, ..Self::ok(about, text) }
    }

    fn with_remedy(mut self, remedy: impl AsRef<str>) -> Self {
        self.remedy = Some(plain_line(remedy.as_ref()));
        self
    }
}

/// Looks at everything and says what it found.
pub(crate) async fn run(args: DoctorArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut findings = Vec::new();
    let mut check = Value::Null;
    match context.paths() {
        Err(error) => findings.push(Finding::problem("paths", error.to_string())),
        Ok(paths) => {
            findings.extend(ground::directories(&paths));
            findings.extend(ground::file_system(&paths));
            let home = std::env::var_os("PUSH_HOME")
                .is_none()
                .then(|| user_home(&|name| std::env::var_os(name)).ok());
            findings.extend(ground::writable(&paths, home.flatten().as_deref()));
            findings.extend(configuration::check(&paths));
            match context.client_if_running().await {
                Ok(mut client) => match ask(&mut client, &args, context, &mut findings).await {
                    Ok(answer) => check = answer,
                    Err(error) => findings.push(
                        Finding::problem("daemon", error.to_string())
                            .with_remedy("`push daemon logs` may say why"),
                    ),
                },
                Err(error) if error.is_not_running() => {
                    findings.extend(ground::without_daemon(&paths, args.full));
                }
                Err(error) => findings.push(
                    Finding::problem("daemon", error.to_string())
                        .with_remedy("`push daemon logs` may say why; `push daemon stop --force` ends it"),
                ),
            }
            findings.extend(ground::set_aside(&paths));
            findings.extend(ground::private_caches(&paths));
        }
    }
    let sound = findings.iter().all(|finding| finding.level != Level::Problem);
    if args.json {
        let findings: Vec<_> = findings.iter().map(object).collect();
        context.console.json(&json!({"ok": sound, "findings": findings, "journal": check}))?;
    } else {
        let palette = context.console.palette;
        context.console.text(&findings.iter().map(|finding| lines(finding, palette)).collect::<String>())?;
    }
    Ok(if sound { Exit::SUCCESS } else { Exit::FAILURE })
}

/// Asks the daemon how it and its journal are, and returns what it says of the journal.
async fn ask(
    client: &mut Client,
    args: &DoctorArgs,
    context: &mut Context,
    findings: &mut Vec<Finding>,
) -> Result<Value, CliError> {
    let metrics = client.ask(Request::metrics().with("sandbox", true)).await?;
    let version = metrics.get("version").and_then(Value::as_str).unwrap_or_default();
    let pid = metrics.get("pid").and_then(Value::as_u64).unwrap_or_default();
    let runs = format!("pushd {version} runs (pid {pid})");
    findings.push(if version == env!("CARGO_PKG_VERSION") {
        Finding::ok("daemon", runs)
    } else {
        Finding::note("daemon", format!("{runs}, and this is {}", env!("CARGO_PKG_VERSION")))
            .with_remedy("`push daemon restart` makes them one")
    });
    findings.extend(metrics.get("sandbox").map(walls::judge));
    findings.extend(metrics.get("sandbox").and_then(walls::home));
    if args.full {
        context.console.note("looking at every event; this may take a while");
    }
    match client.ask(Request::check_journal(args.full)).await {
        Ok(check) => {
            findings.extend(journal::judge(&check, now()));
            Ok(check)
        }
        Err(error) if error.code().is_some() => {
            findings.push(
                Finding::problem("journal", format!("it cannot be looked at: {error}"))
                    .with_remedy("`push daemon logs` may say why; `push daemon restart` begins anew"),
            );
            Ok(Value::Null)
        }
        Err(error) => Err(error.into()),
    }
}

fn object(finding: &Finding) -> Value {
    let Finding { level, about, text, remedy } = finding;
    let mut object = json!({"level": level.word(), "about": about, "text": text});
    if let Some(remedy) = remedy {
        object["remedy"] = json!(remedy);
    }
    object
}

fn lines(finding: &Finding, palette: Palette) -> String {
    let style = match finding.level {
        Level::Ok => Style::Good,
        Level::Note => Style::Attention,
        Level::Problem => Style::Bad,
    };
    let word = palette.paint(style, &format!("{:<7}", finding.level.word()));
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
    fn a_finding_is_a_line_and_its_remedy_another() {
        let finding = Finding::problem("disk", "it is \u{1b}[2Jfull").with_remedy("make room");
        assert_eq!(lines(&finding, Palette::Plain), "problem  disk: it is full\n         make room\n");
        assert_eq!(
            object(&finding),
            json!({"level": "problem", "about": "disk", "text": "it is full", "remedy": "make room"})
        );
        assert_eq!(lines(&Finding::ok("disk", "fine"), Palette::Plain), "ok       disk: fine\n");
    }
}
