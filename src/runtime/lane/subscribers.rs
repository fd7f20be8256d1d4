//! The subscribers of a session: how replies are delivered, how they disconnect, and how a new lane takes them over.

use std::sync::Arc;

use super::Lane;
use super::batch::Delivery;
use crate::agent::inquiry;
use crate::kernel::command::{Caller, Command};
use crate::kernel::effect::Ticket;
use crate::kernel::id::ConnectionId;
use crate::kernel::roster::Attachment;
use crate::kernel::session::Input;
use crate::runtime::feed::Subscriber;
use crate::runtime::generate;
use crate::runtime::outbox::{Outbox, OutboxItem};

impl Lane {
    /// Attaches the subscribers of the failed lane that this one replaces; each continues at its position.
    pub(super) fn attach_inherited(&mut self) {
        for Subscriber { outbox, attachment, viewer: _ } in std::mem::take(&mut self.inherited) {
            let Attachment { participant, rights, audits: _ } = attachment;
            let caller = Caller { id: outbox.id(), source: String::new(), participant, rights, admission: None };
            let command = Command::Attach { seen: self.session.issued(), rights };
            self.last_ticket += 1;
            // There is no request to answer. Only the connection's writer knows the position of a subscriber.
            let ticket = Ticket(self.last_ticket);
            self.apply(Input::Command { ticket, caller, command, if_version: None }, None);
            if !self.subscribe(&outbox) {
                // A participant that was removed meanwhile reads nothing more.
                outbox.push(OutboxItem::Unsubscribe(self.id.clone()));
                continue;
            }
            outbox.push(OutboxItem::SwitchFeed(Arc::clone(&self.feed)));
            if outbox.is_closed() {
                self.disconnect(outbox.id());
            }
        }
    }

    /// Takes over what the session was doing before the restart.
    pub(super) fn recover(&mut self) {
        let gates = (0..self.session.unknown_calls()).map(|_| generate::gate()).collect();
        self.apply(Input::Recovered { gates }, None);
    }

    /// Subscribes an attached connection to the feed; returns whether it is attached.
    fn subscribe(&self, outbox: &Arc<Outbox>) -> bool {
        let Some(attachment) = self.session.attachment(outbox.id()).cloned() else { return false };
        let viewer = self.session.viewer(&attachment);
        self.feed.subscribe(Subscriber { outbox: Arc::clone(outbox), attachment, viewer });
        true
    }

    pub(super) fn disconnect(&mut self, connection: ConnectionId) {
        self.feed.unsubscribe(connection);
        self.apply(Input::Disconnected(connection), None);
    }

    /// Returns whether the answer to a form does not match the form.
    pub(super) fn is_invalid_answer(&self, command: &Command) -> bool {
        let Command::Decide(vote) = command else { return false };
        let gate = self.session.state().gates.get(&vote.gate);
        let form = gate.and_then(|gate| gate.question.form());
        form.zip(vote.answer.as_ref()).is_some_and(|(form, delivery)| !inquiry::answer_fits_form(form, delivery))
    }

    pub(super) fn deliver(&self, delivery: Delivery) {
        match delivery {
            Delivery::Reply(reply_guard, reply) => reply_guard.send(Ok(reply)),
            Delivery::Private(outbox, event) => outbox.push(OutboxItem::Private { session: self.id.clone(), event }),
            Delivery::Subscribe(outbox, after) => {
                // A connection that detached meanwhile would be woken forever.
                if !self.subscribe(&outbox) {
                    return;
                }
                outbox.push(OutboxItem::Subscribe { feed: Arc::clone(&self.feed), after });
            }
            Delivery::Unsubscribe(outbox) => {
                self.feed.unsubscribe(outbox.id());
                outbox.push(OutboxItem::Unsubscribe(self.id.clone()));
            }
        }
    }
}
