//! The shell parts: the files of `shims/`, embedded, with this machine's paths filled in.
//!
//! A placeholder stands in single quotes, so that each file is valid shell as it is; the quotes are replaced with it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use memchr::memmem;

const ENV_SH: &str = include_str!("../../../../shims/env.sh");
const ENV_FISH: &str = include_str!("../../../../shims/env.fish");
const INIT_BASH: &str = include_str!("../../../../shims/init.bash");
const INIT_ZSH: &str = include_str!("../../../../shims/init.zsh");
const INIT_FISH: &str = include_str!("../../../../shims/init.fish");
const COMPLETE_ZSH: &str = include_str!("../../../../shims/complete.zsh");
const SHIM_SH: &str = include_str!("../../../../shims/shim.sh");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// What the shell parts are filled in with.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    pub shims: &'a Path,
    /// Where the installer puts the completions.
    pub completions: &'a Path,
    /// The folder that holds the codemie binary.
    pub bin: &'a Path,
    pub agents: &'a [&'a str],
}

/// The PATH set-up alone: what the installer writes to `env` and `env.fish`.
pub fn path_setup(shell: Shell, places: Places<'_>) -> Vec<u8> {
    fill(if shell == Shell::Fish { ENV_FISH } else { ENV_SH }, shell, places)
}

/// What `codemie init` prints; `completions` is the completion script of that shell.
pub fn init(shell: Shell, places: Places<'_>, completions: &[u8]) -> Vec<u8> {
    let aliases = match shell {
        Shell::Bash => INIT_BASH,
        Shell::Zsh => INIT_ZSH,
        Shell::Fish => INIT_FISH,
    };
    let mut script = path_setup(shell, places);
    script.push(b'\n');
    script.extend(fill(aliases, shell, places));
    script.push(b'\n');
    if shell == Shell::Zsh {
        script.extend(b"_codemie_complete() {\n");
        script.extend(completions);
        script.extend(b"\n}\n");
        script.extend(COMPLETE_ZSH.as_bytes());
    } else {
        script.extend(completions);
    }
    script
}

/// The script that stands in for a symlink.
pub fn script_shim(binary: &Path, name: &str) -> Vec<u8> {
    let script = replace(SHIM_SH.as_bytes(), b"'@CODEMIE@'", &quote(binary.as_os_str(), Shell::Bash));
    replace(&script, b"@NAME@", name.as_bytes())
}

fn fill(template: &str, shell: Shell, places: Places<'_>) -> Vec<u8> {
    let script = replace(template.as_bytes(), b"'@SHIMS@'", &quote(places.shims.as_os_str(), shell));
    let script = replace(&script, b"'@BIN@'", &quote(places.bin.as_os_str(), shell));
    let script = replace(&script, b"'@COMPLETIONS@'", &quote(places.completions.as_os_str(), shell));
    replace(&script, b"@AGENTS@", places.agents.join(" ").as_bytes())
}

/// One word in single quotes, whatever bytes it holds.
fn quote(word: &OsStr, shell: Shell) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for &byte in word.as_bytes() {
        match (byte, shell) {
            (b'\'', Shell::Bash | Shell::Zsh) => quoted.extend(br"'\''"),
            (b'\'' | b'\\', Shell::Fish) => quoted.extend([b'\\', byte]),
            _ => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len() + to.len());
    let mut rest = 0;
    for at in memmem::find_iter(text, from) {
        result.extend(&text[rest..at]);
        result.extend(to);
        rest = at + from.len();
    }
    result.extend(&text[rest..]);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places<'a>() -> Places<'a> {
        Places {
            shims: Path::new("/it's \\ a/shims"),
            completions: Path::new("/it's \\ a/completions"),
            bin: Path::new("/opt/bin"),
            agents: &["claude", "codex"],
        }
    }

    #[test]
    fn every_placeholder_is_filled_in() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(init(shell, places(), b"# completions")).unwrap();
            assert!(!script.contains('@'), "{script}");
            assert!(script.contains("in claude codex"), "{script}");
            assert!(script.contains("# completions"), "{script}");
        }
        let shim = String::from_utf8(script_shim(Path::new("/opt/codemie"), "claude")).unwrap();
        assert!(shim.contains("codemie='/opt/codemie'\n"), "{shim}");
        assert!(shim.contains("exec \"$codemie\" claude \"$@\""), "{shim}");
        assert!(!shim.contains("@NAME@"), "{shim}");
    }

    #[test]
    fn paths_are_quoted_as_each_shell_wants_it() {
        let word = OsStr::from_bytes(b"it's \\ \xff");
        assert_eq!(quote(word, Shell::Bash), b"'it'\\''s \\ \xff'");
        assert_eq!(quote(word, Shell::Fish), b"'it\\'s \\\\ \xff'");
    }

    #[test]
    fn the_script_shim_is_recognised_by_its_head() {
        let shim = script_shim(Path::new("/opt/codemie"), "claude");
        assert!(memmem::find(&shim[..64], super::super::resolve::SCRIPT_MARKER).is_some());
    }
}
