//! Every request of the Push protocol beyond the seven contracts, over a real socket to a real daemon.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::support::daemon::{Client, Daemon, types};
use serde_json::{Value, json};

#[test]
fn a_steering_message_comes_next() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let run = client.prompt(
        &session,
        "$ echo one >> order; echo begun; until [ -e go ]; do sleep 0.01; done\n$ echo three >> order\n",
    );
    client.event_of("tool_output");
    let steer = json!({"sessionId": session, "text": "$ echo two >> order\n", "clientMessageId": "s1"});
    assert_eq!(client.get("steer", steer.clone()), json!({"runId": run, "accepted": true}));
    assert_eq!(client.get("steer", steer)["runId"], run, "the same again is heard once");
    let other = json!({"sessionId": session, "text": "$ echo four >> order\n", "clientMessageId": "s1"});
    assert_eq!(client.refused("steer", other), "INVALID_REQUEST");
    fs::write(daemon.cwd().join("go"), "").unwrap();
    let events = client.events_until("run_complete");
    let steered: Vec<_> = events.iter().filter(|event| event["payload"]["delivery"] == "steer").collect();
    assert_eq!(steered.len(), 1, "{steered:?}");
    assert_eq!((&steered[0]["type"], &steered[0]["runId"]), (&json!("user_message"), &json!(run)));
    assert_eq!(events.last().unwrap()["payload"]["outcome"], "success");
    assert_eq!(fs::read_to_string(daemon.cwd().join("order")).unwrap(), "one\ntwo\nthree\n");
}

#[test]
fn a_written_file_is_shown_as_a_redacted_diff() {
    let mut daemon = Daemon::start();
    fs::write(daemon.cwd().join("f"), "one\ntwo\n").unwrap();
    let (mut client, session) = daemon.session();
    let token = format!("ghp_{}", "a1B2".repeat(9));
    client.prompt(&session, &format!("```write f\none\nkey {token}\n```\n```write b\n\u{0}\n```\n$ true\n"));
    let events = client.events_until("run_complete");
    let results: Vec<_> = events.iter().filter(|event| event["type"] == "tool_result").collect();
    let diff = "--- f\n+++ f\n@@ -1,2 +1,2 @@\n one\n-two\n+key [redacted]\n";
    assert_eq!(results[0]["payload"]["diff"], diff, "{results:?}");
    assert_eq!(results[0]["payload"].get("diffTruncated"), None);
    assert_eq!(results[1]["payload"]["diff"], "binary file b changed\n");
    assert_eq!(results[2]["payload"].get("diff"), None);
    daemon.stop();
    daemon.restart();
    let mut client = daemon.connect();
    client.attach(&session, 0);
    let again = client.events_until("run_complete");
    let again: Vec<_> = again.iter().filter(|event| event["type"] == "tool_result").collect();
    assert_eq!(again, results);
}

