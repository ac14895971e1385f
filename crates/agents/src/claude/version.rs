//! Which version of Claude Code a program is, by how it was installed; and which versions take an id from outside.

use std::fs;
use std::path::Path;

use crate::kit;

/// `--session-id` was seen to name the session file in a terminal in 1.0.53, 1.0.71, 1.0.88, 1.0.123, 1.0.128, 2.0.0, 2.0.22, 2.0.50,
/// 2.0.74, 2.1.0, 2.1.25, 2.1.50, 2.1.75, 2.1.100, 2.1.112, 2.1.113, 2.1.139, 2.1.165, 2.1.197 and 2.1.325; with `-p` in 1.0.71, 1.0.123,
/// 2.0.22, 2.0.74, 2.1.0, 2.1.75, 2.1.100, 2.1.197 and 2.1.325.
const FIRST_WITH_SESSION_ID: (u64, u64, u64) = (1, 0, 53);
/// A new major version is a new program.
const NEWEST_MAJOR: u64 = 2;

/// Whether a version, bare or as `claude --version` prints it (`2.1.197 (Claude Code)`), takes `--session-id`.
pub(super) fn takes_session_id(version: &str) -> bool {
    let number = version.split_whitespace().next().unwrap_or_default();
    parse(number).is_some_and(|parsed| parsed >= FIRST_WITH_SESSION_ID && parsed.0 <= NEWEST_MAJOR)
}

/// The first version measured whose registry follows a `/clear`; 2.1.113 is the last whose registry does not.
const FIRST_WITH_REGISTRY: (u64, u64, u64) = (2, 1, 139);

/// Whether the registry of this version is known not to follow a `/clear`.
pub(super) fn lacks_registry(version: &str) -> bool {
    parse(version).is_some_and(|parsed| parsed < FIRST_WITH_REGISTRY)
}

/// The newest version that was measured to ask for the same betas behind a proxy as without one.
const LAST_WITH_ALL_BETAS: (u64, u64, u64) = (2, 1, 197);

/// Whether this version, led through the proxy to the vendor's own address, is known to lose none of its betas.
pub(super) fn keeps_betas(version: &str) -> bool {
    parse(version).is_some_and(|parsed| parsed <= LAST_WITH_ALL_BETAS)
}

fn parse(number: &str) -> Option<(u64, u64, u64)> {
    let mut parts = number.split('.').map(|part| part.parse().ok());
    let parsed = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some(parsed)
}

/// The version of this program, from its npm package or from where the native installer has put it. `None` for a launcher that
/// only finds the agent. Reads one small file at most: this is on the way to exec.
pub(super) fn installed(program: &Path) -> Option<String> {
    native(program).or_else(|| kit::version::of_package(program, "@anthropic-ai/claude-code"))
}

/// The native installer's program is `…/claude/versions/2.1.197`, behind a link.
fn native(program: &Path) -> Option<String> {
    let program = fs::canonicalize(program).ok()?;
    let version = program.file_name()?.to_str()?;
    let mut above = program.ancestors().skip(1).filter_map(Path::file_name);
    let installed = above.next()? == "versions" && above.next()? == "claude";
    (installed && parse(version).is_some()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_take_an_id_are_known() {
        for (version, takes) in [
            ("2.1.197 (Claude Code)", true),
            ("2.1.325", true),
            ("2.10.1", true),
            ("2.0.22", true),
            ("1.0.123", true),
            ("1.0.53", true),
            ("1.0.48", false),
            ("0.2.126", false),
            ("3.0.0", false),
            ("2.1", false),
            ("2.1.197-beta", false),
            ("2.1.197.1", false),
            ("", false),
            ("codex-cli 0.166.0", false),
        ] {
            assert_eq!(takes_session_id(version), takes, "{version}");
        }
    }

    #[test]
    fn versions_whose_registry_does_not_follow_a_clear_are_known() {
        for (version, lacks) in
            [("1.0.123", true), ("2.1.113", true), ("2.1.139", false), ("2.2.0", false), ("x", false)]
        {
            assert_eq!(lacks_registry(version), lacks, "{version}");
        }
    }

    #[test]
    fn the_version_is_read_from_the_installation() {
        let root = tempfile::tempdir().unwrap();
        let install = |path: &str| {
            let program = root.path().join(path);
            fs::create_dir_all(program.parent().unwrap()).unwrap();
            fs::write(&program, "").unwrap();
            program
        };
        let link = root.path().join("claude");
        let link_to = |program: &Path| {
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(program, &link).unwrap();
            installed(&link)
        };
        assert_eq!(link_to(&install("share/claude/versions/2.1.197")).as_deref(), Some("2.1.197"));
        assert_eq!(link_to(&install("share/claude/versions/latest")), None);
        assert_eq!(link_to(&install("share/other/versions/2.1.197")), None);
        let npm = install("lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe");
        assert_eq!(link_to(&npm), None, "no package file");
        fs::write(
            npm.ancestors().nth(2).unwrap().join("package.json"),
            r#"{"name":"@anthropic-ai/claude-code","version":"1.0.123"}"#,
        )
        .unwrap();
        assert_eq!(link_to(&npm).as_deref(), Some("1.0.123"));
        assert_eq!(installed(&root.path().join("absent")), None);
    }
}
