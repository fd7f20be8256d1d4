//! Reads the conversation of a session from its events.

use std::collections::BTreeMap;

use crate::agent::Context;
use crate::journal::Journal;
use crate::kernel::effect::TurnRequest;
use crate::kernel::id::{MessageId, Seq, SessionId};
use crate::record;

/// Folds the events of the journal into a conversation.
pub(super) async fn read(journal: &Journal, session: &SessionId, turn: &TurnRequest) -> Result<Context, String> {
    let mut context = Context::default();
    let mut seen = Seq::new(turn.context_from.number().saturating_sub(1));
    loop {
        let page = journal
            .page(session.clone(), seen, PAGE_BYTES)
            .await
            .map_err(|error| format!("cannot read the conversation: {error}"))?;
        for line in page.blocks.iter().flat_map(|block| block.bytes.split_inclusive(|byte| *byte == b'\n')) {
            let event = record::decode_event(line).map_err(|error| format!("cannot read the conversation: {error}"))?;
            if event.seq > turn.last_seq {
                return Ok(context);
            }
            if event.seq > seen {
                seen = event.seq;
                context.fold(&event);
            }
        }
        if !page.more {
            return Ok(context);
        }
    }
}

/// Returns the original texts of the run's messages.
pub(super) fn original_texts(turn: &TurnRequest) -> BTreeMap<MessageId, String> {
    let steers = turn.steers.iter().map(|(_, steering)| (steering.message.clone(), steering.text.clone()));
    steers.chain([(turn.message.clone(), turn.text.clone())]).collect()
}

/// The number of bytes that one read returns.
const PAGE_BYTES: usize = 256 * 1024;
