//! The commands of session requests, and the replies to their answers.

use tokio::sync::OwnedMutexGuard;

use super::fingerprints;
use super::generate;
use crate::config::settings::rule::{Effect, Rule, RuleError};
use crate::kernel::command::{Answer, Command, GateProposal, GateVote, Prompt, Repetition, Rights, Steer, UserCommand};
use crate::kernel::environment::Environment;
use crate::kernel::gate::is_run_policy;
use crate::kernel::id::{GateId, Json, MessageId, ParticipantId, SessionId};
use crate::kernel::participant::{Authentication, Participant};
use crate::protocol::intent::{self, ParticipantIntent, SessionIntent, SnapshotMode};
use crate::protocol::reply::{Completion, Reply};
use crate::tools;

/// What a response needs besides the answer of the session.
pub(super) enum ReplyContext {
    Plain,
    Started {
        token: String,
        /// Released when the response is queued, when the session is on disk.
        _start_guard: Option<OwnedMutexGuard<()>>,
    },
    Queued {
        message: MessageId,
    },
    Joined {
        participant: ParticipantId,
    },
    GateOpened {
        gate: GateId,
    },
}

/// Returns the reply to a request, from the answer of its session.
pub(super) fn to_reply(session: SessionId, answer: Answer, context: ReplyContext) -> Reply {
    match (answer, context) {
        (Answer::Opened(phase), ReplyContext::Started { token, .. }) => {
            Reply::Started { session, phase, token, repetition: Repetition::First }
        }
        (Answer::Described(snapshot), ReplyContext::Started { token, .. }) => {
            Reply::Started { session, phase: snapshot.phase, token, repetition: Repetition::Repeated }
        }
        (Answer::Queued { run, position }, ReplyContext::Queued { message }) => {
            Reply::Queued { message, run, position }
        }
        (Answer::ParticipantChanged, ReplyContext::Joined { participant }) => Reply::Joined(participant),
        (Answer::GateOpened, ReplyContext::GateOpened { gate }) => Reply::GateOpened(gate),
        (Answer::Participants(known), _) => Reply::Participants(known),
        (Answer::Prompted { run, repeated }, _) => Reply::Prompted { run, repetition: repeated },
        (Answer::Queue(waiting), _) => Reply::Queue(waiting),
        (Answer::Steered(run), _) => Reply::Steered(run),
        (Answer::Attached { phase, replay }, _) => Reply::Attached { session, phase, replay },
        (Answer::Described(snapshot), _) => Reply::Snapshot(snapshot),
        (Answer::Unqueued, _) => Reply::Done(Completion::Unqueued),
        (Answer::Detached, _) => Reply::Done(Completion::Detached),
        (Answer::Renamed, _) => Reply::Done(Completion::Renamed),
        (Answer::Ended, _) => Reply::Done(Completion::Ended),
        (Answer::UserCommandStarted(call), _) => Reply::UserCommandStarted(call),
        (Answer::CompactionStarted(began), _) => Reply::Compacting(began),
        (
            Answer::Gates(_)
            | Answer::GateOpened
            | Answer::Posted
            | Answer::Decided
            | Answer::Cancelling
            | Answer::Opened(_)
            | Answer::Queued { .. }
            | Answer::VersionBumped
            | Answer::Loaded
            | Answer::Adjusted
            | Answer::StoppingUserCommand
            | Answer::CompactionStopped
            | Answer::RetryStopped
            | Answer::Branched
            | Answer::Imported
            | Answer::ForkPrepared(_)
            | Answer::ParticipantChanged,
            _,
        ) => Reply::Done(Completion::Accepted),
    }
}

