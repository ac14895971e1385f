//! What happens while agents run: the launch of an agent in a terminal, the tracker that sees its sessions begin and end, the
//! processes that keep background sessions and their clients, what a session does now, budgets, and the proxy's processes.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

pub mod budget;
pub mod host;
pub mod launch;
pub mod live;
pub mod proxy;
pub mod remote;
pub mod shim;
pub mod track;
