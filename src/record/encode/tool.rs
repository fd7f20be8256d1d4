//! Encodes tool calls and their results with the names that existing clients know, next to the daemon's own.

use std::borrow::Cow;

use crate::kernel::event::{CallResult, Intention, Purpose, ToolError, ToolOutcome};
use crate::record::tool_compat::{error_detail, error_type, failure_text};
use crate::record::wire::event::{StructuredError, ToolCall, ToolResult};
use crate::record::wire::word::{PurposeWord, SourceWord};
use crate::record::wire::{raw, text};

/// Encodes a requested call.
pub(super) fn tool_call(intention: &Intention) -> ToolCall<'_> {
    let (purpose, check, exclude_from_context) = purpose(intention.purpose);
    ToolCall {
        source: SourceWord::Sandbox,
        tool_name: text(&intention.tool),
        args: raw(&intention.args),
        call_id: text(intention.call.as_str()),
        purpose,
        check,
        exclude_from_context,
    }
}

/// Encodes the result of a call.
pub(super) fn tool_result(settlement: &CallResult) -> ToolResult<'_> {
    let (purpose, check, exclude_from_context) = purpose(settlement.purpose);
    let failure = failure_text(settlement);
    ToolResult {
        source: SourceWord::Sandbox,
        tool_name: text(&settlement.tool),
        duration_ms: settlement.millis,
        is_error: match settlement.outcome {
            ToolOutcome::Succeeded | ToolOutcome::Skipped => false,
            ToolOutcome::Failed | ToolOutcome::Aborted => true,
        },
        text: failure.map_or_else(|| text(&settlement.text), text),
        no_output: failure.is_some(),
        structured_error: settlement.error.as_ref().map(|error| structured_error(&settlement.tool, error)),
        call_id: text(settlement.call.as_str()),
        status: settlement.outcome.into(),
        exit_code: settlement.exit_code,
        purpose,
        check,
        exclude_from_context,
        diff: settlement.diff.as_ref().map(|diff| text(&diff.text)),
        diff_truncated: settlement.diff.as_ref().is_some_and(|diff| diff.truncated),
    }
}

fn structured_error<'a>(tool: &str, error: &'a ToolError) -> StructuredError<'a> {
    StructuredError {
        r#type: text(error_type(tool, &error.kind)),
        retryable: error.retryable,
        message: text(&error.message),
        detail: Some(Cow::Owned(error_detail(&error.kind, error.detail.as_deref()))),
        code: Some(text(&error.kind)),
    }
}

/// Encodes the purpose of a call: its source, the index of its check, and whether it is excluded from the model's
/// context.
const fn purpose(purpose: Purpose) -> (Option<PurposeWord>, Option<u32>, bool) {
    match purpose {
        Purpose::Work => (None, None, false),
        Purpose::Check(at) => (Some(PurposeWord::Acceptance), Some(at), false),
        Purpose::UserCommand { in_context } => (Some(PurposeWord::User), None, !in_context),
    }
}