#[test]
fn a_command_of_the_user_runs_beside_a_run_and_can_be_stopped() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let run = client.prompt(&session, "$ echo begun; until [ -e go ]; do sleep 0.01; done\n");
    client.event_of("tool_output");
    let command = |text: &str| {
        json!({"sessionId": session, "command": text, "excludeFromContext": true,
        "environment": {"PATH": "/usr/bin:/bin", "GREETING": "hello"}})
    };
    let started = client.get("run_user_command", command("echo $GREETING; pwd; touch made"));
    assert_eq!(started.as_object().map(|fields| fields.len()), Some(2), "{started}");
    assert_ne!(started["runId"], json!(run));
    let events = client.events_until("tool_result");
    let mut shown = types(&events);
    shown.dedup();
    assert_eq!(shown, ["tool_call", "status", "tool_output", "tool_result"]);
    for event in &events {
        assert_eq!((&event["runId"], &event["payload"]["callId"]), (&started["runId"], &started["callId"]), "{event}");
    }
    let called = &events[0]["payload"];
    assert_eq!((&called["purpose"], &called["excludeFromContext"]), (&json!("user"), &json!(true)));
    let result = &events.last().unwrap()["payload"];
    assert_eq!((&result["status"], &result["purpose"]), (&json!("done"), &json!("user")));
    let text = result["text"].as_str().unwrap();
    assert!(text.starts_with("hello\n") && text.contains(daemon.cwd().to_str().unwrap()), "{text}");
    assert!(daemon.cwd().join("made").exists());

    let slow = client.get("run_user_command", command("echo slow; sleep 600"));
    client.event_of("tool_output");
    let stop = |call: &Value| json!({"sessionId": session, "callId": call});
    assert_eq!(client.get("stop_user_command", stop(&slow["callId"])), json!({"accepted": true}));
    let ended = client.event_of("tool_result");
    assert_eq!((&ended["payload"]["status"], &ended["payload"]["callId"]), (&json!("cut"), &slow["callId"]));
    assert_eq!(client.refused("stop_user_command", stop(&slow["callId"])), "NO_ACTIVE_RUN");
    assert_eq!(client.refused("stop_user_command", json!({"sessionId": session})), "NO_ACTIVE_RUN");

    fs::write(daemon.cwd().join("go"), "").unwrap();
    assert_eq!(client.events_until("run_complete").last().unwrap()["payload"]["outcome"], "success");
}

#[test]
fn a_command_of_the_user_is_refused_where_a_rule_or_the_session_says_so() {
    let daemon = Daemon::start();
    let workspace = daemon.cwd().join("project");
    let project = workspace.join(".push");
    fs::create_dir_all(&project).unwrap();
    fs::write(project.join("config.toml"), "[approvals]\nrules = [\"deny: exec(rm*)\", \"ask: exec(make*)\"]\n")
        .unwrap();
    let mut client = daemon.connect();
    let session = client.start(&workspace);
    let command = |text: &str| json!({"sessionId": session, "command": text});
    for (text, reason) in [("rm -rf x", "deny: exec(rm*)"), ("make", "a rule asks about this command")] {
        let answer = client.ask("run_user_command", command(text));
        assert_eq!(answer["error"]["code"], "INVALID_REQUEST", "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(reason), "{answer}");
    }
    let mut watcher = daemon.connect();
    watcher.get("attach_session", json!({"sessionId": session, "readOnly": true}));
    assert_eq!(watcher.refused("run_user_command", command("true")), "ATTACH_FORBIDDEN");
    client.get("run_user_command", command("true"));
    assert_eq!(client.event_of("tool_result")["payload"]["status"], "done");
    client.get("end_session", json!({"sessionId": session}));
    assert_eq!(client.refused("run_user_command", command("true")), "INVALID_REQUEST");
}

#[test]
fn messages_are_queued_and_can_be_withdrawn() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let queue = |id: &str, text: &str| json!({"sessionId": session, "clientMessageId": id, "text": text});
    let first = client.get("queue_message", queue("m0", "$? echo zero >> order\n"));
    assert_eq!((&first["position"], &first["messageId"]), (&json!(0), &json!("m0")));
    let approval = client.event_of("approval_required");
    assert_eq!(approval["runId"], first["runId"]);
    let waiting: Vec<Value> = (1..=3)
        .map(|number| {
            let text = format!("$ echo {number} >> order\n");
            let queued = client.get("queue_message", queue(&format!("m{number}"), &text));
            assert_eq!(queued["position"], number);
            json!({"messageId": format!("m{number}"), "runId": queued["runId"], "text": text})
        })
        .collect();
    let again = client.get("queue_message", queue("m2", "$ echo 2 >> order\n"));
    assert_eq!((&again["runId"], &again["position"]), (&waiting[1]["runId"], &json!(2)));
    assert_eq!(client.refused("queue_message", queue("m2", "$ echo other\n")), "INVALID_REQUEST");
    let listed = client.get("list_queue", json!({"sessionId": session}));
    assert_eq!(listed, json!({"messages": waiting}));
    let remove = json!({"sessionId": session, "messageId": "m2"});
    assert_eq!(client.get("remove_queued", remove.clone()), json!({"removed": true}));
    assert_eq!(client.refused("remove_queued", remove), "INVALID_REQUEST");
    let snapshot = client.get("get_session_snapshot", json!({"sessionId": session}));
    assert_eq!(snapshot["queued"], 2);
    client.decide(&approval, "approve");
    let events: Vec<_> = (0..3).flat_map(|_| client.events_until("run_complete")).collect();
    assert!(types(&events).contains(&"message_unqueued".to_owned()));
    let ends: Vec<_> = events.iter().filter(|event| event["type"] == "run_complete").collect();
    let runs: Vec<_> = ends.iter().map(|event| &event["runId"]).collect();
    assert_eq!(runs, [&first["runId"], &waiting[0]["runId"], &waiting[2]["runId"]]);
    assert_eq!(fs::read_to_string(daemon.cwd().join("order")).unwrap(), "zero\n1\n3\n");
}

