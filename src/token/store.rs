//! The token store: a file of digests in the state directory.

use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use super::secret;
use crate::private_file::{self, Links, PrivateFileError};

/// The tokens of one state directory.
#[derive(Debug, Clone)]
pub struct TokenStore {
    path: PathBuf,
}

/// A stored token, without the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenRecord {
    /// Its public id.
    pub token_id: String,
    /// The name its owner gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What its holder may do. Tokens of earlier versions have none and keep the access that they had, the owner's.
    #[serde(default, skip_serializing_if = "TokenRole::is_owner")]
    pub role: TokenRole,
    /// When it was created, in milliseconds since 1970.
    pub created_at: u64,
    /// Its digest.
    #[serde(with = "hexadecimal")]
    sha256: [u8; 32],
}

/// What the holder of a token may do. Each role includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenRole {
    /// Read sessions.
    Observer,
    /// Start sessions, send messages and stop runs.
    Prompter,
    /// Decide approvals.
    Approver,
    /// Everything: the token stands for the owner.
    #[default]
    Owner,
}

impl TokenRole {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Owner, Self::Approver, Self::Prompter, Self::Observer];

    /// Returns the name of the role.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::Prompter => "prompter",
            Self::Approver => "approver",
            Self::Owner => "owner",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    const fn is_owner(&self) -> bool {
        matches!(self, Self::Owner)
    }
}

/// Why the token store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenStoreError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// The file cannot be parsed.
    #[error("{} cannot be read: {problem}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The maximum number of tokens is reached.
    #[error("there are {MOST} tokens already; revoke some with `push token revoke ID`")]
    TooMany,
    /// The name is invalid.
    #[error("a token's name is one line of 1 to {NAME} characters")]
    InvalidName,
    /// The system's random source failed.
    #[error("cannot generate random bytes: {0}")]
    RandomFailed(getrandom::Error),
}

/// The format of the file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    version: u32,
    tokens: Vec<TokenRecord>,
}

impl TokenStore {
    /// Creates the store for a state directory; nothing is read yet.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join("tokens.json") }
    }

    /// Creates a token and stores its digest durably. The returned secret cannot be retrieved later.
    pub fn add(
        &self,
        name: Option<&str>,
        role: TokenRole,
        now_ms: u64,
    ) -> Result<(TokenRecord, String), TokenStoreError> {
        let plain =
            |name: &str| !name.trim().is_empty() && name.chars().count() <= NAME && !name.contains(char::is_control);
        if !name.is_none_or(plain) {
            return Err(TokenStoreError::InvalidName);
        }
        let secret = secret::generate(TOKEN_PREFIX).map_err(TokenStoreError::RandomFailed)?;
        let token = TokenRecord {
            token_id: format!("tok_{}", Ulid::generate()),
            name: name.map(str::to_owned),
            role,
            created_at: now_ms,
            sha256: secret::hash(&secret),
        };
        let _lock = private_file::lock(&self.path.with_extension("lock"))?;
        let mut tokens = self.list()?;
        if tokens.len() >= MOST {
            return Err(TokenStoreError::TooMany);
        }
        tokens.push(token.clone());
        self.write(tokens)?;
        Ok((token, secret))
    }

    /// Removes a token durably; returns whether it existed.
    pub fn revoke(&self, id: &str) -> Result<bool, TokenStoreError> {
        let _lock = private_file::lock(&self.path.with_extension("lock"))?;
        let mut tokens = self.list()?;
        let before = tokens.len();
        tokens.retain(|token| token.token_id != id);
        if tokens.len() == before {
            return Ok(false);
        }
        self.write(tokens).map(|()| true)
    }

    /// Returns the tokens, the oldest first.
    pub fn list(&self) -> Result<Vec<TokenRecord>, TokenStoreError> {
        let Some(text) = private_file::read(&self.path, Links::Refused, FILE_BYTES)? else { return Ok(Vec::new()) };
        let malformed = |problem| TokenStoreError::Malformed { path: self.path.clone(), problem };
        let written: TokenFile = serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
        if written.version != VERSION {
            return Err(malformed(format!("unsupported version {}, expected {VERSION}", written.version)));
        }
        Ok(written.tokens)
    }

    /// Returns the record of a token. All tokens are compared, so that the duration reveals nothing.
    pub fn find(&self, token: &str) -> Result<Option<TokenRecord>, TokenStoreError> {
        let choose =
            |found, known: TokenRecord| if secret::matches(token, &known.sha256) { Some(known) } else { found };
        Ok(self.list()?.into_iter().fold(None, choose))
    }

    fn write(&self, tokens: Vec<TokenRecord>) -> Result<(), TokenStoreError> {
        // Plain data: serialization cannot fail.
        let bytes = serde_json::to_vec_pretty(&TokenFile { version: VERSION, tokens }).unwrap_or_default();
        Ok(private_file::replace(&self.path, &bytes)?)
    }
}

