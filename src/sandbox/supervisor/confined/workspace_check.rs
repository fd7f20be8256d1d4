//! Verifies that the mounted workspace is the directory named in the request, and not one that replaced it.
//!
//! The path was checked before, but a process that can write to its parents could replace it until the moment of the
//! mount. The directory that was opened for the mount is therefore compared, and afterwards, from inside, the one at
//! the path: a mount that followed a symbolic link is elsewhere.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use nix::sys::stat::{FileStat, fstat, lstat};

use crate::sandbox::confinement::{ConfinementSpec, Mechanism};
use crate::sandbox::supervisor_protocol::{ConfinementFailure, FailureCause};
use crate::sandbox::workspace::FileId;

/// Returns whether an open directory is the workspace of the request.
pub(super) fn is_expected(spec: &ConfinementSpec, opened: impl AsFd) -> bool {
    match spec.workspace_id {
        None => true,
        Some(expected) => fstat(opened).is_ok_and(|stat| id(&stat) == expected),
    }
}

/// Fails if the path of the workspace, seen from inside, is not the directory of the request.
pub(super) fn verify(spec: &ConfinementSpec) -> Result<(), ConfinementFailure> {
    let Some(expected) = spec.workspace_id else { return Ok(()) };
    let same = lstat(&spec.workspace).is_ok_and(|stat| id(&stat) == expected);
    let mounted = match spec.mechanism {
        Mechanism::Bubblewrap | Mechanism::Namespaces => is_mounted(&spec.workspace),
        Mechanism::Rules => true,
    };
    if same && mounted {
        Ok(())
    } else {
        Err(ConfinementFailure { cause: FailureCause::WorkspaceIsReplaced, errno: 0 })
    }
}

fn id(stat: &FileStat) -> FileId {
    FileId { device: stat.st_dev, inode: stat.st_ino }
}

/// Returns whether there is a mount at exactly this path.
fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let path_bytes = path.as_os_str().as_encoded_bytes();
    mounts.split(|byte| *byte == b'\n').any(|line| {
        let mount_point = line.split(|byte| *byte == b' ').nth(4);
        mount_point.is_some_and(|mount_point| unescape(mount_point) == path_bytes)
    })
}

/// Decodes the octal escapes of `mountinfo`.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        match (first, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', later @ ..]) => {
                plain.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = later;
            }
            _ => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_path_whatever_characters_it_contains() {
        assert_eq!(unescape(br"/a\040b\134c\012"), b"/a b\\c\n");
        assert_eq!(unescape(br"/a\0"), br"/a\0");
        assert!(is_mounted(Path::new("/proc")) && !is_mounted(Path::new("/proc/self")));
    }
}
