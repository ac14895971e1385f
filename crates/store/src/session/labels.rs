//! Labels that people put on sessions afterwards: names, tags, groups, and whether they are archived.

use super::Error;
use super::event::revise_start;
use super::names;
use crate::{SessionRow, Tx};

/// Another name, as it is kept. Sessions after a `/clear` that were called after the old one keep theirs.
pub fn rename<'a>(tx: &Tx<'_>, row: &SessionRow, name: &'a str) -> Result<&'a str, Error> {
    let name = names::check(name)?;
    if name == row.name {
        return Ok(name);
    }
    if tx.name_taken(name)? {
        return Err(Error::NameTaken(name.to_owned()));
    }
    tx.set_name(row.n, name, name, 1)?;
    report(tx, row)?;
    Ok(name)
}

/// Whether the tag was not there before.
pub fn tag(tx: &Tx<'_>, row: &SessionRow, tag: &str) -> Result<bool, Error> {
    let added = tx.add_tag(row.n, names::check_tag(tag)?)?;
    if added {
        report(tx, row)?;
    }
    Ok(added)
}

/// Whether the tag was there.
pub fn untag(tx: &Tx<'_>, row: &SessionRow, tag: &str) -> Result<bool, Error> {
    let removed = tx.remove_tag(row.n, names::check_tag(tag).unwrap_or(tag))?;
    if removed {
        report(tx, row)?;
    }
    Ok(removed)
}

/// The group it is in then; `None` takes it out of its group.
pub fn group<'a>(tx: &Tx<'_>, row: &SessionRow, group: Option<&'a str>) -> Result<Option<&'a str>, Error> {
    let group = group.map(names::check_group).transpose()?;
    if row.group.as_deref() != group {
        tx.set_group(row.n, group)?;
        report(tx, row)?;
    }
    Ok(group)
}

pub fn archive(tx: &Tx<'_>, row: &SessionRow, archived: bool) -> Result<(), Error> {
    Ok(tx.set_archived(row.n, archived)?)
}

/// The START carries name, tags and group: it gets a new revision, and so the backend knows.
fn report(tx: &Tx<'_>, row: &SessionRow) -> Result<(), Error> {
    match tx.session_number(row.n)? {
        Some(row) => Ok(revise_start(tx, &row)?),
        None => Ok(()),
    }
}
