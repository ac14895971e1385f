//! A store that was found damaged is set aside by whoever finds it, often beside an agent or in the background. The next
//! command tells, once: nobody is to believe that there never was a session.

use std::fs;

use crate::home::Home;
use crate::store::{self, Store};
use system::clock::{Clock, SystemClock};

/// How many of the incidents have been told of.
const TOLD: &str = "incidents.told";

/// What has not been told yet. Most homes have nothing that was set aside, and cost a look at a folder.
pub(super) fn unreported(home: &Home) -> Option<String> {
    let database = home.database();
    let aside = format!("{}.damaged-", database.file_name()?.to_str()?);
    let mut files = fs::read_dir(home.path()).ok()?.flatten();
    if !database.exists() || !files.any(|file| file.file_name().to_string_lossy().starts_with(&aside)) {
        return None;
    }
    tell(home).unwrap_or_else(|error| {
        tracing::warn!("not looked for what was set aside: {error}");
        None
    })
}

fn tell(home: &Home) -> Result<Option<String>, store::Error> {
    let mut store = Store::open(home, SystemClock.now())?;
    let (incidents, told) =
        store.read(|view| Ok::<_, store::Error>((view.incidents()?, view.setting(TOLD)?)))?;
    let told = told.and_then(|told| told.parse().ok()).unwrap_or(0);
    let Some(last) = incidents.get(told..).and_then(<[_]>::last) else { return Ok(None) };
    store.write(|tx| tx.set_setting(TOLD, &incidents.len().to_string()))?;
    Ok(Some(format!("the database was damaged, and a new one was made: {}", last.detail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_aside_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        assert_eq!(unreported(&home), None);
        drop(Store::open(&home, SystemClock.now()).unwrap());
        assert_eq!(unreported(&home), None);
        for _ in 0..2 {
            fs::write(home.database(), "garbage").unwrap();
            let _ = fs::remove_file(folder.path().join("codemie.db-wal"));
            drop(Store::open(&home, SystemClock.now()).unwrap());
            let said = unreported(&home).unwrap();
            assert!(said.contains("damaged") && said.contains("set aside as "), "{said}");
            assert_eq!(unreported(&home), None, "once");
        }
    }
}
