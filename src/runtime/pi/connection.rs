//! One connection: lines in, lines out.
//!
//! Reading never waits for an answer. What is to be sent waits in the connection's mailbox and is written together.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OnceCell;
use tracing::{debug, error};

use super::bureau::Bureau;
use super::crowd::Mailbox;
use crate::kernel::environment::Environment;
use crate::kernel::id::ParticipantId;
use crate::protocol::pi::{decode, encode, error_text};
use crate::runtime::server::Server;
use crate::transport::frames::{CloseReason, Frame, FrameReader, FrameWriter};

/// Who speaks Pi.
#[derive(Debug)]
pub(in crate::runtime) struct PiPeer {
    /// The number of the connection.
    pub(in crate::runtime) id: ParticipantId,
    /// How it came.
    pub(in crate::runtime) via: Via,
    /// The directory in which its user is; none where it cannot be known.
    pub(in crate::runtime) cwd: Option<PathBuf>,
    /// The environment of its user, where it was sent.
    pub(in crate::runtime) environment: Option<Environment>,
}

/// How a connection came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runtime) enum Via {
    /// Over a WebSocket.
    Web,
    /// Over the local socket, as lines.
    Lines,
}

/// What sessions have of who speaks.
#[derive(Debug)]
pub(super) struct Peer {
    /// The environment that its runs have.
    pub(super) environment: PeerEnvironment,
    /// Where its sessions work when they do not say.
    pub(super) cwd: String,
}

/// Where the environment of a peer's runs comes from.
#[derive(Debug)]
pub(super) enum PeerEnvironment {
    /// The peer has sent it, or has none to send.
    Sent(Option<Environment>),
    /// The peer is somewhere on the network: its runs have that of the owner's login shell.
    Login,
}

/// Serves the protocol on a server.
pub(in crate::runtime) struct PiEndpoint {
    server: Arc<Server>,
    /// What its connections share; the first one opens it.
    bureau: OnceCell<Arc<Bureau>>,
}

impl PiEndpoint {
    /// Creates the endpoint of a server; nothing is read before the first connection.
    pub(in crate::runtime) fn new(server: Arc<Server>) -> Arc<Self> {
        Arc::new(Self { server, bureau: OnceCell::new() })
    }

    pub(in crate::runtime) const fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Serves a connection until its peer leaves or the daemon closes.
    pub(in crate::runtime) async fn serve(&self, peer: PiPeer, receiving: FrameReader, mut sending: FrameWriter) {
        match self.bureau.get_or_try_init(|| Bureau::open(Arc::clone(&self.server))).await {
            Ok(bureau) => serve(Arc::clone(bureau), peer, receiving, sending).await,
            Err(error) => {
                error!(%error, "the book of commands cannot be read");
                // Whoever has left hears no goodbye.
                let _ = sending.close(CloseReason::GoingAway).await;
            }
        }
    }
}

async fn serve(bureau: Arc<Bureau>, peer: PiPeer, mut receiving: FrameReader, sending: FrameWriter) {
    let mailbox = bureau.enter(peer.id);
    debug!(connection = mailbox.id(), via = ?peer.via, "a connection speaks Pi");
    let cwd = peer.cwd.unwrap_or_else(|| bureau.home().to_owned()).to_string_lossy().into_owned();
    let environment = match peer.via {
        Via::Web => PeerEnvironment::Login,
        Via::Lines => PeerEnvironment::Sent(peer.environment),
    };
    let peer = Arc::new(Peer { environment, cwd });
    let mut writer = tokio::spawn(write(sending, Arc::clone(&mailbox)));
    tokio::select! {
        () = read(&bureau, &peer, &mut receiving, &mailbox) => {}
        _ = &mut writer => {}
        () = bureau.parting() => mailbox.close(CloseReason::GoingAway),
    }
    // What was asked is still answered, unless nobody is there to hear it.
    if !writer.is_finished() {
        bureau.all_answered(&mailbox).await;
    }
    bureau.leave(&mailbox);
    mailbox.close(CloseReason::Normal);
    if !writer.is_finished() && tokio::time::timeout(bureau.farewell(), &mut writer).await.is_err() {
        writer.abort();
    }
    receiving.drain(bureau.farewell()).await;
    debug!(connection = mailbox.id(), "a connection of the Pi protocol closed");
}

async fn write(mut sending: FrameWriter, mailbox: Arc<Mailbox>) {
    while let Some(frames) = mailbox.take().await {
        if let Err(error) = sending.send(&frames).await {
            debug!(connection = mailbox.id(), %error, "a connection could not be written");
            return mailbox.close(CloseReason::Normal);
        }
    }
    // Whoever has left hears no goodbye.
    let _ = sending.close(mailbox.parting()).await;
}

async fn read(bureau: &Arc<Bureau>, peer: &Arc<Peer>, from: &mut FrameReader, mailbox: &Arc<Mailbox>) {
    loop {
        match from.next().await {
            Ok(Some(Frame::Text(line))) => take(bureau, peer, &line, mailbox),
            Ok(Some(Frame::TooLong { bytes, excerpt })) => {
                bureau.figures().too_long();
                let (limit, limits) = (bureau.limits().message_bytes, bureau.decode_limits());
                let malformed = decode::too_long(excerpt.head(), excerpt.tail(), bytes, limit, limits);
                mailbox.push(encode::malformed_response(&malformed));
            }
            Ok(Some(Frame::Binary)) => {
                mailbox.push(encode::failure_response(None, "unknown", error_text::BINARY));
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
        Err(malformed) => mailbox.push(encode::malformed_response(&malformed)),
    }
}
