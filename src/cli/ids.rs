//! Names as people type them: whole, shortened to any unique beginning, or `@last`.

use serde_json::Value;

use super::exit::CliError;
use crate::client::{Client, Request};

/// Why a typed name stands for nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameError {
    /// Nothing begins like that.
    #[error("no {what} begins with {typed:?}")]
    Unknown {
        /// A kind of thing.
        what: &'static str,
        /// What was typed.
        typed: String,
    },
    /// More than one thing begins like that.
    #[error("{typed:?} could be {}", .candidates.join(", "))]
    Ambiguous {
        /// What was typed.
        typed: String,
        /// What it could be.
        candidates: Vec<String>,
    },
    /// There is none at all.
    #[error("there is no {what}")]
    None {
        /// A kind of thing.
        what: &'static str,
    },
    /// There are several, and none was named.
    #[error("there is more than one {what}; name one of {}", .candidates.join(", "))]
    Several {
        /// A kind of thing.
        what: &'static str,
        /// What there is.
        candidates: Vec<String>,
    },
}

/// Finds the one of `known` that `typed` stands for.
///
/// The part before the underscore may be left out. A whole name wins over names that it begins.
pub(crate) fn choose(
    what: &'static str,
    prefix: &str,
    typed: &str,
    known: &[String],
) -> Result<String, NameError> {
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
            Err(NameError::Ambiguous { typed: typed.to_owned(), candidates })
        }
    }
}

/// Returns the beginning of a name that is enough to call it by, as long as nothing else began in the same moment.
pub(crate) fn short(id: &str) -> &str {
    let rest = id.find('_').map_or(0, |at| at + 1);
    id.get(..rest + ENOUGH).unwrap_or(id)
}

/// Returns the beginnings of names by which each can be told from the others.
pub(crate) fn short_all(ids: &[String]) -> Vec<&str> {
    let shortened = ids.iter().map(|id| {
        let is_shared = |part: &str| ids.iter().filter(|other| other.starts_with(part)).nth(1).is_some();
        let mut part = short(id);
        while part.len() < id.len() && is_shared(part) {
            part = id.get(..part.len() + 1).unwrap_or(id);
        }
        part
    });
    shortened.collect()
}

/// How much of a name is shown: the moment it was made in, and a little chance.
const ENOUGH: usize = 12;

/// Returns the only one there is.
pub(crate) fn only(what: &'static str, known: &[String]) -> Result<String, NameError> {
    match known {
        [] => Err(NameError::None { what }),
        [one] => Ok(one.clone()),
        _ => Err(NameError::Several { what, candidates: known.iter().take(5).cloned().collect() }),
    }
}

/// Returns the texts under `name` of the objects in a list.
pub(crate) fn column(list: &Value, name: &str) -> Vec<String> {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| item.get(name)?.as_str()).map(str::to_owned).collect()
}

/// Finds the session that `typed` stands for.
pub(crate) async fn session(client: &mut Client, typed: &str) -> Result<String, CliError> {
    const WHAT: &str = "session";
    const PREFIX: &str = "sess_";
    if typed == "@last" {
        let answer = client.ask(Request::list_sessions(1)).await?;
        let newest = column(&answer["sessions"], "sessionId").into_iter().next();
        return Ok(newest.ok_or(NameError::None { what: WHAT })?);
    }
    if is_whole(PREFIX, typed) {
        return Ok(typed.to_owned());
    }
    let mut known = Vec::new();
    for beginning in [typed.to_owned(), format!("{PREFIX}{typed}")] {
        let answer = client.ask(Request::list_sessions(6).with("prefix", beginning)).await?;
        known.extend(column(&answer["sessions"], "sessionId"));
    }
    Ok(choose(WHAT, PREFIX, typed, &known)?)
}

/// Returns whether a name has the full length of one of ours, so that there is nothing to look up.
fn is_whole(prefix: &str, typed: &str) -> bool {
    typed.strip_prefix(prefix).is_some_and(|rest| rest.len() == 26)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_name_is_as_short_as_it_can_be_called_by() {
        assert_eq!(short("sess_01M7H53XBQKVC2NK5Z01NH8TGQ"), "sess_01M7H53XBQKV");
        assert_eq!(short("sess_1"), "sess_1");
        let ids = ["sess_01M7H53XBQKVC2", "sess_01M7H53XBQKVD2", "sess_01M7H53X7KWTG1"].map(str::to_owned);
        assert_eq!(short_all(&ids), ["sess_01M7H53XBQKVC", "sess_01M7H53XBQKVD", "sess_01M7H53X7KWT"]);
    }

    #[test]
    fn a_name_may_be_shortened_while_it_is_unique() {
        let known = ids(&["sess_01A", "sess_01B", "sess_02"]);
        assert_eq!(find("sess_02", &known), Ok("sess_02".into()));
        assert_eq!(find("sess_0", &known).unwrap_err(), ambiguous("sess_0", &known));
        assert_eq!(find("02", &known), Ok("sess_02".into()));
        assert_eq!(find("01", &known).unwrap_err(), ambiguous("01", &known[..2]));
        assert!(matches!(find("9", &known), Err(NameError::Unknown { .. })));
        assert!(matches!(find("", &known), Err(NameError::Unknown { .. })));
    }

    #[test]
    fn a_whole_name_wins_over_longer_ones_and_needs_no_form() {
        let known = ids(&["mine", "mine-too"]);
        assert_eq!(find("mine", &known), Ok("mine".into()));
        assert_eq!(find("mine-", &known), Ok("mine-too".into()));
    }

    #[test]
    fn one_alone_needs_no_name() {
        assert_eq!(only("approval", &ids(&["a"])), Ok("a".into()));
        assert_eq!(only("approval", &[]), Err(NameError::None { what: "approval" }));
        assert!(matches!(only("approval", &ids(&["a", "b"])), Err(NameError::Several { .. })));
    }

    #[test]
    fn only_a_name_of_full_length_is_taken_on_trust() {
        assert!(is_whole("sess_", "sess_01HXYZ01HXYZ01HXYZ01HXYZ01"));
        assert!(!is_whole("sess_", "sess_01HXYZ"));
        assert!(!is_whole("sess_", "01HXYZ01HXYZ01HXYZ01HXYZ01"));
    }

    fn find(typed: &str, known: &[String]) -> Result<String, NameError> {
        choose("session", "sess_", typed, known)
    }

    fn ids(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn ambiguous(typed: &str, candidates: &[String]) -> NameError {
        NameError::Ambiguous { typed: typed.into(), candidates: candidates.to_vec() }
    }
}
