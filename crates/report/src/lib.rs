//! Answers to the questions of commands and other callers about sessions: typed results, nothing printed.
//!
//! Each function reads the store through a [`View`](store::View), so that one answer is one look at it. How an answer
//! is drawn (tables, JSON, CSV) is its caller's business.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

pub mod bill;
pub mod budget;
pub mod changes;
pub mod context;
pub mod conversation;
pub mod details;
pub mod explain;
pub mod find;
pub mod limits;
pub mod list;
pub mod open;
pub mod plan;
pub mod question;
pub mod read_model;
pub mod search;
pub mod state;
pub mod statusline;
pub mod stop;
pub mod title;
pub mod top;
pub mod unwrapped;
pub mod usage;
pub mod wait;
pub mod wake;
