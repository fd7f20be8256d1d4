//! Command handling: each command is checked against the state and gets exactly one reply.

use super::Session;
use super::effects::Effects;
use crate::kernel::command::{
    Answer, Caller, Command, Prompt, QueueEntry, Repetition, Reply, Right, SessionStatus, Steer,
};
use crate::kernel::event::{EventKind, Message, Opening, QueuedMessage, RunEvent, RunOutcome, SessionEvent, Steering};
use crate::kernel::gate;
use crate::kernel::id::{MessageId, RunId, Seq};
use crate::kernel::idempotency::KeySpace;
use crate::kernel::refusal::Refusal;
use crate::kernel::time::Now;

impl Session {
    /// Handles a command and assigns the version of the change that it makes.
    pub(super) fn handle_command(
        &mut self,
        caller: &Caller,
        command: Command,
        if_version: Option<u64>,
        now: Now,
        fx: &mut Effects,
    ) -> Reply {
        let actual = self.state.version;
        if let Some(expected) = if_version.filter(|expected| *expected != actual) {
            return Err(Refusal::Stale { expected, actual });
        }
        let policy = command.policy();
        // A gate can name its voters, who then need no right to decide, only a connection that may.
        if !(self.is_named_voter(caller, &command) && self.roster.bound(caller).contains(policy.right)) {
            self.require(caller, policy.right)?;
        }
        let (admits, opens) = (self.admits(caller, &command), matches!(command, Command::Open(_)));
        if admits && !opens {
            self.admit(caller, now, fx)?;
        }
        self.next_version = policy.bumps_version.then(|| actual.saturating_add(1));
        let reply = self.dispatch(caller, command, now, fx);
        self.next_version = None;
        if admits && opens && reply.is_ok() {
            // The opening is the first event of every session.
            self.admit(caller, now, fx)?;
        }
        reply
    }

    fn dispatch(&mut self, caller: &Caller, command: Command, now: Now, fx: &mut Effects) -> Reply {
        match command {
            Command::Open(opening) => self.open(caller, *opening, now, fx),
            Command::Prompt(prompt) => self.prompt(caller, *prompt, now, fx),
            Command::Queue(prompt) => self.queue(caller, *prompt, now, fx),
            Command::Unqueue { message } => self.unqueue(caller, message, now, fx),
            Command::ListQueue => Ok(self.list_queue()),
            Command::Steer(steer) => self.steer(caller, *steer, now, fx),
            Command::Decide(vote) => self.decide(caller, &vote, now, fx),
            Command::Cancel { run, reason } => self.cancel(caller, run.as_ref(), reason, now, fx),
            Command::Attach { seen, rights } => self.attach(caller, seen, rights, now, fx),
            Command::Resume { seen, rights } => self.resume(caller, seen, rights, now, fx),
            Command::Detach => {
                self.roster.detach(caller.id);
                fx.unsubscribe(caller.id);
                Ok(Answer::Detached)
            }
            Command::Describe => Ok(Answer::Described(Box::new(self.snapshot()))),
            Command::ListGates => Ok(self.list_gates()),
            Command::Rename { name } => self.rename(name, now, fx),
            Command::End => self.end(caller, now, fx),
            Command::BumpVersion { change: what } => self.bump_version(caller, what, now, fx),
            Command::Load => self.load(caller, now, fx),
            Command::Reopen(opening) => self.reopen(caller, opening, now, fx),
            Command::Adjust(adjustment) => self.adjust(caller, adjustment, now, fx),
            Command::UserCommand(command) => self.start_user_command(*command, now, fx),
            Command::StopUserCommand { call } => self.stop_user_commands(call.as_ref(), fx),
            Command::Compact { instructions } => self.compact(caller, instructions, now, fx),
            Command::StopCompaction => self.stop_compaction(caller, now, fx),
            Command::StopRetry => self.stop_retry(fx),
            Command::Branch(branch) => self.branch(caller, branch, now, fx),
            Command::Import(import) => self.import(caller, *import, now, fx),
            Command::Join(participant) => self.join(caller, participant, now, fx),
            Command::Leave { reason } => self.leave(caller, reason, now, fx),
            Command::Remove { participant, reason } => self.remove(caller, participant, reason, now, fx),
            Command::ChangeRoles { participant, roles, capabilities } => {
                self.change_roles(caller, participant, roles, capabilities, now, fx)
            }
            Command::GrantApproval { participant, granted } => {
                self.grant_approval(caller, participant, granted, now, fx)
            }
            Command::ListParticipants => Ok(self.list_participants()),
            Command::Post(post) => Ok(self.post(caller, *post, now, fx)),
            Command::Audit { seen } => self.audit(caller, seen, now, fx),
            Command::PrepareFork { at } => self.prepare_fork(caller, at),
            Command::OpenFork(fork) => self.open_fork(caller, *fork, now, fx),
            Command::OpenGate(proposal) => self.open_gate_without_run(*proposal, now, fx),
        }
    }

