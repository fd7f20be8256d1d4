//! The private caches of one step.
//!
//! A directory can be the upper layer of only one overlay at a time. Concurrent steps of a workspace therefore use
//! different slots of its store, and consecutive steps reuse the same one. When all slots are in use, the caches are
//! placed in the run's temporary directory.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use crate::sandbox::confinement::{ConfinementSpec, Mechanism};

/// How many concurrent steps of a workspace can have persistent caches.
const SLOTS: usize = 8;

/// The slot of a step; it becomes free when it is released, or when every process that holds its lock has ended.
pub(super) struct CacheSlot {
    /// The directory of the caches.
    pub(super) path: PathBuf,
    lock: Option<File>,
}

impl CacheSlot {
    /// Acquires a slot and creates the directories of the caches; `None` if there are no caches.
    pub(super) fn acquire(spec: &ConfinementSpec) -> io::Result<Option<Self>> {
        if spec.caches.is_empty() {
            return Ok(None);
        }
        let slot = Self::lock_free_slot(spec)?;
        for cache in &spec.caches {
            create_dir(&slot.path.join(cache.kind.name()))?;
        }
        Ok(Some(slot))
    }

    /// Releases the slot for the next step, also if another process still has a copy of the lock's descriptor.
    pub(super) fn release(self) {
        // A lock that cannot be released ends with this process.
        let _kept = self.lock.map(|held| held.unlock());
    }

    fn lock_free_slot(spec: &ConfinementSpec) -> io::Result<Self> {
        // Only another overlay can read what an overlay has written.
        let mechanism = match spec.mechanism {
            Mechanism::Namespaces => "overlay",
            Mechanism::Bubblewrap | Mechanism::Rules => "plain",
        };
        for number in 0..SLOTS {
            let path = spec.cache_store.join(format!("{mechanism}-{number}"));
            create_dir(&path)?;
            let held = File::open(&path)?;
            if held.try_lock().is_ok() {
                return Ok(Self { path, lock: Some(held) });
            }
        }
        let path = spec.temp_source.with_file_name(format!("caches-{}", std::process::id()));
        Ok(Self { path, lock: None })
    }
}

fn create_dir(path: &std::path::Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sandbox::confinement::toolchain::{Cache, CacheKind};
    use crate::sandbox::confinement::{Confinement, StepPermissions};

    #[test]
    fn concurrent_steps_have_different_slots_and_the_next_reuses_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let spec = spec(dir.path());
        let slots: Vec<CacheSlot> = (0..SLOTS + 1).map(|_| CacheSlot::acquire(&spec).unwrap().unwrap()).collect();
        let mut paths: Vec<PathBuf> = slots.iter().map(|slot| slot.path.clone()).collect();
        assert!(paths.iter().all(|path| path.join("npm").is_dir()));
        assert!(
            paths[SLOTS].starts_with(dir.path().join("scratch")),
            "the last one is in the run's temporary directory"
        );
        let first = paths[0].clone();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), SLOTS + 1);
        drop(slots);
        assert_eq!(CacheSlot::acquire(&spec).unwrap().unwrap().path, first);
    }

    #[test]
    fn without_caches_no_directory_is_created() {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = spec(dir.path());
        spec.caches.clear();
        assert!(CacheSlot::acquire(&spec).unwrap().is_none());
        assert!(!dir.path().join("store").exists());
    }

    fn spec(dir: &Path) -> ConfinementSpec {
        let scratch = dir.join("scratch");
        let mut spec =
            Confinement::new("/w".into()).for_step(Mechanism::Namespaces, &scratch, &StepPermissions::default());
        spec.cache_store = dir.join("store");
        spec.caches = vec![Cache { kind: CacheKind::Npm, path: "/h/.npm".into() }];
        spec
    }
}
