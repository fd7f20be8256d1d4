//! The client against a scripted daemon on a real socket.

use serde_json::json;

use super::testing::{Daemon, replay, shell, within};
use super::*;

#[tokio::test]
async fn events_go_on_from_the_last_one_after_the_connection_broke_and_none_comes_twice() {
    let daemon = Daemon::new();
    let settings = daemon.settings();
    let script = async {
        let mut first = daemon.greet("0.0.1").await;
        let attach = first.request("attach_session").await;
        assert_eq!(attach["payload"]["lastSeenSeq"], 0);
        first.answer(&attach, json!({"sessionId": "s", "state": "running", "replay": replay(1, 2)})).await;
        first.event(1).await;
        first.event(2).await;
        drop(first);

        let mut second = daemon.greet("0.0.1").await;
        let attach = second.request("attach_session").await;
        assert_eq!(attach["payload"]["lastSeenSeq"], 2);
        second.answer(&attach, json!({"sessionId": "s", "state": "running", "replay": replay(3, 3)})).await;
        // The protocol delivers events at least once.
        for seq in [2, 3, 3, 4] {
            second.event(seq).await;
        }
        second
    };
    let client = async {
        let mut client = Client::open(settings).await.unwrap();
        let attached = client.attach("s", 0, Access::ReadOnly).await.unwrap();
        assert_eq!((attached.from, attached.to, attached.gap), (1, 2, false));
        let mut seen = Vec::new();
        while seen.len() < 4 {
            seen.push(client.next().await.unwrap().seq);
        }
        seen
    };
    let (seen, _second) = within(async { tokio::join!(client, script) }).await;
    assert_eq!(seen, [1, 2, 3, 4]);
    assert_eq!(daemon.notices(), [Notice::Lost, Notice::Back]);
}

#[tokio::test]
async fn after_a_daemon_was_stopped_on_purpose_a_client_that_watches_waits_and_starts_none() {
    let daemon = Daemon::new();
    let mut settings = daemon.settings();
    let started = daemon.dir.path().join("started");
    settings.missing = shell(&format!("touch {}; exit 1", started.display()));
    // The reconnect timeout does not count while the client waits for a stopped daemon.
    settings.patience = std::time::Duration::ZERO;
    let pid_file = settings.address.pid.clone();
    std::fs::write(&pid_file, "1").unwrap();
    let script = async {
        let mut first = daemon.greet("0.0.1").await;
        let attach = first.request("attach_session").await;
        first.answer(&attach, json!({"replay": replay(1, 1)})).await;
        first.event(1).await;
        std::fs::remove_file(&pid_file).unwrap();
        let away = daemon.hide();
        drop(first);
        while !daemon.notices().contains(&Notice::Stopped) {
            tokio::task::yield_now().await;
        }
        std::fs::rename(away, &daemon.socket).unwrap();
        let mut second = daemon.greet("0.0.1").await;
        let attach = second.request("attach_session").await;
        assert_eq!(attach["payload"]["lastSeenSeq"], 1);
        second.answer(&attach, json!({"replay": replay(2, 2)})).await;
        second.event(2).await;
        second
    };
    let client = async {
        let mut client = Client::open(settings).await.unwrap();
        client.attach("s", 0, Access::ReadOnly).await.unwrap();
        [client.next().await.unwrap().seq, client.next().await.unwrap().seq]
    };
    let (seen, _second) = within(async { tokio::join!(client, script) }).await;
    assert_eq!(seen, [1, 2]);
    assert_eq!(daemon.notices(), [Notice::Lost, Notice::Stopped, Notice::Back]);
    assert!(!started.exists(), "a daemon was started");
}

#[tokio::test]
async fn a_lost_connection_over_a_socket_that_never_had_a_pid_file_is_given_up() {
    let daemon = Daemon::new();
    let mut settings = daemon.settings();
    settings.patience = std::time::Duration::ZERO;
    let script = async {
        let mut first = daemon.greet("0.0.1").await;
        let attach = first.request("attach_session").await;
        first.answer(&attach, json!({"replay": replay(1, 1)})).await;
        daemon.hide();
    };
    let client = async {
        let mut client = Client::open(settings).await.unwrap();
        client.attach("s", 0, Access::ReadOnly).await.unwrap();
        client.next().await.unwrap_err()
    };
    let (error, ()) = within(async { tokio::join!(client, script) }).await;
    assert!(matches!(error, AskError::Unreachable(Unreachable::NotRunning)), "{error}");
    assert_eq!(daemon.notices(), [Notice::Lost]);
}

