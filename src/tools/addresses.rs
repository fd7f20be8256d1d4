//! The addresses that were decided on: what a name led to when a call was judged is what it leads to when it is made.
//!
//! A name can be made to lead elsewhere between the two, or between two questions. One set of these is kept for each run.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use super::fault::{Fault, FaultKind};
use crate::sandbox::address::{self, Reachability};

/// Looks up the addresses of a name.
pub type Lookup = Box<dyn Fn(String) -> LookupFuture + Send + Sync>;

/// A look-up under way.
pub type LookupFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Names with the addresses that were decided on.
pub struct Addresses {
    lookup: Lookup,
    pinned: Mutex<BTreeMap<String, Vec<IpAddr>>>,
}

impl Addresses {
    /// Asks the system's resolver.
    pub fn of_system() -> Self {
        Self::new(Box::new(|host| {
            Box::pin(async move {
                let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
                Ok(found.map(|address| address.ip()).collect())
            })
        }))
    }

    /// Asks `lookup`.
    pub fn new(lookup: Lookup) -> Self {
        Self { lookup, pinned: Mutex::new(BTreeMap::new()) }
    }

    /// Looks a host up, so that it can be decided about, and pins what was found.
    ///
    /// A host that leads somewhere of another kind than before is refused for the rest of the run.
    pub(super) async fn decide(&self, host: &str) -> Result<Vec<IpAddr>, Fault> {
        let found = self.look_up(host).await?;
        let before = self.pinned(host);
        if before.is_some_and(|before| worst(&before) != worst(&found)) {
            return Err(moved(host));
        }
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        if pinned.len() >= MOST && !pinned.contains_key(host) {
            pinned.pop_first();
        }
        pinned.insert(host.to_owned(), found.clone());
        Ok(found)
    }

    /// Returns what was decided on; where nothing was, as after a restart, what is found now, which is pinned.
    pub(super) async fn decided(&self, host: &str) -> Result<Vec<IpAddr>, Fault> {
        match self.pinned(host) {
            Some(pinned) => Ok(pinned),
            None => self.decide(host).await,
        }
    }

    /// Returns the addresses to connect to: those that were decided on.
    ///
    /// Where nothing was decided, as after a restart, a public address will do; any other only if it was `approved`.
    pub(super) async fn for_use(&self, host: &str, approved: bool) -> Result<Vec<IpAddr>, Fault> {
        if let Some(pinned) = self.pinned(host) {
            return Ok(pinned);
        }
        let found = self.look_up(host).await?;
        if approved || worst(&found) == Reachability::Public { Ok(found) } else { Err(moved(host)) }
    }

    fn pinned(&self, host: &str) -> Option<Vec<IpAddr>> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).get(host).cloned()
    }

    async fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, Fault> {
        if let Some(address) = address::parse(host.trim_matches(['[', ']'])) {
            return Ok(vec![address]);
        }
        let failed = |why: String| {
            let message = format!("the address of {host} cannot be found");
            Err(Fault::new(FaultKind::NetworkFailed, message).with_detail(why))
        };
        match (self.lookup)(host.to_owned()).await {
            Ok(found) if found.is_empty() => failed("the resolver knows none".to_owned()),
            Ok(mut found) => {
                found.iter_mut().for_each(|address| *address = address.to_canonical());
                let mut seen = Vec::new();
                found.retain(|address| {
                    !seen.contains(address) && {
                        seen.push(*address);
                        true
                    }
                });
                found.truncate(MOST_OF_ONE);
                Ok(found)
            }
            Err(error) => failed(error.to_string()),
        }
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Addresses").finish_non_exhaustive()
    }
}

/// The nearest of what addresses lead to.
pub(super) fn worst(addresses: &[IpAddr]) -> Reachability {
    addresses.iter().copied().map(address::of_address).max().unwrap_or(Reachability::Public)
}

fn moved(host: &str) -> Fault {
    let message = format!(
        "{host} leads to another kind of address than was decided on, as a name does that is rebound; nothing was fetched"
    );
    Fault::new(FaultKind::ApprovalStale, message)
}

/// How many names are remembered.
const MOST: usize = 256;
/// How many addresses of one name are tried.
const MOST_OF_ONE: usize = 8;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn what_was_decided_on_is_used_whatever_the_name_leads_to_later() {
        let addresses = Addresses::new(sequence(&["93.184.216.34", "127.0.0.1"]));
        assert_eq!(addresses.decide("a.org").await.unwrap(), ips(&["93.184.216.34"]));
        assert_eq!(addresses.for_use("a.org", false).await.unwrap(), ips(&["93.184.216.34"]));
        // The same name is judged anew for another call, and does not become something else unnoticed.
        let fault = addresses.decide("a.org").await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::ApprovalStale);
        assert_eq!(addresses.for_use("a.org", false).await.unwrap(), ips(&["93.184.216.34"]));
    }

    #[tokio::test]
    async fn what_nobody_decided_on_is_public_or_approved() {
        let public = Addresses::new(sequence(&["93.184.216.34"]));
        assert!(public.for_use("a.org", false).await.is_ok());
        let private = Addresses::new(sequence(&["10.0.0.1", "::ffff:10.0.0.1"]));
        assert_eq!(private.for_use("a.org", false).await.unwrap_err().kind, FaultKind::ApprovalStale);
        assert_eq!(private.for_use("a.org", true).await.unwrap(), ips(&["10.0.0.1"]));
        assert_eq!(private.for_use("127.1", true).await.unwrap(), ips(&["127.0.0.1"]));
        assert!(private.for_use("0x7f.1", false).await.is_err());
    }

    #[tokio::test]
    async fn one_private_address_among_public_ones_counts() {
        let addresses = Addresses::new(Box::new(|_| {
            Box::pin(async { Ok(ips(&["93.184.216.34", "169.254.169.254", "93.184.216.34"])) })
        }));
        let found = addresses.decide("a.org").await.unwrap();
        assert_eq!((found.len(), worst(&found)), (2, Reachability::Metadata));
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// One address after another, the last for ever.
    fn sequence(texts: &[&str]) -> Lookup {
        let left = Arc::new(Mutex::new(ips(texts)));
        Box::new(move |_| {
            let mut left = left.lock().unwrap();
            let next = if left.len() > 1 { left.remove(0) } else { left[0] };
            Box::pin(async move { Ok(vec![next]) })
        })
    }
}
