//! The subscribers of a session: how replies are delivered, how they disconnect, and how a new lane takes them over.

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
    /// Attaches the subscribers of the failed lane that this one replaces; each continues at its position.
    pub(super) fn inherit(&mut self) {
        for Listener { outbox, rights } in std::mem::take(&mut self.inherited) {
            let caller = Caller { id: outbox.id(), source: String::new(), rights };
            let command = Command::Attach { seen: self.session.issued(), rights };
            self.tickets += 1;
            // There is no request to answer. Only the connection's writer knows the position of a subscriber.
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

    /// Returns whether the answer to a form does not match the form.
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
                // A connection that detached meanwhile would be woken forever.
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
