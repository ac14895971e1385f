//! Who may still call: processes that were given the address, and connections to the listener.

use std::path::Path;

use os::file::read_at_most;
use pty::detached::is_detached;
use pty::process::Processes;
use types::ProcessId;

const MAX_TABLE: u64 = 64 << 20;

/// Looks for users of one listener. The processes of a machine are gone through only when the known users have ended.
#[derive(Debug)]
pub(super) struct Clients {
    secret: String,
    port: u16,
    known: Vec<ProcessId>,
}

impl Clients {
    pub(super) fn new(secret: String, port: u16) -> Self {
        Self { secret, port, known: Vec::new() }
    }

    /// Whether there is any. Where processes cannot be listed there may always be one.
    pub(super) fn any(&mut self, processes: &dyn Processes) -> bool {
        self.known.retain(|process| processes.alive(*process));
        if !self.known.is_empty() || connected(self.port) {
            return true;
        }
        let Some(holders) = processes.started_with(&self.secret) else { return true };
        // Our own detached work inherits variables as well, and calls nobody.
        let users = holders.into_iter().filter(|pid| !is_detached(&processes.command(*pid)));
        self.known = users.filter_map(|pid| processes.identify(pid)).collect();
        !self.known.is_empty()
    }
}

/// Whether anybody is connected to a port of this machine's own address.
fn connected(port: u16) -> bool {
    read_at_most(Path::new("/proc/net/tcp"), MAX_TABLE)
        .is_ok_and(|table| has_connection(&String::from_utf8_lossy(&table), port))
}

/// `1: 0100007F:1F90 0100007F:C350 01 …`: our side, the other side, the state, of which 01 is "established".
fn has_connection(table: &str, port: u16) -> bool {
    let local = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        words.next().is_some_and(|address| address.ends_with(&local)) && words.nth(1) == Some("01")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pty::process::SystemProcesses;

    #[test]
    fn connections_are_found_by_their_port() {
        let table = "  sl  local_address rem_address   st tx_queue\n   0: 0100007F:1F90 00000000:0000 0A 00000000\n   1: 0100007F:1F90 0100007F:C350 01 00000000\n   2: 0100007F:C350 0100007F:1F91 06 00000000\n";
        assert!(has_connection(table, 0x1F90));
        assert!(!has_connection(table, 0x1F91), "it is the other side's port");
        assert!(!has_connection(table, 0xC350), "it is closed");
        assert!(!has_connection("", 1));
    }

    #[test]
    fn a_process_with_the_address_in_its_environment_is_a_user() {
        let secret = format!("secret-of-test-{}", std::process::id());
        let mut users = Clients::new(secret.clone(), 1);
        assert!(!users.any(&SystemProcesses));
        let mut child =
            std::process::Command::new("sleep").arg("600").env("BASE_URL", &secret).spawn().unwrap();
        // Until it has become another program, it has our own environment.
        while !users.any(&SystemProcesses) {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!users.any(&SystemProcesses));
    }
}
