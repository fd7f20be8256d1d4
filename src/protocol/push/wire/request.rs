//! The envelope of a request, and the request types.
//!
//! Every part is kept raw, so that one invalid part does not hide the request id from the response.

use serde::Deserialize;
use serde_json::value::RawValue;

/// The envelope of a request; a `null` part counts as missing.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::protocol::push) struct RequestEnvelope<'a> {
    #[serde(borrow)]
    pub(in crate::protocol::push) v: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(in crate::protocol::push) kind: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(in crate::protocol::push) request_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(in crate::protocol::push) r#type: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(in crate::protocol::push) session_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(in crate::protocol::push) payload: Option<&'a RawValue>,
}

macro_rules! request_types {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(in crate::protocol::push) enum $name {
            $(#[doc = concat!("`", $word, "`")] $variant),+
        }

        impl $name {
            fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

request_types!(
    /// A request that needs no session.
    PlainRequest {
        Hello = "hello",
        Ping = "ping",
        StartSession = "start_session",
        ListSessions = "list_sessions",
        ListApprovals = "list_approvals",
        Search = "search",
        GetStats = "get_stats",
        ListGrants = "list_grants",
        RevokeGrant = "revoke_grant",
        ListProviders = "list_providers",
        GetMetrics = "get_metrics",
        CheckJournal = "check_journal",
        Drain = "drain",
        Reload = "reload",
        Speak = "speak",
    }
);
request_types!(
    /// A request to one session.
    SessionRequest {
        AttachSession = "attach_session",
        ResumeSession = "resume_session",
        DetachSession = "detach_session",
        SendUserMessage = "send_user_message",
        QueueMessage = "queue_message",
        ListQueue = "list_queue",
        ListParticipants = "list_participants",
        RemoveQueued = "remove_queued",
        Steer = "steer",
        SubmitApproval = "submit_approval",
        CancelRun = "cancel_run",
        RunUserCommand = "run_user_command",
        StopUserCommand = "stop_user_command",
        GetSessionSnapshot = "get_session_snapshot",
        GetSessionMessages = "get_session_messages",
        RenameSession = "rename_session",
        EndSession = "end_session",
        CompactSession = "compact_session",
        ForkSession = "fork_session",
        DeleteSession = "delete_session",
    }
);

/// A request type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::protocol::push) enum RequestType {
    /// It needs no session.
    Plain(PlainRequest),
    /// It needs a session.
    OfSession(SessionRequest),
}

impl RequestType {
    /// Parses a request type.
    pub(in crate::protocol::push) fn parse(word: &str) -> Option<Self> {
        PlainRequest::parse(word).map(Self::Plain).or_else(|| SessionRequest::parse(word).map(Self::OfSession))
    }
}
