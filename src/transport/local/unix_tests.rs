//! Tests of the local socket with real sockets, files and processes.

use std::os::unix::fs::symlink;
use std::sync::{Arc, Barrier};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::{self as local, Directory, Listener};
use super::stranger_tests::{Actor, Part};
use super::*;

#[tokio::test]
async fn everything_is_made_for_the_owner_alone() {
    let place = Place::new();
    let _listener = Listener::bind(&place.address).unwrap();
    assert_eq!(mode(place.run()), 0o700);
    assert_eq!(mode(place.run().parent().unwrap()), 0o700);
    assert_eq!(mode(&place.address.socket), 0o600);
    assert_eq!(mode(&place.address.pid), 0o600);
    assert_eq!(mode(&place.address.lock), 0o600);
    assert_eq!(fs::read_to_string(&place.address.pid).unwrap(), format!("{}\n", std::process::id()));
    assert_eq!(place.names(), ["pushd.lock", "pushd.pid", "pushd.sock"]);
}

#[tokio::test]
async fn bytes_go_both_ways_and_the_end_is_seen() {
    let place = Place::new();
    let listener = Listener::bind(&place.address).unwrap();
    let (client, accepted) = tokio::join!(local::connect(&place.address), listener.accept());
    let (mut server, peer) = accepted.unwrap();
    assert_eq!(peer, Peer { pid: Some(std::process::id()), same_owner: true });
    let (mut client_reads, mut client_writes) = client.unwrap().into_split();
    client_writes.write_all(b"to the daemon").await.unwrap();
    client_writes.shutdown().await.unwrap();
    let mut heard = String::new();
    server.read_to_string(&mut heard).await.unwrap();
    assert_eq!(heard, "to the daemon");
    server.write_all(b"to the client").await.unwrap();
    drop(server);
    heard.clear();
    client_reads.read_to_string(&mut heard).await.unwrap();
    assert_eq!(heard, "to the client");
}

#[tokio::test]
async fn nobody_there_is_told_from_nobody_listening() {
    let place = Place::new();
    let kind = |result: io::Result<local::Stream>| result.err().map(|error| error.kind());
    assert_eq!(kind(local::connect(&place.address).await), Some(io::ErrorKind::NotFound));
    drop(Listener::bind(&place.address).unwrap());
    let deadline = Instant::now() + DEADLINE;
    while kind(local::connect(&place.address).await) != Some(io::ErrorKind::ConnectionRefused) {
        assert!(Instant::now() < deadline, "it still answers");
    }
}

#[tokio::test]
async fn a_linked_run_directory_is_refused() {
    let place = Place::new();
    let real = place.root.path().join("real");
    fs::create_dir(&real).unwrap();
    fs::create_dir_all(place.run().parent().unwrap()).unwrap();
    symlink(&real, place.run()).unwrap();
    assert!(matches!(refusal(&place.address), BindError::Linked { .. }));
    assert_eq!(fs::read_dir(&real).unwrap().count(), 0);
    fs::remove_dir(&real).unwrap();
    assert!(matches!(refusal(&place.address), BindError::Linked { .. }), "a link to nothing");
}

#[tokio::test]
async fn a_run_directory_that_is_a_file_is_refused() {
    let place = Place::new();
    fs::create_dir_all(place.run().parent().unwrap()).unwrap();
    fs::write(place.run(), "mine").unwrap();
    assert!(matches!(refusal(&place.address), BindError::NotADirectory { .. }));
    assert_eq!(fs::read_to_string(place.run()).unwrap(), "mine");
}

#[tokio::test]
async fn our_own_run_directory_is_closed_and_a_chosen_one_is_refused_as_it_is() {
    for open in [0o755, 0o710, 0o701, 0o1777] {
        let mut place = Place::new();
        fs::create_dir_all(place.run()).unwrap();
        fs::set_permissions(place.run(), fs::Permissions::from_mode(open)).unwrap();
        place.address.directory = Directory::Chosen;
        let error = refusal(&place.address);
        assert!(matches!(error, BindError::TooOpen { mode, .. } if mode == open), "{error}");
        assert_eq!((mode(place.run()), place.names().len()), (open, 0));
        place.address.directory = Directory::Default;
        let _listener = Listener::bind(&place.address).unwrap();
        assert_eq!(mode(place.run()), 0o700);
    }
}

