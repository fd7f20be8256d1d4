//! The file of a backup: the database, other files, a manifest with their checksums, and a footer.
//!
//! The footer is the length of the manifest (8 bytes, little-endian) and a mark. The manifest names the parts in order.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The name and the version of the format.
pub(crate) const FORMAT: &str = "push.backup.v1";
const MARK: &[u8; 8] = b"PUSHBKP1";
const FOOTER_BYTES: u64 = 16;
/// The longest manifest that is read.
const MANIFEST_BYTES: u64 = 1 << 20;

/// What a backup contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    /// The format.
    pub(crate) format: String,
    /// The version of the program that wrote it.
    pub(crate) version: String,
    /// When it was made, in milliseconds since 1970.
    pub(crate) created_at: u64,
    /// The schema of the database.
    pub(crate) schema: i64,
    /// The number of sessions.
    pub(crate) sessions: u64,
    /// The number of events.
    pub(crate) events: u64,
    /// The parts, in order.
    pub(crate) files: Vec<Part>,
}

/// The part of a manifest that all formats have.
#[derive(Debug, Deserialize)]
struct Origin {
    format: String,
    version: String,
}

/// A file in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Part {
    /// Its name in the state directory.
    pub(crate) name: String,
    /// Its length.
    pub(crate) bytes: u64,
    /// Its SHA-256, in hexadecimal digits.
    pub(crate) sha256: String,
}

/// Describes a part by its content.
pub(crate) fn describe(name: &str, content: impl Read) -> io::Result<Part> {
    let (bytes, sha256) = copy(content, &mut io::sink())?;
    Ok(Part { name: name.to_owned(), bytes, sha256 })
}

/// Writes the manifest and the footer.
pub(crate) fn write_end(manifest: &Manifest, out: &mut impl Write) -> io::Result<()> {
    let text = serde_json::to_vec(manifest)?;
    out.write_all(&text)?;
    out.write_all(&(text.len() as u64).to_le_bytes())?;
    out.write_all(MARK)
}

/// Reads the manifest.
pub(crate) fn read_manifest(file: &mut File) -> io::Result<Manifest> {
    let length = file.metadata()?.len();
    let mut footer = [0; FOOTER_BYTES as usize];
    file.seek(SeekFrom::Start(length.checked_sub(FOOTER_BYTES).ok_or_else(not_a_backup)?))?;
    file.read_exact(&mut footer)?;
    let (size, mark) = footer.split_at(8);
    let size = size.iter().rev().fold(0_u64, |size, byte| size << 8 | u64::from(*byte));
    if mark != MARK || size > MANIFEST_BYTES {
        return Err(not_a_backup());
    }
    let end = length - FOOTER_BYTES;
    file.seek(SeekFrom::Start(end.checked_sub(size).ok_or_else(not_a_backup)?))?;
    let mut text = Vec::new();
    file.take(size).read_to_end(&mut text)?;
    let origin: Origin = serde_json::from_slice(&text)?;
    if origin.format != FORMAT {
        let Origin { format, version } = origin;
        return Err(io::Error::other(format!(
            "version {version} wrote it as {format:?}; install a newer version to read it"
        )));
    }
    let manifest: Manifest = serde_json::from_slice(&text)?;
    let parts = manifest.files.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.bytes));
    if parts != Some(end - size) {
        return Err(not_a_backup());
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(manifest)
}

/// Copies the next part and checks it.
pub(crate) fn read_part(file: &mut File, part: &Part, out: &mut impl Write) -> io::Result<()> {
    let (bytes, sha256) = copy(file.take(part.bytes), out)?;
    if (bytes, &sha256) != (part.bytes, &part.sha256) {
        return Err(io::Error::other(format!("the checksum of {} is wrong: the backup is damaged", part.name)));
    }
    Ok(())
}

fn not_a_backup() -> io::Error {
    io::Error::other("it is not a complete backup of this version")
}

/// Copies everything and returns its length and digest.
fn copy(mut from: impl Read, to: &mut impl Write) -> io::Result<(u64, String)> {
    let (mut digest, mut bytes, mut buffer) = (Sha256::new(), 0_u64, vec![0; 1 << 16]);
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok((bytes, data_encoding::HEXLOWER.encode(&digest.finalize())));
        }
        digest.update(&buffer[..read]);
        to.write_all(&buffer[..read])?;
        bytes += read as u64;
    }
}
