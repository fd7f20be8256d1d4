//! Notes for a command that failed because a path is hidden: which path, and which setting opens it.
//!
//! Pure and lexical: a note does not reveal whether the path exists.

use std::path::{Path, PathBuf};

use super::{Confinement, within};

/// The maximum number of notes.
const NOTES_MAX: usize = 3;
/// How many bytes of a text are searched.
const TEXT_MAX: usize = 64 * 1024;
/// Phrases in error messages about missing or inaccessible files.
const COMPLAINTS: &[&str] =
    &["no such file", "permission denied", "not found", "does not exist", "enoent", "eacces"];

/// Returns notes about hidden paths in the command, and in the error messages among its output.
pub(crate) fn notes(terms: &Confinement, home: Option<&Path>, command: &str, printed: &str) -> Vec<String> {
    let complains = |line: &&str| {
        let line = line.to_ascii_lowercase();
        COMPLAINTS.iter().any(|complaint| line.contains(complaint))
    };
    let printed = printed.get(..floor(printed, TEXT_MAX)).unwrap_or_default();
    let command = command.get(..floor(command, TEXT_MAX)).unwrap_or_default();
    let lines = printed.lines().filter(complains).chain(command.lines());
    let mut notes: Vec<String> = Vec::new();
    for path in lines.flat_map(words).filter_map(|word| path(word, home)) {
        if notes.len() == NOTES_MAX {
            break;
        }
        if let Some(note) = note(terms, home, &path).filter(|note| !notes.contains(note)) {
            notes.push(note);
        }
    }
    notes
}

fn note(terms: &Confinement, home: Option<&Path>, path: &Path) -> Option<String> {
    let is_in = |places: &[PathBuf]| places.iter().any(|place| within(path, place));
    let hide = terms.hide.iter().find(|place| within(path, place));
    if let Some(place) = hide.filter(|_| !is_in(&terms.own)) {
        let (said, place) = (spelled(path, home), spelled(place, home));
        return Some(format!(
            "note: {said} is hidden from commands: `hide` under [sandbox] in the user's or the project's configuration \
             lists {place}; to open it, remove it from that list"
        ));
    }
    if !is_in(&terms.homes) || terms.homes.iter().any(|home| home == path) {
        return None;
    }
    if within(path, &terms.workspace) || is_in(&terms.writable) || is_in(&terms.readable) {
        return None;
    }
    let said = spelled(path, home);
    if is_in(&terms.own) {
        return Some(format!("note: {said} belongs to pushd and is never shown to commands"));
    }
    if is_in(&terms.hidden) {
        return Some(format!(
            "note: {said} is hidden from commands because credentials are stored there; to open it, add exactly this \
             path to `readable` under [sandbox] in the configuration"
        ));
    }
    let is_seen = is_in(&terms.opened) || terms.caches.iter().any(|cache| within(path, &cache.path));
    (!is_seen).then(|| {
        format!(
            "note: {said} is hidden from commands; `readable = [\"{said}\"]` under [sandbox] of the configuration opens it"
        )
    })
}

/// Returns the path as the configuration spells it, with `~` for the home.
fn spelled(path: &Path, home: Option<&Path>) -> String {
    match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(inner) => format!("~/{}", inner.display()),
        None => path.display().to_string(),
    }
}

/// Returns the parts of a line that can be paths.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let parts = |letter: char| letter.is_whitespace() || "'\"`()<>|;&,=:[]".contains(letter);
    line.split(parts).map(|word| word.trim_end_matches(['.', '/'])).filter(|word| !word.is_empty())
}

/// Returns the absolute path that a word stands for in a shell with this home.
fn path(word: &str, home: Option<&Path>) -> Option<PathBuf> {
    let inner = ["~/", "$HOME/", "${HOME}/"].iter().find_map(|start| word.strip_prefix(start));
    let path = match inner {
        Some(inner) => home?.join(inner),
        None => PathBuf::from(word),
    };
    let plain = !word.contains(['*', '?', '\\', '$'])
        || inner.is_some_and(|inner| !inner.contains(['*', '?', '\\', '$']));
    (path.is_absolute() && plain && path.components().all(|part| part.as_os_str() != "..")).then_some(path)
}

fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
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
            let notes = said(command, printed);
            assert!(notes.len() == 1 && notes[0].contains(opens), "{command} {printed}: {notes:?}");
        }
    }

    #[test]
    fn credentials_and_what_is_pushds_are_not_offered() {
        let notes = said("cat ~/.ssh/id", "");
        assert!(notes[0].contains("credentials") && !notes[0].contains("readable = ["), "{notes:?}");
        let notes = said("cat ~/.push/state/x", "");
        assert_eq!(notes, ["note: ~/.push/state/x belongs to pushd and is never shown to commands"]);
    }

    #[test]
    fn what_the_configuration_hides_is_opened_by_the_configuration_alone() {
        for (command, path, place) in [
            ("cat ~/letters/one", "~/letters/one", "~/letters"),
            ("cat ~/w/keys", "~/w/keys", "~/w/keys"),
            ("cat /srv/keys/one", "/srv/keys/one", "/srv/keys"),
        ] {
            let notes = said(command, "");
            let said = format!("{path} is hidden from commands: `hide` under [sandbox]");
            assert!(notes.len() == 1 && notes[0].contains(&said), "{command}: {notes:?}");
            assert!(notes[0].contains(&format!("lists {place};")), "{command}: {notes:?}");
            assert!(!notes[0].contains("readable"), "{command}: {notes:?}");
        }
    }

    #[test]
    fn what_is_seen_what_lies_elsewhere_and_what_is_only_mentioned_is_no_matter() {
        for (command, printed) in [
            ("cat /etc/none ~/w/none ~/.cargo/none ~/.npm/none", "cat: /etc/none: No such file or directory"),
            ("ls", "welcome to /home/ann/.foo"),
            ("ls ~", ""),
            ("ls ~/../bob ~/*", ""),
            ("ls", ""),
        ] {
            assert_eq!(said(command, printed), [""; 0], "{command}");
        }
    }

    #[test]
    fn notes_are_few_and_each_is_said_once() {
        let command = "cat ~/a ~/a ~/b ~/c ~/d ~/e";
        assert_eq!(said(command, &"cat: /home/ann/a: No such file\n".repeat(9)).len(), NOTES_MAX);
    }

    fn said(command: &str, printed: &str) -> Vec<String> {
        let home = Path::new("/home/ann");
        let mut terms = Confinement::of("/home/ann/w".into());
        terms.homes = vec![home.into()];
        terms.hide = ["/home/ann/letters", "/home/ann/w/keys", "/srv/keys"].map(PathBuf::from).to_vec();
        terms.hidden = [vec!["/home/ann/.ssh".into()], terms.hide.clone()].concat();
        terms.own = vec!["/home/ann/.push".into()];
        terms.opened = vec!["/home/ann/.cargo".into()];
        terms.caches = super::super::toolchain::caches(home, &|_| None);
        notes(&terms, Some(home), command, printed)
    }
}
