//! What the daemon and a keeper say to each other, as bytes.
//!
//! One order goes down: a length, then fields that each end in a NUL byte. Its path is a socket, never the arguments
//! of a process, which everybody on the machine may read. Closing the daemon's side is the order to end everything,
//! so that a killed daemon and a cancelled run are the same case. Reports of a fixed size come up.

use std::ffi::CString;
use std::path::Path;

use super::confine::Walls;
use super::ground::FileId;
use super::os;
use super::step::{Step, StepError};

/// How many bytes an order may have; no system takes as much for one process.
pub(super) const ORDER_MAX: usize = 16 * 1024 * 1024;

/// How many bytes a report has.
pub(super) const REPORT_LEN: usize = 5;

/// What a keeper is to start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// The directory under which a cgroup may be made; empty where none may.
    pub(super) cgroups: CString,
    /// How many descriptors the step may have at first; those of the keeper where it is not said.
    pub(super) descriptors: Option<u64>,
    /// The working directory.
    pub(super) cwd: CString,
    /// The directory that the working directory is or lies in, and what the file system calls it; nothing where any will do.
    pub(super) workspace: Option<Workspace>,
    /// What the shell is given.
    pub(super) command: CString,
    /// What confines it; nothing where nothing does.
    pub(super) walls: Option<Walls>,
    /// The whole environment, as `NAME=value`.
    pub(super) env: Vec<CString>,
}

impl Order {
    /// Reads the part of an order that follows its length.
    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = body.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        let mut next = || CString::new(fields.next()?).ok();
        let (cgroups, descriptors, cwd, path) = (next()?, next()?, next()?, next()?);
        let (id, command) = (next()?, next()?);
        let workspace = match id.to_str().ok()? {
            "" => None,
            id => Some(Workspace { path, id: id.parse().ok()? }),
        };
        let descriptors = match descriptors.to_str().ok()? {
            "" => None,
            digits => Some(digits.parse().ok()?),
        };
        let walls = Walls::read(&mut fields, os::path)?;
        let env = fields.map(CString::new).collect::<Result<_, _>>().ok()?;
        Some(Self { cgroups, descriptors, cwd, workspace, command, walls, env })
    }
}

/// The workspace of a step, as its session knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Workspace {
    /// Its path, without links.
    pub(super) path: CString,
    /// What the file system calls it.
    pub(super) id: FileId,
}

/// What an order says beside the step itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Conditions<'a> {
    pub(super) cgroups: Option<&'a Path>,
    pub(super) descriptors: Option<u64>,
    /// The directory that the step must start in or below, where it is known.
    pub(super) workspace: Option<(&'a Path, FileId)>,
    pub(super) walls: Option<&'a Walls>,
}

/// Writes the order for a step, with its length before it.
pub(super) fn order(step: &Step, conditions: Conditions<'_>) -> Result<Vec<u8>, StepError> {
    let Conditions { cgroups, descriptors, workspace, walls } = conditions;
    let mut bytes = vec![0; 4];
    let mut put = |parts: &[&[u8]], problem| {
        for part in parts {
            if part.contains(&0) {
                return Err(StepError::Unusable { problem });
            }
            bytes.extend_from_slice(part);
        }
        bytes.push(0);
        Ok(())
    };
    let cgroups = cgroups.map_or(&b""[..], |path| path.as_os_str().as_encoded_bytes());
    put(&[cgroups], "the cgroup's path contains a NUL byte")?;
    let descriptors = descriptors.map(|number| number.to_string()).unwrap_or_default();
    put(&[descriptors.as_bytes()], "the number of descriptors contains a NUL byte")?;
    put(&[step.cwd.as_os_str().as_encoded_bytes()], "the directory contains a NUL byte")?;
    let (path, id) = workspace.map_or((&b""[..], String::new()), |(path, id)| {
        (path.as_os_str().as_encoded_bytes(), id.to_string())
    });
    put(&[path], "the workspace's path contains a NUL byte")?;
    put(&[id.as_bytes()], "what the workspace is called contains a NUL byte")?;
    put(&[step.command.as_bytes()], "the command contains a NUL byte")?;
    for field in Walls::fields(walls) {
        put(&[&field], "a path of the sandbox contains a NUL byte")?;
    }
    for (name, value) in &step.env {
        let (name, value) = (name.as_encoded_bytes(), value.as_encoded_bytes());
        if name.is_empty() || name.contains(&b'=') {
            return Err(StepError::Unusable { problem: "a variable's name is empty or contains '='" });
        }
        put(&[name, b"=", value], "a variable contains a NUL byte")?;
    }
    let too_long = StepError::Unusable { problem: "the command and its environment are too long" };
    match u32::try_from(bytes.len() - 4) {
        Ok(length) if bytes.len() - 4 <= ORDER_MAX => bytes[..4].copy_from_slice(&length.to_le_bytes()),
        Ok(_) | Err(_) => return Err(too_long),
    }
    Ok(bytes)
}

