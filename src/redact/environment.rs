//! Which environment variables hold secrets.
//!
//! The names decide; values that clearly are not secrets are skipped. This module does not read the environment.

use std::path::Path;

/// A name that contains one of these is secret.
const SECRET_SUBSTRINGS: [&str; 9] =
    ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "COOKIE", "APIKEY", "PRIVATEKEY"];
/// A name with one of these as a whole word is secret.
const SECRET_WORDS: [&str; 9] = ["KEY", "KEYS", "AUTH", "OAUTH", "OAUTH2", "AUTHORIZATION", "PAT", "PASS", "DSN"];
/// A name with one of these suffixes refers to a location or a name, not to a secret.
const HARMLESS_SUFFIXES: [&str; 10] =
    ["_SOCK", "_FILE", "_PATH", "_DIR", "_NAME", "_TYPE", "_HOST", "_PORT", "_PID", "_AGENT_INFO"];
/// Common example values; hiding them would hide ordinary words.
const EXAMPLES: [&str; 6] = ["password", "changeme", "postgres", "disabled", "required", "undefined"];
/// Shorter values are too likely to be ordinary words.
const SECRET_CHARS_MIN: usize = 8;

/// Returns the secret values among `variables`.
///
/// The names decide: words such as `KEY`, `TOKEN`, `SECRET`, `PASSWORD`, `AUTH`, `COOKIE` or `_PAT`. Skipped are
/// sockets, files and agents by their names (`SSH_AUTH_SOCK`, `XAUTHORITY`), existing absolute paths, numbers,
/// booleans and values of fewer than 8 characters. Of a URL with user and password only the password is returned.
pub fn secrets<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut secrets = Vec::new();
    for (name, value) in variables {
        let value = value.trim();
        if let Some(password) = url_password(value) {
            secrets.push(percent_decode(password));
            secrets.push(password.to_owned());
        } else if is_secret_name(name) && is_plausible_secret(value) {
            secrets.push(value.to_owned());
        }
    }
    secrets
}

/// Returns whether a variable is secret: by its name, or because its value is a URL with a password.
pub fn is_secret_variable(name: &str, value: &str) -> bool {
    is_secret_name(name) || url_password(value.trim()).is_some()
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    if name == "XAUTHORITY" || HARMLESS_SUFFIXES.iter().any(|end| name.ends_with(end)) {
        return false;
    }
    SECRET_SUBSTRINGS.iter().any(|word| name.contains(word))
        || name.ends_with("_PWD")
        || name.split(['_', '-', '.']).any(|word| SECRET_WORDS.contains(&word) || word.ends_with("KEY"))
}

fn is_plausible_secret(value: &str) -> bool {
    let is_number = value.parse::<f64>().is_ok();
    let is_example = EXAMPLES.iter().any(|example| value.eq_ignore_ascii_case(example));
    // A base64 secret may start with a slash, so only the file system can identify a path.
    let is_path = Path::new(value).is_absolute() && Path::new(value).exists();
    let is_plain_url = value.starts_with("http://") || value.starts_with("https://");
    value.chars().count() >= SECRET_CHARS_MIN && !is_number && !is_example && !is_path && !is_plain_url
}

/// Returns the password in `scheme://user:password@host`.
fn url_password(value: &str) -> Option<&str> {
    let (scheme, rest) = value.split_once("://")?;
    if scheme.is_empty() || !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte)) {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    // A raw slash in a password is invalid but common; in that case the last at-sign of the value ends it.
    let (info, _) = authority.rsplit_once('@').or_else(|| rest.rsplit_once('@'))?;
    let (_, password) = info.split_once(':')?;
    (password.chars().count() >= 6).then_some(password)
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_variables_are_found_by_name_and_plain_values_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        let table = [
            ("OPENAI_API_KEY", "abcdefgh12345678", true),
            ("GITHUB_TOKEN", "abcdefgh12345678", true),
            ("github_token", "abcdefgh12345678", true),
            ("PGPASSWORD", "hunter2hunter2", true),
            ("MYSQL_PWD", "hunter2hunter2", true),
            ("SMTP_PASS", "hunter2hunter2", true),
            ("BORG_PASSPHRASE", "correct horse battery", true),
            ("AZURE_DEVOPS_EXT_PAT", "abcdefgh12345678", true),
            ("SESSION_COOKIE", "abcdefgh12345678", true),
            ("NPM_AUTH", "abcdefgh12345678", true),
            ("SENTRY_DSN", "abcdefgh12345678", true),
            ("AWS_SECRET_ACCESS_KEY", "/bcdEFGH/12345678", true),
            ("PWD", "/home/somebody/code", false),
            ("PATH", "/usr/bin:/bin", false),
            ("GIT_AUTHOR_NAME", "Somebody Else", false),
            ("SSH_AUTH_SOCK", "/tmp/ssh-abcdefgh/agent.1", false),
            ("XAUTHORITY", "/home/somebody/.Xauthority", false),
            ("GPG_AGENT_INFO", "/run/user/1000/gnupg:0:1", false),
            ("GNOME_KEYRING_CONTROL", "/run/user/1000/keyring", false),
            ("TLS_KEY", path, false),
            ("API_KEY", "short12", false),
            ("API_KEY", "1234567890", false),
            ("TOKENIZERS_PARALLELISM", "false", false),
            ("DB_PASSWORD", "postgres", false),
            ("KEYBOARD_LAYOUT", "us-international", false),
            ("COMPATIBILITY", "some-long-value", false),
        ];
        for (name, value, secret) in table {
            assert_eq!(secrets([(name, value)]) == [value], secret, "{name}");
        }
    }

    #[test]
    fn only_the_password_of_a_url_is_a_secret() {
        let table = [
            ("postgres://app:hunter2hunter2@db/main", Some("hunter2hunter2")),
            ("redis://:hunter2hunter2@cache:6379", Some("hunter2hunter2")),
            ("amqp://a:pa%40ss%2Fword@mq/", Some("pa@ss/word")),
            ("mysql://a:pa/ss/word@db/main", Some("pa/ss/word")),
            ("https://example.com:8080/a", None),
            ("https://example.com/a?b=c@d", None),
            ("https://user@example.com/", None),
        ];
        for (value, password) in table {
            assert_eq!(secrets([("DATABASE_URL", value)]).first().map(String::as_str), password, "{value}");
        }
    }
}
