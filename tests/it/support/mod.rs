//! What the tests stand on: terminals to start programs in, a look at the processes that run there, and a stage for the
//! real agents with a model API of our own.
pub(crate) mod agent_home;
pub(crate) mod agents;
pub(crate) mod answers;
pub(crate) mod fake_api;
pub(crate) mod http;
pub(crate) mod invented;
pub(crate) mod ledger;
pub(crate) mod mailbox;
pub(crate) mod mounts;
pub(crate) mod postgres;
pub(crate) mod processes;
pub(crate) mod pty;
pub(crate) mod receiver;
pub(crate) mod recording;
pub(crate) mod run;
pub(crate) mod screen;
pub(crate) mod scripted;
pub(crate) mod served;
pub(crate) mod stage;
#[path = "../../trees.rs"]
pub(crate) mod trees;
pub(crate) mod wrapper;