/// What a keeper tells the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// The shell runs, with this process id.
    Started(i32),
    /// The directory could not be entered, with this error number.
    NoDirectory(i32),
    /// The shell could not be started, with this error number.
    NoShell(i32),
    /// The walls around the shell could not be built.
    NoWalls(Obstacle),
    /// The walls stand, and these layers are among them.
    Walled(Standing),
    /// The shell left with this code.
    Exited(i32),
    /// The shell was ended by this signal.
    Signaled(i32),
    /// The step used more memory than it may, and is being ended.
    OutOfMemory,
    /// Nothing of the step is left.
    Gone,
}

impl Report {
    /// The report as bytes.
    pub(super) fn encode(self) -> [u8; REPORT_LEN] {
        let (tag, number) = match self {
            Self::Started(pid) => (b'S', pid),
            Self::NoDirectory(errno) => (b'D', errno),
            Self::NoShell(errno) => (b'X', errno),
            Self::NoWalls(obstacle) => (b'W', obstacle.number()),
            Self::Walled(standing) => (b'K', standing.number()),
            Self::Exited(code) => (b'E', code),
            Self::Signaled(signal) => (b'T', signal),
            Self::OutOfMemory => (b'M', 0),
            Self::Gone => (b'G', 0),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [tag, a, b, c, d]
    }

    /// Reads a report; `None` if it is none.
    pub(super) fn decode([tag, a, b, c, d]: [u8; REPORT_LEN]) -> Option<Self> {
        let number = i32::from_le_bytes([a, b, c, d]);
        match tag {
            b'S' => Some(Self::Started(number)),
            b'D' => Some(Self::NoDirectory(number)),
            b'X' => Some(Self::NoShell(number)),
            b'W' => Obstacle::of(number).map(Self::NoWalls),
            b'K' => Some(Self::Walled(Standing::of(number))),
            b'E' => Some(Self::Exited(number)),
            b'T' => Some(Self::Signaled(number)),
            b'M' => Some(Self::OutOfMemory),
            b'G' => Some(Self::Gone),
            _ => None,
        }
    }
}

/// Which of the layers that a keeper cannot promise are in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Standing {
    /// Rules for files, by Landlock.
    pub(super) landlock: bool,
    /// Rules for system calls.
    pub(super) seccomp: bool,
    /// A bound on the number of processes that also holds for root.
    pub(super) processes: bool,
    /// Private copies of caches that begin with what is in the caches.
    pub(super) overlays: bool,
}

impl Standing {
    /// Returns the layers of both.
    pub(super) const fn with(self, other: Self) -> Self {
        Self {
            landlock: self.landlock || other.landlock,
            seccomp: self.seccomp || other.seccomp,
            processes: self.processes || other.processes,
            overlays: self.overlays || other.overlays,
        }
    }

    fn number(self) -> i32 {
        i32::from(self.landlock)
            | i32::from(self.seccomp) << 1
            | i32::from(self.processes) << 2
            | i32::from(self.overlays) << 3
    }

    const fn of(number: i32) -> Self {
        Self {
            landlock: number & 1 != 0,
            seccomp: number & 2 != 0,
            processes: number & 4 != 0,
            overlays: number & 8 != 0,
        }
    }
}

/// What was in the way of walls: at which part of them, and the system's error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) part: Part,
    pub(super) errno: i32,
}

/// A part of the walls, or of what they are to stand around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The workspace is everything there is.
    Root,
    /// The workspace is not there.
    Missing,
    /// Another directory is where the workspace was, or a link leads there.
    Replaced,
    /// The workspace lies in what is hidden.
    Hidden,
    /// Something protected is a link.
    Link,
    /// What is the daemon's own lies where may be written.
    Own,
    /// The place of something protected cannot be held.
    Guard,
    /// Namespaces.
    Namespaces,
    /// Mounts.
    Mounts,
    /// The loopback network.
    Loopback,
    /// The program bubblewrap, which says more itself.
    Bubblewrap,
    /// Limits, rights and rules.
    Rules,
    /// Private copies of caches.
    Caches,
    /// The workspace is a home.
    Home,
}

impl Part {
    const ALL: [Self; 14] = [
        Self::Root,
        Self::Missing,
        Self::Replaced,
        Self::Hidden,
        Self::Link,
        Self::Own,
        Self::Guard,
        Self::Namespaces,
        Self::Mounts,
        Self::Loopback,
        Self::Bubblewrap,
        Self::Rules,
        Self::Caches,
        Self::Home,
    ];

    /// Says what failed.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Root => "the workspace is the root of the file system",
            Self::Missing => "the workspace is not there",
            Self::Replaced => {
                "another directory is where the workspace was when the session started, or a link leads there; start a new \
                 session there"
            }
            Self::Hidden => "the workspace lies in a directory that is hidden from commands",
            Self::Link => {
                "`.git` or `.push` of the workspace, or a part of it, is a symbolic link or went away, and cannot be protected"
            }
            Self::Own => {
                "the workspace, or a place that may be written, holds pushd's own files (its home, socket, configuration or \
                 keys); open a directory below it"
            }
            Self::Guard => "`.git` or `.push` of the workspace cannot be protected",
            Self::Namespaces => "user namespaces cannot be used",
            Self::Mounts => "the view of the files cannot be built",
            Self::Loopback => "the loopback network cannot be set up",
            Self::Bubblewrap => "bubblewrap failed",
            Self::Rules => "the rules cannot be laid down",
            Self::Home => {
                "the workspace is a home, of which commands see only what toolchains need; open a directory below it"
            }
            Self::Caches => "the private copies of caches cannot be made below `cache` in pushd's home",
        }
    }
}

