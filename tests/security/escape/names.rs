//! Host names: a command with network access can resolve them, wherever the resolver configuration lies.
//!
//! The configuration belongs to the machine, so the test runs again with files of its own: in a mount namespace, with
//! a name server on loopback.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;

use nix::unistd::geteuid;
use pushd::sandbox::StepEnd;
use pushd::sandbox::confinement::{Mechanism, StepPermissions};

use super::attempts::StartDir;
use super::fixture::{Fixture, own_program};
use crate::support::skip::skip;
use crate::support::test_name::test_name;

const INSIDE: &str = "NAMES_SERVER";
const NAME: &str = "registry.example.test";
const ADDRESS: [u8; 4] = [127, 0, 0, 99];

#[test]
fn a_command_with_the_network_resolves_names_by_the_settings_of_the_machine() {
    if let Ok(server) = std::env::var(INSIDE) {
        return resolve(server.parse().unwrap());
    }
    if !geteuid().is_root() {
        return skip("only root can have settings of the resolver of its own");
    }
    let own = tempfile::tempdir().unwrap();
    let [_, _, c, d] = std::process::id().to_be_bytes();
    let server = Ipv4Addr::new(127, 77, c, d.max(1));
    for links in [
        "ln -s ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf",
        "mkdir /run/resolvconf; ln -s /run/systemd/resolve/stub-resolv.conf /run/resolvconf/resolv.conf; \
         ln -s /run/resolvconf/resolv.conf /etc/resolv.conf",
        "cp /run/systemd/resolve/stub-resolv.conf /etc/resolv.conf",
    ] {
        let script = format!(
            "set -e; rm -rf $OWN/*; mkdir -p $OWN/etc $OWN/run/systemd/resolve; cp -a /etc/. $OWN/etc; \
             mount --bind $OWN/etc /etc; mount --bind $OWN/run /run; \
             echo nameserver {server} > /run/systemd/resolve/stub-resolv.conf; \
             echo 'hosts: files dns' > /etc/nsswitch.conf; rm -f /etc/resolv.conf; {links}; exec \"$@\""
        );
        let test = test_name(a_command_with_the_network_resolves_names_by_the_settings_of_the_machine);
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script, "sh"])
            .arg(own_program())
            .args(["--exact", test, "--nocapture"])
            .env("OWN", own.path())
            .env(INSIDE, server.to_string())
            .env_remove("PUSH_SKIPS")
            .output();
        let output = match output {
            Err(error) => return skip(&format!("there is no program unshare: {error}")),
            Ok(output) => output,
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        if text.contains("unshare failed") || text.contains("must be superuser") || text.contains("permission denied") {
            return skip(&format!("this machine gives no mount namespace: {text}"));
        }
        assert!(output.status.success() && text.contains("1 passed"), "{links}:\n{text}");
    }
}

/// Resolves the name in the sandbox, with network access and without.
fn resolve(server: Ipv4Addr) {
    let socket = UdpSocket::bind((server, 53)).unwrap();
    std::thread::spawn(move || serve(&socket));
    let fixture = Fixture::new();
    for mechanism in
        [Mechanism::Bubblewrap, Mechanism::Namespaces].into_iter().filter(|mechanism| fixture.works(*mechanism))
    {
        let run_tree = fixture.confined_tree(mechanism, fixture.confinement(StartDir::Work));
        let look_up = format!("getent ahostsv4 {NAME}; getent hosts localhost; head -1 /etc/resolv.conf");
        let mut step = fixture.step(StartDir::Work, &look_up);
        step.permissions = StepPermissions { network: true, ..StepPermissions::default() };
        let (end, text) = fixture.run_step(&run_tree, step);
        let address = Ipv4Addr::from(ADDRESS).to_string();
        assert_eq!(end.unwrap(), StepEnd::Exited(0), "{}: {text}", mechanism.as_str());
        assert!(text.contains(&address) && text.contains("localhost"), "{}: {text}", mechanism.as_str());
        let (_, text) = fixture.run_step(&run_tree, fixture.step(StartDir::Work, &look_up));
        assert!(!text.contains(&address), "without the network, {}: {text}", mechanism.as_str());
    }
}

/// Answers every query with the same address.
fn serve(socket: &UdpSocket) {
    let mut question = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut question) {
        let query = &question[..length];
        // After the header come the labels of the name, each with its length before it, then the type and the class.
        let Some(end) = query.iter().skip(12).position(|byte| *byte == 0).map(|end| 12 + end + 5) else {
            continue;
        };
        let Some(about) = query.get(12..end) else { continue };
        let is_address = about[about.len() - 4..about.len() - 2] == [0, 1];
        let mut answer = query[..2].to_vec();
        answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
        answer.extend(about);
        if is_address {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
            answer.extend(ADDRESS);
        }
        let _asked_by_somebody_who_is_gone = socket.send_to(&answer, from);
    }
}
