//! User commands, which run outside of any run.

use pushd::kernel::command::{Answer, Aside, Command};
use pushd::kernel::event::{Ending, EventKind, OutputStream, Purpose, Settlement};
use pushd::kernel::id::{CallId, Json};
use pushd::kernel::refusal::Refusal;
use pushd::runtime::mint;
use serde_json::json;

use crate::house::{Guest, House, KEY, texts};
use crate::model::{Delivery, Reply, say};

#[tokio::test]
async fn a_command_of_the_user_runs_streams_and_is_told_to_the_model_unless_kept_from_it() {
    let house = House::new();
    let mut guest = house.session().await;
    let (call, version) = begin(&mut guest, "echo out; echo err >&2; exit 3", true).await;
    assert_eq!(version, 0, "it makes no version of its own");
    let settled = settlement(&mut guest, &call).await;
    assert_eq!((settled.ending, settled.exit_code), (Ending::Failed, Some(3)));
    assert!(settled.text.contains("out\n") && settled.text.contains("err\n"), "{}", settled.text);
    let printed = guest.seen.iter().filter_map(|event| match &event.kind {
        EventKind::CallOutput { stream, text, .. } => Some((*stream, text.clone())),
        _ => None,
    });
    let printed: Vec<_> = printed.collect();
    assert!(printed.iter().all(|(stream, _)| *stream == OutputStream::Out), "{printed:?}");
    let text: String = printed.into_iter().map(|(_, text)| text).collect();
    assert_eq!(text, "out\nerr\n", "in the order in which it was written");
    assert!(guest.seen.iter().skip(1).all(|event| event.run.is_none()), "it is of no run");
    let (call, _) = begin(&mut guest, "echo not for the model", false).await;
    settlement(&mut guest, &call).await;
    house.server.script([Reply::says("fine")]);
    guest.run("what did I do?").await;
    let told = texts(&house.asked(0)).join("\n");
    assert!(
        told.contains(
            "[The user ran `echo out; echo err >&2; exit 3` beside the conversation; it exited with 3]"
        ),
        "{told}"
    );
    assert!(!told.contains("not for the model"), "{told}");
    house.close().await;
}

#[tokio::test]
async fn a_command_of_the_user_is_confined_like_a_model_s_and_hides_what_is_secret() {
    let house = House::new();
    let mut guest = house.session().await;
    let (call, _) =
        begin(&mut guest, &format!("printf 'sk%s\\n' '{}'; touch ../beyond || echo held", &KEY[2..]), true)
            .await;
    let settled = settlement(&mut guest, &call).await;
    assert!(!settled.text.contains(KEY), "{}", settled.text);
    let kept = format!("{:?}", guest.seen);
    assert!(!kept.contains(KEY), "{kept}");
    if settled.text.contains("held") {
        assert!(!house.cwd().join("../beyond").exists());
    }
    house.close().await;
}

#[tokio::test]
async fn a_command_of_the_user_is_stopped_with_everything_it_started_and_nothing_else_is() {
    let house = House::new();
    let mut guest = house.session().await;
    let (stopped, _) =
        begin(&mut guest, "exec 9> lock; flock -n 9 && echo begun; sleep 300 & wait", true).await;
    let (other, _) = begin(&mut guest, "sleep 300", true).await;
    guest.until(|event| printed(event, "begun")).await;
    assert_eq!(guest.ask(Command::StopAside { call: Some(mint::call()) }).await.0, Err(Refusal::NoAside));
    let answer = guest.grant(Command::StopAside { call: Some(stopped.clone()) }).await;
    assert_eq!(answer, Answer::StoppingAside);
    let settled = settlement(&mut guest, &stopped).await;
    assert_eq!((settled.ending, settled.exit_code), (Ending::Cut, None));
    assert!(settled.text.contains("begun"), "what it had printed is told: {}", settled.text);
    let lock = std::fs::File::open(house.cwd().join("lock")).unwrap();
    assert!(lock.try_lock().is_ok(), "what it left in the background holds on to nothing");
    assert_eq!(settled.purpose, Purpose::Aside { told: true });
    // The other continues until all are stopped.
    assert_eq!(guest.grant(Command::StopAside { call: None }).await, Answer::StoppingAside);
    let settled = settlement(&mut guest, &other).await;
    assert_eq!(settled.ending, Ending::Cut);
    assert_eq!(guest.ask(Command::StopAside { call: None }).await.0, Err(Refusal::NoAside));
    house.close().await;
}

