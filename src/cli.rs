//! Every clap struct, nothing else.

use clap::{Args, Parser, Subcommand, ValueEnum};

#[derive(Debug, Parser)]
#[command(name = "codemie", version, about = "A transparent, exact meter in front of coding agents")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Shims on PATH, so that an agent called by its own name is wrapped
    Shim(Shim),
    /// Print what a shell needs at its start: PATH, aliases, completions
    Init(Init),
    /// What is wrong and how to put it right
    Doctor(Doctor),
    /// Read and change settings
    Config(Config),
    /// Print the completion script of a shell
    Completions(Completions),
}

#[derive(Debug, Args)]
pub struct Shim {
    #[command(subcommand)]
    pub action: ShimAction,
}

#[derive(Debug, Subcommand)]
pub enum ShimAction {
    /// Put a symlink per agent into $CODEMIE_HOME/shims
    Install,
    /// Remove those symlinks, and nothing else
    Uninstall,
    /// Tell for each agent whether its shim is there and comes first on PATH
    Status {
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub struct Init {
    pub shell: InitShell,
    /// Only the lines that set PATH, no aliases and no completions
    #[arg(long)]
    pub path_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InitShell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub struct Doctor {
    #[arg(long)]
    pub json: bool,
    /// How many seconds a shell or an agent may take to answer
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub timeout: u64,
    /// Become the leader of a session without a terminal, then exec COMMAND (how the doctor asks interactive shells)
    #[arg(long, hide = true, num_args = 1.., allow_hyphen_values = true, value_name = "COMMAND")]
    pub in_own_session: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub struct Config {
    #[command(subcommand)]
    pub action: ConfigAction,
}

#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Where the file is
    Path,
    /// Every setting, its value and where that comes from
    Show {
        #[arg(long)]
        json: bool,
    },
    /// One setting's value
    Get { key: String },
    /// Write a setting to the file
    Set { key: String, value: String },
}

#[derive(Debug, Args)]
pub struct Completions {
    pub shell: clap_complete::Shell,
}
