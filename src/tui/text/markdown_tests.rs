//! Tests of Markdown rendering, whole and in deltas.

use ratatui::style::Modifier;

use super::super::test_text::{plain, random_split, random_text, take_parsed, widest};
use super::*;
use crate::random::Random;

#[test]
fn blocks_are_separated_by_one_blank_row() {
    let source = "# Title\nText one\ntext two\n\n\n\nMore\n## Sub\n```\ncode\n```\nEnd\n***\nx";
    let expected = [
        "Title",
        "",
        "Text one text two",
        "",
        "More",
        "",
        "Sub",
        "",
        "  code",
        "",
        "End",
        "",
        "────────────────────",
        "",
        "x",
    ];
    assert_eq!(render(source, 20), expected);
}

#[test]
fn headings_are_recognized() {
    assert_eq!(
        render("# a #\n\nb\n===\nc\n---\n\n#hash\n\n####### seven", 40),
        ["a", "", "b", "", "c", "", "#hash", "", "####### seven"]
    );
    let theme = Theme::dark();
    let rows = whole("# a\n## b", 40);
    assert_eq!(rows[0].spans[0].style, theme.heading.add_modifier(Modifier::UNDERLINED));
    assert_eq!(rows[2].spans[0].style, theme.heading);
}

#[test]
fn lists_are_nested_and_numbered() {
    let source = "Intro:\n- a\n- b\n  continued\n  - c\n    - d\n      1. e\n- f\n\n3. x\n3. y\n\n3. z";
    let expected =
        ["Intro:", "• a", "• b continued", "  ◦ c", "    ▪ d", "      1. e", "• f", "", "3. x", "4. y", "", "5. z"];
    assert_eq!(render(source, 40), expected);
}

#[test]
fn list_items_contain_blocks() {
    let source = "1. Run:\n   ```sh\n   ls\n\n   pwd\n   ```\n\n   Then:\n   > quoted\n2. Next\n-\n- last";
    let expected = ["1. Run:", "     ls", "", "     pwd", "", "   Then:", "   │ quoted", "2. Next", "•", "• last"];
    assert_eq!(render(source, 40), expected);
}

#[test]
fn items_are_wrapped_under_their_text() {
    assert_eq!(
        render("- one two three four\n  - five six seven", 12),
        ["• one two", "  three four", "  ◦ five six", "    seven"]
    );
}

#[test]
fn tasks_have_check_boxes() {
    assert_eq!(
        render("- [ ] open\n- [x] done\n- [X] too\n1. [x] first\n- [y] no", 40),
        ["[ ] open", "[x] done", "[x] too", "1. [x] first", "• [y] no"]
    );
}

#[test]
fn quotes_have_a_bar_on_every_row() {
    assert_eq!(
        render("> one two three\n> - a\n>\n> b\nlazy\n\nafter", 12),
        ["│ one two", "│ three", "│ • a", "│", "│ b lazy", "", "after"]
    );
    assert_eq!(render("> > x\n> y", 40), ["│ │ x y"]);
}

#[test]
fn code_is_neither_parsed_nor_wrapped_at_spaces() {
    assert_eq!(render("```\n**a**  b c d\n\n\tx\n```", 12), ["  **a**  b c", "   d", "", "      x"]);
    assert_eq!(render("a\n\n    b\n\n\n    c\n\nd", 40), ["a", "", "  b", "", "", "  c", "", "d"]);
    assert_eq!(render("~~~~\n```\n~~~\n~~~~~\nx", 40), ["  ```", "  ~~~", "", "x"]);
    assert_eq!(render("```\nnot closed", 40), ["  not closed"]);
}

#[test]
fn code_has_syntax_colours() {
    let theme = Theme::dark();
    let rows = whole("```rust\nfn x() {} // y\n```", 40);
    let styles: Vec<_> = rows[0].spans.iter().map(|span| (&*span.content, span.style)).collect();
    assert!(styles.contains(&("fn", theme.keyword)) && styles.contains(&("// y", theme.comment)), "{styles:?}");
}

#[test]
fn tables_are_recognized() {
    let source = "Before\n| a | b |\n|---|--:|\n| 1 | 22 |\n| `x\\|y` | 3 |\n\nafter";
    let expected = ["Before", "", "a   │  b", "────┼───", "1   │ 22", "x|y │  3", "", "after"];
    assert_eq!(render(source, 40), expected);
    assert_eq!(render("| a | b |\n|---|\n", 40), ["| a | b | |---|"]);
}

