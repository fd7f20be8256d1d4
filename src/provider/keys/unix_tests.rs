//! Keys in the environment, in a file, and in a keyring that a small script emulates.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::*;

#[tokio::test]
async fn a_key_is_looked_up_in_the_environment_then_the_file_then_the_keyring() {
    let (folder, keys) = fresh();
    let environment = BTreeMap::from([("OPENAI_API_KEY".to_owned(), " from-shell\n".to_owned())]);
    let empty = BTreeMap::from([("OPENAI_API_KEY".to_owned(), String::new())]);
    let find = async |environment, ask| keys.find("openai", "OPENAI_API_KEY", environment, ask).await;
    assert_eq!(find(&empty, KeyringUse::Yes).await.unwrap(), None);

    keys.store_in_keyring("openai", &key("from-ring")).await.unwrap();
    let found = find(&empty, KeyringUse::Yes).await.unwrap();
    assert_eq!(found, Some(ResolvedKey { key: key("from-ring"), source: KeySource::Keyring }));
    assert_eq!(find(&empty, KeyringUse::No).await.unwrap(), None);

    keys.store_in_file("openai", &key("from-file")).unwrap();
    keys.store_in_file("anthropic", &key("another")).unwrap();
    let found = find(&empty, KeyringUse::Yes).await.unwrap();
    let path = folder.path().join("home/keys.toml");
    assert_eq!(found, Some(ResolvedKey { key: key("from-file"), source: KeySource::File(path) }));

    let found = find(&environment, KeyringUse::Yes).await.unwrap();
    let source = KeySource::Variable("OPENAI_API_KEY".to_owned());
    assert_eq!(found, Some(ResolvedKey { key: key("from-shell"), source }));
}

#[tokio::test]
async fn a_file_that_others_can_read_is_refused() {
    let (_folder, keys) = fresh();
    keys.store_in_file("openai", &key("secret")).unwrap();
    let path = keys.path();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let none = BTreeMap::new();
    for mode in [0o640, 0o604, 0o620] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let error = keys.find("openai", "X", &none, KeyringUse::No).await.unwrap_err();
        assert!(matches!(error, KeyError::File(PrivateFileError::Exposed(_))), "{mode:o}: {error}");
        assert!(error.to_string().contains("chmod 600"), "{error}");
        let stored = keys.store_in_file("openai", &key("other"));
        assert!(stored.is_err(), "{mode:o}: a file that others can change is not updated");
    }
}

#[tokio::test]
async fn an_invalid_key_file_is_rejected_without_quoting_it() {
    let (_folder, keys) = fresh();
    for text in ["openai = sk-secret", "openai = 7", "openai = [\"sk-secret\"]", "\u{1}"] {
        fs::create_dir_all(keys.path().parent().unwrap()).unwrap();
        fs::write(keys.path(), text).unwrap();
        fs::set_permissions(keys.path(), Permissions::from_mode(0o600)).unwrap();
        let error = keys.find("openai", "X", &BTreeMap::new(), KeyringUse::No).await.unwrap_err();
        assert!(matches!(error, KeyError::Malformed { .. }), "{text}: {error}");
        assert!(!error.to_string().contains("sk-secret"), "{error}");
    }
}

#[tokio::test]
async fn a_missing_keyring_has_no_key_and_a_hanging_one_times_out() {
    let (folder, keys) = fresh();
    let missing = Keyring { program: Some(folder.path().join("nothing")), ..Keyring::default() };
    assert_eq!(missing.find("openai").await, Ok(None));
    assert!(missing.store("openai", &key("k")).await.is_err());
    drop(keys);
    let hanging = script(folder.path(), "hang", "exec sleep 1000");
    let hanging = Keyring { program: Some(hanging), timeout: Duration::from_millis(50) };
    assert_eq!(hanging.find("openai").await, Err("it did not answer within 0 s".to_owned()));
    let failing = script(folder.path(), "fail", "echo locked >&2; exit 1");
    let failing = Keyring { program: Some(failing), ..Keyring::default() };
    let error = failing.store("openai", &key("k")).await.unwrap_err();
    assert!(error.ends_with("failed: locked"), "{error}");
}

#[test]
fn a_key_is_redacted_and_an_invalid_key_is_not_stored() {
    assert_eq!(format!("{:?}", key("sk-secret")), "Key(hidden)");
    assert_eq!(key("sk-secret").redact_in("wrong key: sk-secret!"), "wrong key: [key]!");
    assert_eq!(key("local").redact_in("no local model: local!"), "no local model: local!");
    assert_eq!(Key::new(" \n"), None);
    let (_folder, keys) = fresh();
    for written in ["two words", "a\"b", "ключ"] {
        assert!(matches!(keys.store_in_file("openai", &key(written)), Err(KeyError::InvalidCharacters)), "{written}");
    }
}

fn key(written: &str) -> Key {
    Key::new(written).unwrap()
}

/// Returns a key store in a temporary directory, with a keyring of one file for each provider.
fn fresh() -> (TempDir, KeyStore) {
    let folder = tempfile::tempdir().unwrap();
    let ring = folder.path().join("ring");
    fs::create_dir(&ring).unwrap();
    let body =
        format!("case $1 in\nstore) cat > {0}/$7;;\nlookup) cat {0}/$5 2>/dev/null || exit 1;;\nesac", ring.display());
    let program = Some(script(folder.path(), "secret-tool", &body));
    let keys = KeyStore::new(folder.path().join("home"), Keyring { program, ..Keyring::default() });
    (folder, keys)
}

/// Writes a script. Another process writes it, so that no fork of this process holds it open for writing when it
/// starts.
fn script(folder: &Path, name: &str, body: &str) -> PathBuf {
    let path = folder.join(name);
    let program = format!("#!/bin/sh\n{body}\n");
    let mut writing = Command::new("sh");
    writing.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 700 \"$0\""]).arg(&path).arg(program);
    assert!(writing.status().unwrap().success());
    path
}
