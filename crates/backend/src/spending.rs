//! What was spent, for Prometheus: cost and tokens by agent, model and project, from the sums that are kept for ever.
//!
//! Promises: the number of series is bounded; a counter never goes down while a node runs, because a rate over it would count
//! everything again; the database is asked at most once in [`FRESH`], by one request for all.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use reader::{Error, Reader};
use reader::{SpendingKey, SpendingRow, UsageSums};

/// Series with a name of their own; the others are one, called [`OTHER`]. Why 200: with six lines each that is 1,200 time
/// series and some 150 kB per scrape, which no Prometheus notices, and a hundred people seldom use more than some ten models
/// in twenty projects.
const NAMED: usize = 200;

/// How long an answer of the database is good. Prometheus asks every 15 s or more seldom; several of them share one.
const FRESH: Duration = Duration::from_secs(10);

pub const OTHER: &str = "other";

/// The sums of this node's last look, and which of them have a name.
#[derive(Debug, Default)]
pub struct Spending(Mutex<Look>);

#[derive(Debug, Default)]
struct Look {
    at: Option<Instant>,
    counters: Counters,
}

impl Spending {
    pub async fn series(&self, reader: &dyn Reader) -> Result<Vec<SpendingRow>, Error> {
        let mut look = self.0.lock().await;
        if look.at.is_none_or(|at| at.elapsed() >= FRESH) {
            let rows = reader.spending().await?;
            look.counters.update(rows, NAMED);
            look.at = Some(Instant::now());
        }
        Ok(look.counters.rows())
    }
}

/// Counters that never go down. A series that has a name keeps it; a new one gets a name as long as there are some left, the
/// most expensive first.
#[derive(Debug, Default)]
struct Counters {
    named: HashMap<SpendingKey, UsageSums>,
    other: Option<UsageSums>,
}

impl Counters {
    /// `rows`: the most expensive first.
    fn update(&mut self, rows: Vec<SpendingRow>, most: usize) {
        let mut others = UsageSums::default();
        let mut any = false;
        for SpendingRow { key, sums } in rows {
            let room = self.named.len() < most && self.other.is_none();
            match self.named.get_mut(&key) {
                Some(known) => raise(known, &sums),
                None if room => drop(self.named.insert(key, sums)),
                None => {
                    others.add(&sums);
                    any = true;
                }
            }
        }
        if any {
            raise(self.other.get_or_insert_default(), &others);
        }
    }

    /// In a stable order, the others last.
    fn rows(&self) -> Vec<SpendingRow> {
        let named: BTreeMap<_, _> = self.named.iter().collect();
        let named = named.into_iter().map(|(key, sums)| SpendingRow { key: key.clone(), sums: *sums });
        let other = || OTHER.to_owned();
        let key = SpendingKey { agent: other(), model: other(), project: other() };
        named.chain(self.other.map(|sums| SpendingRow { key, sums })).collect()
    }
}

/// A revised call or a session that moved to another project may lower a sum; the counter then waits until it is passed.
fn raise(known: &mut UsageSums, now: &UsageSums) {
    known.cost_usd = known.cost_usd.max(now.cost_usd);
    let (counts, new) = (&mut known.counts, &now.counts);
    for (count, new) in [
        (&mut counts.input, new.input),
        (&mut counts.output, new.output),
        (&mut counts.cache_read, new.cache_read),
        (&mut counts.cache_write, new.cache_write),
        (&mut counts.unpriced_calls, new.unpriced_calls),
    ] {
        *count = (*count).max(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reader::Numbers;

    fn row(project: &str, cost_usd: f64) -> SpendingRow {
        let counts = Numbers { input: 10, ..Numbers::default() };
        let key = SpendingKey {
            agent: "claude".into(),
            model: "claude-sonnet-4-5".into(),
            project: project.into(),
        };
        SpendingRow { key, sums: UsageSums { counts, cost_usd } }
    }

    fn costs(counters: &Counters) -> Vec<(String, f64)> {
        counters.rows().into_iter().map(|row| (row.key.project, row.sums.cost_usd)).collect()
    }

    #[test]
    fn the_number_of_series_is_bounded_and_no_counter_goes_down() {
        let mut counters = Counters::default();
        counters.update(vec![row("b", 3.0)], 2);
        counters.update(vec![row("b", 4.0), row("a", 2.0)], 2);
        assert_eq!(costs(&counters), [("a".into(), 2.0), ("b".into(), 4.0)], "room for both");
        counters.update(vec![row("c", 9.0), row("b", 4.0), row("a", 2.5), row("d", 1.0)], 2);
        let expected = [("a".to_owned(), 2.5), ("b".to_owned(), 4.0), (OTHER.to_owned(), 10.0)];
        assert_eq!(costs(&counters), expected, "a dear newcomer does not take a name away");
        counters.update(vec![row("b", 1.0), row("c", 2.0)], 2);
        assert_eq!(costs(&counters), expected, "sums that were lowered wait");
        let whole: i64 = counters.rows().iter().map(|row| row.sums.counts.input).sum();
        assert_eq!(whole, 40);
    }
}
