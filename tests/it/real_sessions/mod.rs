//! The sessions of the real agents, run through codemie in a terminal: how many, in which chain, for which reasons,
//! bound to which conversation by which evidence, and with exactly the tokens that the fake API's log gives each.
//!
//! A scenario drives the agent as a person does and then tells the story that codemie must have recorded
//! ([`scene::Scene::expect`]). Those of Claude Code stand here, those of the others in a folder each.
//! Scenarios share a run of the agent where they can, because starting it takes seconds.

mod attribute;
mod clear;
mod codex;
mod ending;
mod evidence;
mod gemini;
mod latency;
mod resume;
mod rollout_versions;
mod scene;
mod stay;
mod story;
mod switch;
mod together;
