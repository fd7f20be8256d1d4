//! Builds a turn while a response of any dialect is decoded: deltas that are ready, and calls that are not yet
//! complete.
//!
//! The builder counts its input and rejects a response that exceeds its limits.

use super::error::{ModelError, ModelErrorKind};
use super::limits::TurnLimits;
use super::model::{Delta, StopReason, ToolCall, TurnEnd, Usage};

/// A turn that is being received.
#[derive(Debug)]
pub(super) struct TurnBuilder {
    limits: TurnLimits,
    /// The prefix of generated call ids.
    label: String,
    deltas: Vec<Delta>,
    text_bytes: usize,
    args_bytes: usize,
    calls: Vec<PartialCall>,
    emitted_calls: usize,
    stop: Option<StopReason>,
    /// The usage so far.
    pub(super) usage: Usage,
    /// The state that the dialect needs back.
    pub(super) provider_state: Option<String>,
}

/// A call that is not yet complete.
#[derive(Debug)]
struct PartialCall {
    slot: Option<u64>,
    id: String,
    tool: String,
    args: String,
}

/// A fragment of a call, as received.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CallFragment<'a> {
    /// The index of the call in the turn, where the server numbers them.
    pub(super) slot: Option<u64>,
    /// The server's id of the call; may be empty.
    pub(super) id: &'a str,
    /// The tool; may be empty.
    pub(super) tool: &'a str,
    /// The next part of the arguments.
    pub(super) args: &'a str,
}

impl TurnBuilder {
    /// Starts a turn; generated call ids begin with `label`.
    pub(super) fn new(limits: TurnLimits, label: String) -> Self {
        Self {
            limits,
            label,
            deltas: Vec::new(),
            text_bytes: 0,
            args_bytes: 0,
            calls: Vec::new(),
            emitted_calls: 0,
            stop: None,
            usage: Usage::default(),
            provider_state: None,
        }
    }

    /// Appends text.
    pub(super) fn push_text(&mut self, text: &str) -> Result<(), ModelError> {
        self.count_text(text)?;
        let limit = self.limits.delta_bytes;
        match self.deltas.last_mut() {
            _ if text.is_empty() => {}
            Some(Delta::Text(last)) if last.len() + text.len() <= limit => last.push_str(text),
            Some(Delta::Text(_) | Delta::Thinking(_) | Delta::ToolCall(_)) | None => {
                self.deltas.push(Delta::Text(text.to_owned()));
            }
        }
        Ok(())
    }

    /// Appends thinking.
    pub(super) fn push_thinking(&mut self, text: &str) -> Result<(), ModelError> {
        self.count_text(text)?;
        let limit = self.limits.delta_bytes;
        match self.deltas.last_mut() {
            _ if text.is_empty() => {}
            Some(Delta::Thinking(last)) if last.len() + text.len() <= limit => last.push_str(text),
            Some(Delta::Text(_) | Delta::Thinking(_) | Delta::ToolCall(_)) | None => {
                self.deltas.push(Delta::Thinking(text.to_owned()));
            }
        }
        Ok(())
    }

    /// Adds a complete call.
    pub(super) fn push_call(&mut self, id: &str, tool: &str, args: &str) -> Result<(), ModelError> {
        let slot = u64::try_from(self.calls.len()).ok();
        self.push_fragment(CallFragment { slot, id, tool, args })
    }

    /// Adds a fragment of a call.
    ///
    /// Servers differ in how they assign a fragment to a call. A fragment with a new id or a new slot starts a
    /// call; any other fragment continues one.
    pub(super) fn push_fragment(&mut self, part: CallFragment<'_>) -> Result<(), ModelError> {
        self.count_args(part.args)?;
        let part =
            CallFragment { id: truncate_name(part.id, NAME_BYTES), tool: truncate_name(part.tool, NAME_BYTES), ..part };
        let at = match self.find_call(&part) {
            Some(at) => at,
            None => self.start_call(&part)?,
        };
        let Some(call) = self.calls.get_mut(at) else { return Ok(()) };
        if call.id.is_empty() {
            call.id.push_str(part.id);
        }
        if call.tool.is_empty() {
            call.tool.push_str(part.tool);
        }
        call.args.push_str(part.args);
        Ok(())
    }

    /// Counts provider state besides text and thinking against the text limit.
    pub(super) fn count_state(&mut self, text: &str) -> Result<(), ModelError> {
        // An empty block has a cost as well.
        self.text_bytes = self.text_bytes.saturating_add(BLOCK_BYTES);
        self.count_text(text)
    }

