//! Answers searches and requests for figures from the search index.

use std::collections::{BTreeMap, BTreeSet};

use super::index::{self, IndexError, IndexProgress};
use super::local_day::{day_start, local_day};
use super::server::Server;
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::time::Now;
use crate::protocol::error::{Code, ErrorBody};
use crate::protocol::intent::{Search, SearchKind, StatsQuery};
use crate::protocol::reply::{
    ExcerptSegment, IndexCoverage, Reply, SearchHit, SearchResults, StatsReport, StatsRow, ToolRow,
};
use crate::search::document::{DocumentKind, Figures, QUARTER_MILLIS};
use crate::search::query::{SearchQuery, Segment};
use crate::search::store::{Candidate, Filter, IndexedSession};

/// Searches the sessions that the client may list.
pub(super) async fn search(
    server: &Server,
    request: Search,
    is_visible: impl Fn(&SessionId) -> bool,
) -> Result<Reply, ErrorBody> {
    let Some(query) = SearchQuery::parse(&request.text) else {
        return Err(ErrorBody::permanent(Code::InvalidRequest, "text: has no letter or digit to search for"));
    };
    let services = server.hub().services();
    catch_up(server).await?;
    let filter = filter(&request);
    let sessions = services.index.with_reader(|store| store.sessions()).await.map_err(index_error)?;
    let included = |known: &IndexedSession| is_visible(&known.id) && filter.includes_directory(&known.cwd);
    let sessions: BTreeMap<SessionId, IndexedSession> =
        sessions.into_iter().filter(included).map(|known| (known.id.clone(), known)).collect();
    let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
    let mut hits = Vec::new();
    if filter.includes(DocumentKind::Name) {
        hits.extend(sessions.values().filter(|known| known.updated_at >= filter.since).filter_map(|known| {
            let excerpt = query.excerpt(&known.name, EXCERPT_CHARS)?;
            Some(hit(known, SearchKind::Name, Seq::ZERO, known.updated_at, excerpt))
        }));
    }
    let ids: BTreeSet<SessionId> = sessions.keys().cloned().collect();
    let (parsed, most) = (query.clone(), limit.saturating_mul(CANDIDATES_PER_HIT));
    let candidates = services.index.with_reader(move |store| store.candidates(&parsed, &filter, &ids, most)).await;
    // Names and texts are merged by time: many names must not keep newer texts out.
    let enough = hits.len().saturating_add(limit);
    for candidate in candidates.map_err(index_error)? {
        if hits.len() >= enough {
            break;
        }
        let Some(known) = sessions.get(&candidate.session) else { continue };
        hits.extend(verify(server, &query, known, &candidate).await);
    }
    hits.sort_by_key(|hit| std::cmp::Reverse(hit.at));
    hits.truncate(limit);
    Ok(Reply::SearchResults(SearchResults { hits, coverage: coverage(services.index.progress()) }))
}

/// Adds what is not indexed yet. A session that cannot be read keeps nobody from finding the others.
async fn catch_up(server: &Server) -> Result<(), ErrorBody> {
    let services = server.hub().services();
    match services.index.catch_up(&services.journal).await {
        Ok(()) | Err(IndexError::Journal(_)) => Ok(()),
        Err(error @ (IndexError::Store(_) | IndexError::Aborted)) => Err(index_error(error)),
    }
}

/// Returns the hit that a candidate is; `None` if it does not match, or its events no longer exist.
async fn verify(server: &Server, query: &SearchQuery, known: &IndexedSession, found: &Candidate) -> Option<SearchHit> {
    let documents = index::read_documents(&server.hub().services().journal, found).await.ok()?;
    let excerpt = documents.iter().find_map(|document| query.excerpt(&document.text, EXCERPT_CHARS))?;
    let kind = match found.kind {
        DocumentKind::Message => SearchKind::Message,
        DocumentKind::Tool => SearchKind::Tool,
        DocumentKind::Name => SearchKind::Name,
    };
    Some(hit(known, kind, found.first, found.at, excerpt))
}