#[tokio::test]
async fn the_directory_for_everybody_is_refused() {
    let shared = std::env::temp_dir();
    let name = format!("pushd-test-{}", std::process::id());
    let address = address_in(&shared, &name, Directory::Chosen);
    let error = refusal(&address);
    assert!(matches!(error, BindError::TooOpen { .. } | BindError::Foreign { .. }), "{error}");
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
        let place = Place::new();
        drop(Listener::bind(&place.address).unwrap());
        fs::remove_file(&place.address.socket).unwrap();
        make(&place.address.socket);
        assert!(matches!(refusal(&place.address), BindError::NotASocket { .. }));
        assert!(fs::symlink_metadata(&place.address.socket).is_ok());
    }
}

#[tokio::test]
async fn a_lock_that_is_something_else_is_refused() {
    let place = Place::new();
    Listener::bind(&place.address).unwrap().retire();
    fs::remove_file(&place.address.lock).unwrap();
    let target = place.root.path().join("target");
    symlink(&target, &place.address.lock).unwrap();
    assert!(matches!(refusal(&place.address), BindError::Linked { .. }));
    assert!(!target.exists(), "the link was followed");
    fs::remove_file(&place.address.lock).unwrap();
    nix::unistd::mkfifo(&place.address.lock, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(matches!(refusal(&place.address), BindError::NotAFile { .. }));
    fs::remove_file(&place.address.lock).unwrap();
    fs::create_dir(&place.address.lock).unwrap();
    assert!(matches!(refusal(&place.address), BindError::NotAFile { .. }));
}

#[tokio::test]
async fn a_live_daemon_is_never_displaced() {
    let place = Place::new();
    let listener = Listener::bind(&place.address).unwrap();
    assert!(is_in_use(&place.address));
    // The same holds after the lock file was removed: the daemon still accepts connections.
    fs::remove_file(&place.address.lock).unwrap();
    assert!(is_in_use(&place.address));
    assert_eq!(fs::read_to_string(&place.address.pid).unwrap(), format!("{}\n", std::process::id()));
    // The check has left a closed connection in the queue; the real client comes after it.
    let (_ended, _) = listener.accept().await.unwrap();
    let (client, accepted) = tokio::join!(local::connect(&place.address), listener.accept());
    assert!(client.is_ok() && accepted.is_ok());
}

#[tokio::test]
async fn a_daemon_with_a_full_queue_counts_as_alive() {
    let place = Place::new();
    ground::prepare(place.run(), Directory::Default).unwrap();
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Unix,
        nix::sys::socket::SockType::Stream,
        nix::sys::socket::SockFlag::empty(),
        None,
    )
    .unwrap();
    let name = nix::sys::socket::UnixAddr::new(&place.address.socket).unwrap();
    nix::sys::socket::bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &name).unwrap();
    nix::sys::socket::listen(&socket, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let _first = UnixStream::connect(&place.address.socket).await.unwrap();
    let full = UnixStream::connect(&place.address.socket).await.unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    assert!(is_in_use(&place.address));
    assert!(place.address.socket.exists());
}

