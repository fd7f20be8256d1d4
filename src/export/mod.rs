//! The history of a session as a document: one HTML page, Markdown, or one JSON object.
//!
//! Pure: events go in, text comes out. The history is read twice, so that a long session needs little memory: a
//! [`Survey`] collects what the head of a document shows and which parts a branch has discarded; then a [`Timeline`]
//! turns events into [`Entry`]s, each as soon as nothing can change it, and a [`Renderer`] writes them.

mod entry;
mod html;
mod json;
mod markdown;
mod survey;
mod timeline;

pub use entry::{
    Approval, Attachment, Block, Check, Content, Delivery, Entry, NoticeLevel, RunSummary, ToolCall, Usage, Vote,
};
pub use html::HtmlRenderer;
pub use json::JsonRenderer;
pub use markdown::MarkdownRenderer;
pub use survey::{SessionInfo, Survey};
pub use timeline::Timeline;

/// Writes the parts of a document in order: its head, its entries, its end.
pub trait Renderer {
    /// Writes what precedes the entries.
    fn begin(&mut self, survey: &Survey, out: &mut String);
    /// Writes one entry.
    fn entry(&mut self, entry: &Entry, out: &mut String);
    /// Writes what follows the entries.
    fn end(&mut self, survey: &Survey, out: &mut String);
}

/// Formats a cost in millionths of a US dollar.
fn dollars(micros: u64) -> String {
    let digits = if micros < 1_000_000 { 4 } else { 2 };
    // Exact enough for people: a cost has far fewer than 53 significant bits.
    #[allow(clippy::cast_precision_loss, reason = "a price for people")]
    let amount = micros as f64 / 1_000_000.0;
    format!("${amount:.digits$}")
}

/// Formats a number with separators between its thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_costs_have_enough_digits() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1234, 12_345_678].map(dollars), ["$0.0000", "$0.0012", "$12.35"]);
    }
}
