//! `codemie commit-note`: a trailer for a commit message, for a hook of the user's own. Nothing is written into the repository.

use std::io::Write;
use std::process::ExitCode;

use super::session_text::{cost, number};
use os::home::Home;
use report::open::open_existing;
use report::usage::uncommitted;
use usage::UsageRow;

/// Prints nothing where nothing was spent, and never keeps a commit from being made.
pub fn run(home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let here = std::env::current_dir();
    let (Ok(here), Ok(Some(mut store))) = (here, open_existing(home)) else { return Ok(ExitCode::SUCCESS) };
    if let Ok(spent) = store.read(|view| uncommitted(view, &here)) {
        out.write_all(trailer(&spent).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn trailer(spent: &UsageRow) -> String {
    if spent.api_calls == 0 {
        return String::new();
    }
    let calls = format::counted(usize::try_from(spent.api_calls).unwrap_or(0), "call");
    let cost = cost(spent.cost.dollars(), &spent.unpriced_models);
    format!("Agent-Usage: {cost}, {} tokens, {calls}\n", format::count(number(spent.tokens())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PicoDollars;

    #[test]
    fn a_trailer_is_one_line_and_absent_where_nothing_was_spent() {
        assert_eq!(trailer(&UsageRow::default()), "");
        let spent = UsageRow {
            api_calls: 34,
            input: 5_000_000,
            output: 612_345,
            cost: PicoDollars(1_234_500_000_000),
            ..UsageRow::default()
        };
        assert_eq!(trailer(&spent), "Agent-Usage: $1.23, 5.61M tokens, 34 calls\n");
    }
}