fn hit(known: &IndexedSession, kind: SearchKind, seq: Seq, at: Now, excerpt: Vec<Segment>) -> SearchHit {
    let segment = |Segment { text, is_match }| ExcerptSegment { text, is_match };
    SearchHit {
        session: known.id.clone(),
        name: Some(known.name.clone()).filter(|name| !name.is_empty()),
        cwd: known.cwd.clone(),
        kind,
        seq,
        at,
        excerpt: excerpt.into_iter().map(segment).collect(),
    }
}

fn filter(request: &Search) -> Filter {
    let kind = |kind: &SearchKind| match kind {
        SearchKind::Message => DocumentKind::Message,
        SearchKind::Tool => DocumentKind::Tool,
        SearchKind::Name => DocumentKind::Name,
    };
    Filter {
        kinds: request.kinds.iter().map(kind).collect(),
        since: Now(request.since.unwrap_or(0)),
        directory: request.directory.clone(),
    }
}

/// Returns the figures of the sessions that the client may list.
pub(super) async fn stats(
    server: &Server,
    query: StatsQuery,
    is_visible: impl Fn(&SessionId) -> bool,
) -> Result<Reply, ErrorBody> {
    let services = server.hub().services();
    catch_up(server).await?;
    let filter = Filter { directory: query.directory, ..Filter::default() };
    let sessions = services.index.with_reader(|store| store.sessions()).await.map_err(index_error)?;
    let ids: BTreeSet<SessionId> = sessions.into_iter().map(|known| known.id).filter(is_visible).collect();
    // Whole days, so that the first one is comparable with the others.
    let since = query.since.map_or(0, |since| day_start(local_day(Now(since))).0 / QUARTER_MILLIS);
    let includes = move |id: &SessionId, cwd: &str| ids.contains(id) && filter.includes_directory(cwd);
    let table = services.index.with_reader(move |store| store.stats(since, includes)).await.map_err(index_error)?;
    let mut days: BTreeMap<(String, String, String), Figures> = BTreeMap::new();
    for ((quarter, directory, model), figures) in table.figures {
        let day = local_day(Now(quarter.saturating_mul(QUARTER_MILLIS))).to_string();
        days.entry((day, directory, model)).or_default().add(&figures);
    }
    let mut tools: BTreeMap<String, ToolRow> = BTreeMap::new();
    for ((_, tool), figures) in table.tools {
        let row = tools.entry(tool.clone()).or_insert(ToolRow { tool, calls: 0, failures: 0 });
        row.calls += figures.calls;
        row.failures += figures.failures;
    }
    let mut tools: Vec<ToolRow> = tools.into_values().collect();
    tools.sort_by_key(|row| std::cmp::Reverse(row.calls));
    let rows = days.into_iter().map(|(key, figures)| stats_row(key, &figures)).collect();
    let sessions = query.by_session.then(|| table.costs.into_iter().collect());
    Ok(Reply::Stats(Box::new(StatsReport { rows, tools, sessions, coverage: coverage(services.index.progress()) })))
}

fn stats_row((day, directory, model): (String, String, String), figures: &Figures) -> StatsRow {
    StatsRow {
        day,
        directory,
        model,
        succeeded: figures.succeeded,
        failed: figures.failed,
        cancelled: figures.cancelled,
        denied: figures.denied,
        turns: figures.turns,
        input_tokens: figures.input,
        output_tokens: figures.output,
        cost_micro_usd: figures.cost,
        unpriced_turns: figures.unpriced,
        tool_calls: figures.calls,
        tool_failures: figures.call_failures,
        approvals: figures.asked,
        approved: figures.approved,
        refused: figures.refused,
    }
}

const fn coverage(progress: IndexProgress) -> IndexCoverage {
    IndexCoverage { complete: progress.complete, missing: progress.missing }
}

fn index_error(error: IndexError) -> ErrorBody {
    ErrorBody::transient(Code::InternalError, format!("cannot search: {error}"))
}

/// The length of an excerpt in characters.
const EXCERPT_CHARS: usize = 160;
/// The number of candidates that are read for each hit: some have the words, and not in the order of the query.
const CANDIDATES_PER_HIT: usize = 8;
