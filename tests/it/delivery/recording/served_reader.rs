//! The backend's interface in this process, over any read model.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use backend::Options;
use backend::sqlite::Sqlite;
use backend::storage::{Ingested, Storage};
use dashboard::KnownAgents;
use jiff::tz::TimeZone;
use os::clock::{Clock, SystemClock};
use reader::token::{Owner, Role, Token, TokenHash, new_secret};
use reader::{
    ActivityBucket, Answer, By, Counted, Facets, Health, HourRow, Page, Reader, SeriesRow, Session,
    SessionDetail, SessionFilter, SessionPage, SpendingRow, TimelinePage, TimelinePosition, Tokens, Touched,
    UsageFilter, UsagePage,
};
use tokio::runtime::Runtime;
use tokio::sync::broadcast;
use types::{Event, Timestamp};

pub(super) struct ServedReader {
    pub(super) address: SocketAddr,
    /// May read.
    pub(super) token: String,
    _runtime: Runtime,
    _folder: tempfile::TempDir,
}

impl ServedReader {
    pub(super) fn start(reader: impl Reader + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Sqlite::open(&folder.path().join("tokens.db")).unwrap();
        let token = new_secret(Role::Read).unwrap();
        let known = Token {
            name: "read".into(),
            role: Role::Read,
            owner: Owner::default(),
            hash: TokenHash::of(&token),
            created_at: SystemClock.now(),
            revoked_at: None,
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address = runtime.block_on(async {
            assert!(tokens.add_token(known).await.unwrap());
            let storage: Arc<dyn Storage> = Arc::new(ReaderAndTokens { reader: Box::new(reader), tokens });
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let zone = ("UTC".to_owned(), TimeZone::UTC);
            let pages = dashboard::of_backend(storage.clone(), storage.clone(), KnownAgents::default(), zone);
            tokio::spawn(backend::run(listener, storage, Options::default(), pages, std::future::pending()));
            address
        });
        Self { address, token, _runtime: runtime, _folder: folder }
    }
}

/// Answers from one, knows tokens by the other.
struct ReaderAndTokens {
    reader: Box<dyn Reader>,
    tokens: Sqlite,
}

macro_rules! handed_on {
    ($to:ident: $(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)+) => {
        $(fn $name(&self, $($argument: $type),*) -> $answer {
            self.$to.$name($($argument),*)
        })+
    };
}

impl Reader for ReaderAndTokens {
    handed_on! { reader:
        fn sessions(filter: SessionFilter, page: Page) -> Answer<'_, SessionPage>;
        fn count_sessions(filter: SessionFilter, most: i64) -> Answer<'_, Counted>;
        fn chained(ids: Vec<String>, reopened: Vec<String>) -> Answer<'_, Vec<String>>;
        fn sessions_by_id(ids: Vec<String>) -> Answer<'_, Vec<Session>>;
        fn usage(by: By, filter: UsageFilter, rows: Range<usize>) -> Answer<'_, UsagePage>;
        fn series(by: By, filter: UsageFilter) -> Answer<'_, Vec<SeriesRow>>;
        fn hours(filter: UsageFilter) -> Answer<'_, Vec<HourRow>>;
        fn spending() -> Answer<'_, Vec<SpendingRow>>;
        fn health(limit: usize) -> Answer<'_, Health>;
        fn facets() -> Answer<'_, Facets>;
        fn live() -> broadcast::Receiver<Arc<[Touched]>>;
    }

    fn session(&self, id: &str) -> Answer<'_, Option<SessionDetail>> {
        self.reader.session(id)
    }

    fn timeline(&self, id: &str, after: TimelinePosition, limit: usize) -> Answer<'_, TimelinePage> {
        self.reader.timeline(id, after, limit)
    }

    fn activity(
        &self,
        id: &str,
        from: Timestamp,
        to: Timestamp,
        parts: usize,
    ) -> Answer<'_, Vec<ActivityBucket>> {
        self.reader.activity(id, from, to, parts)
    }
}

impl Tokens for ReaderAndTokens {
    handed_on! { tokens:
        fn tokens() -> Answer<'_, Vec<Token>>;
        fn token(hash: TokenHash) -> Answer<'_, Option<Token>>;
        fn end_pass(signature: [u8; 32], until: Timestamp, now: Timestamp) -> Answer<'_, ()>;
        fn pass_ended(signature: [u8; 32]) -> Answer<'_, bool>;
    }
}

impl Storage for ReaderAndTokens {
    fn ingest(&self, owner: &Owner, batch: Vec<Event>, now: Timestamp) -> Answer<'_, Ingested> {
        self.tokens.ingest(owner, batch, now)
    }

    fn ready(&self) -> Answer<'_, ()> {
        self.tokens.ready()
    }

    fn add_token(&self, token: Token) -> Answer<'_, bool> {
        self.tokens.add_token(token)
    }

    fn revoke_token(&self, name: &str, now: Timestamp) -> Answer<'_, bool> {
        self.tokens.revoke_token(name, now)
    }
}
