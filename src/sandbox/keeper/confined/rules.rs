//! The rules that a process lays down for itself and everything it starts, for good.
//!
//! Files by Landlock, as strict as the kernel knows: everything may be read, little may be written. System calls by
//! [`filter`]. They come after the mounts, which they forbid.

use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use nix::errno::Errno;

use super::disk::Disk;
use super::{filter, part, rights};
use crate::sandbox::confine::{TEMP, Walls, Way, plan};
use crate::sandbox::message::{Obstacle, Part, Standing};

/// The newest rules that are known here; an older kernel keeps those it knows.
const NEWEST: ABI = ABI::V9;

/// Devices that may be written, and directories of such.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];
const DEVICE_PLACES: [&str; 2] = ["/dev/pts", "/dev/shm"];

/// Lays all rules down, and says which of them the kernel keeps.
pub(in super::super::super::super) fn seal(walls: &Walls) -> Result<Standing, Obstacle> {
    let failed = |errno: Errno| Obstacle { part: Part::Rules, errno: errno as i32 };
    if walls.way == Way::Rules {
        // With mounts, the plan of these has seen to it.
        plan::own_is_closed(walls, &Disk).map_err(|flaw| Obstacle { part: part(flaw), errno: 0 })?;
    }
    rights::limit(walls.bounds).map_err(failed)?;
    rights::give_up().map_err(failed)?;
    let landlock = files(walls).map_err(|_| failed(Errno::EINVAL))?;
    let seccomp = filter::install(walls.unix_sockets).map_err(failed)?;
    if walls.way == Way::Rules && !landlock {
        return Err(failed(Errno::ENOSYS));
    }
    Ok(Standing { landlock, seccomp, processes: !nix::unistd::geteuid().is_root() })
}

/// Lays down the rules for files; whether the kernel keeps any.
fn files(walls: &Walls) -> Result<bool, RulesetError> {
    let everything = AccessFs::from_all(NEWEST);
    let mut rules = Ruleset::default().handle_access(everything)?.scope(Scope::from_all(NEWEST))?.create()?;
    let read = AccessFs::from_read(NEWEST);
    match walls.way {
        Way::Bubblewrap | Way::Namespaces => rules = allow(rules, Path::new("/"), read)?,
        // Nothing covers what is hidden: it is read around.
        Way::Rules => {
            for path in around(walls.hidden.iter().chain(&walls.own)) {
                rules = allow(rules, &path, read)?;
            }
        }
    }
    for place in places(walls) {
        rules = allow(rules, &place, everything)?;
    }
    for device in DEVICES {
        let write = AccessFs::WriteFile | AccessFs::ReadFile | AccessFs::IoctlDev;
        rules = allow(rules, Path::new(device), write)?;
    }
    let status = rules.restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Where may be written.
fn places(walls: &Walls) -> Vec<PathBuf> {
    let temp = match walls.way {
        Way::Bubblewrap | Way::Namespaces => Path::new(TEMP),
        Way::Rules => &walls.temp,
    };
    let own = [temp, &walls.workspace].into_iter().chain(walls.writable.iter().map(PathBuf::as_path));
    let places = own.chain(DEVICE_PLACES.iter().map(Path::new));
    places.filter(|place| place.is_dir()).map(Path::to_owned).collect()
}

/// Allows something at a path and below it; what is not there needs no rule.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(there) = PathFd::new(path) else { return Ok(rules) };
    // What only a directory can have is not asked for where there is none.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    rules.add_rule(PathBeneath::new(there, access))
}

/// Everything except what is hidden, in as few pieces as that takes.
fn around<'a>(hidden: impl IntoIterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    let hidden: Vec<PathBuf> = hidden.into_iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    let (mut pieces, mut inside) = (Vec::new(), vec![PathBuf::from("/")]);
    while let Some(path) = inside.pop() {
        if hidden.contains(&path) {
            continue;
        }
        if !hidden.iter().any(|hidden| hidden.starts_with(&path)) {
            pieces.push(path);
            continue;
        }
        let entries = fs::read_dir(&path).into_iter().flatten().flatten();
        // A link would lead a rule to where it points.
        inside.extend(entries.map(|entry| entry.path()).filter(|path| !path.is_symlink()));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_read_around() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for name in ["a/open", "a/keys", "b"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(base.join("a/keys"), base.join("a/link")).unwrap();
        let pieces = around(&[base.join("a/keys"), base.join("none")]);
        let mut mine: Vec<&PathBuf> = pieces.iter().filter(|piece| piece.starts_with(&base)).collect();
        mine.sort();
        assert_eq!(mine, [&base.join("a/open"), &base.join("b")]);
        assert!(pieces.contains(&"/usr".into()) && !pieces.contains(&"/".into()));
        assert_eq!(around(&[]), [PathBuf::from("/")]);
    }
}
