//! Answers of the proxy itself, in the form of the API that was called, so that the agent shows their words to its user.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use crate::{Api, Request};

/// The gate's refusal. Status 429 alone would make the vendors' own clients wait and ask again, so they are told not to.
pub(crate) fn refused(api: Option<Api>, refusal: &Refusal) -> Response<Bytes> {
    let mut answer = answer(api, StatusCode::TOO_MANY_REQUESTS, &refusal.message);
    let headers = answer.headers_mut();
    if let Some(after) = refusal.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
    }
    not_again(headers);
    answer
}

/// Asking again changes nothing: the vendors' own clients go by it.
pub(crate) fn not_again(headers: &mut HeaderMap) {
    headers.insert("x-should-retry", HeaderValue::from_static("false"));
}

pub(crate) fn answer(api: Option<Api>, status: StatusCode, message: &str) -> Response<Bytes> {
    let body = Bytes::from(error_body(api, status, message).to_string());
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn error_body(api: Option<Api>, status: StatusCode, message: &str) -> Value {
    let limited = status == StatusCode::TOO_MANY_REQUESTS;
    match api {
        Some(Api::Messages) => {
            let kind = match status {
                StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
                StatusCode::NOT_FOUND => "not_found_error",
                _ => "api_error",
            };
            json!({"type": "error", "error": {"type": kind, "message": message}})
        }
        Some(Api::Gemini) => {
            let state = if limited { "RESOURCE_EXHAUSTED" } else { "UNAVAILABLE" };
            json!({"error": {"code": status.as_u16(), "message": message, "status": state}})
        }
        Some(Api::Responses | Api::ChatCompletions) | None => {
            // `insufficient_quota` is the code that OpenAI's own clients do not try again.
            let (kind, code) = match status {
                StatusCode::TOO_MANY_REQUESTS => ("insufficient_quota", "insufficient_quota"),
                StatusCode::NOT_FOUND => ("invalid_request_error", "not_found"),
                StatusCode::UPGRADE_REQUIRED => ("invalid_request_error", "upgrade_required"),
                _ => ("server_error", "bad_gateway"),
            };
            json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
        }
    }
}

// Who may stop a request before it is sent.

/// Asked once for each request that spends tokens, before its first byte goes upstream.
pub trait Gate: Send + Sync + 'static {
    /// Whether anything could be refused now. Then the gate sees the whole body of a request (up to
    /// [`crate::Settings::body_limit`]), which is read before the first byte goes upstream; and the agent is asked to use plain
    /// requests instead of a WebSocket, where a call could only be refused by closing. Else a request is passed on as it comes,
    /// and the gate is asked with its head.
    fn is_limiting(&self) -> bool {
        false
    }

    /// It may take its time: nothing but this request waits for it. Dropped, it is given up: the agent has gone.
    fn admit<'a>(&'a self, request: &'a Request) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Go,
    Refuse(Refusal),
}

/// Answered in the API's own form of an error, with status 429.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which rule, and how to go on: the agent shows it to its user.
    pub message: String,
    pub retry_after: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn body(response: &Response<Bytes>) -> Value {
        serde_json::from_slice(response.body()).unwrap()
    }

    #[test]
    fn errors_have_the_form_of_the_api() {
        let of = |api| body(&answer(api, StatusCode::BAD_GATEWAY, "no way"));
        assert_eq!(
            of(Some(Api::Messages)),
            json!({"type": "error", "error": {"type": "api_error", "message": "no way"}})
        );
        assert_eq!(of(Some(Api::Responses))["error"]["message"], "no way");
        assert_eq!(of(Some(Api::ChatCompletions))["error"]["type"], "server_error");
        assert_eq!(
            of(Some(Api::Gemini)),
            json!({"error": {"code": 502, "message": "no way", "status": "UNAVAILABLE"}})
        );
        assert_eq!(of(None)["error"]["code"], "bad_gateway");
    }

    #[test]
    fn a_refusal_is_not_to_be_tried_again() {
        let refusal = Refusal { message: "budget".to_owned(), retry_after: Some(Duration::from_secs(90)) };
        let answer = refused(Some(Api::Messages), &refusal);
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.headers()["retry-after"], "90");
        assert_eq!(answer.headers()["x-should-retry"], "false");
        assert_eq!(body(&answer)["error"]["type"], "rate_limit_error");
    }
}
