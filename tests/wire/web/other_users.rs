//! Other users of the machine reach the port, and are admitted only with a token.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::unistd::geteuid;
use tempfile::TempDir;

use crate::support::skip;
use crate::support::test_name::test_name;
use crate::web::client::{PiDaemon, create_token, status};

#[test]
fn another_user_connects_only_with_a_token() {
    let server = PiDaemon::new();
    let secret = create_token(&server.daemon.home);
    if !geteuid().is_root() {
        return skip::skip("web: only root can act as another user");
    }
    let stage = TempDir::new().unwrap();
    fs::set_permissions(stage.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = stage.path().join("other-user");
    // Copied by another process: a concurrently forked child of this process would hold the copy open for
    // writing, and a
    // file that is open for writing cannot be executed.
    let this = format!("/proc/{}/exe", std::process::id());
    assert!(Command::new("cp").arg(this).arg(&program).status().unwrap().success());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let asks = |uid: u32, token: &str| {
        let mut command = Command::new(&program);
        command.args(["--exact", test_name(connect_as_the_other_user), "--nocapture"]);
        command.env(ADDRESS, server.address.to_string()).env(TOKEN, token).uid(uid).gid(uid).current_dir("/");
        let output = String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned();
        let word = output.lines().find_map(|line| line.strip_prefix(STATUS_PREFIX));
        word.unwrap_or_else(|| panic!("it said nothing: {output}")).to_owned()
    };
    assert_eq!(asks(geteuid().as_raw(), ""), "101", "the owner");
    assert_eq!(asks(NOBODY, ""), "403");
    assert_eq!(asks(NOBODY, "ptk_wrong"), "401");
    assert_eq!(asks(NOBODY, &secret), "101");
    let log = server.daemon.log();
    assert!(log.contains("connections of other users need a token"), "{log}");
    // The throttle applies only to the user who tries too often.
    for _ in 0..10 {
        asks(NOBODY, "ptk_wrong");
    }
    assert_eq!(asks(NOBODY, &secret), "429");
    assert_eq!(asks(NOBODY - 1, &secret), "101");
    server.socket("/", &[("authorization", &format!("Bearer {secret}"))]).assert_ready();
}

/// The other process: requests a WebSocket, and prints the status of the response.
#[test]
fn connect_as_the_other_user() {
    let Ok(place) = std::env::var(ADDRESS) else { return };
    let token = std::env::var(TOKEN).unwrap_or_default();
    let bearer = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    let request = format!(
        "GET /pi HTTP/1.1\r\nHost: {place}\r\n{bearer}Connection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let mut stream = TcpStream::connect(place).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    println!("\n{STATUS_PREFIX}{}", status(&String::from_utf8_lossy(&answer)));
}

const ADDRESS: &str = "PUSHD_TEST_PLACE";
const TOKEN: &str = "PUSHD_TEST_TOKEN";
const STATUS_PREFIX: &str = "it says: ";
const NOBODY: u32 = 65534;
