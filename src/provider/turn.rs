//! Builds a turn while a response of any dialect is decoded: deltas that are ready, and calls that are not yet
//! complete.
//!
//! The builder counts its input and rejects a response that exceeds its limits.

use super::error::{Kind, ModelError};
use super::limits::TurnLimits;
use super::model::{Piece, Stop, TurnEnd, Usage, Wanted};

/// A turn that is being received.
#[derive(Debug)]
pub(super) struct Gathering {
    limits: TurnLimits,
    /// The prefix of generated call ids.
    label: String,
    pieces: Vec<Piece>,
    text_bytes: usize,
    args_bytes: usize,
    calls: Vec<Building>,
    passed_on: usize,
    stop: Option<Stop>,
    /// The usage so far.
    pub(super) usage: Usage,
    /// The state that the dialect needs back.
    pub(super) carry: Option<String>,
}

/// A call that is not yet complete.
#[derive(Debug)]
struct Building {
    slot: Option<u64>,
    id: String,
    tool: String,
    args: String,
}

/// A fragment of a call, as received.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Part<'a> {
    /// The index of the call in the turn, where the server numbers them.
    pub(super) slot: Option<u64>,
    /// The server's id of the call; may be empty.
    pub(super) id: &'a str,
    /// The tool; may be empty.
    pub(super) tool: &'a str,
    /// The next part of the arguments.
    pub(super) args: &'a str,
}

impl Gathering {
    /// Starts a turn; generated call ids begin with `label`.
    pub(super) fn new(limits: TurnLimits, label: String) -> Self {
        Self {
            limits,
            label,
            pieces: Vec::new(),
            text_bytes: 0,
            args_bytes: 0,
            calls: Vec::new(),
            passed_on: 0,
            stop: None,
            usage: Usage::default(),
            carry: None,
        }
    }

