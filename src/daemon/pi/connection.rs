//! One connection: lines in, lines out.
//!
//! Reading never waits for an answer. What is to be sent waits in the connection's mailbox and is written together.

use std::sync::Arc;

use bytes::Bytes;
use tracing::debug;

use super::bureau::Bureau;
use super::crowd::Mailbox;
use crate::adapter::pi::{decode, encode, text};
use crate::adapter::push::decode::Environment;
use crate::transport::frames::{Frame, Parting, Receiving, Sending};

/// Who is at the other end.
#[derive(Debug, Clone)]
pub(in crate::daemon) struct Peer {
    /// The environment that its runs have; none where nobody sent one.
    pub(in crate::daemon) environment: Option<Environment>,
    /// Where its sessions work when they do not say.
    pub(in crate::daemon) cwd: String,
}

/// Serves a connection until its peer leaves or the daemon closes.
pub(in crate::daemon) async fn serve(
    bureau: Arc<Bureau>,
    peer: Peer,
    mut receiving: Receiving,
    sending: Sending,
) {
    let mailbox = bureau.enter();
    let peer = Arc::new(peer);
    let mut writer = tokio::spawn(write(sending, Arc::clone(&mailbox)));
    tokio::select! {
        () = read(&bureau, &peer, &mut receiving, &mailbox) => {}
        _ = &mut writer => {}
        () = bureau.parting() => {}
    }
    // What was asked is still answered, unless nobody is there to hear it.
    if !writer.is_finished() {
        bureau.all_answered(&mailbox).await;
    }
    bureau.leave(&mailbox);
    mailbox.close();
    if !writer.is_finished() && tokio::time::timeout(bureau.farewell(), &mut writer).await.is_err() {
        writer.abort();
    }
    receiving.linger(bureau.farewell()).await;
    debug!(connection = mailbox.id(), "a connection of the Pi protocol closed");
}

async fn write(mut sending: Sending, mailbox: Arc<Mailbox>) {
    while let Some(frames) = mailbox.take().await {
        if let Err(error) = sending.send(&frames).await {
            debug!(connection = mailbox.id(), %error, "a connection could not be written");
            return mailbox.close();
        }
    }
    // Whoever has left hears no goodbye.
    let _ = sending.close(Parting::Done).await;
}

async fn read(bureau: &Arc<Bureau>, peer: &Arc<Peer>, from: &mut Receiving, mailbox: &Arc<Mailbox>) {
    loop {
        match from.next().await {
            Ok(Some(Frame::Text(line))) => take(bureau, peer, &line, mailbox),
            Ok(Some(Frame::TooLong { bytes })) => {
                bureau.figures().too_long();
                let error = text::too_long(bytes, bureau.limits().message_bytes);
                mailbox.push(encode::refused(None, "unknown", &error));
            }
            Ok(Some(Frame::Binary)) => {
                mailbox.push(encode::refused(None, "unknown", text::BINARY));
            }
            Ok(None) => return,
            Err(error) => return debug!(connection = mailbox.id(), %error, "a connection broke"),
        }
        if mailbox.is_closed() {
            return;
        }
    }
}

fn take(bureau: &Arc<Bureau>, peer: &Arc<Peer>, line: &Bytes, mailbox: &Arc<Mailbox>) {
    match decode::decode(line, bureau.decode_limits()) {
        Ok(asked) => bureau.submit(asked, Arc::clone(peer), Arc::clone(mailbox)),
        Err(malformed) => mailbox.push(encode::malformed(&malformed)),
    }
}
