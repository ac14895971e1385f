//! Metering: session files become records, records become numbers.

pub mod record;
