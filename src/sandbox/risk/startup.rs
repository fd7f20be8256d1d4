//! Files in a home that shells, login sessions and programs execute or trust as soon as they exist.
//!
//! Such a list is never complete, so every other name that begins with a dot counts too, with a lower risk.

use super::level::Risk;
use super::path_context::{HomePath, PathContext, PathRef};

/// Returns the risk of writing a file in a home; `None` if it lies in no home or is an ordinary file.
pub(super) fn write_risk(path_ref: &PathRef, paths: &PathContext) -> Option<Risk> {
    paths.relative_to_homes(path_ref).iter().filter_map(path_risk).max()
}

/// Assesses a path in a home.
///
/// An entry that is the workspace, or contains it, does not count: the user chose it as the workspace.
fn path_risk(written: &HomePath) -> Option<Risk> {
    let is_chosen = |entry: &str| written.workspace.as_deref().is_some_and(|path| matches_entry(entry, path));
    if TRUSTED_PATHS.iter().any(|entry| matches_entry(entry, &written.path) && !is_chosen(entry)) {
        return Some(Risk::Critical);
    }
    (written.workspace.is_none() && written.path.starts_with('.')).then_some(Risk::High)
}

/// Returns whether a path is an entry of the list or lies in it.
fn matches_entry(entry: &str, path: &str) -> bool {
    match entry.strip_suffix('*') {
        Some(beginning) => path.starts_with(beginning),
        None => path.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
    }
}

