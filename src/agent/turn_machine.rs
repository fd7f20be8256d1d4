//! One turn of a model as a state machine: deltas and errors in, actions out.

use std::time::Duration;

use crate::kernel::effect::FinishReport;
use crate::kernel::event::{RunOutcome, ToolError};
use crate::provider::error::{ModelError, ModelErrorKind};
use crate::provider::model::{Delta, StopReason, ToolCall, TurnEnd, Usage};

/// A turn in progress.
#[derive(Debug, Default)]
pub struct TurnMachine {
    /// The beginning of the last text, for the run's summary.
    last_text: String,
    in_text: bool,
    /// Whether the text is more than white space.
    has_text: bool,
    /// Whether this attempt produced any delta.
    received_any: bool,
    calls: Vec<ToolCall>,
    /// How many bytes the model produced in this attempt.
    output_bytes: usize,
    retries: u32,
}

/// An action for the lane.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send a text delta.
    Text(String),
    /// Send a thinking delta.
    Thinking(String),
    /// End the text.
    EndText,
    /// Record the usage of the turn, and run these tools.
    RunTools(TurnEnd, Vec<ToolCall>),
    /// Record the usage of the turn, and end the provider's part of the run.
    Finish(Option<TurnEnd>, FinishReport),
    /// Report that the turn was interrupted, record its usage if it is known, and retry after a delay.
    Retry(ModelError, Option<TurnEnd>, Duration),
    /// Compact the conversation and retry: the server rejected it as too long.
    Compact(ModelError),
}

impl TurnMachine {
    /// Creates a turn that is never retried.
    pub fn without_retries() -> Self {
        Self { retries: MAX_RETRIES, ..Self::default() }
    }

    /// Returns the number of retries so far, and the maximum.
    pub const fn retries(&self) -> (u32, u32) {
        (self.retries, MAX_RETRIES)
    }

    /// Handles a delta.
    pub fn on_delta(&mut self, delta: Delta) -> Option<Action> {
        self.received_any = true;
        self.output_bytes = self.output_bytes.saturating_add(delta_bytes(&delta));
        match delta {
            Delta::Text(text) if text.is_empty() => None,
            Delta::Text(text) => {
                if !self.in_text {
                    self.last_text.clear();
                }
                self.in_text = true;
                self.has_text |= !text.trim().is_empty();
                let chars_left = SUMMARY_BYTES.saturating_sub(self.last_text.len());
                self.last_text.extend(text.chars().take(chars_left));
                Some(Action::Text(text))
            }
            Delta::Thinking(text) => (!text.is_empty()).then_some(Action::Thinking(text)),
            Delta::ToolCall(call) => {
                self.calls.push(call);
                None
            }
        }
    }

    /// Returns how many bytes the model produced in this attempt.
    pub const fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Returns whether this attempt produced text that is more than white space.
    pub const fn has_text(&self) -> bool {
        self.has_text
    }

    /// Starts another attempt.
    pub const fn start_attempt(&mut self) {
        self.output_bytes = 0;
    }

    /// Handles the end of the turn.
    pub fn on_end(&mut self, end: TurnEnd) -> Vec<Action> {
        let (text_open, had_text) = (std::mem::take(&mut self.in_text), std::mem::take(&mut self.has_text));
        let calls = std::mem::take(&mut self.calls);
        let act = match (&end.stop, calls.is_empty()) {
            // The calls of a refused turn may be incomplete, and must not run.
            (StopReason::Refused, _) => {
                Action::Finish(Some(end), FinishReport::permanent_failure("MODEL_REFUSED", REFUSED_MESSAGE))
            }
            (_, false) => Action::RunTools(end, calls),
            (StopReason::Done | StopReason::ToolCalls, true) if had_text => {
                Action::Finish(Some(end), success(&self.last_text))
            }
            (StopReason::Done | StopReason::ToolCalls, true) => self.retry(empty_response(), end),
            (StopReason::Length, true) => {
                Action::Finish(Some(end), FinishReport::permanent_failure("MODEL_LENGTH", LENGTH_MESSAGE))
            }
            (StopReason::Other(word), true) => {
                let finish = FinishReport::permanent_failure("MODEL_STOPPED", format!("the model stopped: {word}"));
                Action::Finish(Some(end), finish)
            }
        };
        // A text that will be repeated is not ended.
        let ends = text_open && !matches!(act, Action::Retry(..));
        ends.then_some(Action::EndText).into_iter().chain([act]).collect()
    }

