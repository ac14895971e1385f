//! What sessions do, over a real database.

mod absorb;
mod commands;
mod elsewhere;
mod lifecycle;
pub(super) mod proxied;
mod quota;
mod sums;
mod together;

use types::{Ids, RunId};

use super::testing::*;
