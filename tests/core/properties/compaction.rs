//! `canonical_json`: an accepted line keeps its values and loses all space between tokens; only invalid lines
//! are refused.
//!
//! An input is a raw line.

use pushd::transport::canonical_json::{Limits, canonicalize};

use super::json::Json;

/// Checks one input.
pub(crate) fn check(input: &[u8]) {
    check_at(input, Limits::default());
    check_at(input, Limits { depth: 3 });
}

fn check_at(line: &[u8], limits: Limits) {
    let parsed = Json::parse(line);
    let passes = parsed.as_ref().is_some_and(|value| {
        matches!(value, Json::Object(_)) && value.depth() <= limits.depth && !value.has_duplicate_keys()
    });
    match canonicalize(line, limits) {
        Ok(out) => {
            assert!(passes, "another reader would not take it");
            assert_eq!(out, without_space(line), "a token was changed");
            assert!(out.iter().all(|byte| *byte >= b' '), "a control character has passed");
            assert_eq!(Json::parse(&out), parsed, "the values differ");
            assert_eq!(canonicalize(&out, limits).as_ref(), Ok(&out), "twice differs");
        }
        Err(problem) => {
            assert!(!passes, "turned away without need: {problem}");
            let text = problem.to_string();
            assert!(text.len() < 600 && !text.contains('\n'), "no answer can hold {text:?}");
        }
    }
}

/// The line without space between its tokens; for valid JSON only.
fn without_space(line: &[u8]) -> Vec<u8> {
    let (mut inside, mut escaped) = (false, false);
    let mut out = Vec::with_capacity(line.len());
    for &byte in line {
        if inside || !byte.is_ascii_whitespace() {
            out.push(byte);
        }
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            _ => {}
        }
    }
    out
}
