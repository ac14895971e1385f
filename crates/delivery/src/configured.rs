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
use store::{Error, Fingerprint, Store};
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
