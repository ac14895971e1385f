//! Which version an agent's binary is, remembered by the binary's identity.
//!
//! Asking the agent costs a quarter of a second, so it is never asked: the version that it writes into its own files while it
//! runs is noted here for the next start. The note is one small file, because it is read on the way to exec.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use os::file::create_private;
use os::file::{head, text_at_most};
use os::home::Home;

/// An identity and a version are some hundred bytes.
const MAX_NOTE: u64 = 4096;

/// The identity of a binary; an update changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryIdentity(String);

impl BinaryIdentity {
    /// `None` for a program that only starts the agent: a manager's shim stays the same file whatever version it runs.
    pub fn of(agent: &str, program: &Path) -> Option<Self> {
        let file = fs::canonicalize(program).ok()?;
        let meta = fs::metadata(&file).ok()?;
        let named = memchr::memmem::find(file.as_os_str().as_bytes(), agent.as_bytes()).is_some();
        (named && !is_shell_script(&file)).then(|| {
            let (device, inode, size) = (meta.dev(), meta.ino(), meta.len());
            Self(format!("{device}:{inode}:{size}:{}.{:09}", meta.mtime(), meta.mtime_nsec()))
        })
    }
}

/// A script for node is the agent itself; one for a shell finds it first.
fn is_shell_script(file: &Path) -> bool {
    let Ok(head) = head(file, 64) else { return true };
    head.starts_with(b"#!") && memchr::memmem::find(&head, b"node").is_none()
}

fn note(home: &Home, agent: &str) -> PathBuf {
    home.run().join(format!("version-{agent}"))
}

/// The version last seen of exactly this binary.
pub fn recall(home: &Home, agent: &str, identity: &BinaryIdentity) -> Option<String> {
    let text = text_at_most(&note(home, agent), MAX_NOTE).ok()?;
    let (known, version) = text.trim().split_once(' ')?;
    (known == identity.0).then(|| version.to_owned())
}

/// Notes the version that the agent reported. A note that cannot be made is done without.
pub fn remember(home: &Home, agent: &str, identity: &BinaryIdentity, version: &str) {
    if recall(home, agent, identity).as_deref() == Some(version) {
        return;
    }
    let write = || {
        let folder = home.run();
        create_private(&folder)?;
        let mut file = tempfile::NamedTempFile::new_in(&folder)?;
        writeln!(file, "{} {version}", identity.0)?;
        file.persist(note(home, agent)).map_err(|error| error.error)
    };
    if let Err(error) = write() {
        tracing::debug!("the version of {agent} could not be noted: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_known_until_the_binary_changes() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path().join("home"));
        let binary = folder.path().join("claude");
        fs::write(&binary, b"\x7fELF one").unwrap();
        let identity = BinaryIdentity::of("claude", &binary).unwrap();
        assert_eq!(recall(&home, "claude", &identity), None);
        remember(&home, "claude", &identity, "2.1.197");
        assert_eq!(recall(&home, "claude", &identity).as_deref(), Some("2.1.197"));
        assert_eq!(recall(&home, "codex", &identity), None);
        fs::write(&binary, b"\x7fELF another").unwrap();
        let updated = BinaryIdentity::of("claude", &binary).unwrap();
        assert_eq!(recall(&home, "claude", &updated), None);
    }

    #[test]
    fn a_note_that_is_a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path().join("home"));
        let binary = folder.path().join("claude");
        fs::write(&binary, b"\x7fELF one").unwrap();
        let identity = BinaryIdentity::of("claude", &binary).unwrap();
        create_private(&home.run()).unwrap();
        os::file::make_pipe(&note(&home, "claude")).unwrap();
        assert_eq!(recall(&home, "claude", &identity), None);
        remember(&home, "claude", &identity, "2.1.197");
        assert_eq!(recall(&home, "claude", &identity).as_deref(), Some("2.1.197"), "and is replaced");
    }

    #[test]
    fn a_shim_that_only_finds_the_agent_has_no_version() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str, content: &str| {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            path
        };
        assert!(BinaryIdentity::of("claude", &at("claude", "#!/usr/bin/env node\n")).is_some());
        assert_eq!(
            BinaryIdentity::of("claude", &at("claude-shim", "#!/usr/bin/env bash\nexec asdf exec claude\n")),
            None
        );
        let manager = at("mise", "\x7fELF");
        std::os::unix::fs::symlink(&manager, folder.path().join("link-claude")).unwrap();
        assert_eq!(BinaryIdentity::of("claude", &folder.path().join("link-claude")), None);
        assert_eq!(BinaryIdentity::of("claude", &folder.path().join("absent")), None);
    }
}
