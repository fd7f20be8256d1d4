//! Tests of width, wrapping and truncation.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use super::super::test_text::{plain, random_text, widest};
use super::*;
use crate::random::Random;

#[test]
fn width_counts_grapheme_clusters() {
    for (text, width) in [
        ("", 0),
        ("abc", 3),
        ("漢字", 4),
        ("한국어", 6),
        ("e\u{301}", 1),
        ("👨‍👩‍👧‍👦", 2),
        ("🇨🇭", 2),
        ("❤\u{fe0f}", 2),
        ("❤", 1),
        ("👍🏽", 2),
        ("العربية", 7),
        ("שלום", 4),
        ("a\u{200b}b", 2),
        ("\t", 4),
        ("ab\tc", 5),
        ("漢\tx", 5),
        ("ｆｕｌｌ", 8),
    ] {
        assert_eq!(display_width(text), width, "{text:?}");
    }
}

#[test]
fn width_is_the_number_of_cells_in_a_terminal_buffer() {
    let mut random = Random::new(3);
    for round in 0..1000 {
        let text: String = random_text(&mut random, 4).chars().filter(|c| !c.is_control()).collect();
        let mut buffer = Buffer::empty(Rect::new(0, 0, 300, 1));
        let (end, _) = buffer.set_stringn(0, 0, &text, 300, Style::new());
        assert_eq!(usize::from(end), display_width(&text), "round {round}: {text:?}");
    }
}

#[test]
fn words_are_kept_together() {
    assert_eq!(wrap("one two three four", 9), ["one two", "three", "four"]);
    assert_eq!(wrap("one  two", 5), ["one", "two"]);
    assert_eq!(wrap("exactly ten", 11), ["exactly ten"]);
    assert_eq!(wrap("", 5), [""]);
    assert_eq!(wrap("   indented text", 12), ["   indented", "text"]);
    assert_eq!(wrap("a\nb", 5), ["a", "b"]);
}

#[test]
fn long_words_are_divided_between_grapheme_clusters() {
    assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
    assert_eq!(wrap("x abcdefgh", 4), ["x", "abcd", "efgh"]);
    assert_eq!(wrap("e\u{301}e\u{301}e\u{301}", 2), ["e\u{301}e\u{301}", "e\u{301}"]);
    assert_eq!(wrap("👨‍👩‍👧‍👦👨‍👩‍👧‍👦", 3), ["👨‍👩‍👧‍👦", "👨‍👩‍👧‍👦"]);
    assert_eq!(wrap("日本語の文章", 5), ["日本", "語の", "文章"]);
    assert_eq!(wrap("ab日本語", 5), ["ab日", "本語"]);
}

#[test]
fn rows_after_the_first_are_indented() {
    assert_eq!(plain(&wrap_line(&Line::raw("one two three"), 7, "  ")), ["one two", "  three"]);
    assert_eq!(plain(&wrap_line(&Line::raw("abcdefgh"), 4, "> ")), ["abcd", "> ef", "> gh"]);
    assert_eq!(plain(&wrap_line(&Line::raw("one two"), 3, "    ")), ["one", "two"]);
}

#[test]
fn styles_are_kept() {
    let (red, blue) = (Style::new().fg(Color::Red), Style::new().fg(Color::Blue));
    let line = Line::from(vec![Span::styled("one t", red), Span::styled("wo three", blue)]).style(red);
    let rows = wrap_line(&line, 7, "");
    assert_eq!(rows[0].spans, [Span::styled("one t", red), Span::styled("wo", blue)]);
    assert_eq!(rows[1].spans, [Span::styled("three", blue)]);
    assert!(rows.iter().all(|row| row.style == red));
}

#[test]
fn a_character_wider_than_the_row_is_replaced() {
    assert_eq!(wrap("a漢b", 1), ["a", "\u{fffd}", "b"]);
    assert_eq!(plain(&wrap_exact(&Line::raw("漢"), 1)), ["\u{fffd}"]);
    assert_eq!(wrap("a\u{301}", 0), ["a\u{301}"]);
}

#[test]
fn exact_wrapping_keeps_spaces_and_fills_rows() {
    assert_eq!(plain(&wrap_exact(&Line::raw("a  bcd  e"), 3)), ["a  ", "bcd", "  e"]);
    assert_eq!(plain(&wrap_exact(&Line::raw("\tx"), 8)), ["    x"]);
    assert_eq!(plain(&wrap_exact(&Line::raw(""), 8)), [""]);
    assert_eq!(plain(&wrap_exact(&Line::raw("漢字"), 3)), ["漢", "字"]);
}

#[test]
fn truncation_is_marked() {
    let cut = |text: &str, width| truncate(&Line::raw(text.to_owned()), width).to_string();
    assert_eq!(cut("abcdef", 6), "abcdef");
    assert_eq!(cut("abcdef", 5), "abcd…");
    assert_eq!(cut("漢字漢", 4), "漢…");
    assert_eq!(cut("abc", 1), "…");
    assert_eq!(cut("abc", 0), "");
    assert_eq!(cut("a", 1), "a");
}

#[test]
fn no_row_is_too_wide_and_no_text_is_lost() {
    let mut random = Random::new(11);
    for round in 0..1500 {
        let texts: Vec<String> = (0..3).map(|_| random_text(&mut random, 8)).collect();
        let line = Line { spans: texts.iter().map(|text| Span::raw(text.as_str())).collect(), ..Line::default() };
        let width = 1 + random.below(30) as u16;
        let hanging = *random.pick(&["", "  ", "│ ", "漢", "\t"]).unwrap();
        let rows = wrap_line(&line, width, hanging);
        assert!(widest(&rows) <= usize::from(width), "round {round}, width {width}: {texts:?} {rows:?}");
        let exact = wrap_exact(&line, width);
        assert!(widest(&exact) <= usize::from(width), "round {round}, width {width}: {texts:?} {exact:?}");
        let cut = truncate(&line, width);
        assert!(widest(&[cut]) <= usize::from(width), "round {round}, width {width}: {texts:?}");
        if width > 1 && hanging.is_empty() {
            assert_eq!(without_spaces(&rows), without_spaces(std::slice::from_ref(&line)), "round {round}");
            assert_eq!(without_spaces(&exact), without_spaces(std::slice::from_ref(&line)), "round {round}");
        }
    }
}

fn wrap(text: &str, width: u16) -> Vec<String> {
    plain(&wrap_line(&Line::from(Span::raw(text.to_owned())), width, ""))
}

fn without_spaces(rows: &[Line<'_>]) -> String {
    let text: String = rows.iter().flat_map(|row| row.spans.iter()).map(|span| &*span.content).collect();
    text.replace("\r\n", "").chars().filter(|c| !matches!(c, ' ' | '\t' | '\n' | '\u{3000}')).collect()
}
