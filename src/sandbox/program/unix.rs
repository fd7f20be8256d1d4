//! Owners and modes of files, on Unix.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;

use super::Owner;

/// Where programs are when a `PATH` names no such place.
pub(super) const USUAL: &[&str] = &["/usr/local/bin", "/usr/bin", "/bin"];

/// The file that a program of this name is.
pub(super) fn file_name(name: &str) -> String {
    name.to_owned()
}

/// Whether something is there that can be run.
pub(super) fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|there| there.is_file() && there.mode() & 0o111 != 0)
}

/// Says whom a file or directory belongs to, or nothing if others can change it.
///
/// A directory above it may be one in which everybody makes things and nobody can exchange those of others, as `/tmp` is.
pub(super) fn owner(path: &Path, last: bool) -> Option<Owner> {
    let there = fs::symlink_metadata(path).ok()?;
    let owner = match there.uid() {
        // What root has made may be root's own project.
        0 if geteuid().is_root() && !is_of_system(path) => Owner::User,
        0 => Owner::System,
        user if user == geteuid().as_raw() => Owner::User,
        _ => return None,
    };
    let by_others = there.mode() & 0o002 != 0 || there.mode() & 0o020 != 0 && there.gid() != 0;
    let sticky = there.mode() & 0o1000 != 0 && there.uid() == 0 && !last;
    (!by_others || sticky).then_some(owner)
}

/// Whether a path lies where systems put programs, or on the way there.
fn is_of_system(path: &Path) -> bool {
    SYSTEM.iter().any(|place| path.starts_with(place) || Path::new(place).starts_with(path))
}

const SYSTEM: &[&str] =
    &["/usr", "/bin", "/sbin", "/opt", "/nix/store", "/gnu/store", "/snap", "/run/current-system"];
