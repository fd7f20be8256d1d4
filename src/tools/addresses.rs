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

use super::error::{ToolError, ToolErrorKind};
use crate::sandbox::address::{self, AddressClass};

/// Resolves a host name.
pub type Lookup = Box<dyn Fn(String) -> LookupFuture + Send + Sync>;

/// A name lookup in progress.
pub type LookupFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Host names with their pinned addresses.
pub struct PinnedAddresses {
    lookup: Lookup,
    pinned: Mutex<BTreeMap<String, Vec<IpAddr>>>,
}

impl PinnedAddresses {
    /// Uses the system's resolver.
    pub fn with_system_resolver() -> Self {
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
    pub(super) async fn resolve_and_pin(&self, host: &str) -> Result<Vec<IpAddr>, ToolError> {
        let found = self.resolve(host).await?;
        let before = self.pinned(host);
        if before.is_some_and(|before| worst_class(&before) != worst_class(&found)) {
            return Err(rebinding_error(host));
        }
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        if pinned.len() >= PINNED_NAMES_MAX && !pinned.contains_key(host) {
            pinned.pop_first();
        }
        pinned.insert(host.to_owned(), found.clone());
        Ok(found)
    }

    /// Returns the pinned addresses; if there are none, as after a restart, resolves and pins them.
    pub(super) async fn pinned_or_resolve(&self, host: &str) -> Result<Vec<IpAddr>, ToolError> {
        match self.pinned(host) {
            Some(pinned) => Ok(pinned),
            None => self.resolve_and_pin(host).await,
        }
    }

    /// Returns the addresses to connect to: the pinned ones.
    ///
    /// If none are pinned, as after a restart, a public address is accepted; any other only if it was `approved`.
    pub(super) async fn for_connection(&self, host: &str, approved: bool) -> Result<Vec<IpAddr>, ToolError> {
        if let Some(pinned) = self.pinned(host) {
            return Ok(pinned);
        }
        let found = self.resolve(host).await?;
        if approved || worst_class(&found) == AddressClass::Public { Ok(found) } else { Err(rebinding_error(host)) }
    }

    fn pinned(&self, host: &str) -> Option<Vec<IpAddr>> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).get(host).cloned()
    }

    async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, ToolError> {
        if let Some(address) = address::parse(host.trim_matches(['[', ']'])) {
            return Ok(vec![address]);
        }
        let failed = |why: String| {
            let message = format!("cannot resolve the host name {host}");
            Err(ToolError::new(ToolErrorKind::NetworkFailed, message).with_detail(why))
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
                found.truncate(ADDRESSES_PER_NAME_MAX);
                Ok(found)
            }
            Err(error) => failed(error.to_string()),
        }
    }
}

impl fmt::Debug for PinnedAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Addresses").finish_non_exhaustive()
    }
}

/// The most restricted class among addresses.
pub(super) fn worst_class(addresses: &[IpAddr]) -> AddressClass {
    addresses.iter().copied().map(address::classify_ip).max().unwrap_or(AddressClass::Public)
}

fn rebinding_error(host: &str) -> ToolError {
    let message = format!(
        "{host} resolves to another class of address than when the call was assessed (DNS rebinding); nothing was \
         fetched"
    );
    ToolError::new(ToolErrorKind::ApprovalStale, message)
}

/// The maximum number of pinned names.
const PINNED_NAMES_MAX: usize = 256;
/// How many addresses of one name are used.
const ADDRESSES_PER_NAME_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn pinned_addresses_are_used_whatever_the_name_resolves_to_later() {
        let addresses = PinnedAddresses::new(sequence(&["93.184.216.34", "127.0.0.1"]));
        assert_eq!(addresses.resolve_and_pin("a.org").await.unwrap(), ips(&["93.184.216.34"]));
        assert_eq!(addresses.for_connection("a.org", false).await.unwrap(), ips(&["93.184.216.34"]));
        // The name is resolved again for another call, and a change of class is detected.
        let error = addresses.resolve_and_pin("a.org").await.unwrap_err();
        assert_eq!(error.kind, ToolErrorKind::ApprovalStale);
        assert_eq!(addresses.for_connection("a.org", false).await.unwrap(), ips(&["93.184.216.34"]));
    }

    #[tokio::test]
    async fn an_unpinned_address_must_be_public_or_approved() {
        let public = PinnedAddresses::new(sequence(&["93.184.216.34"]));
        assert!(public.for_connection("a.org", false).await.is_ok());
        let private = PinnedAddresses::new(sequence(&["10.0.0.1", "::ffff:10.0.0.1"]));
        assert_eq!(private.for_connection("a.org", false).await.unwrap_err().kind, ToolErrorKind::ApprovalStale);
        assert_eq!(private.for_connection("a.org", true).await.unwrap(), ips(&["10.0.0.1"]));
        assert_eq!(private.for_connection("127.1", true).await.unwrap(), ips(&["127.0.0.1"]));
        assert!(private.for_connection("0x7f.1", false).await.is_err());
    }

    #[tokio::test]
    async fn one_private_address_among_public_ones_counts() {
        let addresses = PinnedAddresses::new(Box::new(|_| {
            Box::pin(async { Ok(ips(&["93.184.216.34", "169.254.169.254", "93.184.216.34"])) })
        }));
        let found = addresses.resolve_and_pin("a.org").await.unwrap();
        assert_eq!((found.len(), worst_class(&found)), (2, AddressClass::Metadata));
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
