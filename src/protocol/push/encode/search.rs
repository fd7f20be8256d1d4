//! Encodes the results of searches, and figures.

use super::payload::Payload;
use crate::kernel::id::SessionId;
use crate::protocol::intent::SearchKind;
use crate::protocol::push::wire::response as wire;
use crate::protocol::reply::{SearchHit, SearchResults, StatsReport, StatsRow};

/// Answers `search`.
pub(super) fn results(results: &SearchResults) -> Payload {
    Payload::of(&wire::SearchReply {
        hits: results.hits.iter().map(hit).collect(),
        complete: results.coverage.complete,
        missing_sessions: results.coverage.missing,
    })
}

/// Answers `get_stats`.
pub(super) fn stats(report: &StatsReport) -> Payload {
    let tools = report.tools.iter();
    let tool = tools.map(|row| wire::ToolStatsItem { tool: &row.tool, calls: row.calls, failures: row.failures });
    Payload::of(&wire::StatsReply {
        rows: report.rows.iter().map(stats_item).collect(),
        tools: tool.collect(),
        sessions: report.sessions.as_ref().map(|sessions| sessions.iter().map(session_cost).collect()),
        complete: report.coverage.complete,
        missing_sessions: report.coverage.missing,
    })
}

fn session_cost((session, cost): &(SessionId, u64)) -> wire::SessionCostItem<'_> {
    wire::SessionCostItem { session_id: session.as_str(), cost_micro_usd: *cost }
}

fn hit(hit: &SearchHit) -> wire::SearchHitItem<'_> {
    let segments = hit.excerpt.iter();
    wire::SearchHitItem {
        session_id: hit.session.as_str(),
        name: hit.name.as_deref(),
        cwd: &hit.cwd,
        kind: match hit.kind {
            SearchKind::Message => "message",
            SearchKind::Tool => "tool",
            SearchKind::Name => "name",
        },
        seq: hit.seq.number(),
        ts: hit.at.0,
        excerpt: segments.map(|each| wire::ExcerptItem { text: &each.text, is_match: each.is_match }).collect(),
    }
}

fn stats_item(row: &StatsRow) -> wire::StatsItem<'_> {
    wire::StatsItem {
        day: &row.day,
        directory: &row.directory,
        model: &row.model,
        succeeded: row.succeeded,
        failed: row.failed,
        cancelled: row.cancelled,
        denied: row.denied,
        turns: row.turns,
        input_tokens: row.input_tokens,
        output_tokens: row.output_tokens,
        cost_micro_usd: row.cost_micro_usd,
        unpriced_turns: row.unpriced_turns,
        tool_calls: row.tool_calls,
        tool_failures: row.tool_failures,
        approvals: row.approvals,
        approved: row.approved,
        refused: row.refused,
    }
}
