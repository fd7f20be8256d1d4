//! The payloads of responses, and of the snapshot event for one client.

use serde::Serialize;

use crate::record::wire::event::ApprovalRequired;
use crate::record::wire::participant::QuorumItem;
use crate::record::wire::word::{
    AuthenticationWord, DecisionWord, DenialEffectWord, OutcomeWord, ParticipantKindWord, ResourceWord, RightWord,
    RoleWord, StateWord, SubjectWord,
};
use crate::record::wire::{Raw, Text};

macro_rules! payloads {
    ($($(#[$doc:meta])* struct $name:ident $(<$life:lifetime>)? {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub(in crate::protocol::push) struct $name $(<$life>)? {
            $($(#[$field_doc])* pub(in crate::protocol::push) $field: $type,)*
        }
    )*};
}

payloads! {
    /// The error of a response.
    struct ProtocolError<'a> {
        code: &'static str,
        message: &'a str,
        retryable: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
    }

    /// `hello`
    struct HelloReply<'a> {
        runtime_name: &'static str,
        runtime_version: &'a str,
        protocol_version: &'static str,
        capabilities: &'a [&'a str],
        #[serde(skip_serializing_if = "Option::is_none")]
        home_directory: Option<&'a str>,
    }

    /// `ping`
    struct PongReply {
        pong: bool,
        ts: u64,
    }

    /// `start_session` and `fork_session`
    struct StartReply<'a> {
        session_id: &'a str,
        state: StateWord,
        attach_token: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        repeated: Option<bool>,
    }

    /// `attach_session` and `resume_session`
    struct AttachReply<'a> {
        session_id: &'a str,
        state: StateWord,
        replay: ReplayItem,
    }

    /// The range of replayed events.
    struct ReplayItem {
        from_seq: u64,
        to_seq: u64,
        completed: bool,
        gap: bool,
    }

    /// `send_user_message` and `steer`
    struct RunReply<'a> {
        run_id: &'a str,
        accepted: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        repeated: Option<bool>,
    }

    /// `queue_message`
    struct QueuedReply<'a> {
        message_id: &'a str,
        run_id: &'a str,
        position: usize,
    }

    /// `list_queue`
    struct QueueReply<'a> {
        messages: Vec<QueueItem<'a>>,
    }

    /// A queued message.
    struct QueueItem<'a> {
        message_id: &'a str,
        run_id: &'a str,
        text: &'a str,
    }

    /// `list_participants`
    struct Participants<'a> {
        participants: Vec<ParticipantItem<'a>>,
    }

    /// A participant.
    struct ParticipantItem<'a> {
        participant_id: &'a str,
        participant_kind: ParticipantKindWord,
        name: &'a str,
        roles: Vec<RoleWord>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        capabilities: Vec<RightWord>,
        authentication: AuthenticationWord,
        #[serde(skip_serializing_if = "Option::is_none")]
        token: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        approval_granted: Option<bool>,
        online: bool,
    }

    /// A request that has made a participant or an approval, for protocols that have such requests.
    struct Created<'a> {
        id: &'a str,
    }

    /// `get_session_messages`
    struct MessagesReply<'a> {
        messages: Vec<MessageItem<'a>>,
        next_after_seq: u64,
        done: bool,
    }

    /// A message of the conversation.
    struct MessageItem<'a> {
        seq: u64,
        ts: u64,
        role: &'static str,
        message_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<&'a str>,
        text: &'a str,
    }

    /// `list_sessions`
    struct SessionsReply<'a> {
        sessions: Vec<Raw<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_cursor: Option<&'a str>,
    }

    /// `list_approvals`
    struct ApprovalsReply<'a> {
        approvals: Vec<ApprovalItem<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        revision: Option<u64>,
    }

    /// A pending approval: its session and run, then the fields of `approval_required`.
    struct ApprovalItem<'a> {
        session_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<&'a str>,
        approval_id: &'a str,
        kind: &'a str,
        title: &'a str,
        summary: &'a str,
        details: Raw<'a>,
        options: [DecisionWord; 2],
        expires_at: u64,
        call_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        needed: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        quorum: Option<QuorumItem>,
        #[serde(skip_serializing_if = "Option::is_none")]
        eligible: Option<Vec<String>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        subject: Option<SubjectWord>,
        #[serde(skip_serializing_if = "Option::is_none")]
        resource: Option<ResourceWord>,
        #[serde(skip_serializing_if = "Option::is_none")]
        remember: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        sha256: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        on_denial: Option<DenialEffectWord>,
        #[serde(skip_serializing_if = "Option::is_none")]
        form: Option<Raw<'a>>,
    }

    /// `search`
    struct SearchReply<'a> {
        hits: Vec<SearchHitItem<'a>>,
        complete: bool,
        missing_sessions: u64,
    }

    /// A text that matches a search.
    struct SearchHitItem<'a> {
        session_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a str>,
        cwd: &'a str,
        kind: &'static str,
        seq: u64,
        ts: u64,
        excerpt: Vec<ExcerptItem<'a>>,
    }

    /// A piece of an excerpt.
    struct ExcerptItem<'a> {
        text: &'a str,
        #[serde(rename = "match", skip_serializing_if = "std::ops::Not::not")]
        is_match: bool,
    }

    /// `get_stats`
    struct StatsReply<'a> {
        rows: Vec<StatsItem<'a>>,
        tools: Vec<ToolStatsItem<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        sessions: Option<Vec<SessionCostItem<'a>>>,
        complete: bool,
        missing_sessions: u64,
    }

    /// The figures of one day, directory and model.
    struct StatsItem<'a> {
        day: &'a str,
        directory: &'a str,
        model: &'a str,
        succeeded: u64,
        failed: u64,
        cancelled: u64,
        denied: u64,
        turns: u64,
        input_tokens: u64,
        output_tokens: u64,
        cost_micro_usd: u64,
        unpriced_turns: u64,
        tool_calls: u64,
        tool_failures: u64,
        approvals: u64,
        approved: u64,
        refused: u64,
    }

    /// The calls of one tool.
    struct ToolStatsItem<'a> {
        tool: &'a str,
        calls: u64,
        failures: u64,
    }

    /// The cost of one session.
    struct SessionCostItem<'a> {
        session_id: &'a str,
        cost_micro_usd: u64,
    }

    /// `list_grants`
    struct GrantsReply<'a> {
        grants: Vec<GrantItem<'a>>,
    }

    /// A grant of a repository.
    struct GrantItem<'a> {
        grant_id: &'a str,
        repository: &'a str,
        rule: &'a str,
        by: &'a str,
        granted_at: u64,
    }

    /// `list_providers`
    struct ProvidersReply<'a> {
        providers: Vec<ProviderItem<'a>>,
    }

    /// A model provider.
    struct ProviderItem<'a> {
        name: &'a str,
        models: &'a [String],
        configured: bool,
        default: bool,
    }

    /// `reload`
    struct ReloadReply<'a> {
        reloaded: bool,
        variables: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        warning: Option<&'a str>,
    }

    /// `run_user_command`
    struct UserCommandReply<'a> {
        call_id: &'a str,
        run_id: &'a str,
    }

    /// `compact_session`
    struct CompactReply {
        compacting: bool,
        seq: u64,
    }

    /// `delete_session`
    struct DeleteReply<'a> {
        deleted: bool,
        bytes: u64,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pi_files: Vec<PiFileItem<'a>>,
    }

    /// A Pi session file of a session that is deleted.
    struct PiFileItem<'a> {
        path: &'a str,
        bytes: u64,
        created: bool,
        removed: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        problem: Option<&'a str>,
    }

    /// `check_journal`
    struct JournalCheckItem<'a> {
        schema: i64,
        sessions: u64,
        used_bytes: u64,
        database_bytes: u64,
        log_bytes: u64,
        marks_bytes: u64,
        set_aside_files: u64,
        set_aside_bytes: u64,
        set_aside_blocks: u64,
        left_in_order: bool,
        marks_kept: bool,
        disk_full: bool,
        sync_failed: bool,
        losses_total: u64,
        losses: Vec<LossItem<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        proof: Option<IntegrityItem<'a>>,
    }

    /// A range of lost events, as far as known.
    struct LossItem<'a> {
        found_at: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        session_id: Option<&'a str>,
        after_seq: u64,
        until_seq: u64,
        cause: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
    }

    /// The result of a full verification.
    struct IntegrityItem<'a> {
        sessions: u64,
        bytes: u64,
        found: Vec<LossItem<'a>>,
        problems_total: u64,
        problems: Vec<ProblemItem<'a>>,
    }

    /// A session that could not be verified or repaired.
    struct ProblemItem<'a> {
        session_id: &'a str,
        what: &'a str,
    }

    /// `get_metrics`
    struct MetricsItem<'a> {
        pid: u32,
        version: &'a str,
        uptime_seconds: u64,
        socket: &'a str,
        http: Option<&'a str>,
        pi: Option<&'a str>,
        pvp: Option<&'a str>,
        sessions: u64,
        resident_sessions: u64,
        active_runs: u64,
        connections: u64,
        events: u64,
        journal_bytes: u64,
        memory_bytes: u64,
        draining: bool,
        grace_ms: u64,
        circuits: Vec<CircuitItem<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        search_index_error: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        sandbox: Option<Raw<'a>>,
    }

    /// The circuit breaker of a provider server.
    struct CircuitItem<'a> {
        provider: &'a str,
        base_url: &'a str,
        state: &'a str,
        failures_in_a_row: u32,
        opened: u64,
        refused: u64,
    }

    /// `session_snapshot` and `get_session_snapshot`
    struct SnapshotItem<'a> {
        state: StateWord,
        active_run_id: Option<Text<'a>>,
        last_assistant_text: &'a str,
        pending_approval: Option<ApprovalRequired<'a>>,
        meta: Meta<'a>,
        last_seq: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        last_user_message: Option<&'a str>,
        queued: usize,
        ended: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        last_run: Option<LastRun<'a>>,
        opened_at: u64,
        updated_at: u64,
        #[serde(skip_serializing_if = "is_zero")]
        session_version: u64,
    }

    /// The settings of a session.
    struct Meta<'a> {
        provider: &'a str,
        sandbox_provider: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<Text<'a>>,
        cwd: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        repo: Option<Raw<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<Text<'a>>,
        mode: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_session_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        forked_at_seq: Option<u64>,
    }

    /// How the last run ended.
    struct LastRun<'a> {
        run_id: &'a str,
        outcome: OutcomeWord,
        exit_code: u8,
    }
}

const fn is_zero(number: &u64) -> bool {
    *number == 0
}
