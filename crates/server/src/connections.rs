//! The connections of a node: a fixed number of slots. A connection that has shown a good token keeps its slot; all others
//! have few slots per address, and none that another connection waits for.
//!
//! One connection too many from an address closes the oldest one there without a token; where no slot is free, a new one
//! closes the oldest anywhere without a token. So clients that open connections and send nothing only lose their own: a
//! client that sends its request at once is answered before its turn comes, and one with a token is never closed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::limits;

/// Connections that have shown no token, oldest first. `T` is the handle that closes one of them.
#[derive(Debug)]
struct Anonymous<T> {
    next: u64,
    all: BTreeMap<u64, (IpAddr, T)>,
    by_address: HashMap<IpAddr, BTreeSet<u64>>,
}

impl<T> Default for Anonymous<T> {
    fn default() -> Self {
        Self { next: 0, all: BTreeMap::new(), by_address: HashMap::new() }
    }
}

impl<T> Anonymous<T> {
    /// Adds one. Returns its number, and the handle of the one that is closed for it.
    fn add(&mut self, address: IpAddr, handle: T, most: usize) -> (u64, Option<T>) {
        let address = network(address);
        let there = self.by_address.get(&address);
        let oldest = there.filter(|there| there.len() >= most).and_then(|there| there.first().copied());
        let displaced = oldest.and_then(|oldest| self.remove(oldest));
        let number = self.next;
        self.next += 1;
        self.all.insert(number, (address, handle));
        self.by_address.entry(address).or_default().insert(number);
        (number, displaced)
    }

    /// Removes one that ended, is to be closed, or has shown a token.
    fn remove(&mut self, number: u64) -> Option<T> {
        let (address, handle) = self.all.remove(&number)?;
        if let Some(there) = self.by_address.get_mut(&address) {
            there.remove(&number);
            if there.is_empty() {
                self.by_address.remove(&address);
            }
        }
        Some(handle)
    }

    fn remove_oldest(&mut self) -> Option<T> {
        let oldest = *self.all.first_key_value()?.0;
        self.remove(oldest)
    }
}

/// The addresses that one party has: an IPv4 address, or all IPv6 addresses with the same upper half.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[derive(Debug)]
pub struct ConnectionSlots {
    /// Proxies in front of this node: they bring the connections of many clients, and limit them themselves.
    proxies: Vec<IpAddr>,
    free: Arc<Semaphore>,
    anonymous: Mutex<Anonymous<Arc<Notify>>>,
}

/// One connection of this node; free again when dropped.
#[derive(Debug)]
pub struct ConnectionSlot {
    peer: Peer,
    close: Arc<Notify>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// The other side of a connection; every request of the connection carries it.
#[derive(Clone, Debug)]
pub struct Peer {
    slots: Arc<ConnectionSlots>,
    /// `None` for a proxy, which is never limited.
    number: Option<u64>,
}

impl ConnectionSlots {
    pub fn new(proxies: &[IpAddr]) -> Arc<Self> {
        Arc::new(Self {
            proxies: proxies.iter().map(IpAddr::to_canonical).collect(),
            free: Arc::new(Semaphore::new(limits::CONNECTIONS)),
            anonymous: Mutex::default(),
        })
    }

    fn anonymous(&self) -> MutexGuard<'_, Anonymous<Arc<Notify>>> {
        self.anonymous.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether few are left: then clients get shorter timeouts.
    pub fn scarce(&self) -> bool {
        self.free.available_permits() < limits::CONNECTIONS / 4
    }

    /// A slot for a connection from this address, as soon as one is free. The oldest connection without a token is closed for
    /// it; one with a token never is.
    pub async fn take(self: &Arc<Self>, address: IpAddr) -> ConnectionSlot {
        if self.free.available_permits() == 0
            && let Some(oldest) = self.anonymous().remove_oldest()
        {
            oldest.notify_one();
        }
        // The semaphore is never closed, so this never fails.
        let permit = self.free.clone().acquire_owned().await.ok();
        let close = Arc::new(Notify::new());
        let number = (!self.proxies.contains(&address.to_canonical())).then(|| {
            let (number, displaced) =
                self.anonymous().add(address, close.clone(), limits::ANONYMOUS_PER_ADDRESS);
            if let Some(displaced) = displaced {
                displaced.notify_one();
            }
            number
        });
        ConnectionSlot { peer: Peer { slots: self.clone(), number }, close, _permit: permit }
    }
}

impl ConnectionSlot {
    pub fn peer(&self) -> Peer {
        self.peer.clone()
    }

    /// Waits until the slot is needed for another connection.
    pub async fn closed(&self) {
        self.close.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.peer.mark_authenticated();
    }
}

impl Peer {
    /// It has shown a token, and keeps its slot from now on.
    pub fn mark_authenticated(&self) {
        if let Some(number) = self.number {
            self.slots.anonymous().remove(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_displaces_its_own_oldest_connection() {
        let mut anonymous = Anonymous::default();
        let mut add = |from: &str, name: &'static str| anonymous.add(address(from), name, 2);
        assert_eq!(add("10.0.0.1", "a"), (0, None));
        assert_eq!(add("10.0.0.1", "b"), (1, None));
        assert_eq!(add("10.0.0.2", "c"), (2, None));
        assert_eq!(add("10.0.0.1", "d"), (3, Some("a")));
        assert_eq!(add("::ffff:10.0.0.1", "e"), (4, Some("b")), "the same address");
        assert_eq!(add("2001:db8::1", "f"), (5, None));
        assert_eq!(add("2001:db8::2", "g"), (6, None));
        assert_eq!(add("2001:db8:0:0:ffff::3", "h"), (7, Some("f")), "the same network");
        assert_eq!(add("2001:db8:0:1::3", "i"), (8, None), "the next one");
        // One that has shown its token, or ended, makes room for another.
        assert_eq!(anonymous.remove(3), Some("d"));
        assert_eq!(anonymous.remove(3), None);
        assert_eq!(anonymous.add(address("10.0.0.1"), "j", 2), (9, None));
        // The oldest anywhere.
        assert_eq!(anonymous.remove_oldest(), Some("c"));
        assert_eq!(anonymous.remove_oldest(), Some("e"));
        for _ in 0..4 {
            assert!(anonymous.remove_oldest().is_some());
        }
        assert_eq!(anonymous.remove_oldest(), None);
        assert!(anonymous.by_address.is_empty(), "no address is kept without a connection");
    }

    #[tokio::test]
    async fn connections_with_a_token_and_of_proxies_keep_their_slots() {
        let slots = ConnectionSlots::new(&[address("10.9.9.9")]);
        let (mut known, mut proxied) = (Vec::new(), Vec::new());
        for _ in 0..=limits::ANONYMOUS_PER_ADDRESS {
            let slot = slots.take(address("10.0.0.1")).await;
            slot.peer().mark_authenticated();
            known.push(slot);
            proxied.push(slots.take(address("10.9.9.9")).await);
        }
        assert!(slots.anonymous().all.is_empty());
        let without_token = slots.take(address("10.0.0.1")).await;
        let mut others = Vec::new();
        while slots.free.available_permits() > 0 {
            others.push(slots.take(address(&format!("10.1.{}.1", others.len() % 200))).await);
        }
        assert!(slots.scarce());
        // For the next one the oldest connection without a token is closed.
        let waiting = tokio::spawn({
            let slots = slots.clone();
            async move { slots.take(address("10.2.0.1")).await }
        });
        without_token.closed().await;
        drop(without_token);
        waiting.await.unwrap();
    }
}
