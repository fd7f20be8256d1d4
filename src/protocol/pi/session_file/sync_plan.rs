//! The difference between a session and its file. Everything here is pure.
//!
//! A file is only appended to. An entry that the session has written or imported is known by its id; any other entry of
//! the file's branch was written by another program and is imported, and missing entries are appended.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{Change, Entry, Header, ParsedSession};
use super::import::{self, IdGenerator};
use super::message::Message;
use super::read;
use super::to_rfc3339;
use crate::kernel::command::Snapshot;
use crate::kernel::id::Seq;
use crate::kernel::import::Import;
use crate::kernel::time::Now;
use crate::protocol::command_protocol::SessionFileState;
use crate::protocol::pi::projection::{self, Projection, Role};

/// A session's conversation and its file.
pub(in crate::protocol::pi) struct SyncPlan<'a> {
    id_prefix: &'a str,
    projection: &'a Projection,
    stored: Option<&'a ParsedSession>,
    /// The entries of the session with their ids in the file; the id is empty for an entry that is in no file.
    entries: Vec<(String, projection::Entry<'a>)>,
    in_file: BTreeSet<&'a str>,
}

impl<'a> SyncPlan<'a> {
    pub(in crate::protocol::pi) fn new(projection: &'a Projection, file: SessionFileState<'a>) -> Self {
        let SessionFileState { id_prefix, inherited, stored } = file;
        let all = stored.map(|stored| stored.entries.as_slice()).unwrap_or_default();
        let times: BTreeMap<&str, Now> = all.iter().map(|entry| (entry.id.as_str(), entry.at)).collect();
        // The ids of other sessions' entries, by what follows their prefixes.
        let copied: BTreeMap<&str, &Entry> =
            all.iter().filter_map(|entry| Some((entry.id.split_once('-')?.1, entry))).collect();
        let copy = |entry: &projection::Entry<'_>| {
            let copy = copied.get(entry.id().as_str()).filter(|copy| copy.at == entry.at && entry.seq <= inherited)?;
            Some(copy.id.clone())
        };
        let id = |entry: &projection::Entry<'_>| match entry.origin {
            Some(origin) => origin.to_owned(),
            None if copy(entry).is_some() => copy(entry).unwrap_or_default(),
            // Files of earlier versions, and copies of their entries, have the ids that clients see.
            None if times.get(entry.id().as_str()) == Some(&entry.at) => entry.id(),
            None => format!("{id_prefix}-{}", entry.id()),
        };
        let entries = projection.entries().map(|entry| (id(&entry), entry)).collect();
        Self { id_prefix, projection, stored, entries, in_file: times.into_keys().collect() }
    }

    /// Returns what another program has written, if anything.
    pub(in crate::protocol::pi) fn foreign(&self, snapshot: &Snapshot, names: &mut dyn IdGenerator) -> Option<Import> {
        let stored = self.stored?;
        let name = self.foreign_name(stored, snapshot);
        let import = Import { name, ..self.foreign_entries(stored, names) };
        (import != Import::default()).then_some(import)
    }

    /// Returns the entries after the newest one that both have.
    fn foreign_entries(&self, stored: &ParsedSession, names: &mut dyn IdGenerator) -> Import {
        let branch = stored.branch();
        let (until, leave) = match self.left_at(&branch) {
            // Entries that the session has not written yet continue its own branch.
            Some(at) if self.is_unwritten(at) => return Import::default(),
            Some(at) => (at, Some(self.projection.branch_before(self.entries[at].1.seq))),
            None => (self.entries.len(), None),
        };
        let known: BTreeMap<&str, Seq> =
            self.entries[..until].iter().map(|(id, entry)| (id.as_str(), entry.seq)).collect();
        let shared = branch.iter().rposition(|entry| known.contains_key(entry.id.as_str()));
        let rest = branch.into_iter().skip(shared.map_or(0, |at| at + 1));
        let find = |id: &str| known.get(id).copied();
        Import { branch: leave, ..import::import(rest, &find, names).import }
    }

    /// Returns the name that another program has given the session since it was renamed here.
    fn foreign_name(&self, stored: &ParsedSession, snapshot: &Snapshot) -> Option<String> {
        let settings = Settings::of(std::iter::empty(), &stored.entries, &stored.header);
        let (name, at) = settings.name?;
        let is_newer = self.projection.setting_times().name.is_none_or(|named| at > named);
        name.filter(|name| is_newer && snapshot.name.as_ref() != Some(name))
    }

    /// Returns the entries that the file lacks, and the settings that are newer than the file's.
    pub(in crate::protocol::pi) fn missing(&self, snapshot: &Snapshot, header: &Header) -> Result<Vec<Entry>, String> {
        let branch = self.stored.map(ParsedSession::branch).unwrap_or_default();
        let parent = match self.left_at(&branch) {
            Some(_) => {
                let written = self.entries.iter().rev().find(|(id, _)| self.in_file.contains(id.as_str()));
                written.map(|(id, _)| id.clone())
            }
            None => self.stored.and_then(ParsedSession::leaf).map(str::to_owned),
        };
        let is_missing = |id: &str| !id.is_empty() && !self.in_file.contains(id);
        let missing: Vec<_> = self.entries.iter().filter(|(id, _)| is_missing(id)).collect();
        if missing.is_empty() && self.stored.is_none() {
            return Ok(Vec::new());
        }
        let mut entries = self.written(&missing, parent)?;
        let all = self.stored.map(|stored| stored.entries.as_slice()).unwrap_or_default();
        let settings = Settings::of(branch.into_iter().chain(&entries), all, header);
        let mut parent = entries.last().map(|entry| entry.id.clone());
        parent = parent.or_else(|| self.stored.and_then(ParsedSession::leaf).map(str::to_owned));
        for (what, at, change) in settings.changes(snapshot, self.projection.setting_times()) {
            let id = format!("{}-{:08x}-{what}", self.id_prefix, snapshot.last_seq.number());
            if !self.in_file.contains(id.as_str()) {
                entries.push(Entry { id: id.clone(), parent: parent.replace(id), at, change });
            }
        }
        Ok(entries)
    }

    /// Returns the ids of the file's branch up to the entry before a message of the session.
    pub(in crate::protocol::pi) fn path_before(&self, entry: &str) -> Vec<String> {
        let Some((id, _)) = self.entries.iter().find(|(_, own)| own.id() == entry) else { return Vec::new() };
        let branch = self.stored.map(ParsedSession::branch).unwrap_or_default();
        let Some(at) = branch.iter().position(|entry| entry.id == *id) else { return Vec::new() };
        branch[..at].iter().map(|entry| entry.id.clone()).collect()
    }

    /// Returns the first entry of the session that the file has on an abandoned branch.
    fn left_at(&self, branch: &[&Entry]) -> Option<usize> {
        let on_branch: BTreeSet<&str> = branch.iter().map(|entry| entry.id.as_str()).collect();
        let is_left = |id: &str| self.in_file.contains(id) && !on_branch.contains(id);
        self.entries.iter().position(|(id, _)| is_left(id))
    }

    /// Returns whether an entry from a position on is missing in the file.
    fn is_unwritten(&self, from: usize) -> bool {
        let is_missing = |id: &str| !id.is_empty() && !self.in_file.contains(id);
        self.entries[from..].iter().any(|(id, _)| is_missing(id))
    }

    /// Converts entries to their form in a file.
    fn written(
        &self,
        missing: &[&(String, projection::Entry<'_>)],
        first_parent: Option<String>,
    ) -> Result<Vec<Entry>, String> {
        let mut text = String::from(
            "{\"type\":\"session\",\"version\":3,\"id\":\"x\",\"timestamp\":\"1970-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n",
        );
        let mut parent: Option<&str> = None;
        for (id, entry) in missing {
            text.push_str(&self.line(id, parent, entry));
            text.push('\n');
            parent = Some(id);
        }
        let parsed = read::parse(text.as_bytes(), &read::Limits::default());
        let mut entries = parsed.map_err(|error| error.to_string())?.entries;
        if let Some(first) = entries.first_mut() {
            first.parent = first_parent;
        }
        Ok(entries)
    }

    fn line(&self, id: &str, parent: Option<&str>, entry: &projection::Entry<'_>) -> String {
        let (before, id) = (serde_json::json!(parent), serde_json::json!(id));
        let at = to_rfc3339(entry.at);
        match &entry.role {
            Role::CompactionSummary { tokens_before, kept_from } => serde_json::json!({
                "type": "compaction", "id": id, "parentId": before, "timestamp": at,
                "summary": entry.text(), "firstKeptEntryId": self.first_kept(*kept_from),
                "tokensBefore": tokens_before,
            })
            .to_string(),
            Role::User | Role::Assistant { .. } | Role::ToolResult | Role::BashExecution => {
                let message = entry.json();
                format!(
                    "{{\"type\":\"message\",\"id\":{id},\"parentId\":{before},\"timestamp\":\"{at}\",\"message\":{message}}}"
                )
            }
        }
    }

    /// Returns the first entry that stays visible behind a summary.
    fn first_kept(&self, kept_from: Seq) -> &str {
        let is_kept = |id: &str, entry: &projection::Entry<'_>| {
            entry.seq >= kept_from && !id.is_empty() && !matches!(entry.role, Role::CompactionSummary { .. })
        };
        let kept = self.entries.iter().find(|(id, entry)| is_kept(id, entry));
        kept.map(|(id, _)| id.as_str()).unwrap_or_default()
    }
}

