//! Randomised tests over chunkings and encodings.

mod approval;
mod shapes;

use super::*;
use crate::random::Random;
use crate::sandbox::output::Utf8Decoder;

/// Chunkings tried by default, and with `PUSH_LONG=1`.
const CHUNKINGS: u64 = 20_000;
const MANY_CHUNKINGS: u64 = 1_000_000;
const CHUNKINGS_PER_REDACTOR: u64 = 100;

#[test]
fn no_chunking_and_no_encoding_leaks_a_known_value() {
    let many = std::env::var_os("PUSH_LONG").is_some_and(|value| value == "1");
    let total = if many { MANY_CHUNKINGS } else { CHUNKINGS };
    for seed in 0..total / CHUNKINGS_PER_REDACTOR {
        let mut random = Random::new(seed);
        let secrets: Vec<String> = (0..1 + random.index(4)).map(|_| random_secret(&mut random)).collect();
        let redactor = Redactor::new(secrets.iter().map(String::as_str));
        for round in 0..CHUNKINGS_PER_REDACTOR {
            let text = random_text(&secrets, &mut random);
            let whole = redactor.redact(&text);
            let streamed = in_chunks(&redactor, &text, &mut random);
            assert_eq!(streamed, whole, "seed {seed} round {round}: {text:?}");
            assert_eq!(redactor.redact(&whole), whole, "seed {seed} round {round}: twice differs: {text:?}");
            for secret in &secrets {
                assert_hidden(secret, &whole, &format!("seed {seed} round {round}: {text:?}"));
            }
        }
    }
}

#[test]
fn json_stays_valid_and_hides_what_text_hides() {
    let secrets = [
        random_secret(&mut Random::new(1)),
        random_secret(&mut Random::new(2)),
        random_secret(&mut Random::new(3)),
        random_secret(&mut Random::new(4)),
    ];
    let redactor = Redactor::new(secrets.iter().map(String::as_str));
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let (key, value) = (random_text(&secrets, &mut random), random_text(&secrets, &mut random));
        let inner = serde_json::json!({ "text": value }).to_string();
        let json = serde_json::json!({ key: [1.5, value, null], "nested": inner, "n": 12345678901234567890_u64 });
        let redacted = redactor.redact_json(&json.to_string());
        let parsed: serde_json::Value = serde_json::from_str(&redacted).expect("valid JSON");
        assert_eq!(redactor.redact_json(&redacted), redacted, "seed {seed}");
        assert_eq!(parsed["n"], json["n"], "seed {seed}");
        for secret in &secrets {
            assert_hidden(secret, &redacted, &format!("seed {seed}"));
            for_each_string(&parsed, &mut |text| assert_hidden(secret, text, &format!("seed {seed}")));
        }
    }
}

