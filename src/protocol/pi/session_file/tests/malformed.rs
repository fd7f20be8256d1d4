//! Invalid and oversized session files, and the files that a crash may leave behind.

use super::*;

fn refused(bytes: &[u8]) -> String {
    parse(bytes, &Limits::default()).unwrap_err().to_string()
}

fn after_header(line: &str) -> String {
    refused(format!("{HEADER}\n{line}\n{}\n", user("z", None, "after")).as_bytes())
}

#[test]
fn a_file_without_a_session_header_is_refused() {
    for bytes in [
        &b""[..],
        b"\n\n",
        b"# Notes\n",
        b"{}\n",
        b"[]\n",
        b"\x7fELF\x00",
        b"\xff\xfe",
        b"{\"type\":\"message\"}\n",
        b"null",
    ] {
        assert_eq!(refused(bytes), "it does not begin with a session header", "{}", bytes.escape_ascii());
    }
    let half = &HEADER.as_bytes()[..40];
    assert_eq!(refused(half), "it does not begin with a session header");
}

#[test]
fn a_header_must_be_usable() {
    let header = |from: &str, to: &str| {
        assert!(HEADER.contains(from));
        refused(HEADER.replace(from, to).as_bytes())
    };
    assert_eq!(header("s-1", ""), "its header has no id");
    assert_eq!(header("\"s-1\"", "7"), "its header has no id");
    let odd = "its header has an id that is too long or has control characters";
    assert_eq!(header("s-1", "a\\u0000"), odd);
    assert_eq!(header("s-1", "a\\nb"), odd);
    assert_eq!(header("s-1", &"a".repeat(257)), odd);
    let odd = "its header has a working directory that is too long or has control characters";
    assert_eq!(header("/home/ann/p", "/a\\u0000b"), odd);
    assert_eq!(header("/home/ann/p", &"/a".repeat(3000)), odd);
    assert_eq!(header(":3,", ":0,"), "its header has version 0");
    assert_eq!(header(":3,", ":4,"), "it has format version 4, and the newest supported version is 3");
    assert_eq!(refused(format!("{HEADER}\n{HEADER}\n").as_bytes()), "line 2: it is a second header");
}

#[test]
fn a_broken_line_is_refused_with_its_number() {
    for (line, why) in [
        ("{\"type\":\"message\"]}", "line 2: not valid JSON at byte 17"),
        ("words", "line 2: not valid JSON at byte 0"),
        ("[1]", "line 2: not a JSON object"),
        ("{\"type\":\"x\",\"id\":\"a\",\"id\":\"b\"}", "line 2: duplicate key \"id\""),
        (
            "{\"type\":\"message\",\"id\":\"a\",\"message\":{\"role\":\"user\",\"r\\u006fle\":\"assistant\"}}",
            "line 2: duplicate key \"role\"",
        ),
        ("{\"type\":\"x\",\"a\":\"\u{0}\"}", "line 2: not valid JSON at byte 17"),
        ("x\u{0}", "line 2: not valid JSON at byte 0"),
        ("{\"type\":\"x\",\"a\":\"\\ud800\"}", "line 2: an unpaired surrogate at byte 17"),
        ("{\"type\":\"x\",\"a\":1e999}", "line 2: number out of range at byte 16"),
        ("{\"type\":\"message\",\"id\":\"a\"}", "line 2: it has no message"),
        ("{\"type\":\"message\",\"id\":\"a\",\"message\":[\"user\"]}", "line 2: its message is not an object"),
        (
            "{\"type\":\"message\",\"id\":\"a\",\"message\":{\"role\":\"user\",\"content\":7}}",
            "line 2: its content is neither a string nor an array",
        ),
        ("{\"type\":\"message\",\"message\":{\"role\":\"user\"}}", "line 2: it has no id"),
        ("{\"type\":\"label\",\"id\":\"\"}", "line 2: its id is empty or too long"),
        ("{\"type\":\"label\",\"id\":\"a\",\"parentId\":\"b\"}", "line 2: its parent \"b\" is not an earlier entry"),
        ("{\"type\":\"label\",\"id\":\"a\",\"parentId\":\"a\"}", "line 2: its parent \"a\" is not an earlier entry"),
        ("{\"type\":\"label\",\"id\":\"z\"}", "line 3: another entry has the id \"z\""),
    ] {
        assert_eq!(after_header(line), why, "{line}");
    }
    let invalid = [HEADER.as_bytes(), b"\n{\"type\":\"\xff\"}\n"].concat();
    assert_eq!(refused(&invalid), "line 2: not valid UTF-8 at byte 9");
}

