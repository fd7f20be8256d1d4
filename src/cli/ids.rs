//! Resolves typed ids: a complete id, a unique prefix, the handle of a session, its name, or `@last`.

use std::path::{Path, PathBuf};

use super::exit::CliError;
use crate::client::{Client, Repository, Request, SessionItem, SessionPage};

/// The word for a session in messages.
pub(crate) const SESSION: &str = "session";

/// Why a typed id or name cannot be resolved.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameError {
    /// No id has this prefix.
    #[error("no {what} has an id that starts with {typed:?}")]
    Unknown {
        /// The kind of object.
        what: &'static str,
        /// What was typed.
        typed: String,
    },
    /// Several ids have this prefix.
    #[error("{typed:?} is ambiguous: {}", .candidates.join(", "))]
    Ambiguous {
        /// The kind of object.
        what: &'static str,
        /// What was typed.
        typed: String,
        /// The matching ids.
        candidates: Vec<String>,
    },
    /// No session matches.
    #[error("no session has the name, handle or id {typed:?}")]
    UnknownSession {
        /// What was typed.
        typed: String,
    },
    /// No session belongs to this repository or directory.
    #[error("no session belongs to this directory{}", if *.others == 0 { "" } else { "; `@last-any` is the latest of all" })]
    NoneHere {
        /// The number of sessions elsewhere.
        others: usize,
    },
    /// No such object exists.
    #[error("there is no {what}")]
    None {
        /// The kind of object.
        what: &'static str,
    },
    /// Several exist, and none was named.
    #[error("there is more than one {what}; name one of {}", .candidates.join(", "))]
    Several {
        /// The kind of object.
        what: &'static str,
        /// The existing ids.
        candidates: Vec<String>,
    },
}

impl NameError {
    /// Returns the kind of object.
    pub(crate) const fn what(&self) -> &'static str {
        match self {
            Self::Unknown { what, .. }
            | Self::Ambiguous { what, .. }
            | Self::None { what }
            | Self::Several { what, .. } => what,
            Self::UnknownSession { .. } | Self::NoneHere { .. } => SESSION,
        }
    }
}

/// Resolves `typed` to one of the known ids.
///
/// The prefix up to the underscore may be left out. A complete id takes precedence over ids that start with it.
pub(crate) fn resolve(what: &'static str, prefix: &str, typed: &str, known: &[String]) -> Result<String, NameError> {
    if let Some(whole) = known.iter().find(|id| *id == typed) {
        return Ok(whole.clone());
    }
    let longer = format!("{prefix}{typed}");
    let fits = |id: &&String| !typed.is_empty() && (id.starts_with(typed) || id.starts_with(&longer));
    let mut candidates: Vec<String> = known.iter().filter(fits).cloned().collect();
    candidates.dedup();
    match candidates.len() {
        0 => Err(NameError::Unknown { what, typed: typed.to_owned() }),
        1 => Ok(candidates.remove(0)),
        _ => {
            candidates.truncate(5);
            Err(NameError::Ambiguous { what, typed: typed.to_owned(), candidates })
        }
    }
}

/// Returns a prefix of an id that is long enough to be unique, unless others were created at the same time.
pub(crate) fn short(id: &str) -> &str {
    let rest = id.find('_').map_or(0, |at| at + 1);
    id.get(..rest + SHOWN_CHARS).unwrap_or(id)
}

/// Returns the handle of a session: the last characters of its id, which are random.
pub(crate) fn handle(id: &str) -> String {
    handle_of_length(id, LONGEST_HANDLE)
}

/// Returns the shortest handles that are unique among these sessions.
pub(crate) fn handles(ids: &[String]) -> Vec<String> {
    let handle = |id: &String| {
        let is_shared = |handle: &str| ids.iter().filter(|other| has_handle(other, handle)).nth(1).is_some();
        let lengths = SHORTEST_HANDLE..=LONGEST_HANDLE;
        let unique = lengths.map(|length| handle_of_length(id, length)).find(|handle| !is_shared(handle));
        unique.unwrap_or_else(|| id.clone())
    };
    ids.iter().map(handle).collect()
}