#[test]
fn json_is_redacted_by_key_and_otherwise_kept_as_written() {
    let redactor = Redactor::new(["line one\nline two"]);
    let table = [
        (r#"{"password":"hunter2hunter2","user":"bob"}"#, r#"{"password":"[redacted]","user":"bob"}"#),
        (r#"{"apiKey" : "abcdefgh"}"#, r#"{"apiKey" : "[redacted]"}"#),
        (r#"{"token":"[redacted]"}"#, r#"{"token":"[redacted]"}"#),
        (r#"{"token":["abcdefgh12"],"tokens":12345678}"#, r#"{"token":["abcdefgh12"],"tokens":12345678}"#),
        (r#"{"a":"\u0041\/ \"x\"","b":1.10}"#, r#"{"a":"\u0041\/ \"x\"","b":1.10}"#),
        (r#"{"a":"is line one\nline two, \"yes\""}"#, r#"{"a":"is [redacted], \"yes\""}"#),
        (r#"{"a\nghp_abcdefghijklmnopqrst1234":true}"#, r#"{"a\n[redacted]":true}"#),
        (r#"{"a":"{\"secret\":\"abcdefgh12\"}"}"#, r#"{"a":"{\"secret\":\"[redacted]\"}"}"#),
        (r#"{"a":"\ud800"}"#, r#"{"a":"[redacted]"}"#),
        (r#"{"password":"hunter2hunter2"#, r#"{"password":"hunter2hunter2"#),
    ];
    for (json, expected) in table {
        assert_eq!(redactor.redact_json(json), expected);
    }
}

#[test]
fn prose_is_delayed_by_at_most_one_word() {
    let redactor = Redactor::new(["hunter2hunter2", "correct horse battery"]);
    let mut stream = redactor.stream();
    assert_eq!(stream.push("Hello wor"), "Hello wo");
    assert_eq!(stream.push("ld, this is a tok"), "rld, this is a ");
    assert_eq!(stream.push("en which correct"), "token which ");
    assert_eq!(stream.push(" hors"), "");
    assert_eq!(stream.push("es eat. hunter"), "correct horses eat. ");
    assert_eq!(stream.push("2hunter2"), MARKER);
    assert_eq!(stream.push("; password="), "; password=");
    assert_eq!(stream.push("abcdefgh"), "");
    assert_eq!(stream.push(" and"), "[redacted] and");
    assert_eq!(stream.finish(), "");
    assert_eq!(stream.push("abc sk-"), "abc ");
    assert_eq!(stream.finish(), "sk-");
}

#[test]
fn the_buffered_text_is_bounded() {
    let redactor = Redactor::new(["hunter2hunter2"]);
    let endless = [
        "sk-0123456789abcdefghij",
        "Bearer abcdefghijklmnopqrstu1",
        "eyJabcdefghijklmnop",
        "password=abc1",
        "password=\"a b",
        "https://user:pa",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\nComment: (",
        "....",
        "password=)",
        "eyJabcdefghijklm.abcdefghijklmno.",
        "://a:b@",
        "hunter2",
        "token = ",
        "password=password=",
    ];
    for beginning in endless {
        for more in ["a", "1", ".", "@", ")", "-", " ", "\\", "=", beginning] {
            let mut stream = redactor.stream();
            let (mut pushed, mut text) = (0, String::from(beginning));
            let mut shown = stream.push(beginning);
            while pushed < 40_000 {
                let chunk = more.repeat(256usize.div_ceil(more.len()));
                shown.push_str(&stream.push(&chunk));
                pushed += chunk.len();
                text.push_str(&chunk);
                let held = format!("{stream:?}");
                let held: usize =
                    held.chars().filter(char::is_ascii_digit).collect::<String>().parse().expect("a number");
                assert!(held <= 8 * 1024 + 2 * 1024, "{beginning:?} then {more:?}: {held}");
            }
            shown.push_str(&stream.finish());
            assert_eq!(shown, redactor.redact(&text), "{beginning:?} then {more:?}");
        }
    }
}

#[test]
fn values_that_resemble_the_marker_are_handled() {
    let redactor =
        Redactor::new(["redacted", "[redacted]", "o[redac", "d]hello", "abcdef[red", "a[redacted]bcdefgh", "x"]);
    for text in
        ["[redacted]", "a redacted b", "d]hello", "hello[redacted]hello", "abcdef[redacted]", "[[redacted]]", "[redac"]
    {
        let once = redactor.redact(text).into_owned();
        assert_eq!(redactor.redact(&once), once, "{text}");
        assert_eq!(in_chunks(&redactor, text, &mut Random::new(5)), once, "{text}");
    }
    assert_eq!(redactor.redact("[redacted][redacted]"), MARKER);
    assert!(contains_marker(&redactor.redact("say redacted")));
    assert!(!contains_marker("redacted"));
}

#[test]
fn long_values_and_values_with_lines_are_found() {
    let long: String = base64_of(&mut Random::new(11), 5_000);
    let lines = format!("{}\n{}", &long[..30], &long[40..70]);
    let redactor = Redactor::new([long.as_str(), lines.as_str(), "  spaced secret\n", "short"]);
    assert_eq!(redactor.redact(&format!("a {long} b")), "a [redacted] b");
    assert_eq!(redactor.redact(&format!("a {} b", lines.replace('\n', "\n    "))), "a [redacted]\n    [redacted] b");
    assert_eq!(redactor.redact("a spaced secret, short"), "a [redacted], short");
}

#[test]
fn overlapping_values_are_hidden_completely() {
    let redactor = Redactor::new(["abcabcabc", "cabcdefg", "defghijk"]);
    assert_eq!(redactor.redact("xabcabcabcabcabcdefghijky"), "x[redacted]y");
    assert_eq!(redactor.redact("é abcabcabc é"), "é [redacted] é");
}

#[test]
fn debug_shows_no_value() {
    let redactor = Redactor::new(["hunter2hunter2"]);
    let mut stream = redactor.stream();
    stream.push("hunter2hunter");
    assert!(!format!("{redactor:?} {stream:?} {redactor:#?} {stream:#?}").contains("hunter"));
}

/// Asserts that `shown` contains `secret` in no form. It decodes the text, independently of the encoders under
/// test.
fn assert_hidden(secret: &str, shown: &str, what: &str) {
    assert!(!shown.contains(secret), "{what}: as it is in {shown:?}");
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    assert!(!shown.to_ascii_lowercase().contains(&hex), "{what}: hexadecimal in {shown:?}");
    assert!(!percent_decoded(shown).contains(secret), "{what}: percent-encoded in {shown:?}");
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || "+/-_".contains(c);
    for run in shown.split(|c| !is_base64(c)).filter(|run| run.len() >= 8) {
        for skip in 0..4 {
            let bytes = base64_decoded(&run.as_bytes()[skip..]);
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{what}: base64 in {shown:?}");
        }
    }
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn base64_decoded(run: &[u8]) -> Vec<u8> {
    let (mut out, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for byte in run {
        let sextet = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            _ => 63,
        };
        bits = bits << 6 | u32::from(sextet);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    out
}

fn base64_encoded(bytes: &[u8], url_safe: bool, padded: bool) -> String {
    let table = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().chain([0, 0].iter()).take(3).fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        for index in 0..=chunk.len() {
            out.push(match (word >> (18 - 6 * index) & 63) as usize {
                62 => [b'+', b'-'][usize::from(url_safe)] as char,
                63 => [b'/', b'_'][usize::from(url_safe)] as char,
                sextet => table[sextet] as char,
            });
        }
        if padded {
            (chunk.len()..3).for_each(|_| out.push('='));
        }
    }
    out
}

fn base64_of(random: &mut Random, length: usize) -> String {
    let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
    base64_encoded(&bytes, false, true)
}

/// Redacts text that is split at arbitrary bytes, like the output of a tool.
fn in_chunks(redactor: &Redactor, text: &str, random: &mut Random) -> String {
    let (mut decoder, mut stream) = (Utf8Decoder::new(), redactor.stream());
    let largest = [1, 2, 3, 8, 40][random.index(5)];
    let (mut shown, mut rest) = (String::new(), text.as_bytes());
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(random.index(largest + 1).min(rest.len()));
        shown.push_str(&stream.push(&decoder.push(chunk)));
        rest = after;
    }
    shown.push_str(&stream.push(&decoder.finish()));
    shown.push_str(&stream.finish());
    shown
}

fn random_secret(random: &mut Random) -> String {
    const ALPHABETS: [&str; 5] = [
        "abcdefghijklmnopqrstuvwxyz",
        "ab",
        "abcXYZ0123456789-_./+=~!@#$%^&*()[]{}<>\"'\\ \n\t",
        "0123456789abcdef",
        "aé漢🦀 \\\"/",
    ];
    let alphabet: Vec<char> = ALPHABETS[random.index(5)].chars().collect();
    let length = 8 + random.index(30);
    // Whitespace at the edges is not part of a secret, and a bracket there may be trimmed.
    let middle: String = (0..length).map(|_| alphabet[random.index(alphabet.len())]).collect();
    format!("q{middle}z")
}

fn random_encoding(secret: &str, random: &mut Random) -> String {
    let percent = |all: bool, lower: bool| -> String {
        let plain = |byte: &u8| !all && (byte.is_ascii_alphanumeric() || b"-_.~".contains(byte));
        let code = |byte: u8| if lower { format!("%{byte:02x}") } else { format!("%{byte:02X}") };
        secret.bytes().map(|byte| if plain(&byte) { String::from(char::from(byte)) } else { code(byte) }).collect()
    };
    let quoted = serde_json::to_string(secret).expect("a string");
    match random.index(9) {
        0 => quoted,
        1 => percent(false, false),
        2 => percent(false, true),
        3 => percent(true, random.index(2) == 0),
        4 => secret.bytes().map(|byte| format!("{byte:02x}")).collect(),
        5 => secret.bytes().map(|byte| format!("{byte:02X}")).collect(),
        6 => {
            let (before, after) = (random.index(7), random.index(7));
            let mut bytes: Vec<u8> = (0..before).map(|_| random.next() as u8).collect();
            bytes.extend(secret.bytes());
            bytes.extend((0..after).map(|_| random.next() as u8));
            base64_encoded(&bytes, random.index(2) == 0, random.index(2) == 0)
        }
        _ => secret.to_owned(),
    }
}

fn random_text(secrets: &[String], random: &mut Random) -> String {
    const PIECES: &[&str] = &[
        " ",
        " ",
        "\n",
        "word",
        "Hello world, ",
        "q",
        "ab",
        "é",
        "🦀",
        "\"",
        "'",
        "\\",
        ":",
        "=",
        " = ",
        ": ",
        "@",
        "/",
        ".",
        "-",
        ")",
        "[",
        "]",
        "[redacted]",
        "[red",
        "password",
        "token",
        "secret",
        "api_key",
        "Authorization: ",
        "Bearer ",
        "Basic ",
        "://",
        "https://user:",
        "sk-",
        "sk-ant-",
        "ghp_",
        "AKIA",
        "eyJ",
        "eyJhbGciOiJIUzI1NiJ9.",
        "-----BEGIN ",
        "PRIVATE KEY-----",
        "-----END ",
        "a1B2c3D4e5F6",
        "A1B2C3D4E5F6G7H8",
        "0123456789abcdef0123456789abcdef",
        "foo(",
        "self.token",
        "$TOKEN",
        "Comment: (x)",
        "--password ",
        "\\n",
        "%zz",
        "xoxb-",
        "\r\n",
        "{",
        "}",
        ",",
    ];
    let mut text = String::new();
    for _ in 0..1 + random.index(14) {
        let secret = &secrets[random.index(secrets.len())];
        match random.index(8) {
            0 | 1 => text.push_str(&random_encoding(secret, random)),
            2 => text.push_str(&secret[..secret.floor_char_boundary(random.index(secret.len()))]),
            3 => text.push_str(&secret[secret.floor_char_boundary(random.index(secret.len()))..]),
            _ => text.push_str(PIECES[random.index(PIECES.len())]),
        }
    }
    text
}

fn for_each_string(value: &serde_json::Value, check: &mut impl FnMut(&str)) {
    if let Some(text) = value.as_str() {
        check(text);
    }
    value.as_array().into_iter().flatten().for_each(|item| for_each_string(item, check));
    for (key, item) in value.as_object().into_iter().flatten() {
        check(key);
        for_each_string(item, check);
    }
}
