//! Which version is installed: from the package beside the program, a file of a kilobyte. Asking the program takes seconds,
//! and its session files do not say.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use serde::Deserialize;

/// How far above the program its package may stand: `bundle/gemini.js`, `dist/src/index.js`.
const LEVELS: usize = 4;

/// More than any package file; it is read on the way to exec.
const MAX_BYTES: u64 = 64 * 1024;

/// The version known to take `--session-id`. It takes any later one of this major version, too; a new major version is a new
/// program.
const FIRST_WITH_SESSION_ID: (u64, u64) = (0, 61);

/// `None` for what only finds the agent: a manager's shim, a script.
pub(super) fn installed(program: &Path) -> Option<String> {
    let program = fs::canonicalize(program).ok()?;
    program.ancestors().skip(1).take(LEVELS).find_map(|folder| package(&folder.join("package.json")))
}

fn package(file: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Package {
        name: String,
        version: String,
    }
    let mut text = Vec::new();
    File::open(file).ok()?.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    let package: Package = serde_json::from_slice(&text).ok()?;
    (package.name == "@google/gemini-cli").then_some(package.version)
}

/// Whether a version (`0.61.0`, `0.62.0-preview.1`) is known to take the flag.
pub(super) fn takes_session_id(version: &str) -> bool {
    let mut parts = version.splitn(3, '.').map(|part| part.parse::<u64>().ok());
    match (parts.next().flatten(), parts.next().flatten(), parts.next()) {
        (Some(major), Some(minor), Some(_)) => {
            major == FIRST_WITH_SESSION_ID.0 && (major, minor) >= FIRST_WITH_SESSION_ID
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_take_the_flag() {
        for (version, takes) in [
            ("0.61.0", true),
            ("0.61.3", true),
            ("0.70.0-nightly.20261201", true),
            ("0.60.9", false),
            ("1.0.0", false),
            ("0.61", false),
            ("", false),
            ("latest", false),
        ] {
            assert_eq!(takes_session_id(version), takes, "{version}");
        }
    }

    #[test]
    fn the_package_beside_the_program_says_which() {
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().join("lib/node_modules/@google/gemini-cli");
        fs::create_dir_all(modules.join("bundle")).unwrap();
        let program = modules.join("bundle/gemini.js");
        fs::write(&program, "#!/usr/bin/env node\n").unwrap();
        assert_eq!(installed(&program), None, "no package");
        fs::write(modules.join("package.json"), r#"{"name":"@google/gemini-cli","version":"0.61.0"}"#)
            .unwrap();
        let link = root.path().join("gemini");
        std::os::unix::fs::symlink(&program, &link).unwrap();
        assert_eq!(installed(&link).as_deref(), Some("0.61.0"));
        for broken in ["{", r#"{"name":"something-else","version":"9"}"#, r#"{"version":"9"}"#] {
            fs::write(modules.join("package.json"), broken).unwrap();
            assert_eq!(installed(&link), None, "{broken}");
        }
        assert_eq!(installed(&root.path().join("absent")), None);
    }
}
