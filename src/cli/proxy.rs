//! The options of `codemie proxy`.

use std::net::SocketAddr;

use clap::{Args, Subcommand};

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
