//! Findings from the daemon's check of its journal.
//!
//! A loss cannot be undone. A loss that was detected in the last seven days is a problem, because the disk may be
//! failing. After that it is a note, until its session is deleted. Losses by a power failure and by retention are
//! notes from the start, because they say nothing about the disk.

use super::Finding;
use crate::cli::format::size;
use crate::cli::sessions::age;
use crate::client::{IntegrityReply, JournalReply, Loss};

/// How long a loss is a problem, in milliseconds.
const RECENT_MILLIS: u64 = 7 * 24 * 60 * 60 * 1000;

/// Returns the findings from a reply to `check_journal`.
pub(super) fn findings(check: &JournalReply, now: u64) -> Vec<Finding> {
    let mut found = vec![size_finding(check)];
    found.extend(state_findings(check));
    found.extend(check.losses.iter().map(|loss| loss_finding(loss, now)));
    let listed = check.losses.len() as u64;
    let total = check.losses_total;
    if total > listed {
        found.push(Finding::note("losses", format!("{} older losses are not listed", total - listed)));
    }
    if total == 0 {
        found.push(Finding::ok("losses", "no loss is known"));
    }
    let blocks = check.set_aside_blocks;
    if blocks > 0 {
        let text = format!("{blocks} damaged blocks are set aside in the journal");
        found.push(Finding::note("set aside", text).with_remedy("`push delete` removes them with their sessions"));
    }
    found.extend(check.proof.iter().flat_map(proof_findings));
    found
}

fn size_finding(check: &JournalReply) -> Finding {
    let schema = check.schema;
    let text = format!(
        "{} sessions, {} in use (database {}, log {}, marks {}), schema {}.{}",
        check.sessions,
        size(check.used_bytes),
        size(check.database_bytes),
        size(check.log_bytes),
        size(check.marks_bytes),
        schema / 1000,
        schema % 1000,
    );
    Finding::ok("journal", text)
}

fn state_findings(check: &JournalReply) -> Vec<Finding> {
    const ABOUT: &str = "journal";
    let mut found = Vec::new();
    if check.disk_full {
        let text = "the disk is full: nothing new is stored until there is free space";
        let remedy = "free disk space; `push delete --older-than 30d` deletes old sessions";
        found.push(Finding::problem(ABOUT, text).with_remedy(remedy));
    }
    if check.sync_failed {
        let text = "a sync to disk has failed: nothing is stored any more; stored data can still be read";
        let remedy = "check the disk and the system log, then run `push daemon restart`";
        found.push(Finding::problem(ABOUT, text).with_remedy(remedy));
    }
    if !check.marks_kept {
        let text = "the marks file cannot be written: a truncated history may go undetected";
        let remedy = "check the disk and the system log, then run `push daemon restart`";
        found.push(Finding::problem(ABOUT, text).with_remedy(remedy));
    }
    if !check.left_in_order {
        let text = "the last daemon was killed or the machine stopped; its sessions were checked";
        found.push(Finding::note(ABOUT, text));
    }
    found
}

fn loss_finding(loss: &Loss, now: u64) -> Finding {
    const ABOUT: &str = "losses";
    let Loss { after_seq, until_seq: until, cause, .. } = loss;
    let first = after_seq.saturating_add(1);
    let since = now.saturating_sub(loss.found_at);
    let what = match (loss.session_id.as_deref().unwrap_or_default(), cause.as_str()) {
        ("", _) => "unknown events are lost".to_owned(),
        (session, "session") => format!("{session} is lost completely, up to event {until}"),
        (session, "power") => format!("{session} may have lost events {first} to {until} when the machine stopped"),
        (session, _) => format!("{session} has lost events {first} to {until} ({cause})"),
    };
    let detail = loss.detail.as_deref().unwrap_or_default();
    let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
    let text = format!("{what}{detail}, found {} ago", age(since));
    match cause.as_str() {
        "power" | "retention" => Finding::note(ABOUT, text),
        _ if since >= RECENT_MILLIS => Finding::note(ABOUT, text),
        _ => Finding::problem(ABOUT, text).with_remedy(
            "check the disk and the system log; the rest of the session is readable, and this becomes a note after 7 days",
        ),
    }
}

