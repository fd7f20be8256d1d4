//! Forks in a walk: no fork changes its parent, and a fork is a session like any other.

use super::*;
use pushd::kernel::command::Answer;
use pushd::kernel::event::{Branch, ContextEvent, SessionEvent};
use pushd::kernel::fork::{Fork, ForkPoint, Inheritance};
use pushd::kernel::refusal::Refusal;

/// How many generations a walk has, and how many steps a fork walks.
const GENERATIONS: u32 = 3;
const FORK_STEPS: u64 = 12;
/// Limits that no history of a walk reaches.
const WIDE: Limits = Limits { import_steps: 10_000, import_bytes: 1 << 20, ..LIMITS };

impl Walk {
    /// Sometimes forks the session at any event, and walks the fork.
    pub(super) fn maybe_fork(&mut self) {
        if self.generation >= GENERATIONS || !self.forks.one_in(30) {
            return;
        }
        // What is due happens first, so that the fork is the only cause of a change.
        self.apply(Input::Deadline);
        let (state, issued, kept) = (self.session.state().clone(), self.session.issued(), self.journal.clone());
        let what = format!("seed {} tick {}: a fork", self.seed, self.tick);
        if let Some(mut child) = self.fork(&what) {
            child.check_fork(self, &what);
            for _ in 0..FORK_STEPS {
                child.step();
                child.maybe_fork();
            }
            child.crash();
            child.cancel_and_drain();
        }
        assert_eq!(*self.session.state(), state, "a fork changed its parent, {what}");
        assert_eq!((self.session.issued(), &self.journal), (issued, &kept), "a fork changed its parent, {what}");
        let restored = Session::restore(LIMITS, State::default(), &kept, self.reserved, HistoryGaps::default());
        assert_eq!(*restored.state(), state, "a parent is restored as it was, {what}");
    }

    /// Forks at a random position as a random participant; `None` if that is refused.
    fn fork(&mut self, what: &str) -> Option<Self> {
        let newest = self.session.state().last_seq;
        let at = (!self.forks.one_in(4)).then(|| Seq::new(self.forks.below(newest.number() + 3)));
        let participant = self.forks.one_in(3).then(|| self.fork_participant());
        let caller = Caller { participant, ..Caller::owner(ConnectionId(8), "owner".into()) };
        let point = self.prepare(caller, at, what)?;
        let wide = if self.forks.one_in(5) { LIMITS } else { WIDE };
        let mut inheritance = Inheritance::new(point.viewer.clone(), wide);
        self.journal.iter().filter(|event| event.seq <= point.at).for_each(|event| inheritance.add(event.clone()));
        let inherited = match inheritance.finish() {
            Ok(inherited) => inherited,
            Err(refusal) => {
                assert_eq!((refusal, wide), (Refusal::ImportTooLarge, LIMITS), "{what}");
                return None;
            }
        };
        let mut child = Self::new(self.seed ^ self.forks.next());
        // A failure names the seed of the whole walk.
        child.seed = self.seed;
        (child.generation, child.now, child.last_id) = (self.generation + 1, self.now, self.last_id + 1_000);
        (child.is_trimmed, child.viewer) = (wide == LIMITS, point.viewer.clone());
        let opening = point.opening(SessionId::new("sess_walk"), Some("fork".into()));
        let (settings, version) = (point.settings(), point.snapshot.version + 1);
        child.send_as_owner(Command::OpenFork(Box::new(Fork { opening, inherited, settings, version })));
        assert_eq!(child.session.state().version, version, "{what}");
        // A second fork under the same id is refused and changes nothing.
        let opened = child.journal.len();
        let again = Fork { opening: Opening::default(), inherited: Vec::new(), settings: point.settings(), version };
        child.send_as_owner(Command::OpenFork(Box::new(again)));
        assert_eq!(child.journal.len(), opened, "{what}");
        Some(child)
    }

    fn fork_participant(&mut self) -> pushd::kernel::id::ParticipantId {
        let known: Vec<_> = self.session.state().participants.keys().cloned().collect();
        let unknown = || pushd::kernel::id::ParticipantId::new("nobody");
        self.forks.pick(&known).cloned().unwrap_or_else(unknown)
    }

