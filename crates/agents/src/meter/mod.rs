//! Metering: an agent's conversations become records, records become numbers.

pub mod document;
pub mod form;
pub mod line;
pub mod proxied;
pub mod quota;
pub mod record;
pub mod rows;
pub mod tail;
pub mod title;
