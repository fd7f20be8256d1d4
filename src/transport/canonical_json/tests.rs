//! Tests of the JSON scanner: a table of hostile lines, and random ones compared with the result of serde_json.

use super::*;

use crate::random::Random;
use serde_json::Value;

#[test]
fn white_space_goes_and_tokens_stay_as_they_were() {
    let cases = [
        ("{}", "{}"),
        (" \t\r\n{ \n} \n", "{}"),
        (r#"{ "b" : 1 , "a" : [ 1 , 2 , { } , [ ] ] }"#, r#"{"b":1,"a":[1,2,{},[]]}"#),
        ("{\"a\":\n\n\n\"x y\"\r\n}", r#"{"a":"x y"}"#),
        (
            r#"{"n": 123456789012345678901234567890, "m":-0.0e+00 }"#,
            r#"{"n":123456789012345678901234567890,"m":-0.0e+00}"#,
        ),
        (r#"{"n":1.10, "e":1E5,"s":"\u0041\/"}"#, r#"{"n":1.10,"e":1E5,"s":"\u0041\/"}"#),
        (r#"{"t":true , "f":false,"n":null}"#, r#"{"t":true,"f":false,"n":null}"#),
        (r#"{"pair":"\ud83d\ude00","raw":"😀","":""}"#, r#"{"pair":"\ud83d\ude00","raw":"😀","":""}"#),
        (r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]}"#, r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]}"#),
        (r#"{"nul":"\u0000","del":""}"#, r#"{"nul":"\u0000","del":""}"#),
    ];
    for (line, expected) in cases {
        assert_eq!(canonical(line).as_deref(), Ok(expected), "{line}");
    }
}

#[test]
fn invalid_json_is_refused_with_its_position() {
    let cases = [
        ("", 0),
        ("   ", 3),
        ("{", 1),
        ("}", 0),
        ("{}}", 2),
        ("{}{}", 2),
        ("{} x", 3),
        ("{\"a\":1}\n{\"b\":2}", 8),
        ("{\"a\" 1}", 5),
        ("{\"a\":}", 5),
        ("{\"a\":1,}", 7),
        ("{,}", 1),
        ("{a:1}", 1),
        ("{'a':1}", 1),
        ("{\"a\":[1,]}", 8),
        ("{\"a\":[1}", 7),
        ("{\"a\":1]", 6),
        ("{\"a\":01}", 6),
        ("{\"a\":-}", 6),
        ("{\"a\":+1}", 5),
        ("{\"a\":.5}", 5),
        ("{\"a\":1.}", 7),
        ("{\"a\":1e}", 7),
        ("{\"a\":1e+}", 8),
        ("{\"a\":0x1}", 6),
        ("{\"a\":NaN}", 5),
        ("{\"a\":Infinity}", 5),
        ("{\"a\":nul}", 8),
        ("{\"a\":truetrue}", 9),
        ("{\"a\":\"\\x\"}", 7),
        ("{\"a\":\"\\u12g4\"}", 10),
        ("{\"a\":\"\\u12", 10),
        ("{\"a\":\"\\", 7),
        ("{\"a\":\"x", 7),
        ("{\"a\":\"x\ny\"}", 7),
        ("{\"a\":\"x\u{0}y\"}", 7),
        ("{\"a\u{1f}\":1}", 3),
        ("{\"a\":\"a text that is long enough for the wide search\ty\"}", 52),
        ("{/* no */}", 1),
        ("\u{feff}{}", 0),
        ("{\u{a0}}", 1),
        ("{}\u{0}", 2),
        ("x", 0),
    ];
    for (line, at) in cases {
        assert_eq!(canonical(line), Err(JsonError::NotJson { at }), "{line}");
    }
}

#[test]
fn json_that_is_no_object_is_refused() {
    for line in ["[]", "[{}]", "\"{}\"", "1", "-1", "null", "true", " false "] {
        assert_eq!(canonical(line), Err(JsonError::NotAnObject), "{line}");
    }
}

#[test]
fn bytes_that_are_not_utf_8_are_refused() {
    for (line, at) in
        [(&b"\xff"[..], 0), (b"{\"a\":\"\xc3\x28\"}", 6), (b"{\"\xed\xa0\x80\":1}", 2), (b"{}\xf0\x9f", 2)]
    {
        assert_eq!(canonicalize(line, Limits::default()), Err(JsonError::NotUtf8 { at }));
    }
}

#[test]
fn keys_are_compared_by_what_they_stand_for() {
    let cases = [
        (r#"{"a":1,"a":2}"#, "a"),
        (r#"{"a":1,"\u0061":2}"#, "a"),
        (r#"{"\u0061":1,"\u0061":2}"#, "a"),
        (r#"{"\/":1,"/":2}"#, "/"),
        (r#"{"😀":1,"\ud83d\ude00":2}"#, "😀"),
        (r#"{"\n":1,"\u000a":2}"#, "\n"),
        (r#"{"":1,"":2}"#, ""),
        (r#"{"x":[{"k\t":{"in":1},"b":2,"k\u0009":3}]}"#, "k\t"),
        (r#"{"a":{"b\n":1},"b\n":2,"c":{},"b\u000A":3}"#, "b\n"),
    ];
    for (line, key) in cases {
        assert_eq!(canonical(line), Err(JsonError::DuplicateKey { key: key.to_owned() }), "{line}");
    }
    for line in [r#"{"a":1,"A":2,"a ":3,"\\u0061":4,"":5}"#, "{\"\u{e9}\":1,\"e\u{301}\":2}"] {
        assert_eq!(canonical(line).as_deref(), Ok(line));
    }
}

#[test]
fn a_duplicate_among_many_keys_is_found_and_a_long_key_is_truncated() {
    let many: Vec<String> = (0..5000).map(|n| format!("\"k{}\":{n}", (n * 7919) % 5000)).collect();
    let line = format!("{{{}}}", many.join(","));
    assert_eq!(canonical(&line).as_deref(), Ok(&line[..]));
    let line = format!("{{{},\"\\u006b77\":0}}", many.join(","));
    assert_eq!(canonical(&line), Err(JsonError::DuplicateKey { key: "k77".to_owned() }));
    let long = "ü".repeat(10_000);
    let refusal = canonical(&format!("{{\"{long}\":1,\"{long}\":2}}"));
    assert_eq!(refusal, Err(JsonError::DuplicateKey { key: "ü".repeat(64) }));
}

#[test]
fn half_of_a_surrogate_pair_is_refused() {
    let cases = [
        (r#"{"a":"\ud800"}"#, 6),
        (r#"{"a":"x\udc00"}"#, 7),
        (r#"{"a":"\ud800x"}"#, 6),
        (r#"{"a":"\ud800\n"}"#, 6),
        (r#"{"a":"\ud800\ud800"}"#, 6),
        (r#"{"\udfff":1}"#, 2),
    ];
    for (line, at) in cases {
        assert_eq!(canonical(line), Err(JsonError::LoneSurrogate { at }), "{line}");
    }
}

#[test]
fn numbers_that_readers_would_disagree_about_are_refused() {
    let digits = "9".repeat(400);
    for number in ["1e400", "-1E+400", &digits[..], &format!("{digits}.5")[..]] {
        assert_eq!(canonical(&format!("{{\"a\":{number}}}")), Err(JsonError::NumberOutOfRange { at: 5 }), "{number}");
    }
    for number in ["1e308", "1e-400", "0e999", &digits[..300], &format!("0.{digits}")[..]] {
        let line = format!("{{\"a\":{number}}}");
        assert_eq!(canonical(&line), Ok(line));
    }
}

#[test]
fn depth_is_bounded_and_costs_no_stack() {
    for (opening, closing) in [("{\"a\":", "}"), ("[", "]")] {
        let nested = |times: usize| format!("{{\"a\":{}1{}}}", opening.repeat(times), closing.repeat(times));
        assert_eq!(canonical(&nested(63)), Ok(nested(63)));
        assert_eq!(canonical(&nested(64)), Err(JsonError::TooDeep { limit: 64 }));
        assert_eq!(canonical(&nested(1_000_000)), Err(JsonError::TooDeep { limit: 64 }));
    }
    assert_eq!(canonicalize(b"{\"a\":{}}", Limits { depth: 1 }), Err(JsonError::TooDeep { limit: 1 }));
    assert_eq!(canonicalize(b"{\"a\":1}", Limits { depth: 1 }), Ok(b"{\"a\":1}".to_vec()));
}

#[test]
fn a_control_character_is_refused_at_every_position() {
    for length in 1..80 {
        for place in 0..length {
            for control in [b'\n', b'\r', 0, 0x1f] {
                let mut inside = vec![b'x'; length];
                inside[place] = control;
                let line = [b"{\"a\":\"", &inside[..], b"\"}"].concat();
                assert_eq!(canonicalize(&line, Limits::default()), Err(JsonError::NotJson { at: 6 + place }));
            }
        }
    }
}

#[test]
fn random_lines_keep_their_meaning() {
    for seed in 1..=4000 {
        let mut random = Random::new(seed);
        let mut line = String::new();
        random.object(&mut line, 0);
        let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("seed {seed}: {error}: {line}"));
        let out = canonicalize(line.as_bytes(), Limits::default())
            .unwrap_or_else(|error| panic!("seed {seed}: {error}: {line}"));
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), value, "seed {seed}: {line}");
        assert!(!out.contains(&b'\n') && !out.contains(&b'\r'), "seed {seed}: {line}");
        assert_eq!(canonicalize(&out, Limits::default()).as_ref(), Ok(&out), "seed {seed}: not idempotent");
    }
}

#[test]
fn damaged_lines_are_accepted_exactly_when_serde_json_accepts_them() {
    for seed in 1..=3000 {
        let mut random = Random::new(seed);
        let mut line = String::new();
        random.object(&mut line, 0);
        for _ in 0..12 {
            let damaged = random.damage(line.as_bytes());
            let theirs = serde_json::from_slice::<Value>(&damaged);
            let shown = String::from_utf8_lossy(&damaged);
            match canonicalize(&damaged, Limits::default()) {
                Ok(out) => {
                    let value = theirs.unwrap_or_else(|error| panic!("seed {seed}: let in {shown}: {error}"));
                    assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), value, "seed {seed}: {shown}");
                }
                // Only this scanner rejects these: serde_json keeps the last of two equal keys and allows deeper
                // nesting.
                Err(JsonError::DuplicateKey { .. } | JsonError::TooDeep { .. } | JsonError::NotAnObject) => {}
                Err(problem) => assert!(theirs.is_err(), "seed {seed}: {problem}: {shown}"),
            }
        }
    }
}

#[test]
fn every_beginning_of_a_line_is_refused() {
    let line = r#" { "a" : [ 1.5e3 , -0 , true , null , "x\u00e9\ud83d\ude00é" ] , "b\n" : { } }"#;
    assert!(canonical(line).is_ok());
    for end in 0..line.len() {
        assert!(canonicalize(&line.as_bytes()[..end], Limits::default()).is_err(), "{end} bytes were let in");
    }
}

fn canonical(line: &str) -> Result<String, JsonError> {
    canonicalize(line.as_bytes(), Limits::default()).map(|out| String::from_utf8(out).unwrap())
}

/// Random lines.
impl Random {
    fn space(&mut self, out: &mut String) {
        out.push_str(self.pick(&["", "", "", " ", "\n", "\t \r\n"]).unwrap());
    }

    fn object(&mut self, out: &mut String, depth: usize) {
        self.space(out);
        out.push('{');
        self.space(out);
        for index in 0..self.index(if depth == 0 { 20 } else { 4 }) {
            if index > 0 {
                out.push(',');
                self.space(out);
            }
            // The index keeps keys distinct; the rest may use any escapes.
            out.push_str(&format!("\"{index}-"));
            self.characters(out);
            out.push('"');
            self.space(out);
            out.push(':');
            self.value(out, depth + 1);
        }
        out.push('}');
        self.space(out);
    }

    fn value(&mut self, out: &mut String, depth: usize) {
        self.space(out);
        match self.index(if depth > 6 { 6 } else { 8 }) {
            0 => out.push_str(self.pick(&["true", "false", "null"]).unwrap()),
            1 | 2 => out.push_str(
                self.pick(&[
                    "0",
                    "-0",
                    "1",
                    "-12",
                    "3.25",
                    "1e3",
                    "1E-3",
                    "-2.5e+10",
                    "18446744073709551616",
                    "9007199254740993",
                    "0.1",
                ])
                .unwrap(),
            ),
            3..=5 => {
                out.push('"');
                self.characters(out);
                out.push('"');
            }
            6 => self.object(out, depth),
            _ => {
                out.push('[');
                for index in 0..self.index(4) {
                    if index > 0 {
                        out.push(',');
                    }
                    self.value(out, depth + 1);
                }
                self.space(out);
                out.push(']');
            }
        }
        self.space(out);
    }

    fn characters(&mut self, out: &mut String) {
        for _ in 0..self.index(9) {
            out.push_str(
                self.pick(&[
                    "a",
                    "plain text that goes on for a while",
                    "é",
                    "😀",
                    " ",
                    "\\n",
                    "\\\"",
                    "\\\\",
                    "\\/",
                    "\\u0041",
                    "\\ud83d\\ude00",
                    "\\u0000",
                    "{",
                    "}",
                    "[",
                    ",",
                    ":",
                    "\u{2028}",
                    "\u{7f}",
                ])
                .unwrap(),
            );
        }
    }

    fn damage(&mut self, line: &[u8]) -> Vec<u8> {
        let mut line = line.to_vec();
        for _ in 0..=self.index(3) {
            let at = self.index(line.len().max(1)).min(line.len());
            match self.index(5) {
                0 => line.truncate(at),
                1 if at < line.len() => drop(line.remove(at)),
                2 if at < line.len() => line[at] = u8::try_from(self.index(256)).unwrap(),
                3 => line.insert(at, b"{}[]\",:\\ \n0e-.u"[self.index(15)]),
                _ => {
                    let from = self.index(at + 1);
                    let piece = line[from..at].to_vec();
                    line.splice(at..at, piece);
                }
            }
        }
        line
    }
}
