//! The options of the services: `backend`, `sync` and `proxy`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use jiff::tz::TimeZone;

use super::one_of;
use backend::database::Database;
use backend::limits;
use format::since::Since;
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
        #[arg(long, value_parser = role())]
        role: Role,
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

fn role() -> impl TypedValueParser<Value = Role> {
    one_of(Role::ALL.iter().map(|&role| {
        let help = match role {
            Role::Ingest => "Send events",
            Role::Read => "Read everything",
            Role::Admin => "Both",
        };
        (role.as_str(), role, help)
    }))
}

// The options of `codemie sync`.

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

// The options of `codemie proxy`.

#[derive(Debug, Args)]
pub struct Proxy {
    #[command(subcommand)]
    pub action: ProxyAction,
}

#[derive(Debug, Subcommand)]
pub enum ProxyAction {
    /// Serve editors and desktop apps of this user; ends on TERM or ^C, once open answers have ended
    Serve(ProxyServe),
    /// List the listeners that live now
    Status {
        /// Print JSON, for scripts
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub struct ProxyServe {
    /// Address to listen on, of this machine alone
    #[arg(long, default_value = "127.0.0.1:8789", value_name = "ADDRESS:PORT", value_parser = loopback)]
    pub listen: SocketAddr,
    /// Where an API's calls go (anthropic=https://…); may be given several times
    #[arg(long, value_name = "NAME=URL", value_parser = upstream)]
    pub upstream: Vec<(String, String)>,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "write it like 127.0.0.1:8789".to_owned())?;
    let own = address.ip() == std::net::Ipv4Addr::LOCALHOST;
    own.then_some(address).ok_or_else(|| "it serves this machine alone: 127.0.0.1".to_owned())
}

fn upstream(text: &str) -> Result<(String, String), String> {
    let (name, url) = text.split_once('=').ok_or("write it like anthropic=https://gateway.example")?;
    let url = url.trim().trim_end_matches('/');
    let known = url.starts_with("https://") || url.starts_with("http://");
    if known {
        Ok((name.trim().to_owned(), url.to_owned()))
    } else {
        Err("the address begins with https://".to_owned())
    }
}
