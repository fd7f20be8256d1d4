//! `push search`: full-text search over all sessions.

use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::console::{Palette, Style};
use super::context::{Context, now};
use super::duration;
use super::exit::{CliError, Exit};
use super::ids;
use super::sanitize::sanitize_line;
use super::sessions::age;
use crate::client::{Client, Repository, Request, SearchHit};

/// Search messages, tool output and names of all sessions
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every word of TEXT must occur; a word also matches the beginning of a longer one, and words in double quotes match as a phrase. Case does not matter. The exit code is 1 if nothing is found.

Examples:
  push search disk full
  push search '\"disk is full\"' --here --since 7d
  push search panic --kind tool --json | jq -r '.hits[].sessionId'")]
pub(crate) struct SearchArgs {
    /// The words to search for
    #[arg(required = true, value_name = "TEXT")]
    text: Vec<String>,
    /// Search only in messages, tool calls or names; may be repeated
    #[arg(long, value_name = "KIND", value_parser = ["message", "tool", "name"])]
    kind: Vec<String>,
    #[command(flatten)]
    scope: ScopeArgs,
    /// Print at most this many hits
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    limit: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Which sessions, and since when.
#[derive(Debug, clap::Args)]
pub(crate) struct ScopeArgs {
    /// Only sessions of this repository, or of this directory
    #[arg(long)]
    here: bool,
    /// Only sessions in this directory or below it
    #[arg(long, value_name = "DIR", conflicts_with = "here")]
    repo: Option<PathBuf>,
    /// Only what happened within this time, such as 2h or 7d
    #[arg(long, value_name = "AGE", value_parser = duration::age)]
    since: Option<Duration>,
}

impl ScopeArgs {
    /// Adds the scope to a request.
    pub(crate) fn add_to<R: DeserializeOwned>(
        &self,
        request: Request<R>,
        client: &Client,
    ) -> Result<Request<R>, CliError> {
        let millis = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let since = self.since.map(|age| now().saturating_sub(millis(age)));
        Ok(request.with_some("since", since).with_some("directory", self.directory(client)?))
    }

    fn directory(&self, client: &Client) -> Result<Option<String>, CliError> {
        let typed = match &self.repo {
            // A path of another machine is not resolved here.
            Some(path) if client.host().is_some() => return Ok(Some(path.to_string_lossy().into_owned())),
            Some(path) => path.clone(),
            None if !self.here => return Ok(None),
            None if client.host().is_some() => {
                return Err(CliError::Usage(
                    "--here is a directory of this machine; name one there with --repo".into(),
                ));
            }
            None => PathBuf::from("."),
        };
        let failed = |source| CliError::File { action: "find", what: sanitize_line(&typed.to_string_lossy()), source };
        let directory = typed.canonicalize().map_err(failed)?;
        let root = if self.here { Repository::find(&directory).map(|found| found.root) } else { None };
        Ok(Some(root.unwrap_or(directory).to_string_lossy().into_owned()))
    }
}

/// Searches.
pub(crate) async fn run(args: SearchArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let request = Request::search(&args.text.join(" ")).with("limit", args.limit).with("kinds", args.kind);
    let request = args.scope.add_to(request, &client)?;
    let (reply, json) = client.request_with_json(request).await?;
    if args.json {
        context.console.json(&json)?;
    } else {
        let text: String = reply.hits.iter().map(|hit| show(hit, context.console.palette, now())).collect();
        context.console.text(&text)?;
        if reply.hits.is_empty() {
            context.console.notice("nothing was found");
        }
    }
    warn_incomplete(context, reply.complete, reply.missing_sessions);
    Ok(if reply.hits.is_empty() { Exit::FAILURE } else { Exit::SUCCESS })
}

/// Warns that some sessions are not indexed yet.
pub(crate) fn warn_incomplete(context: &mut Context, complete: bool, missing: u64) {
    if !complete {
        let count = if missing == 0 { String::new() } else { format!(" ({missing} left)") };
        context.console.warn(&format!("the index is being built{count}; older sessions may be missing"));
    }
}

fn show(hit: &SearchHit, palette: Palette, now: u64) -> String {
    let excerpt: String = hit
        .excerpt
        .iter()
        .map(|segment| {
            let text = sanitize_segment(&segment.text);
            if segment.is_match { palette.paint(Style::Attention, &text) } else { text }
        })
        .collect();
    let place = hit.name.as_deref().unwrap_or(&hit.cwd);
    let place = palette.paint(Style::Faint, &sanitize_line(place));
    let id = sanitize_line(&ids::handle(&hit.session_id));
    let at = if hit.seq == 0 { String::new() } else { format!(" at {}", hit.seq) };
    let (kind, age) = (sanitize_line(&hit.kind), age(now.saturating_sub(hit.ts)));
    format!("{}  {kind}{at}  {age}  {place}\n  {}\n", palette.paint(Style::Strong, &id), excerpt.trim())
}

/// Sanitizes a segment and keeps the spaces at its ends, which separate it from its neighbours.
fn sanitize_segment(text: &str) -> String {
    let framed = sanitize_line(&format!("|{text}|"));
    let inner = framed.strip_prefix('|').unwrap_or(&framed);
    // An incomplete escape sequence may have taken the end of the frame.
    inner.strip_suffix('|').unwrap_or(inner).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ExcerptSegment;

    #[test]
    fn a_hit_shows_its_session_and_its_excerpt_without_control_characters() {
        let segment = |text: &str, is_match| ExcerptSegment { text: text.to_owned(), is_match };
        let hit = SearchHit {
            session_id: "s1".into(),
            cwd: "/p\u{1b}[2J".into(),
            kind: "tool".into(),
            seq: 7,
            ts: 1_000,
            excerpt: vec![segment("the \u{1b}[31m", false), segment("disk", true), segment(" is full", false)],
            ..SearchHit::default()
        };
        assert_eq!(show(&hit, Palette::Plain, 61_000), "s1  tool at 7  1m  /p\n  the disk is full\n");
        assert!(show(&hit, Palette::Colored, 0).contains("the \u{1b}[33mdisk\u{1b}[0m is full"));
    }
}
