//! What receivers differ in, and which are configured.

use sha2::{Digest, Sha256};

use super::answer::{Answer, Verdict};
use super::batch;
use super::codemie_v1::CodemieV1;
use super::drain::{Drain, Pace};
use super::http::Request;
use super::identity::Identity;
use super::native::{Credential, Native};
use super::otlp::Otlp;
use crate::config::delivery::{Backend, Delivery, Secret};
use crate::home::Home;
use crate::store::{Error, Fingerprint, Letter, Outgoing, SinkRow, Store, Tx, View};
use reqwest::Url;
use system::clock::{Clock, SystemClock};
use wire::Timestamp;
use wire::hex::hex;

/// What becomes of an event when the cursor comes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Triage {
    Send,
    /// It waits in a letter until it is due.
    Defer(&'static str),
    /// This receiver has no use for it.
    Skip,
}

/// When a deferred event is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Now,
    At(Timestamp),
    /// When something has happened that will be told.
    Unknown,
}

/// A receiver: how events are told to it and what its answers mean.
pub trait Sink: Send {
    fn name(&self) -> &'static str;

    /// Where it is, for connections and for people.
    fn url(&self) -> &Url;

    /// The most events in one request.
    fn max_batch(&self) -> usize {
        batch::MAX_EVENTS
    }

    fn triage(&self, _view: &View<'_>, _event: &Outgoing) -> Result<Triage, Error> {
        Ok(Triage::Send)
    }

    fn due(&self, _view: &View<'_>, _letter: &Letter, _now: Timestamp) -> Result<Due, Error> {
        Ok(Due::Now)
    }

    /// A request that tells nothing, to see whether it would be taken; `None` where there is none.
    fn question(&self) -> Option<Request> {
        None
    }

    /// Whether it counts what it gets twice, so that what has arrived must never be sent again.
    fn counts_duplicates(&self) -> bool {
        false
    }

    /// The requests that tell these events; all of them must be accepted.
    fn requests(&self, view: &View<'_>, events: &[Outgoing]) -> Result<Vec<Request>, Error>;

    fn judge(&self, events: &[Outgoing], request: &Request, answer: &Answer) -> Verdict;

    /// A body as a person can read it.
    fn readable(&self, request: &Request) -> String {
        String::from_utf8_lossy(&request.body).into_owned()
    }
}

pub const NATIVE: &str = "backend";
pub const OTLP: &str = "otlp";
pub const CODEMIE_V1: &str = "codemie-v1";

/// A configured receiver as the store is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub name: &'static str,
    pub fingerprint: Fingerprint,
}

/// The configured receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sinks {
    pub home: Home,
    pub delivery: Delivery,
}

impl Sinks {
    /// `None` where nothing is to be sent anywhere.
    pub fn of(home: &Home, delivery: &Delivery) -> Option<Self> {
        delivery.any().then(|| Self { home: home.clone(), delivery: delivery.clone() })
    }

