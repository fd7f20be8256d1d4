//! Decodes tool calls and their results, from lines of this version and of older ones.

use super::parts::{name, owned};
use super::{Line, RecordError};
use crate::kernel::event::{Fault, Intention, Purpose, Settlement};
use crate::protocol::push::tool_words::plain_detail;
use crate::protocol::push::wire::event::{StructuredError, ToolCall, ToolResult};
use crate::protocol::push::wire::json;
use crate::protocol::push::wire::word::{PurposeWord, SourceWord};

impl Line<'_, '_> {
    pub(super) fn intention(&self) -> Result<Intention, RecordError> {
        let call: ToolCall<'_> = self.payload()?;
        Ok(Intention {
            call: name(call.call_id),
            tool: call.tool_name.into_owned(),
            args: json(&call.args),
            purpose: self.purpose(call.source, call.purpose, call.check, call.exclude_from_context)?,
        })
    }

    pub(super) fn settlement(&self) -> Result<Settlement, RecordError> {
        let result: ToolResult<'_> = self.payload()?;
        let purpose =
            self.purpose(result.source, result.purpose, result.check, result.exclude_from_context)?;
        Ok(Settlement {
            call: name(result.call_id),
            tool: result.tool_name.into_owned(),
            purpose,
            millis: result.duration_ms,
            ending: result.status.into(),
            exit_code: result.exit_code,
            text: if result.no_output { String::new() } else { result.text.into_owned() },
            fault: result.structured_error.map(fault),
        })
    }

    fn purpose(
        &self,
        source: SourceWord,
        purpose: Option<PurposeWord>,
        check: Option<u32>,
        excluded: bool,
    ) -> Result<Purpose, RecordError> {
        match (source, purpose) {
            (_, Some(PurposeWord::Acceptance)) | (SourceWord::Acceptance, None) => {
                check.map(Purpose::Check).ok_or_else(|| self.fault("check"))
            }
            (_, Some(PurposeWord::User)) | (SourceWord::User, None) => Ok(Purpose::Aside { told: !excluded }),
            (SourceWord::Sandbox, None) => Ok(Purpose::Work),
        }
    }
}

fn fault(error: StructuredError<'_>) -> Fault {
    let StructuredError { r#type, retryable, message, detail, code } = error;
    let (kind, detail) = match code {
        Some(code) => {
            let detail = detail.and_then(|detail| plain_detail(&code, &detail));
            (code.into_owned(), detail)
        }
        // Older journals have no `code`.
        None => (r#type.into_owned(), owned(detail)),
    };
    Fault { kind, retryable, message: message.into_owned(), detail }
}
