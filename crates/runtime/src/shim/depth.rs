//! Counting how often a call has come back to us without reaching an agent.
//!
//! Our shim runs mise's, mise's runs ours, and so on. Neither can see it, so a counter travels in the environment. But
//! an agent that starts an agent travels through us as well, any number of levels deep, and is no loop. The difference:
//! a shim hands its arguments on unchanged, an agent makes its own. So the variable carries the counter together with a
//! fingerprint of the call that was passed on, and only the very same call counts further.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Holds `ROUNDS`, or `ROUNDS:NESTED:FINGERPRINT`.
pub const VARIABLE: &str = "CODEMIE_SHIM_DEPTH";

/// Two managers that point at each other need one round to be a loop; a chain of honest ones is never this long.
const MAX_ROUNDS: u32 = 4;

/// The backstop for a loop whose managers change the arguments each time. No honest nesting of agents is this deep.
const MAX_NESTED: u32 = 32;

/// The value that stops any call which comes back to us, whichever program passes it on.
pub fn at_its_end() -> String {
    MAX_ROUNDS.to_string()
}

/// Where this call stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    rounds: u32,
    nested: u32,
}

impl Depth {
    /// Reads the variable as the call arrives: `args` are those we were given, without our own name.
    pub fn arriving<A: AsRef<OsStr>>(
        variable: Option<&OsStr>,
        name: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        let Some(text) = variable.and_then(OsStr::to_str) else { return Self::default() };
        let mut parts = text.split(':');
        let Some(rounds) = parts.next().and_then(|part| part.parse().ok()) else { return Self::default() };
        let nested = parts.next().and_then(|part| part.parse().ok()).unwrap_or(rounds);
        let same_call = match parts.next() {
            Some(passed_on) => u64::from_str_radix(passed_on, 16) == Ok(fingerprint(name, args)),
            None => true,
        };
        Self { rounds: if same_call { rounds } else { 0 }, nested }
    }

    /// Whether to stop here instead of going round once more.
    pub fn exhausted(self) -> bool {
        self.rounds >= MAX_ROUNDS || self.nested >= MAX_NESTED
    }

    /// The variable's value for the program that is started with `args`.
    pub fn leaving<A: AsRef<OsStr>>(self, name: &str, args: impl IntoIterator<Item = A>) -> OsString {
        let (rounds, nested) = (self.rounds.saturating_add(1), self.nested.saturating_add(1));
        format!("{rounds}:{nested}:{:x}", fingerprint(name, args)).into()
    }
}

/// FNV-1a: cheap, without allocation, and nobody gains anything by forging it.
fn fingerprint<A: AsRef<OsStr>>(name: &str, args: impl IntoIterator<Item = A>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        // The terminating NUL, which no argument can hold, keeps ["ab"] and ["a", "b"] apart.
        for &byte in bytes.iter().chain(&[0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    add(name.as_bytes());
    for arg in args {
        add(arg.as_ref().as_bytes());
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `name` with `args` over and over, each passed on by `manager`, until it is stopped.
    fn rounds_until_stopped(manager: impl Fn(u32, &[String]) -> Vec<String>) -> u32 {
        let mut variable: Option<OsString> = None;
        let mut args = vec!["-p".to_owned(), "hi".to_owned()];
        for round in 0..1000 {
            let depth = Depth::arriving(variable.as_deref(), "claude", &args);
            if depth.exhausted() {
                return round;
            }
            variable = Some(depth.leaving("claude", &args));
            args = manager(round, &args);
        }
        panic!("never stopped");
    }

    #[test]
    fn the_same_call_coming_back_is_stopped_after_four_rounds() {
        assert_eq!(rounds_until_stopped(|_, args| args.to_vec()), 4);
    }

    #[test]
    fn agents_that_start_agents_go_deeper() {
        assert_eq!(rounds_until_stopped(|level, _| vec![format!("prompt {level}")]), 32);
    }

    #[test]
    fn a_loop_that_grows_its_arguments_is_stopped_too() {
        assert_eq!(
            rounds_until_stopped(|_, args| [&["--x".to_owned()], args].concat()),
            32,
            "the backstop, not the fingerprint"
        );
    }

    #[test]
    fn a_broken_value_counts_as_none() {
        let at = |value: &str| Depth::arriving(Some(OsStr::new(value)), "claude", ["a"]);
        assert_eq!(at("3"), Depth { rounds: 3, nested: 3 });
        assert!(at("4").exhausted());
        assert!(at(&at_its_end()).exhausted());
        assert_eq!(at("3:7:0"), Depth { rounds: 0, nested: 7 });
        for broken in ["", "x", "-1", ":::"] {
            assert_eq!(at(broken), Depth::default(), "{broken:?}");
        }
        assert_eq!(Depth::arriving(None, "claude", ["a"]), Depth::default());
    }

    #[test]
    fn arguments_do_not_run_into_each_other() {
        assert_ne!(fingerprint("claude", ["ab"]), fingerprint("claude", ["a", "b"]));
        assert_ne!(fingerprint("claude", ["a"]), fingerprint("codex", ["a"]));
        assert_ne!(fingerprint("claude", [""]), fingerprint("claude", [""; 0]));
    }
}
