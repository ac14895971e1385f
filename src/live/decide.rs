//! From the readings of all sources to one state. Pure.

use crate::agent::live::{Published, ScreenReading, TurnMark};
use wire::{Activity, LiveState, Timestamp};

/// What is known of a session, each from its own source.
#[derive(Clone, Debug, Default)]
pub struct Sources<'a> {
    pub published: Option<&'a Published>,
    /// `None` for a session whose screen nobody keeps: one in another terminal.
    pub screen: Option<&'a ScreenReading>,
    /// The last mark in the conversation's file.
    pub turn: Option<&'a TurnMark>,
    /// When the agent was started.
    pub started: Option<Timestamp>,
}

pub fn decide(_sources: &Sources<'_>, now: Timestamp) -> LiveState {
    LiveState { is: Activity::Unknown, since: now, why: "nothing is known yet".to_owned(), source: None }
}
