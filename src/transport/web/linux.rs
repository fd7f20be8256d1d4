//! The owner of a connection on Linux, from the TCP tables and the open files of processes in `/proc`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::ifaddrs::getifaddrs;
use nix::unistd::geteuid;

/// Whether this system can tell the owner of a connection.
pub(super) const SUPPORTED: bool = true;

pub(super) fn own_uid() -> u32 {
    geteuid().as_raw()
}

/// Finds the socket at `at` that is connected to `to`. Returns its user and its inode number, which is zero if no
/// process holds it open.
///
/// The state of the connection does not matter: a socket that its process has shut down still belongs to it.
pub(super) fn find_connection(at: SocketAddr, to: SocketAddr) -> Option<(u32, u64)> {
    // An IPv6 socket may be connected to an IPv4 socket.
    let rows = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].iter().filter_map(|table| {
        let lines = BufReader::new(fs::File::open(table).ok()?).lines();
        lines.map_while(Result::ok).find_map(|line| parse_row(&line, canonical(at), canonical(to)))
    });
    rows.max_by_key(|(_, socket)| *socket)
}

/// Returns whether a connection from `peer` to `here` starts on this machine.
pub(super) fn is_local(peer: IpAddr, here: IpAddr) -> bool {
    let (peer, here) = (peer.to_canonical(), here.to_canonical());
    // Only this machine reaches its loopback and has its addresses.
    peer.is_loopback() || here.is_loopback() || peer == here || is_own_address(peer)
}

fn is_own_address(address: IpAddr) -> bool {
    // If in doubt, the peer counts as a process of this machine.
    let Ok(interfaces) = getifaddrs() else { return true };
    interfaces.filter_map(|interface| interface.address).any(|interface_address| {
        let four = interface_address.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
        let six = interface_address.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip()));
        four.or(six) == Some(address)
    })
}

/// Parses a row of the table, and returns its user and inode if both addresses match.
fn parse_row(line: &str, at: SocketAddr, to: SocketAddr) -> Option<(u32, u64)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (words.next()?, words.next()?);
    if parse_address(local)? != at || parse_address(remote)? != to {
        return None;
    }
    // In between: state, queues, timer, retransmissions; after the user a timeout.
    let uid = words.nth(4)?.parse().ok()?;
    let socket = words.nth(1)?.parse().ok()?;
    Some((uid, socket))
}

/// Parses an address of the table: groups of four bytes, each in native byte order.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let group = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(group(0)?)),
        32 => {
            let groups = [group(0)?, group(8)?, group(16)?, group(24)?];
            let mut bytes = [0; 16];
            bytes.iter_mut().zip(groups.as_flattened()).for_each(|(byte, value)| *byte = *value);
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, port)))
}

/// Maps an IPv4-mapped IPv6 address to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Returns the processes that visibly hold a socket open.
pub(super) fn holders(socket: u64) -> Vec<u32> {
    processes().filter(|pid| holds(*pid, socket)).collect()
}

/// Returns whether a process visibly holds a socket open.
pub(super) fn holds(pid: u32, socket: u64) -> bool {
    let name = format!("socket:[{socket}]");
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == &*name))
}

/// Returns the live processes that have a user's id among their user ids.
pub(super) fn processes_of(uid: u32) -> impl Iterator<Item = u32> {
    processes().filter(move |pid| runs_as(*pid, uid))
}

/// Returns whether a process is alive and one of its user ids is `uid`. The owner of its `/proc` directory is no
/// substitute: that is root for a non-dumpable process.
pub(super) fn runs_as(pid: u32, uid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status_matches(&status, uid)
}

fn status_matches(status: &str, uid: u32) -> bool {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim_ascii();
    // A process whose first thread has exited lives on in its other threads.
    let is_dead =
        field("State:").starts_with(['Z', 'X']) && field("Threads:").parse().is_ok_and(|count: u32| count <= 1);
    !is_dead && field("Uid:").split_ascii_whitespace().any(|id| id.parse() == Ok(uid))
}

fn processes() -> impl Iterator<Item = u32> {
    let table = fs::read_dir("/proc").into_iter().flatten().flatten();
    table.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_in_any_state_and_an_orphan_has_no_number() {
        let at = "127.0.0.1:3141".parse().unwrap();
        let to = "127.0.0.1:80".parse().unwrap();
        for (state, socket) in [("01", 77), ("05", 0), ("08", 77), ("06", 0)] {
            let line = format!(
                "   0: 0100007F:0C45 0100007F:0050 {state} 00000000:00000000 00:00000000 00000000  1000        0 {socket} 1 0"
            );
            if cfg!(target_endian = "little") {
                assert_eq!(parse_row(&line, at, to), Some((1000, socket)), "{state}");
                assert_eq!(parse_row(&line, to, at), None, "the other end");
            }
        }
    }

    #[test]
    fn a_peer_with_an_address_of_this_machine_is_local() {
        let is = |peer: &str, here: &str| is_local(peer.parse().unwrap(), here.parse().unwrap());
        assert!(is("127.0.0.7", "192.0.2.1") && is("192.0.2.1", "127.0.0.1") && is("::1", "2001:db8::1"));
        assert!(is("192.0.2.1", "::ffff:192.0.2.1"));
        assert!(!is("192.0.2.1", "192.0.2.2"));
        assert!(is_own_address("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn a_process_runs_as_its_user() {
        let own = std::process::id();
        assert!(runs_as(own, own_uid()));
        assert!(!runs_as(own, own_uid() + 4711) && !runs_as(u32::MAX, own_uid()));
        assert!(processes_of(own_uid()).any(|pid| pid == own));
    }

    #[test]
    fn a_zombie_holds_nothing_unless_one_of_its_threads_is_alive() {
        let of =
            |state: &str, threads: u32| format!("Name:\tx\nState:\t{state}\nUid:\t7\t8\t8\t8\nThreads:\t{threads}\n");
        assert!(status_matches(&of("S (sleeping)", 1), 7) && status_matches(&of("S (sleeping)", 1), 8));
        assert!(!status_matches(&of("S (sleeping)", 1), 9));
        assert!(!status_matches(&of("Z (zombie)", 1), 7));
        assert!(status_matches(&of("Z (zombie)", 2), 7));
    }

    #[test]
    fn addresses_are_read_as_the_table_writes_them() {
        if cfg!(target_endian = "little") {
            assert_eq!(parse_address("0100007F:0C45"), Some("127.0.0.1:3141".parse().unwrap()));
            let six = parse_address("00000000000000000000000001000000:0050");
            assert_eq!(six, Some("[::1]:80".parse().unwrap()));
            let mapped = parse_address("0000000000000000FFFF00000100007F:0050");
            assert_eq!(mapped, Some("127.0.0.1:80".parse().unwrap()));
        }
        for wrong in ["", "0100007F", "0100007:0C45", "0100007F:XYZ", "zz00007F:0C45"] {
            assert_eq!(parse_address(wrong), None, "{wrong}");
        }
    }
}
