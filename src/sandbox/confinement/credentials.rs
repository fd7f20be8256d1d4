//! The paths of credentials, in homes and in the system.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the paths below a home that contain keys, passwords and tokens. Most of them do not exist.
pub fn credential_stores(home: &Path) -> Vec<PathBuf> {
    CREDENTIAL_STORES.iter().map(|name| home.join(name)).collect()
}

/// Returns the system files with password hashes, private keys and sudo rules; most of them do not exist.
///
/// It reads `/etc/ssh` to find the host keys. An ordinary user can read none of these files; a daemon that runs as root
/// can, and so can every process that it starts.
pub fn system_credentials() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = SYSTEM_CREDENTIALS.iter().map(PathBuf::from).collect();
    let entries = fs::read_dir(SSH_SERVER).into_iter().flatten().flatten();
    let is_key = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("ssh_host_") && !name.ends_with(".pub")
    };
    paths.extend(entries.map(|entry| entry.path()).filter(is_key));
    paths
}

const SSH_SERVER: &str = "/etc/ssh";

const SYSTEM_CREDENTIALS: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/master.passwd",
    "/etc/security/opasswd",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/krb5.keytab",
    "/etc/wireguard",
    "/etc/NetworkManager/system-connections",
    "/etc/letsencrypt/archive",
    "/etc/letsencrypt/accounts",
    "/var/backups/shadow.bak",
    "/var/backups/gshadow.bak",
];

const CREDENTIAL_STORES: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".password-store",
    ".netrc",
    ".git-credentials",
    ".npmrc",
    ".npm/_logs",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".terraform.d",
    ".terraformrc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/git/credentials",
    ".config/op",
    ".config/rclone",
    ".config/containers/auth.json",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".mozilla",
    ".thunderbird",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    "snap/firefox",
    ".claude",
    ".claude.json",
    ".codex",
    ".pi/agent",
    ".config/github-copilot",
    ".config/sops",
    ".config/hub",
    ".config/fly",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".s3cfg",
    ".boto",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".var/app",
    ".bash_history",
    ".zsh_history",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_the_machine_are_absolute_and_public_keys_are_none() {
        let paths = system_credentials();
        for path in ["/etc/shadow", "/etc/gshadow-", "/etc/sudoers.d", "/etc/ssl/private"] {
            assert!(paths.contains(&path.into()), "{path}");
        }
        let is_public = |path: &PathBuf| path.extension().is_some_and(|end| end == "pub");
        assert!(paths.iter().all(|path| path.is_absolute() && !is_public(path)), "{paths:?}");
    }

    #[test]
    fn stores_are_below_the_home() {
        let stores = credential_stores(Path::new("/home/ann"));
        for name in [".ssh", ".claude.json", ".config/sops", ".zsh_history"] {
            assert!(stores.contains(&Path::new("/home/ann").join(name)), "{name}");
        }
        assert!(stores.iter().all(|store| store.starts_with("/home/ann") && store != Path::new("/home/ann")));
    }
}
