//! `push search`: full-text search over all sessions.

use std::collections::{BTreeMap, BTreeSet};

use super::console::{Console, Style};
use super::context::{Context, now};
use super::exit::{CliError, Exit};
use super::format::width;
use super::ids;
use super::sanitize::sanitize_line;
use super::scope::ScopeArgs;
use super::sessions::age;
use super::table::{Cell, Column, plain, table};
use crate::client::{Request, SearchHit};

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
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Searches.
pub(crate) async fn run(args: SearchArgs, context: &mut Context) -> Result<Exit, CliError> {
    let text = args.text.join(" ");
    if !text.contains(char::is_alphanumeric) {
        // The exit code 1 would say that nothing was found.
        return Err(CliError::Usage("there is no letter or digit to search for".to_owned()));
    }
    let mut client = context.client().await?;
    let request = Request::search(&text).with("limit", args.limit).with("kinds", args.kind);
    let request = args.scope.add_to(request, &client)?;
    let (reply, json) = client.request_with_json(request).await?;
    if args.json {
        context.console.json(&json)?;
    } else {
        context.console.text(&hit_list(&reply.hits, &context.console, now()))?;
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

/// Returns the hits as a table, with the excerpt of each below its row.
fn hit_list(hits: &[SearchHit], console: &Console, now: u64) -> String {
    let ids: BTreeSet<&String> = hits.iter().map(|hit| &hit.session_id).collect();
    let ids: Vec<String> = ids.into_iter().cloned().collect();
    let handles: BTreeMap<&String, String> = ids.iter().zip(ids::handles(&ids)).collect();
    let row = |hit: &SearchHit| -> [Cell; 5] {
        let handle = handles.get(&hit.session_id).map_or(hit.session_id.as_str(), String::as_str);
        [
            (sanitize_line(handle), Some(Style::Strong)),
            plain(sanitize_line(&hit.kind)),
            plain(if hit.seq == 0 { "-".to_owned() } else { hit.seq.to_string() }),
            plain(age(now.saturating_sub(hit.ts))),
            (sanitize_line(hit.name.as_deref().unwrap_or(&hit.cwd)), Some(Style::Faint)),
        ]
    };
    let rows: Vec<[Cell; 5]> = hits.iter().map(row).collect();
    let columns = [
        Column::whole("ID"),
        Column::whole("KIND"),
        Column::whole("SEQ"),
        Column::whole("AGE"),
        Column::shortened("SESSION", 7),
    ];
    let table = table(columns, &rows, console);
    let mut lines = table.lines();
    let mut text = lines.next().map(|headings| format!("{headings}\n")).unwrap_or_default();
    for (line, hit) in lines.zip(hits) {
        text += &format!("{line}\n{}", excerpt(hit, console));
    }
    text
}

/// Returns an excerpt with its matches marked, indented and wrapped between words.
fn excerpt(hit: &SearchHit, console: &Console) -> String {
    let limit = console.columns.map_or(usize::MAX, |columns| columns.saturating_sub(INDENTATION.len()).max(1));
    let mut letters = Vec::new();
    for segment in &hit.excerpt {
        letters.extend(sanitize_segment(&segment.text).chars().map(|letter| (letter, segment.is_match)));
    }
    let (mut lines, mut rest) = (String::new(), trim(&letters));
    while !rest.is_empty() {
        let mut columns = 0;
        let fits = |(letter, _): &&(char, bool)| {
            columns += width(letter.encode_utf8(&mut [0; 4]));
            columns <= limit
        };
        let most = rest.iter().take_while(fits).count().max(1);
        let space = || rest[..most].iter().rposition(|(letter, _)| *letter == ' ').filter(|at| *at > 0);
        let end = if most < rest.len() && rest[most].0 != ' ' { space().unwrap_or(most) } else { most };
        lines += INDENTATION;
        for run in rest[..end].chunk_by(|one, other| one.1 == other.1) {
            let text: String = run.iter().map(|(letter, _)| letter).collect();
            let is_match = run.first().is_some_and(|(_, is_match)| *is_match);
            lines += &if is_match { console.palette.paint(Style::Attention, &text) } else { text };
        }
        lines.push('\n');
        rest = trim(&rest[end..]);
    }
    lines
}

const INDENTATION: &str = "  ";

/// Returns the letters without the spaces at their ends.
fn trim(letters: &[(char, bool)]) -> &[(char, bool)] {
    let is_text = |(letter, _): &(char, bool)| *letter != ' ';
    let first = letters.iter().position(is_text).unwrap_or(letters.len());
    let last = letters.iter().rposition(is_text).map_or(first, |last| last + 1);
    &letters[first..last]
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
    use crate::cli::console::Palette;
    use crate::cli::console::testing::{CapturedStream, console};
    use crate::client::ExcerptSegment;

    fn hit() -> SearchHit {
        let segment = |text: &str, is_match| ExcerptSegment { text: text.to_owned(), is_match };
        SearchHit {
            session_id: "s1".into(),
            cwd: "/p\u{1b}[2J/a-directory-with-a-long-name".into(),
            kind: "message".into(),
            seq: 1_000_007,
            ts: 1_000,
            excerpt: vec![
                segment("…the \u{1b}[31m", false),
                segment("disk", true),
                segment(" is full and averyveryverylongwordthatfitsnoline 漢字", false),
            ],
            ..SearchHit::default()
        }
    }

    #[test]
    fn a_hit_shows_its_session_and_its_excerpt_without_control_characters() {
        let (mut console, _) = console(CapturedStream::default());
        let text = hit_list(&[hit()], &console, 61_000);
        assert_eq!(
            text,
            "ID  KIND     SEQ      AGE  SESSION\n\
             s1  message  1000007  1m   /p/a-directory-with-a-long-name\n  \
             …the disk is full and averyveryverylongwordthatfitsnoline 漢字\n"
        );
        console.palette = Palette::Colored;
        assert!(hit_list(&[hit()], &console, 0).contains("the \u{1b}[33mdisk\u{1b}[0m is full"));
    }

    #[test]
    fn hits_fit_any_terminal_and_lose_no_word() {
        let (mut console, _) = console(CapturedStream::default());
        for columns in [34, 40, 80] {
            console.columns = Some(columns);
            let text = hit_list(&[hit()], &console, 61_000);
            assert!(text.lines().all(|line| width(line) <= columns), "{columns}:\n{text}");
            let words: String = text.lines().skip(2).flat_map(str::split_whitespace).collect();
            assert_eq!(words, "…thediskisfullandaveryveryverylongwordthatfitsnoline漢字");
        }
    }
}