    fn open(&mut self, caller: &Caller, opening: Opening, now: Now, fx: &mut Effects) -> Reply {
        if self.state.opening.is_some() {
            return Err(Refusal::AlreadyOpen);
        }
        self.ensure_attached(caller, self.issued, fx)?;
        self.record(EventKind::Session(SessionEvent::Opened(Box::new(opening))), now, fx);
        Ok(Answer::Opened(self.state.phase()))
    }

    fn prompt(&mut self, caller: &Caller, prompt: Prompt, now: Now, fx: &mut Effects) -> Reply {
        if let Some(run) = self.find_repetition(caller, KeySpace::Prompt, &prompt)? {
            self.ensure_attached(caller, self.issued, fx)?;
            return Ok(Answer::Prompted { run, repeated: Repetition::Repeated });
        }
        self.ensure_idle()?;
        self.ensure_attached(caller, self.issued, fx)?;
        let run = prompt.run.clone();
        self.start_run(run.clone(), into_message(prompt, caller), now, fx);
        Ok(Answer::Prompted { run, repeated: Repetition::First })
    }

    fn queue(&mut self, caller: &Caller, prompt: Prompt, now: Now, fx: &mut Effects) -> Reply {
        if let Some(run) = self.find_repetition(caller, KeySpace::Prompt, &prompt)? {
            let position = self.state.queue.iter().position(|queued| queued.run == run);
            return Ok(Answer::Queued { run, position: position.map_or(0, |position| position + 1) });
        }
        let run = prompt.run.clone();
        if self.ensure_idle().is_ok() {
            self.start_run(run.clone(), into_message(prompt, caller), now, fx);
            return Ok(Answer::Queued { run, position: 0 });
        }
        if self.state.queue.len() >= self.limits.queue {
            return Err(Refusal::QueueFull);
        }
        let queued = QueuedMessage { run: run.clone(), message: into_message(prompt, caller) };
        self.record_for(None, EventKind::Run(RunEvent::MessageQueued(Box::new(queued))), now, fx);
        Ok(Answer::Queued { run, position: self.state.queue.len() })
    }

    fn unqueue(&mut self, caller: &Caller, message: MessageId, now: Now, fx: &mut Effects) -> Reply {
        if !self.state.queue.iter().any(|queued| queued.message.message == message) {
            return Err(Refusal::NotQueued);
        }
        let by = caller.source.clone();
        self.record_for(None, EventKind::Run(RunEvent::MessageUnqueued { message, by }), now, fx);
        Ok(Answer::Unqueued)
    }

    fn steer(&mut self, caller: &Caller, steer: Steer, now: Now, fx: &mut Effects) -> Reply {
        let key = (KeySpace::Steer, steer.message.clone());
        if let Some(run) = self.state.idempotency.lookup(&key, steer.fingerprint)? {
            return Ok(Answer::Steered(run.clone()));
        }
        // After the provider has finished, no turn is left that a message could reach.
        let reachable = self.state.run.as_ref().filter(|run| run.stopping.is_none() && self.finish.is_none());
        let run = reachable.ok_or(Refusal::NoActiveRun)?;
        if run.steers.len() >= self.limits.steers {
            return Err(Refusal::TooManySteers);
        }
        // What the run may do without a gate, a run of the caller itself could not.
        if run.may_start_without_gate() {
            self.require(caller, Right::Decide)?;
        }
        let answer = Answer::Steered(run.id.clone());
        let Steer { message, text, images, fingerprint } = steer;
        let steering = Steering { message, text, images, fingerprint, by: caller.source.clone() };
        self.record(EventKind::Run(RunEvent::Steered(Box::new(steering))), now, fx);
        Ok(answer)
    }