/// Paths relative to a home, in lower case; a trailing `*` matches any suffix.
const TRUSTED_PATHS: &[&str] = &[
    // Shells.
    ".bash*",
    ".zsh*",
    ".zlog*",
    ".zprofile",
    ".profile*",
    ".login",
    ".logout",
    ".ksh*",
    ".mksh*",
    ".csh*",
    ".tcsh*",
    ".oh-my-zsh",
    ".xonshrc",
    ".config/bash",
    ".config/zsh",
    ".config/fish",
    ".config/nushell",
    ".config/xonsh",
    ".config/powershell",
    ".config/elvish",
    ".config/starship.toml",
    ".config/direnv",
    ".config/mise",
    ".envrc",
    ".inputrc",
    ".fzf*",
    "documents/powershell",
    "documents/windowspowershell",
    // Logins and desktops.
    ".config/environment.d",
    ".pam_environment",
    ".config/autostart*",
    ".config/systemd",
    ".local/share/systemd",
    ".config/upstart",
    ".config/plasma-workspace",
    ".config/gnome-session",
    ".config/i3",
    ".i3",
    ".config/sway",
    ".config/hypr",
    ".config/awesome",
    ".config/openbox",
    ".config/bspwm",
    ".config/sxhkd",
    ".config/dbus-1",
    ".local/share/dbus-1",
    ".local/share/applications",
    ".local/share/kservices*",
    ".config/mimeapps.list",
    ".mailcap",
    ".xprofile",
    ".xinitrc",
    ".xsession*",
    ".xserverrc",
    ".xresources",
    ".xdefaults",
    ".xbindkeysrc",
    ".forward",
    ".procmailrc",
    ".rhosts",
    ".shosts",
    ".crontab",
    ".cron*",
    ".config/crontab*",
    "library/launchagents",
    "library/launchdaemons",
    "appdata/roaming/microsoft/windows/start menu",
    // Programs on the search path.
    "bin",
    ".bin",
    ".local/bin",
    ".local/lib",
    ".local/libexec",
    ".cargo/bin",
    ".cargo/env",
    ".rustup",
    "go/bin",
    // Libraries that programs load from the home.
    "node_modules",
    "perl5",
    "r/x86_64*",
    "r/aarch64*",
    ".deno/bin",
    ".bun/bin",
    ".pyenv",
    ".nvm",
    ".asdf*",
    ".rbenv",
    ".sdkman",
    // Configurations that name programs or trusted hosts.
    ".gitconfig",
    ".config/git",
    ".git-templates",
    ".ssh",
    ".gnupg",
    ".vimrc",
    ".gvimrc",
    ".vim",
    ".exrc",
    ".nanorc",
    ".config/vim",
    ".config/nvim",
    ".config/helix",
    ".emacs*",
    ".config/emacs",
    ".config/doom",
    ".tmux*",
    ".config/tmux",
    ".screenrc",
    ".wezterm.lua",
    ".config/wezterm",
    ".config/kitty",
    ".config/alacritty",
    ".npmrc",
    ".yarnrc*",
    ".config/yarn",
    ".config/pnpm",
    ".bunfig.toml",
    ".cargo/config*",
    ".cargo/credentials*",
    ".config/pip",
    ".pip",
    ".pypirc",
    ".pythonrc*",
    ".pythonstartup*",
    ".config/ipython",
    ".ipython",
    ".jupyter",
    ".gemrc",
    ".irbrc",
    ".pryrc",
    ".bundle",
    ".rprofile",
    ".renviron",
    ".julia/config",
    ".m2",
    ".gradle",
    ".sbt",
    ".curlrc",
    ".config/curlrc",
    ".wgetrc",
    ".psqlrc",
    ".sqliterc",
    ".my.cnf",
    ".mylogin.cnf",
    ".gdbinit",
    ".gdbearlyinit",
    ".config/gdb",
    ".lldbinit",
    ".ripgreprc",
    ".lessfilter",
    ".lesskey",
    ".muttrc",
    ".config/mutt",
    ".config/neomutt",
    ".ansible*",
    ".docker",
    ".config/containers",
    ".kube",
    ".config/k9s",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".terraformrc",
    ".terraform.d",
    ".vscode*",
    ".cursor*",
    ".config/code*",
    ".config/vscodium",
    ".config/cursor",
    ".config/zed",
    ".config/jetbrains",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    "library/application support/code",
    // Agents, and push itself.
    ".push",
    ".config/push",
    ".pi",
    ".agents",
    ".claude*",
    ".codex",
    ".gemini",
    ".config/opencode",
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn writing_a_trusted_file_of_a_home_is_critical_in_every_workspace_above_it() {
        for workspace in ["/home/ann", "/home", "/"] {
            let paths = PathContext::new(Path::new(workspace), Some(Path::new("/home/ann")));
            for path in STARTUP_FILES {
                let path_ref = paths.resolve_file(&format!("/home/ann/{path}"));
                assert_eq!(write_risk(&path_ref, &paths), Some(Risk::Critical), "{path} in {workspace}");
            }
        }
    }

    #[test]
    fn any_other_hidden_name_of_a_home_counts_too_and_ordinary_files_do_not() {
        let paths = PathContext::new(Path::new("/home/ann"), Some(Path::new("/home/ann")));
        let risk = |path: &str| write_risk(&paths.resolve_file(path), &paths);
        for path in [".newshellrc", ".config/newthing/init.lua", ".cache/x", ".local/share/x"] {
            assert_eq!(risk(path), Some(Risk::High), "{path}");
        }
        for path in [
            "notes.txt",
            "work/src/main.rs",
            "work/.env.example",
            "Documents/x",
            "R/notes.txt",
            "work/node_modules/x",
            "bingo",
            "work/bin/x",
        ] {
            assert_eq!(risk(path), None, "{path}");
        }
        // The workspace is this configuration directory itself.
        let chosen = PathContext::new(Path::new("/home/ann/.config/nvim"), Some(Path::new("/home/ann")));
        assert_eq!(write_risk(&chosen.resolve_file("init.lua"), &chosen), None);
    }

    #[test]
    fn what_a_home_believes_is_critical_in_a_workspace_below_it_unless_the_workspace_is_part_of_it() {
        let critical = Some(Risk::Critical);
        for (workspace, path, expected) in [
            (".config", "environment.d/x.conf", critical),
            (".config", "git/config", critical),
            (".config", "nvim/init.lua", critical),
            (".config", "Code/User/settings.json", critical),
            (".config", "autostart/x.desktop", critical),
            (".config", "starship.toml", critical),
            (".config", "newthing/init.lua", None),
            (".local/share", "applications/x.desktop", critical),
            (".local/share", "systemd/user/x.service", critical),
            (".local/share", "kservices5/x.desktop", critical),
            (".local/share", "notes/x", None),
            (".local", "bin/ls", critical),
            (".config/nvim", "init.lua", None),
            (".config/nvim/lua", "plugins.lua", None),
            (".config/Code/User", "settings.json", None),
            (".config/nvim", "../git/config", critical),
            (".config/nvim", "../nvim/init.lua", None),
            (".cargo", "bin/cargo", critical),
            (".cargo", "config.toml", critical),
            (".cargo", "registry/x", None),
            (".oh-my-zsh", "custom/x.zsh", None),
            ("bin", "ls", None),
            ("project", "src/main.rs", None),
            ("project", "bin/ls", None),
            ("project", ".bashrc", None),
            ("project", "../.bashrc", critical),
        ] {
            for root in ["/home/ann", "/Home/Ann"] {
                let workspace = Path::new(root).join(workspace);
                let paths = PathContext::new(&workspace, Some(Path::new("/home/ann")));
                let path_ref = paths.resolve_file(path);
                assert_eq!(write_risk(&path_ref, &paths), expected, "{path} in {}", workspace.display());
            }
        }
    }

    #[test]
    fn every_home_of_the_user_counts() {
        let homes = ["/root".into(), "/data/ann".into()];
        let paths = PathContext::new(Path::new("/data"), Some(Path::new("/home/ann"))).with_homes(&homes);
        assert_eq!(write_risk(&paths.resolve_file("/data/ann/.bash_aliases"), &paths), Some(Risk::Critical));
        assert_eq!(write_risk(&paths.resolve_file("/data/bob/.bash_aliases"), &paths), None);
        assert_eq!(write_risk(&paths.resolve_file("/root/.zlogin"), &paths), Some(Risk::Critical));
    }

    const STARTUP_FILES: &[&str] = &[
        "node_modules/.bin/tsc",
        "node_modules/express/index.js",
        "perl5/lib/perl5/strict.pm",
        "R/x86_64-pc-linux-gnu-library/4.0/x",
        ".bashrc",
        ".bash_aliases",
        ".bash_login",
        ".bash_logout",
        ".bash_profile",
        ".BASHRC",
        ".profile",
        ".zshrc",
        ".zshenv",
        ".zprofile",
        ".zlogin",
        ".zlogout",
        ".kshrc",
        ".mkshrc",
        ".cshrc",
        ".tcshrc",
        ".login",
        ".config/fish/config.fish",
        ".config/fish/conf.d/x.fish",
        ".config/nushell/env.nu",
        ".config/powershell/profile.ps1",
        ".config/environment.d/10-x.conf",
        ".pam_environment",
        ".xprofile",
        ".xinitrc",
        ".xsession",
        ".xsessionrc",
        ".config/autostart/x.desktop",
        ".config/systemd/user/x.service",
        ".local/share/systemd/user/x.service",
        ".local/share/applications/x.desktop",
        ".local/share/dbus-1/services/x.service",
        ".config/git/config",
        ".config/git/attributes",
        ".gitconfig",
        ".ssh/config",
        ".ssh/authorized_keys",
        ".ssh/rc",
        ".gnupg/gpg.conf",
        ".inputrc",
        ".vimrc",
        ".vim/plugin/x.vim",
        ".config/nvim/init.lua",
        ".emacs",
        ".emacs.d/init.el",
        ".tmux.conf",
        ".config/tmux/tmux.conf",
        ".screenrc",
        ".npmrc",
        ".yarnrc.yml",
        ".cargo/config",
        ".cargo/config.toml",
        ".cargo/bin/cargo",
        ".config/pip/pip.conf",
        ".pip/pip.conf",
        ".pythonrc",
        ".pythonrc.py",
        ".local/bin/ls",
        ".local/lib/python3.12/site-packages/usercustomize.py",
        "bin/ls",
        "go/bin/gofmt",
        ".curlrc",
        ".wgetrc",
        ".psqlrc",
        ".gdbinit",
        ".lldbinit",
        ".config/direnv/direnvrc",
        ".envrc",
        ".config/Code/User/settings.json",
        ".vscode-server/data/Machine/settings.json",
        ".docker/config.json",
        ".kube/config",
        ".crontab",
        ".config/mimeapps.list",
        ".claude/settings.json",
        ".push/config.toml",
        ".config/push/config.toml",
        "Library/LaunchAgents/x.plist",
    ];
}
