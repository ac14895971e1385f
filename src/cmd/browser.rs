//! Opens a page in the user's browser without its address on any command line, where every user of the machine could read
//! the secret in it: the browser is given a file of the user's own that leads there.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use os::file::create_private;
use os::home::Home;

/// Where snaps have their desktop files. A browser that is a snap reads only what stands openly in the user's folder: no
/// hidden folder (ours is one), no `/tmp`. One from Flatpak is handed the file itself.
const SNAPS: &str = "/var/lib/snapd/desktop/applications";

/// Opens the page in a browser; false where there is none. The address is on the terminal then.
pub(super) fn show(url: &str, home: &Home, var: impl Fn(&str) -> Option<OsString>) -> bool {
    let Some(program) = opener(&var) else { return false };
    let file = file(url, home, &var);
    match write(&file, url).and_then(|()| open(program, &file)) {
        Ok(()) => true,
        Err(error) => {
            tracing::info!(%error, program, "no browser was opened");
            false
        }
    }
}

/// Removes the file that led to the page, if there was one.
pub(super) fn forget(url: &str, home: &Home, var: impl Fn(&str) -> Option<OsString>) {
    // It may never have been there, and what it leads to is used up or gone.
    let _ = std::fs::remove_file(file(url, home, var));
}

fn open(program: &str, file: &Path) -> io::Result<()> {
    let mut command = Command::new(program);
    command.arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    // Waited for, or it would stay a zombie for as long as we run.
    std::thread::spawn(move || child.wait());
    Ok(())
}

/// Written whole or not at all, and never readable by others (a temporary file is made 0600).
fn write(file: &Path, url: &str) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    create_private(folder)?;
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(page(url).as_bytes())?;
    new.persist(file)?;
    Ok(())
}

/// The address is one of ours, of digits and letters.
fn page(url: &str) -> String {
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta http-equiv=\"refresh\" content=\"0;url={url}\">\n<title>codemie</title>\n<a href=\"{url}\">Go on to the dashboard</a>\n"
    )
}

fn file(url: &str, home: &Home, var: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let own = var("HOME").filter(|own| !own.is_empty()).map(PathBuf::from);
    let name = format!("codemie-dashboard-{}.html", port(url));
    folder(Path::new(SNAPS).is_dir(), own, home.run()).join(name)
}

fn folder(snaps: bool, own: Option<PathBuf>, run: PathBuf) -> PathBuf {
    own.filter(|own| snaps && own.is_dir()).unwrap_or(run)
}

/// Two servers on one machine have two.
fn port(url: &str) -> &str {
    let host = url.split("//").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    host.rsplit(':').next().unwrap_or_default()
}

fn opener(var: impl Fn(&str) -> Option<OsString>) -> Option<&'static str> {
    if cfg!(target_os = "macos") {
        return Some("open");
    }
    let display = ["DISPLAY", "WAYLAND_DISPLAY"];
    display.iter().any(|name| var(name).is_some_and(|value| value != OsStr::new(""))).then_some("xdg-open")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_browser_is_opened_where_there_is_a_display() {
        for (set, expected) in [
            (&[][..], None),
            (&[("DISPLAY", "")], None),
            (&[("DISPLAY", ":0")], Some("xdg-open")),
            (&[("WAYLAND_DISPLAY", "wayland-0")], Some("xdg-open")),
        ] {
            let var =
                |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            assert_eq!(opener(var), expected);
        }
    }

    #[test]
    fn the_file_stands_where_the_browser_can_read_it() {
        let (home, run) = (tempfile::tempdir().unwrap(), PathBuf::from("/h/.codemie/run"));
        let own = || Some(home.path().to_owned());
        assert_eq!(folder(false, own(), run.clone()), run);
        assert_eq!(folder(true, own(), run.clone()), home.path());
        assert_eq!(folder(true, None, run.clone()), run);
        assert_eq!(folder(true, own().map(|own| own.join("none")), run.clone()), run);
        assert_eq!(port("http://127.0.0.1:4000/enter?token=codemie_read_0a"), "4000");
    }
}
