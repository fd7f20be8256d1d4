//! User commands, which run outside of any run.

use pushd::kernel::command::{Answer, Command, UserCommand};
use pushd::kernel::event::{CallResult, EventKind, OutputStream, Purpose, ToolEvent, ToolOutcome};
use pushd::kernel::id::{CallId, Json};
use pushd::kernel::refusal::Refusal;
use pushd::runtime::generate;
use serde_json::json;

use crate::session_features::fixture::{Fixture, KEY, TestClient, texts};
use crate::support::model::{Delivery, Reply, say};

#[tokio::test]
async fn a_user_command_streams_and_enters_the_context_unless_excluded() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    let (call, version) = start_command(&mut client, "echo out; echo err >&2; exit 3", true).await;
    assert_eq!(version, 0, "it makes no version of its own");
    let settled = wait_for_result(&mut client, &call).await;
    assert_eq!((settled.outcome, settled.exit_code), (ToolOutcome::Failed, Some(3)));
    assert!(settled.text.contains("out\n") && settled.text.contains("err\n"), "{}", settled.text);
    let printed = client.seen.iter().filter_map(|event| match &event.kind {
        EventKind::Tool(ToolEvent::Output { stream, text, .. }) => Some((*stream, text.clone())),
        _ => None,
    });
    let printed: Vec<_> = printed.collect();
    assert!(printed.iter().all(|(stream, _)| *stream == OutputStream::Stdout), "{printed:?}");
    let text: String = printed.into_iter().map(|(_, text)| text).collect();
    assert_eq!(text, "out\nerr\n", "in the order in which it was written");
    assert!(client.seen.iter().skip(1).all(|event| event.run.is_none()), "it is of no run");
    let (call, _) = start_command(&mut client, "echo not for the model", false).await;
    wait_for_result(&mut client, &call).await;
    fixture.server.script([Reply::says("fine")]);
    client.run("what did I do?").await;
    let sent = texts(&fixture.request_body(0)).join("\n");
    assert!(
        sent.contains("[The user ran `echo out; echo err >&2; exit 3` outside the conversation; it exited with 3]"),
        "{sent}"
    );
    assert!(!sent.contains("not for the model"), "{sent}");
    fixture.close().await;
}

#[tokio::test]
async fn a_user_command_is_confined_like_a_model_s_and_redacted() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    let (call, _) =
        start_command(&mut client, &format!("printf 'sk%s\\n' '{}'; touch ../beyond || echo held", &KEY[2..]), true)
            .await;
    let settled = wait_for_result(&mut client, &call).await;
    assert!(!settled.text.contains(KEY), "{}", settled.text);
    let kept = format!("{:?}", client.seen);
    assert!(!kept.contains(KEY), "{kept}");
    if settled.text.contains("held") {
        assert!(!fixture.cwd().join("../beyond").exists());
    }
    fixture.close().await;
}

#[tokio::test]
async fn a_user_command_is_stopped_with_its_process_tree_alone() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    let (stopped, _) =
        start_command(&mut client, "exec 9> lock; flock -n 9 && echo begun; sleep 300 & wait", true).await;
    let (other, _) = start_command(&mut client, "sleep 300", true).await;
    client.until(|event| find_output(event, "begun")).await;
    assert_eq!(
        client.send(Command::StopUserCommand { call: Some(generate::call()) }).await.0,
        Err(Refusal::NoUserCommand)
    );
    let answer = client.send_accepted(Command::StopUserCommand { call: Some(stopped.clone()) }).await;
    assert_eq!(answer, Answer::StoppingUserCommand);
    let settled = wait_for_result(&mut client, &stopped).await;
    assert_eq!((settled.outcome, settled.exit_code), (ToolOutcome::Aborted, None));
    assert!(settled.text.contains("begun"), "what it had printed is told: {}", settled.text);
    let lock = std::fs::File::open(fixture.cwd().join("lock")).unwrap();
    assert!(lock.try_lock().is_ok(), "what it left in the background holds on to nothing");
    assert_eq!(settled.purpose, Purpose::UserCommand { in_context: true });
    // The other continues until all are stopped.
    assert_eq!(client.send_accepted(Command::StopUserCommand { call: None }).await, Answer::StoppingUserCommand);
    let settled = wait_for_result(&mut client, &other).await;
    assert_eq!(settled.outcome, ToolOutcome::Aborted);
    assert_eq!(client.send(Command::StopUserCommand { call: None }).await.0, Err(Refusal::NoUserCommand));
    fixture.close().await;
}

