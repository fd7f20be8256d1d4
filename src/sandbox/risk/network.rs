//! Programs that connect to other hosts, and the host names in their arguments.

use super::finding::{CommandContext, Finding};
use super::level::Risk;
use super::words::{has_unknown, operands, option_values};
use crate::sandbox::address;

/// Assesses a network program or a package manager; `None` for any other program.
pub(super) fn assess(name: &str, args: &[String], context: &CommandContext<'_>) -> Option<Finding> {
    let installs = installs(name, args);
    if !NETWORK_PROGRAMS.contains(&name) && !installs {
        return None;
    }
    let mut finding = Finding::with_risk(Risk::High);
    finding.reason = Some(if installs { "it installs or publishes packages" } else { "it connects to another host" });
    finding.traits.fetches = FETCHERS.contains(&name);
    let words = operands(args, "");
    // The last operand is the target of the copy; it is local unless it names a host.
    let copied = words.last().filter(|word| matches!(name, "rsync" | "scp") && !word.contains(':'));
    copied.into_iter().for_each(|word| finding.add_write(word, context));
    let mut hosts: Vec<String> = words.iter().filter_map(|word| host_of(word)).collect();
    let remote = matches!(name, "ssh" | "scp" | "sftp" | "rsync" | "mosh");
    hosts.extend(words.iter().filter(|_| remote).filter_map(|word| host_of_remote(word)));
    hosts.sort();
    hosts.dedup();
    // A host that is unknown, or that an option overrides, can be any host.
    let own = match name {
        "ssh" | "scp" | "sftp" | "rsync" => "-o",
        "wget" => "-i",
        _ => "--url",
    };
    let elsewhere =
        args.iter().any(|arg| arg.starts_with(own) || REDIRECTING_OPTIONS.iter().any(|option| arg.starts_with(option)));
    if hosts.is_empty() || elsewhere || words.iter().any(|word| has_unknown(word)) {
        finding.add_network(None);
    }
    hosts.into_iter().for_each(|host| finding.add_network(Some(host)));
    for word in words.into_iter().chain(option_values(args)) {
        let file = word.rsplit_once('@').map_or(word, |(_, file)| file);
        finding.add_mention(file, context);
        if word.starts_with('@') || word.contains("=@") {
            finding.add_read(file, context);
        }
    }
    if matches!(name, "curl" | "wget") {
        let written = |arg: &&String| matches!(arg.as_str(), "-o" | "-O" | "--output" | "--output-document");
        let file = args.iter().skip_while(|arg| !written(arg)).nth(1);
        file.filter(|file| !file.starts_with('-') && !file.contains("://"))
            .into_iter()
            .for_each(|file| finding.add_write(file, context));
    }
    Some(finding)
}

/// Returns whether a package manager would install, change or publish packages.
pub(super) fn installs(name: &str, args: &[String]) -> bool {
    if SYSTEM_PACKAGE_MANAGERS.contains(&name) {
        return !args.is_empty();
    }
    let Some((_, verbs)) = PACKAGE_MANAGERS.iter().find(|(names, _)| names.contains(&name)) else {
        return false;
    };
    let words: Vec<&str> = operands(args, "").into_iter().filter(|word| !word.starts_with('+')).collect();
    // The first operand may be the value of an option.
    let runs =
        words.first().is_some_and(|word| matches!(*word, "run" | "run-script" | "test" | "t" | "build" | "check"));
    let verb = words.iter().take(if runs { 0 } else { 2 }).any(|word| verbs.contains(word) || has_unknown(word));
    verb || matches!(name, "yarn" | "npx" | "bunx")
}

/// Returns the host of a URL or of a word that looks like a host name.
pub(super) fn host_of(word: &str) -> Option<String> {
    let rest = match word.split_once("://") {
        Some((_, rest)) => rest,
        None if word.starts_with(['-', '/', '.', '@']) => return None,
        None => word,
    };
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._:".contains(letter);
    let host = host.trim_end_matches('.');
    let dotted = host.contains('.') || host == "localhost" || word.contains("://");
    (dotted && !host.is_empty() && host.chars().all(plain)).then(|| canonical(host))
}

