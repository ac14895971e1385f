//! A scan of all agents' files, as commands ask for one.

use crate::progress::Bar;
use agents::registry;
use config::prices::price_list;
use os::home::{Home, own_var};
use scan::{Days, Progress, Scanner};

/// Hands a scanner to `read`, with the prices and days of this machine. `visible`: a bar shows how far it is, on a terminal.
pub(super) fn with_scanner<T>(home: &Home, visible: bool, read: impl FnOnce(&Scanner<'_>) -> T) -> T {
    let bar = visible.then(|| Bar::on_terminal("reading session files", format::bytes)).flatten();
    read(&Scanner {
        folder: home.scans(),
        agents: registry::AGENTS,
        var: &own_var,
        days: Days::of(os::zone::local()),
        prices: &price_list(&home.config_file()),
        watch: bar.as_ref().map(|bar| bar as &dyn Progress),
    })
}

impl Progress for Bar {
    fn progress(&self, done: u64, of: u64) {
        self.draw(done, of);
    }
}
