//! Programs on Windows, where no command is confined and access control lists protect the directories of programs.

use std::path::Path;

use super::Owner;

/// The directories that are searched in addition to `PATH`.
pub(super) const DEFAULT_DIRECTORIES: &[&str] = &[r"C:\Program Files\Git\cmd", r"C:\Windows\System32"];

/// Returns the file name of a program.
pub(super) fn file_name(name: &str) -> String {
    format!("{name}.exe")
}

/// Returns whether a file is a program.
pub(super) fn is_program(file: &Path) -> bool {
    file.is_file()
}

/// Returns the owner of a file or directory: the system for a drive and for system directories, otherwise the user.
pub(super) fn owner(path: &Path, _last: bool) -> Option<Owner> {
    let name = path.to_string_lossy().replace(r"\\?\", "");
    let system = [r"C:\Program Files", r"C:\Program Files (x86)", r"C:\Windows"];
    let of_system = path.parent().is_none() || system.iter().any(|root| Path::new(&name).starts_with(root));
    Some(if of_system { Owner::System } else { Owner::User })
}
