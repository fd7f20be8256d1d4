//! The payloads of events.
//!
//! Each type is encoded and decoded: the journal stores what clients receive, so the mapping must be lossless.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::participant::QuorumItem;
use super::word::{
    CauseWord, CompactionFailureWord, CompactionReasonWord, DecisionWord, DeliveryWord, DenialEffectWord, IdleWord,
    OutcomeWord, PurposeWord, RecoveredPhaseWord, ResourceWord, RoleWord, ScopeWord, SourceWord, StreamWord,
    SubjectWord, ToolOutcomeWord,
};
use super::{Raw, Text};

/// Who may see an event.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AudienceItem {
    /// These participants.
    Participants(Vec<String>),
    /// The holders of a role.
    Role(RoleWord),
}

/// The envelope of an event as decoded from a line; its payload is decoded in a second step.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventEnvelope<'a> {
    pub(crate) run_id: Option<String>,
    pub(crate) seq: u64,
    pub(crate) ts: u64,
    pub(crate) session_version: Option<u64>,
    pub(crate) entry_id: Option<String>,
    #[serde(borrow)]
    pub(crate) audience: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) r#type: Text<'a>,
    #[serde(borrow)]
    pub(crate) payload: &'a RawValue,
}

macro_rules! payloads {
    ($($(#[$doc:meta])* struct $name:ident<'a> { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct $name<'a> {
            $($(#[$field_doc])* pub(crate) $field: $type,)*
        }
    )*};
}

payloads! {
    /// `session_started`
    struct SessionStarted<'a> {
        session_id: Text<'a>,
        state: IdleWord,
        mode: Text<'a>,
        /// The other protocol that opened it, if any.
        #[serde(skip_serializing_if = "Option::is_none")]
        protocol: Option<Text<'a>>,
        provider: Text<'a>,
        sandbox_provider: Text<'a>,
        cwd: Text<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        workspace: Option<WorkspaceItem<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        repo: Option<Raw<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<Raw<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        sandbox: Option<Raw<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")] parent_session_id: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")] forked_at_seq: Option<u64>,
    }

    /// `session_renamed`
    struct SessionRenamed<'a> {
        name: Text<'a>,
    }

    /// `session_ended`, `session_deleted` and `session_loaded`
    struct SessionEnded<'a> {
        by: Text<'a>,
    }

    /// `session_touched`
    struct SessionTouched<'a> {
        what: Text<'a>,
        by: Text<'a>,
    }

    /// `session_adjusted`
    struct SessionAdjusted<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        provider: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        thinking: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        auto_compaction: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        auto_retry: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        workspace: Option<WorkspaceItem<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        unloaded: Option<bool>,
        by: Text<'a>,
    }

    /// The identity of a session's workspace directory.
    struct WorkspaceItem<'a> {
        path: Text<'a>,
        file_id: Text<'a>,
        boot: Text<'a>,
    }

    /// `session_branched`
    struct SessionBranched<'a> {
        until_seq: u64,
        from_seq: u64,
        by: Text<'a>,
    }

    /// `compaction_started`
    struct CompactionStarted<'a> {
        reason: CompactionReasonWord,
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<Text<'a>>,
    }

    /// `compaction_ended`
    struct CompactionEnded<'a> {
        ending: CompactionFailureWord,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<Text<'a>>,
        #[serde(default, skip_serializing_if = "is_false")]
        again: bool,
    }

    /// `retry_started`
    struct RetryStarted<'a> {
        attempt: u32,
        max_attempts: u32,
        delay_ms: u64,
        message: Text<'a>,
    }

    /// `retry_ended`
    struct RetryEnded<'a> {
        succeeded: bool,
        attempt: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<Text<'a>>,
    }

    /// An image of a message.
    struct ImageItem<'a> {
        mime_type: Text<'a>,
        data: Text<'a>,
    }

    /// `user_message` and `message_queued`
    struct UserMessage<'a> {
        message_id: Text<'a>,
        text: Text<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        chars: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        preview: Option<Text<'a>>,
        by: Text<'a>,
        fingerprint: Text<'a>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<ImageItem<'a>>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        acceptance_criteria: Vec<CriterionItem<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        budget: Option<BudgetItem>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rules: Vec<Text<'a>>,
        #[serde(default, skip_serializing_if = "is_false")]
        needs_environment: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        delivery: Option<DeliveryWord>,
        #[serde(skip_serializing_if = "Option::is_none")]
        queued_run_id: Option<Text<'a>>,
    }

    /// `usage`
    struct Usage<'a> {
        model: Text<'a>,
        input_tokens: u64,
        output_tokens: u64,
        #[serde(default, skip_serializing_if = "is_zero")]
        cache_read_tokens: u64,
        #[serde(default, skip_serializing_if = "is_zero")]
        cache_write_tokens: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        cost_micro_usd: Option<u64>,
        #[serde(default, skip_serializing_if = "is_false")]
        estimated: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        carry: Option<Text<'a>>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pending: Vec<PendingCallItem<'a>>,
    }

    /// A tool call that the model requested and that has not started.
    struct PendingCallItem<'a> {
        tool_name: Text<'a>,
        args: Raw<'a>,
    }

    /// `context_compacted`
    struct ContextCompacted<'a> {
        summary: Text<'a>,
        kept_from_seq: u64,
        tokens_before: u64,
    }

    /// An acceptance check of a run.
    struct CriterionItem<'a> {
        id: Text<'a>,
        check: Text<'a>,
        exit_code: i32,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<Text<'a>>,
    }

    /// `message_unqueued`
    struct MessageUnqueued<'a> {
        message_id: Text<'a>,
        by: Text<'a>,
    }

    /// `status`: the current activity of a run; the start of a tool call if it has a call id; the stop of a run if it
    /// has `stopping`.
    struct Status<'a> {
        source: Text<'a>,
        phase: Text<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        call_id: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        stopping: Option<StoppingItem<'a>>,
    }

    /// The outcome of a run that is being stopped.
    struct StoppingItem<'a> {
        outcome: OutcomeWord,
        by: Text<'a>,
    }

    /// `thinking_token` and `assistant_token`
    struct Token<'a> {
        text: Text<'a>,
    }

    /// `assistant_done`
    struct AssistantDone<'a> {
        message_id: Text<'a>,
    }

    /// `tool_call`
    struct ToolCall<'a> {
        source: SourceWord,
        tool_name: Text<'a>,
        args: Raw<'a>,
        call_id: Text<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        purpose: Option<PurposeWord>,
        #[serde(skip_serializing_if = "Option::is_none")]
        check: Option<u32>,
        #[serde(default, skip_serializing_if = "is_false")]
        exclude_from_context: bool,
    }

    /// `tool_output`
    struct ToolOutput<'a> {
        call_id: Text<'a>,
        stream: StreamWord,
        text: Text<'a>,
    }

    /// `tool_result`
    struct ToolResult<'a> {
        source: SourceWord,
        tool_name: Text<'a>,
        duration_ms: u64,
        is_error: bool,
        text: Text<'a>,
        /// Whether the tool returned no output, so that `text` holds only the error.
        #[serde(default, skip_serializing_if = "is_false")]
        no_output: bool,
        structured_error: Option<StructuredError<'a>>,
        call_id: Text<'a>,
        status: ToolOutcomeWord,
        #[serde(skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        purpose: Option<PurposeWord>,
        #[serde(skip_serializing_if = "Option::is_none")]
        check: Option<u32>,
        #[serde(default, skip_serializing_if = "is_false")]
        exclude_from_context: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        diff: Option<Text<'a>>,
        #[serde(default, skip_serializing_if = "is_false")]
        diff_truncated: bool,
    }

    /// The error of a tool call.
    struct StructuredError<'a> {
        r#type: Text<'a>,
        retryable: bool,
        message: Text<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<Text<'a>>,
        /// The daemon's own error code; older journals have it in `type`.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<Text<'a>>,
    }

    /// `approval_required`
    struct ApprovalRequired<'a> {
        approval_id: Text<'a>,
        kind: Text<'a>,
        title: Text<'a>,
        summary: Text<'a>,
        details: Raw<'a>,
        options: [DecisionWord; 2],
        expires_at: u64,
        call_id: Text<'a>,
        #[serde(default = "one", skip_serializing_if = "is_one")]
        needed: u32,
        /// The rule by which votes settle it, where it is not a number of votes.
        #[serde(skip_serializing_if = "Option::is_none")]
        quorum: Option<QuorumItem>,
        /// The only participants whose votes count, where there are such.
        #[serde(skip_serializing_if = "Option::is_none")]
        eligible: Option<Vec<String>>,
        /// Present where it is about no call.
        #[serde(skip_serializing_if = "Option::is_none")]
        subject: Option<SubjectWord>,
        /// The exhausted resource, where the details do not name it.
        #[serde(skip_serializing_if = "Option::is_none")]
        resource: Option<ResourceWord>,
        #[serde(skip_serializing_if = "Option::is_none")]
        remember: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        sha256: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        on_denial: Option<DenialEffectWord>,
        #[serde(skip_serializing_if = "Option::is_none")]
        form: Option<Raw<'a>>,
    }

    /// `approval_vote`
    struct ApprovalVote<'a> {
        approval_id: Text<'a>,
        decision: DecisionWord,
        by: Text<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        participant_id: Option<Text<'a>>,
    }

    /// `approval_received`
    struct ApprovalReceived<'a> {
        approval_id: Text<'a>,
        decision: DecisionWord,
        by: Text<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        participant_id: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        choice: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        comment: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        scope: Option<ScopeWord>,
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        answer: Option<Raw<'a>>,
    }

    /// `warning`
    struct Warning<'a> {
        code: Text<'a>,
        message: Text<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<Text<'a>>,
    }

    /// `error`
    struct Failure<'a> {
        code: Text<'a>,
        message: Text<'a>,
        retryable: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<Text<'a>>,
    }

    /// `run_complete`
    struct RunComplete<'a> {
        run_id: Text<'a>,
        outcome: OutcomeWord,
        summary: Text<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        acceptance: Option<Acceptance<'a>>,
        headless: Headless,
    }

    /// The results of the acceptance criteria.
    struct Acceptance<'a> {
        total: u32,
        passed: u32,
        results: Vec<AcceptanceResult<'a>>,
    }

    /// The result of one criterion.
    struct AcceptanceResult<'a> {
        id: Text<'a>,
        passed: bool,
        exit_code: Option<i32>,
        output: Text<'a>,
    }
}

/// The budget of a run; exceeding it asks the user.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BudgetItem {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_cost_micro_usd: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_turns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_tokens: Option<u64>,
}

/// `run_recovered`
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunRecovered {
    pub(crate) found: RecoveredPhaseWord,
}

/// `events_lost`
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventsLost {
    pub(crate) after_seq: u64,
    pub(crate) until_seq: u64,
    pub(crate) cause: CauseWord,
}

/// The fields of a finished run for scripts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Headless {
    pub(crate) exit_code_hint: u8,
}

const fn one() -> u32 {
    1
}

const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(word: &bool) -> bool {
    !*word
}

const fn is_one(number: &u32) -> bool {
    *number == 1
}
