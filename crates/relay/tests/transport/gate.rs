//! Refusals before anything is sent.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use relay::{CallEnd, Gate, Refusal, Request, Verdict};

use crate::served::{answering, serve, settings};
use crate::traps::ask;

struct Budget {
    limiting: bool,
    asked: Mutex<Vec<(String, Option<usize>)>>,
}

impl Gate for Budget {
    fn is_limiting(&self) -> bool {
        self.limiting
    }

    fn admit<'a>(&'a self, request: &'a Request) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>> {
        self.asked.lock().unwrap().push((request.path.clone(), request.body.as_ref().map(|body| body.len())));
        let refusal =
            Refusal { message: "budget day is spent".to_owned(), retry_after: Some(Duration::from_mins(1)) };
        Box::pin(std::future::ready(if self.limiting { Verdict::Refuse(refusal) } else { Verdict::Go }))
    }
}

fn budget(limiting: bool) -> Arc<Budget> {
    Arc::new(Budget { limiting, asked: Mutex::default() })
}

#[test]
fn a_refusal_has_the_form_of_the_api_and_nothing_is_sent() {
    let (address, requests) = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let gate = budget(true);
    let served = serve(settings(&format!("http://{address}")), gate.clone());
    let stream = served.connect();
    for (path, form) in [
        ("/v1/messages", r#""type":"rate_limit_error""#),
        ("/v1/responses", r#""code":"insufficient_quota""#),
        ("/v1/chat/completions", r#""code":"insufficient_quota""#),
        ("/v1beta/models/m:streamGenerateContent", r#""status":"RESOURCE_EXHAUSTED""#),
    ] {
        let body = "y".repeat(200_000);
        let request =
            format!("POST /SECRET{path}?x=1 HTTP/1.1\r\nhost: x\r\ncontent-length: 200000\r\n\r\n{body}");
        let answer = ask(&stream, &request);
        assert_eq!(answer.status(), 429);
        assert!(
            answer.text().contains(form) && answer.text().contains("budget day is spent"),
            "{}",
            answer.text()
        );
        assert_eq!(answer.header("retry-after"), Some("60"));
        assert_eq!(answer.header("x-should-retry"), Some("false"));
        assert_eq!(
            gate.asked.lock().unwrap().pop(),
            Some((path.to_owned(), Some(200_000))),
            "with the whole body"
        );
        assert_eq!(served.call().end, CallEnd::Refused);
    }
    assert!(requests.try_recv().is_err());
    served.join();
}

#[test]
fn requests_that_spend_nothing_are_not_asked_about() {
    let (address, _requests) = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let gate = budget(true);
    let served = serve(settings(&format!("http://{address}")), gate.clone());
    for request in [
        "POST /SECRET/v1/messages/count_tokens",
        "HEAD /SECRET/",
        "GET /SECRET/v1/models",
        "GET /SECRET/v1/responses",
    ] {
        assert_eq!(ask(&served.connect(), &format!("{request} HTTP/1.1\r\nhost: x\r\n\r\n")).status(), 200);
    }
    assert!(gate.asked.lock().unwrap().is_empty());
    served.join();
}

#[test]
fn a_gate_that_limits_nothing_does_not_make_a_body_wait() {
    let (address, requests) = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let gate = budget(false);
    let served = serve(settings(&format!("http://{address}")), gate.clone());
    ask(&served.connect(), "POST /SECRET/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc");
    assert_eq!(requests.recv().unwrap().body, b"abc");
    assert_eq!(*gate.asked.lock().unwrap(), [("/v1/messages".to_owned(), None)]);
    assert_eq!(served.call().request.body.as_deref(), Some(&b"abc"[..]), "the report has it");
    served.join();
}