#[tokio::test]
async fn a_user_command_can_be_stopped_at_any_point_of_its_start() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    for moment in 0..40 {
        let call = generate::call();
        let (begun, stopped) = client
            .send_both(
                user_command(&call, "sleep 300", true),
                moment,
                Command::StopUserCommand { call: Some(call.clone()) },
            )
            .await;
        assert_eq!(begun, Ok(Answer::UserCommandStarted(call.clone())));
        if stopped.is_err() {
            // The stop request arrived before the command.
            assert_eq!(stopped, Err(Refusal::NoUserCommand));
            client.send_accepted(Command::StopUserCommand { call: Some(call.clone()) }).await;
        }
        assert_eq!(wait_for_result(&mut client, &call).await.outcome, ToolOutcome::Aborted, "moment {moment}");
    }
    fixture.close().await;
}

#[tokio::test]
async fn user_commands_run_during_a_run_and_are_limited_in_number() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    fixture.server.script([Reply::turn([say("slowly"), say(" "), say("on")])
        .delivered(Delivery::Paced(std::time::Duration::from_millis(150)))]);
    client.prompt("talk").await;
    let (call, _) = start_command(&mut client, "echo beside", false).await;
    let settled = wait_for_result(&mut client, &call).await;
    assert_eq!(settled.exit_code, Some(0));
    client.wait_for_run_end().await;
    let mut calls = Vec::new();
    for _ in 0..8 {
        calls.push(start_command(&mut client, "sleep 300", false).await.0);
    }
    let refused = client.send(user_command(&generate::call(), "true", false)).await.0;
    assert_eq!(refused, Err(Refusal::TooManyUserCommands));
    client.send_accepted(Command::StopUserCommand { call: None }).await;
    let mut left = calls.len();
    while left > 0 {
        client.until(|event| calls.iter().find_map(|call| result_of(event, call))).await;
        left -= 1;
    }
    fixture.close().await;
}

#[tokio::test]
async fn a_user_command_interrupted_by_a_restart_is_settled_and_never_restarted() {
    let mut fixture = Fixture::new();
    let mut client = fixture.session().await;
    let (call, _) = start_command(&mut client, "echo once >> ran; touch begun; sleep 300", true).await;
    // The file that it writes is the only sign that it runs.
    fixture.wait_for_file("begun").await;
    let id = client.id();
    drop(client);
    fixture.restart().await;
    let mut client = fixture.attach(&id).await;
    let settled = wait_for_result(&mut client, &call).await;
    assert_eq!(settled.outcome, ToolOutcome::Aborted);
    assert_eq!(settled.error.unwrap().message, "stopped: the daemon was shutting down and ended the call");
    let (call, _) = start_command(&mut client, "cat ran", true).await;
    assert_eq!(wait_for_result(&mut client, &call).await.text, "once\n");
    fixture.close().await;
}

/// The comparison is slow with many files, and the stopping daemon has to wait for it.
#[tokio::test]
async fn a_stopping_daemon_first_reverts_changes_of_a_command_in_the_git_directory() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    let git_dir = repository(&fixture);
    for number in 0..5000 {
        std::fs::write(git_dir.join(format!("refs/tags/t{number}")), "").unwrap();
    }
    if !is_confined(&fixture, &mut client).await {
        return crate::support::skip::skip("commands are not confined here");
    }
    let script = "git add new; echo ../evil > .git/commondir && touch planted; sleep 300";
    std::fs::write(fixture.cwd().join("script"), script).unwrap();
    start_command(&mut client, "git plant", true).await;
    fixture.wait_for_file("planted").await;
    assert!(git_dir.join("commondir").exists());
    let _files = fixture.close().await;
    assert!(!git_dir.join("commondir").exists(), "it stays after the daemon has ended");
    assert_eq!(std::fs::read_to_string(git_dir.join("commondir.rejected-1")).unwrap(), "../evil\n");
}

