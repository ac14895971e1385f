//! Who is let in, and what keeps the others out.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use os::clock::{Clock, SystemClock};

use super::Served;
use super::http::{Answer, ask};
use crate::support::invented::{InventedSession, Opening};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

impl Served {
    fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        ask(self.address, "GET", path, headers, "")
    }

    fn log_in(&self, body: &str, headers: &[(&str, &str)]) -> Answer {
        let mut all = vec![FORM];
        all.extend(headers);
        ask(self.address, "POST", "/login", &all, body)
    }

    pub(super) fn cookie(&self) -> String {
        let answer = self.log_in(&format!("token={}", self.token), &[]);
        answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
    }
}

#[test]
fn without_a_pass_every_page_leads_to_the_door() {
    let served = Served::new();
    for path in ["/", "/sessions", "/sessions/x", "/live", "/health"] {
        let answer = served.get(path, &[]);
        assert_eq!(answer.status, 303, "{path}");
        assert!(answer.header("location").unwrap().starts_with("/login"), "{answer:?}");
        assert!(!answer.body.contains("table"));
    }
    assert_eq!(
        served.get("/sessions?q=a%20b", &[]).header("location"),
        Some("/login?next=%2Fsessions%3Fq%3Da%2520b")
    );
    assert_eq!(served.get("/live/events", &[]).status, 401);
    assert_eq!(served.get("/static/style.0000000000000000.css", &[]).status, 404);
    assert_eq!(
        served.get("/enter?code=x", &[]).header("location"),
        Some("/login"),
        "a backend has no such entrance"
    );
}

#[test]
fn a_token_that_may_read_opens_and_no_other() {
    let served = Served::new();
    for wrong in ["token=", "token=codemie_read_0000", &format!("token={}0", served.token)] {
        let answer = served.log_in(wrong, &[]);
        assert_eq!((answer.status, answer.header("set-cookie")), (401, None), "{wrong}");
    }
    let answer = served.log_in(&format!("token={}&next=%2Fhealth", served.token), &[]);
    assert_eq!((answer.status, answer.header("location")), (303, Some("/health")));
    let cookie = answer.header("set-cookie").unwrap();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains(&served.token) && !cookie.contains("Secure"), "{cookie}");
    let behind = served.log_in(&format!("token={}", served.token), &[("x-forwarded-proto", "https")]);
    assert!(behind.header("set-cookie").unwrap().contains("; Secure"));
    let elsewhere = served.log_in(&format!("token={}&next=%2F%2Fevil.example", served.token), &[]);
    assert_eq!(elsewhere.header("location"), Some("/"), "nobody is sent elsewhere");
}

#[test]
fn a_pass_is_good_until_its_token_is_revoked() {
    let served = Served::new();
    let cookie = served.cookie();
    let page = served.get("/health", &[("cookie", &cookie)]);
    assert_eq!(page.status, 200);
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
    ] {
        assert_eq!(page.header(name), Some(value));
    }
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"), "{policy}");
    assert_eq!(served.get("/health", &[("cookie", &format!("{cookie}0"))]).status, 303, "forged");
    let revoked = served.runtime.block_on(served.storage.revoke_token("read", SystemClock.now())).unwrap();
    assert!(revoked);
    assert_eq!(served.get("/health", &[("cookie", &cookie)]).status, 303, "revoked");
    assert_eq!(served.log_in(&format!("token={}", served.token), &[]).status, 401);
}

#[test]
fn a_logout_ends_the_pass_wherever_it_is_kept() {
    let served = Served::new();
    let cookie = served.cookie();
    let page = |cookie: &str| served.get("/health", &[("cookie", cookie)]).status;
    assert_eq!(page(&cookie), 200);
    assert_eq!(ask(served.address, "POST", "/logout", &[("cookie", &cookie)], "").status, 303);
    assert_eq!(page(&cookie), 303, "a copy of it is no good");
    // Passes of the same millisecond are one and the same.
    let other = std::iter::repeat_with(|| served.cookie()).find(|other| *other != cookie).unwrap();
    assert_eq!(page(&other), 200, "others are");
}

