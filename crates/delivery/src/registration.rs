//! How the store learns which receivers are configured, so that every process knows where pending events go: at the START of
//! a run, and when a setting changes.

use super::configured::{ADDRESS_SETTINGS, Sinks, Target};
use store::{Error, SinkRow, Store, Tx};

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
