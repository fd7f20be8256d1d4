//! The paths of the daemon: its home, its socket, its state and its logs.
//!
//! Paths are derived from the environment only. Nothing is created or opened here; the only access to the disk is a
//! check that the home exists. Relative paths are refused: the daemon and its clients have different working
//! directories and must agree on one path.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::transport::local::{Address, DirectoryKind};

/// The paths of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The daemon's home, `~/.push`; `PUSH_HOME` overrides it.
    pub home: PathBuf,
    /// The owner-only directory with the runtime files of the daemon.
    pub run: PathBuf,
    /// The socket (on Windows the name of the pipe); `PUSHD_SOCKET` overrides it.
    pub socket: PathBuf,
    /// How the location of the socket was chosen.
    pub socket_origin: SocketOrigin,
    /// The pid file of the running daemon, next to its socket.
    pub pid: PathBuf,
    /// The lock file that a running daemon holds, next to its socket.
    pub lock: PathBuf,
    /// The directory of the database.
    pub state: PathBuf,
    /// The directory of the logs.
    pub logs: PathBuf,
    /// The user's configuration file, in the platform's standard location; `PUSH_CONFIG` overrides it.
    pub config: PathBuf,
}

/// How the location of the socket was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketOrigin {
    /// It is in the run directory, which the daemon manages.
    Default,
    /// `PUSHD_SOCKET` names it; the daemon does not change its directory.
    Chosen,
}

/// Why the paths cannot be determined.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PathsError {
    /// The user's home is unknown.
    #[error("cannot find your home directory; set PUSH_HOME to an absolute path")]
    NoHome,
    /// A variable contains a relative path.
    #[error("{variable} must be an absolute path, not {}", .path.display())]
    Relative {
        /// The variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
    },
    /// The user's home does not exist.
    #[error("your home directory {} does not exist; create it, or set PUSH_HOME to a directory for pushd", .path.display())]
    MissingHome {
        /// The missing directory.
        path: PathBuf,
    },
    /// `PUSH_CONFIG` does not name a file.
    #[error("PUSH_CONFIG must name a file, not {}", .path.display())]
    NoConfigName {
        /// Its value.
        path: PathBuf,
    },
    /// `PUSHD_SOCKET` does not name a file.
    #[error("PUSHD_SOCKET must name a socket, not {}", .path.display())]
    NoSocketName {
        /// Its value.
        path: PathBuf,
    },
    /// The path is longer than a socket address allows.
    #[error("the socket path {} has {length} bytes, this system takes at most {limit}; set PUSHD_SOCKET to a shorter one", .path.display())]
    SocketTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
        /// The maximum length.
        limit: usize,
    },
}

impl Paths {
    /// Returns the address that a daemon with these paths listens on.
    pub fn address(&self) -> Address {
        Address {
            socket: self.socket.clone(),
            lock: self.lock.clone(),
            pid: self.pid.clone(),
            directory: match self.socket_origin {
                SocketOrigin::Default => DirectoryKind::Default,
                SocketOrigin::Chosen => DirectoryKind::Custom,
            },
        }
    }

    /// Returns the directory of the providers' keys: that of the configuration.
    pub fn keys_dir(&self) -> &Path {
        self.config.parent().unwrap_or(&self.home)
    }

    /// Returns the directory of the private cache copies, one for each workspace.
    pub fn caches_dir(&self) -> PathBuf {
        self.home.join("cache")
    }

