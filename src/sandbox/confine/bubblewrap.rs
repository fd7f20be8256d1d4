//! Turns a mount plan into arguments of the program bubblewrap.
//!
//! Pure. The arguments contain paths and no secrets, because every user of the machine can read them.

use std::ffi::OsString;
use std::path::Path;

use super::Walls;
use super::plan::Mount;

/// The paths at which the program is searched. `PATH` is not used, because a project may have changed it.
pub const PROGRAMS: [&str; 4] =
    ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap"];

/// Returns the size of `/dev/shm` in bytes: at most the memory limit.
pub(crate) fn shared_memory(walls: &Walls) -> u64 {
    const MOST: u64 = 1024 * 1024 * 1024;
    walls.bounds.memory.min(MOST)
}

/// Returns the arguments that precede the command.
pub(crate) fn arguments(walls: &Walls, plan: &[Mount]) -> Vec<OsString> {
    let mut words = Words(Vec::new());
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
        words.word(word);
    }
    if !walls.network {
        words.word("--unshare-net");
    }
    words.two("--ro-bind", Path::new("/"), Path::new("/"));
    words.one("--dev", Path::new("/dev"));
    for word in ["--perms", "1777", "--size", &shared_memory(walls).to_string(), "--tmpfs", "/dev/shm"] {
        words.word(word);
    }
    words.one("--proc", Path::new("/proc"));
    words.one("--remount-ro", Path::new("/proc"));
    let mut emptied = Vec::new();
    for mount in plan {
        match mount {
            Mount::Writable { source, target } => words.two("--bind", source, target),
            // Bubblewrap is used without overlays: the copy starts empty.
            Mount::Overlay { target, plain, .. } => words.two("--bind", plain, target),
            Mount::ReadOnly(path) | Mount::Again(path) => words.two("--ro-bind", path, path),
            Mount::Empty(path) => {
                words.one("--tmpfs", path);
                emptied.push(path);
            }
            Mount::Blank(path) => words.two("--ro-bind", &walls.blank, path),
            Mount::Link { path, says } => words.two("--symlink", says, path),
        }
    }
    // They are made read-only last, after all mount points in them have been created.
    for path in emptied {
        words.one("--remount-ro", path);
    }
    words.0
}

struct Words(Vec<OsString>);

impl Words {
    fn word(&mut self, word: &str) {
        self.0.push(word.into());
    }

    fn one(&mut self, word: &str, path: &Path) {
        self.word(word);
        self.0.push(path.into());
    }

    fn two(&mut self, word: &str, from: &Path, to: &Path) {
        self.one(word, from);
        self.0.push(to.into());
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Confinement, Leave, Way};
    use super::*;

    #[test]
    fn every_mount_is_said_in_its_order() {
        let plan = [
            Mount::Empty("/run".into()),
            Mount::Link { path: "/run/current-system".into(), says: "/nix".into() },
            Mount::Again("/run/r.conf".into()),
            Mount::Writable { source: "/t".into(), target: "/tmp".into() },
            Mount::Writable { source: "/w".into(), target: "/w".into() },
            Mount::Empty("/h/.ssh".into()),
            Mount::Blank("/h/.netrc".into()),
            Mount::ReadOnly("/w/.git".into()),
        ];
        let said = said(false, &plan);
        let (base, mounts) = said.split_once(" --remount-ro /proc ").unwrap();
        assert!(base.contains("--unshare-user --unshare-pid") && base.contains("--cap-drop ALL"), "{base}");
        assert!(
            base.contains("--unshare-net --ro-bind / / --dev /dev ") && base.ends_with(" --proc /proc"),
            "{base}"
        );
        assert_eq!(
            mounts,
            "--tmpfs /run --symlink /nix /run/current-system --ro-bind /run/r.conf /run/r.conf --bind /t /tmp \
             --bind /w /w --tmpfs /h/.ssh --ro-bind /t/blank /h/.netrc --ro-bind /w/.git /w/.git --remount-ro /run \
             --remount-ro /h/.ssh"
        );
    }

    #[test]
    fn the_network_is_shared_only_where_it_is_allowed() {
        assert!(said(false, &[]).contains("--unshare-net"));
        assert!(!said(true, &[]).contains("--unshare-net"));
    }

    fn said(network: bool, plan: &[Mount]) -> String {
        let leave = Leave { network, ..Leave::default() };
        let walls = Confinement::of("/w".into()).walls(Way::Bubblewrap, Path::new("/t"), &leave);
        let words = arguments(&walls, plan);
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }
}