/// Returns a host as rules name it: in lower case, and an address in its usual form however it was written.
fn canonical(host: &str) -> String {
    address::parse(host).map_or_else(|| host.to_ascii_lowercase(), |address| address.to_string())
}

/// Returns the host of `user@host`, `host:path` or `host`.
fn host_of_remote(word: &str) -> Option<String> {
    let host = word.split(':').next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let named = word.contains('@') || word.contains(':') || !word.contains('/');
    (named && !host.is_empty() && host.chars().all(plain)).then(|| canonical(host))
}

const FETCHERS: [&str; 8] = ["curl", "wget", "aria2c", "http", "https", "xh", "lynx", "fetch"];
/// Options that redirect a connection to another host than the operands name.
const REDIRECTING_OPTIONS: [&str; 9] = [
    "-x",
    "--proxy",
    "-K",
    "--config",
    "--resolve",
    "--connect-to",
    "--unix-socket",
    "--abstract-unix",
    "--input-file",
];
const NETWORK_PROGRAMS: [&str; 48] = [
    "curl",
    "wget",
    "aria2c",
    "http",
    "https",
    "xh",
    "lynx",
    "fetch",
    "ssh",
    "scp",
    "sftp",
    "rsync",
    "mosh",
    "nc",
    "ncat",
    "netcat",
    "telnet",
    "ftp",
    "lftp",
    "tftp",
    "socat",
    "ping",
    "traceroute",
    "dig",
    "nslookup",
    "host",
    "whois",
    "nmap",
    "aws",
    "gcloud",
    "az",
    "gh",
    "glab",
    "hub",
    "heroku",
    "flyctl",
    "vercel",
    "netlify",
    "wrangler",
    "doctl",
    "sendmail",
    "mail",
    "mutt",
    "psql",
    "mysql",
    "redis-cli",
    "mongosh",
    "rclone",
];

/// Package managers of languages, and their subcommands that use the network.
const PACKAGE_MANAGERS: [(&[&str], &[&str]); 5] = [
    (
        &["npm", "pnpm", "yarn", "bun", "npx", "bunx", "deno"],
        &[
            "install",
            "i",
            "add",
            "ci",
            "publish",
            "update",
            "upgrade",
            "remove",
            "uninstall",
            "login",
            "dlx",
            "exec",
            "create",
            "init",
            "link",
            "unpublish",
            "deprecate",
            "owner",
            "token",
        ],
    ),
    (
        &["cargo"],
        &[
            "install",
            "publish",
            "add",
            "update",
            "fetch",
            "login",
            "logout",
            "owner",
            "yank",
            "search",
            "uninstall",
            "vendor",
        ],
    ),
    (
        &["pip", "pip3", "pipx", "uv", "poetry", "conda", "mamba"],
        &[
            "install",
            "download",
            "uninstall",
            "add",
            "sync",
            "publish",
            "update",
            "remove",
            "upgrade",
            "lock",
            "pip",
            "tool",
        ],
    ),
    (
        &["gem", "bundle", "composer", "mix", "cabal", "stack", "opam", "luarocks", "nuget", "dotnet", "helm"],
        &["install", "update", "push", "publish", "require", "add", "upgrade", "uninstall", "restore", "yank"],
    ),
    (&["go"], &["get", "install", "mod", "download"]),
];
/// Package managers of operating systems.
const SYSTEM_PACKAGE_MANAGERS: [&str; 20] = [
    "apt", "apt-get", "brew", "dnf", "yum", "pacman", "apk", "zypper", "snap", "flatpak", "port", "nix-env", "emerge",
    "choco", "winget", "scoop", "rpm", "dpkg", "rustup", "twine",
];