#[tokio::test]
async fn a_user_command_gets_git_and_network_access_by_its_text() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    let git_dir = repository(&fixture);
    let command = "git add new && git commit -qm 'it'\\''s first'";
    let (call, _) = start_command(&mut client, command, true).await;
    let settled = wait_for_result(&mut client, &call).await;
    assert_eq!(settled.exit_code, Some(0), "{}", settled.text);
    assert!(git_dir.join("refs/heads/main").exists());
    // A command that cannot work in the sandbox is refused with a reason and does not run.
    if is_confined(&fixture, &mut client).await {
        let (call, _) = start_command(&mut client, "touch begun; git rebase main", true).await;
        let settled = wait_for_result(&mut client, &call).await;
        assert!(settled.text.contains("`git rebase`"), "{}", settled.text);
        assert!(!fixture.cwd().join("begun").exists());
    }
    let (call, _) = start_command(&mut client, "curl --version", true).await;
    if wait_for_result(&mut client, &call).await.exit_code != Some(0) {
        return crate::support::skip::skip("there is no curl");
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
    let answer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
        tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.unwrap();
        stream
    };
    let fetched = async {
        let (call, _) = start_command(&mut client, &format!("curl -sS --noproxy '*' {url}"), true).await;
        let settled = wait_for_result(&mut client, &call).await;
        assert_eq!((settled.exit_code, &*settled.text), (Some(0), "hello"));
    };
    tokio::select! {
        () = fetched => {}
        () = async { let _stream = answer.await; std::future::pending().await } => {}
    }
    fixture.close().await;
}

/// Makes the workspace a repository with an untracked file; returns its git directory.
fn repository(fixture: &Fixture) -> std::path::PathBuf {
    let made = std::process::Command::new("git")
        .args(["init", "-q", "-b", "main"])
        .current_dir(fixture.cwd())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let settings = "[user]\n\tname = Ann\n\temail = ann@example.org\n[alias]\n\tplant = !sh ./script\n";
    let config = fixture.cwd().join(".git/config");
    let initial = std::fs::read_to_string(&config).unwrap();
    std::fs::write(config, initial + settings).unwrap();
    std::fs::write(fixture.cwd().join("new"), "new\n").unwrap();
    fixture.cwd().join(".git")
}

/// Whether commands are confined here.
async fn is_confined(fixture: &Fixture, client: &mut TestClient) -> bool {
    let (call, _) = start_command(client, "touch ../beyond", false).await;
    wait_for_result(client, &call).await;
    !fixture.cwd().join("../beyond").exists()
}

async fn start_command(client: &mut TestClient, command: &str, in_context: bool) -> (CallId, u64) {
    let call = generate::call();
    let (reply, version) = client.send(user_command(&call, command, in_context)).await;
    assert_eq!(reply, Ok(Answer::UserCommandStarted(call.clone())));
    (call, version)
}

fn user_command(call: &CallId, command: &str, in_context: bool) -> Command {
    let args = Json::new(json!({ "command": command }).to_string());
    Command::UserCommand(Box::new(UserCommand { call: call.clone(), tool: "sandbox_exec".into(), args, in_context }))
}

async fn wait_for_result(client: &mut TestClient, call: &CallId) -> CallResult {
    client.until(|event| result_of(event, call)).await
}

fn result_of(event: &pushd::kernel::event::Event, call: &CallId) -> Option<CallResult> {
    match &event.kind {
        EventKind::Tool(ToolEvent::Settled(settlement)) if settlement.call == *call => Some((**settlement).clone()),
        _ => None,
    }
}

fn find_output(event: &pushd::kernel::event::Event, word: &str) -> Option<()> {
    match &event.kind {
        EventKind::Tool(ToolEvent::Output { text, .. }) => text.contains(word).then_some(()),
        _ => None,
    }
}
