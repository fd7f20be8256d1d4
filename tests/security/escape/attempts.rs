//! The attempts: name, script, and whether the script may run without confinement.
//!
//! A script prints `ESCAPED` when it can tell that it succeeded; everything else is checked from outside. Scripts use
//! these environment variables: `WORK` and `FRESH` (workspaces), `OUT` and `HOME` (outside), `VICTIM` (a process),
//! `MARK` (a unique part of names), `CLIENT` (the client program; variables that begin with `PUSH` are removed), and
//! addresses of listeners.

/// What an attempt attacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Files,
    Protected,
    Processes,
    Sockets,
    Machine,
    Resources,
}

/// Whether an attempt may run without confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnconfinedRun {
    /// It touches only files and processes of the test, and then succeeds.
    Harmless,
    /// It could damage the machine, or needs privileges that the test may not have.
    Never,
}

/// The workspace in which an attempt starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartDir {
    /// A workspace with a repository.
    Work,
    /// An empty workspace.
    Fresh,
}

pub(crate) struct Attempt {
    pub(crate) name: &'static str,
    pub(crate) group: Group,
    pub(crate) start_dir: StartDir,
    pub(crate) unconfined: UnconfinedRun,
    pub(crate) script: &'static str,
}

const fn attempt(group: Group, unconfined: UnconfinedRun, name: &'static str, script: &'static str) -> Attempt {
    Attempt { name, group, start_dir: StartDir::Work, unconfined, script }
}

const fn fresh(name: &'static str, script: &'static str) -> Attempt {
    Attempt { name, group: Group::Protected, start_dir: StartDir::Fresh, unconfined: UnconfinedRun::Harmless, script }
}

