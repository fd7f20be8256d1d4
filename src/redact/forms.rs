//! The encoded forms of a known value: plain, base64, percent-encoded, JSON-escaped, hexadecimal.
//!
//! This module generates the patterns; the scanner matches them.

use std::collections::BTreeSet;

use super::MARKER;

/// Shorter values and forms are not matched.
const FORM_MIN: usize = 6;
/// Longer values are matched in pieces of this many bytes, so that the buffer of a stream stays small.
const PART_BYTES: usize = 1024;
/// Lines of a multi-line value that are at least this long are matched separately.
const LONG_LINE: usize = 24;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Returns every form of every value, each once.
pub(super) fn encoded_forms<'a>(values: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    for value in values {
        let value = value.trim();
        if value.chars().count() < FORM_MIN {
            continue;
        }
        for part in value.split(MARKER) {
            split_long(part).into_iter().for_each(|part| add_forms(part, &mut forms));
        }
        for line in value.lines().map(str::trim).filter(|line| *line != value) {
            // A key is often printed with its lines indented or quoted one by one.
            if line.len() >= LONG_LINE && !line.contains(char::is_whitespace) {
                split_long(line).into_iter().for_each(|part| add_forms(part, &mut forms));
            }
        }
    }
    forms.iter().map(|form| trim_marker_parts(form)).filter(|form| form.len() >= FORM_MIN).map(str::to_owned).collect()
}

fn add_forms(value: &str, forms: &mut BTreeSet<String>) {
    forms.insert(value.to_owned());
    forms.insert(value.replace('\n', "\r\n"));
    forms.extend(json_escaped(value));
    forms.extend(percent_encoded(value));
    forms.insert(value.bytes().map(|byte| format!("{byte:02x}")).collect());
    forms.insert(value.bytes().map(|byte| format!("{byte:02X}")).collect());
    for alphabet in [STANDARD, URL_SAFE] {
        for before in 0..3 {
            add_base64(value.as_bytes(), before, alphabet, forms);
        }
    }
}

/// Splits a long value into parts of at most [`PART_BYTES`] bytes; no part is too short to be matched.
fn split_long(value: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = value;
    while rest.len() > PART_BYTES + 4 * FORM_MIN {
        let (part, after) = rest.split_at(rest.floor_char_boundary(PART_BYTES));
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

/// Trims from a form whatever is a prefix or suffix of the marker.
///
/// Otherwise text next to a marker could match together with it, and redaction would not be idempotent.
fn trim_marker_parts(mut form: &str) -> &str {
    loop {
        let before = form.len();
        for length in 1..=MARKER.len() {
            let (head, tail) = (&MARKER[..length], &MARKER[MARKER.len() - length..]);
            form = form.strip_suffix(head).unwrap_or(form);
            form = form.strip_prefix(tail).unwrap_or(form);
        }
        if form.len() == before {
            return form;
        }
    }
}

/// Adds the base64 forms of `value` when `before` bytes precede it in the encoded data.
///
/// A form contains only characters that depend on the value alone: those in the middle, and those at the end when
/// nothing follows the value, with and without padding.
fn add_base64(value: &[u8], before: usize, alphabet: &[u8; 64], forms: &mut BTreeSet<String>) {
    let skipped = [0, 2, 3][before];
    let mut bytes = vec![0; before];
    bytes.extend_from_slice(value);
    let sextets = (bytes.len() * 8).div_ceil(6);
    let whole = bytes.len() * 8 / 6;
    let character = |index: usize| {
        let sextet = (0..6).fold(0, |bits, offset| {
            let bit = index * 6 + offset;
            let set = bytes.get(bit / 8).is_some_and(|byte| byte >> (7 - bit % 8) & 1 == 1);
            bits << 1 | usize::from(set)
        });
        char::from(alphabet[sextet])
    };
    let middle: String = (skipped..whole).map(character).collect();
    let mut ended: String = (skipped..sextets).map(character).collect();
    forms.insert(middle);
    forms.insert(ended.clone());
    while !(ended.len() + skipped).is_multiple_of(4) {
        ended.push('=');
    }
    forms.insert(ended);
}

fn percent_encoded(value: &str) -> impl Iterator<Item = String> {
    // What the common encoders leave unescaped: RFC 3986, encodeURIComponent, encodeURI, shell quoting, nothing.
    const KEPT: [&[u8]; 5] = [b"-_.~", b"-_.~!*'()", b"-_.~!*'();/?:@&=+$,#", b"-_.~/", b""];
    let mut forms = Vec::new();
    for kept in KEPT {
        let encode = |lower: bool, plus: bool, all: bool| -> String {
            let mut form = String::new();
            for byte in value.bytes() {
                match byte {
                    b' ' if plus => form.push('+'),
                    _ if !all && (byte.is_ascii_alphanumeric() || kept.contains(&byte)) => form.push(char::from(byte)),
                    _ if lower => form.push_str(&format!("%{byte:02x}")),
                    _ => form.push_str(&format!("%{byte:02X}")),
                }
            }
            form
        };
        let all = kept.is_empty();
        for (lower, plus) in [(false, false), (true, false), (false, true), (true, true)] {
            forms.push(encode(lower, plus, all));
        }
    }
    // Some programs encode only the spaces of a URL.
    forms.push(value.replace(' ', "%20"));
    forms.into_iter()
}

fn json_escaped(value: &str) -> impl Iterator<Item = String> {
    let plain = json_escape(value);
    let slashes = plain.replace('/', "\\/");
    let markup = plain.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let ascii = |upper: bool| -> String {
        let mut form = String::new();
        for character in plain.chars() {
            if character.is_ascii() {
                form.push(character);
                continue;
            }
            for unit in character.encode_utf16(&mut [0; 2]) {
                form.push_str(&if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") });
            }
        }
        form
    };
    // JSON inside a JSON string is escaped twice.
    let twice = json_escape(&plain);
    [ascii(false), ascii(true), slashes, markup, twice, plain].into_iter()
}

/// Escapes `value` for use inside a JSON string.
fn json_escape(value: &str) -> String {
    let literal = serde_json::Value::from(value).to_string();
    literal[1..literal.len() - 1].to_owned()
}
