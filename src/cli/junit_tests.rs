//! Tests of the JUnit XML report.

use serde_json::{Value, json};

use super::*;
use crate::client::Event;
use crate::client::test_events::event;

#[test]
fn a_run_is_a_suite_and_its_criteria_are_cases() {
    let xml = write(&report(&[
        (
            1_000,
            "user_message",
            json!({"text": "x", "acceptanceCriteria": [
            {"id": "check-1", "check": "make", "exitCode": 0}, {"id": "check-2", "check": "make test", "exitCode": 0}]}),
        ),
        (1_500, "assistant_token", json!({"text": "I <did> it & more"})),
        (2_000, "tool_result", json!({"source": "acceptance", "check": 1, "durationMs": 1250})),
        (
            3_345,
            "run_complete",
            json!({"outcome": "failed", "reason": "acceptance", "summary": "1 of 2 failed",
            "headless": {"exitCodeHint": 4}, "acceptance": {"results": [
                {"id": "check-1", "passed": true, "exitCode": 0, "output": ""},
                {"id": "check-2", "passed": false, "exitCode": 2, "output": "a\nb"}]}}),
        ),
    ]));
    assert_eq!(
        xml,
        r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="push" tests="3" failures="1" errors="0" skipped="0" time="2.345">
  <testsuite name="run_1" tests="3" failures="1" errors="0" skipped="0" time="2.345" timestamp="1970-01-01T00:00:01">
    <properties>
      <property name="sessionId" value="sess_1"/>
      <property name="runId" value="run_1"/>
      <property name="outcome" value="failed"/>
      <property name="exitCode" value="4"/>
    </properties>
    <testcase classname="push.run" name="run" time="2.345"/>
    <testcase classname="push.acceptance" name="check-1: make" time="0.000"/>
    <testcase classname="push.acceptance" name="check-2: make test" time="1.250">
      <failure type="acceptance" message="exit code 2">a
b</failure>
    </testcase>
    <system-out>I &lt;did&gt; it &amp; more</system-out>
  </testsuite>
</testsuites>
"#
    );
}

#[test]
fn a_failed_run_is_a_failure_and_unchecked_criteria_are_skipped() {
    let xml = write(&report(&[
        (1, "user_message", json!({"acceptanceCriteria": [{"id": "check-1", "check": "make", "exitCode": 0}]})),
        (2, "usage", json!({"model": "m", "inputTokens": 12, "costMicroUsd": 500_000})),
        (
            9,
            "run_complete",
            json!({"outcome": "failed", "reason": "timeout", "summary": "too \"slow\"",
            "headless": {"exitCodeHint": 1}}),
        ),
    ]));
    for part in [
        "tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"1\"",
        "<failure type=\"timeout\" message=\"too &quot;slow&quot;\">exit code 1\ntoo &quot;slow&quot;</failure>",
        "name=\"check-1: make\" time=\"0.000\">\n      <skipped message=\"not checked, because",
        "<property name=\"inputTokens\" value=\"12\"/>",
        "<property name=\"costUsd\" value=\"0.5\"/>",
    ] {
        assert!(xml.contains(part), "no {part} in {xml}");
    }
}

#[test]
fn denials_are_listed_and_only_a_denied_run_fails() {
    for (outcome, code, failures) in [("denied", 3, 1), ("success", 0, 0), ("cancelled", 2, 1)] {
        let xml = write(&report(&[
            (1, "approval_required", json!({"approvalId": "appr_1", "kind": "command", "summary": "rm -rf /"})),
            (2, "approval_received", json!({"approvalId": "appr_1", "decision": "deny", "by": "timeout"})),
            (3, "run_complete", json!({"outcome": outcome, "summary": "", "headless": {"exitCodeHint": code}})),
        ]));
        assert!(xml.contains(&format!("tests=\"2\" failures=\"{failures}\" errors=\"0\" skipped=\"1\"")), "{xml}");
        assert!(xml.contains("name=\"command: rm -rf /\""), "{xml}");
        assert!(xml.contains("<skipped message=\"the approval timed out (appr_1)\"/>"), "{xml}");
    }
}

#[test]
fn a_run_without_a_completion_event_is_an_error() {
    let xml = write(&report(&[(1, "user_message", json!({"text": "x"}))]));
    assert!(xml.contains("tests=\"1\" failures=\"0\" errors=\"1\""), "{xml}");
    assert!(xml.contains("<error type=\"unknown\""), "{xml}");
}

#[test]
fn characters_that_xml_cannot_represent_are_removed() {
    let every: String = (0..0x11_0000).filter_map(char::from_u32).collect();
    for text in [content(&every), attribute(&every)] {
        let allowed = |c: char| matches!(c, '\t' | '\n' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}');
        assert!(text.chars().all(allowed));
        assert!(!text.contains('<') && !text.contains('>') && !text.contains('"'));
    }
    assert_eq!(attribute("a\n<\u{1b}[31m\u{0}b\u{ffff}&amp;\">"), "a&#10;&lt;b&amp;amp;&quot;&gt;");
}

#[test]
fn a_long_text_keeps_its_start_and_its_end() {
    let long = format!("begin{}end", "ä".repeat(100_000));
    let kept = content(&long);
    assert!(kept.starts_with("begin") && kept.ends_with("end"), "it kept neither");
    assert!(kept.contains("bytes left out]") && kept.len() < MAX_CONTENT_BYTES + 100, "{}", kept.len());
    assert_eq!(content(&"x".repeat(MAX_CONTENT_BYTES)).len(), MAX_CONTENT_BYTES);
}

#[test]
fn the_start_is_a_utc_time_without_a_zone() {
    for (days, expected) in [
        (0, "1970-01-01"),
        (59, "1970-03-01"),
        (789, "1972-02-29"),
        (11_016, "2000-02-29"),
        (20_772, "2026-11-15"),
        (47_541, "2100-03-01"),
        (157_113, "2400-02-29"),
    ] {
        let start = days * 86_400_000 + 3_723_999;
        assert_eq!(timestamp(Some(start)), format!(" timestamp=\"{expected}T01:02:03\""));
    }
    assert_eq!([None, Some(u64::MAX)].map(timestamp), ["", ""]);
}

fn report(events: &[(u64, &str, Value)]) -> Report {
    let mut report = Report::new("sess_1", "run_1");
    for (at, kind, payload) in events {
        report.follow(&Event { at: *at, ..event(kind, payload.clone()) });
    }
    report
}
