//! `push delete`: sessions go, with everything that was said in them.

use std::time::Duration;

use serde_json::{Value, json};

use super::confirm::Consent;
use super::context::{Context, now};
use super::exit::{CliError, Exit};
use super::holdings::{self, Kind};
use super::ids;
use super::phrase::{field, size};
use super::plain::plain_line;
use super::sessions::{age, shortened};
use crate::client::{Client, Request};

/// Delete sessions, with everything that was said in them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What is deleted is gone from the journal for good; nothing brings it back. A session in which a run is active is left: \
cancel the run first.

Examples:
  push delete @last
  push delete --older-than 30d
  push delete --older-than 2w --yes --json")]
pub(crate) struct DeleteArgs {
    /// The sessions
    #[arg(value_name = "SESSION", required_unless_present = "older_than")]
    sessions: Vec<String>,
    /// Those to which nothing has happened for so long: 90m, 12h, 30d or 2w
    #[arg(long, value_name = "AGE", value_parser = duration, conflicts_with = "sessions")]
    older_than: Option<Duration>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// A session that may go.
struct Candidate {
    id: String,
    title: String,
    updated: Option<u64>,
    bytes: u64,
}

/// A session that stays, and why.
struct Skipped {
    id: String,
    why: String,
}

/// Deletes sessions.
pub(crate) async fn run(args: DeleteArgs, context: &mut Context) -> Result<Exit, CliError> {
    let consent = Consent::read(args.yes, context)?;
    let mut client = context.client().await?;
    let found = match args.older_than {
        Some(age) => older_than(&mut client, age).await?,
        None => named(&mut client, &args.sessions).await?,
    };
    let (candidates, mut skipped) = weigh(&mut client, found).await?;
    for session in &skipped {
        context.console.warn(&format!("{} stays: {}", plain_line(&session.id), plain_line(&session.why)));
    }
    if !candidates.is_empty() && !consent.asks(&question(&candidates), context).await? {
        context.console.note("nothing was deleted");
        return Ok(Exit::CANCELLED);
    }
    let mut deleted = Vec::new();
    for candidate in candidates {
        match client.ask(Request::delete_session(&candidate.id)).await {
            Ok(_) => deleted.push(candidate),
            // It was there a moment ago: the answer was lost, or somebody else was faster.
            Err(error) if error.code() == Some("SESSION_NOT_FOUND") => deleted.push(candidate),
            Err(error) if error.code().is_some() => {
                let why = error.to_string();
                context.console.warn(&format!("{} stays: {}", plain_line(&candidate.id), plain_line(&why)));
                skipped.push(Skipped { id: candidate.id, why });
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
    skipped: &[Skipped],
    context: &mut Context,
) -> Result<(), CliError> {
    let bytes: u64 = deleted.iter().map(|session| session.bytes).sum();
    if args.json {
        let gone = |session: &Candidate| json!({"sessionId": session.id, "bytes": session.bytes});
        let left = |session: &Skipped| json!({"sessionId": session.id, "reason": session.why});
        let gone: Vec<_> = deleted.iter().map(gone).collect();
        let left: Vec<_> = skipped.iter().map(left).collect();
        context.console.json(&json!({"deleted": gone, "skipped": left, "bytes": bytes}))?;
    }
    if deleted.is_empty() && skipped.is_empty() {
        context.console.note("no session is that old");
    } else {
        context.console.note(&format!("deleted {}, {}", sessions(deleted.len()), size(bytes)));
    }
    let (files, bytes) = holdings::sum(&holdings::all(&context.paths()?), Kind::SetAside);
    if !deleted.is_empty() && files > 0 {
        context.console.warn(&format!(
            "{files} damaged files that were set aside ({}) may still hold what was deleted; see `push doctor`",
            size(bytes)
        ));
    }
    Ok(())
}

/// Finds the sessions that were named, each once.
async fn named(client: &mut Client, typed: &[String]) -> Result<Vec<Value>, CliError> {
    let mut found: Vec<Value> = Vec::new();
    for typed in typed {
        let id = ids::session(client, typed).await?;
        if found.iter().any(|item| field(item, "sessionId") == id) {
            continue;
        }
        let answer = client.ask(Request::list_sessions(2).with("prefix", id.as_str())).await?;
        let items = answer["sessions"].as_array().cloned().unwrap_or_default();
        let item = items.into_iter().find(|item| field(item, "sessionId") == id);
        found.push(item.unwrap_or_else(|| json!({"sessionId": id})));
    }
    Ok(found)
}

async fn older_than(client: &mut Client, age: Duration) -> Result<Vec<Value>, CliError> {
    let before = now().saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    let mut found = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let answer = client.ask(Request::list_sessions(PAGE).with("cursor", cursor)).await?;
        let page = answer["sessions"].as_array().cloned().unwrap_or_default();
        found.extend(page.into_iter().filter(|item| updated(item).is_some_and(|at| at < before)));
        cursor = answer["nextCursor"].clone();
        if cursor.is_null() {
            return Ok(found);
        }
    }
}

/// How many sessions are asked for at once.
const PAGE: u64 = 1000;

fn updated(item: &Value) -> Option<u64> {
    item.get("updatedAt").and_then(Value::as_u64)
}

async fn weigh(client: &mut Client, found: Vec<Value>) -> Result<(Vec<Candidate>, Vec<Skipped>), CliError> {
    let (mut candidates, mut skipped) = (Vec::new(), Vec::new());
    for item in found {
        let id = field(&item, "sessionId");
        match client.ask(Request::weigh_session(&id)).await {
            Ok(answer) => {
                let name = field(&item, "name");
                let title = if name.is_empty() { field(&item, "lastUserMessage") } else { name };
                let bytes = answer.get("bytes").and_then(Value::as_u64).unwrap_or_default();
                candidates.push(Candidate { id, title, updated: updated(&item), bytes });
            }
            Err(error) if error.code().is_some() => skipped.push(Skipped { id, why: error.to_string() }),
            Err(error) => return Err(error.into()),
        }
    }
    Ok((candidates, skipped))
}

/// Says what would go, and asks.
fn question(candidates: &[Candidate]) -> String {
    let now = now();
    let mut text = String::new();
    for session in candidates.iter().take(SHOWN) {
        let age = session.updated.map(|at| age(now.saturating_sub(at))).unwrap_or_default();
        let title = shortened(&plain_line(&session.title), 50);
        let line = format!("  {}  {age:>4}  {:>10}  {title}", plain_line(&session.id), size(session.bytes));
        text += line.trim_end();
        text.push('\n');
    }
    if candidates.len() > SHOWN {
        text += &format!("  and {} more\n", candidates.len() - SHOWN);
    }
    let bytes = candidates.iter().map(|session| session.bytes).sum();
    text + &format!("delete {}, {}, for good? [y/n]", sessions(candidates.len()), size(bytes))
}

/// How many sessions are shown before the question.
const SHOWN: usize = 20;

fn sessions(count: usize) -> String {
    if count == 1 { "one session".to_owned() } else { format!("{count} sessions") }
}

/// Reads an age: a number of minutes, hours, days or weeks.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "not an age like 90m, 12h, 30d or 2w".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        'w' => 7 * 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number: u64 = text.strip_suffix(unit).unwrap_or_default().parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_a_unit() {
        assert_eq!(duration("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(duration("2w"), Ok(Duration::from_secs(14 * 86_400)));
        assert_eq!(duration("90m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(duration("0h"), Ok(Duration::ZERO));
        for text in
            ["", "d", "30", "-1d", "1.5d", "30 d", "3y", "99999999999999999999w", "9999999999999999999w"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_question_names_what_goes_and_no_more_than_fits() {
        let candidate = |id: &str, bytes| Candidate {
            id: id.to_owned(),
            title: "fix \u{1b}[2Jit".to_owned(),
            updated: None,
            bytes,
        };
        let one = question(&[candidate("sess_1", 2048)]);
        assert!(one.contains("sess_1") && one.contains("2.0 KiB") && one.contains("fix it"), "{one}");
        assert!(one.ends_with("delete one session, 2.0 KiB, for good? [y/n]"), "{one}");
        let many: Vec<_> = (0..30).map(|number| candidate(&format!("sess_{number}"), 1024)).collect();
        let many = question(&many);
        assert!(many.contains("  and 10 more\ndelete 30 sessions, 30.0 KiB"), "{many}");
    }
}
