//! The machine below: its clock, its time zone, and files that others may have put there.
//!
//! ```text
//! clock      time as a value that is handed in        zone, calendar   the machine's zone; days, weeks and months of any zone
//! file       files of others: regular files only, bounded, never waited for        truncate   text of others, bounded
//! watch      changes of files: one inotify instance for the whole process
//! home, log  where our own files are (0600, folders 0700); the log, which is never the terminal
//! project    project, repository, branch and HEAD of a folder, from git's files; git is not run
//! ```
//!
//! Promises: looking changes nothing, and no path that others can write to makes a caller wait. clippy bans the ways around `clock`
//! and `file`.
//!
//! One file of the time zone database is read, the one that tzset(3) names, because a look-up by name lists all of them:
//! milliseconds that the start of every agent would pay.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

pub mod calendar;
pub mod clock;
pub mod file;
pub mod home;
pub mod log;
pub mod project;
pub mod truncate;
pub mod watch;
pub mod zone;
