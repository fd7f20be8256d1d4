//! Detects credentials by the names of their keys and by the shape of their values.
//!
//! In doubt a value is refused: the file is shown and copied, and must not contain a credential.

use super::spots::Spot;
use super::{Misplaced, Mistake};

/// Returns the first value that looks like a credential.
pub(super) fn find(spots: &[Spot]) -> Option<Misplaced> {
    let found = spots.iter().find(|spot| {
        let text = spot.text.as_deref().unwrap_or_default();
        (is_named_like_one(&spot.name) && !spot.is_switch) || looks_like_one(text) || is_in_an_address(text)
    })?;
    Some((found.at, Mistake::Secret { key: found.key.clone() }))
}

fn is_named_like_one(name: &str) -> bool {
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect();
    NAMES.contains(&plain.as_str()) || ENDINGS.iter().any(|ending| plain.ends_with(ending))
}

fn looks_like_one(text: &str) -> bool {
    let lower = text.trim_start().to_ascii_lowercase();
    let scheme = ["bearer ", "basic "].iter().any(|scheme| lower.starts_with(scheme));
    // Shorter values are not credentials; a model may be called `sk-1`.
    scheme || (lower.len() >= 20 && BEGINNINGS.iter().any(|beginning| lower.starts_with(beginning)))
}

/// Whether a URL contains user information: `https://user:password@host`.
fn is_in_an_address(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else { return false };
    rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

const NAMES: &[&str] = &["key", "keys", "cookie", "credential", "credentials", "bearer"];

const ENDINGS: &[&str] =
    &["apikey", "token", "secret", "password", "passwd", "authorization", "accesskey", "secretkey"];

const BEGINNINGS: &[&str] = &[
    "sk-",
    "sk_",
    "xai-",
    "gsk_",
    "ghp_",
    "gho_",
    "github_pat_",
    "glpat-",
    "hf_",
    "akia",
    "aiza",
    "eyj",
    "ptk_",
];
