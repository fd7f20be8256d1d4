//! Converts the parts of events from wire types to kernel types.

use std::borrow::Cow;

use crate::kernel::event::{
    Adjustment, ApprovalScope, Branch, CheckResult, Compaction, ContextEvent, Criterion, EventKind, GateDecision,
    Image, Opening, PendingCall, Retry, RunReport, SessionEvent, TokenUsage, TurnUsage, WorkspaceIdentity,
};
use crate::kernel::id::Seq;
use crate::record::wire::event::{
    ApprovalReceived, ContextCompacted, CriterionItem, ImageItem, PendingCallItem, RetryStarted, RunComplete,
    SessionAdjusted, SessionBranched, SessionStarted, Usage, WorkspaceItem,
};
use crate::record::wire::{Text, json};

pub(super) fn opening(started: SessionStarted<'_>) -> Opening {
    Opening {
        mode: started.protocol.unwrap_or(started.mode).into_owned(),
        provider: started.provider.into_owned(),
        model: owned(started.model),
        sandbox: started.sandbox_provider.into_owned(),
        cwd: started.cwd.into_owned(),
        workspace: started.workspace.map(workspace),
        repo: started.repo.as_deref().map(json),
        metadata: started.metadata.as_deref().map(json),
        name: owned(started.name),
        confinement: started.sandbox.as_deref().map(json),
        parent: started.parent_session_id.map(id),
        forked_at: started.forked_at_seq.map(Seq::new),
    }
}

pub(super) fn compaction(compacted: ContextCompacted<'_>) -> Compaction {
    let ContextCompacted { summary, kept_from_seq, tokens_before } = compacted;
    Compaction { summary: summary.into_owned(), kept_from: Seq::new(kept_from_seq), tokens_before }
}

pub(super) fn turn_usage(usage: Usage<'_>) -> TurnUsage {
    let pending_call =
        |item: PendingCallItem<'_>| PendingCall { tool: item.tool_name.into_owned(), args: json(&item.args) };
    TurnUsage {
        model: usage.model.into_owned(),
        usage: TokenUsage {
            input: usage.input_tokens,
            output: usage.output_tokens,
            cache_read: usage.cache_read_tokens,
            cache_write: usage.cache_write_tokens,
            cost: usage.cost_micro_usd,
            estimated: usage.estimated,
        },
        provider_state: owned(usage.carry),
        pending: usage.pending.into_iter().map(pending_call).collect(),
    }
}

pub(super) fn criterion(item: CriterionItem<'_>) -> Criterion {
    Criterion {
        id: item.id.into_owned(),
        check: item.check.into_owned(),
        exit_code: item.exit_code,
        description: owned(item.description),
    }
}

pub(super) fn gate_decision(received: ApprovalReceived<'_>) -> GateDecision {
    GateDecision {
        gate: id(received.approval_id),
        decision: received.decision.into(),
        choice: owned(received.choice),
        by: received.by.into_owned(),
        participant: received.participant_id.map(id),
        comment: owned(received.comment),
        scope: received.scope.map_or(ApprovalScope::Once, Into::into),
        rule: owned(received.rule),
        answer: received.answer.as_deref().map(json),
    }
}

pub(super) fn report(complete: RunComplete<'_>) -> RunReport {
    let (checks_asked, results) =
        complete.acceptance.map_or((0, Vec::new()), |acceptance| (acceptance.total, acceptance.results));
    RunReport {
        outcome: complete.outcome.into(),
        reason: owned(complete.reason),
        summary: complete.summary.into_owned(),
        checks: results
            .into_iter()
            .map(|result| CheckResult {
                id: result.id.into_owned(),
                passed: result.passed,
                exit_code: result.exit_code,
                output: result.output.into_owned(),
            })
            .collect(),
        checks_requested: checks_asked,
        exit_code: complete.headless.exit_code_hint,
    }
}

pub(super) fn adjusted(adjusted: SessionAdjusted<'_>) -> EventKind {
    let adjustment = Adjustment {
        provider: owned(adjusted.provider),
        model: owned(adjusted.model),
        thinking: owned(adjusted.thinking),
        auto_compaction: adjusted.auto_compaction,
        auto_retry: adjusted.auto_retry,
        workspace: adjusted.workspace.map(workspace),
        unloaded: adjusted.unloaded,
    };
    EventKind::Session(SessionEvent::Adjusted { adjustment: Box::new(adjustment), by: adjusted.by.into_owned() })
}

fn workspace(item: WorkspaceItem<'_>) -> WorkspaceIdentity {
    WorkspaceIdentity { path: item.path.into_owned(), file_id: item.file_id.into_owned(), boot: item.boot.into_owned() }
}

pub(super) fn branched(branched: SessionBranched<'_>) -> EventKind {
    let SessionBranched { until_seq, from_seq, by } = branched;
    let branch = Branch { until: Seq::new(until_seq), from: Seq::new(from_seq) };
    EventKind::Context(ContextEvent::Branched { branch, by: by.into_owned() })
}

pub(super) fn retry(started: RetryStarted<'_>) -> Retry {
    Retry {
        attempt: started.attempt,
        max_attempts: started.max_attempts,
        pause_millis: started.delay_ms,
        message: started.message.into_owned(),
    }
}

pub(super) fn images(items: Vec<ImageItem<'_>>) -> Vec<Image> {
    let image = |item: ImageItem<'_>| Image { mime: item.mime_type.into_owned(), data: item.data.into_owned() };
    items.into_iter().map(image).collect()
}

pub(super) fn id<T: From<String>>(text: Text<'_>) -> T {
    T::from(text.into_owned())
}

pub(super) fn owned(text: Option<Text<'_>>) -> Option<String> {
    text.map(Cow::into_owned)
}
