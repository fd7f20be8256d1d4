//! What toolchains need of a home: the files they read, and the caches they write.
//!
//! Pure: the paths are candidates, taken from the environment of a session. The module `view` checks the file system
//! and decides which of them are opened.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Looks up a variable of the session's environment.
pub type EnvironmentLookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A cache that builds write. Commands get a private copy of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// The kind of cache.
    pub kind: CacheKind,
    /// The path at which the tools expect it.
    pub path: PathBuf,
}

/// The known kinds of caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheKind {
    /// Sources and indexes of Cargo registries.
    CargoRegistry,
    /// Crates that Cargo fetches from git repositories.
    CargoGit,
    /// The package cache of npm.
    Npm,
    /// Wheels and HTTP responses of pip.
    Pip,
    /// The build cache of Go.
    GoBuild,
    /// Go modules and their checksums.
    GoPackages,
}

impl CacheKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::CargoRegistry, Self::CargoGit, Self::Npm, Self::Pip, Self::GoBuild, Self::GoPackages];

    /// Returns the name of the directory with the private copy.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CargoRegistry => "cargo-registry",
            Self::CargoGit => "cargo-git",
            Self::Npm => "npm",
            Self::Pip => "pip",
            Self::GoBuild => "go-build",
            Self::GoPackages => "go-packages",
        }
    }

    pub(super) fn parse(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
    }

    /// Returns the variable that makes a tool use another directory, and the name of that directory.
    ///
    /// It is used where mounts are not available. Cargo has one variable for both of its caches.
    pub(crate) const fn variable(self) -> (&'static str, &'static str) {
        match self {
            Self::CargoRegistry | Self::CargoGit => ("CARGO_HOME", "cargo"),
            Self::Npm => ("npm_config_cache", "npm"),
            Self::Pip => ("PIP_CACHE_DIR", "pip"),
            Self::GoBuild => ("GOCACHE", "go-build"),
            Self::GoPackages => ("GOPATH", "go"),
        }
    }
}

/// Returns the paths below a home that toolchains read. Most of them do not exist.
pub fn default_paths(home: &Path) -> Vec<PathBuf> {
    TOOLCHAINS.iter().map(|name| home.join(name)).collect()
}

/// Returns the directories that the environment names: those of `PATH` and of toolchain variables.
pub fn paths_from_environment(variable: EnvironmentLookup<'_>) -> Vec<PathBuf> {
    let list = |name: &str| variable(name).map(|value| split(&value)).unwrap_or_default();
    let mut paths = list("PATH");
    paths.extend(TOOLCHAIN_VARIABLES.iter().flat_map(|name| list(name)));
    paths.retain(|path| path.is_absolute());
    paths.sort();
    paths.dedup();
    paths
}

/// Returns the cache directories that the tools of a session use.
pub fn caches(home: &Path, variable: EnvironmentLookup<'_>) -> Vec<Cache> {
    let from_variable = |name: &str| {
        let path = variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let cargo = from_variable("CARGO_HOME").unwrap_or_else(|| home.join(".cargo"));
    let shared = from_variable("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache"));
    // Go writes to the first of several directories.
    let go = variable("GOPATH").and_then(|value| split(&value).into_iter().next());
    let go = go.filter(|path| path.is_absolute()).unwrap_or_else(|| home.join("go"));
    let npm = from_variable("npm_config_cache").or_else(|| from_variable("NPM_CONFIG_CACHE"));
    let at = |kind, path| Cache { kind, path };
    vec![
        at(CacheKind::CargoRegistry, cargo.join("registry")),
        at(CacheKind::CargoGit, cargo.join("git")),
        at(CacheKind::Npm, npm.unwrap_or_else(|| home.join(".npm"))),
        at(CacheKind::Pip, from_variable("PIP_CACHE_DIR").unwrap_or_else(|| shared.join("pip"))),
        at(CacheKind::GoBuild, from_variable("GOCACHE").unwrap_or_else(|| shared.join("go-build"))),
        at(CacheKind::GoPackages, go.join("pkg")),
    ]
}

