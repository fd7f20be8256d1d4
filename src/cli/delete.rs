//! `push delete`: deletes sessions with their history.

use std::time::Duration;

use serde_json::json;

use super::confirm::Confirmation;
use super::context::{Context, now};
use super::disk_usage::{self, FileKind};
use super::exit::{CliError, Exit};
use super::format::{size, truncate};
use super::sanitize::sanitize_line;
use super::sessions::{age, title};
use super::{duration, ids, pi_files};
use crate::client::{Client, PiFile, Request, SessionItem, SessionPage};

/// Delete sessions with their history
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Deleted sessions are erased from the journal and cannot be restored. A session with an active run is skipped: \
cancel the run first. Pi session files that pushd created for a session are removed with it; imported files are kept, unless \
--with-pi-files is given.

Examples:
  push delete @last
  push delete --older-than 30d
  push delete --older-than 2w --yes --json")]
pub(crate) struct DeleteArgs {
    /// The sessions
    #[arg(value_name = "SESSION", required_unless_present = "older_than")]
    sessions: Vec<String>,
    /// All sessions without an event for this long: 90m, 12h, 30d or 2w; a bare number is seconds
    #[arg(long, value_name = "AGE", value_parser = duration::age, conflicts_with = "sessions")]
    older_than: Option<Duration>,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Also remove imported Pi session files, which other programs created
    #[arg(long)]
    with_pi_files: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A session to delete.
struct Candidate {
    id: String,
    title: String,
    updated: Option<u64>,
    bytes: u64,
    /// Its Pi session files, as the daemon lists them.
    files: Vec<PiFile>,
}

/// A session that is skipped, and the reason.
struct SkippedSession {
    id: String,
    reason: String,
}

/// Deletes sessions.
pub(crate) async fn run(args: DeleteArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let found = match args.older_than {
        Some(age) => older_than(&mut client, age).await?,
        None => named(&mut client, &args.sessions).await?,
    };
    let (candidates, mut skipped) = measure_sessions(&mut client, found).await?;
    for session in &skipped {
        context.console.warn(&format!("skipped {}: {}", sanitize_line(&session.id), sanitize_line(&session.reason)));
    }
    if !candidates.is_empty() {
        let consent = Confirmation::from_flag(args.yes, context)?;
        if !consent.confirm(&confirmation_prompt(&candidates, args.with_pi_files), context).await? {
            context.console.note("cancelled; nothing was deleted");
            return Ok(Exit::CANCELLED);
        }
    }
    let mut deleted = Vec::new();
    for mut candidate in candidates {
        match client.request(Request::delete_session(&candidate.id, args.with_pi_files)).await {
            Ok(reply) => {
                candidate.files = reply.pi_files;
                deleted.push(candidate);
            }
            // It existed a moment ago: either the reply was lost, or another client deleted it.
            Err(error) if error.code() == Some("SESSION_NOT_FOUND") => deleted.push(candidate),
            Err(error) if error.code().is_some() => {
                let why = error.to_string();
                context.console.warn(&format!("skipped {}: {}", sanitize_line(&candidate.id), sanitize_line(&why)));
                skipped.push(SkippedSession { id: candidate.id, reason: why });
            }
            Err(error) => return Err(error.into()),
        }
    }
    report(&args, &deleted, &skipped, context)?;
    Ok(if skipped.is_empty() { Exit::SUCCESS } else { Exit::FAILURE })
}

fn report(
    args: &DeleteArgs,
    deleted: &[Candidate],
    skipped: &[SkippedSession],
    context: &mut Context,
) -> Result<(), CliError> {
    let bytes: u64 = deleted.iter().map(|session| session.bytes).sum();
    if args.json {
        let gone =
            |session: &Candidate| json!({"sessionId": session.id, "bytes": session.bytes, "piFiles": session.files});
        let left = |session: &SkippedSession| json!({"sessionId": session.id, "reason": session.reason});
        let gone: Vec<_> = deleted.iter().map(gone).collect();
        let left: Vec<_> = skipped.iter().map(left).collect();
        context.console.json(&json!({"deleted": gone, "skipped": left, "bytes": bytes}))?;
    }
    if deleted.is_empty() && skipped.is_empty() {
        context.console.note("no session is older than that");
    } else {
        context.console.note(&format!("deleted {}, {}", count_sessions(deleted.len()), size(bytes)));
    }
    pi_files::report(deleted.iter().flat_map(|session| &session.files), context);
    // Files of another machine cannot be listed.
    let set_aside = if context.is_remote() { Vec::new() } else { disk_usage::list(&context.paths()?) };
    let (files, bytes) = disk_usage::total(&set_aside, FileKind::SetAside);
    if !deleted.is_empty() && files > 0 {
        context.console.warn(&format!(
            "{files} damaged journal files that were set aside ({}) may still contain deleted data; see `push doctor`",
            size(bytes)
        ));
    }
    Ok(())
}

/// Returns the named sessions without duplicates.
async fn named(client: &mut Client, typed: &[String]) -> Result<Vec<SessionItem>, CliError> {
    let mut found: Vec<SessionItem> = Vec::new();
    for typed in typed {
        let id = ids::resolve_session(client, typed).await?;
        if found.iter().any(|item| item.session_id == id) {
            continue;
        }
        let page = client.request(Request::list_sessions(2).with("prefix", id.as_str())).await?;
        let item = page.sessions.into_iter().find(|item| item.session_id == id);
        found.push(item.unwrap_or_else(|| SessionItem { session_id: id, ..SessionItem::default() }));
    }
    Ok(found)
}

async fn older_than(client: &mut Client, age: Duration) -> Result<Vec<SessionItem>, CliError> {
    let before = now().saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    let mut found = Vec::new();
    let mut cursor = None;
    loop {
        let request = Request::list_sessions(PAGE).with_some("cursor", cursor);
        let SessionPage { sessions, next_cursor } = client.request(request).await?;
        found.extend(sessions.into_iter().filter(|item| item.updated_at.is_some_and(|at| at < before)));
        if next_cursor.is_none() {
            return Ok(found);
        }
        cursor = next_cursor;
    }
}

/// How many sessions one request lists.
const PAGE: u64 = 1000;

async fn measure_sessions(
    client: &mut Client,
    found: Vec<SessionItem>,
) -> Result<(Vec<Candidate>, Vec<SkippedSession>), CliError> {
    let (mut candidates, mut skipped) = (Vec::new(), Vec::new());
    for item in found {
        match client.request(Request::delete_session_dry_run(&item.session_id)).await {
            Ok(reply) => candidates.push(Candidate {
                title: title(&item).to_owned(),
                id: item.session_id,
                updated: item.updated_at,
                bytes: reply.bytes,
                files: reply.pi_files,
            }),
            Err(error) if error.code().is_some() => {
                skipped.push(SkippedSession { id: item.session_id, reason: error.to_string() });
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((candidates, skipped))
}

/// Returns the confirmation prompt with the sessions to delete.
fn confirmation_prompt(candidates: &[Candidate], with_pi_files: bool) -> String {
    let now = now();
    let mut text = String::new();
    for session in candidates.iter().take(SHOWN) {
        let age = session.updated.map(|at| age(now.saturating_sub(at))).unwrap_or_default();
        let title = truncate(&sanitize_line(&session.title), 50);
        let line = format!("  {}  {age:>4}  {:>10}  {title}", sanitize_line(&session.id), size(session.bytes));
        text += line.trim_end();
        text.push('\n');
    }
    if candidates.len() > SHOWN {
        text += &format!("  and {} more\n", candidates.len() - SHOWN);
    }
    text += &pi_files::prompt_lines(candidates.iter().flat_map(|session| &session.files), with_pi_files);
    let bytes = candidates.iter().map(|session| session.bytes).sum();
    text + &format!("delete {}, {}, permanently? [y/n]", count_sessions(candidates.len()), size(bytes))
}

/// How many sessions the prompt lists.
const SHOWN: usize = 20;

fn count_sessions(count: usize) -> String {
    if count == 1 { "1 session".to_owned() } else { format!("{count} sessions") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompt_lists_the_sessions_to_delete_up_to_a_limit() {
        let candidate = |id: &str, bytes| Candidate {
            id: id.to_owned(),
            title: "fix \u{1b}[2Jit".to_owned(),
            updated: None,
            bytes,
            files: vec![PiFile {
                path: format!("/{id}.jsonl"),
                bytes: 9,
                created: id == "sess_1",
                ..PiFile::default()
            }],
        };
        let one = confirmation_prompt(&[candidate("sess_1", 2048)], false);
        assert!(one.contains("removes /sess_1.jsonl"), "{one}");
        let imported = [candidate("sess_2", 1)];
        assert!(
            confirmation_prompt(&imported, false).contains("keeps /sess_2.jsonl"),
            "{}",
            confirmation_prompt(&imported, false)
        );
        assert!(
            confirmation_prompt(&imported, true).contains("removes /sess_2.jsonl"),
            "{}",
            confirmation_prompt(&imported, true)
        );
        assert!(one.contains("sess_1") && one.contains("2.0 KiB") && one.contains("fix it"), "{one}");
        assert!(one.ends_with("delete 1 session, 2.0 KiB, permanently? [y/n]"), "{one}");
        let many: Vec<_> = (0..30).map(|number| candidate(&format!("sess_{number}"), 1024)).collect();
        let many = confirmation_prompt(&many, false);
        assert!(many.contains("  and 10 more\n"), "{many}");
        assert!(many.contains("delete 30 sessions, 30.0 KiB"), "{many}");
    }
}
