//! Tests of the local socket with real sockets, files and processes.

use std::os::unix::fs::symlink;
use std::sync::{Arc, Barrier};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::{self as local, DirectoryKind, Listener};
use super::other_user_tests::{TestProcess, TestRole};
use super::*;

#[tokio::test]
async fn everything_is_made_for_the_owner_alone() {
    let home = TestHome::new();
    let _listener = Listener::bind(&home.address).unwrap();
    assert_eq!(mode(home.run()), 0o700);
    assert_eq!(mode(home.run().parent().unwrap()), 0o700);
    assert_eq!(mode(&home.address.socket), 0o600);
    assert_eq!(mode(&home.address.pid), 0o600);
    assert_eq!(mode(&home.address.lock), 0o600);
    assert_eq!(fs::read_to_string(&home.address.pid).unwrap(), format!("{}\n", std::process::id()));
    assert_eq!(home.names(), ["pushd.lock", "pushd.pid", "pushd.sock"]);
}

#[tokio::test]
async fn bytes_go_both_ways_and_the_end_is_seen() {
    let home = TestHome::new();
    let listener = Listener::bind(&home.address).unwrap();
    let (client, accepted) = tokio::join!(local::connect(&home.address), listener.accept());
    let (server, peer) = accepted.unwrap();
    assert_eq!(peer, Peer { pid: Some(std::process::id()), same_owner: true });
    let (mut server_reads, mut server_writes) = server.into_split();
    let (mut client_reads, mut client_writes) = client.unwrap().into_split();
    client_writes.write_all(b"to the daemon").await.unwrap();
    client_writes.shutdown().await.unwrap();
    let mut received = String::new();
    server_reads.read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "to the daemon");
    server_writes.write_all(b"to the client").await.unwrap();
    drop((server_reads, server_writes));
    received.clear();
    client_reads.read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "to the client");
}

#[tokio::test]
async fn a_missing_socket_differs_from_one_without_a_listener() {
    let home = TestHome::new();
    let kind = |result: io::Result<local::Stream>| result.err().map(|error| error.kind());
    assert_eq!(kind(local::connect(&home.address).await), Some(io::ErrorKind::NotFound));
    drop(Listener::bind(&home.address).unwrap());
    let deadline = Instant::now() + DEADLINE;
    while kind(local::connect(&home.address).await) != Some(io::ErrorKind::ConnectionRefused) {
        assert!(Instant::now() < deadline, "it still answers");
    }
}

#[tokio::test]
async fn a_linked_run_directory_is_refused() {
    let home = TestHome::new();
    let real = home.root.path().join("real");
    fs::create_dir(&real).unwrap();
    fs::create_dir_all(home.run().parent().unwrap()).unwrap();
    symlink(&real, home.run()).unwrap();
    assert!(matches!(refusal(&home.address), BindError::SymbolicLink { .. }));
    assert_eq!(fs::read_dir(&real).unwrap().count(), 0);
    fs::remove_dir(&real).unwrap();
    assert!(matches!(refusal(&home.address), BindError::SymbolicLink { .. }), "a link to nothing");
}

#[tokio::test]
async fn a_run_directory_that_is_a_file_is_refused() {
    let home = TestHome::new();
    fs::create_dir_all(home.run().parent().unwrap()).unwrap();
    fs::write(home.run(), "mine").unwrap();
    assert!(matches!(refusal(&home.address), BindError::NotADirectory { .. }));
    assert_eq!(fs::read_to_string(home.run()).unwrap(), "mine");
}

#[tokio::test]
async fn the_default_run_directory_is_restricted_and_a_custom_one_is_refused_unchanged() {
    for open in [0o755, 0o710, 0o701, 0o1777] {
        let mut home = TestHome::new();
        fs::create_dir_all(home.run()).unwrap();
        fs::set_permissions(home.run(), fs::Permissions::from_mode(open)).unwrap();
        home.address.directory = DirectoryKind::Custom;
        let error = refusal(&home.address);
        assert!(matches!(error, BindError::TooOpen { mode, .. } if mode == open), "{error}");
        assert_eq!((mode(home.run()), home.names().len()), (open, 0));
        home.address.directory = DirectoryKind::Default;
        let _listener = Listener::bind(&home.address).unwrap();
        assert_eq!(mode(home.run()), 0o700);
    }
}

#[tokio::test]
async fn a_world_writable_directory_is_refused() {
    let shared = std::env::temp_dir();
    let name = format!("pushd-test-{}", std::process::id());
    let address = address_in(&shared, &name, DirectoryKind::Custom);
    let error = refusal(&address);
    assert!(matches!(error, BindError::TooOpen { .. } | BindError::OtherOwner { .. }), "{error}");
    assert!(!address.socket.exists() && !address.lock.exists());
}

