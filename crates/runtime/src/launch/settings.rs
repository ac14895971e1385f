//! The settings in force, as the environment and `config.toml` have them.

use agents::registry;
use config::Config;
use delivery::Sinks;
use os::home::Home;

use super::Origin;

/// The settings as they are now; `home` is `None` on a machine without a home folder.
pub fn settings(home: Option<&Home>, origin: &Origin) -> Config {
    let file = home.map(Home::config_file);
    Config::load(file.as_deref(), |name| origin.var(name), registry::names())
}

/// Where events are sent by the settings of this process.
pub fn receivers(home: &Home) -> Option<Sinks> {
    Sinks::of(home, &settings(Some(home), &Origin::of_this_process()).delivery)
}
