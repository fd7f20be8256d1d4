//! A connection that speaks Pi.
//!
//! It greets and answers what it cannot read; no command is known to it yet.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::server::Server;
use crate::adapter::push::decode::Environment;
use crate::kernel::id::ParticipantId;
use crate::transport::frames::{Frame, Parting, Receiving, Sending};

/// Who speaks Pi.
#[derive(Debug)]
pub struct PiPeer {
    /// The number of the connection.
    pub id: ParticipantId,
    /// How it came.
    pub via: Via,
    /// The directory in which its user is; none where it cannot be known.
    pub cwd: Option<PathBuf>,
    /// The environment of its user; none where it cannot be known.
    pub environment: Option<Environment>,
}

/// How a connection came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// Over a WebSocket.
    Web,
    /// Over the local socket, as lines.
    Lines,
}

/// Serves a connection until its peer leaves or the daemon closes.
pub(super) async fn serve(
    server: Arc<Server>,
    _peer: PiPeer,
    mut receiving: Receiving,
    mut sending: Sending,
) {
    let ready = concat!(
        r#"{"type":"server_ready","data":{"serverVersion":""#,
        env!("CARGO_PKG_VERSION"),
        r#"","protocolVersion":"1.0.0","transports":["websocket","stdio"]}}"#
    );
    if sending.send(&[Bytes::from_static(ready.as_bytes())]).await.is_err() {
        return;
    }
    let why = loop {
        let frame = tokio::select! {
            frame = receiving.next() => frame,
            () = server.hub().world().parting.wait() => break Parting::GoingAway,
        };
        let error = match frame {
            Ok(Some(Frame::Text(text))) if serde_json::from_slice::<serde_json::Value>(&text).is_err() => {
                "Invalid JSON".to_owned()
            }
            Ok(Some(Frame::Text(_))) => "Validation failed: type: no command is known yet".to_owned(),
            Ok(Some(Frame::TooLong { bytes })) => format!("a message of {bytes} bytes is too long"),
            Ok(Some(Frame::Binary)) => "Binary messages are not supported".to_owned(),
            Ok(None) | Err(_) => break Parting::Done,
        };
        let answer =
            serde_json::json!({"type": "response", "command": "unknown", "success": false, "error": error});
        if sending.send(&[Bytes::from(answer.to_string())]).await.is_err() {
            break Parting::Done;
        }
    };
    // The peer may be gone already.
    let _ = sending.close(why).await;
    receiving.linger(LINGER).await;
}

/// How long a peer has to read our last words.
const LINGER: Duration = Duration::from_millis(200);
