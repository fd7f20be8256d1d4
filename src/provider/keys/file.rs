//! The key file `keys.toml`: one line for each provider, readable by its owner only.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use super::{Key, KeyError};
use crate::private_file::{self, Links, PrivateFileError};

/// Looks up a provider's key; a missing file has no keys.
pub(super) fn find(path: &Path, provider: &str) -> Result<Option<Key>, KeyError> {
    let Some(table) = read(path)? else { return Ok(None) };
    match table.get(provider) {
        None => Ok(None),
        Some(Value::String(written)) => Ok(Key::new(written)),
        Some(
            Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_)
            | Value::Table(_),
        ) => Err(malformed(path, format!("the value of {provider} is not a string"))),
    }
}

/// Stores a provider's key atomically.
pub(super) fn store(path: &Path, provider: &str, key: &Key) -> Result<(), KeyError> {
    let mut table = read(path)?.unwrap_or_default();
    table.insert(provider.to_owned(), Value::String(key.expose().to_owned()));
    let text = format!("# Keys of model providers; readable only by their owner.\n{table}");
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(PrivateFileError::io("create", folder))?;
    Ok(private_file::replace(path, text.as_bytes())?)
}

fn read(path: &Path) -> Result<Option<Table>, KeyError> {
    let Some(text) = private_file::read(path, Links::Followed, FILE_BYTES)? else { return Ok(None) };
    let table = text.parse::<Table>().map_err(|error| malformed(path, error.message().to_owned()))?;
    Ok(Some(table))
}

fn malformed(path: &Path, reason: String) -> KeyError {
    KeyError::Malformed { path: path.to_owned(), reason }
}

/// The maximum size of the file.
const FILE_BYTES: u64 = 1024 * 1024;
