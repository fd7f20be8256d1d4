//! The protocol between the daemon and a supervisor.
//!
//! The daemon sends one request: a length, then fields that each end in a NUL byte. It is sent over a socket and not as
//! process arguments, which every user of the machine can read. Closing the daemon's side requests the end of all
//! processes, so a killed daemon and a cancelled run are the same case. The supervisor sends reports of a fixed size.

use std::ffi::CString;
use std::path::Path;

use super::confinement::ConfinementSpec;
use super::os;
use super::step::{Step, StepError};
use super::workspace::FileId;

/// The maximum size of a request in bytes; larger than any argument list that a system accepts.
pub(super) const REQUEST_MAX: usize = 16 * 1024 * 1024;

/// The size of a report, in bytes.
pub(super) const REPORT_LEN: usize = 5;

/// The request to start a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StepRequest {
    /// The directory in which a cgroup may be created; empty if cgroups are not used.
    pub(super) cgroup_parent: CString,
    /// The initial limit of open descriptors for the step; `None` keeps the limit of the supervisor.
    pub(super) descriptor_limit: Option<u64>,
    /// The working directory.
    pub(super) cwd: CString,
    /// The directory that must contain the working directory, with its device and inode; `None` if there is no such
    /// restriction.
    pub(super) workspace: Option<Workspace>,
    /// The argument of `/bin/sh -c`.
    pub(super) command: CString,
    /// The confinement policy; `None` if the step is not confined.
    pub(super) confinement: Option<ConfinementSpec>,
    /// The complete environment, as `NAME=value`.
    pub(super) env: Vec<CString>,
}

