//! What the screen of Claude Code shows.

use crate::agent::live::ScreenReading;
use terminal::screen::ScreenView;

pub(super) fn read(_screen: &ScreenView) -> ScreenReading {
    ScreenReading::default()
}
