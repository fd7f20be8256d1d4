//! Attempts at the home: at its hidden files, and at the caches and toolchains that are visible.

use super::attempts::UnconfinedRun::{Harmless, Never};
use super::attempts::{Attempt, Group, StartDir, UnconfinedRun};

const fn attempt(unconfined: UnconfinedRun, name: &'static str, script: &'static str) -> Attempt {
    Attempt { name, group: Group::Files, start_dir: StartDir::Work, unconfined, script }
}

pub(crate) const HOME_ATTEMPTS: &[Attempt] = &[
    attempt(Harmless, "names in the home", "ls -A $HOME | grep history && echo ESCAPED"),
    attempt(Harmless, "a history by ..", "cat $HOME/../home/.python_history"),
    attempt(Harmless, "a history from the home itself", "cd $HOME && cat .python_history"),
    attempt(Harmless, "a history by way of a cache", "cat $HOME/.npm/../.python_history"),
    attempt(Harmless, "a history by way of a toolchain", "cat $HOME/.rustup/../.python_history"),
    attempt(
        Never,
        "a history by the roots of processes",
        "for r in /proc/[0-9]*/root /proc/self/root /proc/1/cwd; do cat $r$HOME/.python_history; done",
    ),
    attempt(
        Harmless,
        "variables that name a store",
        "export PATH=$HOME/.ssh:$PATH CARGO_HOME=$HOME/.ssh; sh -c 'cat $CARGO_HOME/id_ed25519'",
    ),
    attempt(Harmless, "a link in a toolchain to a key", "cat $HOME/.nvm/leak; cat $HOME/.nvm/keys/id_ed25519"),
    attempt(Harmless, "credentials beside what cargo reads", "cat $HOME/.cargo/credentials.toml"),
    attempt(Harmless, "credentials beside what git reads", "cat $HOME/.config/git/credentials"),
    attempt(
        Harmless,
        "credentials of cargo under another name",
        "cp -r $HOME/.cargo copy; cat copy/credentials.toml; ln $HOME/.cargo/credentials.toml c && cat c",
    ),
    attempt(
        Harmless,
        "a copy of cargo's credentials",
        "cat $HOME/.cargo/credentials.toml.bak; cat $HOME/.cargo/.credentials.toml.swp",
    ),
    attempt(Harmless, "a copy of git's credentials", "cat $HOME/.config/git/credentials~"),
    attempt(Harmless, "a token beside a toolchain", "cat $HOME/.pyenv/token; cat $HOME/.nvm/auth.json"),
    attempt(
        Never,
        "password hashes and keys of the machine",
        "cat /etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d/* /etc/ssl/private/* \
         /etc/ssh/ssh_host_*_key /etc/security/opasswd /var/backups/shadow.bak 2>/dev/null | grep -q . && echo ESCAPED",
    ),
    attempt(
        Never,
        "password hashes by another name",
        "cp /etc/shadow s; ln /etc/shadow h; cat s h /proc/self/root/etc/shadow /etc/../etc/shadow 2>/dev/null \
         | grep -q . && echo ESCAPED",
    ),
    attempt(Harmless, "a program of a toolchain", "echo x > $HOME/.cargo/bin/tool"),
    attempt(Harmless, "a new program of a toolchain", "echo x > $HOME/.local/bin/ls"),
    attempt(Harmless, "a library of a toolchain", "echo x > $HOME/.local/lib/python3/site.py"),
    attempt(
        Harmless,
        "settings of cargo",
        "printf '[build]\\nrustc-wrapper = \"./evil\"\\n' >> $HOME/.cargo/config.toml",
    ),
    attempt(Harmless, "settings of git", "git config --global core.hooksPath /tmp/evil; echo x >> $HOME/.gitconfig"),
    attempt(Harmless, "a cache of the user", "echo x > $HOME/.cargo/registry/cache/crate; echo x > $HOME/.npm/evil"),
    attempt(Harmless, "remove caches of the user", "rm -rf $HOME/.cargo/registry $HOME/.npm $HOME/go/pkg"),
    attempt(Harmless, "a cache moved away", "mv $HOME/.cargo/registry $HOME/.cargo/moved; mv $HOME/.npm $WORK/stolen"),
    attempt(
        Harmless,
        "a link from a cache to a key",
        "mkdir -p $HOME/.npm/x; ln -s $HOME/.ssh $HOME/.npm/x/y; cat $HOME/.npm/x/y/id_ed25519",
    ),
    attempt(Harmless, "a secret linked into a cache", "ln $HOME/.netrc $HOME/.npm/n && cat $HOME/.npm/n"),
    attempt(
        Never,
        "overlay attributes on a directory of its own",
        "mkdir $HOME/.npm/d && setfattr -n user.overlay.redirect -v /.ssh $HOME/.npm/d && cat $HOME/.npm/d/id_ed25519",
    ),
    attempt(
        Never,
        "where private caches are kept",
        "ls -A $OUT/../scratch | grep . && echo ESCAPED; find $OUT/.. -name upper 2>/dev/null | grep . && echo ESCAPED",
    ),
    attempt(
        Never,
        "unmount the home",
        "umount -l $HOME; umount $HOME/.npm; cat $HOME/.python_history; cat $HOME/.netrc",
    ),
    attempt(
        Never,
        "files under the mount of the home",
        "mount --bind / mnt; mkdir r; cat /proc/self/mountinfo >/dev/null; cat r$HOME/.netrc mnt$HOME/.netrc",
    ),
    attempt(
        Harmless,
        "the configuration of another repository",
        "cat $HOME/private/.git/config; git --git-dir=$HOME/private/.git config -l",
    ),
    attempt(
        Harmless,
        "a git file that names another repository",
        "mkdir sub && echo \"gitdir: $HOME/private/.git\" > sub/.git && git -C sub config -l; git -C sub config core.hooksPath evil",
    ),
    attempt(
        Harmless,
        "a git directory that takes its configuration from another repository",
        "mkdir -p g/refs && echo 'ref: refs/heads/main' > g/HEAD && echo $HOME/private/.git > g/commondir && git --git-dir=g config -l",
    ),
    attempt(
        Harmless,
        "a git file that leads to another repository by a link",
        "mkdir sub && ln -s $HOME/private/.git sub/g && echo 'gitdir: g' > sub/.git && git -C sub config -l",
    ),
];
