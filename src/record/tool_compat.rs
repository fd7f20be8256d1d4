//! Compatibility fields of tool events, which existing clients expect and the kernel does not have; decoding removes
//! each of them again.

use crate::kernel::event::{CallResult, Event, EventKind, ToolEvent, ToolOutcome};
use crate::kernel::id::{CallId, RunId};

/// Returns a synthetic run id for an event of a user command: existing clients expect a run id in every tool event.
///
/// The kernel has no run for a user command. The id is derived from the call id, and no real run has it.
pub(super) fn synthetic_run_id(event: &Event) -> Option<RunId> {
    if event.run.is_some() {
        return None;
    }
    call_of(&event.kind).map(user_command_run_id)
}

/// Returns the synthetic run id of a user command.
pub fn user_command_run_id(call: &CallId) -> RunId {
    let name = call.as_str();
    RunId::from(format!("run_{}{SYNTHETIC_SUFFIX}", name.strip_prefix("call_").unwrap_or(name)))
}

/// Removes the synthetic run id from a decoded event.
pub(crate) fn strip_synthetic_run_id(event: Event) -> Event {
    if !event.run.as_ref().is_some_and(|run| run.as_str().ends_with(SYNTHETIC_SUFFIX)) {
        return event;
    }
    let (run, bare) = (event.run.clone(), Event { run: None, ..event });
    if synthetic_run_id(&bare) == run { bare } else { Event { run, ..bare } }
}

/// The suffix of synthetic run ids.
const SYNTHETIC_SUFFIX: &str = "_user";

const fn call_of(kind: &EventKind) -> Option<&CallId> {
    match kind {
        EventKind::Tool(ToolEvent::Intended(intention)) => Some(&intention.call),
        EventKind::Tool(ToolEvent::Started { call, .. }) | EventKind::Tool(ToolEvent::Output { call, .. }) => {
            Some(call)
        }
        EventKind::Tool(ToolEvent::Settled(settlement)) => Some(&settlement.call),
        EventKind::Session(_)
        | EventKind::Context(_)
        | EventKind::Participant(_)
        | EventKind::Run(_)
        | EventKind::Notice(_)
        | EventKind::Gate(_) => None,
    }
}

/// Returns the text for a failed result without output.
pub(super) fn failure_text(settlement: &CallResult) -> Option<&str> {
    if !settlement.text.is_empty() {
        return None;
    }
    let message = settlement.error.as_ref().map(|error| error.message.as_str()).filter(|message| !message.is_empty());
    match settlement.outcome {
        ToolOutcome::Succeeded | ToolOutcome::Skipped => None,
        ToolOutcome::Failed => Some(message.unwrap_or("the tool failed")),
        ToolOutcome::Aborted => Some(message.unwrap_or("the tool was stopped before it finished")),
    }
}

/// Maps an error code to the error type that existing clients know.
pub(super) fn error_type(tool: &str, code: &str) -> &'static str {
    match code {
        "NOT_FOUND" => "FILE_NOT_FOUND",
        "TIME_LIMIT" => "EXEC_TIMEOUT",
        "EXIT_CODE" | "SIGNAL" | "MEMORY_LIMIT" | "GIT_FAILED" => "EXEC_NON_ZERO_EXIT",
        "SANDBOX_UNAVAILABLE" | "EXEC_FAILED" => "SANDBOX_UNREACHABLE",
        "NO_MATCH" => "EDIT_CONTENT_NOT_FOUND",
        "PROTECTED_PATH" | "OUTSIDE_WORKSPACE" if FILE_WRITING_TOOLS.contains(&tool) => "EDIT_GUARD_BLOCKED",
        "IO_FAILED" | "PERMISSION_DENIED" if FILE_WRITING_TOOLS.contains(&tool) => "WRITE_FAILED",
        "APPROVAL_STALE" => "STALE_FILE",
        _ => "UNKNOWN",
    }
}

/// The tools that write files.
const FILE_WRITING_TOOLS: [&str; 2] = ["sandbox_write_file", "sandbox_edit_file"];

/// Returns the detail of an error, prefixed with the daemon's error code.
pub(super) fn error_detail(code: &str, detail: Option<&str>) -> String {
    detail.map_or_else(|| code.to_owned(), |detail| format!("{code}: {detail}"))
}

/// Removes the error code prefix from a detail.
pub(super) fn strip_error_code(code: &str, detail: &str) -> Option<String> {
    detail.strip_prefix(code)?.strip_prefix(": ").map(str::to_owned)
}