    /// Asks for a fork point, which only answers.
    fn prepare(&mut self, caller: Caller, at: Option<Seq>, what: &str) -> Option<ForkPoint> {
        let newest = self.session.state().last_seq;
        let command = Command::PrepareFork { at };
        let may_fork = caller.participant.as_ref().is_none_or(|id| {
            let known = self.session.state().participants.get(id);
            known.is_some_and(|known| known.rights().contains(pushd::kernel::command::Right::Fork))
        });
        let input = Input::Command { ticket: Ticket(0), caller, command, if_version: None };
        let effects = self.session.apply(input, self.now);
        let (mut replies, others): (Vec<_>, Vec<_>) =
            effects.into_iter().partition(|effect| matches!(effect, Effect::Reply(..)));
        assert_eq!(others, [], "a fork changed its parent, {what}");
        let Some(Effect::Reply(_, reply, _)) = replies.pop() else { panic!("no reply, {what}") };
        let expected = match at {
            _ if !may_fork => Some(Refusal::NotPermitted),
            Some(at) if at > newest => Some(Refusal::UnknownPosition),
            Some(_) | None => None,
        };
        match (reply, expected) {
            (Ok(Answer::ForkPrepared(point)), None) => {
                assert_eq!(point.at, at.unwrap_or(newest), "{what}");
                Some(*point)
            }
            (Err(refusal), Some(expected)) if refusal == expected => None,
            (reply, expected) => panic!("{reply:?} instead of {expected:?}, {what}"),
        }
    }

    /// A fork has the conversation of its parent up to its point, and nothing that is active or was granted there.
    fn check_fork(&self, parent: &Self, what: &str) {
        let state = self.session.state();
        let opening = state.opening.as_ref().expect("an opened session");
        assert_eq!(opening.parent, Some(SessionId::new("sess_walk")), "{what}");
        let at = opening.forked_at.expect("the point of the fork");
        assert!(state.run.is_none() && state.gates.is_empty() && state.queue.is_empty(), "something is active, {what}");
        assert!(state.user_commands.is_empty() && state.compaction.is_none(), "something is active, {what}");
        assert!(state.participants.is_empty() && state.granted.is_empty(), "something was inherited, {what}");
        assert_eq!(state.adjusted.unloaded, None, "{what}");
        let inherited = self.journal[1..].iter().take_while(|event| event.seq <= at);
        for event in inherited {
            assert!(event.audience.contains(&self.viewer), "{event:?} is not for {:?}, {what}", self.viewer);
            assert!(parent.journal.iter().any(|own| own.seq == event.seq), "{event:?} is not of the parent, {what}");
        }
        assert!(state.last_seq.number() <= at.number() + 3, "its own events follow the point of the fork, {what}");
        if !self.is_trimmed {
            self.check_conversation(parent, at, what);
        }
    }

    fn check_conversation(&self, parent: &Self, at: Seq, what: &str) {
        let mut expected = Conversation::default();
        let seen = parent.journal.iter().filter(|event| event.seq <= at && event.audience.contains(&self.viewer));
        let seen: Vec<_> = seen.collect();
        let start = seen.iter().rposition(|event| begins_anew(&event.kind)).map_or(0, |start| start + 1);
        let opened = seen.iter().find(|event| matches!(event.kind, EventKind::Session(SessionEvent::Opened(_))));
        opened.into_iter().chain(&seen[start..]).for_each(|event| expected.fold(event));
        let messages = |conversation: &Conversation| {
            let messages = conversation.messages().into_iter();
            messages.map(|message| (message.seq, message.author, message.text.into_owned())).collect::<Vec<_>>()
        };
        assert_eq!(messages(&self.conversation), messages(&expected), "{what}");
        assert_eq!(self.conversation.summaries(), expected.summaries(), "{what}");
        if !expected.is_run_active() {
            assert_eq!(self.conversation.items(), expected.items(), "{what}");
        }
    }
}

/// Returns whether nothing before an event belongs to the conversation.
fn begins_anew(kind: &EventKind) -> bool {
    match kind {
        EventKind::Session(SessionEvent::Opened(_)) => true,
        EventKind::Context(ContextEvent::Branched { branch: Branch { until, .. }, .. }) => *until == Seq::ZERO,
        _ => false,
    }
}
