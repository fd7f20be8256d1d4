//! Admission of connections: by the content of the request, the number of connections, and the time it takes.

use std::io::Write;
use std::net::TcpListener;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::daemon::{Daemon, wait_until};
use crate::web::client::{
    PiDaemon, configure, connect, create_token, home_with_config, push_in, read_to_close, status,
};

#[test]
fn a_program_of_the_owner_connects_at_both_paths_and_is_greeted() {
    let server = PiDaemon::new();
    for path in ["/", "/pi", "/pi?anything=1"] {
        server.socket(path, &[]).assert_ready();
    }
    for host in ["localhost", "localhost:1", "127.0.0.1:9", "[::1]:3141"] {
        assert_eq!(status(&server.upgrade_response("/pi", &[("Host", host)])), "101", "{host}");
    }
    let chosen = server.upgrade_response("/pi", &[("Sec-WebSocket-Protocol", "other, pi")]);
    assert!(chosen.to_ascii_lowercase().contains("sec-websocket-protocol: pi\r\n"), "{chosen}");
}

#[test]
fn a_web_page_is_refused_by_its_origin_unless_that_is_allowed() {
    let server = PiDaemon::with("origins = ['https://app.example']", &[]);
    for origin in ["https://evil.example", "null", "http://localhost:3141", "file://", "https://app.example.evil"] {
        let answer = server.upgrade_response("/pi", &[("Origin", origin)]);
        assert_eq!(status(&answer), "403", "{origin}: {answer}");
        assert!(!answer.to_ascii_lowercase().contains("access-control"), "{answer}");
        assert!(server.try_socket("/", &[("origin", origin)]).is_err());
    }
    server.socket("/pi", &[("origin", "https://app.example")]).assert_ready();
    let log = server.daemon.log();
    assert!(log.contains("this origin is not allowed"), "{log}");
}

#[test]
fn a_rebound_host_name_is_refused() {
    let server = PiDaemon::with("hosts = ['box.lan']", &[]);
    for host in ["evil.example", "evil.example:3141", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0"] {
        let answer = server.upgrade_response("/pi", &[("Host", host)]);
        assert_eq!(status(&answer), "421", "{host}: {answer}");
    }
    assert_eq!(status(&server.answer("GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n")), "421");
    assert_eq!(status(&server.answer("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")), "421");
    assert_eq!(status(&server.answer("GET / HTTP/1.0\r\n\r\n")), "421");
    server.socket("/pi", &[("host", "box.lan:3141")]).assert_ready();
}

#[test]
fn plain_requests_get_an_answer_and_nothing_more() {
    let server = PiDaemon::new();
    let host = format!("Host: {}\r\n", server.address);
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
        let answer = server.answer(&format!("{request}{host}\r\n{{\"type\":\"bash\"}}\r\n"));
        assert_eq!(status(&answer), number, "{request}: {answer}");
        assert!(answer.to_ascii_lowercase().contains(header), "{request}: {answer}");
    }
    let version = "GET /pi HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\n";
    let answer = server.answer(&format!("{version}{host}\r\n"));
    assert_eq!(status(&answer), "426", "{answer}");
    assert!(answer.to_ascii_lowercase().contains("sec-websocket-version: 13"), "{answer}");
    assert_eq!(status(&server.answer("not HTTP at all\r\n\r\n")), "400");
    let long = format!("GET / HTTP/1.1\r\n{host}X: {}\r\n\r\n", "x".repeat(64 * 1024));
    assert_eq!(status(&server.answer(&long)), "431");
    // An unread body does not keep its sender from the answer.
    let body = format!("POST / HTTP/1.1\r\n{host}Content-Length: 300000\r\n\r\n{}", "x".repeat(300_000));
    assert_eq!(status(&server.answer(&body)), "405");
    server.socket("/", &[]).assert_ready();
}

#[test]
fn a_slow_handshake_is_ended_and_delays_no_client() {
    let server = PiDaemon::with("", &[("PUSH_HANDSHAKE_SECONDS", "0.5")]);
    let mut slow: Vec<_> = ["", "GET / HTTP/1.1\r\nHost: loc", "\r\n"]
        .iter()
        .map(|begun| {
            let mut stream = connect(server.address);
            stream.write_all(begun.as_bytes()).unwrap();
            stream
        })
        .collect();
    let mut working = server.socket("/", &[]).assert_ready();
    for stream in &mut slow {
        read_to_close(stream);
    }
    // An admitted connection may be silent for any time.
    working.assert_answers();
}

