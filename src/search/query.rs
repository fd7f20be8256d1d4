//! The text of a search: its words, the full-text query for them, and excerpts of what they match.
//!
//! A text matches if it contains every part of the query, whatever the case: words, and phrases in double quotes. The
//! full-text query only finds candidates, by whole words and beginnings of words; the excerpt decides.

use std::borrow::Cow;

/// A parsed query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    /// The parts in lower case.
    parts: Vec<String>,
    full_text: String,
}

/// A piece of an excerpt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The text.
    pub text: String,
    /// Whether it matches the query.
    pub is_match: bool,
}

impl SearchQuery {
    /// Parses the text of a search; `None` if it has no letter or digit to search for.
    pub fn parse(text: &str) -> Option<Self> {
        let (mut parts, mut tokens) = (Vec::new(), Vec::new());
        for (index, piece) in text.split('"').enumerate() {
            let is_phrase = index % 2 == 1;
            let found: Vec<&str> = if is_phrase { vec![piece.trim()] } else { piece.split_whitespace().collect() };
            for part in found.into_iter().filter(|part| !part.is_empty()) {
                let words: Vec<String> = words(part).take(MAX_TOKENS).collect();
                for (at, word) in words.iter().enumerate() {
                    let is_prefix = at + 1 == words.len() && !is_phrase && word.chars().count() >= MIN_PREFIX_CHARS;
                    tokens.push(format!("\"{word}\"{}", if is_prefix { "*" } else { "" }));
                }
                parts.push(part.to_lowercase());
            }
        }
        tokens.truncate(MAX_TOKENS);
        (!tokens.is_empty()).then(|| Self { parts, full_text: tokens.join(" AND ") })
    }

    /// Returns the query in the language of FTS5.
    pub fn full_text(&self) -> &str {
        &self.full_text
    }

    /// Returns an excerpt of a text around its first match, at most about `chars` characters long; `None` if the text
    /// does not match.
    pub fn excerpt(&self, text: &str, chars: usize) -> Option<Vec<Segment>> {
        let folded = FoldedText::new(text);
        let mut matches = Vec::new();
        for part in &self.parts {
            let before = matches.len();
            let found = folded.text.match_indices(part.as_str()).take(MAX_MATCHES);
            matches.extend(found.map(|(at, _)| folded.original(at)..folded.original(at + part.len())));
            if matches.len() == before {
                return None;
            }
        }
        matches.sort_by_key(|found| (found.start, found.end));
        let first = matches.first()?.clone();
        let before = text.get(..first.start).unwrap_or_default().char_indices().rev().nth(chars / 3);
        let start = before.map_or(0, |(at, _)| at);
        let rest = text.get(start..).unwrap_or_default();
        let end = rest.char_indices().nth(chars).map_or(text.len(), |(at, _)| start + at).max(first.end);
        let mut segments = Vec::new();
        push(&mut segments, if start > 0 { "…" } else { "" }, false);
        let mut at = start;
        for found in matches {
            if found.start < at || found.end > end {
                continue;
            }
            push(&mut segments, text.get(at..found.start).unwrap_or_default(), false);
            push(&mut segments, text.get(found.clone()).unwrap_or_default(), true);
            at = found.end;
        }
        push(&mut segments, text.get(at..end).unwrap_or_default(), false);
        push(&mut segments, if end < text.len() { "…" } else { "" }, false);
        Some(segments)
    }
}

/// Adds a segment, with its white space as single spaces.
fn push(segments: &mut Vec<Segment>, text: &str, is_match: bool) {
    let mut flat = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter.is_whitespace() {
            true if flat.ends_with(' ') => {}
            true => flat.push(' '),
            false => flat.push(letter),
        }
    }
    match segments.last_mut() {
        _ if flat.is_empty() => {}
        Some(last) if last.is_match == is_match => last.text.push_str(&flat),
        Some(_) | None => segments.push(Segment { text: flat, is_match }),
    }
}

/// A text in lower case, and where its parts are in the original.
struct FoldedText {
    text: String,
    /// The original position of each byte, and the end.
    positions: Vec<usize>,
}

