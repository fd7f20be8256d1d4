//! Notes for a command that failed because a path is hidden: which path, and which setting opens it.
//!
//! Pure and lexical: a note does not reveal whether the path exists.

use std::path::{Path, PathBuf};

use super::{Confinement, is_within};

/// The maximum number of notes.
const NOTES_MAX: usize = 3;
/// How many bytes of a text are searched.
const TEXT_MAX: usize = 64 * 1024;
/// Phrases in error messages about missing or inaccessible files.
const ERROR_PHRASES: &[&str] =
    &["no such file", "permission denied", "not found", "does not exist", "enoent", "eacces"];

/// Returns notes about hidden paths in the command, and in the error messages among its output.
pub(crate) fn notes(confinement: &Confinement, home: Option<&Path>, command: &str, printed: &str) -> Vec<String> {
    let reports_error = |line: &&str| {
        let line = line.to_ascii_lowercase();
        ERROR_PHRASES.iter().any(|phrase| line.contains(phrase))
    };
    let printed = &printed[..printed.floor_char_boundary(TEXT_MAX)];
    let command = &command[..command.floor_char_boundary(TEXT_MAX)];
    let lines = printed.lines().filter(reports_error).chain(command.lines());
    let mut notes: Vec<String> = Vec::new();
    for path in lines.flat_map(candidate_words).filter_map(|word| parse_path(word, home)) {
        if notes.len() == NOTES_MAX {
            break;
        }
        if let Some(note) = note(confinement, home, &path).filter(|note| !notes.contains(note)) {
            notes.push(note);
        }
    }
    notes
}

fn note(confinement: &Confinement, home: Option<&Path>, path: &Path) -> Option<String> {
    let is_in = |roots: &[PathBuf]| roots.iter().any(|root| is_within(path, root));
    let hide = confinement.hidden_by_config.iter().find(|root| is_within(path, root));
    if let Some(root) = hide.filter(|_| !is_in(&confinement.daemon_paths)) {
        let (shown_path, root) = (display_path(path, home), display_path(root, home));
        return Some(format!(
            "note: {shown_path} is hidden from commands: `hide` under [sandbox] in the user's or the project's configuration \
             lists {root}; to open it, remove it from that list"
        ));
    }
    if !is_in(&confinement.homes) || confinement.homes.iter().any(|home| home == path) {
        return None;
    }
    if is_within(path, &confinement.workspace) || is_in(&confinement.writable) || is_in(&confinement.readable) {
        return None;
    }
    let shown_path = display_path(path, home);
    if is_in(&confinement.daemon_paths) {
        return Some(format!("note: {shown_path} belongs to pushd and is never shown to commands"));
    }
    if is_in(&confinement.hidden) {
        return Some(format!(
            "note: {shown_path} is hidden from commands because credentials are stored there; to open it, add exactly this \
             path to `readable` under [sandbox] in the configuration"
        ));
    }
    let is_seen =
        is_in(&confinement.toolchain_paths) || confinement.caches.iter().any(|cache| is_within(path, &cache.path));
    (!is_seen).then(|| {
        format!(
            "note: {shown_path} is hidden from commands; `readable = [\"{shown_path}\"]` under [sandbox] of the configuration opens it"
        )
    })
}

/// Returns the path as the configuration spells it, with `~` for the home.
fn display_path(path: &Path, home: Option<&Path>) -> String {
    match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(inner) => format!("~/{}", inner.display()),
        None => path.display().to_string(),
    }
}

/// Returns the parts of a line that can be paths.
fn candidate_words(line: &str) -> impl Iterator<Item = &str> {
    let parts = |letter: char| letter.is_whitespace() || "'\"`()<>|;&,=:[]".contains(letter);
    line.split(parts).map(|word| word.trim_end_matches(['.', '/'])).filter(|word| !word.is_empty())
}

