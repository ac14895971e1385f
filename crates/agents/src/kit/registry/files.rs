//! Where an agent keeps its registry and its session files. Reading only.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::{SessionFile, SessionFiles};
use os::file::{entries, is_absent};
use types::AgentSessionId;
use types::Pid;

const PROJECTS: &str = "projects";

/// A project folder's name is cut here and gets a hash.
const MAX_SLUG: usize = 200;

/// Where an agent keeps its files.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// The variable that names its own folder.
    pub(crate) variable: Option<&'static str>,
    /// That folder in the user's home, where no variable names another.
    pub(crate) folder: &'static str,
    /// The variable that names another place for the projects alone.
    pub(crate) projects_variable: Option<&'static str>,
    /// The folder of session files in that of their project, if they do not stand in it directly.
    pub(crate) sessions: Option<&'static str>,
    /// The folder of sub-agents' files in the one that is named as their conversation, if they hold calls of their own.
    pub(crate) subagents: Option<&'static str>,
}

impl Layout {
    /// The name of the project's folder that a session file stands in.
    pub(super) fn project_of<'a>(&self, session_file: &'a Path) -> Option<&'a OsStr> {
        session_file.ancestors().nth(if self.sessions.is_some() { 2 } else { 1 })?.file_name()
    }

    fn sessions_in(&self, project: &Path) -> PathBuf {
        self.sessions.map_or_else(|| project.to_owned(), |folder| project.join(folder))
    }

    /// The folder of a conversation's sub-agents, which need not exist.
    pub(crate) fn subagent_folder(&self, session_file: &Path) -> Option<PathBuf> {
        Some(session_file.with_extension("").join(self.subagents?))
    }

    /// The files of a conversation's sub-agents, as far as they can be listed.
    pub(crate) fn subagents(&self, session_file: &Path) -> Vec<PathBuf> {
        let Some(folder) = self.subagent_folder(session_file) else { return Vec::new() };
        let mut found = SessionFiles::default();
        let root = session_id(session_file).unwrap_or_else(|| AgentSessionId(String::new()));
        subagents_below(&folder, &root, SUBAGENT_FOLDERS, &mut found);
        let mut found: Vec<PathBuf> = found.files.into_iter().map(|file| file.path).collect();
        found.sort();
        found
    }
}

/// The agent's own folder, and what is where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryFiles {
    layout: &'static Layout,
    root: PathBuf,
    projects: PathBuf,
    /// The user has not chosen another.
    is_default: bool,
}

impl RegistryFiles {
    /// `None` when the environment does not name it.
    pub fn from_env(layout: &'static Layout, var: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let set = |name: &str| var(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let chosen = layout.variable.and_then(set);
        let is_default = chosen.is_none();
        let files = Self::at(layout, chosen.or_else(|| Some(set("HOME")?.join(layout.folder)))?);
        let projects = layout.projects_variable.and_then(set).map(|folder| folder.join(PROJECTS));
        Some(Self { is_default, projects: projects.unwrap_or_else(|| files.projects.clone()), ..files })
    }

    pub fn at(layout: &'static Layout, root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self { layout, projects: root.join(PROJECTS), root, is_default: false }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn is_default(&self) -> bool {
        self.is_default
    }

    /// The registry: one file per running process.
    pub fn registry(&self) -> PathBuf {
        self.root.join("sessions")
    }

    pub fn registry_entry(&self, pid: Pid) -> PathBuf {
        self.registry().join(format!("{pid}.json"))
    }

    pub fn projects(&self) -> PathBuf {
        self.projects.clone()
    }

    /// The folder in which a conversation begun in `cwd` is kept. `cwd` must be the real path, as the agent resolves links first.
    pub fn project(&self, cwd: &Path) -> PathBuf {
        self.layout.sessions_in(&self.projects.join(slug(cwd.as_os_str())))
    }

    /// Where the file of a conversation is expected, whether it exists or not.
    pub fn session_file(&self, cwd: &Path, id: &AgentSessionId) -> PathBuf {
        self.project(cwd).join(format!("{id}.jsonl"))
    }

