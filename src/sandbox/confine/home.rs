//! Where people keep what opens doors.

use std::path::{Path, PathBuf};

/// Returns the places below a user's home that hold keys, passwords and tokens; most will not be there.
pub fn credential_stores(home: &Path) -> Vec<PathBuf> {
    STORES.iter().map(|name| home.join(name)).collect()
}

const STORES: &[&str] = &[
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
    fn stores_are_below_the_home() {
        let stores = credential_stores(Path::new("/home/ann"));
        for name in [".ssh", ".claude.json", ".config/sops", ".zsh_history"] {
            assert!(stores.contains(&Path::new("/home/ann").join(name)), "{name}");
        }
        assert!(stores.iter().all(|store| store.starts_with("/home/ann") && store != Path::new("/home/ann")));
    }
}
