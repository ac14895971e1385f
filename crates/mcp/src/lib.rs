//! `codemie mcp`: sessions as tools of the Model Context Protocol, on standard input and output.
//!
//! Promises: nothing but MCP goes to standard output. The server ends when its input does, and background sessions live on. A
//! caller sees and reaches no further than the user allowed ([`scope`], [`rules`]), whatever its prompt says. Answers, messages
//! and waiting calls are bounded, so that no client can make the server grow.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

mod error;
mod forms;
mod genie;
mod live;
mod places;
mod read;
mod rules;
mod scope;
mod server;
mod speak;
mod start;
mod tools;

use rmcp::model::Tool;
use rmcp::service::{ServerInitializeError, serve_server};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::stdio_pipes;
use tokio::sync::watch;

use live::HostedSessions;
use os::home::Home;
use os::log;
use pty::process::SystemProcesses;
use runtime::launch::{Origin, settings};
pub use scope::Scope;
use server::ClientMessages;
use server::SessionServer;
use tools::{ToolContext, Tools};
use types::Pid;

/// How the user starts the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServeOptions {
    pub scope: Scope,
    /// With Genie's names for the tools, too.
    pub genie: bool,
}

/// Serves the client on standard input until it closes its end.
pub fn serve(options: ServeOptions, home: &Home) -> anyhow::Result<()> {
    let origin = Origin::of_this_process();
    let config = settings(Some(home), &origin);
    // A log that cannot be written is done without.
    let _ = log::start(home, Some(&config.log_level));
    let context = ToolContext {
        home: home.clone(),
        origin: origin.clone(),
        scope: options.scope,
        config: config.mcp,
        server: Pid(i32::try_from(std::process::id()).unwrap_or_default()),
        processes: Box::new(SystemProcesses),
        live: Box::new(HostedSessions { home: home.clone(), origin }),
    };
    let listed = tools::list(options.genie, context.config.allow_answers);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(serve_tools(Tools::new(context), listed));
    // A wait that nobody wants any more is not waited for.
    runtime.shutdown_background();
    served
}

async fn serve_tools(tools: Tools, listed: Vec<Tool>) -> anyhow::Result<()> {
    let (closing, closed) = watch::channel(false);
    let (input, output) = stdio_pipes();
    let transport = ClientMessages::new(AsyncRwTransport::new_server(input, output), closing);
    match serve_server(SessionServer::new(tools, listed, closed), transport).await {
        Ok(running) => {
            running.waiting().await?;
            Ok(())
        }
        // The client has gone before it asked anything.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
