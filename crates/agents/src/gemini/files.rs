//! Where Gemini CLI keeps its files. Reading only.
//!
//! `tmp/SLUG/` under its root belongs to one folder: `.project_root` names the folder, `logs.json` holds the prompts
//! typed there, `chats/` the conversations: `session-MINUTE-FIRST8.jsonl`, and those of sub-agents in `chats/PARENT/ID.jsonl`. The
//! first line of a conversation holds its whole id.
//!
//! Older versions (measured: 0.10 to 0.36; no longer 0.39) keep a conversation as one document, `session-MINUTE-FIRST8.json`, rewritten with
//! every message. Up to 0.27 the folder's name is the SHA-256 of the path it belongs to, and nothing in it names the path.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::meter::form::Form;
use crate::{SessionFile, SessionFiles};
use os::file::{entries, head, open_regular, text_at_most};
use types::AgentSessionId;
use types::Timestamp;
use types::hex::hex;

/// Longest first line that is read. One is some 300 bytes; with the folders of a workspace in it, some more.
const MAX_HEADER: u64 = 64 * 1024;

/// The map of folders grows with every folder ever worked in.
const MAX_PROJECTS: u64 = 4 * 1024 * 1024;

/// `$GEMINI_CLI_HOME/.gemini`, else `~/.gemini`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeminiFiles {
    root: PathBuf,
}

/// The first line of a conversation's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) session: AgentSessionId,
    pub(super) at: Timestamp,
}