fn split(value: &OsStr) -> Vec<PathBuf> {
    std::env::split_paths(value).collect()
}

/// Returns whether a path below a home is a directory that many programs share, so that it is not a toolchain
/// directory.
pub(super) fn is_shared_directory(inner: &Path) -> bool {
    SHARED_DIRECTORIES.iter().any(|name| Path::new(name) == inner)
}

/// Returns whether a program directory is part of an installation, with libraries beside it. `has` tests for a name in
/// the parent directory.
pub(super) fn is_installation(programs: &OsStr, has: &dyn Fn(&str) -> bool) -> bool {
    match programs.to_str() {
        Some("bin" | "sbin") => ["lib", "lib64", "libexec"].into_iter().any(has),
        Some("shims") => ["versions", "installs"].into_iter().any(has),
        _ => false,
    }
}

const TOOLCHAINS: &[&str] =
    &[".cargo", ".rustup", ".nvm", ".pyenv", ".local/bin", ".local/lib", "go", ".gitconfig", ".config/git"];

/// Variables whose value is one toolchain directory or a list of them.
const TOOLCHAIN_VARIABLES: &[&str] = &[
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "GOROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYENV_ROOT",
    "NVM_DIR",
    "FNM_DIR",
    "VOLTA_HOME",
    "PNPM_HOME",
    "BUN_INSTALL",
    "DENO_INSTALL",
    "RBENV_ROOT",
    "GEM_HOME",
    "JAVA_HOME",
    "SDKMAN_DIR",
    "ASDF_DATA_DIR",
    "MISE_DATA_DIR",
];

const SHARED_DIRECTORIES: &[&str] = &[
    ".local",
    ".local/share",
    ".local/state",
    ".config",
    ".cache",
    ".var",
    ".var/app",
    "snap",
    "Library",
    "Desktop",
    "Documents",
    "Downloads",
    "Music",
    "Pictures",
    "Public",
    "Templates",
    "Videos",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_variables_name_absolute_directories() {
        let named = paths_from_environment(&|name| match name {
            "PATH" => Some("/home/ann/bin:/usr/bin::relative:/home/ann/bin".into()),
            "GOPATH" => Some("/home/ann/g1:/home/ann/g2".into()),
            "HISTFILE" => Some("/home/ann/.history".into()),
            _ => None,
        });
        assert_eq!(named, ["/home/ann/bin", "/home/ann/g1", "/home/ann/g2", "/usr/bin"].map(Path::new));
    }

    #[test]
    fn cache_paths_follow_the_variables_or_default_to_the_home() {
        let home = Path::new("/home/ann");
        let paths = |variable: EnvironmentLookup<'_>| -> Vec<PathBuf> {
            caches(home, variable).into_iter().map(|cache| cache.path).collect()
        };
        assert_eq!(
            paths(&|_| None),
            [".cargo/registry", ".cargo/git", ".npm", ".cache/pip", ".cache/go-build", "go/pkg"]
                .map(|name| home.join(name))
        );
        let from_variable = paths(&|name| {
            let value = match name {
                "CARGO_HOME" => "/home/ann/c",
                "XDG_CACHE_HOME" => "/home/ann/x",
                "GOPATH" => "/home/ann/g1:/home/ann/g2",
                "GOCACHE" => "/home/ann/gc",
                "NPM_CONFIG_CACHE" => "/home/ann/n",
                "PIP_CACHE_DIR" => "relative",
                _ => return None,
            };
            Some(value.into())
        });
        assert_eq!(from_variable, ["c/registry", "c/git", "n", "x/pip", "gc", "g1/pkg"].map(|name| home.join(name)));
    }

    #[test]
    fn every_cache_kind_has_a_unique_name() {
        for kind in CacheKind::ALL {
            assert_eq!(CacheKind::parse(kind.name().as_bytes()), Some(kind));
        }
        assert_eq!(CacheKind::parse(b"home"), None);
    }
}
