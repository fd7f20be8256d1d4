//! Decodes tool calls and their results, from lines of this version and of older ones.

use super::parts::{id, owned};
use super::{EventDecoder, RecordError};
use crate::kernel::event::{CallResult, Diff, Intention, Purpose, ToolError};
use crate::record::tool_compat::strip_error_code;
use crate::record::wire::event::{StructuredError, ToolCall, ToolResult};
use crate::record::wire::json;
use crate::record::wire::word::{PurposeWord, SourceWord};

impl EventDecoder<'_, '_> {
    pub(super) fn intention(&self) -> Result<Intention, RecordError> {
        let call: ToolCall<'_> = self.payload()?;
        Ok(Intention {
            call: id(call.call_id),
            tool: call.tool_name.into_owned(),
            args: json(&call.args),
            purpose: self.purpose(call.source, call.purpose, call.check, call.exclude_from_context)?,
        })
    }

    pub(super) fn call_result(&self) -> Result<CallResult, RecordError> {
        let result: ToolResult<'_> = self.payload()?;
        let purpose = self.purpose(result.source, result.purpose, result.check, result.exclude_from_context)?;
        Ok(CallResult {
            call: id(result.call_id),
            tool: result.tool_name.into_owned(),
            purpose,
            millis: result.duration_ms,
            outcome: result.status.into(),
            exit_code: result.exit_code,
            text: if result.no_output { String::new() } else { result.text.into_owned() },
            error: result.structured_error.map(tool_error),
            diff: result.diff.map(|text| Diff { text: text.into_owned(), truncated: result.diff_truncated }),
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
                check.map(Purpose::Check).ok_or_else(|| self.field_error("check"))
            }
            (_, Some(PurposeWord::User)) | (SourceWord::User, None) => {
                Ok(Purpose::UserCommand { in_context: !excluded })
            }
            (SourceWord::Sandbox, None) => Ok(Purpose::Work),
        }
    }
}

fn tool_error(error: StructuredError<'_>) -> ToolError {
    let StructuredError { r#type, retryable, message, detail, code } = error;
    let (kind, detail) = match code {
        Some(code) => {
            let detail = detail.and_then(|detail| strip_error_code(&code, &detail));
            (code.into_owned(), detail)
        }
        // Older journals have no `code`.
        None => (r#type.into_owned(), owned(detail)),
    };
    ToolError { kind, retryable, message: message.into_owned(), detail }
}
