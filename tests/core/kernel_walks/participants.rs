//! Participants in a walk: who joins, and a model of what each may do.

use super::*;
use pushd::kernel::command::Right;
use pushd::kernel::id::ParticipantId;
use pushd::kernel::participant::{Authentication, Participant, ParticipantKind, Role};
use pushd::kernel::refusal::Refusal;

/// What the model says about the sender of a command.
pub(super) enum Permission {
    /// The input is not a command.
    NoCommand,
    /// The sender may not do it.
    Refused,
    /// Nothing of the sender forbids it.
    Possible,
}

/// The table of roles and rights, as the specification prints it: prompt, approve, interrupt, fork, manage, end.
const TABLE: [(Role, [bool; 6]); 6] = [
    (Role::Driver, [true, false, true, true, false, false]),
    (Role::Navigator, [false, true, true, true, false, false]),
    (Role::Adversary, [true, true, true, true, false, false]),
    (Role::Observer, [false, false, false, false, false, false]),
    (Role::Approver, [false, true, true, false, false, false]),
    (Role::Admin, [true, true, true, true, true, true]),
];
const COLUMNS: [Right; 6] =
    [Right::Prompt, Right::Decide, Right::Interrupt, Right::Fork, Right::ManageParticipants, Right::EndSession];

impl Walk {
    pub(super) fn some_participant(&mut self) -> ParticipantId {
        ParticipantId::new(format!("p{}", self.random.below(4)))
    }

    pub(super) fn participant_command(&mut self) -> Command {
        let participant = self.some_participant();
        match self.random.below(16) {
            9..=11 => self.gate_without_run(),
            12..=14 => self.post(),
            15 => Command::Audit { seen: Seq::ZERO },
            0..=3 => Command::Join(Box::new(Participant {
                id: participant,
                kind: if self.random.one_in(3) { ParticipantKind::Agent } else { ParticipantKind::Human },
                name: "n".into(),
                roles: self.roles(),
                capabilities: self.capabilities(),
                authentication: match self.random.below(3) {
                    0 => Authentication::Token { name: "t".into() },
                    _ => Authentication::LocalUser,
                },
                approval_granted: self.random.one_in(2),
            })),
            4 => Command::Leave { reason: self.random.one_in(2).then(|| "bye".into()) },
            5 if self.random.one_in(2) => Command::Remove { participant, reason: None },
            5..=6 => {
                let (roles, capabilities) = (self.roles(), self.capabilities());
                Command::ChangeRoles { participant, roles, capabilities }
            }
            7 => Command::GrantApproval { participant, granted: self.random.one_in(2) },
            _ => Command::ListParticipants,
        }
    }

    fn roles(&mut self) -> BTreeSet<Role> {
        (0..self.random.below(3)).filter_map(|_| self.random.pick(&Role::ALL).copied()).collect()
    }

    fn capabilities(&mut self) -> Rights {
        let right = self.random.pick(&Right::ALL).copied();
        if self.random.one_in(3) { Rights::of(right.as_slice()) } else { Rights::EMPTY }
    }

    /// Decides from the table, without the kernel's own computation, whether the sender may do it.
    pub(super) fn permission(&self, input: &Input) -> Permission {
        let Input::Command { caller, command, if_version, .. } = input else { return Permission::NoCommand };
        if if_version.is_some_and(|version| version != self.session.state().version) {
            return Permission::Possible;
        }
        let right = command.policy().right;
        let bound = match self.session.attachment(caller.id) {
            Some(attached) => attached.rights.contains(right) && caller.rights.contains(right),
            None => caller.rights.contains(right),
        };
        let allowed = match &caller.participant {
            None => true,
            Some(id) => self
                .session
                .state()
                .participants
                .get(id)
                .is_some_and(|known| model_allows(known, right) || self.is_named(known, command)),
        };
        if bound && allowed { Permission::Possible } else { Permission::Refused }
    }

    /// A command without the right to it is refused and changes nothing.
    pub(super) fn check_permission(
        &self,
        permission: Permission,
        reply: Option<&pushd::kernel::command::Reply>,
        persisted: &[Seq],
        what: &str,
    ) {
        match permission {
            Permission::NoCommand | Permission::Possible => {}
            Permission::Refused => {
                assert_eq!(reply, Some(&Err(Refusal::NotPermitted)), "{what}");
                assert!(self.journal.iter().rev().take(persisted.len()).all(is_expiry), "a refusal acted, {what}");
            }
        }
        let state = self.session.state();
        assert!(state.participants.len() <= LIMITS.participants, "{what}");
        for (id, known) in &state.participants {
            assert_eq!(*id, known.id, "{what}");
            let decides = known.rights().contains(Right::Decide);
            let trusted = known.kind == ParticipantKind::Human || known.approval_granted;
            assert!(!decides || trusted, "an agent approves by itself, {what}");
            assert!(!known.rights().contains(Right::Own), "a second owner, {what}");
        }
    }
}

/// What an input records before its command is looked at.
fn is_expiry(event: &Event) -> bool {
    match &event.kind {
        EventKind::Gate(GateEvent::Settled(decision)) => matches!(decision.by.as_str(), "timeout" | "cancel"),
        EventKind::Run(RunEvent::Stopping { by, .. }) => by == "timeout",
        EventKind::Tool(ToolEvent::Settled(_)) | EventKind::Run(RunEvent::RetryEnded { .. }) => true,
        EventKind::Context(_) => true,
        _ => false,
    }
}

fn model_allows(known: &Participant, right: Right) -> bool {
    let not_human = known.kind != ParticipantKind::Human;
    match right {
        Right::Read => return true,
        Right::Own => return false,
        Right::Configure => return known.roles.contains(&Role::Admin),
        Right::ManageParticipants if not_human => return false,
        Right::Decide if not_human && !known.approval_granted => return false,
        Right::AddContext => {
            let active = known.roles.iter().any(|role| *role != Role::Observer);
            return active || known.capabilities.contains(right);
        }
        Right::Steer => return model_allows(known, Right::Prompt),
        _ => {}
    }
    let column = COLUMNS.iter().position(|known| *known == right).expect("a column of the table");
    let by_role = TABLE.iter().any(|(role, rights)| known.roles.contains(role) && rights[column]);
    by_role || known.capabilities.contains(right)
}
