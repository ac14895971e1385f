//! Changing `config.toml` without disturbing what a person wrote around it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::budget::{self, Budget, BudgetKey};
use super::{delivery, keys, proxy};
use os::file::create_private;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no setting {key}; {}`codemie config show` lists them", question(meant.as_deref()))]
    Unknown { key: String, meant: Option<String> },
    #[error("{key} {expected}")]
    Value { key: String, expected: String },
    #[error("{problem}; correct it first")]
    Broken { problem: String },
    #[error("{key} cannot be set, because {part} in config.toml is not a table")]
    NotATable { key: String, part: String },
    #[error("cannot write {}: {error}", file.display())]
    Io { file: PathBuf, error: io::Error },
}

impl Error {
    pub fn unknown(key: &str, agents: &[&str]) -> Self {
        Self::Unknown { key: key.to_owned(), meant: keys::meant(key, agents) }
    }
}

fn question(meant: Option<&str>) -> String {
    meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "))
}

/// Writes one setting; comments, order and every other key stay as they are. An empty text takes it out.
pub fn set(file: &Path, key: &str, text: &str, agents: &[&str]) -> Result<(), Error> {
    if text.is_empty() {
        return unset(file, key, agents);
    }
    let known = keys::find_for(key, agents).ok_or_else(|| Error::unknown(key, agents))?;
    let value = known.kind.parse(text).map_err(|expected| Error::Value { key: key.to_owned(), expected })?;
    if let Some(expected) = delivery::refused(key, text).or_else(|| proxy::refused(key, text)) {
        return Err(Error::Value { key: key.to_owned(), expected: expected.to_owned() });
    }
    let mut document = super::parse(file).map_err(|problem| Error::Broken { problem })?;
    put(&mut document, key, value)?;
    write(file, document.to_string().as_bytes()).map_err(|error| Error::Io { file: file.to_owned(), error })
}

