//! Encodes a [`ConfinementSpec`] as the fields of a supervisor's order; no field contains a NUL byte.

use std::path::{Path, PathBuf};

use super::toolchain::{Cache, CacheKind};
use super::{ConfinementSpec, Mechanism, ResourceLimits};

impl ConfinementSpec {
    /// Returns the fields. A single empty field means that there is no confinement.
    pub(crate) fn to_fields(spec: Option<&Self>) -> Vec<Vec<u8>> {
        let Some(spec) = spec else { return vec![Vec::new()] };
        let flag = |set: bool| if set { b"1".to_vec() } else { b"0".to_vec() };
        let number = |number: u64| number.to_string().into_bytes();
        let path = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
        let ResourceLimits { processes, memory, file } = spec.limits;
        let mut fields = vec![spec.mechanism.as_str().into(), flag(spec.network), flag(spec.unix_sockets)];
        fields.extend([processes, memory, file].map(number));
        let directories = [&spec.workspace, &spec.temp_source, &spec.empty_file, &spec.cache_store];
        fields.extend(directories.map(|directory| path(directory)));
        fields.push(spec.workspace_id.map(|id| id.to_string()).unwrap_or_default().into_bytes());
        let Self { writable, protected, homes, opened_paths, readable, hidden, daemon_paths, .. } = spec;
        for list in [writable, protected, homes, opened_paths, readable, hidden, daemon_paths] {
            fields.push(list.len().to_string().into_bytes());
            fields.extend(list.iter().map(|directory| path(directory)));
        }
        fields.push(spec.caches.len().to_string().into_bytes());
        for cache in &spec.caches {
            fields.extend([cache.kind.name().into(), path(&cache.path)]);
        }
        fields
    }

    /// Decodes the fields of [`to_fields`](Self::to_fields); `None` if they are invalid.
    pub(crate) fn from_fields<'a>(
        fields: &mut dyn Iterator<Item = &'a [u8]>,
        path: fn(&[u8]) -> PathBuf,
    ) -> Option<Option<Self>> {
        let mechanism = fields.next()?;
        if mechanism.is_empty() {
            return Some(None);
        }
        let mechanism = Mechanism::parse(mechanism)?;
        let mut flag = || match fields.next()? {
            b"0" => Some(false),
            b"1" => Some(true),
            _ => None,
        };
        let (network, unix_sockets) = (flag()?, flag()?);
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<u64>().ok();
        let limits = ResourceLimits { processes: number()?, memory: number()?, file: number()? };
        let mut one = || fields.next().map(path);
        let (workspace, temp_source, empty_file, cache_store) = (one()?, one()?, one()?, one()?);
        let workspace_id = match std::str::from_utf8(fields.next()?).ok()? {
            "" => None,
            id => Some(id.parse().ok()?),
        };
        let mut list = || {
            let length: usize = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
            (0..length).map(|_| fields.next().map(path)).collect::<Option<Vec<_>>>()
        };
        let (writable, protected, homes, opened_paths) = (list()?, list()?, list()?, list()?);
        let (readable, hidden, daemon_paths) = (list()?, list()?, list()?);
        let length: usize = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let mut cache = || Some(Cache { kind: CacheKind::parse(fields.next()?)?, path: fields.next().map(path)? });
        let caches = (0..length).map(|_| cache()).collect::<Option<Vec<_>>>()?;
        Some(Some(Self {
            mechanism,
            workspace,
            workspace_id,
            temp_source,
            empty_file,
            cache_store,
            writable,
            protected,
            homes,
            opened_paths,
            readable,
            caches,
            hidden,
            daemon_paths,
            network,
            unix_sockets,
            limits,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::workspace::FileId;
    use super::super::{Confinement, StepPermissions};
    use super::*;

    #[test]
    fn a_spec_round_trips_and_a_truncated_one_is_rejected() {
        let mut confinement = Confinement::new("/w x".into());
        confinement.hidden = vec!["/a".into(), "/b".into()];
        confinement.daemon_paths = vec!["/o".into()];
        confinement.homes = vec!["/h".into()];
        confinement.toolchain_paths = vec!["/h/go".into()];
        confinement.readable = vec!["/h/x".into()];
        confinement.unix_sockets = true;
        confinement.workspace_id = Some(FileId { device: 7, inode: u64::MAX });
        let permissions = StepPermissions { network: true, writable: vec!["/c".into()], ..StepPermissions::default() };
        for mechanism in Mechanism::ALL {
            let mut spec = confinement.for_step(mechanism, Path::new("/t"), &permissions);
            spec.cache_store = "/store".into();
            spec.caches = vec![Cache { kind: CacheKind::Npm, path: "/h/.npm".into() }];
            let fields = ConfinementSpec::to_fields(Some(&spec));
            assert_eq!(decode(&fields), Some(Some(spec)));
            for length in 0..fields.len() {
                assert_eq!(decode(&fields[..length]), None, "{length}");
            }
        }
        assert_eq!(decode(&ConfinementSpec::to_fields(None)), Some(None));
        assert_eq!(decode(&[b"elsewhere".to_vec()]), None);
    }

    fn decode(fields: &[Vec<u8>]) -> Option<Option<ConfinementSpec>> {
        ConfinementSpec::from_fields(&mut fields.iter().map(Vec::as_slice), |bytes| {
            String::from_utf8(bytes.to_vec()).unwrap().into()
        })
    }
}
