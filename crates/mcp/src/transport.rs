//! The client's messages on standard input and output.
//!
//! What comes before a client has opened the conversation and is no request is passed over, where the library would end the
//! server. That the client has closed its end is made known at once, so that a tool that waits stops waiting.

use rmcp::RoleServer;
use rmcp::model::{ClientRequest, GetMeta, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::watch;

#[derive(Debug)]
pub struct ClientMessages<T> {
    inner: T,
    opened: bool,
    closed: watch::Sender<bool>,
}

impl<T: Transport<RoleServer>> ClientMessages<T> {
    pub fn new(inner: T, closed: watch::Sender<bool>) -> Self {
        Self { inner, opened: false, closed }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for ClientMessages<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let Some(message) = self.inner.receive().await else {
                self.closed.send_replace(true);
                return None;
            };
            if let JsonRpcMessage::Request(request) = &message {
                // A newer client initializes nothing and describes itself with every request.
                self.opened |= matches!(request.request, ClientRequest::InitializeRequest(_))
                    || request.request.get_meta().protocol_version().is_some();
                return Some(message);
            }
            if self.opened {
                return Some(message);
            }
            tracing::debug!("passed over a message before the client's first request");
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
