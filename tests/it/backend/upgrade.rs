//! Databases that an older version has written: they are brought up to date, and tell the same.
use std::path::Path;

use backend::postgres::Postgres;
use backend::sqlite::Sqlite;
use backend::storage::Storage;
use reader::Page;
use reader::token::Owner;
use types::Filter;

use super::conformance::story;
use super::events::{NOW, assert_same, bound, everything, life, parsed, post, session};
use super::{Kind, block_on};
use crate::support::postgres::Cluster;

/// A database with this schema that has taken the story in.
fn written(version: u32, database: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/old-backends");
    std::fs::read_to_string(folder.join(format!("v{version}.{database}.sql"))).unwrap()
}

/// The oldest schema, and the last one without owners, with the number of its tokens.
const VERSIONS: [(u32, usize); 2] = [(1, 0), (4, 3)];

#[test]
fn an_old_sqlite_database_tells_the_same_and_has_the_default_owner() {
    for (version, tokens) in VERSIONS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backend.db");
        rusqlite::Connection::open(&path).unwrap().execute_batch(&written(version, "sqlite")).unwrap();
        let old = Sqlite::open(&path).unwrap();
        block_on(tells_the_same(&old, Kind::Sqlite));
        block_on(has_the_default_owner(&old, tokens));
    }
}

#[test]
fn an_old_postgresql_database_tells_the_same_and_has_the_default_owner() {
    let Some(cluster) = Cluster::start() else { return };
    for (version, tokens) in VERSIONS {
        let name = format!("old{version}");
        let url = cluster.database(&name);
        cluster.run(&name, &written(version, "postgres"));
        block_on(async {
            let old = Postgres::connect(&url).await.unwrap();
            tells_the_same(&old, Kind::Postgres(&cluster)).await;
            has_the_default_owner(&old, tokens).await;
        });
    }
}

async fn has_the_default_owner(old: &dyn Storage, number: usize) {
    let tokens = old.tokens().await.unwrap();
    assert_eq!(tokens.len(), number);
    assert!(tokens.iter().all(|token| token.owner == Owner::default()), "{tokens:?}");
    let before = everything(old).await;
    let stranger = Owner::new("stranger").unwrap();
    let refused = old.ingest(&stranger, parsed(&story()), NOW).await.unwrap();
    assert_eq!((refused.accepted, refused.duplicates, refused.rejected.len()), (0, 0, story().len()));
    assert_same(&everything(old).await, &before);
}

async fn tells_the_same(old: &dyn Storage, kind: Kind<'_>) {
    let fresh = kind.world().await;
    post(&*fresh.one, &story()).await;
    assert_same(&everything(old).await, &everything(&*fresh.one).await);
    for (search, tag, number) in [
        ("gizmos", None, 1),
        ("", Some("blue"), 2),
        ("", Some("blu"), 0),
        // Of a session without its START everything behind its name was taken for tags.
        ("", Some("claude"), 0),
        ("agent-5e551011", Some("BLUE"), 2),
    ] {
        let words = Some(search.to_owned()).filter(|words| !words.is_empty()).into_iter().collect();
        let filter = Filter { words, tag: tag.map(str::to_owned), ..Filter::default() };
        let found = old.sessions(filter.clone().into(), Page::first(10)).await.unwrap().sessions;
        assert_eq!(found.len(), number, "{filter:?}");
    }
    // What was counted before is not counted again, and what comes goes on from there.
    let told = story().len();
    assert_eq!(post(old, &story()).await, (0, told, 0));
    for storage in [old, &*fresh.one] {
        post(storage, &life(&session(3), "widgets")).await;
        post(storage, &[bound(&session(2), 13)]).await;
    }
    assert_same(&everything(old).await, &everything(&*fresh.one).await);
}