impl StepRequest {
    /// Decodes a request without its length prefix.
    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = body.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        let mut next = || CString::new(fields.next()?).ok();
        let (cgroup_parent, descriptor_limit, cwd, path) = (next()?, next()?, next()?, next()?);
        let (id, command) = (next()?, next()?);
        let workspace = match id.to_str().ok()? {
            "" => None,
            id => Some(Workspace { path, id: id.parse().ok()? }),
        };
        let descriptor_limit = match descriptor_limit.to_str().ok()? {
            "" => None,
            digits => Some(digits.parse().ok()?),
        };
        let confinement = ConfinementSpec::from_fields(&mut fields, os::path)?;
        let env = fields.map(CString::new).collect::<Result<_, _>>().ok()?;
        Some(Self { cgroup_parent, descriptor_limit, cwd, workspace, command, confinement, env })
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
pub(super) struct RequestOptions<'a> {
    pub(super) cgroup_parent: Option<&'a Path>,
    pub(super) descriptor_limit: Option<u64>,
    /// The directory that must contain the step's working directory, if it is known.
    pub(super) workspace: Option<(&'a Path, FileId)>,
    pub(super) confinement: Option<&'a ConfinementSpec>,
}

/// Encodes the request for a step, with a length prefix.
pub(super) fn encode_request(step: &Step, options: RequestOptions<'_>) -> Result<Vec<u8>, StepError> {
    let RequestOptions { cgroup_parent, descriptor_limit, workspace, confinement } = options;
    let mut bytes = vec![0; 4];
    let mut put = |parts: &[&[u8]], problem| {
        for cause in parts {
            if cause.contains(&0) {
                return Err(StepError::Invalid { problem });
            }
            bytes.extend_from_slice(cause);
        }
        bytes.push(0);
        Ok(())
    };
    let cgroup_parent = cgroup_parent.map_or(&b""[..], |path| path.as_os_str().as_encoded_bytes());
    put(&[cgroup_parent], "the cgroup's path contains a NUL byte")?;
    let descriptor_limit = descriptor_limit.map(|number| number.to_string()).unwrap_or_default();
    put(&[descriptor_limit.as_bytes()], "the number of descriptors contains a NUL byte")?;
    put(&[step.cwd.as_os_str().as_encoded_bytes()], "the directory contains a NUL byte")?;
    let (path, id) =
        workspace.map_or((&b""[..], String::new()), |(path, id)| (path.as_os_str().as_encoded_bytes(), id.to_string()));
    put(&[path], "the workspace's path contains a NUL byte")?;
    put(&[id.as_bytes()], "the workspace's id contains a NUL byte")?;
    put(&[step.command.as_bytes()], "the command contains a NUL byte")?;
    for field in ConfinementSpec::to_fields(confinement) {
        put(&[&field], "a path of the sandbox contains a NUL byte")?;
    }
    for (name, value) in &step.env {
        let (name, value) = (name.as_encoded_bytes(), value.as_encoded_bytes());
        if name.is_empty() || name.contains(&b'=') {
            return Err(StepError::Invalid { problem: "a variable's name is empty or contains '='" });
        }
        put(&[name, b"=", value], "a variable contains a NUL byte")?;
    }
    let too_long = StepError::Invalid { problem: "the command and its environment are too long" };
    match u32::try_from(bytes.len() - 4) {
        Ok(length) if bytes.len() - 4 <= REQUEST_MAX => bytes[..4].copy_from_slice(&length.to_le_bytes()),
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
    DirectoryFailed(i32),
    /// The shell could not be started; the errno.
    ShellFailed(i32),
    /// The confinement could not be set up.
    ConfinementFailed(ConfinementFailure),
    /// The confinement is in force, with these layers.
    Confined(ActiveLayers),
    /// The shell exited with this code.
    Exited(i32),
    /// The shell was killed by this signal.
    Signaled(i32),
    /// The step exceeded its memory limit and is being killed.
    OutOfMemory,
    /// No process of the step remains.
    TreeEmpty,
}

impl Report {
    /// Encodes the report.
    pub(super) fn encode(self) -> [u8; REPORT_LEN] {
        let (tag, number) = match self {
            Self::Started(pid) => (b'S', pid),
            Self::DirectoryFailed(errno) => (b'D', errno),
            Self::ShellFailed(errno) => (b'X', errno),
            Self::ConfinementFailed(failure) => (b'W', failure.encode()),
            Self::Confined(layers) => (b'K', layers.to_bits()),
            Self::Exited(code) => (b'E', code),
            Self::Signaled(signal) => (b'T', signal),
            Self::OutOfMemory => (b'M', 0),
            Self::TreeEmpty => (b'G', 0),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [tag, a, b, c, d]
    }

    /// Decodes a report; `None` if the bytes are not a valid report.
    pub(super) fn decode([tag, a, b, c, d]: [u8; REPORT_LEN]) -> Option<Self> {
        let number = i32::from_le_bytes([a, b, c, d]);
        match tag {
            b'S' => Some(Self::Started(number)),
            b'D' => Some(Self::DirectoryFailed(number)),
            b'X' => Some(Self::ShellFailed(number)),
            b'W' => ConfinementFailure::decode(number).map(Self::ConfinementFailed),
            b'K' => Some(Self::Confined(ActiveLayers::from_bits(number))),
            b'E' => Some(Self::Exited(number)),
            b'T' => Some(Self::Signaled(number)),
            b'M' => Some(Self::OutOfMemory),
            b'G' => Some(Self::TreeEmpty),
            _ => None,
        }
    }
}

/// The layers in force, among those that depend on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ActiveLayers {
    /// File access rules, by Landlock.
    pub(super) landlock: bool,
    /// System call filters, by seccomp.
    pub(super) seccomp: bool,
    /// A limit on the number of processes that also applies to root.
    pub(super) process_limit: bool,
    /// Private copies of caches as overlays over the caches' contents.
    pub(super) overlays: bool,
}

impl ActiveLayers {
    /// Returns the layers that are in at least one of the two.
    pub(super) const fn union(self, other: Self) -> Self {
        Self {
            landlock: self.landlock || other.landlock,
            seccomp: self.seccomp || other.seccomp,
            process_limit: self.process_limit || other.process_limit,
            overlays: self.overlays || other.overlays,
        }
    }

    fn to_bits(self) -> i32 {
        i32::from(self.landlock)
            | i32::from(self.seccomp) << 1
            | i32::from(self.process_limit) << 2
            | i32::from(self.overlays) << 3
    }

    const fn from_bits(number: i32) -> Self {
        Self {
            landlock: number & 1 != 0,
            seccomp: number & 2 != 0,
            process_limit: number & 4 != 0,
            overlays: number & 8 != 0,
        }
    }
}

/// Why the confinement could not be set up, with the errno or 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConfinementFailure {
    pub(super) cause: FailureCause,
    pub(super) errno: i32,
}

/// The cause of a confinement failure: a mechanism, or a property of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureCause {
    /// The workspace is the root of the file system.
    WorkspaceIsRoot,
    /// The workspace does not exist.
    WorkspaceIsMissing,
    /// The path of the workspace leads to another directory than when the session started.
    WorkspaceIsReplaced,
    /// The workspace lies in a hidden directory.
    WorkspaceIsHidden,
    /// A protected path is a symbolic link.
    ProtectedIsLink,
    /// The daemon's own files lie in a writable directory.
    DaemonPathIsWritable,
    /// The placeholder for a missing protected directory cannot be created.
    Placeholder,
    /// Creating namespaces.
    Namespaces,
    /// Setting up the mounts.
    Mounts,
    /// Setting up the loopback network.
    Loopback,
    /// The program bubblewrap, which writes its own error message to the step's output.
    Bubblewrap,
    /// Setting resource limits, dropping privileges, or installing Landlock and seccomp rules.
    Restrictions,
    /// Creating the private copies of caches.
    Caches,
    /// The workspace is a home directory.
    WorkspaceIsHome,
}

