//! The protocol between the daemon and a supervisor.
//!
//! The daemon sends one request: a length, then fields that each end in a NUL byte. It is sent over a socket and not as
//! process arguments, which every user of the machine can read. Closing the daemon's side requests the end of all
//! processes, so a killed daemon and a cancelled run are the same case. The supervisor sends reports of a fixed size.

use std::ffi::CString;
use std::path::Path;

use super::confine::Walls;
use super::ground::FileId;
use super::os;
use super::step::{Step, StepError};

/// The maximum size of a request in bytes; larger than any argument list that a system accepts.
pub(super) const ORDER_MAX: usize = 16 * 1024 * 1024;

/// The size of a report, in bytes.
pub(super) const REPORT_LEN: usize = 5;

/// The request to start a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// The directory in which a cgroup may be created; empty if cgroups are not used.
    pub(super) cgroups: CString,
    /// The initial limit of open descriptors for the step; `None` keeps the limit of the supervisor.
    pub(super) descriptors: Option<u64>,
    /// The working directory.
    pub(super) cwd: CString,
    /// The directory that must contain the working directory, with its device and inode; `None` if there is no such
    /// restriction.
    pub(super) workspace: Option<Workspace>,
    /// The argument of `/bin/sh -c`.
    pub(super) command: CString,
    /// The confinement policy; `None` if the step is not confined.
    pub(super) walls: Option<Walls>,
    /// The complete environment, as `NAME=value`.
    pub(super) env: Vec<CString>,
}

impl Order {
    /// Decodes a request without its length prefix.
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

/// The workspace of a step, as recorded by its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Workspace {
    /// Its path, without symbolic links.
    pub(super) path: CString,
    /// Its device and inode.
    pub(super) id: FileId,
}

/// The parts of a request that do not come from the step itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Conditions<'a> {
    pub(super) cgroups: Option<&'a Path>,
    pub(super) descriptors: Option<u64>,
    /// The directory that must contain the step's working directory, if it is known.
    pub(super) workspace: Option<(&'a Path, FileId)>,
    pub(super) walls: Option<&'a Walls>,
}

/// Encodes the request for a step, with a length prefix.
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
    put(&[id.as_bytes()], "the workspace's id contains a NUL byte")?;
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

/// A report from a supervisor to the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// The shell runs, with this process id.
    Started(i32),
    /// The working directory could not be entered; the errno.
    NoDirectory(i32),
    /// The shell could not be started; the errno.
    NoShell(i32),
    /// The confinement could not be set up.
    NoWalls(Obstacle),
    /// The confinement is in force, with these layers.
    Walled(Standing),
    /// The shell exited with this code.
    Exited(i32),
    /// The shell was killed by this signal.
    Signaled(i32),
    /// The step exceeded its memory limit and is being killed.
    OutOfMemory,
    /// No process of the step remains.
    Gone,
}

impl Report {
    /// Encodes the report.
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

    /// Decodes a report; `None` if the bytes are not a valid report.
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

/// The layers in force, among those that depend on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Standing {
    /// File access rules, by Landlock.
    pub(super) landlock: bool,
    /// System call filters, by seccomp.
    pub(super) seccomp: bool,
    /// A limit on the number of processes that also applies to root.
    pub(super) processes: bool,
    /// Private copies of caches as overlays over the caches' contents.
    pub(super) overlays: bool,
}

impl Standing {
    /// Returns the layers that are in at least one of the two.
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

/// Why the confinement could not be set up, with the errno or 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) part: Part,
    pub(super) errno: i32,
}

/// The cause of a confinement failure: a mechanism, or a property of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The workspace is the root of the file system.
    Root,
    /// The workspace does not exist.
    Missing,
    /// The path of the workspace leads to another directory than when the session started.
    Replaced,
    /// The workspace lies in a hidden directory.
    Hidden,
    /// A protected path is a symbolic link.
    Link,
    /// The daemon's own files lie in a writable directory.
    Own,
    /// The placeholder for a missing protected directory cannot be created.
    Guard,
    /// Creating namespaces.
    Namespaces,
    /// Setting up the mounts.
    Mounts,
    /// Setting up the loopback network.
    Loopback,
    /// The program bubblewrap, which writes its own error message to the step's output.
    Bubblewrap,
    /// Setting resource limits, dropping privileges, or installing Landlock and seccomp rules.
    Rules,
    /// Creating the private copies of caches.
    Caches,
    /// The workspace is a home directory.
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

    /// Describes the failure for the user.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Root => "the workspace is the root of the file system",
            Self::Missing => "the workspace does not exist",
            Self::Replaced => {
                "the path of the workspace leads to another directory than when the session started; start a new \
                 session there"
            }
            Self::Hidden => "the workspace lies in a directory that is hidden from commands",
            Self::Link => {
                "`.git` or `.push` of the workspace, or a part of it, is a symbolic link or was removed, and cannot be \
                 protected"
            }
            Self::Own => {
                "the workspace, or another writable directory, contains pushd's own files (its home, socket, \
                 configuration or keys); open a directory below it"
            }
            Self::Guard => "`.git` or `.push` of the workspace cannot be protected",
            Self::Namespaces => "user namespaces cannot be used",
            Self::Mounts => "the mounts cannot be set up",
            Self::Loopback => "the loopback network cannot be set up",
            Self::Bubblewrap => "bubblewrap failed",
            Self::Rules => "resource limits, Landlock rules or seccomp filters cannot be installed",
            Self::Home => {
                "the workspace is a home, of which commands see only what toolchains need; open a directory below it"
            }
            Self::Caches => "the private copies of caches cannot be created below `cache` in pushd's home",
        }
    }
}

impl Obstacle {
    /// The number of errno values that the encoding reserves.
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
