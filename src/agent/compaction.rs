//! Compaction of a conversation that grows too long: when to compact, and the request for the summary.

use super::context::{Context, ResultDetail};
use super::price;
use crate::kernel::id::Seq;
use crate::provider::model::{Entry, Request, Thinking};

/// The context window of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Its size in tokens.
    pub tokens: u64,
    /// The share of it at which compaction starts.
    pub compact_at: f64,
}

/// The next step against the length of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionStep {
    /// No compaction is needed.
    None,
    /// Older results are trimmed.
    Trim,
    /// All results, including the newest, are limited to this many bytes each.
    Squeeze(usize),
    /// A summary replaces everything before `kept_from`.
    Summarise {
        /// The first event that is kept verbatim.
        kept_from: Seq,
        /// The estimated number of tokens of the conversation.
        tokens: u64,
    },
}

impl Window {
    /// Decides the next step; `fixed` is the number of tokens that every request contains.
    pub fn next_step(&self, context: &Context, fixed: u64) -> CompactionStep {
        let tokens = context.tokens(fixed, ResultDetail::Full);
        if tokens < self.threshold() {
            return CompactionStep::None;
        }
        if context.tokens(fixed, ResultDetail::Trimmed) < self.threshold() {
            return CompactionStep::Trim;
        }
        self.summarise(context, tokens)
    }

    /// Decides the next step after the server rejected the conversation as too long, whatever the estimate.
    ///
    /// `results` is the detail of the rejected request. Each step makes the conversation shorter than the one
    /// before. `None` means that nothing can be done: the fixed part and the newest message alone are too long.
    pub fn next_step_after_rejection(
        &self,
        context: &Context,
        fixed: u64,
        results: ResultDetail,
    ) -> Option<CompactionStep> {
        let tokens = context.tokens(fixed, ResultDetail::Full);
        let squeeze = self.result_byte_limit(context, fixed, results);
        match (context.find_cut(self.kept_tokens()), squeeze) {
            // A summary of a small part saves little.
            (Some(kept_from), Some(bytes))
                if context.tokens_before(kept_from).saturating_mul(4) < tokens.saturating_sub(fixed) =>
            {
                Some(CompactionStep::Squeeze(bytes))
            }
            (Some(kept_from), _) => Some(CompactionStep::Summarise { kept_from, tokens }),
            (None, squeeze) => squeeze.map(CompactionStep::Squeeze),
        }
    }

    /// Returns how many tokens of the older part the request for its summary may contain, besides `fixed`.
    pub fn summary_budget(&self, fixed: u64) -> u64 {
        let instruction = price::estimate_tokens(INSTRUCTION.len());
        let answer = u64::from(self.summary_tokens());
        self.tokens.saturating_sub(fixed).saturating_sub(instruction).saturating_sub(answer)
    }

    /// Returns the maximum length of a summary in tokens.
    pub fn summary_tokens(&self) -> u32 {
        u32::try_from(self.tokens / 4).unwrap_or(u32::MAX).min(SUMMARY_TOKENS)
    }

    /// Returns the byte limit for each result with which the conversation fits, if there is a useful one.
    fn result_byte_limit(&self, context: &Context, fixed: u64, results: ResultDetail) -> Option<usize> {
        let (count, longest) = (context.result_sizes().count(), context.result_sizes().max()?);
        let rest = context.tokens(fixed, ResultDetail::Limited(0));
        let bytes_left = self.share(FILLED_SHARE).checked_sub(rest)?.saturating_mul(price::BYTES_PER_TOKEN);
        let each = usize::try_from(bytes_left / count as u64).unwrap_or(usize::MAX);
        let before = match results {
            ResultDetail::Full | ResultDetail::Trimmed => longest,
            ResultDetail::Limited(bytes) => bytes.min(longest),
        };
        Some(each.min(before / 2)).filter(|bytes| *bytes >= MIN_RESULT_BYTES)
    }

    /// Returns whether the conversation fits when its older results are trimmed.
    pub fn fits_when_trimmed(&self, context: &Context, fixed: u64) -> bool {
        context.tokens(fixed, ResultDetail::Trimmed) < self.tokens
    }

