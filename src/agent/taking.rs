//! One turn of a model as a state machine: deltas and errors in, actions out.

use std::time::Duration;

use crate::kernel::effect::Finish;
use crate::kernel::event::{Fault, Outcome};
use crate::provider::error::{Kind, ModelError};
use crate::provider::model::{Piece, Stop, TurnEnd, Usage, Wanted};

/// A turn in progress.
#[derive(Debug, Default)]
pub struct Taking {
    /// The beginning of the last text, for the run's summary.
    last: String,
    speaking: bool,
    /// Whether the text is more than white space.
    said: bool,
    /// Whether this attempt produced any delta.
    begun: bool,
    calls: Vec<Wanted>,
    /// How many bytes the model produced in this attempt.
    written: usize,
    tries: u32,
}

/// An action for the lane.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// Send a text delta.
    Say(String),
    /// Send a thinking delta.
    Think(String),
    /// End the text.
    EndText,
    /// Record the usage of the turn, and run these tools.
    Use(TurnEnd, Vec<Wanted>),
    /// Record the usage of the turn, and end the provider's part of the run.
    Finish(Option<TurnEnd>, Finish),
    /// Report that the turn was interrupted, record its usage if it is known, and retry after a delay.
    AskAgain(ModelError, Option<TurnEnd>, Duration),
    /// Compact the conversation and retry: the server rejected it as too long.
    Compact(ModelError),
}

impl Taking {
    /// Creates a turn that is never retried.
    pub fn once() -> Self {
        Self { tries: TRIES, ..Self::default() }
    }

    /// Returns the number of retries so far, and the maximum.
    pub const fn tries(&self) -> (u32, u32) {
        (self.tries, TRIES)
    }

    /// Handles a delta.
    pub fn piece(&mut self, piece: Piece) -> Option<Act> {
        self.begun = true;
        self.written = self.written.saturating_add(length(&piece));
        match piece {
            Piece::Said(text) if text.is_empty() => None,
            Piece::Said(text) => {
                if !self.speaking {
                    self.last.clear();
                }
                self.speaking = true;
                self.said |= !text.trim().is_empty();
                let room = SUMMARY_BYTES.saturating_sub(self.last.len());
                self.last.extend(text.chars().take(room));
                Some(Act::Say(text))
            }
            Piece::Thought(text) => (!text.is_empty()).then_some(Act::Think(text)),
            Piece::Call(wanted) => {
                self.calls.push(wanted);
                None
            }
        }
    }

    /// Returns how many bytes the model produced in this attempt.
    pub const fn written(&self) -> usize {
        self.written
    }

    /// Returns whether this attempt produced text that is more than white space.
    pub const fn has_said(&self) -> bool {
        self.said
    }

    /// Starts another attempt.
    pub const fn begin(&mut self) {
        self.written = 0;
    }

    /// Handles the end of the turn.
    pub fn end(&mut self, end: TurnEnd) -> Vec<Act> {
        let (spoke, said) = (std::mem::take(&mut self.speaking), std::mem::take(&mut self.said));
        let calls = std::mem::take(&mut self.calls);
        let act = match (&end.stop, calls.is_empty()) {
            // The calls of a refused turn may be incomplete, and must not run.
            (Stop::Refused, _) => Act::Finish(Some(end), Finish::for_good("MODEL_REFUSED", REFUSED)),
            (_, false) => Act::Use(end, calls),
            (Stop::Done | Stop::Calls, true) if said => Act::Finish(Some(end), success(&self.last)),
            (Stop::Done | Stop::Calls, true) => self.again(empty(), end),
            (Stop::Length, true) => Act::Finish(Some(end), Finish::for_good("MODEL_LENGTH", LENGTH)),
            (Stop::Other(word), true) => {
                let finish = Finish::for_good("MODEL_STOPPED", format!("the model stopped: {word}"));
                Act::Finish(Some(end), finish)
            }
        };
        // A text that will be repeated is not ended.
        let ends = spoke && !matches!(act, Act::AskAgain(..));
        ends.then_some(Act::EndText).into_iter().chain([act]).collect()
    }

    /// Handles the failure of the turn, with the part of its end that is known.
    pub fn fail(&mut self, error: ModelError, end: TurnEnd) -> Act {
        self.calls.clear();
        if error.kind == Kind::ContextTooLong {
            return Act::Compact(error);
        }
        // Failures before the first delta were already retried by the stream.
        if std::mem::take(&mut self.begun) && error.retryable {
            return self.again(error, end);
        }
        Act::Finish(used(end), gave_up(error))
    }