    /// Ends the turn and emits its calls. If the length limit ended it, a call with incomplete arguments is
    /// omitted.
    pub(super) fn finish(&mut self, stop: StopReason) {
        let cut = stop == StopReason::Length;
        for call in self.calls.drain(..) {
            let args = if call.args.trim().is_empty() { "{}".to_owned() } else { call.args };
            if cut && serde_json::from_str::<serde::de::IgnoredAny>(&args).is_err() {
                continue;
            }
            self.emitted_calls += 1;
            let id = if call.id.is_empty() { format!("{}_{}", self.label, self.emitted_calls) } else { call.id };
            self.deltas.push(Delta::ToolCall(ToolCall { id, tool: call.tool, args }));
        }
        self.stop = Some(match stop {
            // Some servers report `stop` when the model waits for its calls, and the reverse.
            StopReason::Done | StopReason::ToolCalls if self.emitted_calls > 0 => StopReason::ToolCalls,
            StopReason::Done | StopReason::ToolCalls => StopReason::Done,
            StopReason::Length => StopReason::Length,
            StopReason::Refused => StopReason::Refused,
            StopReason::Other(word) => StopReason::Other(word),
        });
    }

    /// Swaps the ready deltas with `out`: once before decoding, so that text is appended to the last delta, and
    /// once after.
    pub(super) const fn swap_deltas(&mut self, out: &mut Vec<Delta>) {
        std::mem::swap(out, &mut self.deltas);
    }

    /// Returns whether the stop reason is known.
    pub(super) const fn has_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// Returns whether there are incomplete calls.
    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Returns the end of the turn as far as it is known.
    pub(super) fn end(&self) -> TurnEnd {
        let stop = self.stop.clone().unwrap_or_else(|| StopReason::Other("unfinished".to_owned()));
        TurnEnd { stop, usage: self.usage, provider_state: self.provider_state.clone() }
    }

    fn find_call(&self, part: &CallFragment<'_>) -> Option<usize> {
        let named = |call: &PartialCall| !part.id.is_empty() && !call.id.is_empty() && call.id != part.id;
        match part.slot {
            Some(_) => {
                let at = self.calls.iter().rposition(|call| call.slot == part.slot)?;
                self.calls.get(at).filter(|call| !named(call)).map(|_| at)
            }
            None => {
                let last = self.calls.last()?;
                let same = if part.id.is_empty() { part.tool.is_empty() } else { part.id == last.id };
                same.then(|| self.calls.len() - 1)
            }
        }
    }

    fn start_call(&mut self, part: &CallFragment<'_>) -> Result<usize, ModelError> {
        if self.calls.len() >= self.limits.calls {
            let message = format!("the model made more than {} tool calls in one turn", self.limits.calls);
            return Err(ModelError::new(ModelErrorKind::InvalidResponse, message));
        }
        self.calls.push(PartialCall { slot: part.slot, id: String::new(), tool: String::new(), args: String::new() });
        Ok(self.calls.len() - 1)
    }

    fn count_args(&mut self, args: &str) -> Result<(), ModelError> {
        self.args_bytes = self.args_bytes.saturating_add(args.len());
        if self.args_bytes > self.limits.args_bytes {
            return Err(too_large("the arguments of its tool calls have", self.limits.args_bytes));
        }
        Ok(())
    }

    fn count_text(&mut self, text: &str) -> Result<(), ModelError> {
        self.text_bytes = self.text_bytes.saturating_add(text.len());
        if self.text_bytes > self.limits.text_bytes {
            return Err(too_large("its text has", self.limits.text_bytes));
        }
        Ok(())
    }
}

/// Returns at most `bytes` bytes of a name, cut at a character boundary.
fn truncate_name(name: &str, bytes: usize) -> &str {
    name.get(..name.floor_char_boundary(bytes)).unwrap_or_default()
}

/// The maximum length of a call id or a tool name; a longer one is truncated.
const NAME_BYTES: usize = 256;
/// The maximum length of a server's stop reason.
pub(super) const STOP_BYTES: usize = 128;
/// What a thinking block counts for besides its text.
const BLOCK_BYTES: usize = 64;

