//! Walls as fields of an order, each without a NUL byte: what a keeper is told.

use std::path::{Path, PathBuf};

use super::{Bounds, Walls, Way};

impl Walls {
    /// Returns the fields; nothing is said by a single empty one.
    pub(crate) fn fields(walls: Option<&Self>) -> Vec<Vec<u8>> {
        let Some(walls) = walls else { return vec![Vec::new()] };
        let flag = |set: bool| if set { b"1".to_vec() } else { b"0".to_vec() };
        let number = |number: u64| number.to_string().into_bytes();
        let path = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
        let Bounds { processes, memory, file } = walls.bounds;
        let mut fields = vec![walls.way.word().into(), flag(walls.network), flag(walls.unix_sockets)];
        fields.extend([processes, memory, file].map(number));
        fields.extend([&walls.workspace, &walls.temp, &walls.blank].map(|place| path(place)));
        for list in [&walls.writable, &walls.protected, &walls.hidden, &walls.own] {
            fields.push(list.len().to_string().into_bytes());
            fields.extend(list.iter().map(|place| path(place)));
        }
        fields
    }

    /// Reads the fields that [`fields`](Self::fields) wrote; `None` when they are none of its.
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
        let (workspace, temp, blank) = (one()?, one()?, one()?);
        let mut list = || {
            let length: usize = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
            (0..length).map(|_| fields.next().map(path)).collect::<Option<Vec<_>>>()
        };
        let (writable, protected, hidden, own) = (list()?, list()?, list()?, list()?);
        Some(Some(Self {
            way,
            workspace,
            temp,
            blank,
            writable,
            protected,
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
    use super::super::{Confinement, Leave};
    use super::*;

    #[test]
    fn walls_are_read_as_they_were_written_and_cut_ones_are_not() {
        let mut confinement = Confinement::of("/w x".into());
        confinement.hidden = vec!["/a".into(), "/b".into()];
        confinement.own = vec!["/o".into()];
        confinement.unix_sockets = true;
        let leave = Leave { network: true, writable: vec!["/c".into()], ..Leave::default() };
        for way in Way::ALL {
            let walls = confinement.walls(way, Path::new("/t"), &leave);
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