#[tokio::test]
async fn what_a_killed_daemon_left_is_replaced() {
    let place = Place::new();
    let mut daemon = Actor::start(Part::Listen, &place.address);
    assert_eq!(daemon.line(), "listening");
    assert!(is_in_use(&place.address));
    daemon.kill();
    assert!(place.address.socket.exists(), "a killed process cleans nothing up");
    let listener = bind_after_another(&place.address);
    let (client, accepted) = tokio::join!(local::connect(&place.address), listener.accept());
    assert!(client.is_ok() && accepted.is_ok());
    assert_eq!(fs::read_to_string(&place.address.pid).unwrap(), format!("{}\n", std::process::id()));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_begin_at_once_one_wins() {
    for _ in 0..20 {
        let place = Place::new();
        let start = Arc::new(Barrier::new(16));
        let racers: Vec<_> = (0..16)
            .map(|_| {
                let (address, start) = (place.address.clone(), Arc::clone(&start));
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
        let (client, accepted) = tokio::join!(local::connect(&place.address), winners[0].accept());
        assert!(client.is_ok() && accepted.is_ok());
    }
}

#[test]
fn of_many_processes_that_begin_at_once_one_wins() {
    let place = Place::new();
    let mut actors: Vec<Actor> = (0..12).map(|_| Actor::start(Part::Listen, &place.address)).collect();
    let words: Vec<String> = actors.iter_mut().map(Actor::line).collect();
    assert_eq!(words.iter().filter(|word| *word == "listening").count(), 1, "{words:?}");
    assert_eq!(words.iter().filter(|word| *word == "in use").count(), 11, "{words:?}");
}

#[tokio::test]
async fn retiring_removes_its_own_files_and_no_others() {
    let place = Place::new();
    Listener::bind(&place.address).unwrap().retire();
    assert_eq!(place.names(), ["pushd.lock"]);

    let first = bind_after_another(&place.address);
    // A cleanup job removes the directory, and a second daemon binds to the address.
    fs::remove_dir_all(place.run()).unwrap();
    let second = Listener::bind(&place.address).unwrap();
    first.retire();
    assert_eq!(place.names(), ["pushd.lock", "pushd.pid", "pushd.sock"]);
    assert!(local::connect(&place.address).await.is_ok());
    second.retire();
    assert_eq!(place.names(), ["pushd.lock"]);
    bind_after_another(&place.address).retire();
}

#[tokio::test]
async fn dropping_a_listener_leaves_a_successor_alone() {
    let place = Place::new();
    let first = Listener::bind(&place.address).unwrap();
    fs::remove_dir_all(place.run()).unwrap();
    let _second = Listener::bind(&place.address).unwrap();
    drop(first);
    assert!(local::connect(&place.address).await.is_ok());
}

#[tokio::test]
async fn where_the_mode_cannot_be_set_first_the_socket_is_made_out_of_reach() {
    let place = Place::new();
    ground::prepare(place.run(), Directory::Default).unwrap();
    let listener = UnixListener::from_std(listen_aside(&place.address.socket).unwrap()).unwrap();
    assert_eq!(place.names(), ["pushd.sock"]);
    assert_eq!(mode(&place.address.socket), 0o600);
    let (client, accepted) = tokio::join!(local::connect(&place.address), listener.accept());
    assert!(client.is_ok() && accepted.is_ok());
}

#[tokio::test]
async fn a_failed_pid_file_leaves_no_socket() {
    let place = Place::new();
    ground::prepare(place.run(), Directory::Default).unwrap();
    fs::create_dir(&place.address.pid).unwrap();
    assert!(matches!(refusal(&place.address), BindError::Io { .. }));
    assert!(!place.address.socket.exists());
}

#[test]
fn used_up_descriptors_are_told_from_other_errors() {
    for code in [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM] {
        let error = refused(io::Error::from_raw_os_error(code as i32));
        assert!(matches!(error, AcceptError::Exhausted { .. }), "{code}");
    }
    let error = refused(io::Error::from_raw_os_error(Errno::EPERM as i32));
    assert!(matches!(error, AcceptError::Io { .. }));
}

#[test]
fn connections_leave_no_descriptor_behind() {
    let place = Place::new();
    // In a separate process, because the other tests open descriptors too.
    let mut actor = Actor::start(Part::CountDescriptors, &place.address);
    let line = actor.line();
    let counts: Vec<&str> = line.split(' ').collect();
    assert_eq!(counts.len(), 2, "{line}");
    assert_eq!(counts[0], counts[1], "descriptors before and after 500 connections");
}

/// An empty home directory.
pub(super) struct Place {
    pub(super) root: TempDir,
    pub(super) address: Address,
}

impl Place {
    pub(super) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let address = address_in(&root.path().join(".push/run"), "pushd", Directory::Default);
        Self { root, address }
    }

    pub(super) fn run(&self) -> &Path {
        self.address.socket.parent().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.run()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub(super) fn address_in(directory: &Path, name: &str, whose: Directory) -> Address {
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
    outcome(address).unwrap()
}

/// Returns why `address` is refused, other than because of a listener that has just ended.
pub(super) fn refusal(address: &Address) -> BindError {
    outcome(address).expect_err("the address should have been refused")
}

fn outcome(address: &Address) -> Result<Listener, BindError> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match Listener::bind(address) {
            Err(BindError::InUse { .. }) if Instant::now() < deadline => std::thread::yield_now(),
            result => return result,
        }
    }
}

const DEADLINE: Duration = Duration::from_secs(10);
