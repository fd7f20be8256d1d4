//! Two clients in terminals and a listener follow one session through restarts of the daemon, and end with the same
//! transcript.
//!
//! `PUSH_LONG=1` sets the long form.

use std::time::Duration;

use serde_json::Value;

use crate::Terminal;
use crate::support::home::Running;
use crate::support::model::{Delivery, ModelServer, Reply, say};

/// The words of an answer, and the pause between two of them.
const WORDS: usize = 60;
const PAUSE: Duration = Duration::from_millis(3);

#[test]
fn clients_of_a_session_agree_to_the_last_character_after_many_restarts() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    let long = std::env::var("PUSH_LONG").is_ok_and(|value| value == "1");
    let restarts = if long { 100 } else { 10 };
    let server = ModelServer::start();
    let host = format!("OLLAMA_HOST={}", server.url());
    terminal.type_line(&format!("{host} push chat --provider ollama --model m"));
    terminal.wait_for("› message");
    let home = &terminal.home;
    let session = home.json(&["show", "@last", "--json"])["sessionId"].as_str().unwrap().to_owned();
    let other = terminal.open_other("other", (100, 30));
    other.type_line(&format!("{host} push attach {session}"));
    other.wait_for("› message");
    let push = |words: &[&str]| {
        let mut command = home.command(words);
        command.env("OLLAMA_HOST", server.url());
        Running::start(command)
    };
    let send = |text: &str| {
        let sent = push(&["send", &session, text]).wait_for_output();
        assert_eq!(sent.code, Some(0), "{sent:?}");
    };
    let mut listener = push(&["log", &session, "--follow", "--jsonl"]);
    for number in 0..restarts {
        let words =
            (0..WORDS).map(|word| say(&format!("w{number}x{word}{}", if word % 7 == 6 { "\n\n" } else { " " })));
        server.usually(Reply::turn(words).delivered(Delivery::Paced(PAUSE)));
        send(&format!("message {number}"));
        if number % 2 == 0 {
            // In the middle of an answer.
            listener.wait_for_line(&format!("w{number}x{}", number * 13 % WORDS));
            home.kill_daemon();
            wait_for_end_of_run(&mut listener);
        } else {
            wait_for_end_of_run(&mut listener);
            home.ok(&["daemon", "restart"]);
        }
    }
    server.usually(Reply::says("These are the last words."));
    send("the last message");
    wait_for_end_of_run(&mut listener);
    let journal: Vec<Value> = events(&home.ok(&["log", &session, "--jsonl"]));
    listener.signal(nix::sys::signal::Signal::SIGTERM);
    let heard = events(&listener.wait_for_output().out);
    assert_eq!(heard.len(), journal.len());
    for (heard, stored) in heard.iter().zip(&journal) {
        assert_eq!(heard, stored);
    }
    // A client that attaches afterwards shows what the others have shown.
    let late = terminal.open_other("late", (100, 30));
    late.type_line(&format!("{host} push attach {session} --since 0"));
    let transcripts = [&terminal, &other, &late].map(|client| {
        client.wait_for("These are the last words.");
        client.wait_for("› message");
        client.press("C-d");
        client.wait_for("done 0");
        transcript(&client.scrollback())
    });
    let [first, second, third] = &transcripts;
    assert!(first.iter().filter(|line| line.starts_with("> message ")).count() == restarts, "{first:#?}");
    assert_eq!(first, second);
    assert_eq!(first, third);
}

fn wait_for_end_of_run(listener: &mut Running) {
    listener.wait_for_line("\"type\":\"run_complete\"");
}

fn events(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The lines of the conversation: from the first message on, without the notes of the client about its connection.
fn transcript(screen: &str) -> Vec<String> {
    let lines = screen.lines().skip_while(|line| !line.starts_with("> message 0"));
    let lines = lines.take_while(|line| !line.starts_with("done 0"));
    let is_shown = |line: &&str| !line.trim().is_empty() && !line.starts_with("reconnected to pushd");
    lines.filter(is_shown).map(|line| line.trim_end().to_owned()).collect()
}
