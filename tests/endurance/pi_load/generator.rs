//! Generates random commands.

use std::path::PathBuf;

use serde_json::Value;

use crate::pi_load::command::{Command, Request};
use crate::pi_load::shared_state::SharedState;
use crate::support::random::Random;

/// Sessions that exist from the start: for quick commands, for runs, and for commands that time out.
pub(crate) const QUICK: usize = 12;
pub(crate) const TALK: usize = 6;
pub(crate) const SLOW: usize = 3;

/// The ids of the sessions that exist from the start.
pub(crate) fn sessions() -> Vec<String> {
    let named = |what: &'static str, count| (0..count).map(move |number| format!("{what}-{number}"));
    named("quick", QUICK).chain(named("talk", TALK)).chain(named("slow", SLOW)).collect()
}

/// The command generator of one client.
pub(crate) struct Generator {
    pub(crate) random: Random,
    client: usize,
    made: usize,
    /// Its own sessions, with the number of commands sent to each.
    own: Vec<(String, u32)>,
    /// The file to which steps append their name.
    counter_file: PathBuf,
}

impl Generator {
    pub(crate) fn new(seed: u64, client: usize, counter_file: PathBuf) -> Self {
        let random = Random::new(seed.wrapping_mul(1_000).wrapping_add(client as u64));
        Self { random, client, made: 0, own: Vec::new(), counter_file }
    }

    /// Makes a new command.
    pub(crate) fn next_command(&mut self, shared: &SharedState) -> Command {
        self.made += 1;
        let id = format!("c{}-{}", self.client, self.made);
        let mut request = self.random_request(&id, shared);
        if self.random.one_in(5) {
            let most = 1 + self.random.below(3);
            request.depends_on = (0..most).filter_map(|_| shared.recent_id(&mut self.random)).collect();
            match self.random.below(25) {
                0 => request.depends_on.push(format!("unknown-{id}")),
                1 => request.depends_on.push(id.clone()),
                _ => {}
            }
            // Repeated ids have no meaning, and the order of the error texts is not specified.
            request.depends_on.sort();
            request.depends_on.dedup();
        }
        if request.session.is_some() && request.kind != "create_session" && self.random.one_in(8) {
            let known = shared.version(request.session.as_deref().unwrap_or_default());
            request.if_version = Some(if self.random.one_in(4) { known + 1 + self.random.below(3) } else { known });
        }
        let key = self.random.one_in(4).then(|| format!("k-{id}"));
        // A command without id and key must have no effect that has to be attributed to it.
        let anonymous = request.rest.is_empty() && request.depends_on.is_empty() && self.random.one_in(12);
        Command { id: (!anonymous).then_some(id), key, request }
    }

    fn random_request(&mut self, id: &str, shared: &SharedState) -> Request {
        let quick = format!("quick-{}", self.random.below(QUICK as u64));
        match self.random.below(100) {
            0..12 => new_request("get_state", Some(self.any_session(shared)), ""),
            12..18 => new_request("get_messages", Some(self.any_session(shared)), ""),
            18..24 => new_request("get_session_stats", Some(quick), ""),
            24..28 => new_request("get_last_assistant_text", Some(self.any_session(shared)), ""),
            28..36 => new_request("health_check", None, ""),
            36..37 => new_request("list_sessions", None, ""),
            37..39 => new_request("switch_session", Some(self.any_session(shared)), ""),
            39..41 => new_request("get_state", Some("nowhere".to_owned()), ""),
            41..62 => new_request("set_session_name", Some(quick), &format!("\"name\":\"named by {id}\"")),
            62..66 => new_request("set_auto_retry", Some(quick), &format!("\"enabled\":{}", self.random.one_in(2))),
            66..70 => new_request("set_auto_compaction", Some(quick), "\"enabled\":true"),
            70..74 => new_request("set_thinking_level", Some(quick), "\"level\":\"low\""),
            74..77 => new_request("abort", Some(quick), ""),
            77..79 => new_request("abort_retry", Some(quick), ""),
            79..87 => self.counted_step("bash", "command", "", id, quick),
            87..91 => {
                let talk = format!("talk-{}", self.random.below(TALK as u64));
                self.counted_step("prompt", "message", "$ ", id, talk)
            }
            91..93 => {
                let slow = format!("slow-{}", self.random.below(SLOW as u64));
                let fields = [("\"command\":\"sleep 60\"", "bash"), ("", "abort_bash")];
                let (fields, kind) = fields[usize::from(self.random.one_in(8))];
                new_request(kind, Some(slow), fields)
            }
            _ => self.own_session(id),
        }
    }

    /// A step that appends its name to a file, once per execution.
    fn counted_step(&self, kind: &str, field: &str, before: &str, id: &str, session: String) -> Request {
        let command = format!("{before}echo {id} >> {}", self.counter_file.display());
        new_request(kind, Some(session), &format!("\"{field}\":{}", Value::from(command)))
    }

    fn any_session(&mut self, shared: &SharedState) -> String {
        let all = shared.sessions();
        self.random.pick(&all).cloned().unwrap_or_default()
    }

    /// A session of its own, which is created, changed and deleted.
    fn own_session(&mut self, id: &str) -> Request {
        if self.own.is_empty() {
            let session = format!("own-{id}");
            self.own.push((session.clone(), 0));
            return new_request("create_session", Some(session), &format!("\"cwd\":{}", self.cwd()));
        }
        let (session, count) = &mut self.own[0];
        *count += 1;
        let (session, count) = (session.clone(), *count);
        match count {
            // Again under another id: it exists already.
            1 => new_request("create_session", Some(session), &format!("\"cwd\":{}", self.cwd())),
            2..6 => new_request("set_session_name", Some(session), &format!("\"name\":\"named by {id}\"")),
            _ => {
                self.own.clear();
                new_request("delete_session", Some(session), "")
            }
        }
    }

    fn cwd(&self) -> Value {
        Value::from(self.counter_file.parent().expect("a directory").to_string_lossy().into_owned())
    }

    /// Another command under the id of an earlier one: a conflict.
    pub(crate) fn conflicting(&mut self, with: &Command) -> Command {
        let mut other = with.clone();
        if with.request.kind == "health_check" {
            other.request = new_request("list_sessions", None, "");
        } else if self.random.one_in(2) && with.request.session.is_some() {
            // It differs only in the expected version.
            other.request.if_version = Some(with.request.if_version.unwrap_or(0) + 1_000);
        } else {
            other.request = new_request("health_check", with.request.session.clone(), "");
        }
        other
    }

    /// The same command under another id, with the same key.
    pub(crate) fn by_key(&mut self, of: &Command) -> Command {
        self.made += 1;
        let id = self.random.one_in(2).then(|| format!("c{}-{}", self.client, self.made));
        Command { id, ..of.clone() }
    }
}

pub(crate) fn new_request(kind: &str, session: Option<String>, rest: &str) -> Request {
    let (kind, rest) = (kind.to_owned(), rest.to_owned());
    Request { kind, session, depends_on: Vec::new(), if_version: None, rest }
}