#[test]
fn queued_messages_survive_a_crash_and_run_once() {
    let mut daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$? echo first >> order\n");
    let approval = client.event_of("approval_required");
    for number in 0..3 {
        let text = format!("$ echo {number} >> order\n");
        client.get("queue_message", json!({"sessionId": session, "text": text}));
    }
    daemon.kill();
    daemon.restart();
    let mut client = daemon.connect();
    client.attach(&session, 0);
    client.decide(&approval, "approve");
    for _ in 0..4 {
        assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    }
    assert_eq!(fs::read_to_string(daemon.cwd().join("order")).unwrap(), "first\n0\n1\n2\n");
}

#[test]
fn a_session_can_be_renamed_and_ended_and_still_be_read() {
    let mut daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.run(&session, "$ true\n");
    let rename = json!({"sessionId": session, "name": "parser"});
    assert_eq!(client.get("rename_session", rename), json!({"renamed": true}));
    assert_eq!(client.event_of("session_renamed")["payload"], json!({"name": "parser"}));
    for _ in 0..2 {
        assert_eq!(client.get("end_session", json!({"sessionId": session})), json!({"ended": true}));
    }
    assert_eq!(client.event_of("session_ended")["payload"], json!({"by": "cli"}));
    for _ in 0..2 {
        for kind in ["send_user_message", "queue_message"] {
            let message = json!({"sessionId": session, "text": "$ true\n"});
            assert_eq!(client.refused(kind, message), "INVALID_REQUEST");
        }
        assert!(client.events.is_empty(), "ended twice: {:?}", client.events);
        let snapshot = client.get("get_session_snapshot", json!({"sessionId": session}));
        assert_eq!((&snapshot["ended"], &snapshot["meta"]["name"]), (&json!(true), &json!("parser")));
        assert_eq!(client.get("list_sessions", json!({})), json!({"sessions": []}));
        let row = client.get("list_sessions", json!({"includeEnded": true}))["sessions"][0].clone();
        assert_eq!((&row["ended"], &row["name"]), (&json!(true), &json!("parser")), "{row}");
        daemon.kill();
        daemon.restart();
        client = daemon.connect();
    }
    client.attach(&session, 0);
    assert_eq!(client.event_of("session_ended")["payload"]["by"], "cli");
}

#[test]
fn the_transcript_is_read_in_pages_of_any_size() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    for number in 0..4 {
        client.run(&session, &format!("Words of {number}.\n\n$ true\n\nMore of {number}.\n"));
    }
    let all = client.get("get_session_messages", json!({"sessionId": session}));
    assert_eq!(all["done"], true);
    let messages = all["messages"].as_array().unwrap();
    let rows: Vec<_> =
        messages.iter().map(|message| (message["role"].as_str().unwrap(), message["text"].as_str().unwrap())).collect();
    assert_eq!(rows.len(), 12, "{rows:?}");
    let prompt = "Words of 0.\n\n$ true\n\nMore of 0.\n";
    assert_eq!(rows[..3], [("user", prompt), ("assistant", "Words of 0."), ("assistant", "More of 0.")]);
    for limit in [1, 2, 5, 12, 13] {
        let (mut after, mut read) = (json!(0), Vec::new());
        loop {
            let ask = json!({"sessionId": session, "afterSeq": after, "limit": limit});
            let page = client.get("get_session_messages", ask);
            let items = page["messages"].as_array().unwrap();
            assert!(items.len() <= limit);
            read.extend(items.iter().cloned());
            after = page["nextAfterSeq"].clone();
            if page["done"] == true {
                break;
            }
        }
        assert_eq!(read, *messages, "in pages of {limit}");
    }
}

