//! The client against a scripted daemon on a real socket.

use serde_json::json;

use super::testing::{ScriptedDaemon, replay, shell, with_timeout};
use super::*;

#[tokio::test]
async fn after_a_reconnect_events_continue_without_duplicates() {
    let daemon = ScriptedDaemon::new();
    let settings = daemon.config();
    let script = async {
        let mut first = daemon.handshake("0.0.1").await;
        let attach = first.request("attach_session").await;
        assert_eq!(attach["payload"]["lastSeenSeq"], 0);
        first.answer(&attach, json!({"sessionId": "s", "state": "running", "replay": replay(1, 2)})).await;
        first.event(1).await;
        first.event(2).await;
        drop(first);

        let mut second = daemon.handshake("0.0.1").await;
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
        let replay = client.attach("s", 0, Access::ReadOnly).await.unwrap();
        assert_eq!((replay.from_seq, replay.to_seq, replay.gap), (1, 2, false));
        let mut seen = Vec::new();
        while seen.len() < 4 {
            seen.push(client.next().await.unwrap().seq);
        }
        seen
    };
    let (seen, _second) = with_timeout(async { tokio::join!(client, script) }).await;
    assert_eq!(seen, [1, 2, 3, 4]);
    assert_eq!(daemon.notices(), [Notice::ConnectionLost, Notice::Reconnected]);
}