#[test]
fn one_connection_too_many_is_refused_until_another_closes() {
    let server = PiDaemon::with("", &[("PUSH_PI_CONNECTIONS", "2")]);
    let (first, mut second) = (server.socket("/", &[]).assert_ready(), server.socket("/pi", &[]).assert_ready());
    let answer = server.upgrade_response("/", &[]);
    assert_eq!(status(&answer), "503", "{answer}");
    second.assert_answers();
    drop(first);
    wait_until("there is room again", || server.try_socket("/", &[]).is_ok());
    // The local socket is not affected.
    server.daemon.connect().ping();
}

#[test]
fn many_silent_connections_do_not_block_the_local_socket() {
    let server = PiDaemon::with("", &[("PUSH_HANDSHAKE_SECONDS", "1")]);
    let connections: Vec<_> = (0..300).map(|_| connect(server.address)).collect();
    server.daemon.connect().ping();
    drop(connections);
    wait_until("somebody comes in", || server.try_socket("/", &[]).is_ok());
}

#[test]
fn a_non_loopback_address_is_refused_at_startup_without_a_token() {
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = refused_start(&TempDir::new().unwrap(), &[&format!("--pi={listen}")]);
        assert!(refused.contains("can be reached from other machines, and there is no token"), "{refused}");
        assert!(refused.contains("push token new"), "{refused}");
        let home = home_with_config(&format!("enabled = true\nlisten = '{listen}'"));
        assert!(refused_start(&home, &[]).contains("there is no token"));
        // The client that would have started it reports the same.
        let listed = push_in(&home, &["sessions"]);
        assert_eq!(listed.status.code(), Some(69));
        assert!(String::from_utf8_lossy(&listed.stderr).contains("there is no token"));
    }
    // A revoked token does not count.
    let home = TempDir::new().unwrap();
    create_token(&home);
    assert!(push_in(&home, &["token", "revoke", "tok_"]).status.success());
    assert!(refused_start(&home, &["--pi=0.0.0.0:0"]).contains("there is no token"));
    let refused = refused_start(&home_with_config("require_token = true"), &["--pi=127.0.0.1:0"]);
    assert!(refused.contains("needs a token, and there is none"), "{refused}");
}

#[test]
fn a_port_in_use_and_an_invalid_configuration_are_reported_at_startup() {
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
fn the_port_comes_from_the_flag_the_variable_or_the_configuration() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let pi_address = |daemon: &Daemon| daemon.connect().get("get_metrics", json!({}))["pi"].clone();
    assert_eq!(pi_address(&Daemon::start()), Value::Null, "nobody asked for it");
    let only = Daemon::start_with(&[("PI_SERVER_PORT", "0")]);
    assert_eq!(pi_address(&only), Value::Null, "a port alone opens nothing");
    let (file, variable) = (free(), free());
    let listen = format!("enabled = true\nlisten = '{file}'");
    assert_eq!(pi_address(&Daemon::start_in(home_with_config(&listen), &[], &[])), json!(file.to_string()));
    let port = variable.port().to_string();
    let moved = Daemon::start_in(home_with_config(&listen), &[("PI_SERVER_PORT", &port)], &[]);
    assert_eq!(pi_address(&moved), json!(variable.to_string()));
    let server = PiDaemon::with(&listen, &[("PI_SERVER_PORT", &port)]);
    assert!(server.address != file && server.address != variable && server.address.port() != 0, "{}", server.address);
    let shown = server.push(&["daemon", "status", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["pi"], json!(server.address.to_string()));
    assert_eq!((&shown["http"], &shown["pvp"]), (&Value::Null, &Value::Null));
    let shown = server.push(&["daemon", "status"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains(&format!("pi           {}\n", server.address)));
}

#[test]
fn a_stopping_daemon_sends_a_close_frame() {
    let mut server = PiDaemon::new();
    let socket = server.socket("/", &[]).assert_ready();
    server.daemon.stop();
    assert_eq!(socket.close_code(), 1001);
}

/// Starts a daemon that must fail, and returns its error output.
fn refused_start(home: &TempDir, arguments: &[&str]) -> String {
    let ended = push_in(home, &[&["daemon", "run"], arguments].concat());
    assert!(!ended.status.success(), "it started: {arguments:?}");
    String::from_utf8(ended.stderr).unwrap()
}
