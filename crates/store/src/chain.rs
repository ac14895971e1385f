//! Sessions that followed each other by `/clear` or switch, from the first on.

use rusqlite::params;

use super::record::UNPRICED;
use super::row::{read_row, read_value};
use super::total::sum;
use super::{Error, View};
use types::{PicoDollars, row};

/// A chain is followed so far: a damaged one may lead in a circle.
const LONGEST: i64 = 10_000;

row! {
    /// What a whole chain cost.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ChainSpent {
        pub sessions: i64,
        pub cost: PicoDollars,
        /// Some of its calls have no price.
        pub unpriced: bool,
    }
}

/// Where a session was come to from when it was first opened decides: later openings may lead back.
const FIRST: &str = "WITH RECURSIVE back (n, depth) AS (
    SELECT ?1, 0
    UNION ALL
    SELECT s.n, b.depth + 1 FROM back b JOIN opening o ON o.session = b.n AND o.number = 1
      JOIN session s ON s.id = o.transitioned_from
    WHERE b.depth < ?2)
  SELECT n FROM back ORDER BY depth DESC LIMIT 1";

const MEMBERS: &str = "WITH RECURSIVE chain (n) AS (
    SELECT ?1
    UNION
    SELECT o.session FROM chain c JOIN session s ON s.n = c.n
      JOIN opening o ON o.transitioned_from = s.id AND o.number = 1)";

fn sums() -> String {
    let unpriced = format!("EXISTS (SELECT 1 FROM {UNPRICED} AND session = c.n)");
    format!(
        "{MEMBERS} SELECT count(*) AS sessions, {} AS cost, ifnull(max({unpriced}), 0) AS unpriced FROM chain c LEFT JOIN total t ON t.session = c.n",
        sum("t.cost")
    )
}

fn quarters() -> String {
    format!(
        "SELECT p.slot, {} FROM spent p CROSS JOIN session s ON s.n = p.session
         WHERE p.slot >= ?1 AND s.agent = ?2 GROUP BY p.slot ORDER BY p.slot DESC",
        sum("p.cost")
    )
}

/// For a test of their plans.
#[cfg(any(test, feature = "testing"))]
pub fn chain_queries() -> [String; 3] {
    [FIRST.to_owned(), sums(), quarters()]
}

impl View<'_> {
    /// The sum over all sessions of the chain that holds this one. Those that were pruned are not in it.
    pub fn spent_in_chain(&self, session: i64) -> Result<ChainSpent, Error> {
        let first: i64 = self.one(FIRST, params![session, LONGEST], read_value)?;
        self.one(&sums(), [first], read_row)
    }

    /// What an agent's calls cost by quarters of an hour since 1970, from the latest back to one; those that were pruned are not
    /// in it.
    pub fn spent_by_quarter(&self, agent: &str, from: i64) -> Result<Vec<(i64, PicoDollars)>, Error> {
        self.all(&quarters(), params![from, agent], read_row)
    }
}
