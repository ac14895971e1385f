//! The binary: which name it was called by, and with which arguments. Everything else is in the library.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use agents::registry;
use codemie::cli::{self, Command, CommandLine, LaunchTarget, RunOptions};
use codemie::cmd;
use codemie::failure::{Output, format_error, shown};
use format::output::screen::Screen;
use os::home::{Home, own_var};

fn main() -> ExitCode {
    install_panic_hook();
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    // A shim is this binary under the agent's name: nothing is parsed, everything is the agent's.
    let called_as = Path::new(&name).file_name().and_then(|name| name.to_str());
    if let Some(agent) = called_as.and_then(registry::called) {
        return run(&RunOptions::default(), LaunchTarget::Agent(agent), args);
    }
    // Several times a minute, while somebody types: before anything is parsed.
    if args == ["statusline"] {
        let home = Home::from_env(own_var);
        return cmd::statusline::print(home.as_ref(), &mut io::stdout());
    }
    match cli::parse(args) {
        Ok(CommandLine::Run { options, target, args }) => run(&options, target, args),
        Ok(CommandLine::Manage(command)) => manage(&command),
        Err(refusal) => {
            let _ = refusal.print();
            ExitCode::from(refusal.code)
        }
    }
}

fn run(options: &RunOptions, target: LaunchTarget, args: Vec<OsString>) -> ExitCode {
    let result = cmd::run::run(options, target, args);
    if let Some(output) = result.output
        && writeln!(io::stdout(), "{output}").is_err()
    {
        return ExitCode::FAILURE;
    }
    if let Some(message) = result.message {
        let _ = write!(io::stderr(), "{}", shown(&message));
    }
    result.signal.into_iter().for_each(pty::die_of);
    ExitCode::from(result.code)
}

fn manage(command: &Command) -> ExitCode {
    let home = Home::from_env(own_var);
    // Not locked: the MCP server writes from a thread of its own.
    let (out, err) = (io::stdout(), io::stderr());
    let mut out = Output(Screen::new(out, pty::is_terminal(&io::stdout())));
    let mut err = Screen::new(err, pty::is_terminal(&io::stderr()));
    match cmd::manage(command, home, &mut out, &mut err) {
        Ok(code) => code,
        // The reader of our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = write!(io::stderr(), "{}", shown(&format!("codemie: {}", format_error(&error))));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// A panic of the pump's thread is reported after the terminal was restored. One of any other thread goes to the log, because
/// the agent has the terminal.
fn install_panic_hook() {
    let pump = std::thread::current().id();
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() == pump {
            pty::restore_after_panic();
            report(panic);
        } else {
            os::log::note_panic(panic);
        }
    }));
}
