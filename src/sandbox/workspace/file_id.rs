//! The identity of a file in its file system.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// The identity of a file, independent of its path.
///
/// It is stable while the file system is mounted; some file systems assign other numbers when they are mounted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    /// The number of the file system.
    pub device: u64,
    /// The number of the file in it.
    pub inode: u64,
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.inode)
    }
}

impl FromStr for FileId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let (device, inode) = text.split_once(':').unwrap_or((text, ""));
        Ok(Self { device: device.parse()?, inode: inode.parse()? })
    }
}
