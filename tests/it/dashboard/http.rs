//! One question to a server, as a browser with these headers would ask it.

use std::net::SocketAddr;

use crate::backend::client::{self, Client};

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    whole: client::Answer,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.whole.header(name)
    }
}

pub(super) fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let anybody = Client { address, token: String::new() };
    let answer = anybody.ask(method, path, headers, body.as_bytes()).unwrap();
    Answer { status: answer.status, body: String::from_utf8_lossy(&answer.body).into_owned(), whole: answer }
}