    /// Every file of this conversation, in whichever project: `/cd` moves it, and two folders can hold copies. An id that
    /// is no file name finds nothing.
    pub fn find_session(&self, id: &AgentSessionId) -> io::Result<Vec<PathBuf>> {
        let name = format!("{id}.jsonl");
        let mut found = Vec::new();
        if !id.is_plain() {
            return Ok(found);
        }
        for project in folders(&self.projects())? {
            let path = self.layout.sessions_in(&project).join(&name);
            if path.is_file() {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }

    /// Every file that holds calls, with the conversation they count under, in no order.
    pub fn session_files(&self) -> SessionFiles {
        let mut found = self.project_folders();
        for project in std::mem::take(&mut found.folders) {
            let more = files_of_project(self.layout, &project);
            found.files.extend(more.files);
            found.refused.extend(more.refused);
        }
        found
    }

    /// The folders that hold them.
    pub(crate) fn project_folders(&self) -> SessionFiles {
        let mut found = SessionFiles::default();
        let inside = found.entries(&self.projects(), entries_by_kind(&self.projects())).into_iter();
        let folders = inside.filter(|entry| entry.1 == EntryKind::Folder);
        found.folders = folders.map(|entry| self.layout.sessions_in(&entry.0)).collect();
        found
    }
}

/// Every file in a project folder that holds calls, sub-agents' included.
pub(crate) fn files_of_project(layout: &Layout, project: &Path) -> SessionFiles {
    let mut found = SessionFiles::default();
    for (path, kind) in found.entries(project, entries_by_kind(project)) {
        match kind {
            EntryKind::File if is_lines(&path) => {
                let conversation = session_id(&path);
                found.files.push(SessionFile { path, conversation });
            }
            EntryKind::Folder => {
                let Some(root) = path.file_name().and_then(OsStr::to_str) else { continue };
                let root = AgentSessionId(root.to_owned());
                if let Some(subagents) = layout.subagents {
                    subagents_below(&path.join(subagents), &root, SUBAGENT_FOLDERS, &mut found);
                }
            }
            EntryKind::File | EntryKind::Other => {}
        }
    }
    found
}

/// The files of lines in a project folder itself: sessions, and sub-agents of earlier versions, whose conversation only
/// their lines name.
pub(crate) fn in_project(project: &Path) -> Vec<PathBuf> {
    entries(project).unwrap_or_default().into_iter().filter(|path| is_lines(path)).collect()
}

/// How deep folders of sub-agents are searched: only one level was ever seen, and a loop of links must end.
const SUBAGENT_FOLDERS: usize = 3;

fn subagents_below(folder: &Path, root: &AgentSessionId, depth: usize, found: &mut SessionFiles) {
    for (path, kind) in found.entries(folder, entries_by_kind(folder)) {
        if kind == EntryKind::File && is_lines(&path) {
            found.files.push(SessionFile { path, conversation: Some(root.clone()) });
        } else if kind == EntryKind::Folder && depth > 1 {
            subagents_below(&path, root, depth - 1, found);
        }
    }
}

fn is_lines(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("jsonl"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryKind {
    File,
    Folder,
    Other,
}

/// As [`entries`], with the type of each: the folder itself holds it, so only links are looked at.
fn entries_by_kind(folder: &Path) -> io::Result<Vec<(PathBuf, EntryKind)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    entries
        .map(|entry| {
            let entry = entry?;
            let path = entry.path();
            let mut kind = entry.file_type()?;
            if kind.is_symlink() {
                match fs::metadata(&path) {
                    Ok(target) => kind = target.file_type(),
                    Err(_) => return Ok((path, EntryKind::Other)),
                }
            }
            let kind = if kind.is_file() {
                EntryKind::File
            } else if kind.is_dir() {
                EntryKind::Folder
            } else {
                EntryKind::Other
            };
            Ok((path, kind))
        })
        .collect()
}

/// The conversation a session file is of, by its name; `None` for any other file, a sub-agent's included.
pub fn session_id(path: &Path) -> Option<AgentSessionId> {
    let id = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
    (!id.is_empty() && !id.starts_with("agent-")).then(|| AgentSessionId(id.to_owned()))
}

fn folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(entries(path)?.into_iter().filter(|path| path.is_dir()).collect())
}

/// A folder's name under `projects/`. It loses information (`a.b`, `a-b` and `a_b` are one), so it is made and never
/// parsed: the lines of a conversation name its folder.
///
/// The agent counts UTF-16 units, being JavaScript: each that is not an ASCII letter or digit becomes a dash, and a name
/// longer than 200 is cut and gets a hash of the whole path. Bytes that are not UTF-8 reach it as the replacement character.
pub fn slug(cwd: &OsStr) -> String {
    let path = String::from_utf8_lossy(cwd.as_bytes());
    let dashed =
        |unit: u16| char::from_u32(u32::from(unit)).filter(char::is_ascii_alphanumeric).unwrap_or('-');
    let mut slug: String = path.encode_utf16().map(dashed).collect();
    if slug.len() > MAX_SLUG {
        slug.truncate(MAX_SLUG);
        let hash =
            path.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
        let _ = write!(slug, "-{}", base36(hash.unsigned_abs()));
    }
    slug
}

fn base36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.extend(char::from_digit(number % 36, 36));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claude::files::{LAYOUT, global_config};

    fn files(vars: &[(&str, &str)]) -> Option<RegistryFiles> {
        RegistryFiles::from_env(LAYOUT, |name| {
            vars.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_environment_names_the_root() {
        let by_home = files(&[("HOME", "/home/dev"), ("CLAUDE_CONFIG_DIR", "")]).unwrap();
        assert_eq!(by_home.root(), Path::new("/home/dev/.claude"));
        assert_eq!(global_config(&by_home), Path::new("/home/dev/.claude.json"));
        let chosen = files(&[("HOME", "/home/dev"), ("CLAUDE_CONFIG_DIR", "/x")]).unwrap();
        assert_eq!(chosen, RegistryFiles::at(LAYOUT, "/x"));
        assert_eq!(global_config(&chosen), Path::new("/x/.claude.json"));
        assert_eq!(files(&[]), None);
        assert_eq!(by_home.registry_entry(Pid(30185)), Path::new("/home/dev/.claude/sessions/30185.json"));
    }

    /// Names as the agent itself wrote them. The two hashes come from its formula in JavaScript, which was checked against it.
    #[test]
    fn folder_names_are_made_as_the_agent_makes_them() {
        let long = format!("/home/dev/slug/{}", "a-very-long-directory-name/".repeat(9));
        let long = long.trim_end_matches('/');
        for (cwd, expected) in [
            ("/home/dev/project", "-home-dev-project"),
            ("/home/dev/slug/a.b.c", "-home-dev-slug-a-b-c"),
            ("/home/dev/slug/with space", "-home-dev-slug-with-space"),
            ("/home/dev/slug/under_score", "-home-dev-slug-under-score"),
            ("/home/dev/slug/Case", "-home-dev-slug-Case"),
            ("ünïcödé-日本", "-n-c-d----"),
            ("emoji😀x", "emoji--x"),
            ("cafe\u{301}", "cafe-"),
            ("/", "-"),
            ("", ""),
            (long, LONG),
        ] {
            assert_eq!(slug(OsStr::new(cwd)), expected, "{cwd}");
        }
        assert_eq!(slug(OsStr::from_bytes(b"a\xffb")), "a-b");
        let at_the_limit = "a".repeat(200);
        assert_eq!(slug(OsStr::new(&at_the_limit)), at_the_limit);
        assert_eq!(slug(OsStr::new(&"é".repeat(201))), format!("{}-{}", "-".repeat(200), ACCENTS));
    }

    const LONG: &str = "-home-dev-slug-a-very-long-directory-name-a-very-long-directory-name-a-very-long-directory-name-a-very-long-directory-name-a-very-long-directory-name-a-very-long-directory-name-a-very-long-directory-n-38x4be";
    const ACCENTS: &str = "dz1jr";

    #[test]
    fn session_files_are_recognised_by_name() {
        let main = Path::new("/c/projects/-p/01.jsonl");
        let sub = Path::new("/c/projects/-p/01/subagents/agent-a5d0.jsonl");
        assert_eq!(session_id(main), Some(AgentSessionId("01".into())));
        assert_eq!(session_id(sub), None);
        assert_eq!(session_id(Path::new("/c/projects/-p/memory")), None);
        assert_eq!(session_id(Path::new("/c/projects/-p/.jsonl")), None);
        assert_eq!(LAYOUT.subagent_folder(main).as_deref(), Some(Path::new("/c/projects/-p/01/subagents")));
    }

    #[test]
    fn every_file_with_calls_is_found_with_its_conversation() {
        let root = tempfile::tempdir().unwrap();
        let project = root.path().join("projects/-p");
        let put = |name: &str| {
            let path = project.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
        };
        for name in [
            "01.jsonl",
            "01/subagents/agent-a.jsonl",
            "01/subagents/agent-a.meta.json",
            "01/subagents/team/agent-b.jsonl",
            "01/tool-results/x.jsonl",
            "agent-old.jsonl",
            "memory/notes.md",
            "sessions-index.json",
        ] {
            put(name);
        }
        fs::create_dir(project.join("02.jsonl")).unwrap();
        std::os::unix::fs::symlink("nowhere", project.join("03.jsonl")).unwrap();
        std::os::unix::fs::symlink(".", project.join("01/subagents/loop")).unwrap();
        let found = RegistryFiles::at(LAYOUT, root.path()).session_files();
        assert_eq!(found.refused, Vec::<String>::new());
        let mut found = found.files;
        found.sort();
        let listed: Vec<_> = found
            .iter()
            .filter(|file| !file.path.components().any(|part| part.as_os_str() == "loop"))
            .map(|file| {
                let path = file.path.strip_prefix(&project).unwrap().to_str().unwrap();
                (path, file.conversation.as_ref().map(|id| id.0.as_str()))
            })
            .collect();
        assert_eq!(
            listed,
            [
                ("01/subagents/agent-a.jsonl", Some("01")),
                ("01/subagents/team/agent-b.jsonl", Some("01")),
                ("01.jsonl", Some("01")),
                ("agent-old.jsonl", None),
            ]
        );
        let of_first = LAYOUT.subagents(&project.join("01.jsonl"));
        assert!(of_first.iter().all(|path| path.starts_with(project.join("01/subagents"))));
        let in_scan = found.iter().filter(|file| file.path.parent() != Some(&project));
        assert_eq!(
            of_first,
            in_scan.map(|file| file.path.clone()).collect::<Vec<_>>(),
            "a run reads the same"
        );
        assert_eq!(
            RegistryFiles::at(LAYOUT, root.path().join("nowhere")).session_files(),
            SessionFiles::default()
        );
    }

    #[test]
    fn a_folder_that_cannot_be_listed_hides_no_other() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str| {
            let path = root.path().join("projects").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
        };
        put("-a/01.jsonl");
        put("-b/02.jsonl");
        // A link to itself: even root cannot list it.
        let sub = root.path().join("projects/-a/01");
        fs::create_dir(&sub).unwrap();
        std::os::unix::fs::symlink("subagents", sub.join("subagents")).unwrap();
        let found = RegistryFiles::at(LAYOUT, root.path()).session_files();
        assert_eq!(found.files.len(), 2);
        assert_eq!(found.refused.len(), 1, "{:?}", found.refused);
        assert!(found.refused[0].contains("-a/01/subagents"), "{:?}", found.refused);
    }

    #[test]
    fn the_recordings_are_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/claude/07-subagent");
        let files = RegistryFiles::at(LAYOUT, &root);
        let id = AgentSessionId("07000000-0000-4000-8000-000000000007".into());
        let found = files.find_session(&id).unwrap();
        assert_eq!(found, [files.session_file(Path::new("/home/dev/project"), &id)]);
        assert_eq!(LAYOUT.subagents(&found[0]).len(), 2);
        assert_eq!(files.session_files().files.len(), 3);
        for no_file in ["", "../x", "nope", "."] {
            assert!(files.find_session(&AgentSessionId(no_file.into())).unwrap().is_empty());
        }
    }
}