/// The lines of a live page's stream behind what runs, and that.
fn watch(served: &Served, cookie: &str) -> (impl Iterator<Item = String> + use<>, String) {
    let mut stream = TcpStream::connect(served.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    write!(stream, "GET /live/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\nCookie: {cookie}\r\n\r\n")
        .unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "event: reset"), "it has begun");
    let running = lines.next().unwrap();
    (lines, running)
}

fn begin(served: &Served, seed: u64, name: &str) {
    let mut session = InventedSession::new(seed, 0, 3, SystemClock.now());
    session.start(&Opening { name, project: 1, reason: "startup", from: None });
    served.send(session.events);
}

#[test]
fn a_live_page_is_told_all_that_runs_at_once() {
    let served = Served::new();
    let cookie = served.cookie();
    // A browser takes no notice of an event without data.
    assert_eq!(watch(&served, &cookie).1, "data: <ul></ul>");
    begin(&served, 1, "work-a");
    begin(&served, 2, "work-b");
    let (_, running) = watch(&served, &cookie);
    assert!(
        running.starts_with("data: <ul><li") && running.contains("work-a") && running.contains("work-b"),
        "{running}"
    );
}

#[test]
fn a_live_page_that_is_open_tells_no_more_after_a_logout() {
    let served = Served::new();
    let cookie = served.cookie();
    let (mut lines, _) = watch(&served, &cookie);
    begin(&served, 1, "before");
    assert!(lines.any(|line| line.contains("before")));
    assert_eq!(ask(served.address, "POST", "/logout", &[("cookie", &cookie)], "").status, 303);
    begin(&served, 2, "secret");
    assert_eq!(lines.find(|line| line.contains("secret")), None, "it ended");
}

#[test]
fn what_another_site_makes_a_browser_send_is_refused() {
    let served = Served::new();
    let (cookie, token) = (served.cookie(), format!("token={}", served.token));
    let own = "http://x"; // as the client calls the server
    for (header, status) in [
        (("sec-fetch-site", "cross-site"), 403),
        (("sec-fetch-site", "same-site"), 403),
        (("sec-fetch-site", "same-origin"), 303),
        (("origin", "https://evil.example"), 403),
        (("origin", own), 303),
    ] {
        assert_eq!(served.log_in(&token, &[header]).status, status, "{header:?}");
        let out = ask(served.address, "POST", "/logout", &[header, ("cookie", &cookie)], "");
        assert_eq!(out.status, status, "{header:?}");
    }
    assert_eq!(
        served.get("/logout", &[("cookie", &cookie)]).status,
        405,
        "a picture's address logs nobody out"
    );
    // A link from elsewhere comes without the cookie; a page of ours asks again, with it.
    let link = served.get("/sessions?q=%22%3E%3Cscript%3E", &[("sec-fetch-site", "cross-site")]);
    assert_eq!(link.status, 200);
    assert!(link.body.contains("0;url=/sessions?q=%22%3E%3Cscript%3E"), "{link:?}");
}

#[test]
fn what_makes_no_sense_is_said_and_never_runs() {
    let served = Served::new();
    let cookie = served.cookie();
    let page = |path: &str| served.get(path, &[("cookie", &cookie)]);
    for path in ["/?from=then", "/sessions?after=x", "/sessions?status=asleep", "/?range=0d"] {
        assert_eq!(page(path).status, 400, "{path}");
    }
    assert_eq!(page("/sessions/no-such").status, 404);
    let hostile = page("/sessions?q=%3Cscript%3Ealert(1)%3C%2Fscript%3E&agent=%22%3E%3Cimg%3E");
    assert_eq!(hostile.status, 200);
    assert!(!hostile.body.contains("<script>alert") && !hostile.body.contains("<img"), "{}", hostile.body);
}