fn handle_of_length(id: &str, length: usize) -> String {
    let end = id.len().checked_sub(length).filter(|_| is_complete_id(SESSION_PREFIX, id)).and_then(|at| id.get(at..));
    end.map_or_else(|| id.to_owned(), str::to_ascii_lowercase)
}

fn has_handle(id: &str, typed: &str) -> bool {
    let length = typed.len();
    (SHORTEST_HANDLE..=LONGEST_HANDLE).contains(&length)
        && is_complete_id(SESSION_PREFIX, id)
        && id.get(id.len() - length..).is_some_and(|end| end.eq_ignore_ascii_case(typed))
}

/// The length of a handle.
const SHORTEST_HANDLE: usize = 4;
const LONGEST_HANDLE: usize = 6;
/// The prefix of session ids.
const SESSION_PREFIX: &str = "sess_";

/// How many characters of an id are shown after its prefix: the timestamp and two random characters.
const SHOWN_CHARS: usize = 12;

/// Returns the only known id.
pub(crate) fn only(what: &'static str, known: &[String]) -> Result<String, NameError> {
    match known {
        [] => Err(NameError::None { what }),
        [one] => Ok(one.clone()),
        _ => Err(NameError::Several { what, candidates: known.iter().take(5).cloned().collect() }),
    }
}

/// The properties of a session by which it can be named.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KnownSession {
    id: String,
    name: String,
    directory: PathBuf,
    repository: Option<PathBuf>,
    /// When it was opened, in milliseconds.
    opened_at: u64,
}

/// Resolves a session: by id or unique prefix, handle, name, `@last` or `@last-any`.
pub(crate) async fn resolve_session(client: &mut Client, typed: &str) -> Result<String, CliError> {
    if is_complete_id(SESSION_PREFIX, typed) {
        return Ok(typed.to_owned());
    }
    let known = list_all_sessions(client).await?;
    match typed {
        "@last-any" => Ok(latest(&known, |_| true).ok_or(NameError::None { what: SESSION })?),
        // A directory of this machine says nothing about another one.
        "@last" if client.host().is_some() => Ok(latest(&known, |_| true).ok_or(NameError::None { what: SESSION })?),
        "@last" => {
            let here = std::env::current_dir().and_then(|path| path.canonicalize()).unwrap_or_default();
            let root = Repository::find(&here).map(|repository| repository.root);
            let is_here = |session: &KnownSession| session.is_in(&here, root.as_deref());
            Ok(latest(&known, is_here).ok_or(NameError::NoneHere { others: known.len() })?)
        }
        typed => Ok(find_session(typed, &known)?),
    }
}

async fn list_all_sessions(client: &mut Client) -> Result<Vec<KnownSession>, CliError> {
    let mut known = Vec::new();
    let mut cursor = None;
    loop {
        let request = Request::list_sessions(PAGE).with_some("cursor", cursor);
        let SessionPage { sessions, next_cursor } = client.request(request).await?;
        known.extend(sessions.into_iter().map(KnownSession::from));
        if next_cursor.is_none() {
            return Ok(known);
        }
        cursor = next_cursor;
    }
}

/// How many sessions one request lists.
const PAGE: u64 = 100;

impl From<SessionItem> for KnownSession {
    fn from(item: SessionItem) -> Self {
        Self {
            id: item.session_id,
            name: item.name.unwrap_or_default(),
            directory: item.cwd.into(),
            repository: item.repo.root_path.filter(|root| !root.is_empty()).map(PathBuf::from),
            opened_at: item.opened_at,
        }
    }
}

impl KnownSession {
    /// Returns whether it belongs to the repository at `root` or, without one, to the directory `here`.
    fn is_in(&self, here: &Path, root: Option<&Path>) -> bool {
        match root {
            Some(root) => self.repository.as_deref() == Some(root) || self.directory.starts_with(root),
            None => self.directory == here,
        }
    }

