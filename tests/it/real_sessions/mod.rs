//! The sessions of the real agents, run through codemie in a terminal: how many, in which chain, for which reasons,
//! bound to which conversation by which evidence, and with exactly the tokens that the fake API's log gives each.
//!
//! A scenario drives the agent as a person does and then tells the story that codemie must have recorded
//! ([`scene::Scene::expect`]). Those of Claude Code stand here, those of the others in a folder each.
//! Scenarios share a run of the agent where they can, because starting it takes seconds.

/// Tests of scenarios of Claude Code: on the usual version, and on the newer one that every run has, too. With `--newest` the
/// usual one is whatever is newest.
macro_rules! on_both_versions {
    ($($scenario:ident),+ $(,)?) => {$(
        mod $scenario {
            use crate::real_sessions::scene::Scene;
            use crate::support::agents::Agent;

            #[test]
            fn usual() {
                let Some(scene) = Scene::set(Agent::Claude) else { return };
                super::$scenario(&scene);
            }

            #[test]
            fn claude_2_1_325() {
                let Some(scene) = Scene::set_version(Agent::Claude, "2.1.325") else { return };
                super::$scenario(&scene);
            }
        }
    )+};
}

mod attribute;
mod background;
mod clear;
mod codex;
mod ending;
mod evidence;
mod gemini;
mod hosted;
mod latency;
mod orchestrated;
mod qwen;
mod resume;
mod rollout_versions;
mod scene;
mod screens;
mod stay;
mod story;
mod switch;
mod together;
mod versions;