#[test]
fn hard_breaks_and_html_are_shown() {
    assert_eq!(render("a  \nb\\\nc\nd", 40), ["a", "b", "c d"]);
    assert_eq!(render("a\t\nb", 40), ["a b"]);
    assert_eq!(render("a `b  \nc` d", 40), ["a b   c d"]);
    assert_eq!(render("<div>\n*x*\n</div>\n\n*y*", 40), ["<div>", "*x*", "</div>", "", "y"]);
    assert_eq!(render("<!-- a\n\nb -->\nc", 40), ["<!-- a", "", "b -->", "c"]);
}

#[test]
fn text_that_only_looks_like_a_block_is_a_paragraph() {
    for source in
        ["1986. A year", "-x", "#x", "a\n2. b", "~~x", "**b** c", "+1", "``` x ``` y", "a | b", "10000000000. x"]
    {
        let rows = render(source, 40);
        assert_eq!(rows.len(), 1, "{source:?}: {rows:?}");
    }
}

#[test]
fn a_line_after_a_hard_break_is_not_parsed_as_a_block() {
    for line in ["    - x", "    # x", "    <div>", "1.", "    ===", "    > x", "    ```"] {
        assert_eq!(render(&format!("a  \n{line}"), 40), ["a", line.trim()]);
        assert_eq!(render(&format!("a\\\n{line}"), 40), ["a", line.trim()]);
    }
}

#[test]
fn deltas_do_not_change_the_rows() {
    let mut random = Random::new(5);
    for round in 0..600 {
        let text = random_text(&mut random, 30);
        let width = 1 + random.below(50) as u16;
        let expected = whole(&text, width);
        let longest = 1 + random.below(12);
        let rows = in_deltas(&random_split(&mut random, &text, longest), width);
        assert_eq!(rows, expected, "round {round}, width {width}: {text:?}");
        assert!(widest(&rows) <= usize::from(width), "round {round}, width {width}: {text:?} {rows:?}");
    }
}

#[test]
fn finished_rows_and_the_tail_are_what_the_document_would_be_if_it_ended() {
    let mut random = Random::new(6);
    for round in 0..150 {
        let text = random_text(&mut random, 25);
        let width = 5 + random.below(40) as u16;
        let mut stream = MarkdownStream::new(Theme::dark());
        let mut rows = Vec::new();
        let mut source = String::new();
        for delta in random_split(&mut random, &text, 9) {
            stream.push(delta);
            source.push_str(delta);
            rows.extend(stream.take_finished(width));
            let last = source.rsplit('\n').next().unwrap_or_default();
            if is_ambiguous(last.strip_suffix('\r').unwrap_or(last)) {
                continue;
            }
            let mut shown = rows.clone();
            shown.extend(stream.tail(width));
            assert_eq!(shown, whole(&source, width), "round {round}, width {width}: {source:?}");
        }
    }
}

#[test]
fn a_marker_alone_does_not_change_the_tail() {
    let mut stream = MarkdownStream::new(Theme::dark());
    stream.push("Intro:\n");
    assert!(stream.take_finished(40).is_empty());
    let before = stream.tail(40);
    for delta in ["-", " "] {
        stream.push(delta);
        assert!(stream.take_finished(40).is_empty());
        assert_eq!(stream.tail(40), before);
    }
    stream.push("x");
    assert_eq!(plain(&stream.take_finished(40)), Vec::<String>::new());
    assert_eq!(plain(&stream.tail(40)), ["Intro:", "• x"]);
}

#[test]
fn lines_of_code_are_finished_as_they_complete() {
    let mut stream = MarkdownStream::new(Theme::dark());
    stream.push("- x\n  ```\n");
    assert_eq!(plain(&stream.take_finished(40)), ["• x"]);
    for at in 0..10_000 {
        stream.push(&format!("  line {at}\n"));
        assert_eq!(plain(&stream.take_finished(40)), [format!("    line {at}")]);
        assert!(stream.tail(40).is_empty());
    }
}