    /// Appends text.
    pub(super) fn said(&mut self, text: &str) -> Result<(), ModelError> {
        self.count_text(text)?;
        let room = self.limits.piece_bytes;
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Said(last)) if last.len() + text.len() <= room => last.push_str(text),
            Some(Piece::Said(_) | Piece::Thought(_) | Piece::Call(_)) | None => {
                self.pieces.push(Piece::Said(text.to_owned()));
            }
        }
        Ok(())
    }

    /// Appends thinking.
    pub(super) fn thought(&mut self, text: &str) -> Result<(), ModelError> {
        self.count_text(text)?;
        let room = self.limits.piece_bytes;
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Thought(last)) if last.len() + text.len() <= room => last.push_str(text),
            Some(Piece::Said(_) | Piece::Thought(_) | Piece::Call(_)) | None => {
                self.pieces.push(Piece::Thought(text.to_owned()));
            }
        }
        Ok(())
    }

    /// Adds a complete call.
    pub(super) fn call(&mut self, id: &str, tool: &str, args: &str) -> Result<(), ModelError> {
        let slot = u64::try_from(self.calls.len()).ok();
        self.part(Part { slot, id, tool, args })
    }

    /// Adds a fragment of a call.
    ///
    /// Servers differ in how they assign a fragment to a call. A fragment with a new id or a new slot starts a
    /// call; any other fragment continues one.
    pub(super) fn part(&mut self, part: Part<'_>) -> Result<(), ModelError> {
        self.count_args(part.args)?;
        let part = Part { id: excerpt(part.id, NAME_BYTES), tool: excerpt(part.tool, NAME_BYTES), ..part };
        let at = match self.continued(&part) {
            Some(at) => at,
            None => self.begin(&part)?,
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
    pub(super) fn carries(&mut self, text: &str) -> Result<(), ModelError> {
        // An empty block has a cost as well.
        self.text_bytes = self.text_bytes.saturating_add(BLOCK_BYTES);
        self.count_text(text)
    }

    /// Ends the turn and emits its calls. If the length limit ended it, a call with incomplete arguments is
    /// omitted.
    pub(super) fn stopped(&mut self, stop: Stop) {
        let cut = stop == Stop::Length;
        for call in self.calls.drain(..) {
            let args = if call.args.trim().is_empty() { "{}".to_owned() } else { call.args };
            if cut && serde_json::from_str::<serde::de::IgnoredAny>(&args).is_err() {
                continue;
            }
            self.passed_on += 1;
            let id = if call.id.is_empty() { format!("{}_{}", self.label, self.passed_on) } else { call.id };
            self.pieces.push(Piece::Call(Wanted { id, tool: call.tool, args }));
        }
        self.stop = Some(match stop {
            // Some servers report `stop` when the model waits for its calls, and the reverse.
            Stop::Done | Stop::Calls if self.passed_on > 0 => Stop::Calls,
            Stop::Done | Stop::Calls => Stop::Done,
            Stop::Length => Stop::Length,
            Stop::Refused => Stop::Refused,
            Stop::Other(word) => Stop::Other(word),
        });
    }

    /// Swaps the ready deltas with `out`: once before decoding, so that text is appended to the last delta, and
    /// once after.
    pub(super) const fn exchange(&mut self, out: &mut Vec<Piece>) {
        std::mem::swap(out, &mut self.pieces);
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
        let stop = self.stop.clone().unwrap_or_else(|| Stop::Other("unfinished".to_owned()));
        TurnEnd { stop, usage: self.usage, carry: self.carry.clone() }
    }

    fn continued(&self, part: &Part<'_>) -> Option<usize> {
        let named = |call: &Building| !part.id.is_empty() && !call.id.is_empty() && call.id != part.id;
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

    fn begin(&mut self, part: &Part<'_>) -> Result<usize, ModelError> {
        if self.calls.len() >= self.limits.calls {
            let message = format!("the model made more than {} tool calls in one turn", self.limits.calls);
            return Err(ModelError::new(Kind::Garbage, message));
        }
        self.calls.push(Building {
            slot: part.slot,
            id: String::new(),
            tool: String::new(),
            args: String::new(),
        });
        Ok(self.calls.len() - 1)
    }

    fn count_args(&mut self, args: &str) -> Result<(), ModelError> {
        self.args_bytes = self.args_bytes.saturating_add(args.len());
        if self.args_bytes > self.limits.args_bytes {
            return Err(too_much("the arguments of its tool calls have", self.limits.args_bytes));
        }
        Ok(())
    }

    fn count_text(&mut self, text: &str) -> Result<(), ModelError> {
        self.text_bytes = self.text_bytes.saturating_add(text.len());
        if self.text_bytes > self.limits.text_bytes {
            return Err(too_much("its text has", self.limits.text_bytes));
        }
        Ok(())
    }
}

/// Returns at most `bytes` bytes of a name, cut at a character boundary.
fn excerpt(name: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    name.get(..end.unwrap_or_default()).unwrap_or_default()
}

/// The maximum length of a call id or a tool name; a longer one is truncated.
const NAME_BYTES: usize = 256;
/// The maximum length of a server's stop reason.
pub(super) const STOP_BYTES: usize = 128;
/// What a thinking block counts for besides its text.
const BLOCK_BYTES: usize = 64;

fn too_much(what: &str, bytes: usize) -> ModelError {
    ModelError::new(Kind::Garbage, format!("the response is too large: {what} more than {bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TurnLimits =
        TurnLimits { line_bytes: 64, text_bytes: 16, calls: 2, args_bytes: 12, piece_bytes: 8 };

    #[test]
    fn text_that_came_together_is_one_piece_up_to_its_limit() {
        let mut turn = fresh();
        for text in ["ab", "", "cd", "efghi"] {
            turn.said(text).unwrap();
        }
        turn.thought("x").unwrap();
        turn.thought("y").unwrap();
        turn.said("z").unwrap();
        assert_eq!(taken(&mut turn), ["said abcd", "said efghi", "thought xy", "said z"]);
        assert_eq!(taken(&mut turn), [""; 0]);
        turn.said("1").unwrap();
        assert_eq!(taken(&mut turn), ["said 1"]);
    }

    #[test]
    fn text_arguments_and_calls_are_bounded() {
        let mut turn = fresh();
        turn.said("12345678").unwrap();
        turn.thought("12345678").unwrap();
        assert_eq!(turn.said("x").unwrap_err().kind, Kind::Garbage);
        let part = |slot, args| Part { slot: Some(slot), args, ..Part::default() };
        turn.part(part(0, "123456")).unwrap();
        turn.part(part(1, "123456")).unwrap();
        assert_eq!(turn.part(part(1, "1")).unwrap_err().kind, Kind::Garbage);
        let mut turn = fresh();
        turn.part(part(0, "")).unwrap();
        turn.part(part(1, "")).unwrap();
        assert_eq!(turn.part(part(2, "")).unwrap_err().kind, Kind::Garbage);
    }

    #[test]
    fn names_and_what_is_carried_are_bounded_too() {
        let mut turn = Gathering::new(TurnLimits::default(), "l".to_owned());
        let long = "é".repeat(1_000);
        turn.part(Part { slot: None, id: &long, tool: &long, args: "{" }).unwrap();
        turn.part(Part { slot: None, id: &long, tool: &long, args: "}" }).unwrap();
        turn.stopped(Stop::Calls);
        let name = "é".repeat(NAME_BYTES / 2);
        assert_eq!(taken(&mut turn), [format!("call {name} {name} {{}}")]);
        let mut turn = Gathering::new(TurnLimits { text_bytes: 200, ..LIMITS }, "l".to_owned());
        turn.carries("").unwrap();
        turn.carries("").unwrap();
        assert_eq!(turn.carries("123456789").unwrap_err().kind, Kind::Garbage);
    }

    #[test]
    fn a_part_finds_its_call_however_the_server_names_it() {
        let part = |slot, id, tool, args| Part { slot, id, tool, args };
        let cases: [(&str, &[Part<'_>], &[&str]); 6] = [
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
            parts.iter().for_each(|part| turn.part(*part).unwrap());
            turn.stopped(Stop::Done);
            assert_eq!(taken(&mut turn), expected, "{name}");
            assert_eq!(turn.end().stop, Stop::Calls, "{name}");
        }
    }

    #[test]
    fn a_call_that_was_cut_by_the_length_is_left_out() {
        let mut turn = fresh();
        turn.part(Part { slot: Some(0), id: "a", tool: "t", args: "{}" }).unwrap();
        turn.part(Part { slot: Some(1), id: "b", tool: "t", args: "{\"p" }).unwrap();
        turn.stopped(Stop::Length);
        assert_eq!(taken(&mut turn), ["call a t {}"]);
        assert_eq!(turn.end().stop, Stop::Length);
    }

    #[test]
    fn a_turn_without_calls_does_not_wait_for_them() {
        let mut turn = fresh();
        assert_eq!(turn.end().stop, Stop::Other("unfinished".to_owned()));
        turn.stopped(Stop::Calls);
        assert_eq!(turn.end().stop, Stop::Done);
    }

    fn taken(turn: &mut Gathering) -> Vec<String> {
        let mut out = Vec::new();
        turn.exchange(&mut out);
        out.into_iter()
            .map(|piece| match piece {
                Piece::Said(text) => format!("said {text}"),
                Piece::Thought(text) => format!("thought {text}"),
                Piece::Call(call) => format!("call {} {} {}", call.id, call.tool, call.args),
            })
            .collect()
    }

    fn fresh() -> Gathering {
        Gathering::new(LIMITS, "l".to_owned())
    }
}
