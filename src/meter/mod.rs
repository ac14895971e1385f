//! Metering: session files become records, records become numbers.

pub mod document;
pub mod form;
pub mod line;
pub mod record;
pub mod tail;
