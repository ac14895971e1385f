//! Standard descriptors closed or redirected, and few of any.
use crate::support::pty::Exit;
use crate::support::wrapper::Bench;

/// Every combination of the three. The command tells by a file which of them it has.
pub(super) fn closed_descriptors_stay_closed(bench: &Bench) {
    let told = bench.home().join("told");
    let command =
        "s=; for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && s=$s$n; done; echo \"$s.\" >\"$HOME/told\"; exit 3";
    for closed in 1..8 {
        let is_open = |n: &u8| closed & (1 << n) == 0;
        let redirections = ["<&-", ">&-", "2>&-"].iter().zip(0..).filter(|(_, n)| !is_open(n));
        let redirections: Vec<&str> = redirections.map(|(redirection, _)| *redirection).collect();
        let terminal =
            bench.start_in(&format!("exec {{}} {}", redirections.join(" ")), &["sh", "-c", command]).spawn();
        assert_eq!(terminal.wait_exit(), Exit::Code(3), "{redirections:?}");
        let open: String = (0..3).filter(is_open).map(|n| n.to_string()).collect();
        assert_eq!(std::fs::read_to_string(&told).unwrap(), format!("{open}.\n"), "{redirections:?}");
        assert_eq!(terminal.modes(), terminal.first_modes());
    }
}

pub(super) fn redirected_stderr_gets_its_bytes(bench: &Bench) {
    let command = "echo err >&2; [ -t 0 ] && [ -t 1 ] && [ ! -t 2 ] && echo out; exit 3";
    let terminal = bench.start_in("exec {} 2>\"$HOME/err\"", &["sh", "-c", command]).spawn();
    assert_eq!(terminal.wait_exit(), Exit::Code(3));
    assert_eq!(terminal.text(), "out");
    assert_eq!(std::fs::read_to_string(bench.home().join("err")).unwrap(), "err\n");
}

pub(super) fn redirected_stdout_gets_its_bytes(bench: &Bench) {
    let command =
        "echo err >&2; read line; [ -t 0 ] && [ ! -t 1 ] && [ -t 2 ] && echo \"got $line.\"; exit 3";
    let terminal = bench.start_in("exec {} >\"$HOME/out\"", &["sh", "-c", command]).spawn();
    terminal.wait_text("err");
    terminal.type_line("hello");
    assert_eq!(terminal.wait_exit(), Exit::Code(3));
    assert_eq!(std::fs::read_to_string(bench.home().join("out")).unwrap(), "got hello.\n");
}

pub(super) fn few_descriptors(bench: &Bench) {
    with_limits(bench, &[16, 14, 12]);
}

/// The wrapper needs some for itself; where they do not suffice it must stand aside.
pub(super) fn very_few_descriptors(bench: &Bench) {
    with_limits(bench, &[11, 10, 9, 8, 7, 6, 5, 4]);
}

fn with_limits(bench: &Bench, limits: &[u32]) {
    for limit in limits {
        let command = "echo limit; ulimit -n; read line; echo \"got $line.\"; exit 3";
        let terminal =
            bench.start_in(&format!("ulimit -n {limit}; exec {{}}"), &["sh", "-c", command]).spawn();
        terminal.wait_text(&format!("limit\n{limit}"));
        terminal.type_line("hello");
        terminal.wait_text("got hello.");
        assert_eq!(terminal.wait_exit(), Exit::Code(3), "{limit}");
        assert_eq!(terminal.modes(), terminal.first_modes());
    }
}
