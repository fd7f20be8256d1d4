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
    ".terraform.d/credentials.tfrc.json",
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
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_below_the_home() {
        let stores = credential_stores(Path::new("/home/ann"));
        assert!(stores.contains(&"/home/ann/.ssh".into()));
        assert!(stores.iter().all(|store| store.starts_with("/home/ann") && store != Path::new("/home/ann")));
    }
}