/// Returns the absolute path that a word stands for in a shell with this home.
fn parse_path(word: &str, home: Option<&Path>) -> Option<PathBuf> {
    let inner = ["~/", "$HOME/", "${HOME}/"].iter().find_map(|start| word.strip_prefix(start));
    let path = match inner {
        Some(inner) => home?.join(inner),
        None => PathBuf::from(word),
    };
    let plain =
        !word.contains(['*', '?', '\\', '$']) || inner.is_some_and(|inner| !inner.contains(['*', '?', '\\', '$']));
    (path.is_absolute() && plain && path.components().all(|part| part.as_os_str() != "..")).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_path_is_named_with_the_setting_that_opens_it() {
        let opens = "is hidden from commands; `readable = [\"~/.foo/bar\"]` under [sandbox]";
        for (command, printed) in [
            ("cat x", "cat: /home/ann/.foo/bar: No such file or directory\n"),
            ("cat x", "Error: ENOENT: open '/home/ann/.foo/bar'\n"),
            ("cat x", "sh: 1: cannot open ~/.foo/bar: Permission denied.\n"),
            ("cat ~/.foo/bar", ""),
            ("cat \"$HOME/.foo/bar\"", ""),
            ("cat ${HOME}/.foo/bar || x", ""),
        ] {
            let notes = notes_for(command, printed);
            assert!(notes.len() == 1 && notes[0].contains(opens), "{command} {printed}: {notes:?}");
        }
    }

    #[test]
    fn no_setting_is_suggested_for_credentials_and_daemon_paths() {
        let notes = notes_for("cat ~/.ssh/id", "");
        assert!(notes[0].contains("credentials") && !notes[0].contains("readable = ["), "{notes:?}");
        let notes = notes_for("cat ~/.push/state/x", "");
        assert_eq!(notes, ["note: ~/.push/state/x belongs to pushd and is never shown to commands"]);
    }

    #[test]
    fn what_the_configuration_hides_is_opened_by_the_configuration_alone() {
        for (command, path, root) in [
            ("cat ~/letters/one", "~/letters/one", "~/letters"),
            ("cat ~/w/keys", "~/w/keys", "~/w/keys"),
            ("cat /srv/keys/one", "/srv/keys/one", "/srv/keys"),
        ] {
            let notes = notes_for(command, "");
            let shown_path = format!("{path} is hidden from commands: `hide` under [sandbox]");
            assert!(notes.len() == 1 && notes[0].contains(&shown_path), "{command}: {notes:?}");
            assert!(notes[0].contains(&format!("lists {root};")), "{command}: {notes:?}");
            assert!(!notes[0].contains("readable"), "{command}: {notes:?}");
        }
    }

    #[test]
    fn visible_paths_and_paths_outside_homes_get_no_note() {
        for (command, printed) in [
            ("cat /etc/none ~/w/none ~/.cargo/none ~/.npm/none", "cat: /etc/none: No such file or directory"),
            ("ls", "welcome to /home/ann/.foo"),
            ("ls ~", ""),
            ("ls ~/../bob ~/*", ""),
            ("ls", ""),
        ] {
            assert_eq!(notes_for(command, printed), [""; 0], "{command}");
        }
    }

    #[test]
    fn notes_are_bounded_and_not_repeated() {
        let command = "cat ~/a ~/a ~/b ~/c ~/d ~/e";
        assert_eq!(notes_for(command, &"cat: /home/ann/a: No such file\n".repeat(9)).len(), NOTES_MAX);
    }

    fn notes_for(command: &str, printed: &str) -> Vec<String> {
        let home = Path::new("/home/ann");
        let mut confinement = Confinement::new("/home/ann/w".into());
        confinement.homes = vec![home.into()];
        confinement.hidden_by_config =
            ["/home/ann/letters", "/home/ann/w/keys", "/srv/keys"].map(PathBuf::from).to_vec();
        confinement.hidden = [vec!["/home/ann/.ssh".into()], confinement.hidden_by_config.clone()].concat();
        confinement.daemon_paths = vec!["/home/ann/.push".into()];
        confinement.toolchain_paths = vec!["/home/ann/.cargo".into()];
        confinement.caches = super::super::toolchain::caches(home, &|_| None);
        notes(&confinement, Some(home), command, printed)
    }
}
