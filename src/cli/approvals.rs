//! `push approvals`: lists pending approvals, and lists or revokes remembered ones.

use super::context::{Context, now};
use super::exit::{CliError, Exit};
use super::ids;
use super::sanitize::{escape_line, sanitize_line};
use super::sessions::age;
use super::view::Echo;
use crate::client::{Grant, ListedApproval, Request};

/// List pending approvals
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  push approvals\n  push approvals @last --json | jq -r '.approvals[].approvalId'\n  push approvals --remembered       what is approved without asking\n  push approvals --revoke grant_01H"
)]
pub(crate) struct ApprovalsArgs {
    /// Only those of this session
    session: Option<String>,
    /// Show approvals in full, without truncation
    #[arg(long, visible_alias = "full", conflicts_with_all = ["json", "remembered", "revoke"])]
    whole: bool,
    /// List remembered approvals (scope `always`) of all repositories
    #[arg(long, conflicts_with_all = ["session", "revoke"])]
    remembered: bool,
    /// Revoke the remembered approval with this id
    #[arg(long, value_name = "ID", conflicts_with_all = ["session", "json"])]
    revoke: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Lists pending approvals, or lists or revokes remembered ones.
pub(crate) async fn run(args: ApprovalsArgs, context: &mut Context) -> Result<Exit, CliError> {
    if let Some(typed) = args.revoke {
        return revoke(&typed, context).await;
    }
    if args.remembered {
        return list_remembered(args.json, context).await;
    }
    let mut client = context.client().await?;
    let session = match args.session {
        Some(typed) => Some(ids::resolve_session(&mut client, &typed).await?),
        None => None,
    };
    let (reply, json) = client.request_with_json(Request::list_approvals(session.as_deref())).await?;
    if args.json {
        context.console.json(&json)?;
        return Ok(Exit::SUCCESS);
    }
    let waiting = reply.approvals;
    if waiting.is_empty() {
        context.console.note("no pending approvals");
    }
    let mut view = context.view(Echo::Messages);
    for approval in &waiting {
        let question = &approval.question;
        let mut text = if args.whole { view.whole_approval(question) } else { view.approval(question) };
        text += &session_and_expiry(approval, now());
        context.console.text(&text)?;
    }
    if !waiting.is_empty() {
        context.console.note("decide with: push approve ID, or push deny ID --comment REASON");
    }
    Ok(Exit::SUCCESS)
}

async fn list_remembered(as_json: bool, context: &mut Context) -> Result<Exit, CliError> {
    let (reply, json) = context.client().await?.request_with_json(Request::list_grants()).await?;
    if as_json {
        context.console.json(&json)?;
        return Ok(Exit::SUCCESS);
    }
    let grants = reply.grants;
    if grants.is_empty() {
        context.console.note("no remembered approvals");
    }
    for grant in &grants {
        context.console.text(&describe_grant(grant, now()))?;
    }
    if !grants.is_empty() {
        context.console.note("revoke with: push approvals --revoke ID");
    }
    Ok(Exit::SUCCESS)
}

fn describe_grant(grant: &Grant, now: u64) -> String {
    // The reader decides from this text what to revoke, so invisible characters are escaped.
    format!(
        "{}  {}\n  in {}, by {} {} ago\n",
        escape_line(&grant.grant_id),
        escape_line(&grant.rule),
        escape_line(&grant.repository),
        escape_line(&grant.by),
        age(now.saturating_sub(grant.granted_at))
    )
}

async fn revoke(typed: &str, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let grants = client.request(Request::list_grants()).await?.grants;
    let known: Vec<String> = grants.into_iter().map(|grant| grant.grant_id).collect();
    let id = ids::resolve("remembered approval", "grant_", typed, &known)?;
    client.request(Request::revoke_grant(&id)).await?;
    context.console.line(&format!("revoked {}", sanitize_line(&id)))?;
    Ok(Exit::SUCCESS)
}

fn session_and_expiry(approval: &ListedApproval, now: u64) -> String {
    let session = sanitize_line(&ids::handle(&approval.session));
    format!("  in {session}, denied in {}\n", age(approval.question.expires.0.saturating_sub(now)))
}
