//! A wrapper worse than naive: wrong wherever the naive one happens to be right.
//!
//! It exists so that every transparency check is seen to fail for somebody.
#![expect(clippy::disallowed_methods, reason = "these calls are what makes it careless")]

use anyhow::Result;
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::io::{Read, Write};
use std::sync::mpsc::channel;
use std::thread;

fn main() -> Result<()> {
    // Not raw, only silent: the terminal still edits lines and turns keys into signals. Never put back.
    let mut modes = tcgetattr(rustix::stdio::stdin())?;
    modes.local_modes.remove(LocalModes::ECHO);
    tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &modes)?;

    // A size of its own, which never changes.
    let pair = native_pty_system().openpty(PtySize::default())?;
    // Deaf to the hangup that would end the command when its wrapper is gone.
    let mut command =
        CommandBuilder::from_argv(["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"].map(Into::into).to_vec());
    command.args(std::env::args_os().skip(1));
    let mut child = pair.slave.spawn_command(command)?;
    drop(pair.slave);

    let mut writer = pair.master.take_writer()?;
    thread::spawn(move || std::io::copy(&mut std::io::stdin(), &mut writer));
    // Hoards whatever the terminal does not take.
    let (hoard, output) = channel::<Vec<u8>>();
    let mut reader = pair.master.try_clone_reader()?;
    thread::spawn(move || {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            let _ = hoard.send(buffer[..count].to_vec());
        }
    });
    thread::spawn(move || output.iter().try_for_each(|bytes| std::io::stdout().write_all(&bytes)));

    // Neither the status nor the rest of the output matters.
    child.wait()?;
    std::process::exit(0);
}