use Group::{Files, Machine, Processes, Protected, Resources, Sockets};
use UnconfinedRun::{Harmless, Never};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    // Files outside.
    attempt(Files, Harmless, "write outside", "echo x > $OUT/escaped"),
    attempt(Files, Harmless, "write outside by ..", "echo x > ../outside/escaped"),
    attempt(Files, Harmless, "a link to a file outside", "ln -s $OUT/file link; echo x > link"),
    attempt(Files, Harmless, "a link to a directory outside", "ln -s $OUT dir; echo x > dir/escaped"),
    attempt(Files, Harmless, "by /proc/self/root", "echo x > /proc/self/root$OUT/escaped"),
    attempt(Files, Harmless, "by /proc/self/cwd", "cd -P /proc/self/cwd/.. && echo x > outside/escaped"),
    attempt(Files, Never, "by /proc/1/root", "echo x > /proc/1/root$OUT/escaped"),
    attempt(
        Files,
        Never,
        "by the roots of all processes",
        "for root in /proc/[0-9]*/root; do echo x > $root$OUT/escaped; cat $root$HOME/.netrc; done",
    ),
    attempt(Files, Harmless, "a file opened to be read, opened again", "exec 5< $OUT/file; echo x > /proc/self/fd/5"),
    attempt(Files, Harmless, "a hard link to a file outside", "ln $OUT/file hard && echo x >> hard"),
    attempt(Files, Harmless, "a hard link to a secret", "ln $HOME/.netrc stolen && cat stolen"),
    attempt(Files, Harmless, "move a file out", "echo x > f && mv f $OUT/escaped"),
    attempt(Files, Harmless, "move the workspace away", "mv $WORK $OUT/moved"),
    attempt(Files, Harmless, "delete outside", "rm -f $OUT/file"),
    attempt(Files, Harmless, "truncate a file outside", ": > $OUT/file"),
    attempt(Files, Harmless, "make a file outside writable for all", "chmod 777 $OUT/file"),
    attempt(Files, Harmless, "change times outside", "touch -d @0 $OUT/file"),
    attempt(
        Files,
        Harmless,
        "exchange a directory for a link while writing",
        "mkdir d; (while :; do rm -rf d; ln -s $OUT d; rm d; mkdir d; done) 2>/dev/null & i=0
         while [ $i -lt 20000 ] && [ ! -e $OUT/escaped ]; do echo x > d/escaped; i=$((i+1)); done 2>/dev/null; kill $!",
    ),
    attempt(Files, Harmless, "a copy of the shell", "cp /bin/sh s && ./s -c 'echo x > $OUT/escaped'"),
    attempt(Files, Harmless, "a shell in memory", "call memory_shell"),
    attempt(
        Files,
        Harmless,
        "a shell with the setuid bit",
        "cp /bin/sh s && chmod 6755 s && ./s -p -c 'echo x > $OUT/escaped'",
    ),
    attempt(
        Files,
        Never,
        "inherited descriptors",
        "for n in 3 4 5 6 7 8 9 10 11 12; do cat <&$n; echo x > /proc/self/fd/$n/escaped; done",
    ),
    attempt(Files, Harmless, "the startup file of the shell", "echo 'echo x' >> $HOME/.bashrc"),
    attempt(Files, Harmless, "the startup file of the login shell", "echo 'echo x' >> $HOME/.profile"),
    attempt(Files, Harmless, "a startup file that does not exist", "echo x > $HOME/.zshenv"),
    attempt(Files, Harmless, "a program on the path", "printf '#!/bin/sh\\n' > $HOME/bin/ls"),
    attempt(
        Files,
        Harmless,
        "a service of the user",
        "mkdir -p $HOME/.config/systemd/user && echo x > $HOME/.config/systemd/user/escaped.service",
    ),
    attempt(
        Files,
        Harmless,
        "a program of the session",
        "mkdir -p $HOME/.config/autostart && echo x > $HOME/.config/autostart/escaped.desktop",
    ),
    attempt(Files, Harmless, "the configuration of push", "echo x > $HOME/.config/push/config.toml"),
    attempt(Files, Harmless, "keys of models", "cat $HOME/.config/push/keys.toml"),
    attempt(Files, Harmless, "a private key", "cat $HOME/.ssh/id_ed25519"),
    attempt(Files, Harmless, "names of private keys", "ls -A $HOME/.ssh | grep id_ && echo ESCAPED"),
    attempt(Files, Harmless, "passwords of hosts", "cat $HOME/.netrc"),
    attempt(Files, Harmless, "a link to a private key", "ln -s $HOME/.ssh/id_ed25519 key; cat key"),
    attempt(Files, Harmless, "everything below the home", "grep -r . $HOME 2>/dev/null"),
    attempt(Files, Harmless, "the daemon's database", "cat $HOME/.push/state/pushd.db"),
    attempt(Files, Harmless, "write the daemon's database", "echo x >> $HOME/.push/state/pushd.db"),
    attempt(Files, Harmless, "the daemon's log", "cat $HOME/.push/logs/pushd.log"),
    attempt(Files, Harmless, "a token of the daemon", "cat $HOME/.push/state/token"),
    attempt(Files, Harmless, "remove the daemon's socket", "rm -f $HOME/.push/run/pushd.sock"),
    attempt(Files, Harmless, "move the daemon's home", "mv $HOME/.push $HOME/.moved"),
    attempt(Files, Harmless, "the machine's /tmp", "echo x > /tmp/escaped-$MARK"),
    attempt(Files, Harmless, "the machine's shared memory", "echo x > /dev/shm/escaped-$MARK"),
    attempt(Files, Never, "the machine's /var/tmp", "echo x > /var/tmp/escaped-$MARK"),
    attempt(Files, Never, "the program itself", "echo x >> $CLIENT; cp /bin/true $CLIENT; echo x >> /proc/1/exe"),
    // Files that git or push execute or trust.
    attempt(Protected, Harmless, "a hook of git", "echo x > .git/hooks/pre-commit"),
    attempt(Protected, Harmless, "the configuration of git", "echo x >> .git/config"),
    attempt(Protected, Harmless, "git's own way to its configuration", "git config core.fsmonitor ./evil"),
    attempt(Protected, Harmless, "the repository by /proc/self/cwd", "echo x >> /proc/self/cwd/.git/config"),
    attempt(Protected, Harmless, "a link to the repository", "ln -s .git g; echo x >> g/config"),
    attempt(Protected, Harmless, "a hard link to git's configuration", "ln .git/config c && echo x >> c"),
    attempt(Protected, Harmless, "another repository in its place", "mv .git g && mkdir .git && echo x > .git/config"),
    attempt(Protected, Harmless, "a link in place of the repository", "mv .git g; ln -s g .git"),
    attempt(Protected, Harmless, "delete the repository", "rm -rf .git"),
    attempt(Protected, Never, "unmount the repository", "umount .git && echo ESCAPED; echo x >> .git/config"),
    attempt(Protected, Harmless, "the project's own rules", "echo x > .push/config.toml"),
    attempt(
        Protected,
        Harmless,
        "other rules in their place",
        "mv .push p && mkdir .push && echo x > .push/config.toml",
    ),
    fresh("a repository that is not there", "mkdir .git; mkdir -p .git/hooks && echo x > .git/hooks/pre-commit"),
    fresh("a repository of git's making", "git init -q ."),
    fresh("a file in place of a repository", "rmdir .git; echo 'gitdir: evil' > .git"),
    fresh("a link in place of a missing repository", "rmdir .git; mkdir evil; ln -sfn evil .git"),
    fresh("a directory renamed to a repository", "mkdir -p g/hooks && echo x > g/hooks/h; rmdir .git; mv -T g .git"),
    fresh("rules that are not there", "mkdir -p .push && echo x > .push/config.toml"),
    // Processes outside.
    attempt(Processes, Harmless, "kill a process outside", "kill -9 $VICTIM"),
    // A process stops when it runs next, so that the attempt waits for it where the signal was sent.
    attempt(
        Processes,
        Harmless,
        "stop a process outside",
        "kill -STOP $VICTIM && until grep -q '^State:.T' /proc/$VICTIM/status; do :; done",
    ),
    attempt(Processes, Harmless, "see the processes outside", "cat /proc/$VICTIM/cmdline && echo ESCAPED"),
    attempt(Processes, Harmless, "the environment of a process outside", "cat /proc/$VICTIM/environ"),
    attempt(Processes, Harmless, "the environments of all processes", "cat /proc/[0-9]*/environ"),
    attempt(Processes, Harmless, "the directory of a process outside", "echo x > /proc/$VICTIM/cwd/escaped"),
    attempt(Processes, Harmless, "the memory of a process outside", "head -c 1 /proc/$VICTIM/maps && echo ESCAPED"),
    attempt(Processes, Harmless, "trace a process outside", "call trace_victim"),
    attempt(Processes, Never, "read the memory of a process outside", "call read_victim"),
    attempt(Processes, Harmless, "name a process outside", "call name_victim"),
    attempt(Processes, Never, "take a descriptor of another process", "call take_descriptor"),
    attempt(
        Processes,
        Never,
        "enter the namespaces of a process outside",
        "nsenter -t $VICTIM -m true && echo ESCAPED; nsenter -t 1 -m true && echo ESCAPED",
    ),
    attempt(Processes, Never, "kill the first process inside", "kill -9 1; kill -TERM 1; kill -9 $PPID"),
    // Sockets outside.
    attempt(Sockets, Harmless, "a socket in the home", "call connect $HOME/agent.sock"),
    attempt(Sockets, Harmless, "a socket in the workspace", "call connect $WORK/dev.sock"),
    attempt(Sockets, Harmless, "the daemon's socket", "call connect $HOME/.push/run/pushd.sock"),
    attempt(Sockets, Harmless, "the daemon's socket by a link", "ln -s $HOME/.push p; call connect p/run/pushd.sock"),
    attempt(
        Sockets,
        Never,
        "the daemon's socket by /proc",
        "for r in /proc/[0-9]*/root; do call connect $r$HOME/.push/run/pushd.sock; done",
    ),
    attempt(Sockets, Harmless, "an abstract socket", "call connect_abstract $ABSTRACT"),
    attempt(Sockets, Harmless, "messages to a socket in the workspace", "call send $WORK/log.sock"),
    attempt(Sockets, Harmless, "messages from one end of a socket pair", "call send_from_pair $WORK/log.sock"),
    attempt(Sockets, Harmless, "the machine's loopback", "call connect_port 127.0.0.1 $PORT"),
    attempt(Sockets, Harmless, "the machine's loopback by IPv6", "call connect_port ::ffff:127.0.0.1 $PORT"),
    attempt(Sockets, Harmless, "a datagram on the machine's loopback", "call send_port $UDP_PORT"),
    attempt(Sockets, Never, "sockets of services", "find /run /var/run -type s | grep . && echo ESCAPED"),
    attempt(Sockets, Never, "sockets of virtual machines", "call socket_vsock"),
    attempt(Sockets, Never, "raw packets", "call socket_packet"),
    attempt(
        Sockets,
        Never,
        "addresses of agents and buses",
        "env | grep -E '^(SSH_AUTH_SOCK|DBUS|DISPLAY|PUSH_|XDG_RUNTIME|TMUX)' && echo ESCAPED",
    ),
    attempt(
        Sockets,
        Never,
        "approve by the client",
        "$CLIENT approve; $CLIENT approvals; $CLIENT daemon status && echo ESCAPED",
    ),
    // The machine.
    attempt(Machine, Never, "the core dump handler", ": > /proc/sys/kernel/core_pattern && echo ESCAPED"),
    attempt(Machine, Never, "the kernel's module loader", ": > /proc/sys/kernel/modprobe && echo ESCAPED"),
    attempt(Machine, Never, "the system request key", ": > /proc/sysrq-trigger && echo ESCAPED"),
    attempt(
        Machine,
        Never,
        "any setting of the kernel",
        "for f in $(find /proc/sys -type f -perm -200 2>/dev/null | head -300); do : >> $f && echo ESCAPED; done 2>/dev/null",
    ),
    attempt(
        Machine,
        Never,
        "the release agent of a cgroup",
        "for f in $(find /sys/fs/cgroup -name release_agent -o -name notify_on_release -o -name cgroup.procs | head -50); do : >> $f && echo ESCAPED; done",
    ),
    attempt(
        Machine,
        Never,
        "a cgroup of its own",
        "for d in /sys/fs/cgroup /sys/fs/cgroup/*; do mkdir $d/escaped-$MARK && echo ESCAPED; done",
    ),
    attempt(
        Machine,
        Never,
        "any setting of a device",
        "for f in $(find /sys -xdev -type f -perm -200 2>/dev/null | head -300); do : >> $f && echo ESCAPED; done 2>/dev/null",
    ),
    attempt(
        Machine,
        Never,
        "the machine's memory",
        "head -c 1 /dev/mem && echo ESCAPED; head -c 1 /dev/kmem && echo ESCAPED; head -c 1 /proc/kcore && echo ESCAPED",
    ),
    attempt(
        Machine,
        Never,
        "the kernel's log",
        "echo escaped > /dev/kmsg && echo ESCAPED; head -c 1 /proc/kmsg && echo ESCAPED",
    ),
    attempt(
        Machine,
        Never,
        "disks",
        "for d in /dev/vd* /dev/sd* /dev/nvme* /dev/loop* /dev/fuse; do [ -e $d ] && echo ESCAPED; done",
    ),
    attempt(Machine, Never, "a device of its own", "mknod n c 1 1 && echo ESCAPED; mknod b b 254 0 && echo ESCAPED"),
    attempt(
        Machine,
        Never,
        "a device of its own in /tmp",
        "mknod /tmp/n c 1 1 && echo ESCAPED; mknod /dev/shm/n c 1 1 && echo ESCAPED",
    ),
    attempt(Machine, Never, "a mount", "mount -t tmpfs x /mnt && echo ESCAPED; mount --bind $OUT . && echo ESCAPED"),
    attempt(
        Machine,
        Never,
        "a writable root",
        "mount -o remount,rw / && echo ESCAPED; mount -o remount,rw $HOME && echo ESCAPED",
    ),
    attempt(
        Machine,
        Never,
        "unmount the mounts that hide files",
        "umount $HOME/.ssh; umount -l $HOME/.push; umount -l /run; cat $HOME/.ssh/id_ed25519",
    ),
    attempt(Machine, Harmless, "nested namespaces", "unshare -Ur true && echo ESCAPED"),
    attempt(
        Machine,
        Never,
        "nested mounts",
        "unshare -Urm mount --bind $OUT . && echo ESCAPED; unshare -m true && echo ESCAPED",
    ),
    attempt(Machine, Never, "chroot", "chroot . /bin/true && echo ESCAPED; chroot / true && echo ESCAPED"),
    attempt(Machine, Never, "privileged system calls", "call machine_calls"),
    attempt(Machine, Harmless, "a new process in new namespaces", "call clone_namespaces"),
    attempt(Machine, Harmless, "io_uring", "call io_uring"),
    attempt(Machine, Never, "system calls of another architecture", "call foreign_abis"),
    attempt(Machine, Never, "injecting input into a terminal", "call type_into_terminal"),
    attempt(Machine, Never, "the name of the machine", "hostname escaped && echo ESCAPED"),
    attempt(
        Machine,
        Never,
        "become another user",
        "sudo -n true && echo ESCAPED; setpriv --reuid 1234 true && echo ESCAPED; su -c true && echo ESCAPED",
    ),
    attempt(
        Machine,
        Never,
        "capabilities of root",
        "grep -E '^Cap(Prm|Eff|Bnd|Amb)' /proc/self/status | grep -vE '0{16}$' && echo ESCAPED; grep -q 'NoNewPrivs:.1' /proc/self/status || echo ESCAPED",
    ),
    attempt(
        Machine,
        Never,
        "a cron job",
        "(: > /etc/cron.d/escaped-$MARK) && echo ESCAPED; (: > /var/spool/cron/escaped-$MARK) && echo ESCAPED; (: > /var/spool/cron/crontabs/escaped-$MARK) && echo ESCAPED",
    ),
    attempt(Machine, Never, "a preloaded library for every program", "(: >> /etc/ld.so.preload) && echo ESCAPED"),
    attempt(
        Machine,
        Never,
        "the machine's accounts",
        "(: >> /etc/passwd) && echo ESCAPED; (: >> /etc/sudoers) && echo ESCAPED; (: > /etc/escaped-$MARK) && echo ESCAPED",
    ),
    attempt(
        Machine,
        Never,
        "programs of the machine",
        "(: > /usr/bin/escaped-$MARK) && echo ESCAPED; (: > /usr/local/bin/escaped-$MARK) && echo ESCAPED; (: >> /bin/sh) && echo ESCAPED",
    ),
    attempt(
        Machine,
        Never,
        "exemption from the out-of-memory killer",
        "(echo -1000 > /proc/self/oom_score_adj) && echo ESCAPED",
    ),
    // Resources.
    // Each waits until its process runs: before `exec` completes, a process has no environment by which the test
    // could find it.
    attempt(
        Resources,
        Harmless,
        "a background process",
        "sh -c ': > started; sleep 1000; :' & until [ -e started ]; do sleep 0.01; done",
    ),
    attempt(
        Resources,
        Harmless,
        "a process in a session of its own",
        "setsid sh -c 'sleep 1000 & : > started; sleep 1000' >/dev/null 2>&1 & until [ -e started ]; do sleep 0.01; done",
    ),
    attempt(
        Resources,
        Harmless,
        "an orphan that ignores signals",
        "(trap '' HUP TERM INT; setsid sh -c ': > started; sleep 1000; :' >/dev/null 2>&1 &); until [ -e started ]; do sleep 0.01; done",
    ),
    attempt(
        Resources,
        Never,
        "thousands of processes",
        "i=0; while [ $i -lt 3000 ]; do sleep 1000 & i=$((i+1)); done; echo ESCAPED",
    ),
    attempt(
        Resources,
        Never,
        "a fork bomb",
        "bomb() { bomb & bomb & }; bomb 2>/dev/null; i=0; while [ $i -lt 200 ]; do ls >/dev/null 2>&1; i=$((i+1)); done",
    ),
    attempt(Resources, Harmless, "a gigabyte of memory", "call gigabyte"),
    attempt(
        Resources,
        Harmless,
        "a file without a size limit",
        "head -c 100000000 /dev/zero > big; [ $(wc -c < big) = 100000000 ] && echo ESCAPED; rm -f big",
    ),
    attempt(
        Resources,
        Never,
        "limits raised again",
        "ulimit -c unlimited && echo ESCAPED; ulimit -f unlimited && echo ESCAPED; ulimit -d unlimited && echo ESCAPED",
    ),
];
