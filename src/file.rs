//! What a file is, whatever it is called.

use serde::{Deserialize, Serialize};

/// Device and inode. A deleted file's inode is given to a later one, so who keeps this for long keeps a second mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}
