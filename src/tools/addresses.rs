//! Pinned addresses: a host name that resolved to certain addresses when a call was assessed is connected to at
//! these addresses.
//!
//! DNS rebinding could make a name resolve to other addresses in between, or between two approvals. Each run has
//! its own set.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use super::fault::{Fault, FaultKind};
use crate::sandbox::address::{self, Reachability};

/// Resolves a host name.
pub type Lookup = Box<dyn Fn(String) -> LookupFuture + Send + Sync>;

/// A name lookup in progress.
pub type LookupFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Host names with their pinned addresses.
pub struct Addresses {
    lookup: Lookup,
    pinned: Mutex<BTreeMap<String, Vec<IpAddr>>>,
}

impl Addresses {
    /// Uses the system's resolver.
    pub fn of_system() -> Self {
        Self::new(Box::new(|host| {
            Box::pin(async move {
                let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
                Ok(found.map(|address| address.ip()).collect())
            })
        }))
    }

    /// Uses `lookup` as the resolver.
    pub fn new(lookup: Lookup) -> Self {
        Self { lookup, pinned: Mutex::new(BTreeMap::new()) }
    }

    /// Resolves a host for the risk assessment, and pins the result.
    ///
    /// A host that resolves to another class of address than before is refused for the rest of the run.
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

    /// Returns the pinned addresses; if there are none, as after a restart, resolves and pins them.
    pub(super) async fn decided(&self, host: &str) -> Result<Vec<IpAddr>, Fault> {
        match self.pinned(host) {
            Some(pinned) => Ok(pinned),
            None => self.decide(host).await,
        }
    }

    /// Returns the addresses to connect to: the pinned ones.
    ///
    /// If none are pinned, as after a restart, a public address is accepted; any other only if it was `approved`.
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
            let message = format!("cannot resolve the host name {host}");
            Err(Fault::new(FaultKind::NetworkFailed, message).with_detail(why))
        };
        match (self.lookup)(host.to_owned()).await {
            Ok(found) if found.is_empty() => failed("the resolver returned no address".to_owned()),
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

/// The most restricted class among addresses.
pub(super) fn worst(addresses: &[IpAddr]) -> Reachability {
    addresses.iter().copied().map(address::of_address).max().unwrap_or(Reachability::Public)
}

fn moved(host: &str) -> Fault {
    let message = format!(
        "{host} resolves to another class of address than when the call was assessed (DNS rebinding); nothing was \
         fetched"
    );
    Fault::new(FaultKind::ApprovalStale, message)
}

/// The maximum number of pinned names.
const MOST: usize = 256;
/// How many addresses of one name are used.
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
        // The name is resolved again for another call, and a change of class is detected.
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

    /// Returns one address after another; the last one repeats.
    fn sequence(texts: &[&str]) -> Lookup {
        let left = Arc::new(Mutex::new(ips(texts)));
        Box::new(move |_| {
            let mut left = left.lock().unwrap();
            let next = if left.len() > 1 { left.remove(0) } else { left[0] };
            Box::pin(async move { Ok(vec![next]) })
        })
    }
}