#[tokio::test]
async fn a_daemon_that_crashed_is_started_again_by_a_client_that_watches() {
    let daemon = Daemon::new();
    let mut settings = daemon.settings();
    let away = daemon.dir.path().join("away.sock");
    settings.missing = shell(&format!("mv {} {} && echo ready", away.display(), daemon.socket.display()));
    // A daemon that is stopped in order removes its pid file; this one crashes.
    std::fs::write(&settings.address.pid, "1").unwrap();
    let script = async {
        let mut first = daemon.greet("0.0.1").await;
        let attach = first.request("attach_session").await;
        first.answer(&attach, json!({"replay": replay(1, 1)})).await;
        daemon.hide();
        drop(first);
        let mut second = daemon.greet("0.0.1").await;
        let attach = second.request("attach_session").await;
        second.answer(&attach, json!({"replay": replay(1, 1)})).await;
        second.event(1).await;
        second
    };
    let client = async {
        let mut client = Client::open(settings).await.unwrap();
        client.attach("s", 0, Access::ReadOnly).await.unwrap();
        client.next().await.unwrap().seq
    };
    let (seen, _second) = within(async { tokio::join!(client, script) }).await;
    assert_eq!(seen, 1);
    assert_eq!(daemon.notices(), [Notice::Lost, Notice::Starting, Notice::Back]);
}

#[tokio::test]
async fn a_message_whose_answer_was_lost_is_sent_again_under_the_same_id() {
    let daemon = Daemon::new();
    let settings = daemon.settings();
    let script = async {
        let mut first = daemon.greet("0.0.1").await;
        let before = first.request("send_user_message").await;
        drop(first);
        let mut second = daemon.greet("0.0.1").await;
        let attach = second.request("attach_session").await;
        second.answer(&attach, json!({"replay": replay(1, 1)})).await;
        second.event(1).await;
        let after = second.request("send_user_message").await;
        assert_eq!(before["payload"], after["payload"]);
        second.answer(&after, json!({"runId": "run_1", "accepted": true, "repeated": true})).await;
        second
    };
    let client = async {
        let mut client = Client::open(settings).await.unwrap();
        client.expect("s", 0);
        let answer = client.ask(Request::send_user_message("s", "msg_1", "hi")).await.unwrap();
        (answer, client.next().await.unwrap().seq)
    };
    let ((answer, seq), _second) = within(async { tokio::join!(client, script) }).await;
    assert_eq!(answer["runId"], "run_1");
    assert_eq!(seq, 1);
}

#[tokio::test]
async fn what_is_not_safe_to_repeat_is_not_repeated() {
    let daemon = Daemon::new();
    let settings = daemon.settings();
    let script = async {
        let mut only = daemon.greet("0.0.1").await;
        only.request("drain").await;
    };
    let client = async { Client::open(settings).await.unwrap().ask(Request::drain(None)).await };
    let (outcome, ()) = within(async { tokio::join!(client, script) }).await;
    assert!(matches!(outcome, Err(AskError::Unanswered { kind: "drain" })));
}

#[tokio::test]
async fn another_version_is_named_once_over_all_connections() {
    let daemon = Daemon::new();
    let settings = daemon.settings();
    let script = async {
        drop(daemon.greet("9.9.9").await);
        let mut second = daemon.greet("9.9.9").await;
        let asked = second.request("get_metrics").await;
        second.answer(&asked, json!({})).await;
        second
    };
    let client = async {
        let mut client = Client::open(settings).await.unwrap();
        client.ask(Request::metrics()).await.unwrap();
    };
    within(async { tokio::join!(client, script) }).await;
    let versions =
        |notice: &Notice| matches!(notice, Notice::OtherVersion { daemon, .. } if daemon == "9.9.9");
    assert_eq!(daemon.notices().iter().filter(|notice| versions(notice)).count(), 1);
}

#[tokio::test]
async fn a_refusal_is_an_answer_and_not_a_reason_to_reconnect() {
    let daemon = Daemon::new();
    let settings = daemon.settings();
    let script = async {
        let mut only = daemon.greet("0.0.1").await;
        let asked = only.request("cancel_run").await;
        only.refuse(&asked, "NO_ACTIVE_RUN").await;
        only
    };
    let client = async {
        Client::open(settings).await.unwrap().ask(Request::cancel_run("s", None)).await.unwrap_err()
    };
    let (error, _only) = within(async { tokio::join!(client, script) }).await;
    assert_eq!(error.code(), Some("NO_ACTIVE_RUN"));
    assert_eq!(daemon.notices(), []);
}