/// Returns the command of a session request, the environment that it brings, and what its reply needs.
pub(super) fn to_command(
    intent: SessionIntent,
    authentication: &Authentication,
) -> (Command, Option<Environment>, ReplyContext) {
    match intent {
        SessionIntent::Attach(attach) => {
            let rights = if attach.read_only { Rights::READ_ONLY } else { Rights::ALL };
            let command = match attach.snapshot {
                _ if attach.as_owner => Command::Audit { seen: attach.seen },
                SnapshotMode::AfterGap => Command::Attach { seen: attach.seen, rights },
                SnapshotMode::Always => Command::Resume { seen: attach.seen, rights },
            };
            (command, attach.environment, ReplyContext::Plain)
        }
        SessionIntent::Detach => (Command::Detach, None, ReplyContext::Plain),
        SessionIntent::Prompt(request) => {
            let (prompt, environment) = to_prompt(*request);
            (Command::Prompt(Box::new(prompt)), environment, ReplyContext::Plain)
        }
        SessionIntent::Queue(request) => {
            let (prompt, environment) = to_prompt(*request);
            let context = ReplyContext::Queued { message: prompt.message.clone() };
            (Command::Queue(Box::new(prompt)), environment, context)
        }
        SessionIntent::Steer { message, text, images } => {
            let fingerprint =
                generate::fingerprint(["steer", &text].into_iter().chain(fingerprints::image_parts(&images)));
            let message = message.unwrap_or_else(generate::message);
            let steer = Steer { message, text, images, fingerprint };
            (Command::Steer(Box::new(steer)), None, ReplyContext::Plain)
        }
        SessionIntent::Decide(request) => {
            let (vote, environment) = to_vote(*request);
            (Command::Decide(Box::new(vote)), environment, ReplyContext::Plain)
        }
        SessionIntent::ListQueue => (Command::ListQueue, None, ReplyContext::Plain),
        SessionIntent::Unqueue { message } => (Command::Unqueue { message }, None, ReplyContext::Plain),
        SessionIntent::Cancel { run, reason } => (Command::Cancel { run, reason }, None, ReplyContext::Plain),
        SessionIntent::UserCommand(request) => {
            let command = Command::UserCommand(Box::new(to_user_command(&request)));
            (command, request.environment, ReplyContext::Plain)
        }
        SessionIntent::StopUserCommand { call } => (Command::StopUserCommand { call }, None, ReplyContext::Plain),
        SessionIntent::Rename { name } => (Command::Rename { name }, None, ReplyContext::Plain),
        SessionIntent::End => (Command::End, None, ReplyContext::Plain),
        SessionIntent::Compact { instructions, environment } => {
            (Command::Compact { instructions }, environment, ReplyContext::Plain)
        }
        SessionIntent::Participant(intent) => to_participant_command(intent, authentication),
        // Messages are read from the journal; forks and deletions are handled before.
        SessionIntent::Snapshot
        | SessionIntent::Messages { .. }
        | SessionIntent::Fork(_)
        | SessionIntent::Delete { .. } => (Command::Describe, None, ReplyContext::Plain),
    }
}

/// Returns the command of a request about participants, and what its reply needs.
fn to_participant_command(
    intent: ParticipantIntent,
    authentication: &Authentication,
) -> (Command, Option<Environment>, ReplyContext) {
    let (command, context) = match intent {
        ParticipantIntent::List => (Command::ListParticipants, ReplyContext::Plain),
        ParticipantIntent::Join(join) => {
            let context = ReplyContext::Joined { participant: join.participant.clone() };
            (Command::Join(Box::new(to_participant(*join, authentication.clone()))), context)
        }
        ParticipantIntent::Leave { participant: None, reason } => (Command::Leave { reason }, ReplyContext::Plain),
        ParticipantIntent::Leave { participant: Some(participant), reason } => {
            (Command::Remove { participant, reason }, ReplyContext::Plain)
        }
        ParticipantIntent::ChangeRoles { participant, roles, capabilities } => {
            (Command::ChangeRoles { participant, roles, capabilities }, ReplyContext::Plain)
        }
        ParticipantIntent::GrantApproval { participant, granted } => {
            (Command::GrantApproval { participant, granted }, ReplyContext::Plain)
        }
        ParticipantIntent::Post(post) => (Command::Post(post), ReplyContext::Plain),
        ParticipantIntent::OpenGate(open) => {
            let proposal = to_proposal(*open);
            let context = ReplyContext::GateOpened { gate: proposal.gate.clone() };
            (Command::OpenGate(Box::new(proposal)), context)
        }
    };
    (command, None, context)
}

