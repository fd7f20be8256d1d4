//! `push show`: prints the state of one session.

use serde_json::Value;

use super::context::{Context, now};
use super::exit::{CliError, Exit};
use super::format::field;
use super::ids;
use super::sanitize::{sanitize, sanitize_line};
use super::sessions::age;
use super::view::Echo;
use crate::client::Request;

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
    let mut snapshot = client.request(Request::session_snapshot(&session)).await?;
    if args.json {
        if let Some(snapshot) = snapshot.as_object_mut() {
            snapshot.insert("sessionId".into(), session.into());
        }
        context.console.json(&snapshot)?;
        return Ok(Exit::SUCCESS);
    }
    context.console.text(&describe(&session, &snapshot, now()))?;
    if let Some(pending) = snapshot.get("pendingApproval").filter(|pending| pending.is_object()) {
        let question = context.view(Echo::Messages).approval(pending);
        context.console.text(&question)?;
    }
    Ok(Exit::SUCCESS)
}

fn describe(session: &str, snapshot: &Value, now: u64) -> String {
    let meta = &snapshot["meta"];
    let repo = meta.get("repo").map(|repo| field(repo, "currentBranch")).unwrap_or_default();
    let since = |name| {
        let at = snapshot.get(name).and_then(Value::as_u64);
        at.map(|at| format!("{} ago", age(now.saturating_sub(at)))).unwrap_or_default()
    };
    let number = |name| snapshot.get(name).and_then(Value::as_u64).filter(|n| *n > 0);
    let ended = snapshot.get("ended").and_then(Value::as_bool).unwrap_or_default();
    let last_run = snapshot.get("lastRun").filter(|run| run.is_object()).map(|run| {
        let code = run.get("exitCode").and_then(Value::as_u64).unwrap_or_default();
        format!("{} {} (exit {code})", field(run, "runId"), field(run, "outcome"))
    });
    let facts = [
        ("session", session.to_owned()),
        ("name", field(meta, "name")),
        ("state", field(snapshot, "state") + if ended { ", ended" } else { "" }),
        ("directory", field(meta, "cwd")),
        ("branch", repo),
        ("provider", field(meta, "provider")),
        ("model", field(meta, "model")),
        ("started", since("openedAt")),
        ("updated", since("updatedAt")),
        ("run", field(snapshot, "activeRunId")),
        ("last run", last_run.unwrap_or_default()),
        ("queued", number("queued").map(|n| n.to_string()).unwrap_or_default()),
    ];
    let mut text = String::new();
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
        text += &format!("{name:<10} {}\n", sanitize_line(value));
    }
    for (name, mark) in [("lastUserMessage", "> "), ("lastAssistantText", "")] {
        let said = sanitize(&field(snapshot, name));
        if !said.trim().is_empty() {
            text.push('\n');
            said.lines().for_each(|line| text += &format!("{mark}{line}\n"));
        }
    }
    text
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
            describe("sess_1", &snapshot, 120_000),
            "session    sess_1\nstate      failed, ended\ndirectory  /p\nprovider   playbook\nstarted    2m ago\n\
             updated    1m ago\nlast run   run_1 failed (exit 4)\n\n> go\n\ndone\n"
        );
    }
}
