//! The registry of protocols: which one a connection of the local socket starts with, which ones it can switch to, and
//! which one the path of a URL selects.
//!
//! A protocol is added by an entry in [`BUILT_IN`], or in the list that a program passes to the daemon with its
//! [`Config`](super::Config).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;

use super::commands::CommandService;
use super::server::Server;
use crate::config::limits::Limits;
use crate::config::listener::WebScope;
use crate::journal::ReadError;
use crate::protocol::Protocol;
use crate::protocol::command_protocol::CommandProtocol;
use crate::protocol::pi::{self, PiProtocol};
use crate::protocol::push::PushProtocol;
use crate::protocol::push::decode::DecodeLimits;
use crate::transport::web::{SocketLimits, WebEndpoint};

/// A protocol that connections can select.
#[derive(Debug, Clone, Copy)]
pub struct ProtocolEntry {
    /// The name by which a connection of the local socket switches to it, and the WebSocket subprotocol.
    pub name: &'static str,
    /// The paths that select it in the URL of a WebSocket.
    pub paths: &'static [&'static str],
    /// Returns the maximum size of a frame.
    pub frame_bytes: fn(&Limits) -> usize,
    /// Returns whether the head of a frame over the limit contains the id of its request.
    pub has_request_id: fn(&[u8]) -> bool,
    /// Creates the protocol.
    pub create: fn(ProtocolContext) -> ProtocolInstance,
}

/// The protocols that connections can select.
pub type Protocols = &'static [ProtocolEntry];

/// The protocols of the product, besides the native one.
pub const BUILT_IN: Protocols = &[ProtocolEntry {
    name: "pi",
    paths: &["/", "/pi"],
    frame_bytes: |limits| limits.pi_message_bytes,
    has_request_id: pi::decode::has_request_id,
    create: |context| {
        let transports: &[&str] = if context.has_web_listener { &["websocket", "stdio"] } else { &["stdio"] };
        ProtocolInstance::Commands(Arc::new(PiProtocol::new(pi::decode::DecodeLimits::default(), transports)))
    },
}];

/// The name of the native protocol.
const NATIVE: &str = "push";

/// What a protocol may depend on.
#[derive(Debug, Clone, Copy)]
pub struct ProtocolContext {
    /// All limits.
    pub limits: Limits,
    /// Whether clients can connect with WebSockets.
    pub has_web_listener: bool,
}

/// A protocol, by how its requests are handled.
pub enum ProtocolInstance {
    /// Requests are answered by the connection, or passed to their session.
    Requests(Arc<dyn Protocol>),
    /// Requests are commands of the command log.
    Commands(Arc<dyn CommandProtocol>),
}

/// A protocol that is ready to serve connections.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) protocol: Arc<dyn Protocol>,
    /// The command service, if the requests of the protocol are commands.
    pub(super) commands: Option<Arc<CommandService>>,
    /// The maximum size of a frame.
    pub(super) frame_bytes: usize,
    /// The maximum size of the shared lines that a connection has not written yet.
    pub(super) queued_bytes: usize,
    /// How long a peer may be silent before its first request.
    pub(super) first_request_timeout: Option<Duration>,
}

impl Endpoint {
    /// Creates the endpoint of a protocol whose requests are not commands.
    pub(super) const fn new(protocol: Arc<dyn Protocol>, frame_bytes: usize) -> Self {
        Self { protocol, commands: None, frame_bytes, queued_bytes: MAX_QUEUED_BYTES, first_request_timeout: None }
    }
}

/// The maximum size of the shared lines that a connection has not written yet.
const MAX_QUEUED_BYTES: usize = 32 * 1024 * 1024;

/// The protocols of a running daemon.
pub(super) struct ProtocolRegistry {
    server: Arc<Server>,
    native: Endpoint,
    /// The native protocol on a WebSocket, which stays in the protocol of its path.
    native_web: Endpoint,
    /// The other protocols; the first connection creates each.
    others: Vec<(ProtocolEntry, OnceCell<Endpoint>)>,
}

/// Why a connection cannot be served in a protocol.
#[derive(Debug, thiserror::Error)]
pub(super) enum EndpointError {
    /// There is no such protocol.
    #[error("there is no protocol {0:?}")]
    Unknown(String),
    /// The stored commands cannot be read.
    #[error("cannot read the command log")]
    Commands(#[from] ReadError),
}

impl ProtocolRegistry {
    /// Creates the registry of a server.
    pub(super) fn new(server: Arc<Server>, protocols: Protocols) -> Arc<Self> {
        let limits = server.hub().services().limits;
        let names = protocols.iter().map(|entry| entry.name).collect();
        let native = |names| {
            let protocol = Arc::new(PushProtocol::new(DecodeLimits::default(), names));
            let first_request_timeout = Some(limits.first_line_timeout);
            Endpoint { first_request_timeout, ..Endpoint::new(protocol, limits.line_bytes) }
        };
        let (native, native_web) = (native(names), native(Vec::new()));
        let others = protocols.iter().map(|entry| (*entry, OnceCell::new())).collect();
        Arc::new(Self { server, native, native_web, others })
    }

    pub(super) const fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Returns the protocol that a connection of the local socket starts with.
    pub(super) fn native(&self) -> Endpoint {
        self.native.clone()
    }

    /// Returns a protocol by its name.
    pub(super) async fn endpoint(&self, name: &str) -> Result<Endpoint, EndpointError> {
        if name == NATIVE {
            return Ok(self.native_web.clone());
        }
        let found = self.others.iter().find(|(entry, _)| entry.name == name);
        let (entry, endpoint) = found.ok_or_else(|| EndpointError::Unknown(name.to_owned()))?;
        Ok(endpoint.get_or_try_init(|| self.create(entry)).await?.clone())
    }

    async fn create(&self, entry: &ProtocolEntry) -> Result<Endpoint, EndpointError> {
        let limits = self.server.hub().services().limits;
        let context = ProtocolContext { limits, has_web_listener: self.server.has_web_listener() };
        let frame_bytes = (entry.frame_bytes)(&limits);
        Ok(match (entry.create)(context) {
            ProtocolInstance::Requests(protocol) => Endpoint::new(protocol, frame_bytes),
            ProtocolInstance::Commands(protocol) => {
                let commands = CommandService::open(Arc::clone(&self.server), Arc::clone(&protocol)).await?;
                Endpoint { commands: Some(commands), ..Endpoint::new(protocol, frame_bytes) }
            }
        })
    }
}

/// Returns the paths of WebSockets at a port, and the protocol that each selects.
pub(super) fn web_endpoints(scope: WebScope, protocols: Protocols, limits: &Limits) -> Vec<WebEndpoint> {
    let endpoint = |protocol, path, message, has_request_id| WebEndpoint {
        path,
        protocol,
        socket: SocketLimits { message, stall_timeout: limits.stall_timeout, has_request_id },
    };
    let mut endpoints = Vec::new();
    if scope == WebScope::All {
        endpoints.push(endpoint(NATIVE, "/push", limits.line_bytes, |_| false));
    }
    for entry in protocols {
        // At a port of all protocols, a path must name one.
        let is_served = |path: &&str| match scope {
            WebScope::One(name) => name == entry.name,
            WebScope::All => *path != "/",
        };
        let paths = entry.paths.iter().copied().filter(is_served);
        endpoints
            .extend(paths.map(|path| endpoint(entry.name, path, (entry.frame_bytes)(limits), entry.has_request_id)));
    }
    endpoints
}
