//! The budgets as `config.toml` has them now: a limit that is changed holds for runs that are under way.

use std::path::PathBuf;

use super::Budget;
use config::{Config, Notify, RunawayLimits};
use os::file::Stamp;
use os::home::Home;
use pricing::PriceList;
use types::Timestamp;

/// The file as it was when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadFile {
    Never,
    Absent,
    Stamped(Stamp),
}

/// Reads the file again when it has changed. Otherwise a look costs one `stat`.
#[derive(Debug)]
pub struct CurrentBudgets {
    file: PathBuf,
    read: ReadFile,
    budgets: Vec<Budget>,
    prices: PriceList,
    notify: Notify,
    runaway: RunawayLimits,
}

impl CurrentBudgets {
    pub fn of(home: &Home) -> Self {
        Self {
            file: home.config_file(),
            read: ReadFile::Never,
            budgets: Vec::new(),
            prices: PriceList::default(),
            notify: Notify::default(),
            runaway: RunawayLimits::NEVER,
        }
    }

    /// All of them, after a look at the file.
    pub fn look(&mut self, now: Timestamp) -> &[Budget] {
        let stamp = Stamp::of(&self.file);
        let found = stamp.map_or(ReadFile::Absent, ReadFile::Stamped);
        if self.read != found {
            // A file that was changed this very moment may be changed again without showing it.
            let settled = stamp.is_none_or(|stamp| stamp.is_settled(now));
            self.read = if settled { found } else { ReadFile::Never };
            let config = Config::load(Some(&self.file), |_| None, &[]);
            (self.budgets, self.prices, self.notify) = (config.budgets, config.prices, config.notify);
            self.runaway = config.runaway;
        }
        &self.budgets
    }

    /// As of the last look.
    pub fn budgets(&self) -> &[Budget] {
        &self.budgets
    }

    /// As of the last look.
    pub fn prices(&self) -> &PriceList {
        &self.prices
    }

    /// From when on a session counts as running away, as of the last look.
    pub fn runaway(&self) -> RunawayLimits {
        self.runaway
    }

    /// As of the last look.
    pub fn notify(&self) -> &Notify {
        &self.notify
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_changed_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let mut current = CurrentBudgets::of(&home);
        // Long after every change of the file.
        let now = Timestamp(i64::MAX);
        assert_eq!(current.look(now), []);
        fs::write(home.config_file(), "[[budget]]\nper = 'day'\nusd = 5\n").unwrap();
        assert_eq!(current.look(now).len(), 1);
        assert_eq!(current.look(now).len(), 1);
        fs::write(
            home.config_file(),
            "[[budget]]\nper = 'day'\nusd = 5\n[[budget]]\nper = 'week'\nusd = 5\n",
        )
        .unwrap();
        assert_eq!(current.look(now).len(), 2);
        fs::remove_file(home.config_file()).unwrap();
        assert_eq!(current.look(now), []);
    }
}
