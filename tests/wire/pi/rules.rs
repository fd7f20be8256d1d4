//! Rules that hold on every connection: sections 5, 6, 7 and 10 of the specification.

use std::collections::BTreeMap;

use serde_json::Value;

/// A sent command, and how many lines had been received before.
pub(crate) struct SentCommand {
    pub(crate) command: Value,
    pub(crate) at: usize,
}

/// Whether other clients may have changed the sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clients {
    One,
    Several,
}

/// Checks all lines of a connection.
pub(crate) fn check(log: &[Value], sent: &[SentCommand], clients: Clients) {
    assert_eq!(log[0]["type"], "server_ready", "the first line: {}", log[0]);
    let greetings = log.iter().filter(|line| line["type"] == "server_ready").count();
    assert_eq!(greetings, 1, "server_ready is sent once");
    check_phases(log);
    check_responses(log, sent);
    check_versions(log, sent, clients);
}

/// How often each phase of a command was reported.
#[derive(Default, Debug)]
struct PhaseCounts {
    accepted: usize,
    started: usize,
    finished: usize,
    /// How many of those were executed.
    run: usize,
    answered: usize,
}

/// Accepted, possibly started, finished: in this order, and a repetition is never started.
fn check_phases(log: &[Value]) {
    let mut counts_by_id: BTreeMap<&str, PhaseCounts> = BTreeMap::new();
    for line in log {
        let kind = line["type"].as_str().unwrap_or_default();
        if kind == "response" {
            let Some(id) = line["id"].as_str() else { continue };
            let counts = counts_by_id.entry(id).or_default();
            if line["success"] == false && counts.accepted == counts.answered {
                // The command was not admitted.
                continue;
            }
            counts.answered += 1;
            assert!(counts.finished >= counts.answered, "answered before it was finished: {line}");
            continue;
        }
        let Some(id) = line["data"]["commandId"].as_str() else { continue };
        let counts = counts_by_id.entry(id).or_default();
        match kind {
            "command_accepted" => counts.accepted += 1,
            "command_started" => counts.started += 1,
            "command_finished" => {
                counts.finished += 1;
                if line["data"]["replayed"] != true && line["data"]["success"] == true {
                    counts.run += 1;
                }
            }
            other => panic!("{other} has a command"),
        }
        let ordered =
            counts.started <= counts.accepted && counts.finished <= counts.accepted && counts.run <= counts.started;
        assert!(ordered, "out of order: {counts:?} {line}");
    }
}

/// The lifecycle events of a command agree with its response.
fn check_responses(log: &[Value], sent: &[SentCommand]) {
    for SentCommand { command, .. } in sent {
        let Some(id) = command["id"].as_str() else { continue };
        let finished = log.iter().filter(|line| line["type"] == "command_finished" && line["data"]["commandId"] == id);
        let answered = log.iter().filter(|line| line["type"] == "response" && line["id"] == id);
        let admitted: Vec<_> = answered.filter(|line| !is_refusal(line)).collect();
        let finished: Vec<_> = finished.collect();
        if finished.len() != admitted.len() {
            // Another connection has used the same id.
            continue;
        }
        for (event, answer) in finished.iter().zip(admitted) {
            for field in ["success", "error", "sessionVersion", "replayed"] {
                assert_eq!(event["data"][field], answer[field], "{field} of {event} and {answer}");
            }
            assert_eq!(event["data"]["commandType"], answer["command"]);
        }
    }
}

/// Whether a command was refused before admission.
fn is_refusal(answer: &Value) -> bool {
    let error = answer["error"].as_str().unwrap_or_default();
    ["Validation failed", "Rate limit", "Server is shutting", "Server busy"]
        .iter()
        .any(|begin| error.starts_with(begin))
        && answer["replayed"] != true
}

/// Every success in a session has its version: the same after a read, the next after a change.
fn check_versions(log: &[Value], sent: &[SentCommand], clients: Clients) {
    let answer_of = |command: &Value| {
        let id = command["id"].as_str()?;
        let mut named = log.iter().enumerate().filter(|(_, line)| line["type"] == "response" && line["id"] == id);
        let only = named.next()?;
        named.next().is_none().then_some(only)
    };
    for (number, SentCommand { command, at }) in sent.iter().enumerate() {
        let Some((answered, answer)) = answer_of(command) else { continue };
        let (session, kind) = (&command["sessionId"], command["type"].as_str().unwrap_or_default());
        if answer["success"] != true
            || !session.is_string()
            || ["delete_session", "list_sessions", "get_metrics", "health_check", "list_stored_sessions"]
                .contains(&kind)
        {
            continue;
        }
        let version = answer["sessionVersion"].as_u64().unwrap_or_else(|| panic!("no version: {answer}"));
        if ["create_session", "load_session"].contains(&kind) {
            assert_eq!(version, 0, "{answer}");
            continue;
        }
        let names = |with: &SentCommand| {
            let answer = answer_of(&with.command).map_or(&Value::Null, |(_, answer)| answer);
            with.command["sessionId"] == *session || answer["data"]["sessionId"] == *session
        };
        let others = sent.iter().enumerate().filter(|(other, with)| *other != number && names(with));
        let elsewhere = others.clone().any(|(other, with)| match answer_of(&with.command) {
            Some((done, _)) => !(done < *at || (other > number && with.at > answered)),
            None => with.at <= answered,
        });
        if elsewhere || clients == Clients::Several || answer["replayed"] == true {
            continue;
        }
        // A failure changes nothing; a repetition has the version of the first response.
        let counts = |(done, answer): (usize, &Value)| {
            let version = answer["sessionVersion"].as_u64().filter(|_| answer["replayed"] != true)?;
            (done < *at).then_some((done, version))
        };
        let before = others.filter_map(|(_, with)| answer_of(&with.command)).filter_map(counts).max();
        let Some((_, known)) = before else { continue };
        let step = u64::from(!is_read(kind));
        assert_eq!(version, known + step, "{kind} after {known}: {answer}");
    }
}

fn is_read(kind: &str) -> bool {
    kind.starts_with("get_") || kind.starts_with("list_") || kind == "switch_session" || kind == "health_check"
}
