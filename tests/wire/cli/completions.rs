//! `push completions` and `push man`: scripts for every shell, live values, pages for every verb.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use crate::support::home::{Home, Running};

#[test]
fn every_shell_has_a_script_that_asks_the_program() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = home.ok(&["completions", shell]);
        assert!(script.contains("PUSH_COMPLETE"), "{shell}: {script}");
    }
    assert!(!home.push_path("").exists(), "a daemon was started for nothing");
}

#[test]
fn verbs_options_sessions_and_approvals_are_completed() {
    let home = Home::new();
    assert!(complete(&home, &["exp"]).contains("export\t"));
    assert!(complete(&home, &["export", "--format", ""]).contains("jsonl"));
    assert!(!complete(&home, &["show", ""]).contains("@last"), "without a daemon there are no sessions");
    assert!(!home.push_path("").exists(), "a daemon was started for nothing");
    home.ok(&["run", "--yes", "--name", "release notes", "$ true"]);
    let sessions = complete(&home, &["show", ""]);
    assert!(sessions.contains("@last\t") && sessions.contains("\trelease notes\n"), "{sessions}");
    home.start_detached("?$ true");
    let approval = home.wait_for_approval();
    assert!(complete(&home, &["approve", ""]).contains(&approval));
}

#[test]
fn every_verb_has_a_manual_page() {
    let home = Home::new();
    assert!(home.ok(&["man"]).starts_with(".ie"), "roff");
    assert!(home.ok(&["man", "daemon", "run"]).contains("push\\-daemon\\-run"));
    assert_eq!(home.push(&["man", "nothing"]).code, Some(64));
    home.ok(&["man", "--directory", "pages"]);
    for page in ["push.1", "push-export.1", "push-daemon-run.1"] {
        assert!(!home.read(&format!("pages/{page}")).is_empty(), "{page}");
    }
}

#[test]
fn bash_completes_sessions_approvals_and_models() {
    let home = Home::new();
    if home.program("bash", &["--version"]).output().is_err() {
        return crate::support::skip::skip("completion in bash: bash is missing");
    }
    home.ok(&["run", "--yes", "--name", "release notes", "$ true"]);
    let session = home.start_detached("?$ true");
    let approval = home.wait_for_approval();
    let models = ModelServer::start();
    let bash = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
        let directory = std::path::Path::new(env!("CARGO_BIN_EXE_push")).parent().unwrap().display();
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let script = format!(
            "PATH={directory}:$PATH; source <(push completions bash); COMP_WORDS=({}); COMP_CWORD={}; COMP_TYPE=9\n\
             declare -F _clap_complete_push > /dev/null || exit 3\n\
             _clap_complete_push push '{last}' '{before}' 2> /dev/null; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            quoted.join(" "),
            words.len() - 1,
        );
        let mut command = home.program("bash", &["--norc", "-c", &script]);
        command.env("OLLAMA_HOST", &models.address);
        let output = Running::start(command).wait_for_output();
        assert_eq!(output.code, Some(0), "{output:?}");
        output.out
    };
    assert!(bash("push expo").contains("export"));
    let offered = bash("push show ");
    assert!(offered.contains("@last") && offered.contains(&session[session.len() - 4..]), "{offered}");
    assert!(bash("push delete ").contains(&session[session.len() - 4..]));
    assert!(bash("push approve ").contains(&approval));
    assert!(bash("push run --provider ").contains("ollama"));
    assert!(bash("push run --provider ollama --model ").contains("quokka-7b"));
    assert!(bash("push chat --provider ollama --model wom").contains("wombat-3b"));
    assert!(!bash("push run --provider playbook --model ").contains("quokka"));
}

/// A server that has two models.
struct ModelServer {
    address: String,
}

impl ModelServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        // The thread ends with the test program.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let mut line = String::new();
                while stream.read_line(&mut line).is_ok_and(|read| read > 2) {
                    line.clear();
                }
                let body = "{\"models\":[{\"name\":\"quokka-7b\"},{\"name\":\"wombat-3b\"}]}";
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                let _ = stream.get_mut().write_all(format!("{head}{body}").as_bytes());
            }
        });
        Self { address }
    }
}

/// Returns what a shell is offered after `push` and these words.
fn complete(home: &Home, words: &[&str]) -> String {
    let words: Vec<&str> = ["--", "push"].iter().chain(words).copied().collect();
    let output = home.push_with(&words, &[("PUSH_COMPLETE", "fish")], "");
    assert_eq!((output.code, output.err.as_str()), (Some(0), ""), "{output:?}");
    output.out
}
