//! Reports of runs: the file of `--report` for every outcome, and the lists of a result.

use std::fs;

use nix::sys::signal::Signal;

use crate::support::home::{Home, Running};

#[test]
fn every_outcome_is_a_report_that_agrees_with_the_exit_code() {
    let home = Home::new();
    for (words, code, part) in [
        (&["$ echo '<&>'"][..], 0, "<testcase classname=\"push.run\" name=\"run\" time=\""),
        (&["$ exit 9"], 1, "<failure type=\"step_failed\""),
        (&["--headless", "$? rm 'a&b'"], 3, "<skipped message=\"the step asks before it runs; `--approve ask` waits"),
        (
            &["--accept", "echo '<out>'; exit 8", "--accept", "true", "$ true"],
            4,
            "exit code 8\">&lt;out&gt;\n</failure>",
        ),
        (&["--timeout", "0.2", "$ sleep 1000"], 1, "<failure type=\"timeout\""),
        (&["--accept", "true", "$ exit 9"], 1, "name=\"check-1: true\" time=\"0.000\">\n      <skipped"),
    ] {
        let output = home.push(&[&["run", "--report", "junit=push.xml"], words].concat());
        assert_eq!(output.code, Some(code), "{words:?}: {output:?}");
        let xml = home.read("push.xml");
        assert!(xml.contains(part), "no {part} in {xml}");
        assert_eq!(xml.contains("failures=\"0\" errors=\"0\""), code == 0, "{xml}");
        assert!(xml.contains(&format!("<property name=\"exitCode\" value=\"{code}\"/>")), "{xml}");
        fs::remove_file(home.path().join("push.xml")).unwrap();
    }
    let left = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains("push.xml")), "a piece is left");
}

#[test]
fn a_report_is_well_formed_whatever_the_run_said() {
    let home = Home::new();
    let message = "Odd: ]]> \u{1b}[31m \u{7} <x a='\"'>&lt;\n\n$ printf '\\000\\033[2J\\377'; false\n";
    home.push(&["run", "--report", "junit=push.xml", "--accept", "printf '\\001<\\n\"'; false", message]);
    let checked = home
        .program("python3", &["-c", "import xml.dom.minidom as m; m.parse('push.xml'); print('well formed')"])
        .output();
    match checked {
        Ok(checked) => {
            assert_eq!(String::from_utf8_lossy(&checked.stdout), "well formed\n", "{}", home.read("push.xml"));
        }
        Err(_) => crate::support::skip::skip("whether a report is well formed: python3 is missing"),
    }
}

#[test]
fn a_cancelled_run_has_its_report() {
    let home = Home::new();
    let mut run = home.start(&["run", "--headless", "--report", "junit=push.xml", "$ echo begun; sleep 1000"]);
    run.wait_for_line("begun");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.wait_for_output().code, Some(2));
    assert!(home.read("push.xml").contains("<failure type=\"user_cancelled\""), "{}", home.read("push.xml"));
}

#[test]
fn a_retry_with_the_same_key_writes_the_same_report() {
    let home = Home::new();
    let run = |file: &str| {
        let report = format!("junit={file}");
        let words = ["run", "--headless", "--idempotency-key", "k", "--report", &report, "--accept", "true"];
        home.push(&[&words[..], &["$ echo x >> ran"]].concat()).code
    };
    assert_eq!((run("first.xml"), run("second.xml")), (Some(0), Some(0)));
    assert_eq!(home.read("ran"), "x\n");
    assert!(home.read("first.xml").contains("name=\"check-1: true\""), "{}", home.read("first.xml"));
    assert_eq!(home.read("first.xml"), home.read("second.xml"));
}

#[test]
fn denials_are_listed_with_who_and_what() {
    let home = Home::new();
    let output = home.push(&["run", "--headless", "--json", "$? rm precious"]);
    let denial = &output.json()["denials"][0];
    assert!(denial["approvalId"].as_str().unwrap().starts_with("appr_"), "{denial}");
    assert_eq!((denial["by"].as_str(), denial["kind"].as_str().is_some()), (Some("policy"), true));
    let reason = denial["reason"].as_str().unwrap();
    assert!(reason.starts_with("the step asks before it runs; ") && reason.contains("--yes"), "{denial}");
    assert!(denial["summary"].as_str().unwrap().contains("rm precious"), "{denial}");
    let output = home.push(&["run", "--headless", "$? rm precious"]);
    let lines: Vec<&str> = output.err.lines().collect();
    assert!(lines[lines.len() - 2].starts_with("not approved: "), "{output:?}");
    assert!(lines[lines.len() - 2].contains("rm precious (appr_"), "{output:?}");
    assert!(lines[lines.len() - 2].contains("the step asks before it runs; "), "{output:?}");
    assert!(!output.err.contains("denied by cli"), "{output:?}");
}

#[test]
fn no_export_holds_a_secret() {
    const VALUE: &str = "correct-horse-battery-staple";
    const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let home = Home::with(&[("MY_API_TOKEN", VALUE)]);
    let place = tempfile::tempdir().unwrap();
    let message = format!(
        "The value is {VALUE}, the token {TOKEN}.\n\n$ echo $MY_API_TOKEN | tee {0}/value; echo {TOKEN}; \
         echo $MY_API_TOKEN | base64; echo $MY_API_TOKEN | od -An -tx1 | tr -d ' '\n$? echo {VALUE} {TOKEN}\n",
        place.path().display()
    );
    let accept = format!("echo $MY_API_TOKEN {TOKEN}; echo {VALUE}; false");
    let run = ["run", "--name", VALUE, "--yes", "--accept", &accept];
    let report = ["--report", "junit=push.xml", &message];
    let mut output = Vec::new();
    for words in [
        &[&run[..], &["--json"], &report].concat()[..],
        &[&run[..], &["--jsonl"], &report].concat(),
        &[&run[..], &report].concat(),
    ] {
        let out = Running::start(home.command(words)).wait_for_output();
        assert_eq!(out.code, Some(4), "{out:?}");
        output.push(home.read("push.xml"));
        output.push(format!("{out:?}"));
    }
    output.push(format!("{:?}", home.push(&["run", "--headless", "--json", &format!("$? echo {VALUE} {TOKEN}")])));
    for words in [
        &["log", "--jsonl"][..],
        &["log"],
        &["show", "--json"],
        &["show"],
        &["sessions", "--json"],
        &["sessions"],
        &["approvals", "--json"],
        &["approvals", "--remembered", "--json"],
        &["daemon", "logs"],
        &["doctor", "--json"],
    ] {
        output.push(format!("{:?}", home.push(words)));
    }
    assert_eq!(fs::read_to_string(place.path().join("value")).unwrap(), format!("{VALUE}\n"), "it was used");
    let base64 = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZ";
    let hex = "636f72726563742d686f7273652d62617474657279";
    for text in &output {
        for secret in [VALUE, TOKEN, base64, hex] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    assert!(output.iter().any(|text| text.contains("[redacted]")));
}
