//! What a file system calls a file.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// What a file system calls a file, whatever its path is.
///
/// It holds as long as the file system is mounted; some give other numbers when it is mounted anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    /// The file system.
    pub device: u64,
    /// The file in it.
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