#[test]
fn a_torn_last_line_is_ignored() {
    let whole = format!("{HEADER}\n{}\n", user("a", None, "kept"));
    let last = user("b", Some("a"), "torn é \\ud83e\\udd80 end");
    for cut in 1..last.len() {
        let bytes = [whole.as_bytes(), &last.as_bytes()[..cut]].concat();
        let stored = parse(&bytes, &Limits::default()).unwrap();
        assert!(stored.torn, "{cut}");
        assert_eq!(message_texts(&stored.conversation()), ["kept"], "{cut}");
    }
    // A complete line without a newline counts.
    let bytes = [whole.as_bytes(), last.as_bytes()].concat();
    let stored = parse(&bytes, &Limits::default()).unwrap();
    assert_eq!((stored.torn, stored.entries.len()), (false, 2));
    // Some file systems fill unwritten ranges with zeros.
    let bytes = [whole.as_bytes(), &[0; 500]].concat();
    assert!(parse(&bytes, &Limits::default()).unwrap().torn);
    // An error that truncation cannot cause is refused in the last line too.
    let twins = format!("{whole}{{\"a\":1,\"a\":2}}");
    assert_eq!(refused(twins.as_bytes()), "line 3: duplicate key \"a\"");
}

#[test]
fn a_truncated_line_is_skipped_and_its_children_are_refused() {
    let whole = format!("{HEADER}\n{}\n", user("a", None, "kept"));
    let cut = user("b", Some("a"), "torn é \\ud83e\\udd80 {x} end");
    for length in 1..cut.len() {
        let follows = |parent| {
            let after = user("c", Some(parent), "after");
            [whole.as_bytes(), &cut.as_bytes()[..length], b"\n", after.as_bytes(), b"\n"].concat()
        };
        let stored = parse(&follows("a"), &Limits::default()).unwrap();
        assert_eq!((stored.torn, stored.skipped), (false, 1), "{length}");
        assert_eq!(message_texts(&stored.conversation()), ["kept", "after"], "{length}");
        let lost = "line 4: its parent \"b\" is not an earlier entry";
        assert_eq!(refused(&follows("b")), lost, "{length}");
    }
}

#[test]
fn every_limit_is_enforced() {
    let limits = Limits { bytes: 2000, line: 300, depth: 5, entries: 3, blocks: 4 };
    let read = |lines: &[&str]| parse(lines.join("\n").as_bytes(), &limits).map(drop);
    let entry = |id: &str| user(id, None, "x");
    let (a, b, c, d) = (entry("a"), entry("b"), entry("c"), entry("d"));
    assert_eq!(read(&[HEADER, &a, &b, &c]), Ok(()));
    assert_eq!(read(&[HEADER, &a, &b, &c, &d]), Err(ParseError::TooManyEntries { limit: 3 }));
    assert_eq!(read(&[HEADER, &"\n".repeat(2000)]), Err(ParseError::TooLarge { limit: 2000 }));
    let long = user("a", None, &"x".repeat(300));
    assert_eq!(read(&[HEADER, &a, &long]), Err(ParseError::LongLine { line: 3, limit: 300 }));
    let content = |id: &str, count: usize| {
        let list = vec!["{}"; count].join(",");
        user(id, None, "").replace("\"content\":\"\"", &format!("\"content\":[{list}]"))
    };
    assert_eq!(read(&[HEADER, &content("a", 2), &content("b", 2)]), Ok(()));
    let many = read(&[HEADER, &content("a", 2), &content("b", 3)]);
    assert_eq!(many, Err(ParseError::TooManyBlocks { limit: 4 }));
    let deep = |depth: usize| {
        format!("{{\"type\":\"x\",\"id\":\"a\",\"d\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1))
    };
    assert_eq!(read(&[HEADER, &deep(5)]), Ok(()));
    assert_eq!(read(&[HEADER, &deep(6)]).unwrap_err().to_string(), "line 2: nested more than 5 deep");
}

#[test]
fn a_line_of_a_million_brackets_is_refused() {
    let deep = format!("{HEADER}\n{{\"a\":{}", "[".repeat(1 << 20));
    assert_eq!(refused(deep.as_bytes()), "line 2: nested more than 64 deep");
    let wide = format!(
        "{HEADER}\n{}\n",
        user("a", None, "").replace("\"content\":\"\"", &format!("\"content\":[0{}]", ",0".repeat(1 << 20)))
    );
    assert_eq!(refused(wide.as_bytes()), "its messages have more than 200000 blocks");
}
