//! The key file `keys.toml`: one line for each provider, readable by its owner only.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use toml::{Table, Value};

use super::{Key, KeyError, os};
use crate::bounded_io::{self, FileError};

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
    let text = format!("# Keys of model providers; for the eyes of their owner alone.\n{table}");
    let io = |action| move |source| KeyError::Io { action, path: path.to_owned(), source };
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(io("create the directory of"))?;
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let written = os::create_private(&draft).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let outcome = written.and_then(|()| fs::rename(&draft, path));
    if outcome.is_err() {
        // The draft holds a secret and must not remain; the write error takes precedence over a failed removal.
        drop(fs::remove_file(&draft));
    }
    outcome.map_err(io("write"))
}

fn read(path: &Path) -> Result<Option<Table>, KeyError> {
    let io = |action| move |source| KeyError::Io { action, path: path.to_owned(), source };
    let file = match bounded_io::open(path) {
        Ok(file) => file,
        Err(FileError::NotFound { .. }) => return Ok(None),
        Err(FileError::Io { source, .. }) => return Err(io("open")(source)),
        Err(error @ (FileError::NotRegular { .. } | FileError::TooLarge { .. })) => {
            return Err(malformed(path, error.to_string()));
        }
    };
    let about = file.metadata().map_err(io("inspect"))?;
    if !os::is_private(&about) {
        return Err(KeyError::Exposed(path.to_owned()));
    }
    if about.len() > FILE_BYTES {
        return Err(malformed(path, format!("it has more than {FILE_BYTES} bytes")));
    }
    let text = std::io::read_to_string(file.take(FILE_BYTES)).map_err(io("read"))?;
    let table = text.parse::<Table>().map_err(|error| malformed(path, error.message().to_owned()))?;
    Ok(Some(table))
}

fn malformed(path: &Path, reason: String) -> KeyError {
    KeyError::Malformed { path: path.to_owned(), reason }
}

/// The maximum size of the file.
const FILE_BYTES: u64 = 1024 * 1024;
