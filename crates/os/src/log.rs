//! The log file: `$CODEMIE_HOME/logs/codemie.log`, readable by its owner alone, never the terminal.
//!
//! `CODEMIE_LOG` (off, error, warn, info, debug, trace) says how much; the default is info. A log that cannot be written is done without.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::clock::{Clock, SystemClock};
use crate::file::create_private;
use crate::file::open_regular_with;
use crate::home::Home;

/// At this size the log becomes `codemie.log.1` and a new one is begun: a week of heavy use, and never more than twice this.
const ROTATE_AT: u64 = 8 * 1024 * 1024;

/// Starts logging to the file. Does nothing the second time.
pub fn start(home: &Home, level: Option<&str>) -> io::Result<()> {
    let level = level.and_then(|text| text.trim().parse().ok()).unwrap_or(LevelFilter::INFO);
    if level == LevelFilter::OFF {
        return Ok(());
    }
    let folder = home.logs();
    let path = folder.join("codemie.log");
    let file = match open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_private(&folder)?;
            open(&path)?
        }
        opened => opened?,
    };
    let file = if file.metadata()?.len() >= ROTATE_AT {
        std::fs::rename(&path, folder.join("codemie.log.1"))?;
        open(&path)?
    } else {
        file
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .log_internal_errors(false) // a full disk would be reported on standard error
        .with_ansi(false)
        .with_target(false)
        .with_timer(WallTime)
        .with_writer(LogFile(Arc::new(file)))
        .finish();
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

/// For a thread that must not speak to the terminal.
pub fn note_panic(panic: &std::panic::PanicHookInfo<'_>) {
    tracing::error!("panic: {panic}");
}

fn open(path: &Path) -> io::Result<File> {
    open_regular_with(OpenOptions::new().append(true).create(true).mode(0o600), path)
}

/// Many processes append to one file: a line is one write, so that lines stay whole.
#[derive(Clone)]
struct LogFile(Arc<File>);

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Line(Some(&self.0))
    }

    /// The MCP library logs whole requests, with the prompts and texts in them: only its complaints are kept.
    fn make_writer_for(&'a self, meta: &tracing::Metadata<'_>) -> Self::Writer {
        let chatter = meta.target().starts_with("rmcp") && *meta.level() > tracing::Level::WARN;
        Line((!chatter).then_some(&self.0))
    }
}

struct Line<'a>(Option<&'a File>);

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.map_or(Ok(line.len()), |mut file| file.write(line))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct WallTime;

impl FormatTime for WallTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        write!(writer, "{} [{}]", SystemClock.now(), std::process::id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_log_is_the_owners_alone_and_is_rotated_once() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path().join("home"));
        start(&home, Some("debug")).unwrap();
        let path = home.logs().join("codemie.log");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        File::options().write(true).open(&path).unwrap().set_len(ROTATE_AT).unwrap();
        start(&home, None).unwrap();
        assert_eq!(home.logs().join("codemie.log.1").metadata().unwrap().len(), ROTATE_AT);
        assert_eq!(path.metadata().unwrap().len(), 0);
    }
}