    /// Handles the failure of the turn, with the part of its end that is known.
    pub fn on_error(&mut self, error: ModelError, end: TurnEnd) -> Action {
        self.calls.clear();
        if error.kind == ModelErrorKind::ContextTooLong {
            return Action::Compact(error);
        }
        // Failures before the first delta were already retried by the stream.
        if std::mem::take(&mut self.received_any) && error.retryable {
            return self.retry(error, end);
        }
        Action::Finish(usage_only(end), model_failure(error))
    }

    fn retry(&mut self, error: ModelError, end: TurnEnd) -> Action {
        self.received_any = false;
        self.in_text = false;
        self.has_text = false;
        self.retries += 1;
        if self.retries > MAX_RETRIES {
            return Action::Finish(usage_only(end), model_failure(error));
        }
        let pause = error.retry_after.unwrap_or(FIRST_RETRY_DELAY * (1 << self.retries.min(6)));
        Action::Retry(error, usage_only(end), pause)
    }
}

/// Returns the end of a failed turn without its provider state, if the server reported its usage.
fn usage_only(end: TurnEnd) -> Option<TurnEnd> {
    (end.usage != Usage::default()).then_some(TurnEnd { provider_state: None, ..end })
}

fn delta_bytes(delta: &Delta) -> usize {
    match delta {
        Delta::Text(text) | Delta::Thinking(text) => text.len(),
        Delta::ToolCall(call) => call.tool.len() + call.args.len(),
    }
}

/// Returns a successful finish, summarised by the first line of the model's last text.
pub fn success(last: &str) -> FinishReport {
    let line = last.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("done");
    FinishReport { outcome: RunOutcome::Success, reason: None, summary: line.to_owned(), error: None }
}

/// Returns the finish of a run that could not continue after a denial.
pub fn denied(summary: String) -> FinishReport {
    FinishReport { outcome: RunOutcome::Denied, reason: Some("denied".to_owned()), summary, error: None }
}

/// Returns the failed finish of a model error.
pub fn model_failure(error: ModelError) -> FinishReport {
    let ModelError { kind, retryable, message, detail, window: _, retry_after: _ } = error;
    FinishReport::failed(ToolError { kind: kind.code().to_owned(), retryable, message, detail })
}

fn empty_response() -> ModelError {
    ModelError {
        retryable: true,
        ..ModelError::new(ModelErrorKind::InvalidResponse, "the model returned an empty response")
    }
}