    fn describe(&self) -> String {
        if self.name.is_empty() { self.id.clone() } else { format!("{} ({})", self.id, self.name) }
    }
}

/// Returns the session that was started last. Of two in the same millisecond it is the one with the greater id,
/// because ids of the daemon are time-ordered.
fn latest(known: &[KnownSession], is_meant: impl Fn(&KnownSession) -> bool) -> Option<String> {
    let meant = known.iter().filter(|session| is_meant(session));
    meant.max_by_key(|session| (session.opened_at, &session.id)).map(|session| session.id.clone())
}

/// Finds a session; a complete id takes precedence over names and handles, and those over prefixes.
fn find_session(typed: &str, known: &[KnownSession]) -> Result<String, NameError> {
    let longer = format!("{SESSION_PREFIX}{typed}");
    let begins = |id: &str| !typed.is_empty() && (id.starts_with(typed) || id.starts_with(&longer));
    let ways: [&dyn Fn(&KnownSession) -> bool; 3] = [
        &|session| session.id == typed,
        &|session| !typed.is_empty() && (session.name == typed || has_handle(&session.id, typed)),
        &|session| begins(&session.id),
    ];
    for way in ways {
        let found: Vec<&KnownSession> = known.iter().filter(|session| way(session)).collect();
        match found[..] {
            [] => {}
            [one] => return Ok(one.id.clone()),
            _ => {
                let candidates = found.iter().take(5).map(|session| session.describe()).collect();
                return Err(NameError::Ambiguous { what: SESSION, typed: typed.to_owned(), candidates });
            }
        }
    }
    Err(NameError::UnknownSession { typed: typed.to_owned() })
}

