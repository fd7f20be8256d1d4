//! `push stats`: runs, tokens, cost, tools and approvals by day, directory and model.

use std::collections::{BTreeMap, BTreeSet};

use super::context::Context;
use super::exit::{CliError, Exit};
use super::format::{pad, truncate, width};
use super::sanitize::sanitize_line;
use super::scope::ScopeArgs;
use super::search::warn_incomplete;
use crate::client::{Request, StatsReply, StatsRow};

/// Show runs, tokens, cost, tools and approvals by day, directory and model
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  push stats\n  push stats --here --since 7d\n  push stats --json | jq '.rows'")]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Shows the figures.
pub(crate) async fn run(args: StatsArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let request = args.scope.add_to(Request::stats(), &client)?;
    let (reply, json) = client.request_with_json(request).await?;
    if args.json {
        context.console.json(&json)?;
    } else if reply.rows.is_empty() {
        context.console.notice("no runs");
    } else {
        context.console.text(&show(&reply, context.console.columns.unwrap_or(DEFAULT_COLUMNS)))?;
    }
    warn_incomplete(context, reply.complete, reply.missing_sessions);
    Ok(Exit::SUCCESS)
}

/// The sums of some rows.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    runs: u64,
    tokens: u64,
    cost: u64,
}

impl Sums {
    const fn add(&mut self, row: &StatsRow) {
        self.runs += row.succeeded + row.failed + row.cancelled + row.denied;
        self.tokens += row.input_tokens + row.output_tokens;
        self.cost += row.cost_micro_usd;
    }
}

/// Returns the figures as text that fits so many columns, or 40 if there are fewer.
fn show(reply: &StatsReply, columns: usize) -> String {
    let sum = |figure: fn(&StatsRow) -> u64| reply.rows.iter().map(figure).sum::<u64>();
    let mut total = Sums::default();
    reply.rows.iter().for_each(|row| total.add(row));
    let mut text = format!("runs        {}\n", total.runs);
    for (name, count) in [
        ("succeeded", sum(|row| row.succeeded)),
        ("failed", sum(|row| row.failed)),
        ("cancelled", sum(|row| row.cancelled)),
        ("denied", sum(|row| row.denied)),
    ] {
        if count > 0 {
            text += &format!("  {name:<9} {count}\n");
        }
    }
    let (input, output) = (sum(|row| row.input_tokens), sum(|row| row.output_tokens));
    text += &format!("tokens      {} in, {} out\n", short(input), short(output));
    text += &format!("cost        {}", dollars(total.cost));
    let unpriced = sum(|row| row.unpriced_turns);
    text += &if unpriced == 0 { "\n".to_owned() } else { format!(" ({} unpriced)\n", short(unpriced)) };
    text += &format!("tool calls  {} ({} failed)\n", sum(|row| row.tool_calls), sum(|row| row.tool_failures));
    let (asked, approved) = (sum(|row| row.approvals), sum(|row| row.approved));
    text += &format!("approvals   {asked} ({approved} granted)\n");
    let directories = directory_names(reply);
    let names = reply.rows.iter().map(|row| row.model.as_str()).chain(directories.values().copied());
    let names = names.chain(reply.tools.iter().map(|tool| tool.tool.as_str()));
    let widest = names.map(|name| width(&sanitize_line(name))).max().unwrap_or_default();
    let space = columns.saturating_sub(LINE_COLUMNS).max(NAME_COLUMNS);
    let layout = Layout { name: widest.clamp(NAME_COLUMNS, space) };
    text += &layout.section("by day", reply, |row| &row.day, &BTreeMap::new(), Order::Key);
    text += &layout.section("by directory", reply, |row| &row.directory, &directories, Order::Runs);
    text += &layout.section("by model", reply, |row| &row.model, &BTreeMap::new(), Order::Runs);
    let most = reply.tools.first().map_or(0, |tool| tool.calls);
    if most > 0 {
        text += "\nby tool\n";
    }
    for tool in reply.tools.iter().take(MAX_ROWS) {
        text += &layout.line(&tool.tool, tool.calls, most, &format!("{} failed", short(tool.failures)));
    }
    text
}

/// The order of the rows of a section.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Key,
    Runs,
}

/// The width of the names.
#[derive(Debug, Clone, Copy)]
struct Layout {
    name: usize,
}

impl Layout {
    fn section(
        self,
        title: &str,
        reply: &StatsReply,
        key: for<'a> fn(&'a StatsRow) -> &'a str,
        names: &BTreeMap<&str, &str>,
        order: Order,
    ) -> String {
        let mut groups: BTreeMap<&str, Sums> = BTreeMap::new();
        for row in &reply.rows {
            groups.entry(key(row)).or_default().add(row);
        }
        let mut groups: Vec<(&str, Sums)> = groups.into_iter().collect();
        match order {
            // The latest days.
            Order::Key => drop(groups.drain(..groups.len().saturating_sub(MAX_ROWS))),
            Order::Runs => groups.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.runs)),
        }
        groups.truncate(MAX_ROWS);
        let most = groups.iter().map(|(_, sums)| sums.runs).max().unwrap_or(0);
        let name = |key: &&str| names.get(*key).copied().unwrap_or(*key).to_owned();
        let lines = groups.iter().map(|(key, sums)| self.line(&name(key), sums.runs, most, &dollars(sums.cost)));
        format!("\n{title}\n{}", lines.collect::<String>())
    }

    /// Returns a line with a bar: a name, a number and a note.
    fn line(self, name: &str, number: u64, most: u64, note: &str) -> String {
        let name = pad(&truncate(&sanitize_line(name), self.name), self.name);
        // A number that is not zero is visible.
        let eighths = (number.saturating_mul(8 * BAR_COLUMNS)).div_ceil(most.max(1));
        let full = "█".repeat(usize::try_from(eighths / 8).unwrap_or(0));
        let part = PARTS.chars().nth(usize::try_from(eighths % 8).unwrap_or(0)).filter(|part| *part != ' ');
        let bar: String = full.chars().chain(part).collect();
        let bar = pad(&bar, usize::try_from(BAR_COLUMNS).unwrap_or(0));
        let line = format!("  {name} {bar} {:>5} {note}", short(number));
        format!("{}\n", line.trim_end())
    }
}

