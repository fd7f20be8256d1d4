//! Programs on Windows, where no command is confined and directories of programs are protected by the system's own lists.

use std::path::Path;

use super::Owner;

/// Where programs are when a `PATH` names no such place.
pub(super) const USUAL: &[&str] = &[r"C:\Program Files\Git\cmd", r"C:\Windows\System32"];

/// The file that a program of this name is.
pub(super) fn file_name(name: &str) -> String {
    format!("{name}.exe")
}

/// Whether something is there that can be run.
pub(super) fn is_program(file: &Path) -> bool {
    file.is_file()
}

/// Says whom a file or directory belongs to: a disk, and what lies in the directories of the system, is the system's.
pub(super) fn owner(path: &Path, _last: bool) -> Option<Owner> {
    let name = path.to_string_lossy().replace(r"\\?\", "");
    let system = [r"C:\Program Files", r"C:\Program Files (x86)", r"C:\Windows"];
    let of_system = path.parent().is_none() || system.iter().any(|place| Path::new(&name).starts_with(place));
    Some(if of_system { Owner::System } else { Owner::User })
}
