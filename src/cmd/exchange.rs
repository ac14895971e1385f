//! `codemie export` and `codemie import`: sessions from one home to another, and out of old stores.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;

use crate::cli::{Export, Import, ImportFound};
use format::output::json;
use format::text::clean;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use os::log;
use pty::process;
use report::find;
use report::open::open;
use runtime::launch::{Origin, settings};
use store::session::exchange::{self, ExportFile, Titles};
use store::session::import::{self, ImportReport, found};
use store::{self, Store};

pub fn export(
    args: &Export,
    home: &Home,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let mut store = open(home)?;
    let titles = if args.with_titles { Titles::Included } else { Titles::LeftOut };
    let file = store.read(|view| {
        let mut rows = Vec::new();
        for wanted in &args.sessions {
            let row = find::session(view, wanted, &Origin::of_this_process())?;
            // Named twice in two ways is still once.
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        Ok::<_, anyhow::Error>(exchange::export(view, &rows, titles, SystemClock.now())?)
    })?;
    let text = json::pretty(&file)?.into_bytes();
    match args.output.as_deref().filter(|path| *path != Path::new("-")) {
        None => out.write_all(&text)?,
        Some(path) => {
            write(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
            writeln!(
                err,
                "{} in {}; `codemie import` takes it in elsewhere",
                counted(&file),
                clean(&path.to_string_lossy())
            )?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// For the user alone, as the store it comes from: it holds paths.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the user named it: a pipe or a terminal is as good")]
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut file = BufWriter::new(file);
    file.write_all(text)?;
    file.flush()
}

fn counted(file: &ExportFile) -> String {
    sessions(file.sessions.len())
}

fn sessions(count: usize) -> String {
    if count == 1 { "1 session".to_owned() } else { format!("{count} sessions") }
}

/// How long the detached process imports old stores; the rest waits for the next run in that folder.
const FOUND_FOR: Duration = Duration::from_mins(1);

/// The detached process that a run starts where it has found old stores. One at a time, and behind everybody else.
pub fn import_found(args: &ImportFound, home: &Home) -> anyhow::Result<ExitCode> {
    // A home that has been removed since is not made again for this.
    let user = std::env::home_dir().filter(|_| home.database().exists());
    let (Some(user), Some(_alone)) = (user, process::lock(home, "import-found")) else {
        return Ok(ExitCode::SUCCESS);
    };
    let _ = log::start(home, Some(&settings(Some(home), &Origin::of_this_process()).log_level));
    let _ = rustix::process::setpriority_process(None, 19);
    let mut store = Store::open(home, SystemClock.now())?;
    let deadline = Instant::now() + FOUND_FOR;
    let report = found::take_in(&mut store, &user, &args.folder, SystemClock.now(), Some(deadline))
        .inspect_err(|error| tracing::warn!("an old store waits for the next run: {error}"))?;
    let (imported, known) = (report.imported.len(), report.known);
    tracing::info!(imported, known, "old stores taken in");
    Ok(ExitCode::SUCCESS)
}

pub fn import(
    args: &Import,
    home: &Home,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let mut store = open(home)?;
    let now = SystemClock.now();
    let mut all = ImportReport::default();
    let mut failed = false;
    // Everything that can be imported is; the rest is reported at the end.
    for path in &args.files {
        // What `export` writes to standard output is read from there.
        let path = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
        match import::import(&mut store, path, now) {
            Ok(ImportReport { imported, known, passed_over }) => {
                // A file named outright that is nothing to import is a mistake; in a folder it is none.
                failed |= !path.is_dir() && !passed_over.is_empty();
                all.imported.extend(imported);
                all.known += known;
                all.passed_over.extend(passed_over);
            }
            Err(error) => {
                failed = true;
                all.passed_over.push((path.to_owned(), error.to_string()));
            }
        }
    }
    let rows = store.read(|view| {
        let rows = all.imported.iter().map(|id| view.session(*id));
        rows.collect::<Result<Vec<_>, store::Error>>()
    })?;
    let rows: Vec<_> = rows.into_iter().flatten().collect();
    if args.json {
        let imported: Vec<_> = rows
            .iter()
            .map(|row| json!({"sessionId": row.shown_id(), "name": row.name, "agent": row.agent}))
            .collect();
        let passed_over: Vec<_> = all
            .passed_over
            .iter()
            .map(|(path, reason)| json!({"file": path.to_string_lossy(), "reason": reason}))
            .collect();
        let report = json!({"imported": imported, "known": all.known, "passedOver": passed_over});
        out.write_all(json::pretty(&report)?.as_bytes())?;
    } else {
        for row in &rows {
            writeln!(out, "{}", clean(&row.name))?;
        }
        writeln!(out, "{} imported, {} already here.", sessions(rows.len()), all.known)?;
    }
    for (path, reason) in &all.passed_over {
        // Errors of files begin with the file.
        let path = path.display().to_string();
        let reason = reason.strip_prefix(&format!("{path}: ")).unwrap_or(reason);
        // The file may be called anything, and the reason may repeat words of it.
        writeln!(err, "{}", clean(&format!("codemie: {path} was not imported: {reason}")))?;
    }
    let nothing = rows.is_empty() && all.known == 0 && !all.passed_over.is_empty();
    Ok(if failed || nothing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
