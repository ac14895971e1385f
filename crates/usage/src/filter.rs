//! Which calls count: by time in the query of the store or the scan, by everything else here.
//!
//! A project is its name, its folder, or `owner/name` of the repository; where nothing is called so, a part of the name. A model is
//! its name; where nothing is called so, a part of it. A branch is its whole name. Sums hold neither status nor words, and are
//! of one user on one machine: these are not looked at.

use types::Filter;

use crate::{Owner, Portion, Spending};

/// A filter applied to the lists of some sources: what each number means for it.
pub(crate) struct Choice {
    sources: Vec<Chosen>,
}

struct Chosen {
    owners: Vec<bool>,
    models: Vec<bool>,
    /// By place; the last one is of calls without any.
    places: Vec<Option<bool>>,
    /// What the owner's branch says where the place says nothing.
    on_branch: Vec<bool>,
}

impl Choice {
    /// `known`: for each owner, whose facts count. `commits`: the beginnings of hashes; calls that went into one of them.
    pub(crate) fn of(
        sources: &[Spending],
        known: &[Vec<&Owner>],
        filter: &Filter,
        commits: Option<&[String]>,
    ) -> Self {
        let owners = || known.iter().flatten().copied();
        let project = filter
            .project
            .as_deref()
            .map(|text| Wanted::among(text, owners().flat_map(|owner| names(owner).into_iter().flatten())));
        let model = filter.model.as_deref();
        let model = model.map(|text| {
            Wanted::among(text, sources.iter().flat_map(|source| source.models.iter().map(String::as_str)))
        });
        let of = |(source, owners): (&Spending, &Vec<&Owner>)| Chosen {
            owners: owners.iter().map(|owner| is_wanted(owner, filter, project.as_ref())).collect(),
            models: source
                .models
                .iter()
                .map(|name| model.as_ref().is_none_or(|model| model.takes(name)))
                .collect(),
            places: source
                .places
                .iter()
                .map(|place| {
                    let commit = commits.is_none_or(|wanted| {
                        let commit = place.commit.as_deref().unwrap_or_default();
                        wanted.iter().any(|wanted| is_same_commit(wanted, commit))
                    });
                    match (&filter.branch, &place.branch) {
                        (Some(wanted), Some(branch)) => Some(commit && wanted == branch),
                        _ if !commit => Some(false),
                        (Some(_), None) => None,
                        (None, _) => Some(true),
                    }
                })
                .chain([if commits.is_some() { Some(false) } else { None }])
                .collect(),
            on_branch: owners
                .iter()
                .map(|owner| filter.branch.is_none() || owner.branch == filter.branch)
                .collect(),
        };
        Self { sources: sources.iter().zip(known).map(of).collect() }
    }

    pub(crate) fn holds(&self, source: usize, portion: &Portion) -> bool {
        let chosen = &self.sources[source];
        let is = |list: &[bool], number: u32| list.get(number as usize).copied().unwrap_or(false);
        let last = chosen.places.len() - 1;
        let place = portion.place.map_or(last, |place| (place as usize).min(last));
        is(&chosen.owners, portion.owner)
            && is(&chosen.models, portion.model)
            && chosen.places[place].unwrap_or_else(|| is(&chosen.on_branch, portion.owner))
    }
}

/// One hash may be given in short.
fn is_same_commit(a: &str, b: &str) -> bool {
    !a.is_empty() && !b.is_empty() && (a.starts_with(b) || b.starts_with(a))
}

/// What a project is called.
fn names(owner: &Owner) -> [Option<&str>; 3] {
    let folder = owner.folder.as_ref().and_then(|folder| folder.to_str());
    [owner.project.as_deref(), owner.repository.as_deref(), folder]
}

fn is_wanted(owner: &Owner, filter: &Filter, project: Option<&Wanted>) -> bool {
    let session = owner.session.as_ref();
    let same = |wanted: &Option<String>, found: Option<&str>| wanted.is_none() || wanted.as_deref() == found;
    same(&filter.agent, Some(&owner.agent))
        && filter.without_agent.as_ref().is_none_or(|agent| *agent != owner.agent)
        && same(&filter.group, session.and_then(|session| session.group.as_deref()))
        && filter.tag.as_ref().is_none_or(|tag| session.is_some_and(|session| session.tags.contains(tag)))
        && project.is_none_or(|project| {
            let [name, repository, folder] = names(owner);
            // A part of a folder's path is hardly ever meant.
            [name, repository].into_iter().flatten().any(|name| project.takes(name))
                || folder.is_some_and(|folder| project.text == folder)
        })
}

/// A name as people give it: whole, or a part of it where nothing is called so.
struct Wanted {
    text: String,
    whole: bool,
}

impl Wanted {
    fn among<'a>(text: &str, mut names: impl Iterator<Item = &'a str>) -> Self {
        Self { text: text.to_owned(), whole: names.any(|name| name == text) }
    }

    fn takes(&self, name: &str) -> bool {
        if self.whole { name == self.text } else { name.to_lowercase().contains(&self.text.to_lowercase()) }
    }
}
