//! Clients that look at a background session and type into it.

use std::io::{Read, Write};

use runtime::remote::address;
use runtime::remote::protocol::{FromHost, Size, ToHost};

use super::{Scene, TIMEOUT, Viewer};
use crate::support::scripted::await_some;

#[test]
fn viewer_sees_the_screen_and_types() {
    let scene = Scene::new();
    let id = scene.start("talk", "stty -echo; echo ready; while read line; do echo \"got $line\"; done");
    let mut viewer = scene.attach(&id, 24, 80);
    viewer.wait_for("ready");
    viewer.keys("one\n");
    viewer.wait_for("got one");
    viewer.connection.say(&ToHost::Detach).unwrap();
    drop(viewer);
    let mut again = scene.attach(&id, 24, 80);
    again.wait_for("got one");
    again.keys("two\n");
    again.wait_for("got two");
    again.keys("\x04");
    while !matches!(again.hear(), FromHost::Ended(ended) if ended.code == 0) {}
}

#[test]
fn size_belongs_to_the_viewer_that_typed_last_and_is_restored() {
    let scene = Scene::new();
    let id = scene.start("size", "stty -echo; while read line; do stty size; done");
    let mut first = scene.attach(&id, 30, 100);
    first.keys("\n");
    first.wait_for("30 100");
    let mut second = scene.attach(&id, 20, 70);
    second.keys("\n");
    second.wait_for("20 70");
    first.seen.clear();
    first.keys("\n");
    first.wait_for("30 100");
    first.connection.say(&ToHost::Resize(Size { rows: 31, cols: 101 })).unwrap();
    first.keys("\n");
    first.wait_for("31 101");
    drop(first);
    second.seen.clear();
    await_some("the other viewer's size", || {
        second.keys("\n");
        second.hear();
        second.text().contains("20 70").then_some(())
    });
    drop(second);
    // Nobody looks: the size of the settings.
    let mut third = scene.connect(&id);
    third.say(&ToHost::Screen).unwrap();
    assert!(matches!(third.hear(Some(TIMEOUT)).unwrap(), FromHost::Screen(_)));
}

#[test]
fn viewer_that_stops_reading_is_disconnected_and_the_program_goes_on() {
    let scene = Scene::new();
    let flood = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); echo 0123456789012345678901234567890123456789; done; echo flood-over; exec sleep 1000";
    let id = scene.start("flood", flood);
    let mut stalled = scene.attach(&id, 24, 80);
    let mut other = scene.attach(&id, 24, 80);
    other.wait_for("flood-over");
    let end = loop {
        match stalled.connection.hear(Some(TIMEOUT)) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(end, runtime::remote::RemoteError::Closed), "{end}");
}

#[test]
fn many_attachments_leak_nothing() {
    let scene = Scene::new();
    let id = scene.start("many", "echo ready; exec sleep 1000");
    let host = scene.record(&id)["wrapperPid"].as_i64().unwrap();
    let open = || std::fs::read_dir(format!("/proc/{host}/fd")).unwrap().count();
    let run = scene.run(&id);
    let connect = || runtime::remote::Connection::open(&scene.home(), run).unwrap();
    drop(Viewer::over(connect(), 24, 80));
    let before = await_some("the first viewer has left", || (open() < 40).then(open));
    let times = if std::env::var_os("CODEMIE_TEST_FULL").is_some() { 1000 } else { 200 };
    for _ in 0..times {
        drop(Viewer::over(connect(), 24, 80));
    }
    await_some("all descriptors are closed", || (open() <= before).then_some(()));
}

#[test]
fn garbage_on_the_socket_costs_its_own_connection_alone() {
    let scene = Scene::new();
    let id = scene.start("garbage", "echo ready; exec sleep 1000");
    let run = scene.run(&id);
    for garbage in [&b"\xff\xff\xff\xff\xff"[..], b"\0\0\0\0", b"\x02\0\0\0\x01{", b"GET / HTTP/1.1\r\n\r\n"]
    {
        let mut stream = address::connect(&scene.home(), run).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(garbage).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    }
    let mut viewer = scene.attach(&id, 24, 80);
    viewer.wait_for("ready");
}

#[test]
fn terminal_without_a_size_leaves_the_session_s_as_it_is() {
    let scene = Scene::new();
    let id = scene.start("zero", "stty -echo; while read line; do stty size; done");
    let mut viewer = scene.attach(&id, 0, 0);
    viewer.keys("\n");
    viewer.wait_for("40 120");
}

#[test]
fn reports_of_a_terminal_are_no_typing() {
    let scene = Scene::new();
    let id = scene.start("reports", "stty -echo; while read line; do stty size; done");
    let mut small = scene.attach(&id, 20, 70);
    let mut large = scene.attach(&id, 30, 100);
    small.keys("\x1b[5;7R");
    small.keys("\x1b[I");
    large.keys("\n");
    large.wait_for("30 100");
    assert!(!large.text().contains("20 70"), "{}", large.text());
}
