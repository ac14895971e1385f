//! What an agent's own settings and environment say about the API it calls. Reading only.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::Var;
use os::file::text_at_most;

/// Agents keep much in their settings, but they are read on the way to exec.
const MAX_BYTES: u64 = 64 << 20;

/// A file's document, if it mentions one of these words; `None` also where there is no file. Most files mention none, and are
/// not parsed. The error is a sentence for the user.
pub(crate) fn json_with(path: &Path, words: &[&str]) -> Result<Option<serde_json::Value>, String> {
    let text = text(path)?.filter(|text| {
        words.iter().any(|word| memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some())
    });
    text.map(|text| serde_json::from_str(&text).map_err(|_| unclear(path))).transpose()
}

/// The same of a TOML file.
pub(crate) fn toml(path: &Path) -> Result<Option<toml_edit::DocumentMut>, String> {
    text(path)?.map(|text| text.parse().map_err(|_| unclear(path))).transpose()
}

/// A file's text; `None` where there is no file.
pub(crate) fn text(path: &Path) -> Result<Option<String>, String> {
    match text_at_most(path, MAX_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
    }
}

fn unclear(path: &Path) -> String {
    format!("{} is not understood, and may name another API", path.display())
}

/// The same file in a folder and in every folder above it.
pub(crate) fn upwards<'a>(folder: &'a Path, name: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    folder.ancestors().map(move |folder| folder.join(name))
}

/// Whether a switch in an environment is on. What is not plainly off counts as on.
pub(crate) fn is_on(value: &OsStr) -> bool {
    let off = ["", "0", "false", "no", "off"];
    !value.to_str().is_some_and(|text| off.contains(&text.trim().to_ascii_lowercase().as_str()))
}

/// A base URL in the form in which requests are added to it; `None` for anything else.
pub(crate) fn base_url(text: &OsStr) -> Option<String> {
    let text = text.to_str()?.trim().trim_end_matches('/');
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
    let plain = !rest.is_empty()
        && !rest.starts_with('/')
        && !rest
            .contains(|letter: char| letter.is_whitespace() || letter.is_control() || "?#@".contains(letter));
    plain.then(|| text.to_owned())
}

/// An HTTP proxy that the agent's calls to an address on this machine would be sent to, in a sentence.
pub(crate) fn http_proxy_in_the_way(var: Var<'_>) -> Option<String> {
    let set = |name: &str| var(name).filter(|value| !value.is_empty());
    let names = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    let name = names.into_iter().find(|name| set(name).is_some())?;
    let exempt = ["NO_PROXY", "no_proxy"].into_iter().filter_map(set).any(|list| {
        let list = list.to_string_lossy();
        list.split([',', ' ']).any(|host| matches!(host.trim(), "127.0.0.1" | "*"))
    });
    (!exempt).then(|| format!("{name} is set and NO_PROXY does not name 127.0.0.1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn a_base_url_is_an_address_without_a_query_or_a_password() {
        for (text, expected) in [
            ("https://api.anthropic.com", Some("https://api.anthropic.com")),
            ("https://api.anthropic.com/", Some("https://api.anthropic.com")),
            (" http://127.0.0.1:80/a/b/ ", Some("http://127.0.0.1:80/a/b")),
            ("https://", None),
            ("https:///x", None),
            ("https://me:word@x", None),
            ("https://x/?a=b", None),
            ("https://x y", None),
            ("ftp://x", None),
            ("api.anthropic.com", None),
            ("", None),
        ] {
            assert_eq!(base_url(OsStr::new(text)).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_switch_that_is_not_plainly_off_is_on() {
        for (text, on) in
            [("1", true), ("true", true), ("x", true), ("0", false), (" False", false), ("", false)]
        {
            assert_eq!(is_on(OsStr::new(text)), on, "{text}");
        }
    }

    #[test]
    fn an_http_proxy_is_in_the_way_unless_this_machine_is_exempt() {
        for (vars, in_the_way) in [
            (&[][..], false),
            (&[("HTTPS_PROXY", "http://p")][..], true),
            (&[("http_proxy", "http://p")], true),
            (&[("HTTPS_PROXY", "")], false),
            (&[("HTTPS_PROXY", "http://p"), ("NO_PROXY", "localhost")], true),
            (&[("HTTPS_PROXY", "http://p"), ("NO_PROXY", "localhost, 127.0.0.1")], false),
            (&[("ALL_PROXY", "socks5://p"), ("no_proxy", "*")], false),
        ] {
            let var = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
            assert_eq!(http_proxy_in_the_way(&var).is_some(), in_the_way, "{vars:?}");
        }
    }
}
