//! Responses compared with lifecycle events: one per command, and the same bytes for every repetition.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::pi_load::model::{EndedCommand, Model, Number};
use crate::pi_load::shared_state::{Answer, CommandRecord, Delivery};
use crate::pi_load::trace::Outcome;

/// Commands that cannot be distinguished by their responses.
type Group = (usize, Option<String>, String);

/// Compares all responses with the lifecycle events.
pub(crate) fn check(model: &Model, record: &CommandRecord) {
    let mut ends: BTreeMap<Group, Vec<&EndedCommand>> = BTreeMap::new();
    for ended in &model.ended {
        let group = (ended.instance, ended.envelope.id.clone(), ended.envelope.kind.clone());
        ends.entry(group).or_default().push(ended);
    }
    let mut answers: BTreeMap<Group, Vec<&Answer>> = BTreeMap::new();
    for answer in &record.answers {
        let command = &answer.command;
        let group = (answer.instance, command.id.clone(), command.request.kind.clone());
        answers.entry(group).or_default().push(answer);
    }
    let mut lost: BTreeMap<Group, usize> = BTreeMap::new();
    for sent in record.sent.iter().filter(|sent| sent.delivery == Delivery::Lost) {
        let group = (sent.instance, sent.command.id.clone(), sent.command.request.kind.clone());
        *lost.entry(group).or_default() += 1;
    }
    let mut bodies = BTreeMap::new();
    for (group, answers) in &answers {
        let ends = ends.get(group).map(Vec::as_slice).unwrap_or_default();
        let lost = lost.get(group).copied().unwrap_or(0);
        let count = answers.len();
        assert!(
            ends.len() >= count && ends.len() <= count + lost,
            "{count} answers, {lost} lost and {} ends: {group:?}",
            ends.len()
        );
        let mut left: Vec<&EndedCommand> = ends.to_vec();
        for answer in answers {
            check_one(answer, ends, &mut left, &mut bodies);
        }
    }
    let unreported = ends.keys().find(|group| !answers.contains_key(*group) && !lost.contains_key(*group));
    assert_eq!(unreported, None, "ended and never answered");
}

fn check_one(
    answer: &Answer,
    ends: &[&EndedCommand],
    left: &mut Vec<&EndedCommand>,
    bodies: &mut BTreeMap<Number, String>,
) {
    let line: Value = serde_json::from_str(&answer.line).expect("JSON");
    let error = line["error"].as_str().map(ToOwned::to_owned);
    let outcome = Outcome { error, version: line["sessionVersion"].as_u64() };
    let replayed = line["replayed"] == true;
    assert_eq!(line["success"].as_bool(), Some(outcome.is_success()), "{line}");
    assert_eq!(line["timedOut"] == true, outcome.is_timeout(), "{line}");
    let is_this = |ended: &EndedCommand| ended.outcome == outcome && ended.replayed == replayed;
    let at = left.iter().position(|ended| is_this(ended));
    let at = at.unwrap_or_else(|| panic!("no lifecycle event for {line}; {left:?}"));
    left.remove(at);
    let mut leaders = ends.iter().filter(|ended| is_this(ended)).map(|ended| ended.leader);
    // Several commands without id and the same outcome cannot be distinguished.
    let Some(Some(leader)) = leaders.next() else { return };
    if leaders.any(|other| other != Some(leader)) {
        return;
    }
    let body = body(&answer.line);
    let before = bodies.entry(leader).or_insert_with(|| body.clone());
    assert_eq!(*before, body, "the answer changed");
    if answer.command.request.rest.contains("\"command\":\"echo ") && outcome.is_success() {
        assert_eq!(line["data"]["exitCode"], 0, "{line}");
        assert_eq!(line["data"]["cancelled"], false, "{line}");
    }
}

/// A response without its id and its `replayed` field.
fn body(line: &str) -> String {
    let at = line.find("\"type\":\"response\"").unwrap_or_else(|| panic!("no answer: {line}"));
    line[at..].replacen(",\"replayed\":true", "", 1)
}