impl FoldedText {
    fn new(original: &str) -> Self {
        let (mut text, mut positions) = (String::with_capacity(original.len()), Vec::with_capacity(original.len() + 1));
        for (at, letter) in original.char_indices() {
            for lower in letter.to_lowercase() {
                text.push(lower);
                positions.resize(text.len(), at);
            }
        }
        positions.push(original.len());
        Self { text, positions }
    }

    fn original(&self, at: usize) -> usize {
        self.positions.get(at).copied().unwrap_or_default()
    }
}

/// Returns the words of a text as the index has them.
fn words(text: &str) -> impl Iterator<Item = String> {
    let spaced = indexable(text).to_lowercase();
    let words: Vec<String> = spaced
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    words.into_iter()
}

/// Returns a text as it is indexed: scripts without spaces between words get spaces between characters.
pub fn indexable(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || !text.contains(is_unspaced) {
        return Cow::Borrowed(text);
    }
    let mut spaced = String::with_capacity(text.len() * 2);
    for letter in text.chars() {
        if is_unspaced(letter) {
            spaced.extend([' ', letter, ' ']);
        } else {
            spaced.push(letter);
        }
    }
    Cow::Owned(spaced)
}

/// Returns whether a character belongs to a script without spaces between words: Thai, Kana, Han, Hangul.
const fn is_unspaced(letter: char) -> bool {
    matches!(letter, '\u{e00}'..='\u{e7f}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}')
}

/// The maximum number of words of a query.
const MAX_TOKENS: usize = 32;
/// The minimum length of a word whose beginning matches: shorter ones match too many words.
const MIN_PREFIX_CHARS: usize = 3;
/// The maximum number of matches of one part that an excerpt considers.
const MAX_MATCHES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(query: &str, text: &str, chars: usize) -> Option<String> {
        let segments = SearchQuery::parse(query).unwrap().excerpt(text, chars)?;
        let mark =
            |segment: &Segment| if segment.is_match { format!("[{}]", segment.text) } else { segment.text.clone() };
        Some(segments.iter().map(mark).collect())
    }

    #[test]
    fn words_become_tokens_and_the_last_one_of_each_part_a_prefix() {
        let full_text = |text: &str| SearchQuery::parse(text).map(|query| query.full_text().to_owned());
        assert_eq!(full_text("Raise_budget if").as_deref(), Some("\"raise\" AND \"budget\"* AND \"if\""));
        assert_eq!(full_text("\"disk is full\"").as_deref(), Some("\"disk\" AND \"is\" AND \"full\""));
        assert_eq!(full_text("a\" OR b*").as_deref(), Some("\"a\" AND \"or\" AND \"b\""), "no operator gets through");
        assert_eq!(full_text("磁盘").as_deref(), Some("\"磁\" AND \"盘\""));
        assert_eq!((full_text(""), full_text("!? \"\"")), (None, None));
    }

    #[test]
    fn an_excerpt_needs_every_part_and_marks_all_of_them() {
        assert_eq!(shown("disk full", "The DISK\n\tis full", 80).unwrap(), "The [DISK] is [full]");
        assert_eq!(shown("disk empty", "The DISK is full", 80), None);
        assert_eq!(shown("\"disk is\"", "disk. is", 80), None, "a phrase is contiguous");
        assert_eq!(shown("盘", "磁盘满", 80).unwrap(), "磁[盘]满");
        assert_eq!(shown("i̇x", "İX", 80).unwrap(), "[İX]", "a letter whose lower case is longer");
    }

    #[test]
    fn an_excerpt_of_a_long_text_is_cut_around_its_first_match() {
        let text = format!("{}needle{}", "é ".repeat(500), " ü".repeat(500));
        let excerpt = shown("needle", &text, 30).unwrap();
        assert!(excerpt.starts_with('…') && excerpt.ends_with('…') && excerpt.contains("[needle]"), "{excerpt}");
        assert!(excerpt.chars().count() < 40, "{excerpt}");
    }
}
