//! Opening a file, on Windows, where open does not block.

use std::fs::{File, FileType};
use std::io;
use std::path::Path;

pub(super) fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

pub(super) const fn special_name(_kind: FileType) -> &'static str {
    "device or link"
}