fn proof_findings(proof: &IntegrityReply) -> Vec<Finding> {
    const ABOUT: &str = "every event";
    let (sessions, bytes) = (proof.sessions, size(proof.bytes));
    let mut found: Vec<_> = proof
        .problems
        .iter()
        .map(|problem| {
            Finding::problem(ABOUT, format!("{}: {}", problem.session_id, problem.what))
                .with_remedy("`push daemon logs` may have details; `push delete` deletes the session")
        })
        .collect();
    let unlisted = proof.problems_total.saturating_sub(proof.problems.len() as u64);
    if unlisted > 0 {
        found.push(Finding::problem(ABOUT, format!("{unlisted} more sessions could not be checked")));
    }
    let lost = proof.found.len();
    let looked = format!("{sessions} sessions with {bytes} were checked");
    found.push(match (lost, found.is_empty()) {
        (0, true) => Finding::ok(ABOUT, format!("{looked}, and nothing is missing")),
        (0, false) => Finding::note(ABOUT, looked),
        (_, _) => Finding::note(ABOUT, format!("{looked}; {lost} of the losses above are new")),
    });
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Level;
    use super::*;

    const DAY: u64 = 24 * 60 * 60 * 1000;

    #[test]
    fn a_healthy_journal_is_ok() {
        let found = findings(&reply(healthy()), 0);
        assert!(found.iter().all(|finding| finding.level == Level::Ok), "{found:?}");
        assert_eq!(found[0].text, "2 sessions, 1.0 KiB in use (database 2.0 KiB, log 0 B, marks 192 B), schema 1.1");
    }

    #[test]
    fn a_journal_that_cannot_write_is_a_problem_with_a_remedy() {
        for (name, value) in [("diskFull", true), ("syncFailed", true), ("marksKept", false)] {
            let mut check = healthy();
            check[name] = json!(value);
            let problems: Vec<_> = findings(&reply(check.clone()), 0)
                .into_iter()
                .filter(|finding| finding.level == Level::Problem)
                .collect();
            assert_eq!(problems.len(), 1, "{name}");
            assert!(problems[0].remedy.is_some(), "{name}");
        }
    }

    #[test]
    fn a_loss_names_its_session_and_range_and_is_a_problem_for_seven_days() {
        let loss = json!({"foundAt": DAY, "sessionId": "sess_1", "afterSeq": 9, "untilSeq": 12, "cause": "damage"});
        let fresh = loss_finding(&loss_of(&loss), 2 * DAY);
        assert_eq!((fresh.level, fresh.text.as_str()), {
            (Level::Problem, "sess_1 has lost events 10 to 12 (damage), found 1d ago")
        });
        assert_eq!(loss_finding(&loss_of(&loss), 9 * DAY).level, Level::Note);
        let mut power = loss.clone();
        power["cause"] = json!("power");
        assert_eq!(loss_finding(&loss_of(&power), 2 * DAY).level, Level::Note);
        let whole = json!({"foundAt": DAY, "afterSeq": 0, "untilSeq": 12, "cause": "database", "detail": "why"});
        assert_eq!(loss_finding(&loss_of(&whole), DAY).text, "unknown events are lost: why, found 0s ago");
    }

    #[test]
    fn a_full_check_reports_its_result() {
        let mut check = healthy();
        check["proof"] = json!({"sessions": 2, "bytes": 1024, "found": [], "problemsTotal": 0, "problems": []});
        let last = findings(&reply(check.clone()), 0).pop();
        assert_eq!(last.map(|last| last.text).as_deref(), {
            Some("2 sessions with 1.0 KiB were checked, and nothing is missing")
        });
        check["proof"]["problems"] = json!([{"sessionId": "sess_1", "what": "cannot be read"}]);
        check["proof"]["problemsTotal"] = json!(3);
        let problems: Vec<_> =
            findings(&reply(check.clone()), 0).into_iter().filter(|finding| finding.level == Level::Problem).collect();
        assert_eq!(problems[0].text, "sess_1: cannot be read");
        assert_eq!(problems[1].text, "2 more sessions could not be checked");
    }

    fn healthy() -> Value {
        json!({"schema": 1001, "sessions": 2, "usedBytes": 1024, "databaseBytes": 2048, "logBytes": 0,
            "marksBytes": 192, "setAsideFiles": 0, "setAsideBytes": 0, "setAsideBlocks": 0, "leftInOrder": true,
            "marksKept": true, "diskFull": false, "syncFailed": false, "lossesTotal": 0, "losses": []})
    }

    fn reply(check: Value) -> JournalReply {
        serde_json::from_value(check).unwrap()
    }

    fn loss_of(loss: &Value) -> Loss {
        serde_json::from_value(loss.clone()).unwrap()
    }
}
