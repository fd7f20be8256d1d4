//! Whether what a command gets as its workspace is the directory that the order names, and no other that was put in its place.
//!
//! The path was checked before, but whoever may write above it could exchange it until the very moment in which it is mounted.
//! So what was opened for the mount is compared, and afterwards, from inside, what stands there: a mount that went along a link
//! stands somewhere else.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use nix::sys::stat::{FileStat, fstat, lstat};

use crate::sandbox::confine::{Walls, Way};
use crate::sandbox::ground::FileId;
use crate::sandbox::message::{Obstacle, Part};

/// Tells whether something open is the workspace of the order.
pub(super) fn is_it(walls: &Walls, opened: impl AsFd) -> bool {
    match walls.workspace_id {
        None => true,
        Some(wanted) => fstat(opened).is_ok_and(|stat| id(&stat) == wanted),
    }
}

/// Refuses to go on where the path of the workspace, seen from inside, is not the one of the order.
pub(super) fn stands(walls: &Walls) -> Result<(), Obstacle> {
    let Some(wanted) = walls.workspace_id else { return Ok(()) };
    let same = lstat(&walls.workspace).is_ok_and(|stat| id(&stat) == wanted);
    let mounted = match walls.way {
        Way::Bubblewrap | Way::Namespaces => is_mounted(&walls.workspace),
        Way::Rules => true,
    };
    if same && mounted { Ok(()) } else { Err(Obstacle { part: Part::Replaced, errno: 0 }) }
}

fn id(stat: &FileStat) -> FileId {
    FileId { device: stat.st_dev, inode: stat.st_ino }
}

/// Tells whether something is mounted at exactly this path.
fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let wanted = path.as_os_str().as_encoded_bytes();
    mounts.split(|byte| *byte == b'\n').any(|line| {
        let place = line.split(|byte| *byte == b' ').nth(4);
        place.is_some_and(|place| unescaped(place) == wanted)
    })
}

/// Takes back that blanks and the like are written as a stroke and three digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
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
    fn a_mount_is_known_by_its_path_whatever_letters_it_has() {
        assert_eq!(unescaped(br"/a\040b\134c\012"), b"/a b\\c\n");
        assert_eq!(unescaped(br"/a\0"), br"/a\0");
        assert!(is_mounted(Path::new("/proc")) && !is_mounted(Path::new("/proc/self")));
    }
}
