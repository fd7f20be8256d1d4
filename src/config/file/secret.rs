//! Detects credentials by the names of their keys and by the shape of their values.
//!
//! In doubt a value is refused: the file is shown and copied, and must not contain a credential.

use super::values::ConfigValue;
use super::{ContentError, LocatedError};

/// Returns the first value that looks like a credential.
pub(super) fn find_credential(values: &[ConfigValue]) -> Option<LocatedError> {
    let found = values.iter().find(|value| {
        let text = value.text.as_deref().unwrap_or_default();
        (is_credential_name(&value.name) && !value.is_switch)
            || looks_like_credential(text)
            || has_url_credentials(text)
    })?;
    Some((found.offset, ContentError::Secret { key: found.key.clone() }))
}

fn is_credential_name(name: &str) -> bool {
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect();
    CREDENTIAL_NAMES.contains(&plain.as_str()) || CREDENTIAL_SUFFIXES.iter().any(|ending| plain.ends_with(ending))
}

fn looks_like_credential(text: &str) -> bool {
    let lower = text.trim_start().to_ascii_lowercase();
    let scheme = ["bearer ", "basic "].iter().any(|scheme| lower.starts_with(scheme));
    // Shorter values are not credentials; a model may be called `sk-1`.
    scheme || (lower.len() >= 20 && CREDENTIAL_PREFIXES.iter().any(|beginning| lower.starts_with(beginning)))
}

/// Whether a URL contains user information: `https://user:password@host`.
fn has_url_credentials(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else { return false };
    rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

const CREDENTIAL_NAMES: &[&str] = &["key", "keys", "cookie", "credential", "credentials", "bearer"];

const CREDENTIAL_SUFFIXES: &[&str] =
    &["apikey", "token", "secret", "password", "passwd", "authorization", "accesskey", "secretkey"];

const CREDENTIAL_PREFIXES: &[&str] =
    &["sk-", "sk_", "xai-", "gsk_", "ghp_", "gho_", "github_pat_", "glpat-", "hf_", "akia", "aiza", "eyj", "ptk_"];
