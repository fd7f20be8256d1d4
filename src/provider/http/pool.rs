//! The pool of idle connections, for the next request to the same server.
//!
//! A task without a timer watches each connection: it sleeps until the server closes the connection, and then
//! removes it.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use hyper::Uri;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use tokio::task::AbortHandle;

use super::connection::HttpConnection;

#[cfg(test)]
mod tests;

/// The server of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    scheme: Scheme,
    authority: Authority,
}

impl Origin {
    /// Returns the origin of a URL, if the URL is absolute.
    pub(super) fn from_uri(uri: &Uri) -> Option<Self> {
        Some(Self { scheme: uri.scheme()?.clone(), authority: uri.authority()?.clone() })
    }

    /// Returns its URL, for the connector.
    pub(super) fn uri(&self) -> Result<Uri, hyper::http::Error> {
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(PathAndQuery::from_static("/"))
            .build()
    }

    /// Returns the authority, for messages.
    pub(super) fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// Returns the value of the `host` header: the port only if it is not the default.
    pub(super) fn host(&self) -> String {
        let usual = if self.scheme == Scheme::HTTPS { 443 } else { 80 };
        match self.authority.port_u16() {
            Some(port) if port != usual => format!("{}:{port}", self.authority.host()),
            Some(_) | None => self.authority.host().to_owned(),
        }
    }
}

/// The idle connections to all servers.
#[derive(Debug, Default)]
pub(super) struct ConnectionPool {
    /// The newest connection of an origin is the last.
    idle: Mutex<HashMap<Origin, Vec<IdleConnection>>>,
}

/// Holds a connection until it is taken or closed.
type Slot = Mutex<Option<HttpConnection>>;

#[derive(Debug)]
struct IdleConnection {
    slot: Arc<Slot>,
    since: Instant,
    watcher: AbortHandle,
}

impl ConnectionPool {
    /// Takes the newest idle connection to a server.
    pub(super) fn take(&self, origin: &Origin) -> Option<HttpConnection> {
        loop {
            let idle = self.pop_newest(origin)?;
            // An old connection may be dead without notice, for example behind a NAT.
            if idle.since.elapsed() < MAX_IDLE_AGE
                && let Some(link) = lock(&idle.slot).take()
            {
                return Some(link);
            }
        }
    }

    /// Adds a reusable connection. If there are too many, the oldest is closed.
    pub(super) fn insert(self: &Arc<Self>, origin: Origin, link: HttpConnection) {
        let slot = Arc::new(Mutex::new(Some(link)));
        let watching = watch(Arc::downgrade(self), origin.clone(), Arc::clone(&slot));
        // The watcher needs this lock to remove an entry, so the entry is present by then.
        let mut all = lock(&self.idle);
        let idle = all.entry(origin).or_default();
        let watcher = tokio::spawn(watching).abort_handle();
        idle.push(IdleConnection { slot, since: Instant::now(), watcher });
        if idle.len() > MAX_IDLE_PER_ORIGIN {
            idle.remove(0);
        }
    }

    fn pop_newest(&self, origin: &Origin) -> Option<IdleConnection> {
        let mut all = lock(&self.idle);
        let idle = all.get_mut(origin)?;
        let newest = idle.pop();
        if idle.is_empty() {
            all.remove(origin);
        }
        newest
    }

    fn remove(&self, origin: &Origin, slot: &Arc<Slot>) {
        let mut all = lock(&self.idle);
        let Some(idle) = all.get_mut(origin) else { return };
        idle.retain(|idle| !Arc::ptr_eq(&idle.slot, slot));
        if idle.is_empty() {
            all.remove(origin);
        }
    }
}

impl Drop for IdleConnection {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

/// Waits until an idle connection is closed, and removes it.
async fn watch(pool: Weak<ConnectionPool>, origin: Origin, slot: Arc<Slot>) {
    poll_fn(|context| match &mut *lock(&slot) {
        Some(link) => link.drive(context),
        None => Poll::Ready(()),
    })
    .await;
    if let Some(pool) = pool.upgrade() {
        pool.remove(&origin, &slot);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many idle connections to one server are held.
const MAX_IDLE_PER_ORIGIN: usize = 8;
/// The maximum idle time of a connection that is reused.
const MAX_IDLE_AGE: Duration = Duration::from_secs(90);
