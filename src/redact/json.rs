//! Redaction inside the strings of a JSON text.
//!
//! Only strings change: numbers, order and duplicate keys stay as written.

use std::borrow::Cow;

use super::{MARKER, MaskError, Redactor, assignment};

/// Redacts every string of `json`.
pub(super) fn redact(redactor: &Redactor, json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    // Whether the previous string was a key that suggests a secret, so that its value follows.
    let mut after_secret_key = false;
    while let Some(open) = rest.find('"') {
        let (between, from) = rest.split_at(open);
        after_secret_key &= between.bytes().all(|byte| byte == b':' || byte.is_ascii_whitespace());
        out.push_str(between);
        let Some(length) = literal_length(from) else {
            out.push_str(&redactor.redact(from));
            return out;
        };
        let (string, after) = from.split_at(length);
        let decoded = decode(string);
        let is_key = after.trim_ascii_start().starts_with(':');
        match &decoded {
            Some(value) if after_secret_key && assignment::is_secret(value.as_bytes()) => push_marker(&mut out),
            Some(value) => push_redacted(redactor, string, value, &mut out),
            // A string that cannot be decoded cannot be searched.
            None => push_marker(&mut out),
        }
        after_secret_key = is_key && decoded.is_some_and(|name| assignment::key_strength(name.as_bytes()).is_some());
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Maps every string of `json`, keys included, and leaves everything else unchanged.
pub(super) fn map_strings(
    json: &str,
    mut map: impl FnMut(&str) -> Result<String, MaskError>,
) -> Result<String, MaskError> {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(open) = rest.find('"') {
        let (between, from) = rest.split_at(open);
        out.push_str(between);
        let (string, after) = from.split_at(literal_length(from).ok_or(MaskError::NotJson)?);
        let value = decode(string).ok_or(MaskError::NotJson)?;
        let mapped = map(&value)?;
        if mapped == value {
            // Unchanged strings keep their original escapes.
            out.push_str(string);
        } else {
            out.push_str(&serde_json::Value::from(mapped).to_string());
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn push_marker(out: &mut String) {
    out.push('"');
    out.push_str(MARKER);
    out.push('"');
}

fn push_redacted(redactor: &Redactor, string: &str, value: &str, out: &mut String) {
    match redactor.redact(value) {
        // Unchanged strings keep their original escapes.
        Cow::Borrowed(_) => out.push_str(string),
        Cow::Owned(redacted) => out.push_str(&serde_json::Value::from(redacted).to_string()),
    }
}

/// Returns the length of the string literal that `text` begins with.
fn literal_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

fn decode(literal: &str) -> Option<Cow<'_, str>> {
    if literal.contains('\\') {
        serde_json::from_str::<String>(literal).ok().map(Cow::Owned)
    } else {
        literal.get(1..literal.len() - 1).map(Cow::Borrowed)
    }
}
