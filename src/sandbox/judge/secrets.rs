//! Risk of file access: files that contain secrets, and files that other programs execute or trust.

use super::level::Risk;
use super::place::{Place, Spot, Zone};
use super::startup;

/// Returns whether a file contains secrets, by its name.
pub(super) fn holds_secrets(spot: &Spot, place: &Place) -> bool {
    let path = spot.path.to_lowercase();
    let name = path.rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let named = name.starts_with(".env")
        || name.starts_with("id_")
        || SECRET_NAMES.contains(&name)
        || SECRET_EXTENSIONS.contains(&extension);
    let below = spot.zone != Zone::Inside && SECRET_FOLDERS.iter().any(|folder| has_folder(&path, folder));
    let system = ["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/proc/self/environ"];
    named
        || below
        || is_secret_of_home(spot, place)
        || system.iter().any(|file| path.starts_with(file))
        || path.ends_with("/environ")
}

/// Returns whether a file in the workspace is a secret of a home that lies in the workspace.
fn is_secret_of_home(spot: &Spot, place: &Place) -> bool {
    SECRET_FOLDERS.iter().chain(&SECRET_NAMES).any(|name| place.is_of_home(spot, name))
}

/// Returns whether a path belongs to the daemon: its socket, its keys or its journal.
pub(super) fn is_ours(spot: &Spot, place: &Place) -> bool {
    let path = spot.path.to_lowercase();
    if OURS.iter().any(|name| place.is_of_home(spot, name)) {
        return true;
    }
    spot.zone != Zone::Inside && (has_folder(&path, ".push") || path.ends_with("push/keys.toml"))
}

/// Returns the risk of reading a file.
pub(super) fn of_reading(spot: &Spot, place: &Place) -> Risk {
    if is_ours(spot, place) {
        return Risk::Critical;
    }
    match spot.zone {
        Zone::Inside if is_secret_of_home(spot, place) || place.hides(spot) => Risk::High,
        Zone::Inside if holds_secrets(spot, place) => Risk::Medium,
        Zone::Outside | Zone::Unknown if holds_secrets(spot, place) => Risk::High,
        Zone::Inside | Zone::Outside | Zone::Unknown => Risk::Low,
    }
}

/// Returns the risk of writing a file.
pub(super) fn of_writing(spot: &Spot, place: &Place) -> Risk {
    let path = spot.path.to_lowercase();
    // Git executes what it finds there: hooks, filters, an editor.
    if path.split('/').any(|name| name == ".git") || is_ours(spot, place) {
        return Risk::Critical;
    }
    let mut trusted = SECRET_FOLDERS.iter().chain(&RUN_FOLDERS).chain(&RUN_FILES);
    let at_home = startup::of_writing(spot, place);
    match spot.zone {
        Zone::Inside if trusted.any(|name| place.is_of_home(spot, name)) => Risk::Critical,
        Zone::Inside => {
            let run = path.split('/').any(|name| RUN_BY_OTHERS.contains(&name));
            let least = if run || holds_secrets(spot, place) { Risk::High } else { Risk::Medium };
            at_home.unwrap_or(least).max(least)
        }
        Zone::Outside => {
            let least = of_writing_outside(&path);
            at_home.unwrap_or(least).max(least)
        }
        // The confinement limits the write to the workspace. Without confinement the unknown path is asked about.
        Zone::Unknown => match at_home.unwrap_or(Risk::Low).max(of_writing_outside(&path)) {
            Risk::Critical => Risk::Critical,
            Risk::Low | Risk::Medium | Risk::High => Risk::Medium,
        },
    }
}

fn of_writing_outside(path: &str) -> Risk {
    if HARMLESS.contains(&path) {
        return Risk::Low;
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let scratch = SCRATCH.iter().any(|root| path.starts_with(root));
    let root = |root: &str| path == root || path.starts_with(&format!("{root}/"));
    let critical = (!scratch && CRITICAL_ROOTS.iter().any(|name| root(name)))
        || SECRET_FOLDERS.iter().chain(&RUN_FOLDERS).any(|folder| has_folder(path, folder))
        || RUN_FILES.contains(&name);
    match () {
        () if critical => Risk::Critical,
        () if scratch => Risk::Medium,
        () => Risk::High,
    }
}

/// Returns whether a path contains these directories, one below the other.
fn has_folder(path: &str, folder: &str) -> bool {
    format!("{path}/").contains(&format!("/{folder}/"))
}

/// Paths in a home that belong to the daemon.
const OURS: [&str; 2] = [".push", ".config/push/keys.toml"];
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
const SECRET_FOLDERS: [&str; 10] = [
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
const RUN_BY_OTHERS: [&str; 9] = [
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
const RUN_FOLDERS: [&str; 8] = [
    ".config/push",
    ".config/systemd",
    ".config/autostart",
    ".local/share/systemd",
    "library/launchagents",
    "library/launchdaemons",
    ".config/fish",
    ".local/bin",
];
const RUN_FILES: [&str; 14] = [
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
const SCRATCH: [&str; 6] =
    ["/tmp/", "/var/tmp/", "/private/tmp/", "/dev/shm/", "/dev/pts/", "/private/var/folders/"];
const HARMLESS: [&str; 7] =
    ["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd/1", "/dev/fd/2", "/dev/zero"];