#[test]
fn sessions_are_listed_newest_first_in_pages_and_by_prefix() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    assert_eq!(client.get("list_sessions", json!({})), json!({"sessions": []}));
    let repo = json!({"rootPath": daemon.cwd(), "currentBranch": "main", "later": [1, {"a": null}]});
    let mut made: Vec<String> = (0..7)
        .map(|number| {
            let start = json!({"repo": repo, "name": format!("n{number}"), "model": "m"});
            client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned()
        })
        .collect();
    client.run(&made[2], "$ true\n");
    let moved = made.remove(2);
    made.push(moved);
    made.reverse();
    let ids = |page: &Value| -> Vec<String> {
        let rows = page["sessions"].as_array().unwrap().iter();
        rows.map(|row| row["sessionId"].as_str().unwrap().to_owned()).collect()
    };
    let all = client.get("list_sessions", json!({}));
    assert_eq!(ids(&all), made);
    assert!(all["nextCursor"].is_null());
    let row = &all["sessions"][0];
    assert_eq!((&row["repo"], &row["model"], &row["name"]), (&repo, &json!("m"), &json!("n2")));
    assert_eq!((&row["state"], &row["lastUserMessage"]), (&json!("completed"), &json!("$ true\n")));
    for limit in [1, 3, 7] {
        let (mut cursor, mut listed) = (Value::Null, Vec::new());
        loop {
            let page = client.get("list_sessions", json!({"limit": limit, "cursor": cursor}));
            assert!(ids(&page).len() <= limit);
            listed.extend(ids(&page));
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        assert_eq!(listed, made, "in pages of {limit}");
    }
    let one = &made[4];
    assert_eq!(ids(&client.get("list_sessions", json!({"prefix": one}))), [one.as_str()]);
    assert_eq!(ids(&client.get("list_sessions", json!({"prefix": "sess_"}))), made);
    for nothing in ["%", "sess\\_", "nothing", "_"] {
        assert!(ids(&client.get("list_sessions", json!({"prefix": nothing}))).is_empty(), "{nothing}");
    }
}

#[test]
fn providers_and_metrics_are_reported() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let providers = client.get("list_providers", json!({}))["providers"].clone();
    let row = |(name, configured)| json!({"name": name, "models": [], "configured": configured, "default": name == "playbook"});
    let rows = [("playbook", true), ("anthropic", false), ("ollama", true), ("openai", false)];
    assert_eq!(providers, json!(rows.map(row)), "nobody has given those two a key");
    client.prompt(&session, "$? true\n");
    client.event_of("approval_required");
    let figures = client.get("get_metrics", json!({}));
    for (name, value) in [("sessions", 1), ("residentSessions", 1), ("activeRuns", 1), ("connections", 1)] {
        assert_eq!(figures[name], value, "{name}");
    }
    assert_eq!(figures["pid"], daemon.pid());
    assert_eq!(figures["socket"], daemon.socket().to_str().unwrap());
    assert!(figures["events"].as_u64().unwrap() >= 4 && figures["journalBytes"].as_u64().unwrap() > 0);
    assert_eq!(figures["draining"], false);
    assert_eq!(figures["graceMs"], 10_000);
}

#[test]
fn the_grace_of_the_daemon_is_reported() {
    let daemon = Daemon::start_with(&[("PUSH_GRACE_SECONDS", "300")]);
    assert_eq!(daemon.connect().get("get_metrics", json!({}))["graceMs"], 300_000);
}

