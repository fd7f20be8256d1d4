//! Redaction of an imported conversation, which may contain secrets of this session.

use crate::kernel::event::ToolError;
use crate::kernel::id::Json;
use crate::kernel::import::{Import, ImportedCall, ImportedPart, ImportedRun, ImportedTurn};
use crate::redact::Redactor;

/// Redacts every text of a conversation.
pub(super) fn redact_import(import: Import, redactor: &Redactor) -> Import {
    let safe = |text: &str| redactor.redact(text).into_owned();
    let call = |call: ImportedCall| ImportedCall {
        args: Json::new(redactor.redact_json(call.args.as_str())),
        text: safe(&call.text),
        error: call.error.map(|error| ToolError {
            message: safe(&error.message),
            detail: error.detail.map(|detail| safe(&detail)),
            ..error
        }),
        ..call
    };
    let turn = |turn: ImportedTurn| ImportedTurn {
        thinking: safe(&turn.thinking),
        text: safe(&turn.text),
        calls: turn.calls.into_iter().map(call).collect(),
        ..turn
    };
    let part = |part: ImportedPart| match part {
        ImportedPart::Run(run) => ImportedPart::Run(ImportedRun {
            text: safe(&run.text),
            turns: run.turns.into_iter().map(turn).collect(),
            ..run
        }),
        ImportedPart::UserCommand { call: one, in_context } => {
            ImportedPart::UserCommand { call: call(one), in_context }
        }
        ImportedPart::Summary { text, tokens_before, context_start, source } => {
            ImportedPart::Summary { text: safe(&text), tokens_before, context_start, source }
        }
    };
    let name = import.name.as_deref().map(safe);
    Import { parts: import.parts.into_iter().map(part).collect(), name, ..import }
}
