//! Best-effort extraction of the id and type of a message that cannot be decoded, so that its refusal reaches the
//! client that waits for it.
//!
//! Only fields of the outermost object count. Nothing here fails: a field that cannot be found counts as missing.

/// The id and type that were found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RequestIdentity {
    pub(super) id: Option<String>,
    pub(super) command: Option<String>,
}

/// Scans the head of an object, which may be truncated or malformed at any point.
pub(super) fn from_head(text: &[u8]) -> RequestIdentity {
    let mut found = RequestIdentity::default();
    let mut scanner = Scanner { text, at: 0 };
    scanner.skip_spaces();
    if !scanner.take(b'{') {
        return found;
    }
    while let Some((key, value)) = scanner.field() {
        match key.as_str() {
            "id" => found.id = value.or(found.id),
            "type" => found.command = value.or(found.command),
            _ => {}
        }
    }
    found
}

/// Finds the id in the tail of an object whose last field it is.
pub(super) fn id_from_tail(text: &[u8]) -> Option<String> {
    let text = text.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let before_quote = text.strip_suffix(b"\"")?;
    let is_escaped = |at: usize| before_quote[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1;
    let opening = (0..before_quote.len()).rev().find(|at| before_quote[*at] == b'"' && !is_escaped(*at))?;
    let rest = text[..opening].trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    let rest = rest.strip_suffix(b"\"id\"")?.trim_ascii_end();
    matches!(rest.last(), Some(b',' | b'{')).then_some(())?;
    serde_json::from_slice(&text[opening..]).ok()
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    /// Reads one field of the outermost object: its name, and its value if that is a string.
    fn field(&mut self) -> Option<(String, Option<String>)> {
        self.skip_spaces();
        let key = self.string()?;
        self.skip_spaces();
        self.take(b':').then_some(())?;
        self.skip_spaces();
        let value = if self.peek() == Some(b'"') { Some(self.string()?) } else { None };
        self.skip_value();
        Some((key, value))
    }

    /// Skips to after the comma that ends a value, or to the end of the readable part.
    fn skip_value(&mut self) {
        let mut depth = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' if self.string().is_none() => return,
                b'"' => continue,
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth == 0 => return,
                b'}' | b']' => depth -= 1,
                b',' if depth == 0 => {
                    self.at += 1;
                    return;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Reads a quoted string.
    fn string(&mut self) -> Option<String> {
        (self.peek() == Some(b'"')).then_some(())?;
        let from = self.at;
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b'\\' => self.at += 1,
                b'"' => return serde_json::from_slice(self.text.get(from..self.at)?).ok(),
                _ => {}
            }
        }
        None
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn take(&mut self, expected: u8) -> bool {
        let found = self.peek() == Some(expected);
        self.at += usize::from(found);
        found
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_in_what_is_there_of_an_object() {
        for (text, id, command) in [
            (r#"{"id":"a","type":"t","x":"#, Some("a"), Some("t")),
            (r#" { "x" : {"id":"inner"} , "id" : "a\"b" , oops"#, Some("a\"b"), None),
            (r#"{"x":["id","}"],"type":"t","id":7,"y":"cut"#, None, Some("t")),
            (r#"{"x":"\\","id":"a"}"#, Some("a"), None),
            (r#"{"id":"cut"#, None, None),
            (r#"{"id""#, None, None),
            (r#"["id","a"]"#, None, None),
            (r#"{oops "id":"a"}"#, None, None),
            ("{", None, None),
            ("", None, None),
            ("\"", None, None),
        ] {
            let found = from_head(text.as_bytes());
            assert_eq!((found.id.as_deref(), found.command.as_deref()), (id, command), "{text}");
        }
    }

    #[test]
    fn an_id_is_found_as_the_last_field() {
        for (text, id) in [
            (r#"xx","id":"a"}"#, Some("a")),
            (r#"xx", "id" : "a\"b\\" } "#, Some("a\"b\\")),
            (r#"xx\",\"id\":\"inner","id":"a"}"#, Some("a")),
            (r#"xx\",\"id\":\"inner"}"#, None),
            (r#""x":{"id":"inner"}}"#, None),
            (r#"xx","myid":"a"}"#, None),
            (r#""a"}"#, None),
            ("}", None),
            ("", None),
        ] {
            assert_eq!(id_from_tail(text.as_bytes()).as_deref(), id, "{text}");
        }
    }
}