    /// Derives the paths from the variables that `variable` looks up; an empty one counts as unset.
    ///
    /// With `PUSHD_SOCKET`, the lock and pid files are next to that socket and named after it (`x.sock` has
    /// `x.lock` and `x.pid`, and so has any other `x`), so that daemons with different sockets in one directory do
    /// not conflict. A named pipe has no directory: its lock and pid files are in the run directory.
    pub fn from_environment(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, PathsError> {
        Self::resolve(SOCKET_KIND, variable)
    }

    /// Derives the paths like [`Paths::from_environment`], and refuses a user's home that does not exist.
    pub fn in_existing_home(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, PathsError> {
        let paths = Self::from_environment(variable)?;
        if non_empty_variable("PUSH_HOME", variable).is_none() {
            let path = user_home(variable)?;
            if !path.is_dir() {
                return Err(PathsError::MissingHome { path });
            }
        }
        Ok(paths)
    }

    fn resolve(sockets: SocketKind, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, PathsError> {
        let home = match absolute_variable("PUSH_HOME", variable)? {
            Some(home) => home,
            None => user_home(variable)?.join(".push"),
        };
        let run = home.join("run");
        let (socket, socket_place) = match (chosen_socket(sockets, variable)?, sockets) {
            (Some(socket), _) => (socket, SocketOrigin::Chosen),
            (None, SocketKind::File { .. }) => (run.join("pushd.sock"), SocketOrigin::Default),
            (None, SocketKind::Pipe) => (default_pipe(variable), SocketOrigin::Default),
        };
        let base = match (sockets, socket_place) {
            (SocketKind::File { limit }, _) => {
                check_length(&socket, limit)?;
                socket.clone()
            }
            (SocketKind::Pipe, SocketOrigin::Default) => run.join("pushd"),
            (SocketKind::Pipe, SocketOrigin::Chosen) => run.join(pipe_file_name(&socket)),
        };
        Ok(Self {
            pid: sibling(&base, ".pid"),
            lock: sibling(&base, ".lock"),
            state: home.join("state"),
            logs: home.join("logs"),
            config: config_path(&home, variable)?,
            home,
            run,
            socket,
            socket_origin: socket_place,
        })
    }
}

/// The kind of local socket on this platform.
#[derive(Debug, Clone, Copy)]
enum SocketKind {
    /// A file whose path has at most `limit` bytes.
    File { limit: usize },
    /// A named pipe.
    Pipe,
}

fn absolute_variable(
    name: &'static str,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Option<PathBuf>, PathsError> {
    let Some(path) = non_empty_variable(name, variable).map(PathBuf::from) else { return Ok(None) };
    if path.is_absolute() { Ok(Some(path)) } else { Err(PathsError::Relative { variable: name, path }) }
}

fn non_empty_variable(name: &str, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<OsString> {
    variable(name).filter(|value| !value.is_empty())
}

/// Returns the user's home, whose `.push` belongs to the daemon and not to a project.
pub fn user_home(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<PathBuf, PathsError> {
    // On Windows, some shells set HOME to something other than the user's directory.
    let from_variable =
        non_empty_variable("HOME", variable).map(PathBuf::from).filter(|home| !cfg!(windows) && home.is_absolute());
    from_variable
        .or_else(|| directories::BaseDirs::new().map(|dirs| dirs.home_dir().to_owned()))
        .ok_or(PathsError::NoHome)
}

/// The user's configuration file; in the daemon's home if the user has no configuration directory.
fn config_path(home: &Path, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<PathBuf, PathsError> {
    match absolute_variable("PUSH_CONFIG", variable)? {
        Some(path) if !names_a_file(&path) => return Err(PathsError::NoConfigName { path }),
        Some(path) => return Ok(path),
        None => {}
    }
    let directory = if cfg!(windows) {
        directories::BaseDirs::new().map(|dirs| dirs.config_dir().to_owned())
    } else if cfg!(target_os = "macos") {
        user_home(variable).ok().map(|home| home.join("Library/Application Support"))
    } else {
        let from_variable =
            non_empty_variable("XDG_CONFIG_HOME", variable).map(PathBuf::from).filter(|path| path.is_absolute());
        from_variable.or_else(|| user_home(variable).ok().map(|home| home.join(".config")))
    };
    Ok(directory.map_or_else(|| home.join("config.toml"), |directory| directory.join("push").join("config.toml")))
}

fn chosen_socket(
    sockets: SocketKind,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Option<PathBuf>, PathsError> {
    match sockets {
        SocketKind::File { .. } => {
            let socket = absolute_variable(SOCKET_VARIABLE, variable)?;
            match socket {
                Some(path) if !names_a_file(&path) => Err(PathsError::NoSocketName { path }),
                socket => Ok(socket),
            }
        }
        SocketKind::Pipe => match non_empty_variable(SOCKET_VARIABLE, variable).map(PathBuf::from) {
            Some(path) if pipe_file_name(&path).is_empty() => Err(PathsError::NoSocketName { path }),
            socket => Ok(socket),
        },
    }
}

/// Whether `path` ends in a file name: `a/` and `a/.` name a directory, although `Path` drops the difference.
fn names_a_file(path: &Path) -> bool {
    let last = path.as_os_str().as_encoded_bytes().rsplit(|&byte| byte == b'/').next();
    path.file_name().is_some_and(|name| last == Some(name.as_encoded_bytes()))
}

fn check_length(socket: &Path, limit: usize) -> Result<(), PathsError> {
    let length = socket.as_os_str().len();
    if length <= limit {
        return Ok(());
    }
    Err(PathsError::SocketTooLong { path: socket.to_owned(), length, limit })
}

/// The default pipe of this user, `\\.\pipe\pushd-<user>`.
fn default_pipe(variable: &dyn Fn(&str) -> Option<OsString>) -> PathBuf {
    let user = non_empty_variable("USERNAME", variable).unwrap_or_default();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '-');
    let name: String = user.to_string_lossy().chars().map(|letter| if plain(letter) { letter } else { '_' }).collect();
    PathBuf::from(format!("{PIPE_PREFIX}pushd-{name}"))
}

/// The name of a pipe without its prefix, as a file name; empty if the path is not a pipe.
fn pipe_file_name(pipe: &Path) -> String {
    let pipe = pipe.to_string_lossy();
    pipe.strip_prefix(PIPE_PREFIX).unwrap_or_default().replace(['\\', '/', ':'], "_")
}

/// The path next to `socket` with `ending` in place of `.sock`, or appended to a name without it.
fn sibling(socket: &Path, ending: &str) -> PathBuf {
    let name = socket.file_name().unwrap_or_default();
    let stem = match socket.extension() {
        Some(extension) if extension == "sock" => socket.file_stem().unwrap_or(name),
        _ => name,
    };
    let mut sibling: OsString = OsStr::to_owned(stem);
    sibling.push(ending);
    socket.with_file_name(sibling)
}

const SOCKET_VARIABLE: &str = "PUSHD_SOCKET";

const PIPE_PREFIX: &str = r"\\.\pipe\";

/// The path and a terminating zero byte must fit: 108 bytes on Linux, 104 on BSD systems.
const SOCKET_KIND: SocketKind = if cfg!(windows) {
    SocketKind::Pipe
} else if cfg!(target_os = "linux") {
    SocketKind::File { limit: 107 }
} else {
    SocketKind::File { limit: 103 }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_under_the_home_of_the_user() {
        let paths = files(&[("HOME", "/home/ann")]).unwrap();
        assert_eq!(
            paths,
            Paths {
                home: "/home/ann/.push".into(),
                run: "/home/ann/.push/run".into(),
                socket: "/home/ann/.push/run/pushd.sock".into(),
                socket_origin: SocketOrigin::Default,
                pid: "/home/ann/.push/run/pushd.pid".into(),
                lock: "/home/ann/.push/run/pushd.lock".into(),
                state: "/home/ann/.push/state".into(),
                logs: "/home/ann/.push/logs".into(),
                config: if cfg!(target_os = "macos") {
                    "/home/ann/Library/Application Support/push/config.toml".into()
                } else {
                    "/home/ann/.config/push/config.toml".into()
                },
            }
        );
    }

    #[test]
    fn push_config_sets_the_configuration_file() {
        let from_variable = files(&[("HOME", "/home/ann"), ("PUSH_CONFIG", "/etc/push.toml")]).unwrap();
        assert_eq!(from_variable.config, Path::new("/etc/push.toml"));
        let relative = PathsError::Relative { variable: "PUSH_CONFIG", path: "there".into() };
        assert_eq!(files(&[("HOME", "/h"), ("PUSH_CONFIG", "there")]), Err(relative));
        let folder = PathsError::NoConfigName { path: "/etc/".into() };
        assert_eq!(files(&[("HOME", "/h"), ("PUSH_CONFIG", "/etc/")]), Err(folder));
    }

    #[test]
    fn push_home_moves_every_path() {
        let paths = files(&[("HOME", "/home/ann"), ("PUSH_HOME", "/srv/push"), ("PUSHD_SOCKET", "")]).unwrap();
        assert_eq!(paths.socket, Path::new("/srv/push/run/pushd.sock"));
        assert_eq!(paths.state, Path::new("/srv/push/state"));
        assert_eq!(paths.logs, Path::new("/srv/push/logs"));
    }

    #[test]
    fn pushd_socket_moves_the_socket_with_its_lock_and_pid_file() {
        for (socket, lock, pid) in [
            ("/run/x/pushd.sock", "/run/x/pushd.lock", "/run/x/pushd.pid"),
            ("/run/x/two.sock", "/run/x/two.lock", "/run/x/two.pid"),
            ("/run/x/three", "/run/x/three.lock", "/run/x/three.pid"),
            ("/run/x/four.pid", "/run/x/four.pid.lock", "/run/x/four.pid.pid"),
            ("/run/x/.sock", "/run/x/.sock.lock", "/run/x/.sock.pid"),
        ] {
            let paths = files(&[("HOME", "/home/ann"), ("PUSHD_SOCKET", socket)]).unwrap();
            assert_eq!(paths.socket_origin, SocketOrigin::Chosen);
            assert_eq!(paths.socket, Path::new(socket));
            assert_eq!((paths.lock, paths.pid), (lock.into(), pid.into()));
            assert_eq!(paths.state, Path::new("/home/ann/.push/state"));
        }
    }

    #[test]
    fn a_path_that_is_not_absolute_is_refused() {
        let relative = |variable| PathsError::Relative { variable, path: "there".into() };
        assert_eq!(files(&[("PUSH_HOME", "there")]), Err(relative("PUSH_HOME")));
        assert_eq!(files(&[("HOME", "/h"), ("PUSHD_SOCKET", "there")]), Err(relative("PUSHD_SOCKET")));
    }

    #[test]
    fn a_socket_needs_a_name() {
        for path in ["/", "/run/x/..", "/run/x/", "/run/x/."] {
            let refused = Err(PathsError::NoSocketName { path: path.into() });
            assert_eq!(files(&[("HOME", "/h"), ("PUSHD_SOCKET", path)]), refused);
        }
        let refused = Err(PathsError::NoSocketName { path: r"C:\x".into() });
        assert_eq!(resolve_paths(SocketKind::Pipe, &[("HOME", "/h"), ("PUSHD_SOCKET", r"C:\x")]), refused);
    }

    #[test]
    fn a_socket_path_over_the_limit_is_refused_with_a_remedy() {
        let longest = format!("/{}", "x".repeat(106));
        assert!(files(&[("HOME", "/h"), ("PUSHD_SOCKET", &longest)]).is_ok());
        let longer = format!("{longest}x");
        let error = files(&[("HOME", "/h"), ("PUSHD_SOCKET", &longer)]).unwrap_err();
        assert!(error.to_string().contains("108 bytes") && error.to_string().contains("PUSHD_SOCKET"), "{error}");
        let error = files(&[("HOME", &longest)]).unwrap_err();
        assert!(matches!(error, PathsError::SocketTooLong { limit: 107, .. }), "{error}");
    }

    #[test]
    fn a_pipe_is_named_after_its_user() {
        let paths = resolve_paths(SocketKind::Pipe, &[("HOME", "/h"), ("USERNAME", r"Dom\Jörg O'Neil-2.x_")]).unwrap();
        assert_eq!(paths.socket, Path::new(r"\\.\pipe\pushd-Dom_J_rg_O_Neil-2.x_"));
        assert_eq!(paths.lock, paths.run.join("pushd.lock"));
        let paths = resolve_paths(SocketKind::Pipe, &[("HOME", "/h"), ("PUSHD_SOCKET", r"\\.\pipe\mine")]).unwrap();
        assert_eq!(paths.socket, Path::new(r"\\.\pipe\mine"));
        assert_eq!((paths.lock, paths.pid), (paths.run.join("mine.lock"), paths.run.join("mine.pid")));
    }

    #[test]
    fn the_home_is_found_without_any_variable() {
        assert!(Paths::from_environment(&|_| None).is_ok());
    }

    fn files(variables: &[(&str, &str)]) -> Result<Paths, PathsError> {
        resolve_paths(SocketKind::File { limit: 107 }, variables)
    }

    fn resolve_paths(sockets: SocketKind, variables: &[(&str, &str)]) -> Result<Paths, PathsError> {
        let lookup = |name: &str| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| OsString::from(value))
        };
        Paths::resolve(sockets, &lookup)
    }
}
