//! The frames between a host and its clients.
//!
//! A frame is a length (four bytes, little-endian, of what follows), a kind (one byte) and a body. Keys, output and key frames
//! are bytes as they are; every other body is the JSON of a plain struct. A field that is missing has its default, one that is
//! unknown is passed over, and a frame of an unknown kind is answered with [`FromHost::Refused`]: so a host of the previous
//! build and a client of this one understand each other. A host outlives the upgrade of the binary it was started from.

use serde::{Deserialize, Serialize};

use agents::dialog::Choice;

use types::{Activity, Delivery, LiveState, Moment, SessionId};

/// Raised when a frame changes its meaning. Both sides name theirs; a client speaks the older of the two.
pub const VERSION: u32 = 1;

/// The longest frame. A text to be sent is at most half of it.
pub const MAX_FRAME: usize = 2 << 20;

/// What clients say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToHost {
    Hello(Hello),
    Attach(Attach),
    Keys(Vec<u8>),
    Resize(Size),
    /// Ends an attachment in good order.
    Detach,
    State,
    /// The screen as text.
    Screen,
    Send(SendRequest),
    /// Makes a choice in the dialog on the screen; the answer is [`FromHost::Sent`].
    Answer(AnswerRequest),
    Wait(WaitRequest),
    Stop(StopRequest),
    /// The terminal itself, whose descriptor comes with this frame: the host is to read and write it without the viewer in
    /// between. From here on the viewer reads no keys, unless the host does not take it.
    HandOff(HandOff),
    /// Everything that came before [`FromHost::HandedOver`] is on the terminal: the host's turn.
    Shown,
}

/// What a host says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromHost {
    Welcome(Welcome),
    /// Bytes that draw the screen on an empty terminal, with its modes and the lines before it.
    KeyFrame(Vec<u8>),
    Output(Vec<u8>),
    State(LiveState),
    Screen(ScreenText),
    Sent(SendAnswer),
    Waited(WaitAnswer),
    Stopped(StopAnswer),
    /// The agent has ended; the last frame of an attachment.
    Ended(Ended),
    Refused(Refused),
    /// Whether the host takes the terminal. It writes nothing to it before [`ToHost::Shown`].
    HandedOver(HandedOver),
    /// The bytes that give back the terminal that was handed over, as of now.
    Undo(Vec<u8>),
    /// The chord was typed on the terminal that was handed over. The host does not touch it any more.
    Left,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Hello {
    pub version: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Welcome {
    pub version: u32,
    /// The build the host was started from.
    pub build: String,
    /// The session the run is in now.
    pub session: Option<SessionId>,
    /// Its name; empty where the host is older, or the START is not stored yet.
    pub name: String,
    /// Terminals can be handed over to this host.
    #[serde(skip_serializing_if = "is_false")]
    #[serde(rename = "borrows")]
    pub takes_terminals: bool,
    /// The host reads dialogs and makes choices in them. One of an earlier build does not.
    #[serde(skip_serializing_if = "is_false")]
    pub answers: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over like this")]
fn is_false(value: &bool) -> bool {
    !value
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Size {
    pub rows: u16,
    pub cols: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Attach {
    pub size: Size,
    pub read_only: bool,
}

/// The screen as text, for `view` and MCP before there is a conversation and while the agent asks something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ScreenText {
    pub rows: Vec<String>,
    /// What the agent asks on it, where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialog: Option<Dialog>,
}

/// What an agent asks on its screen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Dialog {
    /// It stands for this dialog alone: for its cells, and for this time that it is shown.
    pub hash: String,
    pub text: String,
    /// Empty where it cannot be answered by a number.
    pub choices: Vec<Choice>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AnswerRequest {
    /// The hash of the dialog that the choice belongs to.
    pub dialog: String,
    pub choice: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SendRequest {
    pub text: String,
    pub idempotency_key: Option<String>,
    pub timeout_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendAnswer {
    pub result: Delivery,
    pub why: String,
    /// The session the text went to.
    pub session: Option<SessionId>,
    /// For `wait`: the end of the turn that this text begins comes after it.
    pub cursor: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WaitRequest {
    /// Any of these; empty: any moment.
    pub until: Vec<Moment>,
    /// Only what came after it; without one, what holds already counts, too.
    pub cursor: Option<String>,
    pub timeout_ms: u64,
    /// Answered as soon as the agent does something else than this, too. A host of an earlier build passes it over and answers
    /// the moments alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlike: Option<Activity>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitAnswer {
    /// `None`: not yet; or only the state is another.
    pub result: Option<Moment>,
    pub session: Option<SessionId>,
    pub state: LiveState,
    pub cursor: String,
    /// The turn has ended, and its answer cannot be read. A host of an earlier build does not say it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub answer_missing: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StopRequest {
    pub grace_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StopAnswer {
    /// Processes that survived even KILL, as people know them; empty: everything is gone.
    pub survivors: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ended {
    /// The exit code as a shell reports it.
    pub code: u8,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Refused {
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HandOff {
    /// The keys that leave, as in the settings; empty: the usual ones.
    pub detach_keys: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HandedOver {
    pub taken: bool,
}
