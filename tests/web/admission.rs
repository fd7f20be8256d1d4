//! Admission of connections: by the content of the request, the number of connections, and the time it takes.

use std::io::Write;
use std::net::TcpListener;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::caller::{Open, configure, configured, connect, push_in, rest, status, token};
use crate::daemon::{Daemon, PATIENCE, wait_until};

#[test]
fn a_program_of_the_owner_comes_in_at_both_paths_and_is_greeted() {
    let open = Open::new();
    for path in ["/", "/pi", "/pi?anything=1"] {
        open.socket(path, &[]).works();
    }
    for host in ["localhost", "localhost:1", "127.0.0.1:9", "[::1]:3141"] {
        assert_eq!(status(&open.asked("/pi", &[("Host", host)])), "101", "{host}");
    }
    let chosen = open.asked("/pi", &[("Sec-WebSocket-Protocol", "other, pi")]);
    assert!(chosen.to_ascii_lowercase().contains("sec-websocket-protocol: pi\r\n"), "{chosen}");
}

#[test]
fn a_web_page_is_refused_by_its_origin_unless_that_is_allowed() {
    let open = Open::with("origins = ['https://app.example']", &[]);
    for origin in
        ["https://evil.example", "null", "http://localhost:3141", "file://", "https://app.example.evil"]
    {
        let answer = open.asked("/pi", &[("Origin", origin)]);
        assert_eq!(status(&answer), "403", "{origin}: {answer}");
        assert!(!answer.to_ascii_lowercase().contains("access-control"), "{answer}");
        assert!(open.try_socket("/", &[("origin", origin)]).is_err());
    }
    open.socket("/pi", &[("origin", "https://app.example")]).works();
    let log = open.daemon.log();
    assert!(log.contains("this origin is not allowed"), "{log}");
}

#[test]
fn a_name_that_was_made_to_lead_here_is_refused() {
    let open = Open::with("hosts = ['box.lan']", &[]);
    for host in
        ["evil.example", "evil.example:3141", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0"]
    {
        let answer = open.asked("/pi", &[("Host", host)]);
        assert_eq!(status(&answer), "421", "{host}: {answer}");
    }
    assert_eq!(status(&open.answer("GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n")), "421");
    assert_eq!(
        status(&open.answer("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")),
        "421"
    );
    assert_eq!(status(&open.answer("GET / HTTP/1.0\r\n\r\n")), "421");
    open.socket("/pi", &[("host", "box.lan:3141")]).works();
}

#[test]
fn plain_requests_get_an_answer_and_nothing_more() {
    let open = Open::new();
    let host = format!("Host: {}\r\n", open.at);
    for (request, number, header) in [
        ("GET / HTTP/1.1\r\n", "426", "upgrade: websocket"),
        ("GET /pi HTTP/1.1\r\n", "426", "upgrade: websocket"),
        ("GET /other HTTP/1.1\r\n", "404", ""),
        ("GET /../etc/passwd HTTP/1.1\r\n", "404", ""),
        ("HEAD / HTTP/1.1\r\n", "405", "allow: get"),
        ("DELETE /pi HTTP/1.1\r\n", "405", "allow: get"),
        ("OPTIONS / HTTP/1.1\r\nOrigin: https://evil.example\r\n", "403", ""),
        ("POST / HTTP/1.1\r\nContent-Length: 17\r\n", "405", "allow: get"),
        ("POST /pi HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", "405", "allow: get"),
    ] {
        let answer = open.answer(&format!("{request}{host}\r\n{{\"type\":\"bash\"}}\r\n"));
        assert_eq!(status(&answer), number, "{request}: {answer}");
        assert!(answer.to_ascii_lowercase().contains(header), "{request}: {answer}");
    }
    let version =
        "GET /pi HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\n";
    let answer = open.answer(&format!("{version}{host}\r\n"));
    assert_eq!(status(&answer), "426", "{answer}");
    assert!(answer.to_ascii_lowercase().contains("sec-websocket-version: 13"), "{answer}");
    assert_eq!(status(&open.answer("not HTTP at all\r\n\r\n")), "400");
    let long = format!("GET / HTTP/1.1\r\n{host}X: {}\r\n\r\n", "x".repeat(64 * 1024));
    assert_eq!(status(&open.answer(&long)), "431");
    // An unread body does not keep its sender from the answer.
    let body = format!("POST / HTTP/1.1\r\n{host}Content-Length: 300000\r\n\r\n{}", "x".repeat(300_000));
    assert_eq!(status(&open.answer(&body)), "405");
    open.socket("/", &[]).works();
}

#[test]
fn a_handshake_that_takes_too_long_is_ended_and_holds_up_nobody() {
    let open = Open::with("", &[("PUSH_HANDSHAKE_SECONDS", "0.5")]);
    let mut slow: Vec<_> = ["", "GET / HTTP/1.1\r\nHost: loc", "\r\n"]
        .iter()
        .map(|begun| {
            let mut stream = connect(open.at);
            stream.write_all(begun.as_bytes()).unwrap();
            stream
        })
        .collect();
    let before = Instant::now();
    let mut working = open.socket("/", &[]).works();
    for stream in &mut slow {
        rest(stream);
    }
    assert!(before.elapsed() < PATIENCE / 2);
    // An admitted connection may be silent for any time.
    working.answers();
}

#[test]
fn one_connection_too_many_is_refused_until_another_leaves() {
    let open = Open::with("", &[("PUSH_PI_CONNECTIONS", "2")]);
    let (first, mut second) = (open.socket("/", &[]).works(), open.socket("/pi", &[]).works());
    let answer = open.asked("/", &[]);
    assert_eq!(status(&answer), "503", "{answer}");
    second.answers();
    drop(first);
    wait_until("there is room again", || open.try_socket("/", &[]).is_ok());
    // The local socket is not affected.
    open.daemon.connect().ping();
}

#[test]
fn a_crowd_that_says_nothing_keeps_the_socket_free() {
    let open = Open::with("", &[("PUSH_HANDSHAKE_SECONDS", "1")]);
    let crowd: Vec<_> = (0..300).map(|_| connect(open.at)).collect();
    open.daemon.connect().ping();
    drop(crowd);
    wait_until("somebody comes in", || open.try_socket("/", &[]).is_ok());
}

#[test]
fn an_address_that_others_reach_is_refused_at_the_start_without_a_token() {
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = refused_start(&TempDir::new().unwrap(), &[&format!("--pi={listen}")]);
        assert!(refused.contains("can be reached from other machines, and there is no token"), "{refused}");
        assert!(refused.contains("push token new"), "{refused}");
        let home = configured(&format!("enabled = true\nlisten = '{listen}'"));
        assert!(refused_start(&home, &[]).contains("there is no token"));
        // The client that would have started it reports the same.
        let listed = push_in(&home, &["sessions"]);
        assert_eq!(listed.status.code(), Some(69));
        assert!(String::from_utf8_lossy(&listed.stderr).contains("there is no token"));
    }
    // A revoked token does not count.
    let home = TempDir::new().unwrap();
    token(&home);
    assert!(push_in(&home, &["token", "revoke", "tok_"]).status.success());
    assert!(refused_start(&home, &["--pi=0.0.0.0:0"]).contains("there is no token"));
    let refused = refused_start(&configured("require_token = true"), &["--pi=127.0.0.1:0"]);
    assert!(refused.contains("needs a token, and there is none"), "{refused}");
}

