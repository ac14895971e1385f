//! The agents that the pages know by name. The caller hands them in: this crate knows none.

use types::DEMO;

/// Programs that are no agent we know are one thing in a chart.
pub const OTHERS: &str = "other programs";
/// Colours there are; what is no agent we know is grey.
const COLOURS: usize = 4;

/// In the order of the registry.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownAgents(pub &'static [&'static str]);

impl KnownAgents {
    fn position(self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| *known == name)
    }

    /// The number of an agent's colour: its position in the registry, so that it is the same on every page and every day.
    pub(super) fn colour(self, name: &str) -> usize {
        self.position(name).map_or(COLOURS, |at| at % COLOURS)
    }

    /// The agent of this name, or [`OTHERS`].
    pub(super) fn known(self, name: &str) -> &'static str {
        match self.position(name) {
            Some(at) => self.0[at],
            None if name == DEMO => DEMO,
            None => OTHERS,
        }
    }

    /// Its position in a chart: agents in the order of the registry, the demonstration, then the others.
    pub(super) fn order(self, name: &str) -> usize {
        self.position(name).unwrap_or(if name == OTHERS { usize::MAX } else { self.0.len() })
    }

    /// Whether codemie starts it by its name.
    pub(super) fn contains(self, name: &str) -> bool {
        self.position(name).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_order_follow_the_registry() {
        let agents = KnownAgents(&["claude", "codex"]);
        for (name, known, colour, order) in [
            ("claude", "claude", 0, 0),
            ("codex", "codex", 1, 1),
            (DEMO, DEMO, 4, 2),
            ("make", OTHERS, 4, 2),
            (OTHERS, OTHERS, 4, usize::MAX),
        ] {
            assert_eq!(
                (agents.known(name), agents.colour(name), agents.order(name)),
                (known, colour, order),
                "{name}"
            );
        }
        assert!(agents.contains("codex") && !agents.contains(DEMO));
    }
}
