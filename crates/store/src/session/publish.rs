//! The records as files for scripts to read: `metrics/sessions/<sessionId>.json`, never read back.
//!
//! Every lifecycle change marks its session in the same transaction; a publisher takes all that are marked. So a
//! process killed between its commit and its file leaves the file to the next one, and since it happens under the
//! write lock no older record ever lies over a newer one.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Error;
use super::import::found;
use super::record::record;
use crate::{SessionRow, Store};
use os::file::create_private;
use os::file::open_regular_with;
use os::home::Home;
use types::Timestamp;

/// Writes the file of every session that changed since it was last written. Returns how many.
pub fn publish(store: &mut Store, home: &Home, now: Timestamp) -> Result<usize, Error> {
    if !store.read(|view| Ok::<_, Error>(view.any_unpublished()?))? {
        return Ok(0);
    }
    let folder = home.published_sessions();
    let is_new = !folder.exists();
    create_private(&folder).map_err(|source| crate::Error::io(&folder, source))?;
    store.write(|tx| {
        if is_new {
            found::expect_nothing(tx, &folder)?;
        }
        let rows = tx.unpublished()?;
        for row in &rows {
            let path = file_of(&folder, &row.shown_id());
            // A file of an earlier tool that this session was read from is not ours to write.
            if row.imported_from.as_deref().is_none_or(|source| Path::new(source) != path) {
                let mut text = serde_json::to_vec_pretty(&record(tx, row, now)?).map_err(io::Error::from);
                if let Ok(text) = &mut text {
                    text.push(b'\n');
                }
                text.and_then(|text| replace(&path, &text))
                    .map_err(|source| crate::Error::io(&path, source))?;
            }
            for alias in tx.aliases(row.n)? {
                remove(&file_of(&folder, &alias));
            }
            tx.set_published(row.n)?;
        }
        Ok(rows.len())
    })
}

/// Removes the file of a session that was removed from the store.
pub(super) fn withdraw(home: &Home, row: &SessionRow) {
    let path = file_of(&home.published_sessions(), &row.shown_id());
    if row.imported_from.as_deref().is_none_or(|source| Path::new(source) != path) {
        remove(&path);
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(file = %path.display(), %error, "a published file could not be removed");
    }
}

/// Ids of old stores may hold anything; a file name may not.
fn file_of(folder: &Path, id: &str) -> PathBuf {
    let safe: String =
        id.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    folder.join(format!("{safe}.json"))
}

/// Readers see the old content or the new, whole.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("json.new");
    let mut file = open_regular_with(
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600),
        &draft,
    )?;
    file.write_all(content)?;
    fs::rename(&draft, path)
}