#[test]
fn a_port_that_is_taken_and_a_configuration_with_a_mistake_are_said_at_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let refused = refused_start(&TempDir::new().unwrap(), &[&format!("--pi={at}")]);
    assert!(refused.contains(&format!("cannot listen at {at} for Pi")), "{refused}");
    let home = TempDir::new().unwrap();
    configure(&home, "[pi]\nlisten = 'everywhere'\n");
    let refused = refused_start(&home, &["--pi"]);
    assert!(refused.contains("line 2") && refused.contains("pi.listen"), "{refused}");
    // Without the flag, the error does not prevent the start of the daemon.
    let daemon = Daemon::start_in(home, &[], &[]);
    assert_eq!(daemon.connect().get("get_metrics", json!({}))["pi"], Value::Null);
    let wrong = push_in(&TempDir::new().unwrap(), &["daemon", "run", "--pi=everywhere"]);
    assert_eq!(wrong.status.code(), Some(64), "{wrong:?}");
}

#[test]
fn the_port_is_where_the_flag_the_variable_or_the_configuration_says() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let told = |daemon: &Daemon| daemon.connect().get("get_metrics", json!({}))["pi"].clone();
    assert_eq!(told(&Daemon::start()), Value::Null, "nobody asked for it");
    let only = Daemon::start_with(&[("PI_SERVER_PORT", "0")]);
    assert_eq!(told(&only), Value::Null, "a port alone opens nothing");
    let (file, variable) = (free(), free());
    let listen = format!("enabled = true\nlisten = '{file}'");
    assert_eq!(told(&Daemon::start_in(configured(&listen), &[], &[])), json!(file.to_string()));
    let port = variable.port().to_string();
    let moved = Daemon::start_in(configured(&listen), &[("PI_SERVER_PORT", &port)], &[]);
    assert_eq!(told(&moved), json!(variable.to_string()));
    let open = Open::with(&listen, &[("PI_SERVER_PORT", &port)]);
    assert!(open.at != file && open.at != variable && open.at.port() != 0, "{}", open.at);
    let shown = open.push(&["daemon", "status", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["pi"], json!(open.at.to_string()));
    assert_eq!((&shown["http"], &shown["pvp"]), (&Value::Null, &Value::Null));
    let shown = open.push(&["daemon", "status"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains(&format!("pi           {}\n", open.at)));
}

#[test]
fn a_daemon_that_stops_says_goodbye() {
    let mut open = Open::new();
    let socket = open.socket("/", &[]).works();
    open.daemon.stop();
    assert_eq!(socket.goodbye(), 1001);
}

/// Starts a daemon that must fail, and returns its error output.
fn refused_start(home: &TempDir, arguments: &[&str]) -> String {
    let ended = push_in(home, &[&["daemon", "run"], arguments].concat());
    assert!(!ended.status.success(), "it started: {arguments:?}");
    String::from_utf8(ended.stderr).unwrap()
}
