//! The private caches of one step.
//!
//! A directory can be the upper layer of only one overlay at a time. Concurrent steps of a workspace therefore use
//! different slots of its store, and consecutive steps reuse the same one. When all slots are in use, the caches are
//! placed in the run's temporary directory.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use crate::sandbox::confine::{Walls, Way};

/// How many concurrent steps of a workspace can have persistent caches.
const SLOTS: usize = 8;

/// The slot of a step; it becomes free when it is released, or when every process that holds its lock has ended.
pub(super) struct CacheSlot {
    /// The directory of the caches.
    pub(super) path: PathBuf,
    held: Option<File>,
}

impl CacheSlot {
    /// Acquires a slot and creates the directories of the caches; `None` if there are no caches.
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

    /// Releases the slot for the next step, also if another process still has a copy of the lock's descriptor.
    pub(super) fn release(self) {
        // A lock that cannot be released ends with this process.
        let _kept = self.held.map(|held| held.unlock());
    }

    fn free(walls: &Walls) -> io::Result<Self> {
        // Only another overlay can read what an overlay has written.
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
        assert!(
            paths[SLOTS].starts_with(dir.path().join("scratch")),
            "the last one is in the run's temporary directory"
        );
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