impl GeminiFiles {
    /// `None` when the environment does not name it.
    pub fn from_env(var: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let set = |name: &str| var(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        set("GEMINI_CLI_HOME").or_else(|| set("HOME")).map(|home| Self::at(home.join(".gemini")))
    }

    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn projects(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// The place of a folder's files by the hash of its path; it need not exist. Older versions write there. `folder` is the
    /// real path.
    pub(super) fn hashed(&self, folder: &Path) -> PathBuf {
        self.projects().join(hex(&Sha256::digest(folder.as_os_str().as_bytes())))
    }

    /// The place of a folder's files by its name; `None` until a version that gives names has run there.
    pub(super) fn project(&self, folder: &Path) -> Option<PathBuf> {
        #[derive(Deserialize)]
        struct Map {
            projects: std::collections::HashMap<PathBuf, String>,
        }
        let text = head(&self.root.join("projects.json"), MAX_PROJECTS).ok()?;
        let mut map: Map = serde_json::from_slice(&text).ok()?;
        // A name as the agent makes them; any other could lead out of its folder.
        let slug =
            map.projects.remove(folder).filter(|slug| !slug.is_empty() && !slug.contains(['/', '.']))?;
        Some(self.projects().join(slug))
    }

    /// The folder that a conversation's file belongs to.
    pub(super) fn folder_of(&self, file: &Path) -> Option<PathBuf> {
        let project = file.ancestors().find(|path| path.parent() == Some(&self.projects()))?;
        let folder = text_at_most(&project.join(".project_root"), MAX_PROJECTS).ok()?;
        Some(PathBuf::from(folder.trim())).filter(|folder| folder.is_absolute())
    }

    /// The files of a conversation, whichever folder it belongs to: its own first, then stubs that resuming left, by age.
    pub(super) fn find(&self, id: &AgentSessionId) -> Vec<PathBuf> {
        let files = self.all_main().unwrap_or_default();
        of_conversation(files, id)
    }

    /// Every main file of a conversation.
    pub(super) fn all_main(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for project in entries(&self.projects())? {
            found.extend(main_files(&project.join("chats")).unwrap_or_default());
        }
        Ok(found)
    }

    /// Every file. Only its lines name the conversation of a main file.
    pub(super) fn all(&self) -> SessionFiles {
        let mut found = SessionFiles::default();
        for project in found.entries(&self.projects(), entries(&self.projects())) {
            let chats = project.join("chats");
            for path in found.entries(&chats, entries(&chats)) {
                if is_main(&path) {
                    found.files.push(SessionFile { path, conversation: None });
                } else if path.is_dir() {
                    let root =
                        path.file_name().map(|name| AgentSessionId(name.to_string_lossy().into_owned()));
                    let files =
                        found.entries(&path, entries(&path)).into_iter().filter(|path| is_lines(path));
                    found.files.extend(files.map(|path| SessionFile { path, conversation: root.clone() }));
                }
            }
        }
        found.files.sort();
        found
    }
}

/// The main files in a `chats` folder, oldest first: names begin with the minute.
pub(super) fn main_files(chats: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = entries(chats)?.into_iter().filter(|path| is_main(path)).collect();
    found.sort();
    Ok(found)
}

/// The files of one conversation among these.
///
/// A Gemini that starts removes every empty conversation in its folder, also that of a process that waits for its first
/// prompt. That process then writes its file again, under the same name and without a header. So the name of a file without
/// a header names its conversation.
pub(super) fn of_conversation(files: Vec<PathBuf>, id: &AgentSessionId) -> Vec<PathBuf> {
    let named = |path: &PathBuf| {
        let part = file_name_part(&id.0);
        let name = path.file_stem().and_then(|name| name.to_str());
        part.get(..8).zip(name).is_some_and(|(part, name)| name.ends_with(&format!("-{part}")))
    };
    let ours = |path: &PathBuf| match first_line(path) {
        _ if is_document(path) => header(path).is_some_and(|header| header.session == *id),
        Some(line) => match parsed(&line) {
            Some(header) => header.session == *id,
            None => named(path),
        },
        None => false,
    };
    let mut found: Vec<PathBuf> =
        files.into_iter().filter(|path| may_be_of(path, &id.0)).filter(ours).collect();
    found.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    found
}

/// The sub-agents' files of a conversation whose own file is in `chats`.
pub(super) fn subagents(chats: &Path, id: &AgentSessionId) -> Vec<PathBuf> {
    if id.0.is_empty() {
        return Vec::new();
    }
    let inside = entries(&subagent_folder(chats, id)).unwrap_or_default();
    let mut found: Vec<PathBuf> = inside.into_iter().filter(|path| is_lines(path)).collect();
    found.sort();
    found
}

/// Their folder, which need not exist.
pub(super) fn subagent_folder(chats: &Path, id: &AgentSessionId) -> PathBuf {
    chats.join(file_name_part(&id.0))
}

fn is_lines(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jsonl")
}

fn is_main(path: &Path) -> bool {
    // Resumed by a newer version, a document is converted, and its file of lines lies beside it.
    has_name(path, "jsonl") || has_name(path, "json") && !path.with_extension("jsonl").exists()
}

/// A conversation that is kept as one document.
pub(super) fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

/// How a conversation's file is written.
pub(super) fn form(path: &Path) -> Form {
    if is_document(path) { Form::Document { list: MESSAGES } } else { Form::Lines }
}

/// The field of a document that holds its messages.
pub(super) const MESSAGES: &str = "messages";

fn has_name(path: &Path, extension: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("session-"))
        && path.extension().is_some_and(|end| end == extension)
}

/// Whether, by its name, a file may belong to a conversation whose id begins so. Only its header is certain.
pub(super) fn may_be_of(path: &Path, wanted: &str) -> bool {
    let wanted = file_name_part(wanted);
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.contains(wanted.get(..8).unwrap_or(&wanted)))
}

/// As the agent makes a file name of an id.
fn file_name_part(id: &str) -> String {
    id.chars()
        .map(|char| if char.is_ascii_alphanumeric() || "-_".contains(char) { char } else { '_' })
        .collect()
}

pub(super) fn header(path: &Path) -> Option<Header> {
    if is_document(path) { document_header(path) } else { parsed(&first_line(path)?) }
}

/// The fields before the messages. They are written first, so a document that is being written has its header already.
fn document_header(path: &Path) -> Option<Header> {
    let begin = head(path, MAX_HEADER).ok()?;
    let end = memchr::memmem::find(&begin, b"\"messages\"")?;
    let mut fields = begin[..end].trim_ascii_end().to_vec();
    fields.pop_if(|byte| *byte == b',');
    fields.push(b'}');
    parsed(&fields)
}

