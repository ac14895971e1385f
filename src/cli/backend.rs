//! The metrics backend.

use std::net::{IpAddr, SocketAddr};

use clap::{Args, Subcommand, ValueEnum};

use backend::database::Database;
use backend::limits;
use backend::token::Role;

#[derive(Debug, Args)]
pub struct Backend {
    #[command(subcommand)]
    pub action: BackendAction,
}

#[derive(Debug, Subcommand)]
pub enum BackendAction {
    /// Take in events and show them; ends on TERM or ^C, after what is under way
    Serve(Serve),
    /// Make, list and revoke tokens
    Token(Tokens),
}

#[derive(Debug, Args)]
pub struct Serve {
    /// Where to listen; beyond this machine only if you say so, and then put TLS in front of it
    #[arg(long, default_value = "127.0.0.1:8788", value_name = "ADDRESS:PORT", value_parser = address)]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub store: Store,
    /// Requests per second that one token has
    #[arg(long, default_value_t = limits::RATE, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: u32,
    /// A proxy in front of this node: the limit of connections per address that have shown no token is not for it, which
    /// brings everybody's. May be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub behind_proxy: Vec<IpAddr>,
}

#[derive(Debug, Args)]
pub struct Store {
    /// sqlite:PATH or postgres://USER@HOST/DATABASE; else $CODEMIE_BACKEND_DATABASE, else a file in $CODEMIE_HOME/backend
    #[arg(long, value_name = "URL")]
    pub database: Option<Database>,
}

#[derive(Debug, Args)]
pub struct Tokens {
    #[command(subcommand)]
    pub action: TokenAction,
}

#[derive(Debug, Subcommand)]
pub enum TokenAction {
    /// Print a new token, alone and once: only its hash is kept
    Create {
        /// What it is good for
        #[arg(long)]
        role: RoleName,
        /// What to call it; else the role and a number
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Whose sessions it reports; tokens of one owner may send events of the same sessions. Else it owns itself
        #[arg(long, value_name = "NAME")]
        owner: Option<String>,
        /// Report the sessions of this token's owner, as one that takes its place must; the old one stays good until it is
        /// revoked
        #[arg(long, value_name = "TOKEN", conflicts_with = "owner")]
        replaces: Option<String>,
        #[command(flatten)]
        store: Store,
    },
    /// Which tokens there are
    List {
        /// For programs
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        store: Store,
    },
    /// Refuse a token from now on
    Revoke {
        /// Which one, as `codemie backend token list` calls it
        name: String,
        #[command(flatten)]
        store: Store,
    },
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write it in digits, like 127.0.0.1:8788 or [::1]:8788".to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleName {
    /// Send events
    Ingest,
    /// Read everything
    Read,
    /// Both
    Admin,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Ingest => Self::Ingest,
            RoleName::Read => Self::Read,
            RoleName::Admin => Self::Admin,
        }
    }
}
