//! The receivers that the settings name: their sinks, ready to send, and the fingerprints by which the store knows them.
//! The one place that lists all kinds of receivers.

use sha2::{Digest, Sha256};

use super::codemie_v1::{CODEMIE_V1, CodemieV1};
use super::identity::Identity;
use super::native::{Credential, NATIVE, Native};
use super::otlp::{OTLP, Otlp};
use super::sink::Sink;
use config::delivery::{Backend, Delivery, Secret};
use os::home::Home;
use store::{Error, Fingerprint, SinkRow, Store, Tx};
use types::hex::hex;

/// The settings that name a receiver's address, and the receiver's name.
pub(super) const ADDRESS_SETTINGS: [(&str, &str); 3] =
    [("backend.url", NATIVE), ("otlp.endpoint", OTLP), ("codemieV1.url", CODEMIE_V1)];

/// The setting of a receiver's address.
pub fn address_setting(receiver: &str) -> Option<&'static str> {
    ADDRESS_SETTINGS.into_iter().find(|(_, name)| *name == receiver).map(|(setting, _)| setting)
}

/// A configured receiver as the store knows it.
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
    /// `None` if the settings name no receiver.
    pub fn of(home: &Home, delivery: &Delivery) -> Option<Self> {
        delivery.any().then(|| Self { home: home.clone(), delivery: delivery.clone() })
    }

    /// One for each receiver, with its address and credentials as they are now.
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

    /// A sink for each receiver, sending as this machine and user.
    pub fn open(&self, store: &mut Store) -> Result<Vec<Box<dyn Sink>>, Error> {
        Ok(self.sinks(&Identity::of(store, &self.delivery.user)?))
    }

    /// A sink for each receiver, sending as `identity`.
    pub fn sinks(&self, identity: &Identity) -> Vec<Box<dyn Sink>> {
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

    /// Our own backend, if it is one of them.
    pub fn native(&self, identity: &Identity) -> Option<Native> {
        let backend = self.delivery.backend.as_ref()?;
        Some(Native::new(&backend.url, self.token(backend), identity.clone()))
    }

    fn token(&self, backend: &Backend) -> Credential {
        backend.token.clone().map_or_else(|| Credential::Found(self.home.clone()), Credential::Given)
    }
}

/// Hashes, so that the store holds neither an address nor a secret. Credentials are hashed together with the address: the
/// same token at another address is another one.
fn fingerprint(address: &str, credentials: &[&str]) -> Fingerprint {
    let short = |text: &str| hex(&Sha256::digest(text.as_bytes())[..8]);
    let credentials = short(&[&[address], credentials].concat().join("\0"));
    Fingerprint { address: short(address), credentials }
}

// How the store learns which receivers are configured, so that every process knows where pending events go: at the START of
// a run, and when a setting changes.

/// Makes the configured receivers known to the store. A new one gets the sessions open now and everything after, so this
/// is part of a START's transaction. It costs one query per receiver when nothing has changed.
pub fn register(tx: &Tx<'_>, targets: &[Target]) -> Result<(), Error> {
    for target in targets {
        tx.add_sink(target.name)?;
        tx.point_to(target.name, &target.fingerprint)?;
    }
    Ok(())
}

/// A setting was changed: active runs learn it from the store and send nothing more to the receiver configured before.
/// Returns how many sessions are older than a receiver that is new with this change, and will not be sent to it.
pub fn reconfigure(store: &mut Store, key: &str, sinks: Option<&Sinks>) -> Result<i64, Error> {
    let Some((address_key, name)) = receiver_of(key) else { return Ok(0) };
    let targets = sinks.map(Sinks::targets).unwrap_or_default();
    store.write(|tx| {
        let address_of = |row: Option<SinkRow>| row.and_then(|row| row.address);
        let before = address_of(tx.sink(name)?);
        register(tx, &targets)?;
        // Only the removal of the address itself retires a receiver: without a configured address, a run may still have
        // one from its environment, which is not seen here.
        if key == address_key && targets.iter().all(|target| target.name != name) {
            tx.retire_sink(name)?;
        }
        let now = tx.sink(name)?.filter(|row| !row.is_retired());
        if now.is_some() && address_of(now) != before { tx.sessions_before(name) } else { Ok(0) }
    })
}

/// The receiver that a setting belongs to, and the setting of its address.
fn receiver_of(key: &str) -> Option<(&'static str, &'static str)> {
    let section = |key: &str| key.split('.').next().unwrap_or_default().to_owned();
    ADDRESS_SETTINGS.into_iter().find(|(address_key, _)| section(address_key) == section(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_changes_with_address_and_credentials_and_shows_neither() {
        let first = fingerprint("https://a.example", &["token"]);
        assert_eq!(first, fingerprint("https://a.example", &["token"]));
        let other_token = fingerprint("https://a.example", &["other"]);
        assert_eq!(first.address, other_token.address);
        assert_ne!(first.credentials, other_token.credentials);
        let other_address = fingerprint("https://b.example", &["token"]);
        assert_ne!(first.address, other_address.address);
        assert_ne!(first.credentials, other_address.credentials);
        assert!(!format!("{first:?}").contains("token"));
    }
}

#[cfg(test)]
mod registration_tests {
    use super::*;

    #[test]
    fn setting_belongs_to_the_receiver_of_its_section() {
        for (key, expected) in [
            ("backend.url", Some("backend")),
            ("backend.token", Some("backend")),
            ("otlp.headers", Some("otlp")),
            ("codemieV1.auth", Some("codemie-v1")),
            ("sync.interval", None),
            ("backends.url", None),
            ("", None),
        ] {
            assert_eq!(receiver_of(key).map(|(_, name)| name), expected, "{key}");
        }
    }
}
