//! Whose a connection is, on Linux: by the tables of TCP connections, and by who has a socket open.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;

use nix::unistd::geteuid;

/// This system says whose a connection is.
pub(super) const TELLS: bool = true;

pub(super) fn own_uid() -> u32 {
    geteuid().as_raw()
}

/// Finds the end of a connection that is at `at`, and leads to `to`: its user, and the number of its socket.
pub(super) fn find(at: SocketAddr, to: SocketAddr) -> Option<(u32, u64)> {
    // A socket of the one family may speak to one of the other.
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"].iter().find_map(|table| {
        let lines = BufReader::new(fs::File::open(table).ok()?).lines();
        lines.map_while(Result::ok).find_map(|line| row(&line, plain(at), plain(to)))
    })
}

/// Reads a row of the table, if it is the one.
fn row(line: &str, at: SocketAddr, to: SocketAddr) -> Option<(u32, u64)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
    if state != ESTABLISHED || address(local)? != at || address(remote)? != to {
        return None;
    }
    // Between them: queues, timer, retransmissions; and after the user a timeout.
    let uid = words.nth(3)?.parse().ok()?;
    let socket = words.nth(1)?.parse().ok()?;
    Some((uid, socket))
}

const ESTABLISHED: &str = "01";

/// Reads an address as the table writes it: groups of four bytes, each in the order of the machine.
fn address(text: &str) -> Option<SocketAddr> {
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
    Some(plain(SocketAddr::new(ip, port)))
}

/// One way to write each address.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Returns the processes that have a socket open, as far as we may see.
pub(super) fn holders(socket: u64) -> Vec<u32> {
    let name = format!("socket:[{socket}]");
    let has_it = |pid: &u32| {
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        open.flatten()
            .any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == &*name))
    };
    processes().filter(has_it).collect()
}

/// Returns the processes of a user.
pub(super) fn processes_of(uid: u32) -> Vec<u32> {
    let is_theirs = |pid: &u32| fs::metadata(format!("/proc/{pid}")).is_ok_and(|about| about.uid() == uid);
    processes().filter(is_theirs).collect()
}

fn processes() -> impl Iterator<Item = u32> {
    let table = fs::read_dir("/proc").into_iter().flatten().flatten();
    table.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_table_writes_them() {
        if cfg!(target_endian = "little") {
            assert_eq!(address("0100007F:0C45"), Some("127.0.0.1:3141".parse().unwrap()));
            let six = address("00000000000000000000000001000000:0050");
            assert_eq!(six, Some("[::1]:80".parse().unwrap()));
            let mapped = address("0000000000000000FFFF00000100007F:0050");
            assert_eq!(mapped, Some("127.0.0.1:80".parse().unwrap()));
        }
        for wrong in ["", "0100007F", "0100007:0C45", "0100007F:XYZ", "zz00007F:0C45"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }
}