/// Serializes a digest as hexadecimal text.
mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::HEXLOWER;

    pub(super) fn serialize<S: Serializer>(digest: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&HEXLOWER.encode(digest))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let bytes = HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| D::Error::custom("a digest is not 64 hexadecimal digits"))
    }
}

/// The prefix of tokens, by which the redactor and secret scanners recognise them.
const TOKEN_PREFIX: &str = "ptk_";
/// The version of the file format.
const VERSION: u32 = 1;
/// The maximum number of tokens.
const MOST: usize = 1_000;
/// The maximum length of a name, in characters.
const NAME: usize = 128;
/// The maximum size of the file.
const FILE_BYTES: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_token_is_valid_until_revoked_and_not_stored_in_plain_text() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = TokenStore::new(&dir.path().join("state"));
        assert_eq!((tokens.list().unwrap(), tokens.find("ptk_x").unwrap().is_some()), (Vec::new(), false));
        let (first, secret) = tokens.add(Some("laptop"), TokenRole::Observer, 7).unwrap();
        let (second, other) = tokens.add(None, TokenRole::Owner, 8).unwrap();
        // Another process reads the same tokens.
        let tokens = TokenStore::new(&dir.path().join("state"));
        assert_eq!(tokens.list().unwrap(), [first.clone(), second]);
        assert!(tokens.find(&secret).unwrap().is_some() && tokens.find(&other).unwrap().is_some());
        assert_eq!(tokens.find(&secret).unwrap(), Some(first.clone()), "with its name and role");
        for wrong in ["", "ptk_", &secret[..67], &format!("{secret}0"), &secret.to_uppercase()] {
            assert!(tokens.find(wrong).unwrap().is_none(), "{wrong}");
        }
        let file = fs::read_to_string(&tokens.path).unwrap();
        assert!(!file.contains(&secret) && !file.contains(&secret[4..]), "{file}");
        assert!(!tokens.revoke("tok_unknown").unwrap());
        assert!(tokens.revoke(&first.token_id).unwrap());
        assert!(tokens.find(&secret).unwrap().is_none() && tokens.find(&other).unwrap().is_some());
    }

    #[test]
    fn a_malformed_file_authorizes_nothing_and_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = TokenStore::new(dir.path());
        let (_, secret) = tokens.add(None, TokenRole::Owner, 1).unwrap();
        for text in ["{", r#"{"version":2,"tokens":[]}"#, r#"{"version":1,"tokens":[{"tokenId":"x"}]}"#] {
            fs::write(&tokens.path, text).unwrap();
            assert!(matches!(tokens.find(&secret), Err(TokenStoreError::Malformed { .. })), "{text}");
            assert!(matches!(tokens.add(None, TokenRole::Owner, 2), Err(TokenStoreError::Malformed { .. })), "{text}");
            assert_eq!(fs::read_to_string(&tokens.path).unwrap(), text);
        }
    }

    #[test]
    fn a_name_is_one_short_line() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = TokenStore::new(dir.path());
        for wrong in ["", "  ", "two\nlines", &"x".repeat(129)] {
            assert!(
                matches!(tokens.add(Some(wrong), TokenRole::Owner, 1), Err(TokenStoreError::InvalidName)),
                "{wrong}"
            );
        }
        tokens.add(Some(&"ä".repeat(128)), TokenRole::Owner, 1).unwrap();
    }

    #[test]
    fn concurrent_additions_lose_no_token() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        TokenStore::new(dir.path()).add(None, TokenRole::Owner, 1).unwrap();
                    }
                });
            }
        });
        assert_eq!(TokenStore::new(dir.path()).list().unwrap().len(), 32);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_can_read_is_not_used_and_a_link_is_not_followed() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let tokens = TokenStore::new(&dir.path().join("state"));
        let (_, secret) = tokens.add(None, TokenRole::Owner, 1).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&tokens.path), mode(tokens.path.parent().unwrap())), (0o600, 0o700));
        fs::set_permissions(&tokens.path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(tokens.find(&secret), Err(TokenStoreError::File(PrivateFileError::Exposed(_)))));
        fs::set_permissions(&tokens.path, fs::Permissions::from_mode(0o600)).unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&tokens.path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &tokens.path).unwrap();
        assert!(matches!(tokens.find(&secret), Err(TokenStoreError::File(PrivateFileError::Unreadable(_)))));
    }

    #[test]
    fn a_token_without_a_role_is_the_owners_and_an_unknown_role_authorizes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = TokenStore::new(dir.path());
        let (_, secret) = tokens.add(None, TokenRole::Owner, 1).unwrap();
        let file = fs::read_to_string(&tokens.path).unwrap();
        assert!(!file.contains("role"), "it is what earlier versions wrote: {file}");
        assert_eq!(tokens.find(&secret).unwrap().map(|token| token.role), Some(TokenRole::Owner));
        fs::write(&tokens.path, file.replace("\"createdAt\"", "\"role\": \"emperor\", \"createdAt\"")).unwrap();
        assert!(matches!(tokens.find(&secret), Err(TokenStoreError::Malformed { .. })));
    }
}
