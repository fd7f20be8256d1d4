//! A conversation that grows too long: when to act, and what to ask for the summary.

use super::context::{Context, Results};
use crate::kernel::id::Seq;
use crate::provider::model::{Entry, Request, Thinking};

/// How much of a conversation a model can take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// All of it, in tokens.
    pub tokens: u64,
    /// From which share of it on something is done.
    pub compact_at: f64,
}

/// What is to be done about the length of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Nothing.
    None,
    /// The older results are told in part.
    Trim,
    /// A summary takes the place of everything before this event.
    Summarise {
        /// The first event that is still told word by word.
        kept_from: Seq,
        /// How many tokens the conversation has, about.
        tokens: u64,
    },
}

impl Window {
    /// Decides what is to be done; `fixed` are the tokens that are told every time.
    pub fn measure(&self, context: &Context, fixed: u64) -> Measure {
        let tokens = context.tokens(fixed, Results::Whole);
        if tokens < self.threshold() {
            return Measure::None;
        }
        if context.tokens(fixed, Results::Trimmed) < self.threshold() {
            return Measure::Trim;
        }
        self.summarise(context, tokens)
    }

    /// Decides what is to be done when the server says that the conversation is too long, whatever was counted.
    pub fn insist(&self, context: &Context, fixed: u64) -> Measure {
        self.summarise(context, context.tokens(fixed, Results::Whole))
    }

    /// Tells whether the conversation is taken when its older results are told in part.
    pub fn takes_trimmed(&self, context: &Context, fixed: u64) -> bool {
        context.tokens(fixed, Results::Trimmed) < self.tokens
    }

    /// Returns how many tokens stay word by word where there is a summary.
    pub fn kept(&self) -> u64 {
        self.share(KEPT)
    }

    fn summarise(&self, context: &Context, tokens: u64) -> Measure {
        match context.cut(self.kept()) {
            Some(kept_from) => Measure::Summarise { kept_from, tokens },
            // One step fills everything: there is nothing to summarise.
            None => Measure::Trim,
        }
    }

    fn threshold(&self) -> u64 {
        self.share(self.compact_at)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a window is estimated in the thousands"
    )]
    fn share(&self, share: f64) -> u64 {
        (self.tokens as f64 * share) as u64
    }
}

/// Returns the request whose answer is the summary of what precedes `kept_from`.
///
/// `instructions` are somebody's own, for this summary.
pub fn request(context: &Context, kept_from: Seq, model: &str, instructions: Option<&str>) -> Request {
    let mut entries = context.before(kept_from);
    entries.push(Entry::user(match instructions {
        Some(own) => format!("{INSTRUCTION}\n\nThe user asks for this in particular:\n{own}"),
        None => INSTRUCTION.to_owned(),
    }));
    Request {
        model: model.to_owned(),
        system: String::new(),
        entries,
        tools: Vec::new(),
        max_tokens: Some(SUMMARY_TOKENS),
        // Not every model can be told to think otherwise than it does.
        thinking: Thinking::Usual,
    }
}

const INSTRUCTION: &str = "\
The conversation has become too long and will go on from a summary. Write that summary for yourself: what the user wants, in \
their own words where they matter; what was found out (files, names, commands, errors); what was changed and how it was verified; \
what was decided and why; what is left to do. Be complete and brief, use no tool, and write nothing else.";

/// What part of the window stays word by word.
const KEPT: f64 = 0.3;
/// How long a summary may be.
const SUMMARY_TOKENS: u32 = 4_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::context::tests::{said, used, user};

    #[test]
    fn nothing_is_done_before_the_threshold_and_results_are_trimmed_first() {
        let window = Window { tokens: 10_000, compact_at: 0.5 };
        let mut context = Context::default();
        context.fold(&user(1, "go"));
        for turn in 0..10 {
            said(&mut context, 10 + turn * 10, "step", Some(&"x".repeat(1_000)));
        }
        assert_eq!(window.measure(&context, 0), Measure::None);
        assert!(matches!(window.measure(&context, 4_000), Measure::Summarise { .. }), "nothing to trim");
        for turn in 0..2 {
            said(&mut context, 1_000 + turn * 10, "step", Some(&"y".repeat(12_000)));
        }
        for turn in 0..8 {
            said(&mut context, 2_000 + turn * 10, "step", None);
        }
        assert_eq!(window.measure(&context, 0), Measure::Trim);
        context.fold(&used(3_000, context.tokens(0, Results::Trimmed), 1));
        assert_eq!(window.measure(&context, 0), Measure::Trim, "what was counted had been trimmed");
    }

    #[test]
    fn a_summary_leaves_the_newest_steps_and_is_asked_for_the_rest() {
        let window = Window { tokens: 1_000, compact_at: 0.5 };
        let mut context = Context::default();
        context.fold(&user(1, &"a".repeat(1_000)));
        for turn in 0..6 {
            said(&mut context, 10 + turn * 10, &"b".repeat(400), None);
        }
        let Measure::Summarise { kept_from, tokens } = window.measure(&context, 0) else {
            panic!("too long")
        };
        assert!(tokens > 500 && kept_from > Seq::new(10), "{tokens} {kept_from}");
        let request = request(&context, kept_from, "m", None);
        assert!(matches!(&request.entries[0], Entry::User { text, .. } if text.starts_with("aaa")));
        assert!(matches!(request.entries.last(), Some(Entry::User { text, .. }) if text == INSTRUCTION));
        assert!(request.entries.len() < 8);
        assert_eq!(request.thinking, Thinking::Usual);
    }

    #[test]
    fn one_step_alone_is_never_summarised() {
        let window = Window { tokens: 100, compact_at: 0.5 };
        let mut context = Context::default();
        context.fold(&user(1, &"a".repeat(10_000)));
        assert_eq!(window.measure(&context, 0), Measure::Trim);
        assert_eq!(window.insist(&context, 0), Measure::Trim);
        assert!(!window.takes_trimmed(&context, 0));
        assert!(Window { tokens: 5_000, ..window }.takes_trimmed(&context, 0));
    }
}
