//! Reading a conversation piece by piece: items that no later event changes leave the fold.

use std::sync::Arc;

use super::Conversation;
use super::item::Item;
use crate::kernel::id::Seq;

impl Conversation {
    /// Removes and returns the items that no later event changes, in the order of a reader, for one that holds no whole
    /// conversation.
    ///
    /// A branch changes every item after its point. A reader that takes items must not fold the events that a later
    /// branch discards.
    pub fn take_settled(&mut self) -> Vec<Arc<Item>> {
        let open = self.first_open();
        let settled = self.items.partition_point(|item| item.first_seq < open);
        in_order(self.items.drain(..settled).collect())
    }

    /// Returns the first event of what may still change; items from it on are not settled.
    pub fn first_open(&self) -> Seq {
        let draft = self.draft.as_ref().map(|draft| draft.first_seq);
        // The text of a turn may be completed after its message.
        let turn = self.turn.filter(|turn| !turn.is_over).map(|turn| turn.first_seq);
        let pending = self.pending.map(|pending| pending.message);
        let unsettled = self.unsettled.values().min().copied();
        let open = [draft, turn, pending, unsettled, self.open].into_iter().flatten().min();
        open.unwrap_or(Seq::new(u64::MAX))
    }

    /// Returns the items that are left, as they are after the last event.
    pub fn into_rest(mut self) -> Vec<Arc<Item>> {
        self.close();
        in_order(self.items)
    }
}

fn in_order(mut items: Vec<Arc<Item>>) -> Vec<Arc<Item>> {
    items.sort_by_key(|item| item.place());
    items
}
