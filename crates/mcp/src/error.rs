//! What a tool answers when it cannot do what it was asked: a code for programs, a message, and what to do next.

use rmcp::schemars::JsonSchema;
use serde::Serialize;

use report::conversation::ConversationError;
use report::find::FindError;
use report::wait::WaitError;
use runtime::remote::RemoteError;
use runtime::remote::send::SendError;
use types::spelled;

spelled!(
    /// Why a tool refused or failed. Callers decide by it, so a code keeps its meaning.
    ErrorCode {
        InvalidArguments = "invalid_arguments",
        /// There is none, or it is outside the caller's scope: the answer is the same, so that a caller cannot find out about
        /// sessions that it may not see.
        NoSuchSession = "no_such_session",
        Ambiguous = "ambiguous",
        ScopeTooWide = "scope_too_wide",
        UnknownAgent = "unknown_agent",
        FolderNotAllowed = "folder_not_allowed",
        ArgumentNotAllowed = "argument_not_allowed",
        TextNotAllowed = "text_not_allowed",
        TooManySessions = "too_many_sessions",
        TooDeep = "too_deep",
        KeyReused = "key_reused",
        StartFailed = "start_failed",
        /// Whether it was started is not known yet.
        StartUnknown = "start_unknown",
        AlreadyRunning = "already_running",
        NotResumable = "not_resumable",
        /// It runs in somebody's terminal, where only that person can speak to it.
        Foreground = "foreground",
        Ended = "ended",
        StaleCursor = "stale_cursor",
        Unreadable = "conversation_unreadable",
        HostSilent = "host_silent",
        Refused = "refused",
        Busy = "busy",
        StoreUnavailable = "store_unavailable",
        Internal = "internal",
    }
);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, thiserror::Error)]
#[schemars(crate = "rmcp::schemars")]
#[error("{code}: {message}; {next}")]
pub struct ToolError {
    #[schemars(with = "String")]
    /// Why, in one word that keeps its meaning
    pub code: ErrorCode,
    /// Why, in words
    pub message: String,
    /// What the caller can do about it
    pub next: String,
}

impl ToolError {
    pub fn new(code: ErrorCode, message: impl Into<String>, next: impl Into<String>) -> Self {
        Self { code, message: message.into(), next: next.into() }
    }

    pub fn no_such_session(wanted: &str, resembling: &[String]) -> Self {
        let next = if resembling.is_empty() {
            "list_sessions shows the sessions there are; give an id, a whole name, or at least 4 characters of an id"
                .to_owned()
        } else {
            format!("did you mean {}?", resembling.join(", "))
        };
        Self::new(ErrorCode::NoSuchSession, format!("there is no session {wanted:?}"), next)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message, "try again; the log in $CODEMIE_HOME/logs may tell more")
    }
}

impl From<store::Error> for ToolError {
    fn from(error: store::Error) -> Self {
        Self::new(
            ErrorCode::StoreUnavailable,
            format!("the sessions' database cannot be read: {error}"),
            "try again; `codemie doctor` on this machine shows what is wrong",
        )
    }
}

impl From<FindError> for ToolError {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Unknown { wanted, .. } => Self::no_such_session(&wanted, &[]),
            FindError::Several(several) => {
                Self::new(ErrorCode::Ambiguous, several.to_string(), "give the whole id of one of them")
            }
            FindError::Unwrapped(foreign) => Self::no_such_session(&foreign.agent_session.0, &[]),
            FindError::Store(error) => error.into(),
        }
    }
}

impl From<RemoteError> for ToolError {
    fn from(error: RemoteError) -> Self {
        let (code, next) = match &error {
            RemoteError::NoHost => (
                ErrorCode::Foreground,
                "speak to it in the terminal it runs in, or read it with get_session_data",
            ),
            RemoteError::Refused(_) => (ErrorCode::Refused, "change the request, or read the session first"),
            RemoteError::Silent(_) | RemoteError::Closed | RemoteError::Frame(_) => {
                (ErrorCode::HostSilent, "look at the session with list_sessions, then try again")
            }
        };
        Self::new(code, error.to_string(), next)
    }
}

impl From<SendError> for ToolError {
    fn from(error: SendError) -> Self {
        let (code, message, next) = match error {
            SendError::Remote(error) => return error.into(),
            SendError::Store(error) => return error.into(),
            error @ SendError::Text(_) => (ErrorCode::TextNotAllowed, error.to_string(), "change the text"),
            error @ SendError::Key => (ErrorCode::InvalidArguments, error.to_string(), "use another key"),
            // Which other session that was is not for this caller to know.
            SendError::OtherText(_) | SendError::OtherSession { .. } => (
                ErrorCode::KeyReused,
                "the idempotency key was used for another message".to_owned(),
                "use a new key for a new message",
            ),
        };
        Self::new(code, message, next)
    }
}

impl From<WaitError> for ToolError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Remote(error) => error.into(),
            WaitError::Store(error) => error.into(),
            WaitError::Nothing | WaitError::Io(_) => Self::internal(error.to_string()),
        }
    }
}

impl From<ConversationError> for ToolError {
    fn from(error: ConversationError) -> Self {
        if let ConversationError::Transcript(_) = &error {
            let message = "the cursor is not of this conversation's file, which may have been replaced";
            return Self::new(ErrorCode::StaleCursor, message, "leave cursor out, or begin with \"start\"");
        }
        Self::new(
            ErrorCode::Unreadable,
            error.to_string(),
            "try again; that a conversation cannot be read does not mean that the session has ended",
        )
    }
}
