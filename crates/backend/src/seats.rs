//! Who may hold a connection. There are so many seats; one who has shown a good token keeps theirs, all others
//! (strangers) have few per address, and none that somebody else waits for.
//!
//! A stranger beyond the number of its address takes the place of the oldest one there, and where all seats are taken, a
//! newcomer that of the oldest stranger anywhere. So those who open connections and say nothing only lose their own: whoever
//! asks at once is answered before it is their turn, and whoever shows a token has no turn.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::limits;

/// Connections without a token, oldest first. `T` is how one of them is told to go.
#[derive(Debug)]
struct Strangers<T> {
    next: u64,
    all: BTreeMap<u64, (IpAddr, T)>,
    by_address: HashMap<IpAddr, BTreeSet<u64>>,
}

impl<T> Default for Strangers<T> {
    fn default() -> Self {
        Self { next: 0, all: BTreeMap::new(), by_address: HashMap::new() }
    }
}

impl<T> Strangers<T> {
    /// Adds one; gives its number, and who has to go for it.
    fn add(&mut self, address: IpAddr, handle: T, most: usize) -> (u64, Option<T>) {
        let address = household(address);
        let there = self.by_address.get(&address);
        let oldest = there.filter(|there| there.len() >= most).and_then(|there| there.first().copied());
        let displaced = oldest.and_then(|oldest| self.remove(oldest));
        let number = self.next;
        self.next += 1;
        self.all.insert(number, (address, handle));
        self.by_address.entry(address).or_default().insert(number);
        (number, displaced)
    }

    /// One that left, was told to go, or is no stranger any more.
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

/// What one party has: an IPv4 address, or the upper half of an IPv6 address, of which a household gets all the lower ones.
fn household(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[derive(Debug)]
pub struct Seats {
    /// Those in front of this node: they bring everybody's connections, and limit them themselves.
    proxies: Vec<IpAddr>,
    room: Arc<Semaphore>,
    strangers: Mutex<Strangers<Arc<Notify>>>,
}

/// A seat, until it is dropped.
#[derive(Debug)]
pub struct Seat {
    visitor: Visitor,
    leave: Arc<Notify>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Who sits there; every request of the connection carries it.
#[derive(Clone, Debug)]
pub struct Visitor {
    seats: Arc<Seats>,
    /// `None` for a proxy, which is never a stranger.
    number: Option<u64>,
}

impl Seats {
    pub fn new(proxies: &[IpAddr]) -> Arc<Self> {
        Arc::new(Self {
            proxies: proxies.iter().map(IpAddr::to_canonical).collect(),
            room: Arc::new(Semaphore::new(limits::CONNECTIONS)),
            strangers: Mutex::default(),
        })
    }

    fn strangers(&self) -> MutexGuard<'_, Strangers<Arc<Notify>>> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether most seats are taken: then nobody has as long as usual.
    pub fn scarce(&self) -> bool {
        self.room.available_permits() < limits::CONNECTIONS / 4
    }

    /// A seat for whoever comes from there, as soon as there is one. Strangers make room; who has shown a token does not.
    pub async fn take(self: &Arc<Self>, address: IpAddr) -> Seat {
        if self.room.available_permits() == 0
            && let Some(oldest) = self.strangers().remove_oldest()
        {
            oldest.notify_one();
        }
        // Never closed, so there is always one in the end.
        let permit = self.room.clone().acquire_owned().await.ok();
        let leave = Arc::new(Notify::new());
        let number = (!self.proxies.contains(&address.to_canonical())).then(|| {
            let (number, displaced) =
                self.strangers().add(address, leave.clone(), limits::STRANGERS_OF_AN_ADDRESS);
            if let Some(displaced) = displaced {
                displaced.notify_one();
            }
            number
        });
        Seat { visitor: Visitor { seats: self.clone(), number }, leave, _permit: permit }
    }
}

impl Seat {
    pub fn visitor(&self) -> Visitor {
        self.visitor.clone()
    }

    /// Until somebody else needs the seat more.
    pub async fn is_needed(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.visitor.has_shown_a_token();
    }
}

impl Visitor {
    /// It keeps its seat from now on.
    pub fn has_shown_a_token(&self) {
        if let Some(number) = self.number {
            self.seats.strangers().remove(number);
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
        let mut strangers = Strangers::default();
        let mut add = |from: &str, name: &'static str| strangers.add(address(from), name, 2);
        assert_eq!(add("10.0.0.1", "a"), (0, None));
        assert_eq!(add("10.0.0.1", "b"), (1, None));
        assert_eq!(add("10.0.0.2", "c"), (2, None));
        assert_eq!(add("10.0.0.1", "d"), (3, Some("a")));
        assert_eq!(add("::ffff:10.0.0.1", "e"), (4, Some("b")), "the same address");
        assert_eq!(add("2001:db8::1", "f"), (5, None));
        assert_eq!(add("2001:db8::2", "g"), (6, None));
        assert_eq!(add("2001:db8:0:0:ffff::3", "h"), (7, Some("f")), "the same household");
        assert_eq!(add("2001:db8:0:1::3", "i"), (8, None), "the next one");
        // One that has shown its token, or left, makes room for another.
        assert_eq!(strangers.remove(3), Some("d"));
        assert_eq!(strangers.remove(3), None);
        assert_eq!(strangers.add(address("10.0.0.1"), "j", 2), (9, None));
        // The oldest anywhere.
        assert_eq!(strangers.remove_oldest(), Some("c"));
        assert_eq!(strangers.remove_oldest(), Some("e"));
        for _ in 0..4 {
            assert!(strangers.remove_oldest().is_some());
        }
        assert_eq!(strangers.remove_oldest(), None);
        assert!(strangers.by_address.is_empty(), "nothing is left of those that are gone");
    }

    #[tokio::test]
    async fn who_has_shown_a_token_and_who_is_in_front_keeps_the_seat() {
        let seats = Seats::new(&[address("10.9.9.9")]);
        let (mut known, mut proxied) = (Vec::new(), Vec::new());
        for _ in 0..=limits::STRANGERS_OF_AN_ADDRESS {
            let seat = seats.take(address("10.0.0.1")).await;
            seat.visitor().has_shown_a_token();
            known.push(seat);
            proxied.push(seats.take(address("10.9.9.9")).await);
        }
        assert!(seats.strangers().all.is_empty());
        let stranger = seats.take(address("10.0.0.1")).await;
        let mut others = Vec::new();
        while seats.room.available_permits() > 0 {
            others.push(seats.take(address(&format!("10.1.{}.1", others.len() % 200))).await);
        }
        assert!(seats.scarce());
        // The next one needs a seat; the oldest stranger is asked for it.
        let waiting = tokio::spawn({
            let seats = seats.clone();
            async move { seats.take(address("10.2.0.1")).await }
        });
        stranger.is_needed().await;
        drop(stranger);
        waiting.await.unwrap();
    }
}
