//! `codemie mcp`: the MCP server on standard input and output, until the client closes its end.

use std::process::ExitCode;

use crate::cli::{Mcp, McpCompat};
use mcp::{ServeOptions, serve};
use os::home::Home;

pub fn run(args: &Mcp, home: &Home) -> anyhow::Result<ExitCode> {
    let genie = args.compat == Some(McpCompat::Genie);
    serve(ServeOptions { scope: args.scope, genie }, home)?;
    Ok(ExitCode::SUCCESS)
}
