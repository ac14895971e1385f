//! A damaged store is set aside by the process that finds it, often beside an agent or in the background. The next command
//! reports it, once, so that nobody believes that there never was a session.

use std::fs;

use os::clock::{Clock, SystemClock};
use os::home::Home;
use store::{self, Store};

/// The setting that holds how many of the incidents have been reported.
const REPORTED: &str = "incidents.told";

/// The last incident that was not reported yet. Most homes have none, and cost one look at a folder.
pub(super) fn unreported(home: &Home) -> Option<String> {
    let database = home.database();
    let aside = format!("{}.damaged-", database.file_name()?.to_str()?);
    let mut files = fs::read_dir(home.path()).ok()?.flatten();
    if !database.exists() || !files.any(|file| file.file_name().to_string_lossy().starts_with(&aside)) {
        return None;
    }
    report(home).unwrap_or_else(|error| {
        tracing::warn!("not looked for damaged databases: {error}");
        None
    })
}

fn report(home: &Home) -> Result<Option<String>, store::Error> {
    let mut store = Store::open(home, SystemClock.now())?;
    let (incidents, reported) =
        store.read(|view| Ok::<_, store::Error>((view.incidents()?, view.setting(REPORTED)?)))?;
    let reported = reported.and_then(|count| count.parse().ok()).unwrap_or(0);
    let Some(last) = incidents.get(reported..).and_then(<[_]>::last) else { return Ok(None) };
    store.in_a_hurry(|store| store.write(|tx| tx.set_setting(REPORTED, &incidents.len().to_string())))?;
    Ok(Some(format!("the database was damaged, and a new one was made: {}", last.detail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_store_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        assert_eq!(unreported(&home), None);
        drop(Store::open(&home, SystemClock.now()).unwrap());
        assert_eq!(unreported(&home), None);
        for _ in 0..2 {
            fs::write(home.database(), "garbage").unwrap();
            let _ = fs::remove_file(folder.path().join("codemie.db-wal"));
            drop(Store::open(&home, SystemClock.now()).unwrap());
            let message = unreported(&home).unwrap();
            assert!(message.contains("damaged") && message.contains("set aside as "), "{message}");
            assert_eq!(unreported(&home), None, "once");
        }
    }
}
