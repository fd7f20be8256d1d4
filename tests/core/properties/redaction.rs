//! Redaction: however a text is split, the same is hidden, and no known value is left.
//!
//! The first byte of an input chooses the values, the second the chunks, the rest is the text. In it the
//! control characters
//! 1 to 8 stand for a value: verbatim, encoded, or cut; 14 and 15 stand for a long text, so that a stream drops
//! text that
//! it has emitted.

use std::cell::RefCell;
use std::collections::HashMap;

use pushd::redact::{MARKER, Redactor};

use super::random::Random;

/// Checks one input.
pub(crate) fn check(input: &[u8]) {
    let [choice, seed, rest @ ..] = input else { return };
    let text = String::from_utf8_lossy(rest);
    // Few inputs get their own values: each new set costs as much as a hundred texts.
    let (values, plan): (Vec<String>, &str) = if *choice < 240 || seed % 16 != 0 {
        (set_of(choice % 8).iter().map(|value| (*value).to_owned()).collect(), &*text)
    } else {
        let Some((values, plan)) = text.split_once('\0') else { return };
        (values.split('\u{9}').take(3).map(own_value).collect(), plan)
    };
    let redactor = redactor(&values);
    check_text(&values, &redactor, plan, *seed);
}

/// A redactor with these values; recent ones are cached, as an automaton takes longer to build than to use.
fn redactor(values: &[String]) -> Redactor {
    KNOWN.with_borrow_mut(|known| {
        if known.len() > MAX_CACHED_REDACTORS {
            known.clear();
        }
        let build = || Redactor::new(values.iter().map(String::as_str));
        known.entry(values.to_vec()).or_insert_with(build).clone()
    })
}

thread_local! {
    static KNOWN: RefCell<HashMap<Vec<String>, Redactor>> = RefCell::default();
}

const MAX_CACHED_REDACTORS: usize = 256;

fn set_of(set: u8) -> &'static [&'static str] {
    match set {
        0 => &[],
        1 => &["hunter2hunter2"],
        2 => &["qabababababz", "qbabababababaz", "qababz"],
        3 => &["q/\"\\+ =&%41z", "q two words\nand a line that is long enough to be a secret\tz"],
        4 => &["qé漢🦀z", "q0123456789abcdefz"],
        5 => &["qpassword=hunter2z", "qsk-0123456789abcdefghijz"],
        6 => &["q[red", "qd]abcz", "q[redactez", "qredacted]z"],
        _ => &["q-----BEGIN PRIVATE KEY-----z", "qeyJhbGciOiJIUzI1NiJ9z", "qhttps://user:pass@hostz"],
    }
}

/// A value of the input, between two letters that no marker starts or ends with.
fn own_value(text: &str) -> String {
    format!("q{}z", text.chars().take(64).collect::<String>())
}

fn check_text(values: &[String], redactor: &Redactor, plan: &str, seed: u8) {
    let text = expand(values, plan);
    let whole = redactor.redact(&text).into_owned();
    let mut random = Random::new(seed.into());
    assert_eq!(redact_stream(redactor, &text, &mut random), whole, "in pieces: {text:?}");
    assert_eq!(redactor.redact(&whole), whole, "twice: {text:?}");
    for value in values.iter().filter(|value| is_redacted_value(value)) {
        assert!(!whole.contains(value.as_str()), "{value:?} is left of {text:?}");
        let hex = hex_of(value);
        assert!(!whole.to_ascii_lowercase().contains(&hex), "{value:?} is left in digits of {text:?}");
    }
    let json = redactor.redact_json(&text);
    assert_eq!(redactor.redact_json(&json), json, "twice as JSON: {text:?}");
    let valid = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    assert!(!valid(&text) || valid(&json), "no JSON any more: {text:?}");
}

/// Replaces the control characters with their values.
fn expand(values: &[String], plan: &str) -> String {
    let mut text = String::new();
    for character in plan.chars() {
        if text.len() > MAX_TEXT_BYTES {
            break;
        }
        if let '\u{e}' | '\u{f}' = character {
            let piece = if character == '\u{e}' { "some words " } else { "x" };
            let times = if text.len() < LONG_TEXT_BYTES { LONG_TEXT_BYTES / piece.len() } else { 1 };
            text.push_str(&piece.repeat(times));
            continue;
        }
        let Some(way) = (character as usize).checked_sub(1).filter(|way| *way < 8) else {
            text.push(character);
            continue;
        };
        let Some(value) = values.get(way % values.len().max(1)) else { continue };
        match way / values.len() {
            0 => text.push_str(value),
            1 => text.push_str(&hex_of(value)),
            2 => text.extend(value.chars().take(value.chars().count() / 2)),
            3 => text.extend(value.chars().skip(value.chars().count() / 2)),
            _ => text.push_str(&serde_json::Value::from(value.as_str()).to_string()),
        }
    }
    text
}

fn redact_stream(redactor: &Redactor, text: &str, random: &mut Random) -> String {
    let largest = [1, 2, 5, 40][random.below(4) as usize];
    let (mut stream, mut shown, mut rest) = (redactor.stream(), String::new(), text);
    while !rest.is_empty() {
        let wanted = random.below(largest + 1) as usize;
        let length = rest.ceil_char_boundary(wanted);
        let (chunk, after) = rest.split_at(length);
        shown.push_str(&stream.push(chunk));
        rest = after;
    }
    shown + &stream.finish()
}

/// Whether a value is redacted wherever it occurs.
///
/// Blanks and parts of the marker at its edges do not belong to a value, and a marker inside splits it.
fn is_redacted_value(value: &str) -> bool {
    value.starts_with('q') && value.ends_with('z') && !value.contains(MARKER) && value.chars().count() >= 6
}

/// The maximum length of a text.
const MAX_TEXT_BYTES: usize = 3_000;

/// The length of a long text: more than a stream keeps of emitted text. One is enough.
const LONG_TEXT_BYTES: usize = 1_200;

fn hex_of(value: &str) -> String {
    value.bytes().map(|byte| format!("{byte:02x}")).collect()
}