fn too_large(what: &str, bytes: usize) -> ModelError {
    ModelError::new(
        ModelErrorKind::InvalidResponse,
        format!("the response is too large: {what} more than {bytes} bytes"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TurnLimits = TurnLimits { line_bytes: 64, text_bytes: 16, calls: 2, args_bytes: 12, delta_bytes: 8 };

    #[test]
    fn adjacent_text_is_merged_into_one_delta_up_to_the_limit() {
        let mut turn = fresh();
        for text in ["ab", "", "cd", "efghi"] {
            turn.push_text(text).unwrap();
        }
        turn.push_thinking("x").unwrap();
        turn.push_thinking("y").unwrap();
        turn.push_text("z").unwrap();
        assert_eq!(drain(&mut turn), ["said abcd", "said efghi", "thought xy", "said z"]);
        assert_eq!(drain(&mut turn), [""; 0]);
        turn.push_text("1").unwrap();
        assert_eq!(drain(&mut turn), ["said 1"]);
    }

    #[test]
    fn text_arguments_and_calls_are_bounded() {
        let mut turn = fresh();
        turn.push_text("12345678").unwrap();
        turn.push_thinking("12345678").unwrap();
        assert_eq!(turn.push_text("x").unwrap_err().kind, ModelErrorKind::InvalidResponse);
        let part = |slot, args| CallFragment { slot: Some(slot), args, ..CallFragment::default() };
        turn.push_fragment(part(0, "123456")).unwrap();
        turn.push_fragment(part(1, "123456")).unwrap();
        assert_eq!(turn.push_fragment(part(1, "1")).unwrap_err().kind, ModelErrorKind::InvalidResponse);
        let mut turn = fresh();
        turn.push_fragment(part(0, "")).unwrap();
        turn.push_fragment(part(1, "")).unwrap();
        assert_eq!(turn.push_fragment(part(2, "")).unwrap_err().kind, ModelErrorKind::InvalidResponse);
    }

    #[test]
    fn names_and_provider_state_are_bounded() {
        let mut turn = TurnBuilder::new(TurnLimits::default(), "l".to_owned());
        let long = "é".repeat(1_000);
        turn.push_fragment(CallFragment { slot: None, id: &long, tool: &long, args: "{" }).unwrap();
        turn.push_fragment(CallFragment { slot: None, id: &long, tool: &long, args: "}" }).unwrap();
        turn.finish(StopReason::ToolCalls);
        let name = "é".repeat(NAME_BYTES / 2);
        assert_eq!(drain(&mut turn), [format!("call {name} {name} {{}}")]);
        let mut turn = TurnBuilder::new(TurnLimits { text_bytes: 200, ..LIMITS }, "l".to_owned());
        turn.count_state("").unwrap();
        turn.count_state("").unwrap();
        assert_eq!(turn.count_state("123456789").unwrap_err().kind, ModelErrorKind::InvalidResponse);
    }

    #[test]
    fn a_fragment_is_matched_to_its_call_however_the_server_identifies_it() {
        let part = |slot, id, tool, args| CallFragment { slot, id, tool, args };
        let cases: [(&str, &[CallFragment<'_>], &[&str]); 6] = [
            (
                "by index",
                &[part(Some(0), "a", "t", ""), part(Some(1), "b", "u", "2"), part(Some(0), "", "", "1")],
                &["call a t 1", "call b u 2"],
            ),
            (
                "one index for all, names differ",
                &[part(Some(0), "a", "t", "1"), part(Some(0), "b", "t", "2"), part(Some(0), "b", "", "3")],
                &["call a t 1", "call b t 23"],
            ),
            (
                "no index, whole calls",
                &[part(None, "a", "t", "1"), part(None, "b", "t", "2")],
                &["call a t 1", "call b t 2"],
            ),
            (
                "no index, fragments",
                &[part(None, "a", "t", "1"), part(None, "", "", "2"), part(None, "a", "t", "3")],
                &["call a t 123"],
            ),
            (
                "no name at all",
                &[part(None, "", "t", "1"), part(None, "", "t", "2")],
                &["call l_1 t 1", "call l_2 t 2"],
            ),
            ("no arguments", &[part(Some(0), "a", "t", "")], &["call a t {}"]),
        ];
        for (name, parts, expected) in cases {
            let mut turn = fresh();
            parts.iter().for_each(|part| turn.push_fragment(*part).unwrap());
            turn.finish(StopReason::Done);
            assert_eq!(drain(&mut turn), expected, "{name}");
            assert_eq!(turn.end().stop, StopReason::ToolCalls, "{name}");
        }
    }

    #[test]
    fn a_call_truncated_by_the_length_limit_is_omitted() {
        let mut turn = fresh();
        turn.push_fragment(CallFragment { slot: Some(0), id: "a", tool: "t", args: "{}" }).unwrap();
        turn.push_fragment(CallFragment { slot: Some(1), id: "b", tool: "t", args: "{\"p" }).unwrap();
        turn.finish(StopReason::Length);
        assert_eq!(drain(&mut turn), ["call a t {}"]);
        assert_eq!(turn.end().stop, StopReason::Length);
    }

    #[test]
    fn a_turn_without_calls_does_not_stop_for_tool_calls() {
        let mut turn = fresh();
        assert_eq!(turn.end().stop, StopReason::Other("unfinished".to_owned()));
        turn.finish(StopReason::ToolCalls);
        assert_eq!(turn.end().stop, StopReason::Done);
    }

    fn drain(turn: &mut TurnBuilder) -> Vec<String> {
        let mut out = Vec::new();
        turn.swap_deltas(&mut out);
        out.into_iter()
            .map(|delta| match delta {
                Delta::Text(text) => format!("said {text}"),
                Delta::Thinking(text) => format!("thought {text}"),
                Delta::ToolCall(call) => format!("call {} {} {}", call.id, call.tool, call.args),
            })
            .collect()
    }

    fn fresh() -> TurnBuilder {
        TurnBuilder::new(LIMITS, "l".to_owned())
    }
}
