//! Encodes a [`ConfinementSpec`] as the fields of a supervisor's order; no field contains a NUL byte.

use std::path::{Path, PathBuf};

use super::toolchain::{Cache, CacheKind};
use super::{Bounds, Walls, Way};

impl Walls {
    /// Returns the fields. A single empty field means that there is no confinement.
    pub(crate) fn fields(walls: Option<&Self>) -> Vec<Vec<u8>> {
        let Some(walls) = walls else { return vec![Vec::new()] };
        let flag = |set: bool| if set { b"1".to_vec() } else { b"0".to_vec() };
        let number = |number: u64| number.to_string().into_bytes();
        let path = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
        let Bounds { processes, memory, file } = walls.bounds;
        let mut fields = vec![walls.way.word().into(), flag(walls.network), flag(walls.unix_sockets)];
        fields.extend([processes, memory, file].map(number));
        let places = [&walls.workspace, &walls.temp, &walls.blank, &walls.cache_store];
        fields.extend(places.map(|place| path(place)));
        fields.push(walls.workspace_id.map(|id| id.to_string()).unwrap_or_default().into_bytes());
        let Self { writable, protected, homes, opened, readable, hidden, own, .. } = walls;
        for list in [writable, protected, homes, opened, readable, hidden, own] {
            fields.push(list.len().to_string().into_bytes());
            fields.extend(list.iter().map(|place| path(place)));
        }
        fields.push(walls.caches.len().to_string().into_bytes());
        for cache in &walls.caches {
            fields.extend([cache.kind.name().into(), path(&cache.path)]);
        }
        fields
    }

    /// Decodes the fields of [`to_fields`](Self::to_fields); `None` if they are invalid.
    pub(crate) fn read<'a>(
        fields: &mut dyn Iterator<Item = &'a [u8]>,
        path: fn(&[u8]) -> PathBuf,
    ) -> Option<Option<Self>> {
        let way = fields.next()?;
        if way.is_empty() {
            return Some(None);
        }
        let way = Way::parse(way)?;
        let mut flag = || match fields.next()? {
            b"0" => Some(false),
            b"1" => Some(true),
            _ => None,
        };
        let (network, unix_sockets) = (flag()?, flag()?);
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<u64>().ok();
        let bounds = Bounds { processes: number()?, memory: number()?, file: number()? };
        let mut one = || fields.next().map(path);
        let (workspace, temp, blank, cache_store) = (one()?, one()?, one()?, one()?);
        let workspace_id = match std::str::from_utf8(fields.next()?).ok()? {
            "" => None,
            id => Some(id.parse().ok()?),
        };
        let mut list = || {
            let length: usize = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
            (0..length).map(|_| fields.next().map(path)).collect::<Option<Vec<_>>>()
        };
        let (writable, protected, homes, opened) = (list()?, list()?, list()?, list()?);
        let (readable, hidden, own) = (list()?, list()?, list()?);
        let length: usize = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let mut cache =
            || Some(Cache { kind: CacheKind::parse(fields.next()?)?, path: fields.next().map(path)? });
        let caches = (0..length).map(|_| cache()).collect::<Option<Vec<_>>>()?;
        Some(Some(Self {
            way,
            workspace,
            workspace_id,
            temp,
            blank,
            cache_store,
            writable,
            protected,
            homes,
            opened,
            readable,
            caches,
            hidden,
            own,
            network,
            unix_sockets,
            bounds,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::ground::FileId;
    use super::super::{Confinement, Leave};
    use super::*;

    #[test]
    fn walls_are_read_as_they_were_written_and_cut_ones_are_not() {
        let mut confinement = Confinement::of("/w x".into());
        confinement.hidden = vec!["/a".into(), "/b".into()];
        confinement.own = vec!["/o".into()];
        confinement.homes = vec!["/h".into()];
        confinement.opened = vec!["/h/go".into()];
        confinement.readable = vec!["/h/x".into()];
        confinement.unix_sockets = true;
        confinement.workspace_id = Some(FileId { device: 7, inode: u64::MAX });
        let leave = Leave { network: true, writable: vec!["/c".into()], ..Leave::default() };
        for way in Way::ALL {
            let mut walls = confinement.walls(way, Path::new("/t"), &leave);
            walls.cache_store = "/store".into();
            walls.caches = vec![Cache { kind: CacheKind::Npm, path: "/h/.npm".into() }];
            let fields = Walls::fields(Some(&walls));
            assert_eq!(read(&fields), Some(Some(walls)));
            for length in 0..fields.len() {
                assert_eq!(read(&fields[..length]), None, "{length}");
            }
        }
        assert_eq!(read(&Walls::fields(None)), Some(None));
        assert_eq!(read(&[b"elsewhere".to_vec()]), None);
    }

    fn read(fields: &[Vec<u8>]) -> Option<Option<Walls>> {
        Walls::read(&mut fields.iter().map(Vec::as_slice), |bytes| {
            String::from_utf8(bytes.to_vec()).unwrap().into()
        })
    }
}
