//! From calls to sums, and from sums to tables.
//!
//! The store and a scan add calls up by owner, model and quarter of an hour ([`Spending`]); [`tally`] makes the table of them
//! that is asked for. Pure: nothing here reads a file or a database.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

mod filter;
mod row;
mod spending;
mod tally;

pub use row::{CommitLabel, Numbers, SessionLabel, UsageRow};
pub use spending::{
    CommitFacts, DatedSums, Owner, OwnerSession, Place, PlaceOf, Portion, Spending, SpendingBuilder,
    SpentCall, index,
};
pub use tally::{By, Order, Tally, UsageQuery, tally};