#[tokio::test]
async fn the_environment_goes_with_an_attach_that_may_act_and_not_with_one_that_only_watches() {
    let daemon = Daemon::new();
    let mut settings = daemon.settings();
    settings.environment.insert("LANG".into(), "C".into());
    let script = async {
        let mut only = daemon.greet("0.0.1").await;
        let full = only.request("attach_session").await;
        assert_eq!(full["payload"]["environment"], json!({"LANG": "C"}));
        only.answer(&full, json!({})).await;
        let watching = only.request("attach_session").await;
        assert_eq!(watching["payload"].get("environment"), None);
        assert_eq!(watching["payload"]["readOnly"], true);
        only.answer(&watching, json!({})).await;
        only
    };
    let client = async {
        let mut client = Client::open(settings).await.unwrap();
        client.attach("s", 0, Access::Full).await.unwrap();
        client.attach("s", 0, Access::ReadOnly).await.unwrap();
    };
    within(async { tokio::join!(client, script) }).await;
}

#[tokio::test]
async fn a_missing_daemon_is_started_and_answers() {
    let daemon = Daemon::new();
    let away = daemon.hide();
    let mut settings = daemon.settings();
    settings.missing = shell(&format!("mv {} {} && echo ready", away.display(), daemon.socket.display()));
    let (client, _greeted) =
        within(async { tokio::join!(Client::open(settings), daemon.greet("0.0.1")) }).await;
    client.unwrap();
    assert_eq!(daemon.notices(), [Notice::Starting]);
}

#[tokio::test]
async fn of_many_started_at_once_the_losers_clients_reach_the_winner() {
    let daemon = Daemon::new();
    let away = daemon.hide();
    let won = daemon.dir.path().join("won");
    let script = format!(
        "if mkdir {won} 2>/dev/null; then mv {away} {socket}; echo ready; else echo in-use; exit 1; fi",
        won = won.display(),
        away = away.display(),
        socket = daemon.socket.display()
    );
    let clients = async {
        let mut opening = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let mut settings = daemon.settings();
            settings.missing = shell(&script);
            opening.spawn(Client::open(settings));
        }
        opening.join_all().await.into_iter().filter(Result::is_ok).count()
    };
    let greetings = async {
        let mut greeted = Vec::new();
        for _ in 0..20 {
            greeted.push(daemon.greet("0.0.1").await);
        }
        greeted.len()
    };
    let (connected, greeted) = within(async { tokio::join!(clients, greetings) }).await;
    assert_eq!((connected, greeted), (20, 20));
}

#[tokio::test]
async fn a_daemon_that_fails_is_quoted() {
    let daemon = Daemon::new();
    daemon.hide();
    let mut settings = daemon.settings();
    settings.missing = shell("echo 'the disk is full' >&2; exit 1");
    let error = within(Client::open(settings)).await.unwrap_err();
    assert_eq!(error.to_string(), "pushd failed to start:\nthe disk is full");
}

#[tokio::test]
async fn without_a_daemon_and_without_leave_to_start_one_there_is_none() {
    let daemon = Daemon::new();
    daemon.hide();
    let error = within(Client::open(daemon.settings())).await.unwrap_err();
    assert!(matches!(error, AskError::Unreachable(Unreachable::NotRunning)));
}

#[tokio::test]
async fn a_started_daemon_has_its_own_session_the_root_directory_and_no_foreign_descriptor() {
    let daemon = Daemon::new();
    let away = daemon.hide();
    let facts = daemon.dir.path().join("facts");
    // An inherited descriptor without the close-on-exec flag.
    let foreign = std::fs::File::create(daemon.dir.path().join("foreign")).unwrap();
    let number = nix::fcntl::fcntl(&foreign, nix::fcntl::FcntlArg::F_DUPFD(200)).unwrap();
    let mut settings = daemon.settings();
    settings.missing = shell(&format!(
        "{{ pwd; cut -d' ' -f1,6 /proc/self/stat; echo $$; test -e /dev/fd/{number} && echo open || echo closed; }} > {facts}; mv {away} {socket}; echo ready",
        facts = facts.display(),
        away = away.display(),
        socket = daemon.socket.display(),
    ));
    let (client, _greeted) =
        within(async { tokio::join!(Client::open(settings), daemon.greet("0.0.1")) }).await;
    client.unwrap();
    nix::unistd::close(number).unwrap();
    let text = std::fs::read_to_string(facts).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "/");
    let session = lines[1].split(' ').next_back().unwrap();
    assert_eq!(session, lines[2], "the shell leads its session");
    assert_eq!(lines[3], "closed");
}
