//! Programs that are known to be dangerous.

use super::finding::{CommandContext, Finding};
use super::level::Risk;
use super::words::{has_option, operands};

/// Assesses a dangerous program; `None` for any other.
pub(super) fn assess(name: &str, args: &[String], context: &CommandContext<'_>) -> Option<Finding> {
    let (risk, reason) = classify(name, args)?;
    let mut finding = Finding::with_risk(risk);
    finding.reason = Some(reason);
    operands(args, "").into_iter().for_each(|word| finding.add_mention(word, context));
    Some(finding)
}

fn classify(name: &str, args: &[String]) -> Option<(Risk, &'static str)> {
    let words = operands(args, "");
    let first = words.first().copied().unwrap_or_default();
    let has_word = |choices: &[&str]| words.iter().any(|word| choices.contains(word));
    Some(match name {
        "push" => return push_client(first),
        name if DESTROYERS.contains(&name) || name.starts_with("mkfs") || name.starts_with("newfs") => {
            (Risk::Critical, "it may destroy a disk or stop the machine")
        }
        name if ACCOUNTS.contains(&name) => (Risk::Critical, "it changes accounts or privileges"),
        "setenforce" | "aa-teardown" | "aa-disable" | "csrutil" | "spctl" | "auditctl" | "kextload" => {
            (Risk::Critical, "it disables a security mechanism")
        }
        "ufw" if has_word(&["disable", "reset"]) => (Risk::Critical, "it disables a security mechanism"),
        "iptables" | "ip6tables" | "nft" | "pfctl" | "ufw" | "firewall-cmd" => {
            (Risk::Critical, "it changes the firewall")
        }
        "crontab" if !has_option(args, "", Some('l')) => (Risk::Critical, "it schedules programs to run later"),
        "at" | "batch" | "systemd-run" | "launchctl" | "schtasks" => {
            (Risk::Critical, "it schedules programs to run later")
        }
        "systemctl" | "service" | "loginctl" | "rc-service" => services(args, first),
        "kill" if args.iter().skip(1).any(|arg| arg == "-1") => (Risk::High, "it ends every process"),
        "killall" | "pkill" | "xkill" => (Risk::High, "it ends processes by their name"),
        name if CONTAINERS.contains(&name) => (Risk::High, "it starts programs outside the sandbox"),
        name if KEYS.contains(&name) => (Risk::High, "it accesses keys or secrets"),
        "sysctl" | "mount" | "umount" | "swapoff" | "losetup" | "nsenter" | "unshare" | "chroot" | "ptrace" | "gdb"
        | "strace" | "ltrace" | "bpftrace" | "perf" | "dbus-send" | "gdbus" | "busctl" | "xdg-open" | "open"
        | "screen" | "tmux" | "script" | "expect" => (Risk::High, "it has effects outside the workspace"),
        _ => return None,
    })
}

/// Classifies `push`, the client of the daemon: an agent must not answer its own approvals.
fn push_client(verb: &str) -> Option<(Risk, &'static str)> {
    let looks = ["sessions", "show", "log", "search", "stats", "doctor", "wait", "completions", "man"];
    Some(match verb {
        verb if looks.contains(&verb) => (Risk::High, "it reads the daemon's sessions"),
        _ => (Risk::Critical, "it controls the daemon that supervises it"),
    })
}

fn services(args: &[String], first: &str) -> (Risk, &'static str) {
    let looks = ["status", "show", "list-units", "list-unit-files", "is-active", "is-enabled", "cat"];
    let guards = ["apparmor", "auditd", "firewalld", "ufw", "fail2ban", "selinux"];
    if looks.contains(&first) || args.iter().any(|arg| looks.contains(&arg.as_str())) {
        return (Risk::Medium, "it reads the state of services");
    }
    if args.iter().any(|arg| guards.iter().any(|guard| arg.starts_with(guard))) {
        return (Risk::Critical, "it disables a security mechanism");
    }
    match first {
        "enable" | "link" | "edit" | "set-default" | "isolate" | "poweroff" | "reboot" | "halt" | "kexec" => {
            (Risk::Critical, "it schedules programs to run later")
        }
        _ => (Risk::High, "it changes services"),
    }
}

const DESTROYERS: [&str; 22] = [
    "shutdown",
    "reboot",
    "halt",
    "poweroff",
    "init",
    "telinit",
    "fdisk",
    "sfdisk",
    "gdisk",
    "parted",
    "wipefs",
    "blkdiscard",
    "cryptsetup",
    "mkswap",
    "lvremove",
    "vgremove",
    "pvremove",
    "mdadm",
    "zpool",
    "zfs",
    "diskutil",
    "hdparm",
];
const ACCOUNTS: [&str; 17] = [
    "passwd",
    "chpasswd",
    "useradd",
    "userdel",
    "usermod",
    "groupadd",
    "groupdel",
    "adduser",
    "deluser",
    "visudo",
    "setcap",
    "insmod",
    "rmmod",
    "modprobe",
    "update-alternatives",
    "dscl",
    "ssh-copy-id",
];
const CONTAINERS: [&str; 14] = [
    "docker",
    "podman",
    "nerdctl",
    "kubectl",
    "k3s",
    "minikube",
    "terraform",
    "tofu",
    "ansible",
    "ansible-playbook",
    "vagrant",
    "virsh",
    "qemu-system-x86_64",
    "lxc",
];
const KEYS: [&str; 8] = ["security", "secret-tool", "pass", "gpg", "gpg2", "ssh-add", "ssh-keygen", "keyctl"];