/// The first line, once it is whole or longer than any header.
fn first_line(path: &Path) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::with_capacity(1024, open_regular(path).ok()?.take(MAX_HEADER))
        .read_until(b'\n', &mut line)
        .ok()?;
    let whole = line.ends_with(b"\n") || line.len() as u64 == MAX_HEADER;
    whole.then_some(line)
}

fn parsed(line: &[u8]) -> Option<Header> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct First {
        session_id: String,
        #[serde(default)]
        start_time: String,
    }
    let first: First = serde_json::from_slice(line).ok()?;
    let at = Timestamp::parse(&first.start_time).unwrap_or_default();
    Some(Header { session: AgentSessionId(first.session_id), at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/gemini");

    fn files(vars: &[(&str, &str)]) -> Option<GeminiFiles> {
        GeminiFiles::from_env(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn a_file_without_a_header_belongs_to_the_conversation_in_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let id = AgentSessionId("1af97ca6-b0d4-4c5e-9e6f-000000000001".into());
        let message = r#"{"id":"u1","timestamp":"2026-11-16T22:05:00.000Z","type":"user","content":"hello"}"#;
        let header = |id: &str| format!(r#"{{"sessionId":"{id}","startTime":"2026-11-16T22:05:00.000Z"}}"#);
        for (name, text, ours) in [
            ("session-2026-11-16T22-05-1af97ca6.jsonl", format!("{message}\n"), true),
            ("session-2026-11-16T22-06-1af97ca6.jsonl", header(&id.0) + "\n", true),
            ("session-2026-11-16T22-07-1af97ca6.jsonl", message.to_owned(), false),
            ("session-2026-11-16T22-08-1af97ca6.jsonl", header("1af97ca6-else") + "\n", false),
            ("session-2026-11-16T22-09-1af97ca6-2.jsonl", format!("{message}\n"), false),
            ("session-2026-11-16T22-10-00000000.jsonl", format!("{message}\n"), false),
            ("session-2026-11-16T22-11-1af97ca6.jsonl", message.replace("hello", &"x".repeat(70_000)), true),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            assert_eq!(!of_conversation(vec![path], &id).is_empty(), ours, "{name}");
        }
    }

    #[test]
    fn the_environment_names_the_root() {
        let root = |vars| files(vars).map(|files| files.root().to_owned());
        assert_eq!(
            root(&[("HOME", "/home/dev"), ("GEMINI_CLI_HOME", "")]).unwrap(),
            Path::new("/home/dev/.gemini")
        );
        assert_eq!(
            root(&[("HOME", "/home/dev"), ("GEMINI_CLI_HOME", "/x")]).unwrap(),
            Path::new("/x/.gemini")
        );
        assert_eq!(root(&[]), None);
    }

    /// A home with one project, whose conversations are those of a recording.
    fn home(case: &str) -> (tempfile::TempDir, GeminiFiles) {
        let home = tempfile::tempdir().unwrap();
        let files = GeminiFiles::at(home.path());
        let project = home.path().join("tmp/widgets");
        copy(&Path::new(FIXTURES).join(case), &project.join("chats"));
        fs::write(project.join(".project_root"), "/home/dev/project\n").unwrap();
        let map = r#"{"projects":{"/home/dev/project":"widgets","/evil":"../../etc"}}"#;
        fs::write(home.path().join("projects.json"), map).unwrap();
        (home, files)
    }

    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let target = to.join(entry.file_name());
            if entry.path().is_dir() {
                copy(&entry.path(), &target);
            } else {
                fs::copy(entry.path(), target).unwrap();
            }
        }
    }

    #[test]
    fn the_files_of_a_folder_are_found() {
        let (home, files) = home("plain");
        let project = home.path().join("tmp/widgets");
        assert_eq!(files.project(Path::new("/home/dev/project")), Some(project.clone()));
        assert_eq!(files.project(Path::new("/home/dev")), None);
        assert_eq!(files.project(Path::new("/evil")), None);
        let main = &main_files(&project.join("chats")).unwrap()[0];
        assert_eq!(files.folder_of(main).as_deref(), Some(Path::new("/home/dev/project")));
        for broken in ["", "{", "[]", r#"{"projects":7}"#] {
            fs::write(home.path().join("projects.json"), broken).unwrap();
            assert_eq!(files.project(Path::new("/home/dev/project")), None, "{broken}");
        }
    }

    #[test]
    fn a_folder_of_older_versions_is_found_by_its_hash() {
        let files = GeminiFiles::at("/home/dev/.gemini");
        let hash = "7da23607ca8b709ab78d95962a0e253d4780e460c02e573f620280b897ca3700";
        assert_eq!(files.hashed(Path::new("/home/dev/older")), files.projects().join(hash));
    }

    #[test]
    fn a_document_names_its_conversation_at_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session-2026-11-17T09-24-5b280c07.json");
        let whole = "{\n  \"sessionId\": \"5b280c07-x\",\n  \"projectHash\": \"h\",\n  \"startTime\": \"2026-11-17T09:24:41.126Z\",\n  \"messages\": [\n    {}\n  ]\n}";
        let id = AgentSessionId("5b280c07-x".into());
        let begins = whole.find('[').unwrap();
        for (text, known) in [(whole, true), (&whole[..begins], true), (&whole[..40], false), ("", false)] {
            fs::write(&path, text).unwrap();
            let found = header(&path);
            assert_eq!(found.as_ref().map(|header| &header.session), known.then_some(&id), "{text}");
            assert_eq!(of_conversation(vec![path.clone()], &id).len(), usize::from(known), "{text}");
        }
        fs::remove_file(&path).unwrap();
        os::file::make_pipe(&path).unwrap();
        assert_eq!(header(&path), None, "a pipe is not waited for");
    }

    #[test]
    fn a_resumed_conversation_has_its_file_first_and_stubs_after_it() {
        let (_home, files) = home("resume");
        let id = AgentSessionId("a8867c7a-a311-40f7-a844-2c3506526b7b".into());
        let names: Vec<String> = files
            .find(&id)
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            names,
            ["session-2026-11-15T23-46-a8867c7a.jsonl", "session-2026-11-15T23-47-a8867c7a.jsonl"]
        );
        for no_file in ["", "../x", "nope", "a8867c7a", "."] {
            assert!(files.find(&AgentSessionId(no_file.into())).is_empty(), "{no_file:?}");
        }
    }

    #[test]
    fn pipes_in_place_of_files_are_not_waited_for() {
        let home = tempfile::tempdir().unwrap();
        for name in ["projects.json", "chat.jsonl"] {
            os::file::make_pipe(&home.path().join(name)).unwrap();
        }
        assert_eq!(GeminiFiles::at(home.path()).project(Path::new("/home/dev")), None);
        assert!(header(&home.path().join("chat.jsonl")).is_none());
    }

    #[test]
    fn sub_agents_belong_to_the_conversation_their_folder_is_named_for() {
        let (home, files) = home("subagent");
        let root = AgentSessionId("c0b5c74f-3441-4acf-aa98-9355abd0ec11".into());
        let chats = home.path().join("tmp/widgets/chats");
        assert_eq!(subagents(&chats, &root).len(), 1);
        assert!(subagents(&chats, &AgentSessionId(String::new())).is_empty());
        let all = files.all().files;
        let conversations: Vec<_> = all.iter().map(|file| file.conversation.clone()).collect();
        assert_eq!(conversations, [Some(root), None], "only its lines name the conversation of a main file");
        assert_eq!(GeminiFiles::at(home.path().join("nowhere")).all(), SessionFiles::default());
        // A folder that cannot be listed, a link to itself, hides no other.
        fs::create_dir(home.path().join("tmp/other")).unwrap();
        std::os::unix::fs::symlink("chats", home.path().join("tmp/other/chats")).unwrap();
        let all = files.all();
        assert_eq!((all.files.len(), all.refused.len()), (2, 1), "{:?}", all.refused);
        for old in
            ["session-2025-01-01T00-00-aaaaaaaa.json", "session-2025-01-01T00-00-bbbbbbbb.json", "other.json"]
        {
            fs::write(chats.join(old), "{}").unwrap();
        }
        fs::write(chats.join("session-2025-01-01T00-00-bbbbbbbb.jsonl"), "").unwrap();
        assert_eq!(files.all().files.len(), 4, "one document, and one that was converted");
    }
}