#[tokio::test]
async fn what_is_not_a_socket_is_left_alone() {
    for make in [
        |path: &Path| fs::write(path, "precious").unwrap(),
        |path: &Path| fs::create_dir(path).unwrap(),
        |path: &Path| {
            symlink("/nowhere", path).unwrap();
        },
    ] {
        let home = TestHome::new();
        drop(Listener::bind(&home.address).unwrap());
        fs::remove_file(&home.address.socket).unwrap();
        make(&home.address.socket);
        assert!(matches!(refusal(&home.address), BindError::NotASocket { .. }));
        assert!(fs::symlink_metadata(&home.address.socket).is_ok());
    }
}

#[tokio::test]
async fn a_lock_that_is_something_else_is_refused() {
    let home = TestHome::new();
    Listener::bind(&home.address).unwrap().close();
    fs::remove_file(&home.address.lock).unwrap();
    let target = home.root.path().join("target");
    symlink(&target, &home.address.lock).unwrap();
    assert!(matches!(refusal(&home.address), BindError::SymbolicLink { .. }));
    assert!(!target.exists(), "the link was followed");
    fs::remove_file(&home.address.lock).unwrap();
    nix::unistd::mkfifo(&home.address.lock, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(matches!(refusal(&home.address), BindError::NotAFile { .. }));
    fs::remove_file(&home.address.lock).unwrap();
    fs::create_dir(&home.address.lock).unwrap();
    assert!(matches!(refusal(&home.address), BindError::NotAFile { .. }));
}

#[tokio::test]
async fn a_live_daemon_is_never_displaced() {
    let home = TestHome::new();
    let listener = Listener::bind(&home.address).unwrap();
    assert!(is_in_use(&home.address));
    // The same holds after the lock file was removed: the daemon still accepts connections.
    fs::remove_file(&home.address.lock).unwrap();
    assert!(is_in_use(&home.address));
    assert_eq!(fs::read_to_string(&home.address.pid).unwrap(), format!("{}\n", std::process::id()));
    // The check has left a closed connection in the queue; the real client comes after it.
    let (_ended, _) = listener.accept().await.unwrap();
    let (client, accepted) = tokio::join!(local::connect(&home.address), listener.accept());
    assert!(client.is_ok() && accepted.is_ok());
}

#[tokio::test]
async fn a_daemon_with_a_full_queue_counts_as_alive() {
    let home = TestHome::new();
    files::prepare_directory(home.run(), DirectoryKind::Default).unwrap();
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Unix,
        nix::sys::socket::SockType::Stream,
        nix::sys::socket::SockFlag::empty(),
        None,
    )
    .unwrap();
    let name = nix::sys::socket::UnixAddr::new(&home.address.socket).unwrap();
    nix::sys::socket::bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &name).unwrap();
    nix::sys::socket::listen(&socket, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let _first = UnixStream::connect(&home.address.socket).await.unwrap();
    let full = UnixStream::connect(&home.address.socket).await.unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    assert!(is_in_use(&home.address));
    assert!(home.address.socket.exists());
}