/// Returns whether this is a complete id of the daemon, which needs no lookup.
fn is_complete_id(prefix: &str, typed: &str) -> bool {
    // Session ids of earlier versions have no second part.
    let is_ours = |rest: &str| match rest.split_once('_') {
        None => rest.len() == 26,
        Some((moment, chance)) => moment.len() == 26 && chance.len() == LONGEST_HANDLE,
    };
    typed.strip_prefix(prefix).is_some_and(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_id_keeps_the_timestamp() {
        assert_eq!(short("sess_01M7H53XBQKVC2NK5Z01NH8TGQ"), "sess_01M7H53XBQKV");
        assert_eq!(short("sess_1"), "sess_1");
    }

    #[test]
    fn a_handle_is_the_shortest_unique_suffix_of_an_id() {
        let ids = [
            "sess_01M7H53XBQKVC2NK5Z01NH8TGQ",
            "sess_01M7H53XBQKVC2NK5Z01NHAAAA",
            "sess_01M7H53XBQKVC2NK5Z01NBAAAA",
            "chosen-by-a-client",
        ]
        .map(str::to_owned);
        assert_eq!(handles(&ids), ["8tgq", "haaaa", "baaaa", "chosen-by-a-client"]);
        assert_eq!(handle(&ids[0]), "nh8tgq");
        assert!(has_handle(&ids[0], "8TgQ") && has_handle(&ids[0], "h8tgq"));
        assert!(!has_handle(&ids[0], "tgq") && !has_handle(&ids[0], "1nh8tgq") && !has_handle(&ids[3], "ient"));
    }

    #[test]
    fn a_session_is_resolved_by_id_name_or_handle() {
        let session = |id: &str, name: &str| KnownSession {
            id: id.into(),
            name: name.into(),
            directory: PathBuf::new(),
            repository: None,
            opened_at: 0,
        };
        let known = [
            session("sess_01M7H53XBQKVC2NK5Z01NH8TGQ", "docs"),
            session("sess_01M7H53XBQKVC2NK5Z01NHAAAA", "8tgq"),
            session("sess_02M7H53XBQKVC2NK5Z01NHBBBB", "docs"),
        ];
        assert!(
            matches!(find_session("8tgq", &known), Err(NameError::Ambiguous { .. })),
            "a name and the handle of another one"
        );
        assert_eq!(find_session("h8tgq", &known), Ok(known[0].id.clone()));
        assert_eq!(find_session("02", &known), Ok(known[2].id.clone()));
        assert_eq!(find_session("sess_02", &known), Ok(known[2].id.clone()));
        let Err(NameError::Ambiguous { candidates, .. }) = find_session("docs", &known) else {
            panic!("not ambiguous")
        };
        assert_eq!(candidates, [known[0].describe(), known[2].describe()]);
        assert!(matches!(find_session("01", &known), Err(NameError::Ambiguous { .. })));
        for typed in ["", "nothing", "tgq"] {
            assert_eq!(find_session(typed, &known), Err(NameError::UnknownSession { typed: typed.into() }));
        }
    }

    #[test]
    fn last_is_the_latest_session_of_this_repository_or_directory() {
        let session = |id: &str, directory: &str, root: &str| KnownSession {
            id: id.into(),
            name: String::new(),
            directory: directory.into(),
            repository: (!root.is_empty()).then(|| root.into()),
            opened_at: 0,
        };
        let known = [session("s1", "/r/a", "/r"), session("s3", "/other", ""), session("s2", "/r", "/r")];
        let here = |here: &str, root: Option<&str>| {
            latest(&known, |session| session.is_in(Path::new(here), root.map(Path::new)))
        };
        assert_eq!(here("/r/b", Some("/r")).as_deref(), Some("s2"));
        assert_eq!(here("/other", None).as_deref(), Some("s3"));
        assert_eq!(here("/r/b", None), None);
        // In other protocols clients choose the ids.
        let later = KnownSession { opened_at: 7, ..session("a", "/other", "") };
        assert_eq!(latest(&[later, session("z", "/other", "")], |_| true).as_deref(), Some("a"));
    }

    #[test]
    fn a_unique_prefix_resolves_an_id() {
        let known = ids(&["sess_01A", "sess_01B", "sess_02"]);
        assert_eq!(find("sess_02", &known), Ok("sess_02".into()));
        assert_eq!(find("sess_0", &known).unwrap_err(), ambiguous("sess_0", &known));
        assert_eq!(find("02", &known), Ok("sess_02".into()));
        assert_eq!(find("01", &known).unwrap_err(), ambiguous("01", &known[..2]));
        assert!(matches!(find("9", &known), Err(NameError::Unknown { .. })));
        assert!(matches!(find("", &known), Err(NameError::Unknown { .. })));
    }

    #[test]
    fn a_complete_id_takes_precedence_over_longer_ones() {
        let known = ids(&["mine", "mine-too"]);
        assert_eq!(find("mine", &known), Ok("mine".into()));
        assert_eq!(find("mine-", &known), Ok("mine-too".into()));
    }

    #[test]
    fn the_only_object_needs_no_id() {
        assert_eq!(only("approval", &ids(&["a"])), Ok("a".into()));
        assert_eq!(only("approval", &[]), Err(NameError::None { what: "approval" }));
        assert!(matches!(only("approval", &ids(&["a", "b"])), Err(NameError::Several { .. })));
    }

    #[test]
    fn only_a_complete_id_needs_no_lookup() {
        assert!(is_complete_id("sess_", "sess_01HXYZ01HXYZ01HXYZ01HXYZ01"));
        assert!(is_complete_id("sess_", "sess_01hxyz01hxyz01hxyz01hxyz01_0a1b2c"));
        assert!(!is_complete_id("sess_", "sess_01hxyz01hxyz01hxyz01hxyz01_0a1"));
        assert!(!is_complete_id("sess_", "sess_01HXYZ"));
        assert!(!is_complete_id("sess_", "01HXYZ01HXYZ01HXYZ01HXYZ01"));
    }

    fn find(typed: &str, known: &[String]) -> Result<String, NameError> {
        resolve("session", "sess_", typed, known)
    }

    fn ids(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn ambiguous(typed: &str, candidates: &[String]) -> NameError {
        NameError::Ambiguous { what: "session", typed: typed.into(), candidates: candidates.to_vec() }
    }
}