impl FailureCause {
    const ALL: [Self; 14] = [
        Self::WorkspaceIsRoot,
        Self::WorkspaceIsMissing,
        Self::WorkspaceIsReplaced,
        Self::WorkspaceIsHidden,
        Self::ProtectedIsLink,
        Self::DaemonPathIsWritable,
        Self::Placeholder,
        Self::Namespaces,
        Self::Mounts,
        Self::Loopback,
        Self::Bubblewrap,
        Self::Restrictions,
        Self::Caches,
        Self::WorkspaceIsHome,
    ];

    /// Describes the failure for the user.
    pub(super) const fn description(self) -> &'static str {
        match self {
            Self::WorkspaceIsRoot => "the workspace is the root of the file system",
            Self::WorkspaceIsMissing => "the workspace does not exist",
            Self::WorkspaceIsReplaced => {
                "the path of the workspace leads to another directory than when the session started; start a new \
                 session there"
            }
            Self::WorkspaceIsHidden => "the workspace lies in a directory that is hidden from commands",
            Self::ProtectedIsLink => {
                "`.git` or `.push` of the workspace, or a part of it, is a symbolic link or was removed, and cannot be \
                 protected"
            }
            Self::DaemonPathIsWritable => {
                "the workspace, or another writable directory, contains pushd's own files (its home, socket, \
                 configuration or keys); open a directory below it"
            }
            Self::Placeholder => "`.git` or `.push` of the workspace cannot be protected",
            Self::Namespaces => "user namespaces cannot be used",
            Self::Mounts => "the mounts cannot be set up",
            Self::Loopback => "the loopback network cannot be set up",
            Self::Bubblewrap => "bubblewrap failed",
            Self::Restrictions => "resource limits, Landlock rules or seccomp filters cannot be installed",
            Self::WorkspaceIsHome => {
                "the workspace is a home, of which commands see only what toolchains need; open a directory below it"
            }
            Self::Caches => "the private copies of caches cannot be created below `cache` in pushd's home",
        }
    }
}

impl ConfinementFailure {
    /// The number of errno values that the encoding reserves.
    const ERRNO_COUNT: i32 = 0x1000;

    fn encode(self) -> i32 {
        let cause = FailureCause::ALL.iter().position(|cause| *cause == self.cause).unwrap_or_default();
        i32::try_from(cause).unwrap_or_default() * Self::ERRNO_COUNT + self.errno.rem_euclid(Self::ERRNO_COUNT)
    }