#[test]
fn a_draining_daemon_finishes_active_runs_and_accepts_no_new_ones() {
    let mut daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$ echo begun; until [ -e go ]; do sleep 0.01; done\n$ echo x > done\n");
    client.event_of("tool_output");
    client.get("queue_message", json!({"sessionId": session, "text": "$ echo x >> later\n"}));
    assert_eq!(client.get("drain", json!({"graceMs": 60_000})), json!({"draining": true}));
    assert_eq!(client.get("get_metrics", json!({}))["draining"], true);
    let answer = client.ask("start_session", json!({"cwd": daemon.cwd()}));
    assert_eq!(answer["error"]["retryable"], true, "{answer}");
    fs::write(daemon.cwd().join("go"), "").unwrap();
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    assert!(daemon.ended().success());
    assert!(daemon.cwd().join("done").exists());
    assert!(!daemon.cwd().join("later").exists(), "a new run began");
    daemon.restart();
    let mut client = daemon.connect();
    client.attach(&session, 0);
    for _ in 0..2 {
        assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    }
    assert_eq!(fs::read_to_string(daemon.cwd().join("later")).unwrap(), "x\n");
}

#[test]
fn a_message_is_accepted_once_however_often_it_is_sent() {
    let mut daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let message = json!({"sessionId": session, "clientMessageId": "m1", "text": "$ echo x >> count\n"});
    let first = client.get("send_user_message", message.clone());
    assert_eq!(first["repeated"], Value::Null);
    client.event_of("run_complete");
    let other = json!({"sessionId": session, "clientMessageId": "m1", "text": "$ echo y >> count\n"});
    let criteria = json!([{"check": "true"}]);
    for _ in 0..2 {
        let again = client.get("send_user_message", message.clone());
        assert_eq!((&again["runId"], &again["repeated"]), (&first["runId"], &json!(true)));
        assert_eq!(client.refused("send_user_message", other.clone()), "INVALID_REQUEST");
        let mut stricter = message.clone();
        stricter["acceptanceCriteria"] = criteria.clone();
        assert_eq!(client.refused("send_user_message", stricter), "INVALID_REQUEST");
        // The id is unknown in another session.
        let elsewhere = client.start(daemon.cwd());
        let mut message = message.clone();
        message["sessionId"] = json!(elsewhere);
        message["text"] = json!("$ true\n");
        assert_eq!(client.get("send_user_message", message)["repeated"], Value::Null);
        daemon.kill();
        daemon.restart();
        client = daemon.connect();
    }
    assert_eq!(fs::read_to_string(daemon.cwd().join("count")).unwrap(), "x\n");
}