#[tokio::test]
async fn a_subscribed_client_waits_for_a_stopped_daemon_and_starts_none() {
    let daemon = ScriptedDaemon::new();
    let mut settings = daemon.config();
    let started = daemon.dir.path().join("started");
    settings.endpoint = daemon.endpoint(shell(&format!("touch {}; exit 1", started.display())));
    // The reconnect timeout does not count while the client waits for a stopped daemon.
    settings.reconnect_timeout = std::time::Duration::ZERO;
    let pid_file = daemon.pid_file();
    std::fs::write(&pid_file, "1").unwrap();
    let script = async {
        let mut first = daemon.handshake("0.0.1").await;
        let attach = first.request("attach_session").await;
        first.answer(&attach, json!({"replay": replay(1, 1)})).await;
        first.event(1).await;
        std::fs::remove_file(&pid_file).unwrap();
        let away = daemon.hide_socket();
        drop(first);
        while !daemon.notices().contains(&Notice::DaemonStopped) {
            tokio::task::yield_now().await;
        }
        std::fs::rename(away, &daemon.socket).unwrap();
        let mut second = daemon.handshake("0.0.1").await;
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
    let (seen, _second) = with_timeout(async { tokio::join!(client, script) }).await;
    assert_eq!(seen, [1, 2]);
    assert_eq!(daemon.notices(), [Notice::ConnectionLost, Notice::DaemonStopped, Notice::Reconnected]);
    assert!(!started.exists(), "a daemon was started");
}

#[tokio::test]
async fn a_lost_connection_without_a_pid_file_times_out() {
    let daemon = ScriptedDaemon::new();
    let mut settings = daemon.config();
    settings.reconnect_timeout = std::time::Duration::ZERO;
    let script = async {
        let mut first = daemon.handshake("0.0.1").await;
        let attach = first.request("attach_session").await;
        first.answer(&attach, json!({"replay": replay(1, 1)})).await;
        daemon.hide_socket();
    };
    let client = async {
        let mut client = Client::open(settings).await.unwrap();
        client.attach("s", 0, Access::ReadOnly).await.unwrap();
        client.next().await.unwrap_err()
    };
    let (error, ()) = with_timeout(async { tokio::join!(client, script) }).await;
    assert!(matches!(error, RequestError::Unreachable(UnreachableError::NotRunning)), "{error}");
    assert_eq!(daemon.notices(), [Notice::ConnectionLost]);
}

#[tokio::test]
async fn a_subscribed_client_restarts_a_crashed_daemon() {
    let daemon = ScriptedDaemon::new();
    let mut settings = daemon.config();
    let away = daemon.dir.path().join("away.sock");
    settings.endpoint =
        daemon.endpoint(shell(&format!("mv {} {} && echo ready", away.display(), daemon.socket.display())));
    // A daemon that is stopped in order removes its pid file; this one crashes.
    std::fs::write(daemon.pid_file(), "1").unwrap();
    let script = async {
        let mut first = daemon.handshake("0.0.1").await;
        let attach = first.request("attach_session").await;
        first.answer(&attach, json!({"replay": replay(1, 1)})).await;
        daemon.hide_socket();
        drop(first);
        let mut second = daemon.handshake("0.0.1").await;
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
    let (seen, _second) = with_timeout(async { tokio::join!(client, script) }).await;
    assert_eq!(seen, 1);
    assert_eq!(daemon.notices(), [Notice::ConnectionLost, Notice::Starting, Notice::Reconnected]);
}

#[tokio::test]
async fn a_message_without_a_reply_is_sent_again_with_the_same_id() {
    let daemon = ScriptedDaemon::new();
    let settings = daemon.config();
    let script = async {
        let mut first = daemon.handshake("0.0.1").await;
        let before = first.request("send_user_message").await;
        drop(first);
        let mut second = daemon.handshake("0.0.1").await;
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
        client.track("s", 0);
        let answer = client.request(Request::send_user_message("s", "msg_1", "hi")).await.unwrap();
        (answer, client.next().await.unwrap().seq)
    };
    let ((answer, seq), _second) = with_timeout(async { tokio::join!(client, script) }).await;
    assert_eq!((answer.run_id.as_str(), answer.repeated), ("run_1", true));
    assert_eq!(seq, 1);
}

#[tokio::test]
async fn a_request_that_is_not_idempotent_is_not_repeated() {
    let daemon = ScriptedDaemon::new();
    let settings = daemon.config();
    let script = async {
        let mut only = daemon.handshake("0.0.1").await;
        only.request("drain").await;
    };
    let client = async { Client::open(settings).await.unwrap().request(Request::drain(None)).await };
    let (outcome, ()) = with_timeout(async { tokio::join!(client, script) }).await;
    assert!(matches!(outcome, Err(RequestError::NoReply { kind: "drain" })));
}

#[tokio::test]
async fn a_version_mismatch_is_reported_once_over_all_connections() {
    let daemon = ScriptedDaemon::new();
    let settings = daemon.config();
    let script = async {
        drop(daemon.handshake("9.9.9").await);
        let mut second = daemon.handshake("9.9.9").await;
        let asked = second.request("get_metrics").await;
        second.answer(&asked, json!({})).await;
        second
    };
    let client = async {
        let mut client = Client::open(settings).await.unwrap();
        client.request(Request::metrics()).await.unwrap();
    };
    with_timeout(async { tokio::join!(client, script) }).await;
    let versions = |notice: &Notice| matches!(notice, Notice::VersionMismatch { daemon, .. } if daemon == "9.9.9");
    assert_eq!(daemon.notices().iter().filter(|notice| versions(notice)).count(), 1);
}

#[tokio::test]
async fn a_refusal_does_not_cause_a_reconnect() {
    let daemon = ScriptedDaemon::new();
    let settings = daemon.config();
    let script = async {
        let mut only = daemon.handshake("0.0.1").await;
        let asked = only.request("cancel_run").await;
        only.refuse(&asked, "NO_ACTIVE_RUN").await;
        only
    };
    let client =
        async { Client::open(settings).await.unwrap().request(Request::cancel_run("s", None)).await.unwrap_err() };
    let (error, _only) = with_timeout(async { tokio::join!(client, script) }).await;
    assert_eq!(error.code(), Some("NO_ACTIVE_RUN"));
    assert_eq!(daemon.notices(), []);
}

#[tokio::test]
async fn the_environment_is_sent_with_full_access_and_not_with_read_only_access() {
    let daemon = ScriptedDaemon::new();
    let mut settings = daemon.config();
    settings.environment = Some([("LANG".to_owned(), "C".to_owned())].into());
    let script = async {
        let mut only = daemon.handshake("0.0.1").await;
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
    with_timeout(async { tokio::join!(client, script) }).await;
}

#[tokio::test]
async fn a_missing_daemon_is_started() {
    let daemon = ScriptedDaemon::new();
    let away = daemon.hide_socket();
    let mut settings = daemon.config();
    settings.endpoint =
        daemon.endpoint(shell(&format!("mv {} {} && echo ready", away.display(), daemon.socket.display())));
    let (client, _greeted) =
        with_timeout(async { tokio::join!(Client::open(settings), daemon.handshake("0.0.1")) }).await;
    client.unwrap();
    assert_eq!(daemon.notices(), [Notice::Starting]);
}

#[tokio::test]
async fn clients_of_daemons_without_the_lock_connect_to_the_daemon_that_holds_it() {
    let daemon = ScriptedDaemon::new();
    let away = daemon.hide_socket();
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
            let mut settings = daemon.config();
            settings.endpoint = daemon.endpoint(shell(&script));
            opening.spawn(Client::open(settings));
        }
        opening.join_all().await.into_iter().filter(Result::is_ok).count()
    };
    let greetings = async {
        let mut greeted = Vec::new();
        for _ in 0..20 {
            greeted.push(daemon.handshake("0.0.1").await);
        }
        greeted.len()
    };
    let (connected, greeted) = with_timeout(async { tokio::join!(clients, greetings) }).await;
    assert_eq!((connected, greeted), (20, 20));
}

#[tokio::test]
async fn the_output_of_a_failed_start_is_in_the_error() {
    let daemon = ScriptedDaemon::new();
    daemon.hide_socket();
    let mut settings = daemon.config();
    settings.endpoint = daemon.endpoint(shell("echo 'the disk is full' >&2; exit 1"));
    let error = with_timeout(Client::open(settings)).await.unwrap_err();
    assert_eq!(error.to_string(), "pushd failed to start:\nthe disk is full");
}

#[tokio::test]
async fn without_a_daemon_and_without_permission_to_start_one_the_client_fails() {
    let daemon = ScriptedDaemon::new();
    daemon.hide_socket();
    let error = with_timeout(Client::open(daemon.config())).await.unwrap_err();
    assert!(matches!(error, RequestError::Unreachable(UnreachableError::NotRunning)));
}

#[tokio::test]
async fn a_started_daemon_has_its_own_session_the_root_directory_and_no_inherited_descriptor() {
    let daemon = ScriptedDaemon::new();
    let away = daemon.hide_socket();
    let facts = daemon.dir.path().join("facts");
    // An inherited descriptor without the close-on-exec flag.
    let foreign = std::fs::File::create(daemon.dir.path().join("foreign")).unwrap();
    let number = nix::fcntl::fcntl(&foreign, nix::fcntl::FcntlArg::F_DUPFD(200)).unwrap();
    let mut settings = daemon.config();
    settings.endpoint = daemon.endpoint(shell(&format!(
        "{{ pwd; cut -d' ' -f1,6 /proc/self/stat; echo $$; test -e /dev/fd/{number} && echo open || echo closed; }} > {facts}; mv {away} {socket}; echo ready",
        facts = facts.display(),
        away = away.display(),
        socket = daemon.socket.display(),
    )));
    let (client, _greeted) =
        with_timeout(async { tokio::join!(Client::open(settings), daemon.handshake("0.0.1")) }).await;
    client.unwrap();
    nix::unistd::close(number).unwrap();
    let text = std::fs::read_to_string(facts).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "/");
    let session = lines[1].split(' ').next_back().unwrap();
    assert_eq!(session, lines[2], "the shell leads its session");
    assert_eq!(lines[3], "closed");
}
