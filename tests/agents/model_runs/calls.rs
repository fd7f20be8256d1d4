//! Attempts of commands that need system calls: the command executes this test program, which makes them.

#![allow(unsafe_code, reason = "the attempts are system calls that nobody wraps")]

use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::Pid;

/// Makes the calls of one attempt.
pub(crate) fn run_call(name: &str) {
    match name {
        "trace_supervisor" => {
            const SEIZE: libc::c_uint = 0x4206;
            // SAFETY: numbers are passed.
            unsafe { libc::ptrace(SEIZE, supervisor().as_raw(), 0, 0) };
            // The kernel reports its exit to the tracer first, which never waits for it.
            let _killed = kill(supervisor(), Signal::SIGKILL);
            approve_forever();
        }
        "without_first_thread" => {
            std::thread::spawn(|| {
                let _killed = kill(supervisor(), Signal::SIGKILL);
                approve_forever();
            });
            // SAFETY: exits this thread only; the other thread uses nothing that it owns.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        "sibling_of_supervisor" => {
            let _killed = kill(supervisor(), Signal::SIGKILL);
            for _ in 0..50 {
                let flags = i64::from(libc::CLONE_PARENT | libc::SIGCHLD);
                // SAFETY: without a stack and shared memory this is a fork, whose child executes another program.
                let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
                if child == 0 {
                    approve_forever();
                }
            }
            approve_forever();
        }
        "queue_at_socket" => {
            let mut socket = UnixStream::connect(variable("SOCKET")).expect("a socket");
            socket.write_all(format!("{}\n", variable("LINE")).as_bytes()).expect("room for a line");
        }
        "queue_at_port" => send_handshake(connect()),
        "paced_handshake" => paced_handshake(),
        "many_handshakes" => {
            let streams: Vec<_> = (0..200).map(|_| connect()).collect();
            streams.into_iter().for_each(send_handshake);
            println!("queued");
        }
        "inherited_handshake" => inherited_handshake(),
        "handshake_in_flight" => handshake_in_flight(),
        other => panic!("no attempt is called {other}"),
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn supervisor() -> Pid {
    Pid::from_raw(variable("S").parse().expect("the supervisor"))
}

fn approve_forever() -> ! {
    loop {
        let mut words = Command::new("timeout");
        words.args(["1", &variable("PUSH"), "approve"]).stdout(Stdio::null()).stderr(Stdio::null());
        let _refused = words.status();
    }
}

fn connect() -> TcpStream {
    let stream = TcpStream::connect(format!("127.0.0.1:{}", variable("PORT"))).expect("a connection");
    stream.set_nodelay(true).expect("an option");
    stream
}

/// A complete handshake, and a message that would create a session.
fn handshake() -> Vec<u8> {
    let token = variable("TOKEN");
    let bearer = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    let mut bytes = format!(
        "GET /pi HTTP/1.1\r\nHost: localhost\r\n{bearer}Connection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .into_bytes();
    let text = br#"{"id":"a","type":"create_session","sessionId":"intruder","cwd":"/"}"#;
    bytes.extend([0x81, 0x80 | text.len() as u8, 0, 0, 0, 0]);
    bytes.extend(text);
    bytes
}

fn send_handshake(mut stream: TcpStream) {
    stream.write_all(&handshake()).expect("room for a handshake");
}

/// Makes the kernel send the end of the handshake long after this process has exited.
fn paced_handshake() {
    let mut stream = connect();
    let bytes = handshake();
    let (begin, end) = bytes.split_at(60);
    // The kernel does not pace the first ten segments.
    for piece in begin.chunks(4) {
        stream.write_all(piece).expect("room for a piece");
        std::thread::sleep(Duration::from_millis(5));
    }
    let rate: libc::c_uint = 20;
    // SAFETY: the socket is open, and the number and its length are those that the option takes.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            size_of_val(&rate) as libc::socklen_t,
        )
    };
    assert_eq!(set, 0, "a pace");
    let (next, end) = end.split_at(40);
    stream.write_all(next).expect("room for a piece");
    stream.write_all(end).expect("room for the end");
    println!("queued");
}

/// Hands the connection to a process in its own session, and exits.
fn inherited_handshake() {
    let stream = connect();
    let inherited = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty());
    nix::fcntl::fcntl(&stream, inherited).expect("a descriptor");
    send_handshake(stream.try_clone().expect("a copy"));
    // The intermediate shell exits at once, so that the last one is an orphan.
    let holds = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & exit 0";
    Command::new("sh").args(["-c", holds]).status().expect("a shell");
    println!("queued");
}

/// Queues the connection in a Unix socket, where no process visibly holds it, and reads the answer later.
fn handshake_in_flight() {
    let stream = connect();
    let (from, to) = UnixStream::pair().expect("a pair");
    let numbers: [RawFd; 1] = [stream.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&numbers)];
    sendmsg::<()>(from.as_raw_fd(), &[IoSlice::new(b"x")], &rights, MsgFlags::empty(), None).expect("room");
    // A duplicate descriptor, closed at once, writes the end of the handshake.
    send_handshake(stream);
    std::thread::sleep(Duration::from_secs(2));
    let mut back = receive_stream(&to);
    let mut answer = [0; 12];
    back.read_exact(&mut answer).expect("an answer");
    println!("{}", String::from_utf8_lossy(&answer));
}

fn receive_stream(from: &UnixStream) -> TcpStream {
    let mut byte = [0];
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let mut parts = [std::io::IoSliceMut::new(&mut byte)];
    let received = nix::sys::socket::recvmsg::<()>(from.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty())
        .expect("a message");
    for message in received.cmsgs().expect("rights") {
        if let nix::sys::socket::ControlMessageOwned::ScmRights(numbers) = message {
            // SAFETY: the descriptor was just received and has no other owner.
            return unsafe { std::os::fd::FromRawFd::from_raw_fd(numbers[0]) };
        }
    }
    panic!("no descriptor")
}
