//! The front matter of a Markdown file: lines of `key: value` between two lines of dashes.
//!
//! The parser covers the part of YAML that is common there: plain and quoted values, and values over several lines.
//! Nested values are skipped. Parsing cannot fail, and values are bounded and cannot refer to other values.

/// The maximum number of characters of a value.
const VALUE_CHARS_MAX: usize = 1024;

/// Returns the first value of a key, joined into one line.
pub(super) fn field(head: &str, key: &str) -> Option<String> {
    let mut lines = head.lines();
    while let Some(line) = lines.next() {
        let Some(rest) = line.strip_prefix(key).and_then(|rest| rest.trim_start().strip_prefix(':')) else {
            continue;
        };
        let rest = rest.trim();
        let value = match rest.chars().next() {
            Some('"') => quoted_value(rest, '"'),
            Some('\'') => quoted_value(rest, '\''),
            Some('|' | '>') => indented_lines(lines),
            None => indented_lines(lines),
            Some(_) => {
                let plain = rest.split(" #").next().unwrap_or_default().trim();
                join_lines(plain, indented_lines(lines))
            }
        };
        return Some(normalize(&value)).filter(|value| !value.is_empty());
    }
    None
}

/// Splits a file into its front matter and its body; without dashes there is no front matter.
pub(super) fn split(text: &str) -> (&str, &str) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Some(rest) = after_dashes(text) else { return ("", text) };
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return (&rest[..at], &rest[at + line.len()..]);
        }
        at += line.len();
    }
    ("", text)
}

/// Returns the first line of a body with text, without the marks of a heading.
pub(super) fn first_line(body: &str) -> Option<String> {
    let line = body.lines().map(|line| line.trim_start_matches('#').trim()).find(|line| !line.is_empty())?;
    Some(normalize(line)).filter(|line| !line.is_empty())
}

fn after_dashes(text: &str) -> Option<&str> {
    let (first, rest) = text.split_once('\n')?;
    (first.trim_end() == "---").then_some(rest)
}

/// The indented lines, which belong to the key above them.
fn indented_lines(lines: std::str::Lines<'_>) -> String {
    let inner = lines.take_while(|line| line.trim().is_empty() || line.starts_with([' ', '\t']));
    inner.map(str::trim).collect::<Vec<_>>().join(" ")
}

fn join_lines(first: &str, rest: String) -> String {
    if rest.is_empty() { first.to_owned() } else { format!("{first} {rest}") }
}

/// The text between quotation marks; two single quotes stand for one, and a backslash escapes the next character.
fn quoted_value(text: &str, mark: char) -> String {
    let mut value = String::new();
    let mut letters = text.chars().skip(1).peekable();
    while let Some(letter) = letters.next() {
        if letter == mark && mark == '\'' && letters.peek() == Some(&mark) {
            letters.next();
            value.push(mark);
        } else if letter == mark {
            break;
        } else if letter == '\\' && mark == '"' {
            value.push(match letters.next() {
                Some('n' | 't' | 'r') | None => ' ',
                Some(other) => other,
            });
        } else {
            value.push(letter);
        }
    }
    value
}

/// One line of single spaces, without control characters and of bounded length.
fn normalize(value: &str) -> String {
    let words: Vec<&str> = value.split_whitespace().collect();
    words.join(" ").chars().filter(|letter| !letter.is_control()).take(VALUE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(head: &str) -> Option<String> {
        field(head, "description")
    }

    #[test]
    fn front_matter_is_found_between_dashes() {
        assert_eq!(split("---\na: b\n---\nbody\n"), ("a: b\n", "body\n"));
        assert_eq!(split("\u{feff}---\r\na: b\r\n---\r\nbody"), ("a: b\r\n", "body"));
        assert_eq!(split("---\na: b\n---"), ("a: b\n", ""));
        for text in ["", "body", "---", "---\n", "---\na: b\n", "--- \u{7f}\nx\n---\n", "\n---\na: b\n---\n"] {
            assert_eq!(split(text), ("", text), "{text:?}");
        }
    }

    #[test]
    fn common_yaml_values_are_parsed() {
        for (head, expected) in [
            ("name: x\ndescription: Says hello\n", "Says hello"),
            ("description: Says hello # to all", "Says hello"),
            ("description:Says hello", "Says hello"),
            ("description: \"Says: \\\"hello\\\"\" # x", "Says: \"hello\""),
            ("description: 'It''s fine'", "It's fine"),
            ("description: >-\n  Says\n  hello\n\n  twice\nother: x", "Says hello twice"),
            ("description: |\n  Says\n  hello", "Says hello"),
            ("description:\n  Says\n  hello\n", "Says hello"),
            ("description: Says\n  hello\n", "Says hello"),
            ("descriptions: no\ndescription: yes", "yes"),
            ("description: a\u{1b}[31mb", "a[31mb"),
            ("description: first\ndescription: second", "first"),
        ] {
            assert_eq!(described(head).as_deref(), Some(expected), "{head}");
        }
        for head in ["", "name: x", "description:", "description: \"\"", "  description: nested", "description"] {
            assert_eq!(described(head), None, "{head}");
        }
        let long = format!("description: {}", "é".repeat(5000));
        assert_eq!(described(&long).map(|value| value.chars().count()), Some(VALUE_CHARS_MAX));
    }

    #[test]
    fn the_first_line_describes_a_body_without_front_matter() {
        assert_eq!(first_line("\n\n## Fix the tests\nnow").as_deref(), Some("Fix the tests"));
        assert_eq!(first_line("\n \n#\n"), None);
    }
}
