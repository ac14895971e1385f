//! Databases that an older version has written: they are brought up to date, and tell the same.
use std::path::Path;

use codemie::backend::model::{Page, SessionFilter};
use codemie::backend::postgres::Postgres;
use codemie::backend::sqlite::Sqlite;
use codemie::backend::storage::Storage;

use super::conformance::story;
use super::told::{assert_same, bound, everything, life, post, session};
use super::{Kind, block_on};
use crate::support::postgres::Cluster;

/// A database with schema 1 that has taken the story in.
fn written(database: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/old-backends");
    std::fs::read_to_string(folder.join(format!("v1.{database}.sql"))).unwrap()
}

#[test]
fn a_sqlite_database_of_schema_1_tells_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backend.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch(&written("sqlite")).unwrap();
    block_on(tells_the_same(&Sqlite::open(&path).unwrap(), Kind::Sqlite));
}

#[test]
fn a_postgresql_database_of_schema_1_tells_the_same() {
    let Some(cluster) = Cluster::start() else { return };
    let url = cluster.database("old");
    cluster.run("old", &written("postgres"));
    block_on(async {
        let old = Postgres::connect(&url).await.unwrap();
        tells_the_same(&old, Kind::Postgres(&cluster)).await;
    });
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
        let search = Some(search.to_owned()).filter(|words| !words.is_empty());
        let filter = SessionFilter { search, tag: tag.map(str::to_owned), ..SessionFilter::default() };
        let found = old.sessions(filter.clone(), Page::first(10)).await.unwrap().sessions;
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
