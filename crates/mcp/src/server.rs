//! The MCP server: requests in, tools called on threads of their own, answers and progress out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientRequest, GetMeta, Implementation,
    JsonObject, JsonRpcMessage, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ProgressToken, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc, watch};

use super::error::{ErrorCode, ToolError};
use super::tools::{Call, Tools};

/// Calls at once. An agent makes a handful; more is a flood, which must cost no memory.
const CALLS: usize = 32;

const INSTRUCTIONS: &str = "Starts coding agents in the background, each in a session of its own, and speaks with them. \
    start_session with a prompt, wait_for_session until its turn ends, get_session_data to read what it did, \
    send_message to go on, end_session when the work is done. A session that asks its user something is needs-input.";

pub struct SessionServer {
    tools: Arc<Tools>,
    listed: Vec<Tool>,
    calls: Arc<Semaphore>,
    /// True once the client has closed its end.
    closed: watch::Receiver<bool>,
}

impl SessionServer {
    pub fn new(tools: Tools, listed: Vec<Tool>, closed: watch::Receiver<bool>) -> Self {
        Self { tools: Arc::new(tools), listed, calls: Arc::new(Semaphore::new(CALLS)), closed }
    }

    async fn call(
        &self,
        name: String,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> Result<Value, ToolError> {
        let Ok(permit) = Arc::clone(&self.calls).try_acquire_owned() else {
            let message = format!("{CALLS} calls are under way already");
            return Err(ToolError::new(ErrorCode::Busy, message, "wait for their answers, then try again"));
        };
        let (tools, abandoned) = (Arc::clone(&self.tools), Arc::new(AtomicBool::new(false)));
        let (report, mut reports) = mpsc::unbounded_channel();
        let mut call = tokio::task::spawn_blocking({
            let abandoned = Arc::clone(&abandoned);
            move || {
                // A call that nobody waits for any more counts until it has ended.
                let _permit = permit;
                let report = |message| drop(report.send(message));
                tools.call(&name, arguments, &Call { abandoned: &abandoned, report: &report })
            }
        });
        let progress = Progress::of(&context);
        let mut closed = self.closed.clone();
        loop {
            tokio::select! {
                answer = &mut call => return answer.unwrap_or_else(|error| {
                    Err(ToolError::internal(format!("the call broke off: {error}")))
                }),
                Some(message) = reports.recv() => progress.notify(message).await,
                () = context.ct.cancelled() => break,
                _ = closed.changed() => break,
            }
        }
        abandoned.store(true, Ordering::Relaxed);
        Err(ToolError::new(
            ErrorCode::Busy,
            "the call was cancelled",
            "nothing; nobody waits for this answer",
        ))
    }
}

impl ServerHandler for SessionServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("codemie", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.listed.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.listed.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.into_owned();
        if self.get_tool(&name).is_none() {
            return Err(ErrorData::invalid_params(format!("there is no tool {name:?}"), None));
        }
        let answer = self.call(name, request.arguments.unwrap_or_default(), context).await;
        Ok(match answer {
            Ok(value) => CallToolResult::structured(value),
            Err(error) => CallToolResult::structured_error(serde_json::to_value(&error).unwrap_or_default()),
        }
        .into())
    }
}

/// Where a client wants to hear that a call goes on.
struct Progress {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    step: AtomicU64,
}

impl Progress {
    fn of(context: &RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        Self { peer: context.peer.clone(), token, step: AtomicU64::new(0) }
    }

    async fn notify(&self, message: String) {
        let Some(token) = self.token.clone() else { return };
        let step = self.step.fetch_add(1, Ordering::Relaxed) + 1;
        #[expect(clippy::cast_precision_loss, reason = "a count of parts of a wait")]
        let progress = ProgressNotificationParam::new(token, step as f64).with_message(message);
        if let Err(error) = self.peer.notify_progress(progress).await {
            tracing::debug!("progress was not reported: {error}");
        }
    }
}

// The client's messages on standard input and output.
//
// What comes before a client has opened the conversation and is no request is passed over, where the library would end the
// server. That the client has closed its end is made known at once, so that a tool that waits stops waiting.

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