    /// What the store is to know of them.
    pub fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        let mut add = |name, address: &str, credentials: &[&str]| {
            targets.push(Target { name, fingerprint: fingerprint(address, credentials) });
        };
        let Delivery { backend, otlp, codemie_v1, .. } = &self.delivery;
        if let Some(backend) = backend {
            let token = self.token(backend).secret(&backend.url);
            add(NATIVE, backend.url.as_str(), &[token.as_ref().map_or("", Secret::reveal)]);
        }
        if let Some(otlp) = otlp {
            let headers = otlp.headers.iter().flat_map(|(name, value)| [name.as_str(), value.reveal()]);
            add(OTLP, otlp.endpoint.as_str(), &headers.collect::<Vec<_>>());
        }
        if let Some(v1) = codemie_v1 {
            let auth = v1.auth.as_ref().map_or(("", ""), |(name, value)| (name.as_str(), value.reveal()));
            add(CODEMIE_V1, v1.url.as_str(), &[auth.0, auth.1]);
        }
        targets
    }

    /// A loop for each.
    pub fn drains(&self, pace: Pace) -> Result<Vec<Drain>, Error> {
        let now = SystemClock.now();
        let mut store = Store::open(&self.home, now)?;
        let targets = self.targets();
        let drain = |sink: Box<dyn Sink>| {
            let store = Store::open(&self.home, now)?;
            let target = targets.iter().find(|target| target.name == sink.name());
            let target = target.map(|target| target.fingerprint.clone()).unwrap_or_default();
            Ok(Drain::new(&self.home, store, sink, target, self.delivery.ca_file.as_ref(), pace))
        };
        self.open(&mut store)?.into_iter().map(drain).collect()
    }

    /// Our own backend, if it is one of them.
    pub fn native(&self, identity: &Identity) -> Option<Native> {
        let backend = self.delivery.backend.as_ref()?;
        Some(Native::new(&backend.url, self.token(backend), identity.clone()))
    }

    fn token(&self, backend: &Backend) -> Credential {
        backend.token.clone().map_or_else(|| Credential::Found(self.home.clone()), Credential::Given)
    }

    /// Ready to be told events.
    pub fn open(&self, store: &mut Store) -> Result<Vec<Box<dyn Sink>>, Error> {
        Ok(self.receivers(&Identity::of(store, &self.delivery.user)?))
    }

    /// The same for whoever knows as whom.
    pub fn receivers(&self, identity: &Identity) -> Vec<Box<dyn Sink>> {
        let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
        if let Some(native) = self.native(identity) {
            sinks.push(Box::new(native));
        }
        if let Some(otlp) = &self.delivery.otlp {
            sinks.push(Box::new(Otlp::new(otlp, identity.clone())));
        }
        if let Some(v1) = &self.delivery.codemie_v1 {
            sinks.push(Box::new(CodemieV1::new(v1, identity.clone())));
        }
        sinks
    }
}

/// Makes the configured receivers known to the store. One that is new gets the sessions open now and what comes after,
/// so this is done in the transaction of a START; it costs a look each when nothing changed.
pub fn settle(tx: &Tx<'_>, targets: &[Target]) -> Result<(), Error> {
    for target in targets {
        tx.add_sink(target.name)?;
        tx.lead(target.name, &target.fingerprint)?;
    }
    Ok(())
}

/// A setting was changed: runs that go on are to know, and to send nothing more to what was set up before. How many sessions
/// are from before a receiver that is new with this, so that it gets nothing of them.
pub fn reconfigure(store: &mut Store, key: &str, sinks: Option<&Sinks>) -> Result<i64, Error> {
    let addresses = [("backend.url", NATIVE), ("otlp.endpoint", OTLP), ("codemieV1.url", CODEMIE_V1)];
    let room = |key: &str| key.split('.').next().unwrap_or_default().to_owned();
    let Some((address, name)) = addresses.into_iter().find(|(address, _)| room(address) == room(key)) else {
        return Ok(0);
    };
    let targets = sinks.map(Sinks::targets).unwrap_or_default();
    store.write(|tx| {
        let address_of = |row: Option<SinkRow>| row.and_then(|row| row.address);
        let before = address_of(tx.sink(name)?);
        settle(tx, &targets)?;
        // A run may have it from its environment, and then nothing else tells what is no address.
        if key == address && targets.iter().all(|target| target.name != name) {
            tx.retire_sink(name)?;
        }
        let now = tx.sink(name)?.filter(|row| !row.is_retired());
        if now.is_some() && address_of(now) != before { tx.sessions_before(name) } else { Ok(0) }
    })
}

fn fingerprint(address: &str, credentials: &[&str]) -> Fingerprint {
    let short = |text: &str| hex(&Sha256::digest(text.as_bytes())[..8]);
    let credentials = short(&[&[address], credentials].concat().join("\0"));
    Fingerprint { address: short(address), credentials }
}

/// The address below a base that may or may not end in a slash.
pub(super) fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let joined = format!("{}{path}", base.path().trim_end_matches('/'));
    url.set_path(&joined);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_a_base() {
        for (base, expected) in [
            ("http://h:1", "http://h:1/v1/events"),
            ("http://h:1/", "http://h:1/v1/events"),
            ("https://h/codemie/", "https://h/codemie/v1/events"),
        ] {
            assert_eq!(below(&Url::parse(base).unwrap(), "/v1/events").as_str(), expected);
        }
    }
}
