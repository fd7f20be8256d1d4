//! Redaction of an imported conversation, which may contain secrets of this session.

use crate::kernel::event::Fault;
use crate::kernel::id::Json;
use crate::kernel::import::{Import, Imported, ImportedCall, ImportedRun, ImportedTurn};
use crate::redact::Redactor;

/// Redacts every text of a conversation.
pub(super) fn make_safe(import: Import, redactor: &Redactor) -> Import {
    let safe = |text: &str| redactor.text(text).into_owned();
    let call = |call: ImportedCall| ImportedCall {
        args: Json::new(redactor.json(call.args.as_str())),
        text: safe(&call.text),
        fault: call.fault.map(|fault| Fault {
            message: safe(&fault.message),
            detail: fault.detail.map(|detail| safe(&detail)),
            ..fault
        }),
        ..call
    };
    let turn = |turn: ImportedTurn| ImportedTurn {
        thought: safe(&turn.thought),
        text: safe(&turn.text),
        calls: turn.calls.into_iter().map(call).collect(),
        ..turn
    };
    let part = |part: Imported| match part {
        Imported::Run(run) => Imported::Run(ImportedRun {
            text: safe(&run.text),
            turns: run.turns.into_iter().map(turn).collect(),
            ..run
        }),
        Imported::Aside { call: one, told } => Imported::Aside { call: call(one), told },
        Imported::Summary { text, tokens_before, kept, source } => {
            Imported::Summary { text: safe(&text), tokens_before, kept, source }
        }
    };
    let name = import.name.as_deref().map(safe);
    Import { turns: import.turns.into_iter().map(part).collect(), name, ..import }
}