/// The settings in a file, and when they were set.
#[derive(Debug, Default)]
struct Settings {
    name: Option<(Option<String>, Now)>,
    model: Option<((String, String), Now)>,
    thinking: Option<(String, Now)>,
    created: Now,
}

impl Settings {
    /// Reads the settings of a branch; the name is the last one of all branches.
    fn of<'e>(branch: impl Iterator<Item = &'e Entry>, all: &'e [Entry], header: &Header) -> Self {
        let mut settings = Self { created: header.created, ..Self::default() };
        for entry in all {
            if let Change::Name(name) = &entry.change {
                settings.name = Some((name.clone(), entry.at));
            }
        }
        for entry in branch {
            match &entry.change {
                Change::Model { provider, model } => {
                    settings.model = Some(((provider.clone(), model.clone()), entry.at));
                }
                Change::Message(Message::Assistant(message)) if !message.model.is_empty() => {
                    settings.model = Some(((message.provider.clone(), message.model.clone()), entry.at));
                }
                Change::Thinking { level } => settings.thinking = Some((level.clone(), entry.at)),
                Change::Message(_)
                | Change::Compaction { .. }
                | Change::BranchSummary { .. }
                | Change::CustomMessage { .. }
                | Change::Name(_)
                | Change::Other { .. } => {}
            }
        }
        settings
    }

    /// Returns the session's settings that differ from the file's and are newer.
    fn changes(&self, snapshot: &Snapshot, changed: projection::SettingTimes) -> Vec<(&'static str, Now, Change)> {
        let mut changes = Vec::new();
        let newer = |ours: Option<Now>, theirs: Option<Now>| match theirs {
            Some(theirs) => ours.is_some_and(|ours| ours > theirs),
            None => true,
        };
        if let Some(model) = snapshot.model() {
            let own = (snapshot.provider().to_owned(), model.clone());
            let found = self.model.as_ref();
            if found.is_none_or(|(found, _)| *found != own) && newer(changed.model, found.map(|(_, at)| *at)) {
                let (provider, model) = own;
                let at = changed.model.unwrap_or(snapshot.opened_at);
                changes.push(("model", at, Change::Model { provider, model }));
            }
        }
        if let Some(level) = &snapshot.adjusted.thinking {
            let found = self.thinking.as_ref();
            let at = found.map(|(_, at)| *at);
            if found.is_none_or(|(found, _)| found != level) && newer(changed.thinking, at) {
                let at = changed.thinking.unwrap_or(snapshot.opened_at);
                changes.push(("thinking", at, Change::Thinking { level: level.clone() }));
            }
        }
        if let (Some(name), Some(at)) = (&snapshot.name, changed.name) {
            let is_newer = self.name.as_ref().map_or(at >= self.created, |(_, found)| at > *found);
            let found = self.name.as_ref().and_then(|(name, _)| name.as_ref());
            if is_newer && found != Some(name) {
                changes.push(("name", at, Change::Name(Some(name.clone()))));
            }
        }
        changes
    }
}
