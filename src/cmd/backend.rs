//! `codemie backend serve` and `codemie backend token`.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Backend, BackendAction, BackendStore, Serve, TokenAction};
use agents::registry;
use backend::api::Options;
use backend::bootstrap::{self, TokenFile};
use backend::database::Database;
use backend::log;
use backend::storage::Storage;
use dashboard::KnownAgents;
use delivery::identity::login_name;
use format::output::screen::Unread;
use format::output::table::{Cell, Column, Table};
use format::output::{Colour, Style, json};
use os::clock::{Clock, SystemClock};
use os::file::create_private;
use os::home::Home;
use reader::token::{Owner, Role, Token, TokenHash, check_name, new_secret};
use runtime::launch::{Origin, settings};
use server::Clients;

/// The database, without its password on a command line, where others can read it.
const DATABASE: &str = "CODEMIE_BACKEND_DATABASE";

pub fn run(
    args: &Backend,
    home: &Home,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the server's threads")?;
    match &args.action {
        BackendAction::Serve(args) => runtime.block_on(serve(args, home, out, err))?,
        BackendAction::Token(args) => runtime.block_on(token(&args.action, home, out))?,
    }
    // A blocked read of a database must not keep the process.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// Flag, variable, default.
fn database(store: &BackendStore, home: &Home) -> anyhow::Result<Database> {
    if let Some(database) = &store.database {
        return Ok(database.clone());
    }
    match std::env::var(DATABASE) {
        Ok(text) if !text.is_empty() => text.parse().with_context(|| DATABASE.to_owned()),
        _ => Ok(Database::Sqlite(home.backend_database())),
    }
}

async fn open(database: &Database, home: &Home) -> anyhow::Result<Arc<dyn Storage>> {
    if *database == Database::Sqlite(home.backend_database()) {
        let folder = home.backend();
        create_private(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    database.open().await.with_context(|| database.to_string())
}

/// For commands that only read: a mistyped path must not look like an empty backend.
async fn open_existing(database: &Database, home: &Home) -> anyhow::Result<Arc<dyn Storage>> {
    if let Database::Sqlite(path) = database {
        anyhow::ensure!(
            path.exists(),
            "there is no database {}; `codemie backend serve` makes one, --database names another",
            path.display()
        );
    }
    open(database, home).await
}

async fn serve(args: &Serve, home: &Home, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<()> {
    let (mut out, mut err) = (Unread(out), Unread(err));
    let config = settings(Some(home), &Origin::of_this_process());
    // Logs get a line for every request; a person at a terminal only warnings and errors.
    let at_terminal = pty::is_terminal(&std::io::stderr()) && config.log_level == "info";
    log::start(if at_terminal { "warn" } else { &config.log_level });
    let database = database(&args.store, home)?;
    let storage = open(&database, home).await?;
    // Asked for before anybody can connect: a signal right after the first answer must find us ready.
    let ended = ended()?;
    let listener = listen(args.listen).await?;
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() {
        writeln!(
            err,
            "codemie: {address} can be reached from other machines, and tokens and numbers travel unencrypted; put a proxy \
             with TLS in front of it"
        )?;
    }
    let (file, user) = (home.backend_tokens(), login_name().unwrap_or_else(|| "local".to_owned()));
    let made = bootstrap::ensure_tokens(&*storage, &file, &user, SystemClock.now()).await?;
    announce(&mut out, address, &database, &file, made, pty::is_terminal(&std::io::stdout()))?;
    tracing::info!(%address, %database, "listening");
    let clients = Clients { proxies: args.behind_proxy.clone(), ..Clients::default() };
    let zone = args.timezone.zone.clone();
    let options = Options { rate: args.rate, clients, zone: zone.clone() };
    let (reader, tokens, agents) = (storage.clone(), storage.clone(), KnownAgents(registry::names()));
    let pages = dashboard::of_backend(reader, tokens, agents, (args.timezone.name.clone(), zone));
    backend::run(listener, storage, options, pages, ended).await;
    tracing::info!("ended");
    Ok(())
}

async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; choose another address with --listen"))
}

/// What a person or a script needs to know; the address stands alone in the first line.
fn announce(
    out: &mut dyn Write,
    address: SocketAddr,
    database: &Database,
    file: &Path,
    made: TokenFile,
    to_person: bool,
) -> anyhow::Result<()> {
    writeln!(out, "http://{address}")?;
    writeln!(out, "database   {database}")?;
    match made {
        TokenFile::Created => writeln!(out, "tokens     {} (made now: ingest, read, admin)", file.display())?,
        TokenFile::Existing => writeln!(out, "tokens     {}", file.display())?,
        TokenFile::Elsewhere => {
            writeln!(out, "tokens     made elsewhere; another: codemie backend token create --role read")?;
        }
    }
    if to_person {
        let with = match made {
            TokenFile::Created | TokenFile::Existing => format!("the `read` token of {}", file.display()),
            TokenFile::Elsewhere => "a token of role read".to_owned(),
        };
        writeln!(out, "dashboard  open the address, log in with {with}")?;
    }
    out.flush()?;
    Ok(())
}

/// TERM, or ^C.
fn ended() -> anyhow::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

async fn token(action: &TokenAction, home: &Home, out: &mut dyn Write) -> anyhow::Result<()> {
    match action {
        TokenAction::Create { role, name, owner, replaces, store } => {
            let storage = open(&database(store, home)?, home).await?;
            let owned_by = match (owner, replaces) {
                (Some(owner), _) => {
                    SessionsOwner::Of(Owner::new(owner).with_context(|| format!("--owner {owner:?}"))?)
                }
                (None, Some(old)) => SessionsOwner::Of(owner_of(&*storage, old).await?),
                (None, None) => SessionsOwner::Own,
            };
            create(&*storage, *role, name.as_deref(), &owned_by, out).await
        }
        TokenAction::List { json, store } => {
            let tokens = open_existing(&database(store, home)?, home).await?.tokens().await?;
            list(&tokens, *json, out)
        }
        TokenAction::Revoke { name, store } => {
            let storage = open_existing(&database(store, home)?, home).await?;
            if !storage.revoke_token(name, SystemClock.now()).await? {
                let known = storage.tokens().await?.iter().any(|token| token.name == *name);
                anyhow::ensure!(!known, "the token {name:?} was revoked before");
                anyhow::bail!("there is no token {name:?} to revoke; codemie backend token list shows them");
            }
            writeln!(out, "revoked {name}")?;
            Ok(())
        }
    }
}

/// The owner of the sessions that a new token reports.
#[derive(Debug)]
enum SessionsOwner {
    Of(Owner),
    /// Itself: an owner of its own name, which no other token has.
    Own,
}

impl SessionsOwner {
    fn of_token(&self, name: &str) -> anyhow::Result<Owner> {
        match self {
            Self::Of(owner) => Ok(owner.clone()),
            Self::Own => Ok(Owner::new(name)?),
        }
    }

    /// Whether a token of this name would share an owner with another one by accident.
    fn is_taken(&self, name: &str, tokens: &[Token]) -> bool {
        let default = Owner::default();
        let mut owners = tokens.iter().map(|token| &token.owner).chain([&default]);
        matches!(self, Self::Own) && owners.any(|owner| owner.as_str() == name)
    }
}

async fn owner_of(storage: &dyn Storage, token: &str) -> anyhow::Result<Owner> {
    let known = storage.tokens().await?.into_iter().find(|known| known.name == token);
    let known = known.with_context(|| {
        format!("there is no token {token:?} to replace; codemie backend token list shows them")
    })?;
    Ok(known.owner)
}

async fn create(
    storage: &dyn Storage,
    role: Role,
    name: Option<&str>,
    owned_by: &SessionsOwner,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let secret = new_secret(role)?;
    let (hash, created_at) = (TokenHash::of(&secret), SystemClock.now());
    let token = |name: String| {
        let owner = owned_by.of_token(&name)?;
        anyhow::Ok(Token { name, role, owner, hash, created_at, revoked_at: None })
    };
    let tokens = storage.tokens().await?;
    if let Some(name) = name {
        check_name(name).with_context(|| format!("--name {name:?}"))?;
        anyhow::ensure!(
            !tokens.iter().any(|token| token.name == name),
            "there is a token {name:?} already; choose another name"
        );
        anyhow::ensure!(
            !owned_by.is_taken(name, &tokens),
            "there is an owner {name:?} already; add --owner {name:?} to report the same sessions, or choose another name"
        );
        anyhow::ensure!(
            storage.add_token(token(name.to_owned())?).await?,
            "there is a token {name:?} already; choose another name"
        );
    } else {
        let mut number = tokens.len() + 1;
        loop {
            let name = format!("{role}-{number}");
            if !owned_by.is_taken(&name, &tokens) && storage.add_token(token(name)?).await? {
                break;
            }
            number += 1;
        }
    }
    writeln!(out, "{secret}")?;
    Ok(())
}

fn list(tokens: &[Token], as_json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    if as_json {
        let tokens: Vec<_> = tokens
            .iter()
            .map(|token| {
                json!({"name": token.name, "role": token.role, "owner": token.owner.as_str(), "createdAt": token.created_at,
                    "revokedAt": token.revoked_at})
            })
            .collect();
        out.write_all(json::pretty(&tokens)?.as_bytes())?;
        return Ok(());
    }
    if tokens.is_empty() {
        writeln!(out, "no tokens; make one: codemie backend token create --role ingest")?;
        return Ok(());
    }
    out.write_all(table(tokens).render(Style::of_stdout()).as_bytes())?;
    Ok(())
}

fn table(tokens: &[Token]) -> Table {
    let (now, zone) = (SystemClock.now(), os::zone::local());
    let mut table = Table::new([
        Column::text("NAME", 8),
        Column::text("ROLE", usize::MAX),
        Column::text("OWNER", 8),
        Column::text("MADE", usize::MAX),
        Column::text("STATE", usize::MAX),
    ]);
    for token in tokens {
        let state =
            token.revoked_at.map_or(Cell::from("good"), |_| Cell::painted("revoked", Colour::Warning));
        let made = format::moment(token.created_at, now, &zone);
        table.row([
            Cell::from(&*token.name),
            Cell::from(token.role.as_str()),
            Cell::from(token.owner.as_str()),
            Cell::from(made),
            state,
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_token_names_are_drawn_harmlessly() {
        crate::cmd::hostile::draw_everywhere(|text, style| {
            let hash = TokenHash::of("secret");
            let token = Token {
                name: text.into(),
                role: Role::Read,
                owner: Owner::default(),
                hash,
                created_at: types::Timestamp(0),
                revoked_at: None,
            };
            table(&[token]).render(style)
        });
    }

    #[test]
    fn the_way_to_log_in_is_shown_to_people_alone() {
        let announced = |made, to_person| {
            let mut out = Vec::new();
            let (address, file) = (SocketAddr::from(([127, 0, 0, 1], 8788)), Path::new("/h/tokens"));
            announce(&mut out, address, &Database::Sqlite("/h/b.db".into()), file, made, to_person).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(announced(TokenFile::Existing, true).contains("log in with the `read` token of /h/tokens"));
        assert!(announced(TokenFile::Elsewhere, true).contains("log in with a token of role read"));
        assert!(
            !announced(TokenFile::Existing, false).contains("log in"),
            "scripts read what they always did"
        );
    }
}