    fn again(&mut self, error: ModelError, end: TurnEnd) -> Act {
        self.begun = false;
        self.speaking = false;
        self.said = false;
        self.tries += 1;
        if self.tries > TRIES {
            return Act::Finish(used(end), gave_up(error));
        }
        let pause = error.retry_after.unwrap_or(PAUSE * (1 << self.tries.min(6)));
        Act::AskAgain(error, used(end), pause)
    }
}

/// Returns the end of a failed turn without its provider state, if the server reported its usage.
fn used(end: TurnEnd) -> Option<TurnEnd> {
    (end.usage != Usage::default()).then_some(TurnEnd { carry: None, ..end })
}

fn length(piece: &Piece) -> usize {
    match piece {
        Piece::Said(text) | Piece::Thought(text) => text.len(),
        Piece::Call(wanted) => wanted.tool.len() + wanted.args.len(),
    }
}

/// Returns a successful finish, summarised by the first line of the model's last text.
pub fn success(last: &str) -> Finish {
    let line = last.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("done");
    Finish { outcome: Outcome::Success, reason: None, summary: line.to_owned(), fault: None }
}

/// Returns the finish of a run that could not continue after a denial.
pub fn denied(summary: String) -> Finish {
    Finish { outcome: Outcome::Denied, reason: Some("denied".to_owned()), summary, fault: None }
}

/// Returns the failed finish of a model error.
pub fn gave_up(error: ModelError) -> Finish {
    let ModelError { kind, retryable, message, detail, window: _, retry_after: _ } = error;
    Finish::failed(Fault { kind: kind.code().to_owned(), retryable, message, detail })
}

fn empty() -> ModelError {
    ModelError { retryable: true, ..ModelError::new(Kind::Garbage, "the model returned an empty response") }
}

