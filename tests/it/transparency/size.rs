//! The window size, in cells and pixels, and its changes.
use crate::support::pty::Exit;
use crate::support::wrapper::{Bench, example};

pub(super) fn window_size_with_pixels(bench: &Bench) {
    let probe = example("probe");
    let terminal = bench.start(&[probe.as_os_str(), "size".as_ref()]).size(31, 117).spawn();
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert_eq!(terminal.text(), "size 31 117 1053 558.");
}

/// One SIGWINCH for each change, the new size readable when it comes, and none for setting the same size again.
pub(super) fn resize_arrives_once(bench: &Bench) {
    let probe = example("probe");
    let terminal = bench.start(&[probe.as_os_str(), "resizes".as_ref()]).spawn();
    let mut mark = terminal.wait_after(0, "waiting\r\n");
    for (rows, cols) in [(30, 100), (24, 80), (24, 81), (50, 200)] {
        terminal.resize(rows, cols);
        mark = terminal.wait_after(mark, format!("resized {rows} {cols} {} {}.\r\n", cols * 9, rows * 18));
        terminal.resize(rows, cols);
    }
    terminal.type_line("");
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    assert!(terminal.text().contains("resized 4 times"), "{}", terminal.text());
}
