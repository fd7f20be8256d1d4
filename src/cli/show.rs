//! `push show`: prints the state of one session.

use super::context::{Context, now};
use super::exit::{CliError, Exit};
use super::format::outcome_name;
use super::ids;
use super::sanitize::{sanitize, sanitize_line};
use super::sessions::age;
use super::view::Echo;
use crate::client::{Request, SessionMeta, SessionSnapshot};

/// Show the state of a session
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  push show @last\n  push show @last --json | jq .state")]
pub(crate) struct ShowArgs {
    /// The session
    #[arg(default_value = "@last")]
    session: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints a session.
pub(crate) async fn run(args: ShowArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let session = ids::resolve_session(&mut client, &args.session).await?;
    let (snapshot, mut json) = client.request_with_json(Request::session_snapshot(&session)).await?;
    if args.json {
        if let Some(snapshot) = json.as_object_mut() {
            snapshot.insert("sessionId".into(), session.into());
        }
        context.console.json(&json)?;
        return Ok(Exit::SUCCESS);
    }
    context.console.text(&describe(&session, &snapshot, now()))?;
    if let Some(pending) = &snapshot.pending_approval {
        let question = context.view(Echo::Messages).approval(pending);
        context.console.text(&question)?;
    }
    Ok(Exit::SUCCESS)
}

fn describe(session: &str, snapshot: &SessionSnapshot, now: u64) -> String {
    let meta = &snapshot.meta;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let since = |at: Option<u64>| at.map(|at| format!("{} ago", age(now.saturating_sub(at)))).unwrap_or_default();
    let last_run = snapshot
        .last_run
        .as_ref()
        .map(|run| format!("{} {} (exit {})", run.run_id, outcome_name(run.outcome), run.exit_code));
    let facts = [
        ("session", session.to_owned()),
        ("name", text(&meta.name)),
        ("state", format!("{}{}", snapshot.state.as_str(), if snapshot.ended { ", ended" } else { "" })),
        ("fork of", fork_origin(meta)),
        ("directory", meta.cwd.clone()),
        ("branch", text(&meta.repo.current_branch)),
        ("provider", meta.provider.clone()),
        ("model", text(&meta.model)),
        ("started", since(snapshot.opened_at)),
        ("updated", since(snapshot.updated_at)),
        ("run", text(&snapshot.active_run_id)),
        ("last run", last_run.unwrap_or_default()),
        ("queued", if snapshot.queued > 0 { snapshot.queued.to_string() } else { String::new() }),
    ];
    let mut text = String::new();
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
        text += &format!("{name:<10} {}\n", sanitize_line(value));
    }
    let last_message = snapshot.last_user_message.as_deref().unwrap_or_default();
    for (message, mark) in [(last_message, "> "), (&snapshot.last_assistant_text, "")] {
        let message = sanitize(message);
        if !message.trim().is_empty() {
            text.push('\n');
            message.lines().for_each(|line| text += &format!("{mark}{line}\n"));
        }
    }
    text
}

/// Returns where a fork started; empty for a session that is none.
fn fork_origin(meta: &SessionMeta) -> String {
    match (&meta.parent_session_id, meta.forked_at_seq) {
        (Some(parent), Some(at)) => format!("{parent} at event {at}"),
        (Some(parent), None) => parent.clone(),
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_existing_properties_are_printed() {
        let snapshot = json!({"state": "failed", "activeRunId": null, "lastAssistantText": "done\n", "pendingApproval": null,
            "meta": {"provider": "playbook", "sandboxProvider": "local", "cwd": "/p\u{1b}[2J", "mode": "headless"},
            "lastSeq": 9, "lastUserMessage": "go", "queued": 0, "ended": true,
            "lastRun": {"runId": "run_1", "outcome": "failed", "exitCode": 4}, "openedAt": 0, "updatedAt": 60_000});
        assert_eq!(
            describe("sess_1", &serde_json::from_value(snapshot).unwrap(), 120_000),
            "session    sess_1\nstate      failed, ended\ndirectory  /p\nprovider   playbook\nstarted    2m ago\n\
             updated    1m ago\nlast run   run_1 failed (exit 4)\n\n> go\n\ndone\n"
        );
    }
}
