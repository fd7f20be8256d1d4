//! What the events of tools say beyond what the kernel knows, for existing clients; each can be taken back when a line is read.

use crate::kernel::event::{Ending, Event, EventKind, Settlement};
use crate::kernel::id::{CallId, RunId};

/// Returns the run that an event of a user's own command names: existing clients expect one in every event of a tool.
///
/// The kernel knows of no run beside the active one; this one is made of the call's id, and is never the id of another run.
pub(super) fn run_of_user_command(event: &Event) -> Option<RunId> {
    if event.run.is_some() {
        return None;
    }
    call_of(&event.kind).map(|call| {
        let name = call.as_str();
        RunId::from(format!("run_{}{USER_COMMAND}", name.strip_prefix("call_").unwrap_or(name)))
    })
}

/// Takes the run of a user's own command back from an event that was read.
pub(super) fn without_run_of_user_command(event: Event) -> Event {
    if !event.run.as_ref().is_some_and(|run| run.as_str().ends_with(USER_COMMAND)) {
        return event;
    }
    let (run, bare) = (event.run.clone(), Event { run: None, ..event });
    if run_of_user_command(&bare) == run { bare } else { Event { run, ..bare } }
}

/// How the id of such a run ends.
const USER_COMMAND: &str = "_user";

const fn call_of(kind: &EventKind) -> Option<&CallId> {
    match kind {
        EventKind::CallIntended(intention) => Some(&intention.call),
        EventKind::CallStarted { call, .. } | EventKind::CallOutput { call, .. } => Some(call),
        EventKind::CallSettled(settlement) => Some(&settlement.call),
        EventKind::SessionOpened(_)
        | EventKind::SessionRenamed { .. }
        | EventKind::SessionEnded { .. }
        | EventKind::Touched { .. }
        | EventKind::Loaded { .. }
        | EventKind::Adjusted { .. }
        | EventKind::Branched { .. }
        | EventKind::RunStarted(_)
        | EventKind::MessageQueued(_)
        | EventKind::MessageUnqueued { .. }
        | EventKind::Steered(_)
        | EventKind::Status { .. }
        | EventKind::Thought { .. }
        | EventKind::Said { .. }
        | EventKind::SayingDone { .. }
        | EventKind::TurnTaken(_)
        | EventKind::CompactionBegan { .. }
        | EventKind::Compacted(_)
        | EventKind::CompactionOver { .. }
        | EventKind::RetryBegan(_)
        | EventKind::RetryOver { .. }
        | EventKind::GateOpened(_)
        | EventKind::GateVoted { .. }
        | EventKind::GateSettled(_)
        | EventKind::Warned { .. }
        | EventKind::Failed { .. }
        | EventKind::Stopping { .. }
        | EventKind::RunRecovered { .. }
        | EventKind::RunEnded(_)
        | EventKind::Lost { .. } => None,
    }
}

/// Returns the text of a failed result of a tool that returned none.
pub(super) fn failure_text(settlement: &Settlement) -> Option<&str> {
    if !settlement.text.is_empty() {
        return None;
    }
    let said = settlement.fault.as_ref().map(|fault| fault.message.as_str()).filter(|said| !said.is_empty());
    match settlement.ending {
        Ending::Done | Ending::Skipped => None,
        Ending::Failed => Some(said.unwrap_or("the tool failed")),
        Ending::Cut => Some(said.unwrap_or("the tool was ended early")),
    }
}

/// Returns the word that existing clients know for what went wrong with a tool.
pub(super) fn error_type(tool: &str, code: &str) -> &'static str {
    match code {
        "NOT_FOUND" => "FILE_NOT_FOUND",
        "TIME_LIMIT" => "EXEC_TIMEOUT",
        "EXIT_CODE" | "SIGNAL" | "MEMORY_LIMIT" | "GIT_FAILED" => "EXEC_NON_ZERO_EXIT",
        "SANDBOX_UNAVAILABLE" | "EXEC_FAILED" => "SANDBOX_UNREACHABLE",
        "NO_MATCH" => "EDIT_CONTENT_NOT_FOUND",
        "PROTECTED_PATH" | "OUTSIDE_WORKSPACE" if WRITES.contains(&tool) => "EDIT_GUARD_BLOCKED",
        "IO_FAILED" | "PERMISSION_DENIED" if WRITES.contains(&tool) => "WRITE_FAILED",
        "APPROVAL_STALE" => "STALE_FILE",
        _ => "UNKNOWN",
    }
}

/// The tools that write files.
const WRITES: [&str; 2] = ["sandbox_write_file", "sandbox_edit_file"];

/// Returns what is said of an error beyond its message: this daemon's own word first.
pub(super) fn error_detail(code: &str, detail: Option<&str>) -> String {
    detail.map_or_else(|| code.to_owned(), |detail| format!("{code}: {detail}"))
}

/// Takes this daemon's own word off what is said of an error.
pub(super) fn plain_detail(code: &str, detail: &str) -> Option<String> {
    detail.strip_prefix(code)?.strip_prefix(": ").map(str::to_owned)
}