impl Obstacle {
    /// How many error numbers there may be.
    const ERRNOS: i32 = 0x1000;

    fn number(self) -> i32 {
        let part = Part::ALL.iter().position(|part| *part == self.part).unwrap_or_default();
        i32::try_from(part).unwrap_or_default() * Self::ERRNOS + self.errno.rem_euclid(Self::ERRNOS)
    }

    fn of(number: i32) -> Option<Self> {
        let part = Part::ALL.get(usize::try_from(number / Self::ERRNOS).ok()?)?;
        Some(Self { part: *part, errno: number % Self::ERRNOS })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::confine::{Confinement, Leave, Way};
    use super::super::step::Outputs;
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let id = FileId { device: 7, inode: 8 };
        let conditions = Conditions {
            cgroups: Some(Path::new("/sys/fs/cgroup")),
            descriptors: Some(1024),
            workspace: Some((Path::new("/w"), id)),
            walls: None,
        };
        let bytes = order(&step("echo 'a\nb'"), conditions).unwrap();
        let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        assert_eq!(length, bytes.len() - 4);
        let read = Order::decode(&bytes[4..]).unwrap();
        assert_eq!(read.cgroups.to_bytes(), b"/sys/fs/cgroup");
        assert_eq!(read.descriptors, Some(1024));
        assert_eq!(read.cwd.to_bytes(), b"/tmp");
        assert_eq!(read.workspace, Some(Workspace { path: c"/w".to_owned(), id }));
        assert_eq!(read.command.to_bytes(), b"echo 'a\nb'");
        assert_eq!(read.env, [c"A=1=2".to_owned(), c"EMPTY=".to_owned()]);
    }

    #[test]
    fn an_order_without_cgroup_command_or_environment_is_read() {
        let mut step = step("");
        step.env.clear();
        let bytes = order(&step, Conditions::default()).unwrap();
        let read = Order::decode(&bytes[4..]).unwrap();
        assert_eq!(read.workspace, None);
        assert_eq!((read.cgroups.to_bytes(), read.descriptors), (&b""[..], None));
        assert_eq!((read.command.to_bytes(), read.env.len()), (&b""[..], 0));
    }

    #[test]
    fn an_order_with_walls_is_read() {
        let walls = Confinement::of("/w".into()).walls(Way::Namespaces, Path::new("/t"), &Leave::default());
        let bytes = order(&step("true"), with(&walls)).unwrap();
        let read = Order::decode(&bytes[4..]).unwrap();
        assert_eq!((read.walls, read.env.len()), (Some(walls), 2));
        let nowhere = Confinement::of("/w\0".into()).walls(Way::Rules, Path::new("/t"), &Leave::default());
        assert!(matches!(order(&step("true"), with(&nowhere)), Err(StepError::Unusable { .. })));
    }

    #[test]
    fn what_no_process_can_take_is_refused() {
        let refused =
            |step: &Step| matches!(order(step, Conditions::default()), Err(StepError::Unusable { .. }));
        assert!(refused(&step("a\0b")) && refused(&step(&"x".repeat(ORDER_MAX))));
        for name in ["", "A=B", "A\0"] {
            let mut step = step("true");
            step.env = vec![(name.into(), "v".into())];
            assert!(refused(&step), "{name:?}");
        }
    }

    #[test]
    fn a_cut_order_is_none() {
        let bytes = order(&step("true"), Conditions::default()).unwrap();
        assert_eq!(Order::decode(&bytes[4..bytes.len() - 1]), None);
        assert_eq!(Order::decode(b""), None);
        assert_eq!(Order::decode(b"\0\0/\0"), None);
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        for report in [
            Report::Started(77),
            Report::NoDirectory(2),
            Report::NoShell(13),
            Report::NoWalls(Obstacle { part: Part::Root, errno: 0 }),
            Report::NoWalls(Obstacle { part: Part::Rules, errno: 95 }),
            Report::Walled(Standing::default()),
            Report::Walled(Standing { landlock: true, seccomp: true, processes: true, overlays: true }),
            Report::Exited(255),
            Report::Signaled(9),
            Report::OutOfMemory,
            Report::Gone,
        ] {
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        assert_eq!(Report::decode(*b"?0000"), None);
    }

    fn with(walls: &Walls) -> Conditions<'_> {
        Conditions { walls: Some(walls), ..Conditions::default() }
    }

    fn step(command: &str) -> Step {
        let env = vec![("A".into(), "1=2".into()), ("EMPTY".into(), "".into())];
        let time_limit = Duration::from_secs(1);
        let (leave, outputs) = (Leave::default(), Outputs::Apart);
        Step { command: command.into(), cwd: "/tmp".into(), env, time_limit, leave, outputs }
    }
}
