//! The options of `codemie sync`.

use std::time::Duration;

use clap::{Args, Subcommand};
use format::since::Since;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Sync {
    #[command(subcommand)]
    pub action: Option<SyncAction>,
    /// How long to try
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = super::time)]
    pub timeout: Duration,
    /// Only show how far delivery has got
    #[arg(long, conflicts_with_all = ["backfill", "retry_dead"])]
    pub status: bool,
    /// Print JSON, for scripts
    #[arg(long, requires = "status")]
    pub json: bool,
    /// Send the whole history, imported sessions included
    #[arg(long)]
    pub backfill: bool,
    /// With --backfill: also calls of conversations that never ran through codemie
    #[arg(long, requires = "backfill")]
    pub scan: bool,
    /// Send refused events again
    #[arg(long)]
    pub retry_dead: bool,

    /// Forget a receiver that is no longer set up, with all events that are pending for it
    #[arg(long, value_name = "NAME", conflicts_with_all = ["status", "backfill", "retry_dead", "scan"])]
    pub forget: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum SyncAction {
    /// Show how far delivery has got; the same as --status
    Status {
        /// Print JSON, for scripts
        #[arg(long)]
        json: bool,
    },
    /// Print exactly what would be sent, or with --since what was, and send nothing
    Preview {
        /// Instead of what waits: what left already of events since then: 30m, 12h, 7d, today, yesterday, or a date like 2026-11-01
        #[arg(long, value_name = "TIME")]
        since: Option<Since>,
        /// At most this many events per receiver
        #[arg(long, value_name = "EVENTS", default_value_t = 1000)]
        limit: usize,
    },
}
