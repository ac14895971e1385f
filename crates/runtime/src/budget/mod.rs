//! Budgets: how much of each is spent, and who is told or stopped at which point.
//!
//! Promises:
//! - They are counted from the same records as `usage`: calls of pruned sessions count, the demonstration's do not, and what has
//!   no price does not count and is reported as such.
//! - Nothing of a budget ever breaks an answer off. An enforced one refuses a call before it is sent, and only where a proxy
//!   asks ([`BudgetGate`]).
//! - What cannot be asked stops nobody: a store that does not answer admits the call.
//!
//! Modules use only those before them: `status`, `guard`, `current`, `gate`.

mod current;
mod gate;
mod guard;
mod status;

#[cfg(test)]
mod tests;

pub use config::budget::{Budget, BudgetKey, BudgetScope, Kind, Per};
pub use current::CurrentBudgets;
pub use gate::{BudgetGate, Caller, CallerOf};
pub use guard::{Admission, AskedCall, Guard, Refused};
pub use status::Subject;
pub use status::Window;
pub use status::{BudgetStatus, Level, by_scope, raise_command, status, statuses};
pub use status::{NEAR, REACHED, crossed};
