//! Tests with other processes, and with another user if the tests run as root.
//!
//! The other process is this test program again, with its role in an environment variable.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use super::super::{self as local, DirectoryKind, Listener};
use super::tests::{TestHome, address_in, bind_after_another, refusal};
use super::*;

#[tokio::test]
async fn another_user_is_kept_out_with_any_two_defences_removed() {
    let Some(home) = home_for_two_users("another_user_is_kept_out") else { return };
    let listener = Listener::bind(&home.address).unwrap();
    for (directory, socket, defence) in
        [(0o700, 0o666, "the directory"), (0o755, 0o600, "the mode"), (0o755, 0o666, "the credentials")]
    {
        open(home.run(), directory);
        open(&home.address.socket, socket);
        let mut actor = TestProcess::start_as(NOBODY, &home, TestRole::Connect);
        if defence != "the credentials" {
            assert_eq!(actor.line(), "refused: permission denied", "{defence} did not keep it out");
            continue;
        }
        let error = listener.accept().await.expect_err("another user was accepted");
        assert!(matches!(error, AcceptError::OtherUser { uid } if uid == NOBODY), "{error}");
        // The connection is closed without data, and the client detects that the daemon belongs to another user.
        assert_eq!(actor.line(), "closed");
        assert_eq!(actor.line(), "refused: permission denied");
        let second = listener.accept().await.expect_err("another user was accepted");
        assert!(matches!(second, AcceptError::OtherUser { .. }), "{second}");
    }
    let (client, accepted) = tokio::join!(local::connect(&home.address), listener.accept());
    assert!(client.is_ok() && accepted.is_ok(), "the owner still gets in");
}

#[tokio::test]
async fn a_client_does_not_talk_to_the_daemon_of_another_user() {
    let Some(home) = home_for_two_users("a_client_does_not_talk") else { return };
    let run = home.root.path().join("theirs");
    fs::create_dir(&run).unwrap();
    open(&run, 0o700);
    std::os::unix::fs::chown(&run, Some(NOBODY), Some(NOBODY)).unwrap();
    let theirs =
        TestHome { address: address_in(&run, "pushd", DirectoryKind::Custom), root: tempfile::tempdir().unwrap() };
    let mut actor = TestProcess::start_program_as(NOBODY, home.root.path(), &theirs.address, TestRole::Listen);
    assert_eq!(actor.line(), "listening");
    let error = local::connect(&theirs.address).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("another user"), "{error}");
}

#[tokio::test]
async fn what_another_user_prepared_is_refused_and_left() {
    let Some(home) = home_for_two_users("what_another_user_prepared") else { return };
    let give_away = |path: &Path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    let foreign = |address: &Address, path: &Path| {
        let error = refusal(address);
        let expected = format!("{} belongs to another user (uid {NOBODY})", path.display());
        assert_eq!(error.to_string(), expected);
    };
    fs::create_dir_all(home.run()).unwrap();
    give_away(home.run());
    foreign(&home.address, home.run());
    std::os::unix::fs::chown(home.run(), Some(0), Some(0)).unwrap();

    drop(bind_after_another(&home.address));
    give_away(&home.address.socket);
    foreign(&home.address, &home.address.socket);
    assert!(home.address.socket.exists());
    fs::remove_file(&home.address.socket).unwrap();

    give_away(&home.address.lock);
    foreign(&home.address, &home.address.lock);
}

/// The role of the other process.
#[derive(Debug, Clone, Copy)]
pub(super) enum TestRole {
    /// Listens until its standard input ends.
    Listen,
    /// Connects without checking the peer, then as a regular client.
    Connect,
    /// Counts its descriptors before and after 500 connections.
    CountDescriptors,
}

/// This program in another process; killed when dropped.
#[derive(Debug)]
pub(super) struct TestProcess {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl TestProcess {
    pub(super) fn start(part: TestRole, address: &Address) -> Self {
        Self::spawn(Command::new(this_program()), part, address)
    }

    fn start_as(uid: u32, home: &TestHome, part: TestRole) -> Self {
        Self::start_program_as(uid, home.root.path(), &home.address, part)
    }

    fn start_program_as(uid: u32, root: &Path, address: &Address, part: TestRole) -> Self {
        let mut command = Command::new(root.join("program"));
        command.uid(uid).gid(uid).current_dir("/");
        Self::spawn(command, part, address)
    }