const LENGTH: &str = "the model reached its limit on length before it was done";
const REFUSED: &str = "the model, or its server, declined to answer";
/// How often an interrupted turn is retried.
const TRIES: u32 = 3;
/// The base of the retry delay, which doubles with each retry.
const PAUSE: Duration = Duration::from_millis(250);
/// How much of the last text is kept for the run's summary.
const SUMMARY_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_passed_on_and_ends_the_run() {
        let mut taking = Taking::default();
        assert_eq!(taking.piece(Piece::Thought("hm".into())), Some(Act::Think("hm".into())));
        assert_eq!(taking.piece(Piece::Said("\nDone".into())), Some(Act::Say("\nDone".into())));
        assert_eq!(taking.piece(Piece::Said(".\nMore".into())), Some(Act::Say(".\nMore".into())));
        let acts = taking.end(end(Stop::Done));
        assert_eq!((&acts[0], taking.written()), (&Act::EndText, "hm\nDone.\nMore".len()));
        taking.begin();
        assert_eq!(taking.written(), 0);
        let Act::Finish(Some(_), finish) = &acts[1] else { panic!("{acts:?}") };
        assert_eq!((finish.outcome, finish.summary.as_str()), (Outcome::Success, "Done."));
    }

    #[test]
    fn calls_are_used_when_the_turn_is_whole_whatever_the_server_calls_its_end() {
        for stop in [Stop::Calls, Stop::Done, Stop::Length, Stop::Other("x".into())] {
            let mut taking = Taking::default();
            assert_eq!(taking.piece(Piece::Call(wanted())), None);
            assert_eq!(taking.end(end(stop.clone())), [Act::Use(end(stop), vec![wanted()])]);
        }
    }

    #[test]
    fn a_turn_that_was_cut_is_asked_for_again_and_nothing_of_it_is_used() {
        let mut taking = Taking::default();
        for tries in 1..=TRIES {
            taking.piece(Piece::Said("half a".into()));
            taking.piece(Piece::Call(wanted()));
            let Act::AskAgain(_, None, pause) = taking.fail(error(Kind::Cut), end(Stop::Done)) else {
                panic!("try {tries}")
            };
            assert_eq!(pause, PAUSE * (1 << tries));
        }
        taking.piece(Piece::Said("half".into()));
        let Act::Finish(None, finish) = taking.fail(error(Kind::Cut), end(Stop::Done)) else {
            panic!("it gives up")
        };
        assert_eq!(finish.reason.as_deref(), Some("provider_cut"));
        assert_eq!(finish.fault.map(|fault| fault.retryable), Some(true));
        let mut taking = Taking::default();
        taking.piece(Piece::Call(wanted()));
        taking.fail(error(Kind::Cut), end(Stop::Done));
        taking.piece(Piece::Said("whole".into()));
        assert!(matches!(&taking.end(end(Stop::Done))[..], [Act::EndText, Act::Finish(..)]));
    }

    #[test]
    fn a_turn_that_is_asked_for_once_is_given_up_at_once() {
        let mut taking = Taking::once();
        taking.piece(Piece::Said("half a".into()));
        assert!(matches!(taking.fail(error(Kind::Cut), end(Stop::Done)), Act::Finish(None, _)));
    }

    #[test]
    fn what_failed_before_anything_came_is_not_tried_again_here() {
        let mut taking = Taking::default();
        assert!(matches!(taking.fail(error(Kind::Unreachable), end(Stop::Done)), Act::Finish(None, _)));
        let mut taking = Taking::default();
        taking.piece(Piece::Said("x".into()));
        assert!(matches!(taking.fail(error(Kind::Garbage), end(Stop::Done)), Act::Finish(None, _)));
    }

    #[test]
    fn a_conversation_that_is_too_long_is_made_shorter_as_often_as_it_takes() {
        let mut taking = Taking::default();
        for _ in 0..3 {
            let too_long = error(Kind::ContextTooLong);
            assert_eq!(taking.fail(too_long.clone(), end(Stop::Done)), Act::Compact(too_long));
        }
    }

    #[test]
    fn an_answer_that_is_empty_refused_or_cut_by_its_length_is_no_success() {
        for (stop, reason) in [
            (Stop::Length, "model_length"),
            (Stop::Refused, "model_refused"),
            (Stop::Other("y".into()), "model_stopped"),
        ] {
            let mut taking = Taking::default();
            taking.piece(Piece::Said("text".into()));
            let acts = taking.end(end(stop));
            let Some(Act::Finish(Some(_), finish)) = acts.last() else { panic!("{acts:?}") };
            assert_eq!((finish.outcome, finish.reason.as_deref()), (Outcome::Failed, Some(reason)));
        }
        let mut taking = Taking::default();
        for _ in 0..TRIES {
            assert!(matches!(&taking.end(end(Stop::Done))[..], [Act::AskAgain(..)]));
        }
        assert!(matches!(&taking.end(end(Stop::Done))[..], [Act::Finish(None, _)]));
    }

    #[test]
    fn a_turn_that_was_declined_uses_nothing_of_what_it_wanted() {
        let mut taking = Taking::default();
        taking.piece(Piece::Said("I will".into()));
        taking.piece(Piece::Call(Wanted { args: "{\"command\": \"rm".into(), ..wanted() }));
        let acts = taking.end(end(Stop::Refused));
        let [Act::EndText, Act::Finish(Some(_), finish)] = &acts[..] else { panic!("{acts:?}") };
        assert_eq!(finish.reason.as_deref(), Some("model_refused"));
    }

    #[test]
    fn white_space_is_no_answer() {
        let mut taking = Taking::default();
        for _ in 0..TRIES {
            taking.piece(Piece::Said(" \n\n".into()));
            assert!(matches!(&taking.end(end(Stop::Done))[..], [Act::AskAgain(..)]));
        }
        taking.piece(Piece::Said("\n".into()));
        taking.piece(Piece::Said("Done.".into()));
        let acts = taking.end(end(Stop::Done));
        let [Act::EndText, Act::Finish(Some(_), finish)] = &acts[..] else { panic!("{acts:?}") };
        assert_eq!(finish.summary, "Done.");
    }

    #[test]
    fn what_a_turn_used_counts_whatever_came_of_it() {
        let usage = Usage { input: 900, output: 1, ..Usage::default() };
        let known = || TurnEnd { usage, carry: Some("c".into()), ..end(Stop::Done) };
        let counted = |end: Option<TurnEnd>| end.map(|end| (end.usage, end.carry));
        let mut taking = Taking::default();
        taking.piece(Piece::Said("half a".into()));
        let Act::AskAgain(_, cut, _) = taking.fail(error(Kind::Cut), known()) else {
            panic!("it is retried")
        };
        assert_eq!(counted(cut), Some((usage, None)), "its provider state is dropped");
        for _ in 1..TRIES {
            let acts = taking.end(known());
            let [Act::AskAgain(_, empty, _)] = &acts[..] else { panic!("{acts:?}") };
            assert_eq!(counted(empty.clone()), Some((usage, None)));
        }
        let acts = taking.end(known());
        let [Act::Finish(last, _)] = &acts[..] else { panic!("{acts:?}") };
        assert_eq!(counted(last.clone()), Some((usage, None)));
        taking.piece(Piece::Said("half".into()));
        let Act::Finish(refused, _) = taking.fail(error(Kind::Garbage), known()) else {
            panic!("it gives up")
        };
        assert_eq!(counted(refused), Some((usage, None)));
    }

    fn wanted() -> Wanted {
        Wanted { id: "1".into(), tool: "t".into(), args: "{}".into() }
    }

    fn end(stop: Stop) -> TurnEnd {
        TurnEnd { stop, usage: Usage::default(), carry: None }
    }

    fn error(kind: Kind) -> ModelError {
        ModelError::new(kind, "m")
    }
}
