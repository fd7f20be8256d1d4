//! Another machine: a home of its own behind a real ssh client and server. Each connection has a server process of its
//! own, so that nothing listens.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::home::{Home, Running};

/// The name of the machine for ssh.
pub(crate) const BOX: &str = "ssh://box";
/// The same machine; its shell does not find `push`.
pub(crate) const WITHOUT_PUSH: &str = "ssh://without-push";
/// The same machine; it does not know the key of the user.
pub(crate) const WITHOUT_KEY: &str = "ssh://without-key";

/// The files of ssh, the home of this machine and that of the other one.
pub(crate) struct Machines {
    pub(crate) near: Home,
    pub(crate) far: Home,
    files: TempDir,
}

impl Machines {
    /// Creates both machines; none if the ssh server is missing. Programs here get these extra variables.
    pub(crate) fn new(variables: &[(&str, &str)]) -> Option<Self> {
        let server = ["/usr/sbin/sshd", "/usr/bin/sshd", "/usr/local/sbin/sshd"].map(Path::new);
        let server = server.into_iter().find(|path| path.exists())?;
        // A server that runs as root requires this directory, which the system's start script creates.
        if nix::unistd::geteuid().is_root() {
            let _ = fs::create_dir("/run/sshd");
        }
        let (files, far) = (TempDir::new().expect("a directory"), Home::new());
        let at = |name: &str| files.path().join(name).display().to_string();
        for key in ["host", "user", "stranger"] {
            let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)]).status();
            assert!(made.expect("ssh-keygen").success());
        }
        fs::copy(at("user.pub"), at("authorized")).expect("the authorized key");
        let host_key = fs::read_to_string(at("host.pub")).expect("a key");
        fs::write(at("known"), format!("box,without-push,without-key {host_key}")).expect("a file");
        let programs = Path::new(env!("CARGO_BIN_EXE_push")).parent().expect("a directory").display();
        for (name, path) in [("box", format!("{programs}:/usr/bin:/bin")), ("without-push", "/usr/bin:/bin".into())] {
            let text = format!(
                "HostKey {host}\nAuthorizedKeysFile {keys}\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n\
                 PasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\n\
                 SetEnv HOME={home} PATH={path}\n",
                host = at("host"),
                keys = at("authorized"),
                home = far.path().display(),
            );
            fs::write(at(name), text).expect("a file");
        }
        let config = format!(
            "Host box without-key\nProxyCommand {server} -i -f {box_config}\n\
             Host without-push\nProxyCommand {server} -i -f {without_push}\n\
             Host without-key\nIdentityFile {stranger}\n\
             Host *\nIdentityFile {user}\nIdentitiesOnly yes\nUserKnownHostsFile {known}\nStrictHostKeyChecking yes\n",
            server = server.display(),
            box_config = at("box"),
            without_push = at("without-push"),
            stranger = at("stranger"),
            user = at("user"),
            known = at("known"),
        );
        // The key that the machine knows must not be tried there.
        let config = config.replace("Host *\nIdentityFile", "Host !without-key *\nIdentityFile");
        let config = config.replace("\nIdentitiesOnly", "\nHost *\nIdentitiesOnly");
        fs::write(at("config"), config).expect("a file");
        let program = executable(files.path(), "ssh", &format!("exec ssh -F {} \"$@\"", at("config")));
        let program = program.display().to_string();
        let variables: Vec<(&str, &str)> = variables.iter().copied().chain([("PUSH_SSH", program.as_str())]).collect();
        Some(Self { near: Home::with(&variables), far, files })
    }

    /// Runs `push --host ssh://box` to its end and returns its output, if it succeeds.
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        self.near.ok(&with_host(words))
    }

    /// Starts `push --host ssh://box`.
    pub(crate) fn start(&self, words: &[&str]) -> Running {
        self.near.start(&with_host(words))
    }

    /// The ssh processes of these machines.
    pub(crate) fn ssh_processes(&self) -> Vec<i32> {
        let config = self.files.path().join("config").display().to_string();
        let is_ssh = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
            words.next().is_some_and(|program| program == "ssh") && words.any(|word| word == config)
        };
        let entries = fs::read_dir("/proc").expect("the processes").flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_ssh).collect()
    }
}

fn with_host<'a>(words: &[&'a str]) -> Vec<&'a str> {
    ["--host", BOX].into_iter().chain(words.iter().copied()).collect()
}

/// Writes a shell script.
pub(crate) fn executable(directory: &Path, name: &str, script: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a mode");
    path
}