#[tokio::test]
async fn a_command_of_the_user_is_stopped_in_whatever_moment_of_its_beginning() {
    let house = House::new();
    let mut guest = house.session().await;
    for moment in 0..40 {
        let call = mint::call();
        let (begun, stopped) = guest
            .ask_both(
                aside(&call, "sleep 300", true),
                moment,
                Command::StopAside { call: Some(call.clone()) },
            )
            .await;
        assert_eq!(begun, Ok(Answer::AsideBegan(call.clone())));
        if stopped.is_err() {
            // The stop request arrived before the command.
            assert_eq!(stopped, Err(Refusal::NoAside));
            guest.grant(Command::StopAside { call: Some(call.clone()) }).await;
        }
        assert_eq!(settlement(&mut guest, &call).await.ending, Ending::Cut, "moment {moment}");
    }
    house.close().await;
}

#[tokio::test]
async fn a_command_of_the_user_runs_beside_a_run_and_is_bounded_in_number() {
    let house = House::new();
    let mut guest = house.session().await;
    house.server.script([Reply::turn([say("slowly"), say(" "), say("on")])
        .delivered(Delivery::Paced(std::time::Duration::from_millis(150)))]);
    guest.prompt("talk").await;
    let (call, _) = begin(&mut guest, "echo beside", false).await;
    let settled = settlement(&mut guest, &call).await;
    assert_eq!(settled.exit_code, Some(0));
    guest.over().await;
    let mut calls = Vec::new();
    for _ in 0..8 {
        calls.push(begin(&mut guest, "sleep 300", false).await.0);
    }
    let refused = guest.ask(aside(&mint::call(), "true", false)).await.0;
    assert_eq!(refused, Err(Refusal::TooManyAsides));
    guest.grant(Command::StopAside { call: None }).await;
    let mut left = calls.len();
    while left > 0 {
        guest.until(|event| calls.iter().find_map(|call| settled_of(event, call))).await;
        left -= 1;
    }
    house.close().await;
}

#[tokio::test]
async fn a_command_of_the_user_that_a_restart_cut_is_settled_and_never_begun_again() {
    let mut house = House::new();
    let mut guest = house.session().await;
    let (call, _) = begin(&mut guest, "echo once >> ran; touch begun; sleep 300", true).await;
    // The file that it writes is the only sign that it runs.
    house.has_made("begun").await;
    let id = guest.id();
    drop(guest);
    house.restart().await;
    let mut guest = house.back(&id).await;
    let settled = settlement(&mut guest, &call).await;
    assert_eq!(settled.ending, Ending::Cut);
    assert_eq!(settled.fault.unwrap().message, "stopped: the daemon was told to stop, and ended it");
    let (call, _) = begin(&mut guest, "cat ran", true).await;
    assert_eq!(settlement(&mut guest, &call).await.text, "once\n");
    house.close().await;
}

/// The comparison is slow with many files, and the stopping daemon has to wait for it.
#[tokio::test]
async fn a_daemon_that_is_told_to_stop_undoes_first_what_a_command_has_changed_in_the_git_directory() {
    let house = House::new();
    let mut guest = house.session().await;
    let git_dir = repository(&house);
    for number in 0..5000 {
        std::fs::write(git_dir.join(format!("refs/tags/t{number}")), "").unwrap();
    }
    if !is_confined(&house, &mut guest).await {
        return crate::skip::skip("commands are not confined here");
    }
    let script = "git add new; echo ../evil > .git/commondir && touch planted; sleep 300";
    std::fs::write(house.cwd().join("script"), script).unwrap();
    begin(&mut guest, "git plant", true).await;
    house.has_made("planted").await;
    assert!(git_dir.join("commondir").exists());
    let _files = house.close().await;
    assert!(!git_dir.join("commondir").exists(), "it stays after the daemon has ended");
    assert_eq!(std::fs::read_to_string(git_dir.join("commondir.rejected-1")).unwrap(), "../evil\n");
}