    /// Returns how many tokens are kept verbatim beside a summary.
    pub fn kept_tokens(&self) -> u64 {
        self.share(KEPT_SHARE)
    }

    fn summarise(&self, context: &Context, tokens: u64) -> CompactionStep {
        match context.find_cut(self.kept_tokens()) {
            Some(kept_from) => CompactionStep::Summarise { kept_from, tokens },
            // A single item fills the window: there is nothing to summarise.
            None => CompactionStep::Trim,
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

/// Returns the request for the summary of what precedes `kept_from`, as far as it fits into `max_tokens` tokens.
///
/// `instructions` are the user's own for this summary. The result is `None` if not even the newest item fits.
pub fn request(
    context: &Context,
    kept_from: Seq,
    max_tokens: u64,
    model: &str,
    instructions: Option<&str>,
) -> Option<Request> {
    let mut entries = context.entries_before(kept_from, max_tokens);
    if entries.is_empty() {
        return None;
    }
    entries.push(Entry::user(match instructions {
        Some(own) => format!("{INSTRUCTION}\n\nThe user asks for this in particular:\n{own}"),
        None => INSTRUCTION.to_owned(),
    }));
    Some(Request {
        model: model.to_owned(),
        system: String::new(),
        entries,
        tools: Vec::new(),
        max_tokens: Some(SUMMARY_TOKENS),
        // Some models reject a change of the thinking level.
        thinking: Thinking::ServerDefault,
    })
}

const INSTRUCTION: &str = "\
The conversation has become too long and will go on from a summary. Write that summary for yourself: what the user wants, in \
their own words where they matter; what was found out (files, names, commands, errors); what was changed and how it was verified; \
what was decided and why; what is left to do. Be complete and brief, use no tool, and write nothing else.";

/// The share of the window that is kept verbatim.
const KEPT_SHARE: f64 = 0.3;
/// The maximum length of a summary in tokens.
const SUMMARY_TOKENS: u32 = 4_000;
/// The share of the window to fill when results are limited.
const FILLED_SHARE: f64 = 0.7;
/// The smallest useful limit for a result.
const MIN_RESULT_BYTES: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::context::tests::{model_turn, turn_with_usage, user};
    use crate::kernel::conversation::Conversation;

    #[test]
    fn nothing_is_done_before_the_threshold_and_results_are_trimmed_first() {
        let window = Window { tokens: 10_000, compact_at: 0.5 };
        let mut conversation = Conversation::default();
        conversation.fold(&user(1, "go"));
        for turn in 0..10 {
            model_turn(&mut conversation, 10 + turn * 10, "step", Some(&"x".repeat(1_000)));
        }
        assert_eq!(window.next_step(&Context::new(&conversation), 0), CompactionStep::None);
        assert!(
            matches!(window.next_step(&Context::new(&conversation), 4_000), CompactionStep::Summarise { .. }),
            "nothing to trim"
        );
        for turn in 0..2 {
            model_turn(&mut conversation, 1_000 + turn * 10, "step", Some(&"y".repeat(12_000)));
        }
        for turn in 0..8 {
            model_turn(&mut conversation, 2_000 + turn * 10, "step", None);
        }
        assert_eq!(window.next_step(&Context::new(&conversation), 0), CompactionStep::Trim);
        conversation.fold(&turn_with_usage(3_000, Context::new(&conversation).tokens(0, ResultDetail::Trimmed), 1));
        assert_eq!(
            window.next_step(&Context::new(&conversation), 0),
            CompactionStep::Trim,
            "the counted request had been trimmed"
        );
    }

    #[test]
    fn a_summary_keeps_the_newest_items_and_covers_the_rest() {
        let window = Window { tokens: 1_000, compact_at: 0.5 };
        let mut conversation = Conversation::default();
        conversation.fold(&user(1, &"a".repeat(1_000)));
        for turn in 0..6 {
            model_turn(&mut conversation, 10 + turn * 10, &"b".repeat(400), None);
        }
        let CompactionStep::Summarise { kept_from, tokens } = window.next_step(&Context::new(&conversation), 0) else {
            panic!("too long")
        };
        assert!(tokens > 500 && kept_from > Seq::new(10), "{tokens} {kept_from}");
        let request = request(&Context::new(&conversation), kept_from, u64::MAX, "m", None).unwrap();
        assert!(matches!(&request.entries[0], Entry::User { text, .. } if text.starts_with("aaa")));
        assert!(matches!(request.entries.last(), Some(Entry::User { text, .. }) if text == INSTRUCTION));
        assert!(request.entries.len() < 8);
        assert_eq!(request.thinking, Thinking::ServerDefault);
    }

    #[test]
    fn a_rejected_conversation_shrinks_with_every_step_until_none_is_left() {
        let window = Window { tokens: 1_000, compact_at: 0.5 };
        let mut conversation = Conversation::default();
        conversation.fold(&user(1, "go"));
        model_turn(&mut conversation, 10, "one result that fills everything", Some(&"x".repeat(40_000)));
        let mut context = Context::new(&conversation);
        let (mut results, mut tokens) = (ResultDetail::Full, context.tokens(100, ResultDetail::Full));
        let mut squeezed = 0;
        let kept_from = loop {
            match window.next_step_after_rejection(&context, 100, results).unwrap() {
                CompactionStep::Squeeze(bytes) => results = ResultDetail::Limited(bytes),
                CompactionStep::Summarise { kept_from, .. } => break kept_from,
                other @ (CompactionStep::None | CompactionStep::Trim) => panic!("{other:?}"),
            }
            squeezed += 1;
            let now = context.tokens(100, results);
            assert!(now < tokens && now < 1_000, "{now} of {tokens}");
            tokens = now;
        };
        assert!(squeezed > 1);
        let summary = context.omission_notice(kept_from);
        assert!(summary.contains("left out") && summary.ends_with("- go"), "{summary}");
        context.compact(&crate::kernel::event::Compaction { summary, kept_from, tokens_before: tokens });
        while let Some(measure) = window.next_step_after_rejection(&context, 100, results) {
            let CompactionStep::Squeeze(bytes) = measure else { panic!("{measure:?}") };
            results = ResultDetail::Limited(bytes);
        }
    }

    #[test]
    fn a_summary_covers_what_fits_and_omits_the_oldest() {
        let mut conversation = Conversation::default();
        for turn in 0..5 {
            conversation.fold(&user(1 + turn * 100, &format!("question {turn} {}", "a".repeat(1_000))));
            model_turn(&mut conversation, 10 + turn * 100, &format!("answer {turn}"), None);
        }
        let kept_from = Seq::new(401);
        let summarised = |max_tokens| {
            let request = request(&Context::new(&conversation), kept_from, max_tokens, "m", None)?;
            Some(format!("{:?}", request.entries))
        };
        let whole = summarised(u64::MAX).unwrap();
        assert!(whole.contains("question 0") && whole.contains("answer 3") && !whole.contains("question 4"));
        assert!(!whole.contains("left out"));
        let part = summarised(700).unwrap();
        assert!(part.contains("question 2") && part.contains("answer 3") && part.contains("left out"), "{part}");
        assert!(!part.contains("question 1"), "{part}");
        assert_eq!(summarised(5), None, "not even the newest item fits");
    }

    #[test]
    fn a_summary_is_no_longer_than_a_small_window_allows() {
        let window = |tokens| Window { tokens, compact_at: 0.8 };
        assert_eq!((window(200_000).summary_tokens(), window(4_096).summary_tokens()), (4_000, 1_024));
        assert_eq!(window(4_096).summary_budget(9_000), 0);
        assert!(window(4_096).summary_budget(1_000) < 4_096 - 1_000 - 1_024);
    }

    #[test]
    fn a_single_item_is_never_summarised() {
        let window = Window { tokens: 100, compact_at: 0.5 };
        let mut conversation = Conversation::default();
        conversation.fold(&user(1, &"a".repeat(10_000)));
        assert_eq!(window.next_step(&Context::new(&conversation), 0), CompactionStep::Trim);
        assert_eq!(
            window.next_step_after_rejection(&Context::new(&conversation), 0, ResultDetail::Full),
            None,
            "nothing can be done"
        );
        assert!(!window.fits_when_trimmed(&Context::new(&conversation), 0));
        assert!(Window { tokens: 5_000, ..window }.fits_when_trimmed(&Context::new(&conversation), 0));
    }
}
