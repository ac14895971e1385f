//! What a folder is part of: the project's own name, the repository as `owner/name`, the branch.
//!
//! Reads git's files instead of running git, which would cost more than the whole start of the wrapper. What is read is
//! only ever narrowed down: a remote's address may hold a password, so nothing but its last two segments is kept.

pub mod head;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::file::text_at_most;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Project {
    /// The folder's own name.
    pub name: Option<String>,
    pub repository: Option<String>,
    pub branch: Option<String>,
}

impl Project {
    pub fn of(folder: &Path) -> Self {
        let Some((root, git)) = repository_of(folder) else {
            return Self { name: file_name(folder), ..Self::default() };
        };
        let config = text(&common(&git).join("config")).unwrap_or_default();
        Self {
            name: file_name(&root),
            repository: remote(&config).and_then(|address| owner_and_name(&address)),
            branch: text(&git.join("HEAD")).ok().and_then(|head| branch(&head)),
        }
    }
}

/// The folder that holds the project: the repository's, else the folder itself.
pub fn root(folder: &Path) -> PathBuf {
    repository_of(folder).map_or_else(|| folder.to_owned(), |(root, _)| root)
}

/// A folder may hold anything under these names.
fn text(path: &Path) -> io::Result<String> {
    text_at_most(path, 1 << 20)
}

fn file_name(folder: &Path) -> Option<String> {
    folder.file_name().map(|name| name.to_string_lossy().into_owned())
}

/// The folder that holds `.git`, and git's own folder for it.
fn repository_of(folder: &Path) -> Option<(PathBuf, PathBuf)> {
    folder.ancestors().find_map(|root| {
        let dot_git = root.join(".git");
        let meta = fs::metadata(&dot_git).ok()?;
        if meta.is_dir() {
            return Some((root.to_owned(), dot_git));
        }
        // A worktree or a submodule: the file says where git's folder is.
        let text = text(&dot_git).ok()?;
        let target = text.strip_prefix("gitdir:")?.trim();
        Some((root.to_owned(), root.join(target)))
    })
}

/// A worktree keeps its HEAD but shares the configuration.
fn common(git: &Path) -> PathBuf {
    match text(&git.join("commondir")) {
        Ok(path) => git.join(path.trim()),
        Err(_) => git.to_owned(),
    }
}

/// `None` on a detached HEAD.
fn branch(head: &str) -> Option<String> {
    head.trim().strip_prefix("ref: refs/heads/").map(str::to_owned)
}

/// The address of `origin`, else of the first remote there is.
fn remote(config: &str) -> Option<String> {
    let mut section = None;
    let mut first = None;
    for line in config.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.strip_prefix("remote \"").and_then(|rest| rest.split('"').next());
        } else if let (Some(name), Some((key, value))) = (section, line.split_once('='))
            && key.trim().eq_ignore_ascii_case("url")
        {
            let address = value.trim().trim_matches('"').to_owned();
            if name == "origin" {
                return Some(address);
            }
            first.get_or_insert(address);
        }
    }
    first
}

