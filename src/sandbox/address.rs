//! Classifies network addresses: public, private, or a cloud metadata service. Pure: no name is resolved.
//!
//! An IPv6 address that embeds an IPv4 address (mapped, compatible, translated, tunnelled) is classified by the
//! embedded address as well. Numeric hosts that the system's resolver accepts as addresses (`127.1`, `0x7f.1`,
//! `2130706433`) are parsed as addresses here too.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The class of an address, ordered from harmless to dangerous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressClass {
    /// A publicly routable address.
    Public,
    /// This machine, its local network, or a range that is not routed on the internet.
    Private,
    /// A cloud metadata service, which hands out credentials to any client.
    Metadata,
}

impl AddressClass {
    /// Returns the name of the class.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Private => "private",
            Self::Metadata => "metadata",
        }
    }
}

/// Classifies an IP address.
pub fn classify_ip(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

/// Classifies a host: by its address if it is numeric, by its name otherwise.
pub fn classify_host(host: &str) -> AddressClass {
    let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    if let Some(address) = parse(&host) {
        return classify_ip(address);
    }
    let ends = |end: &str| host.ends_with(end);
    if METADATA_NAMES.contains(&&*host) {
        AddressClass::Metadata
    } else if !host.contains('.') || LOCAL_SUFFIXES.iter().any(|end| ends(end)) {
        AddressClass::Private
    } else {
        AddressClass::Public
    }
}

/// Parses an address in any form that the system's resolver accepts, or an IPv6 address without brackets.
///
/// An IPv4-mapped IPv6 address is returned as IPv4.
pub fn parse(host: &str) -> Option<IpAddr> {
    let host = host.trim_end_matches('.');
    match host.parse::<Ipv6Addr>() {
        Ok(address) => Some(address.to_canonical()),
        Err(_) => parse_v4(host).map(IpAddr::V4),
    }
}

/// Parses one to four numbers, decimal, octal or hexadecimal; the last one fills the remaining bits.
fn parse_v4(host: &str) -> Option<Ipv4Addr> {
    let parts: Vec<&str> = host.split('.').collect();
    let (last, before) = parts.split_last()?;
    if before.len() > 3 {
        return None;
    }
    let mut address: u32 = 0;
    for (index, part) in before.iter().enumerate() {
        let byte = u8::try_from(parse_number(part)?).ok()?;
        address |= u32::from(byte) << (24 - 8 * index);
    }
    let last = parse_number(last)?;
    let bits = 32 - 8 * before.len();
    (u64::from(last) < 1_u64 << bits).then(|| Ipv4Addr::from(address | last))
}

fn parse_number(part: &str) -> Option<u32> {
    let (digits, radix) = match part.as_bytes() {
        [b'0', b'x' | b'X', ..] => (part.get(2..)?, 16),
        [b'0', _, ..] => (part.get(1..)?, 8),
        _ => (part, 10),
    };
    if !digits.bytes().all(|digit| digit.is_ascii_alphanumeric()) {
        return None;
    }
    // The resolver reads `0x` alone as zero.
    if digits.is_empty() && radix == 16 { Some(0) } else { u32::from_str_radix(digits, radix).ok() }
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    let bits = address.to_bits();
    let inside =
        |(network, length): &([u8; 4], u32)| bits >> (32 - length) == u32::from_be_bytes(*network) >> (32 - length);
    if METADATA_V4.iter().any(inside) {
        return AddressClass::Metadata;
    }
    if PRIVATE_V4.iter().any(inside) { AddressClass::Private } else { AddressClass::Public }
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    let bits = address.to_bits();
    let inside = |(network, length): &([u16; 8], u32)| {
        bits >> (128 - length) == Ipv6Addr::from(*network).to_bits() >> (128 - length)
    };
    // Clouds put the link-local address of version 4 into the last 32 bits: `fe80::a9fe:a9fe`, `fd00:c1::a9fe:a9fe`.
    let holds_link_local = address.segments()[6] == 0xa9fe && LOCAL_V6.iter().any(inside);
    if holds_link_local || METADATA_V6.iter().any(inside) {
        return AddressClass::Metadata;
    }
    let own = if PRIVATE_V6.iter().any(inside) { AddressClass::Private } else { AddressClass::Public };
    embedded_v4(address).into_iter().map(classify_v4).fold(own, AddressClass::max)
}

/// Returns the IPv4 addresses that are embedded in an IPv6 address.
fn embedded_v4(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let segments = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    let last = v4(segments[6], segments[7]);
    match segments {
        // Mapped, compatible, translated.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            vec![last]
        }
        [0, 0, 0, 0, 0, 0, high, low] if (high, low) != (0, 0) && (high, low) != (0, 1) => vec![last],
        // 6to4.
        [0x2002, high, low, ..] => vec![v4(high, low)],
        // Teredo: the server, and the client with its bits inverted.
        [0x2001, 0, high, low, ..] => vec![v4(high, low), v4(!segments[6], !segments[7])],
        // ISATAP.
        [.., 0 | 0x200, 0x5efe, _, _] => vec![last],
        _ => Vec::new(),
    }
}

const METADATA_NAMES: [&str; 6] = [
    "metadata.google.internal",
    "metadata.goog",
    "metadata",
    "instance-data",
    "instance-data.ec2.internal",
    "metadata.azure.internal",
];
const LOCAL_SUFFIXES: [&str; 7] =
    [".local", ".internal", ".localhost", ".localdomain", ".home.arpa", ".lan", ".intranet"];
/// All of link-local: clouds have services for credentials at many of its addresses.
const METADATA_V4: [([u8; 4], u32); 4] =
    [([169, 254, 0, 0], 16), ([100, 100, 100, 200], 32), ([168, 63, 129, 16], 32), ([192, 0, 0, 192], 32)];
