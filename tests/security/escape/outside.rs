//! The state outside of the sandbox: files that attempts must not change, and listeners that they must not reach.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The text that no confined command may read.
pub(crate) const SECRET: &str = "s3cr3t-w0rd-of-the-world-outside";

/// The sockets that listen outside.
pub(crate) struct Listeners {
    streams: Vec<(&'static str, UnixListener)>,
    messages: UnixDatagram,
    port: TcpListener,
    datagrams: UdpSocket,
}

impl Listeners {
    pub(crate) fn start(home: &Path, work: &Path, mark: &str) -> Self {
        let abstract_name = SocketAddr::from_abstract_name(mark).unwrap();
        let streams = vec![
            ("the socket in the home", UnixListener::bind(home.join("agent.sock")).unwrap()),
            ("the socket in the workspace", UnixListener::bind(work.join("dev.sock")).unwrap()),
            ("the daemon's socket", UnixListener::bind(home.join(".push/run/pushd.sock")).unwrap()),
            ("the abstract socket", UnixListener::bind_addr(&abstract_name).unwrap()),
        ];
        for (_, listener) in &streams {
            listener.set_nonblocking(true).unwrap();
        }
        let messages = UnixDatagram::bind(work.join("log.sock")).unwrap();
        messages.set_nonblocking(true).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        port.set_nonblocking(true).unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        datagrams.set_nonblocking(true).unwrap();
        Self { streams, messages, port, datagrams }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.local_addr().unwrap().port()
    }

    pub(crate) fn udp_port(&self) -> u16 {
        self.datagrams.local_addr().unwrap().port()
    }

    /// The listener that was reached since the last call.
    pub(crate) fn reached(&self) -> Option<&'static str> {
        let stream = self.streams.iter().find(|(_, listener)| listener.accept().is_ok());
        let buffer = &mut [0; 64];
        stream
            .map(|(name, _)| *name)
            .or_else(|| self.messages.recv(buffer).is_ok().then_some("the socket for messages"))
            .or_else(|| self.port.accept().is_ok().then_some("the port"))
            .or_else(|| self.datagrams.recv(buffer).is_ok().then_some("the port for datagrams"))
    }
}

/// A process outside, with a secret.
pub(crate) struct Victim {
    child: Child,
    /// What it may do, before any attempt.
    conditions: String,
}

impl Victim {
    pub(crate) fn start(cwd: &Path) -> Self {
        let child = Command::new("sleep")
            .arg("100000")
            .env_clear()
            .env("SECRET", SECRET)
            .env("PATH", std::env::var_os("PATH").unwrap())
            .current_dir(cwd)
            .stdin(Stdio::null())
            .spawn();
        let child = child.unwrap();
        let conditions = conditions(child.id());
        Self { child, conditions }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What happened to it.
    pub(crate) fn damage(&self) -> Option<String> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("gone").trim();
        let (state, tracer) = (field("State:"), field("TracerPid:"));
        let well = state.starts_with(['S', 'R', 'D']) && tracer == "0";
        if !well {
            return Some(format!("the victim is {state}, traced by {tracer}"));
        }
        let now = conditions(self.pid());
        (now != self.conditions).then(|| format!("the victim had {} and has {now}", self.conditions))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The limits, priorities and processors of a process.
fn conditions(pid: u32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let status = read("status");
    let processors = status.lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap_or_default().to_owned();
    let stat = read("stat");
    // Numbered after the name, which is in parentheses: priority, nice value; real-time priority and policy.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let numbers = [15, 16, 37, 38].map(|field| fields.get(field).copied().unwrap_or("none"));
    format!("{} {processors} {numbers:?} {}", read("limits"), read("oom_score_adj"))
}

/// Describes a file tree: kinds, modes, owners, modification times of files, contents.
pub(crate) fn describe_tree(root: &Path, leave_out: &[&Path]) -> BTreeMap<PathBuf, String> {
    let mut seen = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        if leave_out.contains(&path.as_path()) {
            continue;
        }
        let Ok(there) = fs::symlink_metadata(&path) else { continue };
        let mut description = format!("{:?} {:o} {}", there.file_type(), there.permissions().mode(), there.uid());
        if there.is_file() {
            let content = fs::read(&path).unwrap_or_default();
            description.push_str(&format!(" {} {}", there.mtime(), String::from_utf8_lossy(&content)));
        }
        if there.is_dir() {
            todo.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
        seen.insert(path, description);
    }
    seen
}

/// The first difference between two descriptions.
pub(crate) fn first_difference(
    before: &BTreeMap<PathBuf, String>,
    after: &BTreeMap<PathBuf, String>,
) -> Option<String> {
    let changed = before.iter().find(|(path, description)| after.get(*path) != Some(description)).map(|(path, _)| path);
    let new = after.keys().find(|path| !before.contains_key(*path));
    changed.or(new).map(|path| format!("{} was {:?} and is {:?}", path.display(), before.get(path), after.get(path)))
}

/// Settings of the machine, and files in its directories whose name contains the mark.
pub(crate) fn machine_state(mark: &str) -> Vec<String> {
    let settings = ["core_pattern", "modprobe", "hostname", "domainname"];
    let mut seen: Vec<String> = settings
        .iter()
        .map(|name| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default())
        .collect();
    seen.push(fs::read_to_string("/proc/self/mounts").unwrap_or_default());
    for dir in ["/", "/tmp", "/var/tmp", "/dev/shm", "/etc", "/etc/cron.d", "/usr/bin", "/var/spool/cron"] {
        let name = Path::new(dir).join(format!("escaped-{mark}"));
        seen.push(format!("{} {}", name.display(), name.exists()));
        let _mended = fs::remove_file(name);
    }
    seen
}

/// The processes with the mark in their environment.
pub(crate) fn marked_processes(mark: &str) -> Vec<u32> {
    let wanted = format!("MARK={mark}");
    let carries = |pid: &u32| {
        let mut environment = Vec::new();
        let read =
            fs::File::open(format!("/proc/{pid}/environ")).map(|file| file.take(1 << 20).read_to_end(&mut environment));
        read.is_ok() && environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(carries).collect()
}
