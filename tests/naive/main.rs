//! The wrapper people write first: portable-pty, raw mode, two blocking threads, wait for the end of the output.
//!
//! The tests run it against the same checks as codemie, to show that the checks are able to fail.
#![expect(clippy::disallowed_methods, reason = "these calls are what makes it naive")]

use anyhow::Result;
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::SIGWINCH;
use signal_hook::iterator::Signals;
use std::io::{Read, Write};
use std::thread;

fn main() -> Result<()> {
    let stdin = rustix::stdio::stdin();
    let saved = tcgetattr(stdin).ok();
    let pair = native_pty_system().openpty(window_size())?;
    let mut command = CommandBuilder::from_argv(std::env::args_os().skip(1).collect());
    command.cwd(std::env::current_dir()?);
    let mut child = pair.slave.spawn_command(command)?;
    drop(pair.slave);
    if let Some(mut raw) = saved.clone() {
        raw.make_raw();
        tcsetattr(stdin, OptionalActions::Now, &raw)?;
    }

    let mut writer = pair.master.take_writer()?;
    thread::spawn(move || copy(&mut std::io::stdin(), &mut writer));
    let mut reader = pair.master.try_clone_reader()?;
    let output = thread::spawn(move || copy(&mut reader, &mut std::io::stdout()));
    let master = pair.master;
    let mut resizes = Signals::new([SIGWINCH])?;
    thread::spawn(move || resizes.forever().try_for_each(|_| master.resize(window_size())));

    let status = child.wait()?;
    let _ = output.join();
    if let Some(saved) = saved {
        tcsetattr(stdin, OptionalActions::Now, &saved)?;
    }
    std::process::exit(i32::try_from(status.exit_code())?);
}

fn window_size() -> PtySize {
    tcgetwinsize(rustix::stdio::stdin()).map_or_else(
        |_| PtySize::default(),
        |size| PtySize {
            rows: size.ws_row,
            cols: size.ws_col,
            pixel_width: size.ws_xpixel,
            pixel_height: size.ws_ypixel,
        },
    )
}

fn copy(from: &mut impl Read, to: &mut impl Write) {
    let mut buffer = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}
