//! Bundles: several messages that take effect together.

use super::Message;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum BundleControlKind {
    OpenRequest = 0,
    OpenReply = 1,
    CloseRequest = 2,
    CloseReply = 3,
    CommitRequest = 4,
    CommitReply = 5,
    DiscardRequest = 6,
    DiscardReply = 7,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BundleControl {
    pub bundle_id: u32,
    pub kind: BundleControlKind,
    pub flags: u16,
}

/// All or nothing.
pub const BUNDLE_ATOMIC: u16 = 1;
/// In the order of addition.
pub const BUNDLE_ORDERED: u16 = 2;

#[derive(Clone, PartialEq, Debug)]
pub struct BundleAdd {
    pub bundle_id: u32,
    pub flags: u16,
    pub msg: Message,
}
