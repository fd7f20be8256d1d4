//! Turns a mount plan into arguments of the program bubblewrap.
//!
//! Pure. The arguments contain paths and no secrets, because every user of the machine can read them.

use std::ffi::OsString;
use std::path::Path;

use super::ConfinementSpec;
use super::plan::Mount;

/// The paths at which the program is searched. `PATH` is not used, because a project may have changed it.
pub const BWRAP_PATHS: [&str; 4] =
    ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap"];

/// Returns the size of `/dev/shm` in bytes: at most the memory limit.
pub(crate) fn shared_memory_bytes(spec: &ConfinementSpec) -> u64 {
    const MOST: u64 = 1024 * 1024 * 1024;
    spec.limits.memory.min(MOST)
}

/// Returns the arguments that precede the command.
pub(crate) fn arguments(spec: &ConfinementSpec, plan: &[Mount]) -> Vec<OsString> {
    let mut list = ArgumentList(Vec::new());
    for word in [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--die-with-parent",
        "--as-pid-1",
        "--cap-drop",
        "ALL",
    ] {
        list.flag(word);
    }
    if !spec.network {
        list.flag("--unshare-net");
    }
    list.flag_with_paths("--ro-bind", Path::new("/"), Path::new("/"));
    list.flag_with_path("--dev", Path::new("/dev"));
    for word in ["--perms", "1777", "--size", &shared_memory_bytes(spec).to_string(), "--tmpfs", "/dev/shm"] {
        list.flag(word);
    }
    list.flag_with_path("--proc", Path::new("/proc"));
    list.flag_with_path("--remount-ro", Path::new("/proc"));
    let mut emptied = Vec::new();
    for mount in plan {
        match mount {
            Mount::Writable { source, target } => list.flag_with_paths("--bind", source, target),
            // Bubblewrap is used without overlays: the copy starts empty.
            Mount::Overlay { target, fallback, .. } => list.flag_with_paths("--bind", fallback, target),
            Mount::ReadOnly(path) | Mount::Restore(path) => list.flag_with_paths("--ro-bind", path, path),
            Mount::EmptyDirectory(path) => {
                list.flag_with_path("--tmpfs", path);
                emptied.push(path);
            }
            Mount::EmptyFile(path) => list.flag_with_paths("--ro-bind", &spec.empty_file, path),
            Mount::Link { path, target } => list.flag_with_paths("--symlink", target, path),
        }
    }
    // They are made read-only last, after all mount points in them have been created.
    for path in emptied {
        list.flag_with_path("--remount-ro", path);
    }
    list.0
}

struct ArgumentList(Vec<OsString>);

impl ArgumentList {
    fn flag(&mut self, word: &str) {
        self.0.push(word.into());
    }

    fn flag_with_path(&mut self, word: &str, path: &Path) {
        self.flag(word);
        self.0.push(path.into());
    }

    fn flag_with_paths(&mut self, word: &str, from: &Path, to: &Path) {
        self.flag_with_path(word, from);
        self.0.push(to.into());
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Confinement, Mechanism, StepPermissions};
    use super::*;

    #[test]
    fn every_mount_becomes_arguments_in_order() {
        let plan = [
            Mount::EmptyDirectory("/run".into()),
            Mount::Link { path: "/run/current-system".into(), target: "/nix".into() },
            Mount::Restore("/run/r.conf".into()),
            Mount::Writable { source: "/t".into(), target: "/tmp".into() },
            Mount::Writable { source: "/w".into(), target: "/w".into() },
            Mount::EmptyDirectory("/h/.ssh".into()),
            Mount::EmptyFile("/h/.netrc".into()),
            Mount::ReadOnly("/w/.git".into()),
        ];
        let text = arguments_text(false, &plan);
        let (base, mounts) = text.split_once(" --remount-ro /proc ").unwrap();
        assert!(base.contains("--unshare-user --unshare-pid") && base.contains("--cap-drop ALL"), "{base}");
        assert!(base.contains("--unshare-net --ro-bind / / --dev /dev ") && base.ends_with(" --proc /proc"), "{base}");
        assert_eq!(
            mounts,
            "--tmpfs /run --symlink /nix /run/current-system --ro-bind /run/r.conf /run/r.conf --bind /t /tmp \
             --bind /w /w --tmpfs /h/.ssh --ro-bind /t/blank /h/.netrc --ro-bind /w/.git /w/.git --remount-ro /run \
             --remount-ro /h/.ssh"
        );
    }

    #[test]
    fn the_network_is_shared_only_where_it_is_allowed() {
        assert!(arguments_text(false, &[]).contains("--unshare-net"));
        assert!(!arguments_text(true, &[]).contains("--unshare-net"));
    }

    fn arguments_text(network: bool, plan: &[Mount]) -> String {
        let permissions = StepPermissions { network, ..StepPermissions::default() };
        let spec = Confinement::new("/w".into()).for_step(Mechanism::Bubblewrap, Path::new("/t"), &permissions);
        let list = arguments(&spec, plan);
        list.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }
}