fn to_participant(join: intent::Join, authentication: Authentication) -> Participant {
    Participant {
        id: join.participant,
        kind: join.kind,
        name: join.name,
        roles: join.roles,
        capabilities: join.capabilities,
        authentication,
        approval_granted: false,
    }
}

fn to_proposal(open: intent::OpenGate) -> GateProposal {
    GateProposal {
        gate: generate::gate(),
        kind: open.kind,
        title: open.title,
        summary: open.summary,
        details: open.details,
        choices: open.choices,
        quorum: open.quorum,
        eligible: open.eligible,
        timeout_millis: open.timeout_millis,
    }
}

fn to_vote(request: intent::ApprovalDecision) -> (GateVote, Option<Environment>) {
    let vote = GateVote {
        gate: request.gate,
        run: request.run,
        decision: request.decision,
        choice: request.choice,
        comment: request.comment,
        scope: request.scope,
        rule: request.rule,
        answer: request.answer,
    };
    (vote, request.environment)
}

fn to_prompt(request: intent::Prompt) -> (Prompt, Option<Environment>) {
    let limits = (request.time_limit, request.budget);
    let fingerprint = fingerprints::message(&request.text, &request.criteria, &request.images, limits, &request.rules);
    let message = request.message.unwrap_or_else(generate::message);
    let prompt = Prompt {
        run: generate::run(),
        message,
        text: request.text,
        images: request.images,
        criteria: request.criteria,
        time_limit: request.time_limit,
        budget: request.budget,
        rules: request.rules,
        // The lane sets it.
        needs_environment: false,
        fingerprint,
    };
    (prompt, request.environment)
}

fn to_user_command(request: &intent::UserCommand) -> UserCommand {
    UserCommand {
        call: generate::call(),
        tool: tools::EXEC.to_owned(),
        args: Json::new(serde_json::json!({ "command": request.command }).to_string()),
        in_context: request.in_context,
    }
}

/// Checks the rules of a request, and brings the rule of an approval into its usual form; the error names what is invalid.
pub(super) fn normalize_rules(intent: &mut SessionIntent) -> Result<(), String> {
    if let SessionIntent::Prompt(prompt) | SessionIntent::Queue(prompt) = intent
        && let Some(problem) = invalid_rule(&prompt.rules)
    {
        return Err(format!("payload.rules: {problem}"));
    }
    if let SessionIntent::Decide(decision) = intent
        && let Some(rule) = &mut decision.rule
    {
        *rule = normalize_allow_rules(rule).map_err(|problem| format!("payload.rule: {problem}"))?;
    }
    Ok(())
}

/// Returns the rules of an approval in their usual form, one a line; the error names what is not an `allow` rule.
fn normalize_allow_rules(text: &str) -> Result<String, String> {
    let normalize = |line: &str| match line.parse::<Rule>() {
        Ok(rule) if rule.effect == Effect::Allow => Ok(rule.to_string()),
        Ok(rule) => Err(format!("`{rule}` is not an allow rule")),
        Err(error) => Err(error.to_string()),
    };
    let lines: Vec<String> = text.lines().map(normalize).collect::<Result<_, _>>()?;
    Ok(lines.join("\n"))
}

/// Returns the error of the first invalid rule.
fn invalid_rule(rules: &[String]) -> Option<RuleError> {
    rules.iter().filter(|rule| !is_run_policy(rule)).find_map(|rule| rule.parse::<Rule>().err())
}
