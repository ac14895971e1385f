//! Refusals: a status, a sentence, and where it helps a time to come back.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::health::reason;
use crate::event::BadBatch;
use crate::unpack::{self, BadBody};

#[derive(Debug)]
pub(super) enum Refusal {
    BadRequest(String),
    NoToken,
    Forbidden,
    NotFound(&'static str),
    TooLarge(String),
    UnknownEncoding,
    TooSlow,
    TooOften(Duration),
    /// Too much at once, or the database is away.
    Busy(&'static str),
    Broken,
}

impl From<reader::Error> for Refusal {
    fn from(error: reader::Error) -> Self {
        tracing::error!(%error, "the database did not do what it was asked");
        match error {
            reader::Error::Unavailable(_) => Self::Busy("the database does not answer; try again"),
            reader::Error::Full(_) | reader::Error::ReadOnly(_) => Self::Busy(reason(&error)),
            _ => Self::Broken,
        }
    }
}

impl From<BadBatch> for Refusal {
    fn from(bad: BadBatch) -> Self {
        match bad {
            BadBatch::NoArray => Self::BadRequest(bad.to_string()),
            BadBatch::TooMany(_) => Self::TooLarge(bad.to_string()),
        }
    }
}

impl From<BadBody> for Refusal {
    fn from(bad: BadBody) -> Self {
        match bad {
            BadBody::TooLarge => Self::TooLarge(bad.to_string()),
            BadBody::Broken => Self::BadRequest(bad.to_string()),
            BadBody::NoRoom => Self::Busy("too much at once; try again"),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, error) = match &self {
            Self::BadRequest(error) => (StatusCode::BAD_REQUEST, error.clone()),
            Self::NoToken => {
                (StatusCode::UNAUTHORIZED, "send a token: Authorization: Bearer TOKEN".to_owned())
            }
            Self::Forbidden => (StatusCode::FORBIDDEN, "this token is for something else".to_owned()),
            Self::NotFound(what) => (StatusCode::NOT_FOUND, format!("there is no such {what}")),
            Self::TooLarge(error) => (StatusCode::PAYLOAD_TOO_LARGE, error.clone()),
            Self::UnknownEncoding => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("Content-Encoding is one of {}", unpack::ACCEPTED),
            ),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body came too slowly".to_owned()),
            Self::TooOften(_) => {
                (StatusCode::TOO_MANY_REQUESTS, "too many requests with this token".to_owned())
            }
            Self::Busy(error) => (StatusCode::SERVICE_UNAVAILABLE, (*error).to_owned()),
            Self::Broken => {
                (StatusCode::INTERNAL_SERVER_ERROR, "the server failed; its log says why".to_owned())
            }
        };
        let mut response = (status, Json(json!({"error": error}))).into_response();
        let headers = response.headers_mut();
        match self {
            Self::NoToken => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::UnknownEncoding => {
                headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(unpack::ACCEPTED));
            }
            Self::TooOften(wait) => {
                // Whole seconds, and never none.
                headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
            }
            Self::Busy(_) => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            }
            _ => {}
        }
        response
    }
}
