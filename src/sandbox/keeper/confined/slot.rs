//! The private caches of one step.
//!
//! The system lets a directory take the writes of one overlay at a time. Steps that run beside each other in a workspace
//! therefore have different slots of its store; one after the other has the same. When all are taken, the caches go
//! with the run.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use crate::sandbox::confine::{Walls, Way};

/// How many steps of a workspace may have caches that are kept.
const SLOTS: usize = 8;

/// The slot of a step; it is free again when it is released, or when every process that has it is gone.
pub(super) struct CacheSlot {
    /// Where the caches are.
    pub(super) path: PathBuf,
    held: Option<File>,
}

impl CacheSlot {
    /// Takes a slot and makes the directories of the caches; nothing where there are none.
    pub(super) fn take(walls: &Walls) -> io::Result<Option<Self>> {
        if walls.caches.is_empty() {
            return Ok(None);
        }
        let slot = Self::free(walls)?;
        for cache in &walls.caches {
            make(&slot.path.join(cache.kind.name()))?;
        }
        Ok(Some(slot))
    }

    /// Lets the next step have the slot, also where a copy of the lock is still open somewhere.
    pub(super) fn release(self) {
        // A lock that cannot be given up goes with this process.
        let _kept = self.held.map(|held| held.unlock());
    }

    fn free(walls: &Walls) -> io::Result<Self> {
        // What an overlay has written is only understood by another one.
        let way = match walls.way {
            Way::Namespaces => "overlay",
            Way::Bubblewrap | Way::Rules => "plain",
        };
        for number in 0..SLOTS {
            let path = walls.cache_store.join(format!("{way}-{number}"));
            make(&path)?;
            let held = File::open(&path)?;
            if held.try_lock().is_ok() {
                return Ok(Self { path, held: Some(held) });
            }
        }
        let path = walls.temp.with_file_name(format!("caches-{}", std::process::id()));
        Ok(Self { path, held: None })
    }
}

fn make(path: &std::path::Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sandbox::confine::toolchain::{Cache, CacheKind};
    use crate::sandbox::confine::{Confinement, Leave};

    #[test]
    fn steps_beside_each_other_have_different_slots_and_the_next_has_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let walls = walls(dir.path());
        let taken: Vec<CacheSlot> =
            (0..SLOTS + 1).map(|_| CacheSlot::take(&walls).unwrap().unwrap()).collect();
        let mut paths: Vec<PathBuf> = taken.iter().map(|slot| slot.path.clone()).collect();
        assert!(paths.iter().all(|path| path.join("npm").is_dir()));
        assert!(paths[SLOTS].starts_with(dir.path().join("scratch")), "the last goes with the run");
        let first = paths[0].clone();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), SLOTS + 1);
        drop(taken);
        assert_eq!(CacheSlot::take(&walls).unwrap().unwrap().path, first);
    }

    #[test]
    fn without_caches_nothing_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let mut walls = walls(dir.path());
        walls.caches.clear();
        assert!(CacheSlot::take(&walls).unwrap().is_none());
        assert!(!dir.path().join("store").exists());
    }

    fn walls(dir: &Path) -> Walls {
        let scratch = dir.join("scratch");
        let mut walls = Confinement::of("/w".into()).walls(Way::Namespaces, &scratch, &Leave::default());
        walls.cache_store = dir.join("store");
        walls.caches = vec![Cache { kind: CacheKind::Npm, path: "/h/.npm".into() }];
        walls
    }
}
