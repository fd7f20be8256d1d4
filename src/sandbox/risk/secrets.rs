//! Risk of file access: files that contain secrets, and files that other programs execute or trust.

use super::level::Risk;
use super::path_context::{PathContext, PathRef, PathScope};
use super::startup;

/// Returns whether a file contains secrets, by its name.
pub(super) fn holds_secrets(path_ref: &PathRef, paths: &PathContext) -> bool {
    let path = path_ref.path.to_lowercase();
    let name = path.rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let named = name.starts_with(".env")
        || name.starts_with("id_")
        || SECRET_NAMES.contains(&name)
        || SECRET_EXTENSIONS.contains(&extension);
    let below = path_ref.scope != PathScope::Inside
        && SECRET_DIRECTORIES.iter().any(|folder| contains_directories(&path, folder));
    let system = ["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/proc/self/environ"];
    named
        || below
        || is_home_secret(path_ref, paths)
        || system.iter().any(|file| path.starts_with(file))
        || path.ends_with("/environ")
}

/// Returns whether a file in the workspace is a secret of a home that lies in the workspace.
fn is_home_secret(path_ref: &PathRef, paths: &PathContext) -> bool {
    SECRET_DIRECTORIES.iter().chain(&SECRET_NAMES).any(|name| paths.is_home_path(path_ref, name))
}

/// Returns whether a path belongs to the daemon: its socket, its keys or its journal.
pub(super) fn is_daemon_path(path_ref: &PathRef, paths: &PathContext) -> bool {
    let path = path_ref.path.to_lowercase();
    if DAEMON_PATHS.iter().any(|name| paths.is_home_path(path_ref, name)) {
        return true;
    }
    path_ref.scope != PathScope::Inside && (contains_directories(&path, ".push") || path.ends_with("push/keys.toml"))
}

/// Returns the risk of reading a file.
pub(super) fn read_risk(path_ref: &PathRef, paths: &PathContext) -> Risk {
    if is_daemon_path(path_ref, paths) {
        return Risk::Critical;
    }
    match path_ref.scope {
        PathScope::Inside if is_home_secret(path_ref, paths) || paths.hides(path_ref) => Risk::High,
        PathScope::Inside if holds_secrets(path_ref, paths) => Risk::Medium,
        PathScope::Outside | PathScope::Unknown if holds_secrets(path_ref, paths) => Risk::High,
        PathScope::Inside | PathScope::Outside | PathScope::Unknown => Risk::Low,
    }
}

/// Returns the risk of writing a file.
pub(super) fn write_risk(path_ref: &PathRef, paths: &PathContext) -> Risk {
    let path = path_ref.path.to_lowercase();
    // Git executes what it finds there: hooks, filters, an editor.
    if path.split('/').any(|name| name == ".git") || is_daemon_path(path_ref, paths) {
        return Risk::Critical;
    }
    let mut trusted = SECRET_DIRECTORIES.iter().chain(&HOME_TRUSTED_DIRECTORIES).chain(&HOME_TRUSTED_FILES);
    let at_home = startup::write_risk(path_ref, paths);
    match path_ref.scope {
        PathScope::Inside if trusted.any(|name| paths.is_home_path(path_ref, name)) => Risk::Critical,
        PathScope::Inside => {
            let run = path.split('/').any(|name| WORKSPACE_TRUSTED_NAMES.contains(&name));
            let least = if run || holds_secrets(path_ref, paths) { Risk::High } else { Risk::Medium };
            at_home.unwrap_or(least).max(least)
        }
        PathScope::Outside => {
            let least = write_risk_outside(&path);
            at_home.unwrap_or(least).max(least)
        }
        // The confinement limits the write to the workspace. Without confinement the unknown path is asked about.
        PathScope::Unknown => match at_home.unwrap_or(Risk::Low).max(write_risk_outside(&path)) {
            Risk::Critical => Risk::Critical,
            Risk::Low | Risk::Medium | Risk::High => Risk::Medium,
        },
    }
}

fn write_risk_outside(path: &str) -> Risk {
    if HARMLESS_DEVICES.contains(&path) {
        return Risk::Low;
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let scratch = SCRATCH_ROOTS.iter().any(|root| path.starts_with(root));
    let root = |root: &str| path == root || path.starts_with(&format!("{root}/"));
    let critical = (!scratch && CRITICAL_ROOTS.iter().any(|name| root(name)))
        || SECRET_DIRECTORIES.iter().chain(&HOME_TRUSTED_DIRECTORIES).any(|folder| contains_directories(path, folder))
        || HOME_TRUSTED_FILES.contains(&name);
    match () {
        () if critical => Risk::Critical,
        () if scratch => Risk::Medium,
        () => Risk::High,
    }
}

/// Returns whether a path contains these directories, one below the other.
fn contains_directories(path: &str, folder: &str) -> bool {
    format!("{path}/").contains(&format!("/{folder}/"))
}

/// Paths in a home that belong to the daemon.
const DAEMON_PATHS: [&str; 2] = [".push", ".config/push/keys.toml"];
const SECRET_NAMES: [&str; 9] = [
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    "credentials",
    "credentials.toml",
    ".git-credentials",
    ".vault-token",
];
const SECRET_EXTENSIONS: [&str; 7] = ["pem", "key", "p12", "pfx", "jks", "keystore", "kdbx"];
/// Directories whose files are secrets, or are trusted at login.
const SECRET_DIRECTORIES: [&str; 10] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".kube",
    ".docker",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".password-store",
    "library/keychains",
];
/// Names in a workspace that other programs execute or trust as soon as they exist.
const WORKSPACE_TRUSTED_NAMES: [&str; 9] = [
    ".github",
    ".gitlab-ci.yml",
    ".push",
    ".ssh",
    ".vscode",
    ".envrc",
    ".husky",
    ".circleci",
    ".pre-commit-config.yaml",
];
/// Directories in a home with the same property.
const HOME_TRUSTED_DIRECTORIES: [&str; 8] = [
    ".config/push",
    ".config/systemd",
    ".config/autostart",
    ".local/share/systemd",
    "library/launchagents",
    "library/launchdaemons",
    ".config/fish",
    ".local/bin",
];
const HOME_TRUSTED_FILES: [&str; 14] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".gitconfig",
    ".vimrc",
    ".inputrc",
    ".xinitrc",
    ".xprofile",
    "authorized_keys",
    "sudoers",
];
/// Directories of the operating system.
const CRITICAL_ROOTS: [&str; 17] = [
    "/dev",
    "/etc",
    "/boot",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/usr",
    "/sys",
    "/proc",
    "/root",
    "/var/spool",
    "/var/lib",
    "/system",
    "/library",
    "/run/systemd",
    "/efi",
];
const SCRATCH_ROOTS: [&str; 6] =
    ["/tmp/", "/var/tmp/", "/private/tmp/", "/dev/shm/", "/dev/pts/", "/private/var/folders/"];
const HARMLESS_DEVICES: [&str; 7] =
    ["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd/1", "/dev/fd/2", "/dev/zero"];
