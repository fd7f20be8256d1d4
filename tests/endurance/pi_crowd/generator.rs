//! What clients ask for, at random.

use std::path::PathBuf;

use serde_json::Value;

use crate::pi_crowd::command::{Asks, Command};
use crate::pi_crowd::crowd::Crowd;
use crate::support::random::Random;

/// Sessions that are there from the beginning: for quick work, for runs, and for commands that run out of time.
pub(crate) const QUICK: usize = 12;
pub(crate) const TALK: usize = 6;
pub(crate) const SLOW: usize = 3;

/// The names of the sessions that are there from the beginning.
pub(crate) fn sessions() -> Vec<String> {
    let named = |what: &'static str, count| (0..count).map(move |number| format!("{what}-{number}"));
    named("quick", QUICK).chain(named("talk", TALK)).chain(named("slow", SLOW)).collect()
}

/// One client's mind.
pub(crate) struct Generator {
    pub(crate) random: Random,
    client: usize,
    made: usize,
    /// Sessions of its own, with how much has been asked of them.
    own: Vec<(String, u32)>,
    /// Where steps count themselves.
    counted: PathBuf,
}

impl Generator {
    pub(crate) fn new(seed: u64, client: usize, counted: PathBuf) -> Self {
        let random = Random::new(seed.wrapping_mul(1_000).wrapping_add(client as u64));
        Self { random, client, made: 0, own: Vec::new(), counted }
    }

    /// Makes a command that nobody has sent before.
    pub(crate) fn fresh(&mut self, crowd: &Crowd) -> Command {
        self.made += 1;
        let id = format!("c{}-{}", self.client, self.made);
        let mut asks = self.asks(&id, crowd);
        if self.random.one_in(5) {
            let most = 1 + self.random.below(3);
            asks.depends_on = (0..most).filter_map(|_| crowd.recent_id(&mut self.random)).collect();
            match self.random.below(25) {
                0 => asks.depends_on.push(format!("unknown-{id}")),
                1 => asks.depends_on.push(id.clone()),
                _ => {}
            }
            // The same name twice says no more than once; which text comes first would be a matter of taste.
            asks.depends_on.sort();
            asks.depends_on.dedup();
        }
        if asks.session.is_some() && asks.kind != "create_session" && self.random.one_in(8) {
            let known = crowd.version(asks.session.as_deref().unwrap_or_default());
            asks.if_version = Some(if self.random.one_in(4) { known + 1 + self.random.below(3) } else { known });
        }
        let key = self.random.one_in(4).then(|| format!("k-{id}"));
        // One that nobody can name must leave no trace that could not be told apart.
        let anonymous = asks.rest.is_empty() && asks.depends_on.is_empty() && self.random.one_in(12);
        Command { id: (!anonymous).then_some(id), key, asks }
    }

    fn asks(&mut self, id: &str, crowd: &Crowd) -> Asks {
        let quick = format!("quick-{}", self.random.below(QUICK as u64));
        match self.random.below(100) {
            0..12 => ask("get_state", Some(self.any_session(crowd)), ""),
            12..18 => ask("get_messages", Some(self.any_session(crowd)), ""),
            18..24 => ask("get_session_stats", Some(quick), ""),
            24..28 => ask("get_last_assistant_text", Some(self.any_session(crowd)), ""),
            28..36 => ask("health_check", None, ""),
            36..37 => ask("list_sessions", None, ""),
            37..39 => ask("switch_session", Some(self.any_session(crowd)), ""),
            39..41 => ask("get_state", Some("nowhere".to_owned()), ""),
            41..62 => ask("set_session_name", Some(quick), &format!("\"name\":\"named by {id}\"")),
            62..66 => ask("set_auto_retry", Some(quick), &format!("\"enabled\":{}", self.random.one_in(2))),
            66..70 => ask("set_auto_compaction", Some(quick), "\"enabled\":true"),
            70..74 => ask("set_thinking_level", Some(quick), "\"level\":\"low\""),
            74..77 => ask("abort", Some(quick), ""),
            77..79 => ask("abort_retry", Some(quick), ""),
            79..87 => self.counted("bash", "command", "", id, quick),
            87..91 => {
                let talk = format!("talk-{}", self.random.below(TALK as u64));
                self.counted("prompt", "message", "$ ", id, talk)
            }
            91..93 => {
                let slow = format!("slow-{}", self.random.below(SLOW as u64));
                let fields = [("\"command\":\"sleep 60\"", "bash"), ("", "abort_bash")];
                let (fields, kind) = fields[usize::from(self.random.one_in(8))];
                ask(kind, Some(slow), fields)
            }
            _ => self.own_session(id),
        }
    }

    /// A step that adds its name to a file, once for each time that it is done.
    fn counted(&self, kind: &str, field: &str, before: &str, id: &str, session: String) -> Asks {
        let command = format!("{before}echo {id} >> {}", self.counted.display());
        ask(kind, Some(session), &format!("\"{field}\":{}", Value::from(command)))
    }

    fn any_session(&mut self, crowd: &Crowd) -> String {
        let all = crowd.sessions();
        self.random.pick(&all).cloned().unwrap_or_default()
    }

    /// A session of its own that is made, changed and given up again.
    fn own_session(&mut self, id: &str) -> Asks {
        if self.own.is_empty() {
            let session = format!("own-{id}");
            self.own.push((session.clone(), 0));
            return ask("create_session", Some(session), &format!("\"cwd\":{}", self.cwd()));
        }
        let (session, asked) = &mut self.own[0];
        *asked += 1;
        let (session, asked) = (session.clone(), *asked);
        match asked {
            // Once more under another name: it is there already.
            1 => ask("create_session", Some(session), &format!("\"cwd\":{}", self.cwd())),
            2..6 => ask("set_session_name", Some(session), &format!("\"name\":\"named by {id}\"")),
            _ => {
                self.own.clear();
                ask("delete_session", Some(session), "")
            }
        }
    }

    fn cwd(&self) -> Value {
        Value::from(self.counted.parent().expect("a directory").to_string_lossy().into_owned())
    }

    /// Another command under the name of one that was sent: nobody may take it for that.
    pub(crate) fn conflicting(&mut self, with: &Command) -> Command {
        let mut other = with.clone();
        if with.asks.kind == "health_check" {
            other.asks = ask("list_sessions", None, "");
        } else if self.random.one_in(2) && with.asks.session.is_some() {
            // The same in all but the version that it wants.
            other.asks.if_version = Some(with.asks.if_version.unwrap_or(0) + 1_000);
        } else {
            other.asks = ask("health_check", with.asks.session.clone(), "");
        }
        other
    }

    /// The same command under another name, known by its key alone.
    pub(crate) fn by_key(&mut self, of: &Command) -> Command {
        self.made += 1;
        let id = self.random.one_in(2).then(|| format!("c{}-{}", self.client, self.made));
        Command { id, ..of.clone() }
    }
}

pub(crate) fn ask(kind: &str, session: Option<String>, rest: &str) -> Asks {
    let (kind, rest) = (kind.to_owned(), rest.to_owned());
    Asks { kind, session, depends_on: Vec::new(), if_version: None, rest }
}