    fn cancel(&mut self, caller: &Caller, run: Option<&RunId>, reason: String, now: Now, fx: &mut Effects) -> Reply {
        let active = self.state.run.as_ref().ok_or(Refusal::NoActiveRun)?;
        if run.is_some_and(|run| *run != active.id) {
            return Err(Refusal::NoActiveRun);
        }
        self.stop(RunOutcome::Cancelled, reason, &caller.source, now, fx);
        Ok(Answer::Cancelling)
    }

    fn rename(&mut self, name: String, now: Now, fx: &mut Effects) -> Reply {
        self.record_for(None, EventKind::Session(SessionEvent::Renamed { name }), now, fx);
        Ok(Answer::Renamed)
    }

    fn end(&mut self, caller: &Caller, now: Now, fx: &mut Effects) -> Reply {
        self.ensure_idle()?;
        if self.state.open == SessionStatus::Open {
            self.record_for(None, EventKind::Session(SessionEvent::Ended { by: caller.source.clone() }), now, fx);
        }
        Ok(Answer::Ended)
    }

    fn list_queue(&self) -> Answer {
        let waiting = self.state.queue.iter().map(|queued| QueueEntry {
            message: queued.message.message.clone(),
            run: queued.run.clone(),
            text: queued.message.text.clone(),
        });
        Answer::Queue(waiting.collect())
    }

    fn list_gates(&self) -> Answer {
        let mut gates: Vec<_> =
            self.state.gates.values().map(|gate| (gate.run.clone(), gate.question.clone())).collect();
        gates.sort_by_key(|(_, question)| question.expires);
        Answer::Gates(gates)
    }

    /// Attaches a caller that is not attached yet; it gets the events after `seen`.
    fn ensure_attached(&mut self, caller: &Caller, seen: Seq, fx: &mut Effects) -> Result<(), Refusal> {
        if !self.roster.contains(caller.id) {
            self.roster.attach(caller, caller.rights, self.limits.attached)?;
            fx.subscribe(caller.id, seen);
        }
        Ok(())
    }

    /// Returns the run of a repeated message, or `None` for a new one that may be accepted.
    fn find_repetition(&self, caller: &Caller, scope: KeySpace, prompt: &Prompt) -> Result<Option<RunId>, Refusal> {
        // A rule can let calls start without a gate, so it takes the right to decide.
        if !prompt.rules.is_empty() {
            self.require(caller, Right::Decide)?;
        }
        let known = self.state.idempotency.lookup(&(scope, prompt.message.clone()), prompt.fingerprint)?.cloned();
        if known.is_none() && self.state.open == SessionStatus::Ended {
            return Err(Refusal::SessionEnded);
        }
        Ok(known)
    }

    /// Checks that a run could start: none is active, and no compaction is in progress.
    pub(super) const fn ensure_idle(&self) -> Result<(), Refusal> {
        if self.state.run.is_some() {
            return Err(Refusal::RunActive);
        }
        if self.state.compaction.is_some() { Err(Refusal::Compacting) } else { Ok(()) }
    }

    /// Checks that the session accepts messages.
    pub(super) fn ensure_open(&self) -> Result<(), Refusal> {
        match self.state.open {
            SessionStatus::Open => Ok(()),
            SessionStatus::Ended => Err(Refusal::SessionEnded),
        }
    }
}

fn into_message(mut prompt: Prompt, caller: &Caller) -> Message {
    if !caller.is_owner() {
        prompt.rules.push(gate::CONFINED.to_owned());
    }
    Message {
        message: prompt.message,
        text: prompt.text,
        images: prompt.images,
        criteria: prompt.criteria,
        time_limit: prompt.time_limit,
        budget: prompt.budget,
        rules: prompt.rules,
        needs_environment: prompt.needs_environment,
        fingerprint: prompt.fingerprint,
        by: caller.source.clone(),
    }
}
