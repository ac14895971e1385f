//! The options of `codemie backend`.

use jiff::tz::TimeZone;
use std::net::{IpAddr, SocketAddr};

use clap::{Args, Subcommand, ValueEnum};

use backend::database::Database;
use backend::limits;
use reader::token::Role;

#[derive(Debug, Args)]
pub struct Backend {
    #[command(subcommand)]
    pub action: BackendAction,
}

#[derive(Debug, Subcommand)]
pub enum BackendAction {
    /// Receive events and show them; ends on TERM or ^C, once open requests are answered
    Serve(Serve),
    /// Make, list and revoke tokens
    Token(Tokens),
}

#[derive(Debug, Args)]
pub struct Serve {
    /// Address to listen on, by default for this machine alone; for others, put TLS in front of it
    #[arg(long, default_value = "127.0.0.1:8788", value_name = "ADDRESS:PORT", value_parser = address)]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub store: Store,
    /// Requests per second that one token may make
    #[arg(long, default_value_t = limits::RATE, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: u32,
    /// Address of a proxy in front of this node. It brings everybody's connections, so the limit of connections per address
    /// without a token does not apply to it. May be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub behind_proxy: Vec<IpAddr>,
    /// Time zone of the days in pages and answers, like Europe/Berlin; a view can choose another
    #[arg(long, value_name = "ZONE", default_value = "UTC", value_parser = zone)]
    pub timezone: Zone,
}

/// A time zone and its name.
#[derive(Clone, Debug)]
pub struct Zone {
    pub name: String,
    pub zone: TimeZone,
}

fn zone(name: &str) -> Result<Zone, String> {
    let zone = os::zone::of_name(name).ok_or("there is no such time zone here; one is Europe/Berlin")?;
    Ok(Zone { name: name.to_owned(), zone })
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
        /// What it allows
        #[arg(long)]
        role: RoleName,
        /// Its name; by default the role and a number
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Owner of the sessions it reports; tokens of one owner may send events of the same sessions. By default its own
        #[arg(long, value_name = "NAME")]
        owner: Option<String>,
        /// Take the place of this token and report the sessions of its owner; the old one stays valid until it is revoked
        #[arg(long, value_name = "TOKEN", conflicts_with = "owner")]
        replaces: Option<String>,
        #[command(flatten)]
        store: Store,
    },
    /// List tokens
    List {
        /// Print JSON, for scripts
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        store: Store,
    },
    /// Revoke a token
    Revoke {
        /// Its name, as `codemie backend token list` shows it
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
