//! The tables in PostgreSQL, and how one version becomes the next.
//!
//! A migration is never edited after a release; the next one is appended.

use deadpool_postgres::Object;
use tokio_postgres::IsolationLevel;

use super::failed;
use crate::backend::sql::number_columns;
use crate::backend::storage::Error;

/// Nodes that start at once migrate one after the other.
const MIGRATING: i64 = 0x636f_6465_6d69_6500;

fn migrations() -> [String; 4] {
    [first(), ENDED_PASSES.to_owned(), LISTED.to_owned(), GAPS.to_owned()]
}

/// The list of sessions with gaps, in its order; it also tells which they are. `received_at` is in no index: every batch
/// changes it, and all indexes of the row with it.
const GAPS: &str = "
CREATE INDEX session_gaps_by_start ON session (started_at, id) WHERE missing > 0;
DROP INDEX session_with_gaps;
";

/// What sessions are looked for and ordered by, in short rows. Words leave the table that every batch writes to, and tags
/// no longer have to be cut out of them.
const LISTED: &str = r#"
CREATE TABLE session_list (
  session    bigint PRIMARY KEY,
  started_at bigint NOT NULL,
  cost       bigint NOT NULL,
  words      text COLLATE "C" NOT NULL,
  tags       text COLLATE "C" NOT NULL
) WITH (fillfactor = 70);
INSERT INTO session_list
  SELECT n, started_at, cost, search,
    (SELECT chr(10) || coalesce(string_agg(lower(tag) || chr(10), ''), '')
     FROM jsonb_array_elements_text(coalesce(life::jsonb #> '{start,said,tags}', '[]')) tag)
  FROM session;
ALTER TABLE session DROP COLUMN search;
"#;

/// Passes to the dashboard that were given up before their time.
const ENDED_PASSES: &str = "CREATE TABLE ended_pass (signature bytea PRIMARY KEY, until bigint NOT NULL)";

/// Texts are compared byte by byte, so that both databases sort alike and no locale of the server matters.
fn first() -> String {
    let numbers = number_columns("{} bigint NOT NULL");
    let text = "text COLLATE \"C\"";
    format!(
        "
CREATE SEQUENCE session_n;
CREATE TABLE session (
  n                 bigint PRIMARY KEY,
  id                {text} NOT NULL UNIQUE,
  agent             {text} NOT NULL,
  machine           {text},
  user_name         {text},
  project           {text},
  branch            {text},
  agent_session     {text},
  parent            {text},
  transitioned_from {text},
  status            {text} NOT NULL,
  started_at        bigint NOT NULL,
  search            {text} NOT NULL,
  life              {text} NOT NULL,
  seqs              {text} NOT NULL,
  missing           bigint NOT NULL,
  first_at          bigint NOT NULL,
  last_at           bigint NOT NULL,
  received_at       bigint NOT NULL,
  unpriced          {text} NOT NULL,
  {numbers}
) WITH (fillfactor = 70); -- room for the next version of a row beside this one
CREATE INDEX session_by_start ON session (started_at, id);
CREATE INDEX session_by_agent ON session (agent, started_at, id);
CREATE INDEX session_by_project ON session (project, started_at, id);
CREATE INDEX session_by_branch ON session (branch, started_at, id);
CREATE INDEX session_by_user ON session (user_name, started_at, id);
CREATE INDEX session_by_machine ON session (machine, started_at, id);
CREATE INDEX session_by_status ON session (status, started_at, id);
CREATE INDEX session_of_parent ON session (parent, started_at) WHERE parent IS NOT NULL;
CREATE INDEX session_after ON session (transitioned_from, started_at) WHERE transitioned_from IS NOT NULL;
CREATE INDEX session_with_gaps ON session (n) WHERE missing > 0;

CREATE TABLE event (
  session    bigint NOT NULL,
  seq        bigint NOT NULL,
  id         uuid PRIMARY KEY,
  rev        bigint NOT NULL,
  kind       {text} NOT NULL,
  time       bigint NOT NULL,
  attributes {text} NOT NULL
);
CREATE INDEX event_of_session ON event (session, seq);

CREATE TABLE session_day (
  session bigint NOT NULL,
  day     bigint NOT NULL,
  model   {text} NOT NULL,
  {numbers},
  PRIMARY KEY (session, day, model)
) WITH (fillfactor = 80);
CREATE TABLE session_tool (
  session       bigint NOT NULL,
  tool          {text} NOT NULL,
  kind          {text} NOT NULL,
  calls         bigint NOT NULL,
  errors        bigint NOT NULL,
  lines_added   bigint NOT NULL,
  lines_removed bigint NOT NULL,
  PRIMARY KEY (session, tool, kind)
) WITH (fillfactor = 80);
-- Of each day, and of each month under a number below zero.
CREATE TABLE daily (
  day       bigint NOT NULL,
  agent     {text} NOT NULL,
  model     {text} NOT NULL,
  project   {text} NOT NULL,
  user_name {text} NOT NULL,
  {numbers},
  PRIMARY KEY (day, agent, model, project, user_name)
) WITH (fillfactor = 50); -- updated by every batch of its day
CREATE INDEX daily_by_model ON daily (model);

CREATE TABLE origin (
  machine           {text} NOT NULL,
  user_name         {text} NOT NULL,
  first_received_at bigint NOT NULL,
  last_received_at  bigint NOT NULL,
  events            bigint NOT NULL,
  PRIMARY KEY (machine, user_name)
) WITH (fillfactor = 50);

CREATE TABLE token (
  name       {text} PRIMARY KEY,
  role       {text} NOT NULL,
  hash       bytea NOT NULL UNIQUE,
  created_at bigint NOT NULL,
  revoked_at bigint
);
"
    )
}

pub(super) async fn migrate(client: &mut Object) -> Result<(), Error> {
    let migrations = migrations();
    let known = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    let run = async {
        // Whoever comes second must see what the first has done, whatever the server has for a default.
        let tx = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await?;
        // Another node may be at it, and a large table takes its time.
        tx.batch_execute("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0").await?;
        tx.execute("SELECT pg_advisory_xact_lock($1)", &[&MIGRATING]).await?;
        tx.batch_execute("CREATE TABLE IF NOT EXISTS codemie_schema (version bigint NOT NULL)").await?;
        let found: Option<i64> =
            tx.query_one("SELECT max(version) FROM codemie_schema", &[]).await?.try_get(0)?;
        let found = found.unwrap_or(0);
        if found > known {
            return Ok(Some(found));
        }
        for (migration, version) in migrations.iter().zip(1..).skip(usize::try_from(found).unwrap_or(0)) {
            tx.batch_execute(migration).await?;
            tx.execute("INSERT INTO codemie_schema VALUES ($1)", &[&i64::from(version)]).await?;
        }
        tx.commit().await?;
        Ok(None)
    };
    match run.await.map_err(|error: tokio_postgres::Error| failed(&error))? {
        Some(found) => Err(Error::Newer { found, known }),
        None => Ok(()),
    }
}