#[test]
fn concurrent_starts_with_one_key_start_one_session() {
    let mut daemon = Daemon::start();
    let start = json!({"cwd": daemon.cwd(), "idempotencyKey": "k1"});
    let (count, barrier) = (20, Barrier::new(20));
    let clients: Vec<_> = (0..count).map(|_| daemon.connect()).collect();
    let started: Vec<Value> = thread::scope(|scope| {
        let (start, barrier) = (&start, &barrier);
        let threads: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                scope.spawn(move || {
                    barrier.wait();
                    client.get("start_session", start.clone())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let session = &started[0]["sessionId"];
    assert!(started.iter().all(|answer| answer["sessionId"] == *session), "{started:?}");
    assert_eq!(started.iter().filter(|answer| answer["repeated"].is_null()).count(), 1);
    daemon.kill();
    daemon.restart();
    let mut client = daemon.connect();
    let again = client.get("start_session", start);
    assert_eq!((&again["sessionId"], &again["repeated"]), (session, &json!(true)));
    let token = &again["attachToken"];
    client.get("attach_session", json!({"sessionId": session, "attachToken": token}));
    let other = json!({"cwd": "/", "idempotencyKey": "k1"});
    assert_eq!(client.refused("start_session", other), "INVALID_REQUEST");
    assert_eq!(client.get("list_sessions", json!({}))["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn the_exit_code_of_a_command_that_a_signal_ended_is_128_and_its_number() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.get("send_user_message", json!({"sessionId": session, "text": "$ kill -SEGV $$\n"}));
    let result = client.event_of("tool_result")["payload"].clone();
    assert_eq!((&result["exitCode"], &result["status"]), (&json!(128 + 11), &json!("failed")), "{result}");
    let error = &result["structuredError"];
    assert_eq!((&error["type"], &error["code"]), (&json!("EXEC_NON_ZERO_EXIT"), &json!("SIGNAL")), "{result}");
    assert_eq!((&result["text"], &result["noOutput"]), (&json!("ended by signal 11"), &json!(true)), "{result}");
}

#[test]
fn acceptance_decides_about_an_otherwise_successful_run() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let message =
        |criteria: Value| json!({"sessionId": session, "text": "$ echo made > made\n", "acceptanceCriteria": criteria});
    let good = json!([{"id": "made", "check": "test -e made", "description": "it is there"},
        {"check": "exit 3", "exitCode": 3}]);
    client.get("send_user_message", message(good));
    let complete = client.event_of("run_complete")["payload"].clone();
    assert_eq!((&complete["outcome"], &complete["headless"]["exitCodeHint"]), (&json!("success"), &json!(0)));
    let results = json!([{"id": "made", "passed": true, "exitCode": 0, "output": ""},
        {"id": "check-2", "passed": true, "exitCode": 3, "output": ""}]);
    assert_eq!(complete["acceptance"], json!({"total": 2, "passed": 2, "results": results}));
    let bad = json!([{"id": "good", "check": "true"}, {"id": "bad", "check": "echo why; exit 7"},
        {"id": "later", "check": "true"}]);
    client.get("send_user_message", message(bad));
    let events = client.events_until("run_complete");
    let checks = events.iter().filter(|event| event["payload"]["purpose"] == "acceptance");
    let positions: Vec<_> =
        checks.filter(|event| event["type"] == "tool_call").map(|event| &event["payload"]["check"]).collect();
    assert_eq!(positions, [0, 1, 2]);
    let complete = &events.last().unwrap()["payload"];
    assert_eq!((&complete["outcome"], &complete["headless"]["exitCodeHint"]), (&json!("failed"), &json!(4)));
    assert_eq!((&complete["acceptance"]["total"], &complete["acceptance"]["passed"]), (&json!(3), &json!(2)));
    let bad = json!({"id": "bad", "passed": false, "exitCode": 7, "output": "why\n"});
    assert_eq!(complete["acceptance"]["results"][1], bad);
}

#[test]
fn a_run_that_takes_too_long_fails() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    for text in ["$ sleep 1000\n", "$? true\n"] {
        let message = json!({"sessionId": session, "text": text, "timeoutMs": 150});
        client.get("send_user_message", message);
        let complete = client.event_of("run_complete")["payload"].clone();
        assert_eq!((&complete["outcome"], &complete["reason"]), (&json!("failed"), &json!("timeout")));
        assert_eq!(complete["headless"]["exitCodeHint"], 1);
    }
    assert_eq!(client.run(&session, "$ true\n")["outcome"], "success");
}

#[test]
fn a_cancel_is_handled_during_a_flood_of_other_requests() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let clients: Vec<_> = (0..4).map(|_| daemon.connect()).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in clients {
            let (session, over) = (session.as_str(), &over);
            scope.spawn(move || flood(client, session, over));
        }
        for _ in 0..10 {
            let run = client.prompt(&session, "$ while :; do echo noise; done\n");
            client.event_of("tool_output");
            client.get("cancel_run", json!({"sessionId": session, "runId": run}));
            assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "cancelled");
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Sends requests without waiting for the replies, which are checked all the same.
fn flood(mut client: Client, session: &str, over: &AtomicBool) {
    let ask = json!({"sessionId": session});
    while !over.load(Ordering::Relaxed) {
        let requests: Vec<_> = (0..50).map(|_| client.send("get_session_snapshot", ask.clone())).collect();
        for request in requests {
            let answer = client.answer(&request);
            assert!(answer["ok"] == true || answer["error"]["retryable"] == true, "{answer}");
        }
    }
}