/// Removes one setting, also one that this version does not know.
pub fn unset(file: &Path, key: &str, agents: &[&str]) -> Result<(), Error> {
    let mut document = super::parse(file).map_err(|problem| Error::Broken { problem })?;
    let (place, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut parts = place.split('.').filter(|part| !part.is_empty());
    let table = parts.try_fold(document.as_item_mut(), |item, part| item.as_table_like_mut()?.get_mut(part));
    let taken = table.and_then(Item::as_table_like_mut).and_then(|table| table.remove(last));
    match taken {
        Some(_) => write(file, document.to_string().as_bytes())
            .map_err(|error| Error::Io { file: file.to_owned(), error }),
        None if keys::find_for(key, agents).is_some() => Ok(()),
        None => Err(Error::unknown(key, agents)),
    }
}

/// Writes one budget, in place of the one for the same.
pub fn set_budget(file: &Path, budget: &Budget) -> Result<(), Error> {
    let mut document = super::parse(file).map_err(|problem| Error::Broken { problem })?;
    let not_tables = || Error::Broken { problem: "config.toml: budget must be tables: [[budget]]".into() };
    budget::put(&mut document, budget).map_err(|()| not_tables())?;
    write(file, document.to_string().as_bytes()).map_err(|error| Error::Io { file: file.to_owned(), error })
}

/// Removes one budget, with the comment above it; whether it was there.
pub fn unset_budget(file: &Path, which: &BudgetKey) -> Result<bool, Error> {
    let mut document = super::parse(file).map_err(|problem| Error::Broken { problem })?;
    if !budget::take_out(&mut document, which) {
        return Ok(false);
    }
    write(file, document.to_string().as_bytes())
        .map_err(|error| Error::Io { file: file.to_owned(), error })?;
    Ok(true)
}

fn put(document: &mut DocumentMut, key: &str, value: Value) -> Result<(), Error> {
    let mut parts: Vec<&str> = key.split('.').collect();
    let Some(last) = parts.pop() else { return Ok(()) };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for part in parts {
        let next = table.entry(part).or_insert_with(|| {
            // A header is written only for a table that holds values of its own.
            let mut made = Table::new();
            made.set_implicit(true);
            Item::Table(made)
        });
        table = next
            .as_table_like_mut()
            .ok_or_else(|| Error::NotATable { key: key.to_owned(), part: part.to_owned() })?;
    }
    match table.get_mut(last).and_then(Item::as_value_mut) {
        Some(old) => {
            // The decor is the white space and the comment around the value.
            let decor = old.decor().clone();
            *old = value;
            *old.decor_mut() = decor;
        }
        None => {
            table.insert(last, Item::Value(value));
        }
    }
    Ok(())
}

/// All or nothing, readable by its owner alone. A symlink, as dotfile managers make them, stays one.
fn write(file: &Path, content: &[u8]) -> io::Result<()> {
    let target = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_private(folder)?;
    let mut temporary = tempfile::Builder::new().prefix(".config.").tempfile_in(folder)?; // made with mode 0600
    temporary.write_all(content)?;
    temporary.as_file().sync_all()?;
    temporary.persist(&target)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const AGENTS: [&str; 2] = ["claude", "codex"];

    #[test]
    fn keeps_comments_order_and_other_keys() {
        let cases = [
            ("", "quiet", "1", "quiet = true\n"),
            (
                "# mine\nquiet = false # why\n\n[log] # x\nlevel='info'\n",
                "quiet",
                "true",
                "# mine\nquiet = true # why\n\n[log] # x\nlevel='info'\n",
            ),
            ("[log]\nlevel = 'info' # loud\n", "log.level", "debug", "[log]\nlevel = \"debug\" # loud\n"),
            ("a = 1\n", "agent.claude.path", "/x y", "a = 1\n\n[agent.claude]\npath = \"/x y\"\n"),
            (
                "[agent.claude]\npath = 'x'\n",
                "agent.claude.inject",
                "no",
                "[agent.claude]\npath = 'x'\ninject = false\n",
            ),
            ("agent.codex.path = 'x'\n", "agent.codex.path", "y", "agent.codex.path = \"y\"\n"),
            ("log = { level = 'info' }\n", "log.level", "off", "log = { level = \"off\" }\n"),
        ];
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        for (before, key, value, after) in cases {
            fs::write(&file, before).unwrap();
            set(&file, key, value, &AGENTS).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), after, "set {key} {value} in {before:?}");
        }
    }

    #[test]
    fn refuses_without_touching_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        let cases = [
            ("", "quite", "true", "there is no setting quite; did you mean quiet?"),
            ("", "proxy.claud.upstream", "http://x", "did you mean proxy.claude.upstream?"),
            ("", "wat", "1", "there is no setting wat; `codemie config show`"),
            ("", "quiet", "perhaps", "quiet must be true or false"),
            ("", "backend.url", "foo", "backend.url must be an address that begins with http"),
            ("", "otlp.endpoint", "http://me:word@x", "must hold no password"),
            ("", "otlp.headers", "a=b,c", "must be like"),
            ("", "codemieV1.auth", "x", "must be a header like"),
            ("", "quite", "", "there is no setting quite"),
            ("[log\n", "quiet", "true", "line 1"),
            ("log = 3\n", "log.level", "debug", "log in config.toml is not a table"),
        ];
        for (content, key, value, problem) in cases {
            fs::write(&file, content).unwrap();
            let error = set(&file, key, value, &AGENTS).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), content);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn unset_removes_one_key_and_keeps_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        for (before, key, after) in [
            ("# mine\nquiet = true\n[log]\nlevel = 'info'\n", "log.level", "# mine\nquiet = true\n[log]\n"),
            ("quiet = true\nwat = 1\n", "wat", "quiet = true\n"),
            ("[backend]\nurl = 'http://x'\ntoken = 'y'\n", "backend.token", "[backend]\nurl = 'http://x'\n"),
            ("quiet = true\n", "backend.url", "quiet = true\n"),
        ] {
            let unset = |file: &Path, key: &str| super::unset(file, key, &AGENTS);
            for set in [unset, |file: &Path, key: &str| set(file, key, "", &AGENTS)] {
                fs::write(&file, before).unwrap();
                set(&file, key).unwrap();
                assert_eq!(fs::read_to_string(&file).unwrap(), after, "{key} out of {before:?}");
            }
        }
    }

    #[test]
    fn the_file_is_private_and_a_symlink_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("dotfiles.toml"), folder.path().join("new/config.toml"));
        set(&link, "quiet", "true", &AGENTS).unwrap();
        assert_eq!(fs::metadata(&link).unwrap().permissions().mode() & 0o777, 0o600);
        fs::rename(&link, &real).unwrap();
        symlink(&real, &link).unwrap();
        set(&link, "quiet", "false", &AGENTS).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "quiet = false\n");
    }
}