    fn spawn(mut command: Command, part: TestRole, address: &Address) -> Self {
        let this = concat!(module_path!(), "::another_process_plays_its_part").split_once("::").unwrap().1;
        command.args(["--exact", this, "--nocapture", "--test-threads=1"]);
        command.env_clear().env(ROLE, format!("{part:?}")).env(SOCKET, &address.socket);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Returns the next line that it prints.
    pub(super) fn line(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it ended without a word");
            // The test harness prints lines too.
            if let Some((_, text)) = line.trim_end().split_once(LINE_PREFIX) {
                return text.to_owned();
            }
        }
    }

    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn another_process_plays_its_part() {
    let Some(part) = std::env::var_os(ROLE) else { return };
    let socket = PathBuf::from(std::env::var_os(SOCKET).unwrap());
    let address = address_in(socket.parent().unwrap(), "pushd", DirectoryKind::Custom);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match part.to_str().unwrap() {
            "Listen" => act_as_daemon(Address { directory: DirectoryKind::Default, ..address }),
            "Connect" => act_as_other_user(&address).await,
            "CountDescriptors" => count_descriptors(Address { directory: DirectoryKind::Default, ..address }).await,
            other => panic!("no such part: {other}"),
        }
    });
}

fn act_as_daemon(address: Address) {
    let listener = Listener::bind(&address);
    match &listener {
        Ok(_) => print_line("listening"),
        Err(BindError::InUse { .. }) => print_line("in use"),
        Err(error) => print_line(&error.to_string()),
    }
    let _ = std::io::stdin().read(&mut [0]);
}

async fn act_as_other_user(address: &Address) {
    // First without checking the peer, then as a regular client.
    match UnixStream::connect(&address.socket).await {
        Ok(stream) => {
            let mut stream = stream.into_std().unwrap();
            stream.set_nonblocking(false).unwrap();
            match stream.read(&mut [0]) {
                Ok(0) => print_line("closed"),
                other => print_line(&format!("{other:?}")),
            }
        }
        Err(error) => return print_line(&format!("refused: {}", error.kind())),
    }
    match local::connect(address).await {
        Ok(_) => print_line("let in"),
        Err(error) => print_line(&format!("refused: {}", error.kind())),
    }
}

async fn count_descriptors(address: Address) {
    let listener = Listener::bind(&address).unwrap();
    let descriptors = || fs::read_dir("/dev/fd").unwrap().count();
    let before = descriptors();
    for _ in 0..500 {
        let (client, accepted) = tokio::join!(local::connect(&address), listener.accept());
        let _halves = (client.unwrap().into_split(), accepted.unwrap().0.into_split());
    }
    print_line(&format!("{before} {}", descriptors()));
}

fn print_line(word: &str) {
    println!("\n{LINE_PREFIX}{word}");
    std::io::stdout().flush().unwrap();
}

/// Returns a home directory that another user can reach, with this program in it; `None` unless the tests run as
/// root.
fn home_for_two_users(test: &str) -> Option<TestHome> {
    if !geteuid().is_root() {
        println!("skipped: {test}: only root can act as another user");
        return None;
    }
    let home = TestHome::new();
    open(home.root.path(), 0o755);
    copy_this_program(&home.root.path().join("program"));
    open(&home.root.path().join("program"), 0o755);
    // Parents are created with mode 0700; they are opened here, so that each defence is tested alone.
    fs::create_dir(home.run().parent().unwrap()).unwrap();
    open(home.run().parent().unwrap(), 0o755);
    Some(home)
}

/// Returns the path of this program, even if its file has been replaced by a later build.
fn this_program() -> PathBuf {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { running } else { std::env::current_exe().unwrap() }
}

/// Copies this program, in another process: a process that another test forks at that time would inherit the descriptor
/// that the copy is written with, and no program that is open for writing can be executed.
fn copy_this_program(to: &Path) {
    let running = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    let from = if running.exists() { running } else { std::env::current_exe().unwrap() };
    assert!(Command::new("cp").arg("-L").arg(from).arg(to).status().unwrap().success());
}

fn open(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

const ROLE: &str = "PUSHD_TEST_PART";
const SOCKET: &str = "PUSHD_TEST_SOCKET";
const LINE_PREFIX: &str = "it says: ";
const NOBODY: u32 = 65534;