#[tokio::test]
async fn a_command_of_the_user_uses_git_and_the_network_as_its_own_words_say() {
    let house = House::new();
    let mut guest = house.session().await;
    let git_dir = repository(&house);
    let command = "git add new && git commit -qm 'it'\\''s first'";
    let (call, _) = begin(&mut guest, command, true).await;
    let settled = settlement(&mut guest, &call).await;
    assert_eq!(settled.exit_code, Some(0), "{}", settled.text);
    assert!(git_dir.join("refs/heads/main").exists());
    // A command that cannot work in the sandbox is refused with a reason and does not run.
    if is_confined(&house, &mut guest).await {
        let (call, _) = begin(&mut guest, "touch begun; git rebase main", true).await;
        let settled = settlement(&mut guest, &call).await;
        assert!(settled.text.contains("`git rebase`"), "{}", settled.text);
        assert!(!house.cwd().join("begun").exists());
    }
    let (call, _) = begin(&mut guest, "curl --version", true).await;
    if settlement(&mut guest, &call).await.exit_code != Some(0) {
        return crate::skip::skip("there is no curl");
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
        let (call, _) = begin(&mut guest, &format!("curl -sS --noproxy '*' {url}"), true).await;
        let settled = settlement(&mut guest, &call).await;
        assert_eq!((settled.exit_code, &*settled.text), (Some(0), "hello"));
    };
    tokio::select! {
        () = fetched => {}
        () = async { let _stream = answer.await; std::future::pending().await } => {}
    }
    house.close().await;
}

/// Makes the workspace a repository with an untracked file; returns its git directory.
fn repository(house: &House) -> std::path::PathBuf {
    let made = std::process::Command::new("git")
        .args(["init", "-q", "-b", "main"])
        .current_dir(house.cwd())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let settings = "[user]\n\tname = Ann\n\temail = ann@example.org\n[alias]\n\tplant = !sh ./script\n";
    let config = house.cwd().join(".git/config");
    let initial = std::fs::read_to_string(&config).unwrap();
    std::fs::write(config, initial + settings).unwrap();
    std::fs::write(house.cwd().join("new"), "new\n").unwrap();
    house.cwd().join(".git")
}

/// Whether commands are confined here.
async fn is_confined(house: &House, guest: &mut Guest) -> bool {
    let (call, _) = begin(guest, "touch ../beyond", false).await;
    settlement(guest, &call).await;
    !house.cwd().join("../beyond").exists()
}

async fn begin(guest: &mut Guest, command: &str, told: bool) -> (CallId, u64) {
    let call = mint::call();
    let (reply, version) = guest.ask(aside(&call, command, told)).await;
    assert_eq!(reply, Ok(Answer::AsideBegan(call.clone())));
    (call, version)
}

fn aside(call: &CallId, command: &str, told: bool) -> Command {
    let args = Json::new(json!({ "command": command }).to_string());
    Command::Aside(Box::new(Aside { call: call.clone(), tool: "sandbox_exec".into(), args, told }))
}

async fn settlement(guest: &mut Guest, call: &CallId) -> Settlement {
    guest.until(|event| settled_of(event, call)).await
}

fn settled_of(event: &pushd::kernel::event::Event, call: &CallId) -> Option<Settlement> {
    match &event.kind {
        EventKind::CallSettled(settlement) if settlement.call == *call => Some((**settlement).clone()),
        _ => None,
    }
}

fn printed(event: &pushd::kernel::event::Event, word: &str) -> Option<()> {
    match &event.kind {
        EventKind::CallOutput { text, .. } => text.contains(word).then_some(()),
        _ => None,
    }
}
