//! Which version of an agent is installed, by the npm package of its program: a file of a kilobyte. Asking the program takes
//! from a quarter of a second to seconds.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use os::file::read_at_most;

/// How many folders above the program its package file may be: `bin/codex.js`, `bundle/gemini.js`, `dist/src/index.js`.
const LEVELS: usize = 4;

/// More than any package file; it is read on the way to exec.
const MAX_BYTES: u64 = 64 * 1024;

/// The version of the package called `name` that `program` belongs to; `None` for a launcher that only finds the
/// agent: a manager's shim, a script.
pub(crate) fn of_package(program: &Path, name: &str) -> Option<String> {
    let program = fs::canonicalize(program).ok()?;
    program.ancestors().skip(1).take(LEVELS).find_map(|folder| version_in(&folder.join("package.json"), name))
}

fn version_in(file: &Path, name: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Package {
        name: String,
        version: String,
    }
    let package: Package = serde_json::from_slice(&read_at_most(file, MAX_BYTES).ok()?).ok()?;
    (package.name == name).then_some(package.version)
}

/// The first two numbers of a version of three (`0.61.0`, `0.62.0-preview.1`).
pub(crate) fn major_and_minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.splitn(3, '.').map(|part| part.parse::<u64>().ok());
    let numbers = (parts.next()??, parts.next()??);
    parts.next().map(|_| numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_the_package_of_the_program() {
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().join("lib/node_modules/@google/gemini-cli");
        fs::create_dir_all(modules.join("bundle")).unwrap();
        let program = modules.join("bundle/gemini.js");
        fs::write(&program, "#!/usr/bin/env node\n").unwrap();
        assert_eq!(of_package(&program, "@google/gemini-cli"), None, "no package");
        fs::write(modules.join("package.json"), r#"{"name":"@google/gemini-cli","version":"0.61.0"}"#)
            .unwrap();
        let link = root.path().join("gemini");
        std::os::unix::fs::symlink(&program, &link).unwrap();
        assert_eq!(of_package(&link, "@google/gemini-cli").as_deref(), Some("0.61.0"));
        for broken in ["{", r#"{"name":"something-else","version":"9"}"#, r#"{"version":"9"}"#] {
            fs::write(modules.join("package.json"), broken).unwrap();
            assert_eq!(of_package(&link, "@google/gemini-cli"), None, "{broken}");
        }
        assert_eq!(of_package(&root.path().join("absent"), "@google/gemini-cli"), None);
    }

    /// It is looked for on the way to exec.
    #[test]
    fn a_pipe_in_place_of_the_package_file_is_not_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let program = root.path().join("claude");
        fs::write(&program, "").unwrap();
        let pipe = root.path().join("package.json");
        os::file::make_pipe(&pipe).unwrap();
        assert_eq!(of_package(&program, "@anthropic-ai/claude-code"), None);
    }
}