const METADATA_V6: [([u16; 8], u32); 3] = [
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32),
    ([0xfd20, 0xce, 0, 0, 0, 0, 0, 0], 32),
    ([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128),
];
/// Unique local and link-local.
const LOCAL_V6: [([u16; 8], u32); 2] = [([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10)];
/// Ranges for this machine, local networks, multicast, and reserved ranges.
const PRIVATE_V4: [([u8; 4], u32); 14] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];
const PRIVATE_V6: [([u16; 8], u32); 10] = [
    // Unspecified and loopback.
    ([0, 0, 0, 0, 0, 0, 0, 0], 127),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48),
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 64),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
    ([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notation_of_an_address_is_parsed() {
        for (host, expected) in [
            ("127.0.0.1", "127.0.0.1"),
            ("127.1", "127.0.0.1"),
            ("127.0.1", "127.0.0.1"),
            ("127.0.0.1.", "127.0.0.1"),
            ("0x7f.1", "127.0.0.1"),
            ("0X7F.0.0.0x1", "127.0.0.1"),
            ("0177.0.0.1", "127.0.0.1"),
            ("0177.0.0.01", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("0x7f000001", "127.0.0.1"),
            ("017700000001", "127.0.0.1"),
            ("0", "0.0.0.0"),
            ("10.65535", "10.0.255.255"),
            ("::ffff:127.0.0.1", "127.0.0.1"),
            ("::ffff:7f00:1", "127.0.0.1"),
            ("::1", "::1"),
            ("0:0:0:0:0:0:0:1", "::1"),
        ] {
            assert_eq!(parse(host).map(|address| address.to_string()).as_deref(), Some(expected), "{host}");
        }
        for host in [
            "",
            ".",
            "256.0.0.1",
            "1.2.3.4.5",
            "4294967296",
            "1.16777216",
            "0x",
            "08.1",
            "a.b",
            "1..2",
            "-1",
            "+1",
            "::g",
        ] {
            assert!(parse(host).is_none() || host == "0x", "{host}");
        }
    }

    #[test]
    fn every_address_range_is_classified() {
        use AddressClass::{Metadata, Private, Public};
        for (host, expected) in [
            ("93.184.216.34", Public),
            ("1.1.1.1", Public),
            ("2606:4700:4700::1111", Public),
            ("172.15.255.255", Public),
            ("172.32.0.1", Public),
            ("100.63.255.255", Public),
            ("100.128.0.1", Public),
            ("0.0.0.0", Private),
            ("0.1.2.3", Private),
            ("10.0.0.1", Private),
            ("100.64.0.1", Private),
            ("127.255.255.254", Private),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.168.1.1", Private),
            ("192.0.2.1", Private),
            ("198.51.100.7", Private),
            ("203.0.113.9", Private),
            ("198.19.0.1", Private),
            ("224.0.0.251", Private),
            ("255.255.255.255", Private),
            ("::", Private),
            ("::1", Private),
            ("fe80::1", Private),
            ("fec0::1", Private),
            ("fc00::1", Private),
            ("fdff::1", Private),
            ("ff02::1", Private),
            ("2001:db8::1", Private),
            ("::ffff:10.0.0.1", Private),
            ("::ffff:8.8.8.8", Public),
            ("::10.0.0.1", Private),
            ("::ffff:0:127.0.0.1", Private),
            ("64:ff9b::127.0.0.1", Private),
            ("64:ff9b::8.8.8.8", Public),
            ("64:ff9b:1::8.8.8.8", Private),
            ("2002:7f00:1::", Private),
            ("2002:808:808::", Public),
            ("2001:0:4136:e378:8000:63bf:80ff:fffe", Private),
            ("2001:0:7f00:1::", Private),
            ("2606:4700::5efe:10.0.0.1", Private),
            ("169.254.169.254", Metadata),
            ("2852039166", Metadata),
            ("0xa9fea9fe", Metadata),
            ("0251.0376.0251.0376", Metadata),
            ("::ffff:169.254.169.254", Metadata),
            ("64:ff9b::a9fe:a9fe", Metadata),
            ("fd00:ec2::254", Metadata),
            ("100.100.100.200", Metadata),
            ("169.254.170.2", Metadata),
            ("169.254.0.0", Metadata),
            ("169.254.1.1", Metadata),
            ("169.254.255.255", Metadata),
            ("::ffff:169.254.42.42", Metadata),
            ("64:ff9b::a9fe:102", Metadata),
            ("2002:a9fe:102::", Metadata),
            ("169.253.255.255", Public),
            ("169.255.0.0", Public),
            ("fd00:ec2::23", Metadata),
            ("fd00:ec2::1:2", Metadata),
            ("fd20:ce::254", Metadata),
            ("fd00:42::42", Metadata),
            ("fd00:c1::a9fe:a9fe", Metadata),
            ("fe80::a9fe:a9fe", Metadata),
            ("fe80::a9fd:a9fe", Private),
            ("febf::1", Private),
            ("fd00:ec3::254", Private),
        ] {
            assert_eq!(classify_host(host), expected, "{host}");
        }
    }

    #[test]
    fn host_names_are_classified() {
        use AddressClass::{Metadata, Private, Public};
        for (host, expected) in [
            ("example.org", Public),
            ("EXAMPLE.ORG.", Public),
            ("localhost", Private),
            ("LOCALHOST.", Private),
            ("a.localhost", Private),
            ("router", Private),
            ("nas.local", Private),
            ("[::1]", Private),
            ("Metadata.Google.Internal.", Metadata),
            ("metadata", Metadata),
        ] {
            assert_eq!(classify_host(host), expected, "{host}");
        }
    }
}