#[test]
fn items_are_finished_when_the_next_begins() {
    let mut stream = MarkdownStream::new(Theme::dark());
    for at in 1..5000 {
        stream.push(&format!("{at}. item\n"));
        assert_eq!(stream.take_finished(40).len(), usize::from(at > 1), "{at}");
        assert_eq!(plain(&stream.tail(40)), [format!("{at}. item")]);
    }
    assert_eq!(stream.finish(40).len(), 1);
}

#[test]
fn the_tail_is_bounded() {
    let mut stream = MarkdownStream::new(Theme::dark());
    stream.push(&"word ".repeat(10_000));
    assert!(stream.take_finished(80).is_empty());
    assert!(stream.tail(80).len() < 200);
    assert_eq!(stream.tail_rows(80, 5).len(), 5);
    stream.push(&"\nword word".repeat(1000));
    assert!(stream.take_finished(80).is_empty());
    assert!(stream.tail(80).len() < 200);
    assert_eq!(stream.finish(80).len(), 750);
}

#[test]
fn a_long_message_in_small_deltas_is_parsed_once() {
    for sample in ["text without an end ", "word **b**\n", "- item\n", "> quote\n", "| a | b |\n|---|---|\n", "```\n"] {
        // Lines and inline content are parsed once each, and 20 previews of at most 8 KiB each twice.
        let length = 80_000;
        let parsed = parsed_bytes(sample, length);
        assert!(parsed <= 2 * length + 20 * 2 * 9 * 1024, "{sample:?}: {parsed}");
    }
}

#[test]
fn a_huge_block_is_rendered_in_parts_and_complete() {
    for (begin, sample) in [("| a | b |\n|---|---|\n", "| one | two |\n"), ("", "word "), ("", "words\n")] {
        let count = 1_000_000 / sample.len();
        let mut stream = MarkdownStream::new(Theme::dark());
        stream.push(begin);
        let (mut rows, mut largest) = (Vec::new(), 0);
        for _ in 0..count {
            stream.push(sample);
            let finished = plain(&stream.take_finished(80));
            largest = largest.max(finished.len());
            rows.extend(finished);
        }
        rows.extend(plain(&stream.finish(80)));
        let words = rows.iter().map(|row| row.matches("o").count()).sum::<usize>();
        assert_eq!(words, count * sample.matches('o').count(), "{sample:?}: nothing is lost");
        assert!(largest < 10_000 / 5, "{sample:?}: {largest} rows at once");
    }
}

#[test]
fn a_stream_can_be_used_again() {
    let mut stream = MarkdownStream::new(Theme::dark());
    stream.push("- a\n  ```\n  x");
    stream.finish(40);
    stream.push("b");
    assert_eq!(plain(&stream.finish(40)), ["b"]);
    assert!(stream.finish(40).is_empty());
}

#[test]
fn deep_nesting_leaves_place_for_text() {
    let rows = render(&format!("{}deep text here", "> ".repeat(500)), 20);
    assert!(rows.iter().any(|row| row.ends_with("deep text")) || rows.concat().contains("deep"), "{rows:?}");
    assert!(widest(&whole(&format!("{}x", "- ".repeat(500)), 9)) <= 9);
}

fn render(source: &str, width: u16) -> Vec<String> {
    plain(&whole(source, width))
}

fn whole(source: &str, width: u16) -> Vec<Line<'static>> {
    let mut stream = MarkdownStream::new(Theme::dark());
    stream.push(source);
    stream.finish(width)
}

fn in_deltas(deltas: &[&str], width: u16) -> Vec<Line<'static>> {
    let mut stream = MarkdownStream::new(Theme::dark());
    let mut rows = Vec::new();
    for delta in deltas {
        stream.push(delta);
        rows.extend(stream.take_finished(width));
    }
    rows.extend(stream.finish(width));
    rows
}

/// Returns how many bytes are parsed for a message of repeated samples, in deltas of 4 bytes and with 20 previews.
fn parsed_bytes(sample: &str, length: usize) -> usize {
    let text = sample.repeat(length / sample.len());
    take_parsed();
    let mut stream = MarkdownStream::new(Theme::dark());
    for (at, from) in (0..text.len()).step_by(4).enumerate() {
        stream.push(&text[from..(from + 4).min(text.len())]);
        stream.take_finished(80);
        if at % 1000 == 0 {
            stream.tail_rows(80, 20);
        }
    }
    stream.finish(80);
    take_parsed()
}
