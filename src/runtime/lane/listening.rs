//! Who listens to a session: how they are answered, how they leave, and how the next life of it takes them over.

use std::sync::Arc;

use super::Lane;
use super::batch::Answered;
use crate::agent::inquiry;
use crate::kernel::command::{Caller, Command, Private};
use crate::kernel::effect::Ticket;
use crate::kernel::id::ParticipantId;
use crate::kernel::session::Input;
use crate::protocol::push::encode;
use crate::runtime::feed::Listener;
use crate::runtime::outbox::Out;

impl Lane {
    /// Takes over who listened to the life before; each goes on where it is.
    pub(super) fn inherit(&mut self) {
        for Listener { outbox, rights } in std::mem::take(&mut self.inherited) {
            let caller = Caller { id: outbox.id(), source: String::new(), rights };
            let command = Command::Attach { seen: self.session.issued(), rights };
            self.tickets += 1;
            // Nobody asked, so nobody is answered; the place of a listener is known to its writer alone.
            let ticket = Ticket(self.tickets);
            self.apply(Input::Command { ticket, caller, command, if_version: None }, None);
            self.feed.add(Listener { outbox: Arc::clone(&outbox), rights });
            outbox.push(Out::Follow(Arc::clone(&self.feed)));
            if outbox.is_closed() {
                self.gone(outbox.id());
            }
        }
    }

    pub(super) fn gone(&mut self, who: ParticipantId) {
        self.feed.remove(who);
        self.apply(Input::Gone(who), None);
    }

    /// Tells whether what is filled in somewhere is no answer to what was asked there.
    pub(super) fn is_misfit(&self, command: &Command) -> bool {
        let Command::Decide(vote) = command else { return false };
        let gate = self.session.state().gates.get(&vote.gate);
        let form = gate.and_then(|gate| gate.question.form.as_ref());
        form.zip(vote.answer.as_ref()).is_some_and(|(form, answer)| !inquiry::fits(form, answer))
    }

    pub(super) fn give(&self, answer: Answered) {
        match answer {
            Answered::Reply(respond, told) => respond.answer(Ok(told)),
            Answered::Private(outbox, private) => {
                let mut bytes = Vec::new();
                encode::private_line(&self.id, &private, &mut bytes);
                outbox.push(match private {
                    Private::Summary { after, .. } => {
                        Out::After { session: self.id.clone(), after, line: bytes.into() }
                    }
                    Private::Gap { .. } | Private::Snapshot { .. } | Private::Deleted { .. } => {
                        Out::Lines { bytes, permit: None }
                    }
                });
            }
            Answered::Subscribe(outbox, after) => {
                // Whoever left meanwhile would be woken for ever.
                let Some(rights) = self.session.rights_of(outbox.id()) else { return };
                self.feed.add(Listener { outbox: Arc::clone(&outbox), rights });
                outbox.push(Out::Subscribe { feed: Arc::clone(&self.feed), after });
            }
            Answered::Unsubscribe(outbox) => {
                self.feed.remove(outbox.id());
                outbox.push(Out::Unsubscribe(self.id.clone()));
            }
        }
    }
}
