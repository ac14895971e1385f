//! What the command is born with: arguments, environment, folder, descriptors, signal dispositions.
use crate::support::pty::Exit;
use crate::support::wrapper::{Bench, example};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

pub(super) fn arguments_environment_folder(bench: &Bench) {
    let folder = bench.home().join(OsStr::from_bytes(b"fold\xff er\n"));
    std::fs::create_dir(&folder).unwrap();
    let told = bench.home().join("told");
    let odd: [&[u8]; 8] =
        [b"", b"two words", b"new\nline", b"\xff\xfe", b"--", b"--help", b"$HOME 'quoted\"", b"-"];
    let mut command: Vec<OsString> = vec![example("probe").into(), "identity".into(), told.clone().into()];
    command.extend(odd.iter().map(|arg| OsString::from_vec(arg.to_vec())));
    let value = OsStr::from_bytes(b"\xfa\nb");
    let terminal = bench.start(&command).cwd(&folder).env("ODD", value).env("EMPTY", "").spawn();
    assert_eq!(terminal.wait_exit(), Exit::Code(0), "{}", terminal.text());

    let told = std::fs::read(told).unwrap();
    let mut told: Vec<&[u8]> =
        told.split(|byte| *byte == 0).filter(|line| !line.starts_with(b"env CODEMIE_")).collect();
    assert_eq!(told.pop(), Some(&b""[..]));
    let path = std::env::var_os("PATH").unwrap();
    let mut expected: Vec<Vec<u8>> = odd.iter().map(|arg| [b"arg ", *arg].concat()).collect();
    expected.push([b"cwd ", folder.as_os_str().as_bytes()].concat());
    expected.extend([
        [b"env PATH=", path.as_bytes()].concat(),
        b"env TERM=xterm-256color".to_vec(),
        [b"env HOME=", bench.home().as_os_str().as_bytes()].concat(),
        [b"env ODD=", value.as_bytes()].concat(),
        b"env EMPTY=".to_vec(),
    ]);
    expected[odd.len() + 1..].sort();
    told[odd.len() + 1..].sort_unstable();
    assert_eq!(readable(told), readable(expected.iter().map(Vec::as_slice)));
}

fn readable<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    lines.into_iter().map(|line| line.escape_ascii().to_string()).collect()
}

/// The caller's descriptor is there and works, and no descriptor of the wrapper's is.
pub(super) fn inherited_descriptor(bench: &Bench) {
    let command = ["sh", "-c", "cat <&9; echo; exec ls -1 /proc/self/fd"];
    let terminal = bench
        .start_in("printf 'through nine' >\"$HOME/nine\"; exec 9<\"$HOME/nine\"; exec {}", &command)
        .spawn();
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert_eq!(terminal.text(), "through nine\n0\n1\n2\n3\n9", "3 is the folder that ls reads");
}

/// And nothing else is ignored or blocked but what the caller had so.
pub(super) fn ignored_hangup_stays_ignored(bench: &Bench) {
    let command = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"];
    let script = "trap '' HUP; grep -E '^Sig(Blk|Ign)' /proc/self/status; exec {}";
    let terminal = bench.start_in(script, &command).spawn();
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    let text = terminal.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[2..], lines[..2]);
    let ignored = u64::from_str_radix(lines[3].rsplit(' ').next().unwrap(), 16).unwrap();
    assert_eq!(ignored & 1, 1, "{text}");
}
