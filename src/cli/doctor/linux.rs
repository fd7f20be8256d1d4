//! Detects network file systems, on Linux.

use std::path::Path;

use nix::sys::statfs::statfs;

/// Returns the name of the file system at a path if it is a network file system.
pub(super) fn network(path: &Path) -> Option<&'static str> {
    let kind = statfs(path).ok()?.filesystem_type().0;
    // The magic number is the lower 32 bits; the integer type differs between architectures.
    name(kind as u64 & 0xffff_ffff)
}

fn name(magic: u64) -> Option<&'static str> {
    NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

/// Magic numbers of network file systems.
const NETWORK: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9P"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x564c, "NCP"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_file_system_is_detected_by_its_magic_number() {
        assert_eq!(name(0x6969), Some("NFS"));
        assert_eq!(name(0xff53_4d42), Some("CIFS"));
        assert_eq!(name(0xef53), None, "ext4");
        assert_eq!(network(Path::new("/proc")), None);
    }
}