const LENGTH_MESSAGE: &str = "the model reached its limit on length before it was done";
const REFUSED_MESSAGE: &str = "the model, or its server, declined to answer";
/// How often an interrupted turn is retried.
const MAX_RETRIES: u32 = 3;
/// The base of the retry delay, which doubles with each retry.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(250);
/// How much of the last text is kept for the run's summary.
const SUMMARY_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_forwarded_and_ends_the_run() {
        let mut taking = TurnMachine::default();
        assert_eq!(taking.on_delta(Delta::Thinking("hm".into())), Some(Action::Thinking("hm".into())));
        assert_eq!(taking.on_delta(Delta::Text("\nDone".into())), Some(Action::Text("\nDone".into())));
        assert_eq!(taking.on_delta(Delta::Text(".\nMore".into())), Some(Action::Text(".\nMore".into())));
        let acts = taking.on_end(end(StopReason::Done));
        assert_eq!((&acts[0], taking.output_bytes()), (&Action::EndText, "hm\nDone.\nMore".len()));
        taking.start_attempt();
        assert_eq!(taking.output_bytes(), 0);
        let Action::Finish(Some(_), finish) = &acts[1] else { panic!("{acts:?}") };
        assert_eq!((finish.outcome, finish.summary.as_str()), (RunOutcome::Success, "Done."));
    }

    #[test]
    fn calls_run_when_the_turn_is_complete_whatever_the_stop_reason() {
        for stop in [StopReason::ToolCalls, StopReason::Done, StopReason::Length, StopReason::Other("x".into())] {
            let mut taking = TurnMachine::default();
            assert_eq!(taking.on_delta(Delta::ToolCall(tool_call())), None);
            assert_eq!(taking.on_end(end(stop.clone())), [Action::RunTools(end(stop), vec![tool_call()])]);
        }
    }

    #[test]
    fn an_interrupted_turn_is_retried_and_its_calls_are_discarded() {
        let mut taking = TurnMachine::default();
        for tries in 1..=MAX_RETRIES {
            taking.on_delta(Delta::Text("half a".into()));
            taking.on_delta(Delta::ToolCall(tool_call()));
            let Action::Retry(_, None, pause) =
                taking.on_error(error(ModelErrorKind::Interrupted), end(StopReason::Done))
            else {
                panic!("try {tries}")
            };
            assert_eq!(pause, FIRST_RETRY_DELAY * (1 << tries));
        }
        taking.on_delta(Delta::Text("half".into()));
        let Action::Finish(None, finish) = taking.on_error(error(ModelErrorKind::Interrupted), end(StopReason::Done))
        else {
            panic!("it gives up")
        };
        assert_eq!(finish.reason.as_deref(), Some("provider_interrupted"));
        assert_eq!(finish.error.map(|error| error.retryable), Some(true));
        let mut taking = TurnMachine::default();
        taking.on_delta(Delta::ToolCall(tool_call()));
        taking.on_error(error(ModelErrorKind::Interrupted), end(StopReason::Done));
        taking.on_delta(Delta::Text("whole".into()));
        assert!(matches!(&taking.on_end(end(StopReason::Done))[..], [Action::EndText, Action::Finish(..)]));
    }

    #[test]
    fn a_turn_without_retries_fails_on_the_first_error() {
        let mut taking = TurnMachine::without_retries();
        taking.on_delta(Delta::Text("half a".into()));
        assert!(matches!(
            taking.on_error(error(ModelErrorKind::Interrupted), end(StopReason::Done)),
            Action::Finish(None, _)
        ));
    }

    #[test]
    fn a_failure_before_the_first_delta_is_not_retried_here() {
        let mut taking = TurnMachine::default();
        assert!(matches!(
            taking.on_error(error(ModelErrorKind::Unreachable), end(StopReason::Done)),
            Action::Finish(None, _)
        ));
        let mut taking = TurnMachine::default();
        taking.on_delta(Delta::Text("x".into()));
        assert!(matches!(
            taking.on_error(error(ModelErrorKind::InvalidResponse), end(StopReason::Done)),
            Action::Finish(None, _)
        ));
    }

    #[test]
    fn a_conversation_that_is_too_long_is_compacted_as_often_as_needed() {
        let mut taking = TurnMachine::default();
        for _ in 0..3 {
            let too_long = error(ModelErrorKind::ContextTooLong);
            assert_eq!(taking.on_error(too_long.clone(), end(StopReason::Done)), Action::Compact(too_long));
        }
    }

    #[test]
    fn an_empty_refused_or_truncated_response_is_not_a_success() {
        for (stop, reason) in [
            (StopReason::Length, "model_length"),
            (StopReason::Refused, "model_refused"),
            (StopReason::Other("y".into()), "model_stopped"),
        ] {
            let mut taking = TurnMachine::default();
            taking.on_delta(Delta::Text("text".into()));
            let acts = taking.on_end(end(stop));
            let Some(Action::Finish(Some(_), finish)) = acts.last() else { panic!("{acts:?}") };
            assert_eq!((finish.outcome, finish.reason.as_deref()), (RunOutcome::Failed, Some(reason)));
        }
        let mut taking = TurnMachine::default();
        for _ in 0..MAX_RETRIES {
            assert!(matches!(&taking.on_end(end(StopReason::Done))[..], [Action::Retry(..)]));
        }
        assert!(matches!(&taking.on_end(end(StopReason::Done))[..], [Action::Finish(None, _)]));
    }

    #[test]
    fn a_refused_turn_runs_none_of_its_calls() {
        let mut taking = TurnMachine::default();
        taking.on_delta(Delta::Text("I will".into()));
        taking.on_delta(Delta::ToolCall(ToolCall { args: "{\"command\": \"rm".into(), ..tool_call() }));
        let acts = taking.on_end(end(StopReason::Refused));
        let [Action::EndText, Action::Finish(Some(_), finish)] = &acts[..] else { panic!("{acts:?}") };
        assert_eq!(finish.reason.as_deref(), Some("model_refused"));
    }

    #[test]
    fn white_space_alone_is_an_empty_response() {
        let mut taking = TurnMachine::default();
        for _ in 0..MAX_RETRIES {
            taking.on_delta(Delta::Text(" \n\n".into()));
            assert!(matches!(&taking.on_end(end(StopReason::Done))[..], [Action::Retry(..)]));
        }
        taking.on_delta(Delta::Text("\n".into()));
        taking.on_delta(Delta::Text("Done.".into()));
        let acts = taking.on_end(end(StopReason::Done));
        let [Action::EndText, Action::Finish(Some(_), finish)] = &acts[..] else { panic!("{acts:?}") };
        assert_eq!(finish.summary, "Done.");
    }

    #[test]
    fn the_usage_of_a_turn_is_counted_whatever_its_outcome() {
        let usage = Usage { input: 900, output: 1, ..Usage::default() };
        let known = || TurnEnd { usage, provider_state: Some("c".into()), ..end(StopReason::Done) };
        let counted = |end: Option<TurnEnd>| end.map(|end| (end.usage, end.provider_state));
        let mut taking = TurnMachine::default();
        taking.on_delta(Delta::Text("half a".into()));
        let Action::Retry(_, cut, _) = taking.on_error(error(ModelErrorKind::Interrupted), known()) else {
            panic!("it is retried")
        };
        assert_eq!(counted(cut), Some((usage, None)), "its provider state is dropped");
        for _ in 1..MAX_RETRIES {
            let acts = taking.on_end(known());
            let [Action::Retry(_, empty, _)] = &acts[..] else { panic!("{acts:?}") };
            assert_eq!(counted(empty.clone()), Some((usage, None)));
        }
        let acts = taking.on_end(known());
        let [Action::Finish(last, _)] = &acts[..] else { panic!("{acts:?}") };
        assert_eq!(counted(last.clone()), Some((usage, None)));
        taking.on_delta(Delta::Text("half".into()));
        let Action::Finish(refused, _) = taking.on_error(error(ModelErrorKind::InvalidResponse), known()) else {
            panic!("it gives up")
        };
        assert_eq!(counted(refused), Some((usage, None)));
    }

    fn tool_call() -> ToolCall {
        ToolCall { id: "1".into(), tool: "t".into(), args: "{}".into() }
    }

    fn end(stop: StopReason) -> TurnEnd {
        TurnEnd { stop, usage: Usage::default(), provider_state: None }
    }

    fn error(kind: ModelErrorKind) -> ModelError {
        ModelError::new(kind, "m")
    }
}