    fn decode(number: i32) -> Option<Self> {
        let cause = FailureCause::ALL.get(usize::try_from(number / Self::ERRNO_COUNT).ok()?)?;
        Some(Self { cause: *cause, errno: number % Self::ERRNO_COUNT })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::confinement::{Confinement, Mechanism, StepPermissions};
    use super::super::step::OutputMode;
    use super::*;

    #[test]
    fn a_request_round_trips() {
        let id = FileId { device: 7, inode: 8 };
        let options = RequestOptions {
            cgroup_parent: Some(Path::new("/sys/fs/cgroup")),
            descriptor_limit: Some(1024),
            workspace: Some((Path::new("/w"), id)),
            confinement: None,
        };
        let bytes = encode_request(&step("echo 'a\nb'"), options).unwrap();
        let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        assert_eq!(length, bytes.len() - 4);
        let read = StepRequest::decode(&bytes[4..]).unwrap();
        assert_eq!(read.cgroup_parent.to_bytes(), b"/sys/fs/cgroup");
        assert_eq!(read.descriptor_limit, Some(1024));
        assert_eq!(read.cwd.to_bytes(), b"/tmp");
        assert_eq!(read.workspace, Some(Workspace { path: c"/w".to_owned(), id }));
        assert_eq!(read.command.to_bytes(), b"echo 'a\nb'");
        assert_eq!(read.env, [c"A=1=2".to_owned(), c"EMPTY=".to_owned()]);
    }

    #[test]
    fn a_request_without_cgroup_command_or_environment_round_trips() {
        let mut step = step("");
        step.env.clear();
        let bytes = encode_request(&step, RequestOptions::default()).unwrap();
        let read = StepRequest::decode(&bytes[4..]).unwrap();
        assert_eq!(read.workspace, None);
        assert_eq!((read.cgroup_parent.to_bytes(), read.descriptor_limit), (&b""[..], None));
        assert_eq!((read.command.to_bytes(), read.env.len()), (&b""[..], 0));
    }

    #[test]
    fn a_request_with_confinement_round_trips() {
        let confinement =
            Confinement::new("/w".into()).for_step(Mechanism::Namespaces, Path::new("/t"), &StepPermissions::default());
        let bytes = encode_request(&step("true"), options_with(&confinement)).unwrap();
        let read = StepRequest::decode(&bytes[4..]).unwrap();
        assert_eq!((read.confinement, read.env.len()), (Some(confinement), 2));
        let nowhere =
            Confinement::new("/w\0".into()).for_step(Mechanism::Rules, Path::new("/t"), &StepPermissions::default());
        assert!(matches!(encode_request(&step("true"), options_with(&nowhere)), Err(StepError::Invalid { .. })));
    }

    #[test]
    fn a_step_that_no_process_can_accept_is_refused() {
        let refused =
            |step: &Step| matches!(encode_request(step, RequestOptions::default()), Err(StepError::Invalid { .. }));
        assert!(refused(&step("a\0b")) && refused(&step(&"x".repeat(REQUEST_MAX))));
        for name in ["", "A=B", "A\0"] {
            let mut step = step("true");
            step.env = vec![(name.into(), "v".into())];
            assert!(refused(&step), "{name:?}");
        }
    }

    #[test]
    fn a_truncated_request_is_not_decoded() {
        let bytes = encode_request(&step("true"), RequestOptions::default()).unwrap();
        assert_eq!(StepRequest::decode(&bytes[4..bytes.len() - 1]), None);
        assert_eq!(StepRequest::decode(b""), None);
        assert_eq!(StepRequest::decode(b"\0\0/\0"), None);
    }

    #[test]
    fn reports_round_trip() {
        for report in [
            Report::Started(77),
            Report::DirectoryFailed(2),
            Report::ShellFailed(13),
            Report::ConfinementFailed(ConfinementFailure { cause: FailureCause::WorkspaceIsRoot, errno: 0 }),
            Report::ConfinementFailed(ConfinementFailure { cause: FailureCause::Restrictions, errno: 95 }),
            Report::Confined(ActiveLayers::default()),
            Report::Confined(ActiveLayers { landlock: true, seccomp: true, process_limit: true, overlays: true }),
            Report::Exited(255),
            Report::Signaled(9),
            Report::OutOfMemory,
            Report::TreeEmpty,
        ] {
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        assert_eq!(Report::decode(*b"?0000"), None);
    }

    fn options_with(confinement: &ConfinementSpec) -> RequestOptions<'_> {
        RequestOptions { confinement: Some(confinement), ..RequestOptions::default() }
    }

    fn step(command: &str) -> Step {
        let env = vec![("A".into(), "1=2".into()), ("EMPTY".into(), "".into())];
        let time_limit = Duration::from_secs(1);
        let (leave, outputs) = (StepPermissions::default(), OutputMode::Separate);
        Step { command: command.into(), cwd: "/tmp".into(), env, time_limit, permissions: leave, output_mode: outputs }
    }
}