/// Returns the shortest end of each directory that no other directory has.
fn directory_names(reply: &StatsReply) -> BTreeMap<&str, &str> {
    let directories: BTreeSet<&str> = reply.rows.iter().map(|row| row.directory.as_str()).collect();
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for end in directories.iter().flat_map(|directory| path_ends(directory)) {
        *uses.entry(end).or_default() += 1;
    }
    let name = |directory| path_ends(directory).find(|end| uses.get(end) == Some(&1)).unwrap_or(directory);
    directories.iter().map(|directory| (*directory, name(directory))).collect()
}

/// Returns the ends of a path, the last part first, and the whole path last.
fn path_ends(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.rmatch_indices(['/', '\\']).filter_map(|(at, _)| path.get(at + 1..));
    ends.filter(|end| !end.is_empty()).chain([path])
}

/// Returns a large number in thousands, millions or billions.
fn short(number: u64) -> String {
    let (unit, letter) = match number {
        0..10_000 => return number.to_string(),
        10_000..1_000_000 => (1_000, "k"),
        1_000_000..1_000_000_000 => (1_000_000, "M"),
        _ => (1_000_000_000, "G"),
    };
    let tenths = number / (unit / 10);
    if tenths < 1_000 { format!("{}.{}{letter}", tenths / 10, tenths % 10) } else { format!("{}{letter}", tenths / 10) }
}

/// Returns an amount in dollars, and in cents unless it is large.
fn dollars(millionths: u64) -> String {
    match millionths / 1_000_000 {
        whole @ 0..10_000 => format!("${whole}.{:02}", millionths / 10_000 % 100),
        whole => format!("${}", short(whole)),
    }
}

/// The least columns of a name.
const NAME_COLUMNS: usize = 10;
/// The columns of a line beside its name.
const LINE_COLUMNS: usize = 30;
/// The columns without a terminal.
const DEFAULT_COLUMNS: usize = 80;
/// The columns of the longest bar.
const BAR_COLUMNS: u64 = 8;
/// The maximum number of rows of a section.
const MAX_ROWS: usize = 14;
/// A bar that ends within a column, by eighths.
const PARTS: &str = " ▏▎▍▌▋▊▉";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ToolStats;

    #[test]
    fn figures_fit_forty_columns_whatever_their_size() {
        let row = |day: &str, directory: &str, runs, cost| StatsRow {
            day: day.into(),
            directory: directory.into(),
            model: "a-model-with-a-very-long-name".into(),
            succeeded: runs,
            failed: 1,
            turns: 3,
            input_tokens: 123_456_789,
            output_tokens: 98_765,
            cost_micro_usd: cost,
            tool_calls: 9,
            tool_failures: 2,
            approvals: 2,
            approved: 1,
            unpriced_turns: 12_345_678,
            ..StatsRow::default()
        };
        let rows =
            vec![row("2026-01-01", "/a/\u{1b}[2Jb", 3, 420_000), row("2026-01-02", "/a/c", 123_456, u64::MAX / 4)];
        let tools = vec![ToolStats { tool: "exec".into(), calls: 9, failures: 12_345 }];
        let reply = StatsReply { rows, tools, complete: true, ..StatsReply::default() };
        for columns in [40, 41, 50, 80] {
            let text = show(&reply, columns);
            assert!(text.lines().all(|line| width(line) <= columns), "{text}");
        }
        assert!(show(&reply, 80).contains("  a-model-with-a-very-long-name ████"), "{}", show(&reply, 80));
        let text = show(&reply, 40);
        assert!(text.contains("  succeeded 123459\n") && text.contains("  failed    2\n"), "{text}");
        assert!(text.contains("runs        123461") && !text.contains('\u{1b}'), "{text}");
        assert!(text.contains("  2026-01-01 ▏"), "a small number is visible: {text}");
        assert!(text.contains("  exec       ████████     9 12.3k failed"), "{text}");
    }

    #[test]
    fn directories_with_the_same_last_name_are_told_apart() {
        let row = |directory: &str| StatsRow { directory: directory.into(), succeeded: 1, ..StatsRow::default() };
        let rows = ["/home/ada/api", "/home/bob/api", "/home/bob/api", "/srv/web", "/api", "/"].map(row).into();
        let text = show(&StatsReply { rows, ..StatsReply::default() }, 80);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        for (name, runs) in [("ada/api", "1"), ("bob/api", "2"), ("web", "1"), ("/api", "1"), ("/", "1")] {
            assert!(lines.iter().any(|line| line.len() == 4 && (line[0], line[2]) == (name, runs)), "{name}: {text}");
        }
    }

    #[test]
    fn numbers_are_shortened() {
        assert_eq!([9_999, 12_345, 123_456, 1_500_000].map(short), ["9999", "12.3k", "123k", "1.5M"]);
        assert_eq!([0, 420_000, 12_340_000, 12_345_670_000].map(dollars), ["$0.00", "$0.42", "$12.34", "$12.3k"]);
    }
}