#[tokio::test]
async fn the_files_of_a_killed_daemon_are_replaced() {
    let home = TestHome::new();
    let mut daemon = TestProcess::start(TestRole::Listen, &home.address);
    assert_eq!(daemon.line(), "listening");
    assert!(is_in_use(&home.address));
    daemon.kill();
    assert!(home.address.socket.exists(), "a killed process cleans nothing up");
    let listener = bind_after_another(&home.address);
    let (client, accepted) = tokio::join!(local::connect(&home.address), listener.accept());
    assert!(client.is_ok() && accepted.is_ok());
    assert_eq!(fs::read_to_string(&home.address.pid).unwrap(), format!("{}\n", std::process::id()));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_concurrent_binds_succeeds() {
    for _ in 0..20 {
        let home = TestHome::new();
        let start = Arc::new(Barrier::new(16));
        let racers: Vec<_> = (0..16)
            .map(|_| {
                let (address, start) = (home.address.clone(), Arc::clone(&start));
                tokio::task::spawn_blocking(move || {
                    start.wait();
                    Listener::bind(&address)
                })
            })
            .collect();
        let mut winners = Vec::new();
        for racer in racers {
            match racer.await.unwrap() {
                Ok(listener) => winners.push(listener),
                Err(BindError::InUse { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(winners.len(), 1);
        let (client, accepted) = tokio::join!(local::connect(&home.address), winners[0].accept());
        assert!(client.is_ok() && accepted.is_ok());
    }
}

#[test]
fn one_of_many_concurrent_processes_binds() {
    let home = TestHome::new();
    let mut actors: Vec<TestProcess> = (0..12).map(|_| TestProcess::start(TestRole::Listen, &home.address)).collect();
    let words: Vec<String> = actors.iter_mut().map(TestProcess::line).collect();
    assert_eq!(words.iter().filter(|word| *word == "listening").count(), 1, "{words:?}");
    assert_eq!(words.iter().filter(|word| *word == "in use").count(), 11, "{words:?}");
}

#[tokio::test]
async fn closing_removes_its_own_files_and_no_others() {
    let home = TestHome::new();
    Listener::bind(&home.address).unwrap().close();
    assert_eq!(home.names(), ["pushd.lock"]);

    let first = bind_after_another(&home.address);
    // A cleanup job removes the directory, and a second daemon binds to the address.
    fs::remove_dir_all(home.run()).unwrap();
    let second = Listener::bind(&home.address).unwrap();
    first.close();
    assert_eq!(home.names(), ["pushd.lock", "pushd.pid", "pushd.sock"]);
    assert!(local::connect(&home.address).await.is_ok());
    second.close();
    assert_eq!(home.names(), ["pushd.lock"]);
    bind_after_another(&home.address).close();
}

#[tokio::test]
async fn dropping_a_listener_leaves_a_successor_alone() {
    let home = TestHome::new();
    let first = Listener::bind(&home.address).unwrap();
    fs::remove_dir_all(home.run()).unwrap();
    let _second = Listener::bind(&home.address).unwrap();
    drop(first);
    assert!(local::connect(&home.address).await.is_ok());
}

#[tokio::test]
async fn without_an_initial_mode_the_socket_is_created_in_a_private_directory() {
    let home = TestHome::new();
    files::prepare_directory(home.run(), DirectoryKind::Default).unwrap();
    let listener = UnixListener::from_std(listen_in_private_directory(&home.address.socket).unwrap()).unwrap();
    assert_eq!(home.names(), ["pushd.sock"]);
    assert_eq!(mode(&home.address.socket), 0o600);
    let (client, accepted) = tokio::join!(local::connect(&home.address), listener.accept());
    assert!(client.is_ok() && accepted.is_ok());
}

#[tokio::test]
async fn a_failed_pid_file_leaves_no_socket() {
    let home = TestHome::new();
    files::prepare_directory(home.run(), DirectoryKind::Default).unwrap();
    fs::create_dir(&home.address.pid).unwrap();
    assert!(matches!(refusal(&home.address), BindError::Io { .. }));
    assert!(!home.address.socket.exists());
}

#[test]
fn exhausted_descriptors_are_distinguished_from_other_errors() {
    for code in [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM] {
        let error = accept_error(io::Error::from_raw_os_error(code as i32));
        assert!(matches!(error, AcceptError::Exhausted { .. }), "{code}");
    }
    let error = accept_error(io::Error::from_raw_os_error(Errno::EPERM as i32));
    assert!(matches!(error, AcceptError::Io { .. }));
}

#[test]
fn connections_leave_no_descriptor_behind() {
    let home = TestHome::new();
    // In a separate process, because the other tests open descriptors too.
    let mut actor = TestProcess::start(TestRole::CountDescriptors, &home.address);
    let line = actor.line();
    let counts: Vec<&str> = line.split(' ').collect();
    assert_eq!(counts.len(), 2, "{line}");
    assert_eq!(counts[0], counts[1], "descriptors before and after 500 connections");
}

/// An empty home directory.
pub(super) struct TestHome {
    pub(super) root: TempDir,
    pub(super) address: Address,
}

impl TestHome {
    pub(super) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let address = address_in(&root.path().join(".push/run"), "pushd", DirectoryKind::Default);
        Self { root, address }
    }

    pub(super) fn run(&self) -> &Path {
        self.address.socket.parent().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.run()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub(super) fn address_in(directory: &Path, name: &str, whose: DirectoryKind) -> Address {
    Address {
        socket: directory.join(format!("{name}.sock")),
        lock: directory.join(format!("{name}.lock")),
        pid: directory.join(format!("{name}.pid")),
        directory: whose,
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn is_in_use(address: &Address) -> bool {
    matches!(Listener::bind(address), Err(BindError::InUse { .. }))
}

/// Binds to an address whose listener has just ended.
///
/// A process that is being started may still hold the lock and the socket of that listener between its fork and its
/// exec.
pub(super) fn bind_after_another(address: &Address) -> Listener {
    bind_when_free(address).unwrap()
}

/// Returns why `address` is refused, other than because of a listener that has just ended.
pub(super) fn refusal(address: &Address) -> BindError {
    bind_when_free(address).expect_err("the address should have been refused")
}

fn bind_when_free(address: &Address) -> Result<Listener, BindError> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match Listener::bind(address) {
            Err(BindError::InUse { .. }) if Instant::now() < deadline => std::thread::yield_now(),
            result => return result,
        }
    }
}

const DEADLINE: Duration = Duration::from_secs(10);