/// `owner/name` at a host: the last two segments, without user, password, host, query or `.git`. The folders of a
/// repository on this machine are nobody's business, nor are the arguments of a remote helper (`ext::sh -c …`).
fn owner_and_name(address: &str) -> Option<String> {
    if address.contains("::") {
        return None;
    }
    // `scheme://user:password@host:port/path`, or `user@host:path`; a letter alone is a drive.
    let (host, path) = match address.split_once("://") {
        Some(("file", _)) => return None,
        Some((_, rest)) => rest.split_once('/')?,
        None => address.split_once(':').filter(|(host, _)| host.len() > 1)?,
    };
    if host.is_empty() || host.contains('/') {
        return None;
    }
    let path = path.split(['?', '#']).next().unwrap_or(path).trim_end_matches('/');
    // Azure puts a word of its own between the two.
    let mut segments = path
        .strip_suffix(".git")
        .unwrap_or(path)
        .rsplit('/')
        .filter(|segment| !segment.is_empty() && *segment != "_git");
    let (name, owner) = (segments.next()?, segments.next()?);
    // Anything else, an @ above all, would mean that something stands where it should not.
    let usual = |letter: char| letter.is_alphanumeric() || "._~+-".contains(letter);
    let plain = |segment: &str| segment.chars().all(usual) && !segment.starts_with('.');
    (plain(owner) && plain(name)).then(|| format!("{owner}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_narrowed_to_owner_and_name() {
        for (address, expected) in [
            ("https://github.com/acme/widgets.git", Some("acme/widgets")),
            ("https://dev:hunter2@git.acme.test:8443/team/acme/widgets.git/", Some("acme/widgets")),
            ("git@github.com:acme/widgets.git", Some("acme/widgets")),
            ("ssh://git@host/acme/widgets", Some("acme/widgets")),
            ("https://dev.azure.com/company/acme/_git/widgets", Some("acme/widgets")),
            ("https://host/acme/widgets?token=hunter2", Some("acme/widgets")),
            ("https://hunter2@host/widgets", None),
            ("https://host", None),
            ("git@host:widgets.git", None),
            ("host:22/acme/widgets", Some("acme/widgets")),
            ("/srv/secret/widgets.git", None),
            ("file:///srv/secret/widgets.git", None),
            ("../secret/widgets", None),
            ("./secret:x/y/widgets", None),
            ("C:/secret/widgets", None),
            ("https:///secret/widgets", None),
            ("ext::sh -c secret% foo/bar", None),
            ("https://host/sec ret/widgets", None),
            ("../widgets", None),
            ("user:hunter2@host/x", None),
            ("", None),
        ] {
            assert_eq!(owner_and_name(address).as_deref(), expected, "{address}");
        }
    }

    #[test]
    fn origin_is_preferred() {
        let config = "[core]\n\turl = no\n[remote \"fork\"]\n\turl = a/fork\n[remote \"origin\"]\n\tfetch = x\n\turl = a/origin\n";
        assert_eq!(remote(config).as_deref(), Some("a/origin"));
        assert_eq!(remote("[remote \"fork\"]\nurl=a/fork\n").as_deref(), Some("a/fork"));
        assert_eq!(remote("[core]\n\tbare = false\n"), None);
    }

    #[test]
    fn a_folder_inside_a_repository_and_a_worktree_of_it() {
        let root = tempfile::tempdir().unwrap();
        let main = root.path().join("widgets");
        let inside = main.join("src/deep");
        fs::create_dir_all(&inside).unwrap();
        fs::create_dir_all(main.join(".git/worktrees/fix")).unwrap();
        fs::write(main.join(".git/HEAD"), "ref: refs/heads/feature/x\n").unwrap();
        fs::write(main.join(".git/config"), "[remote \"origin\"]\n\turl = git@h:acme/widgets.git\n").unwrap();
        let expected = Project {
            name: Some("widgets".into()),
            repository: Some("acme/widgets".into()),
            branch: Some("feature/x".into()),
        };
        assert_eq!(Project::of(&inside), expected);

        let tree = root.path().join("fix");
        fs::create_dir_all(&tree).unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", main.join(".git/worktrees/fix").display()))
            .unwrap();
        fs::write(main.join(".git/worktrees/fix/HEAD"), "0123456789abcdef\n").unwrap();
        fs::write(main.join(".git/worktrees/fix/commondir"), "../..\n").unwrap();
        let project = Project::of(&tree);
        assert_eq!(project.repository.as_deref(), Some("acme/widgets"));
        assert_eq!((project.name.as_deref(), project.branch), (Some("fix"), None));

        let plain = root.path().join("plain");
        fs::create_dir_all(&plain).unwrap();
        assert_eq!(Project::of(&plain), Project { name: Some("plain".into()), ..Project::default() });
    }
}
