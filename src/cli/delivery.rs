//! The command line of delivery.

use std::time::Duration;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Sync {
    #[command(subcommand)]
    pub action: Option<SyncAction>,
    /// How long to try
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = super::time)]
    pub timeout: Duration,
    /// Only tell how far delivery has got
    #[arg(long, conflicts_with_all = ["backfill", "retry_dead"])]
    pub status: bool,
    /// For programs
    #[arg(long, requires = "status")]
    pub json: bool,
    /// Send the whole history, imported sessions included
    #[arg(long)]
    pub backfill: bool,
    /// With --backfill: calls of conversations that never ran through codemie, too
    #[arg(long, requires = "backfill")]
    pub scan: bool,
    /// Send once more what was refused for good
    #[arg(long)]
    pub retry_dead: bool,

    /// Give up a receiver that is no longer set up, and what waits for it
    #[arg(long, value_name = "NAME", conflicts_with_all = ["status", "backfill", "retry_dead", "scan"])]
    pub forget: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum SyncAction {
    /// Tell how far delivery has got; the same as --status
    Status {
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Print what would be sent, to the byte; send nothing
    Preview {
        /// At most so many events per receiver
        #[arg(long, value_name = "EVENTS", default_value_t = 1000)]
        limit: usize,
    },
}
