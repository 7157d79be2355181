//! Bundles: several messages that take effect together.

use super::codec::{DecodeCx, EncodeError, HEADER_LEN, RawHeader};
use super::{Body, Message};
use crate::error::OfError;
use crate::version::Version;
use crate::wire::{Put, Reader};

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

impl BundleControlKind {
    const ALL: [BundleControlKind; 8] = [
        BundleControlKind::OpenRequest,
        BundleControlKind::OpenReply,
        BundleControlKind::CloseRequest,
        BundleControlKind::CloseReply,
        BundleControlKind::CommitRequest,
        BundleControlKind::CommitReply,
        BundleControlKind::DiscardRequest,
        BundleControlKind::DiscardReply,
    ];

    pub fn is_request(self) -> bool {
        (self as u16).is_multiple_of(2)
    }

    /// The answer to a request; a reply answers itself.
    pub fn reply(self) -> BundleControlKind {
        Self::ALL[self as usize | 1]
    }
}

/// Flags that mean something.
fn flags(f: u16) -> Result<u16, OfError> {
    if f & !(BUNDLE_ATOMIC | BUNDLE_ORDERED) != 0 { Err(OfError::BfcBadFlags) } else { Ok(f) }
}

impl BundleControl {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<BundleControl, OfError> {
        let (bundle_id, kind) = (r.u32()?, r.u16()?);
        let kind = *BundleControlKind::ALL.get(usize::from(kind)).ok_or(OfError::BfcBadType)?;
        let flags = flags(r.u16()?)?;
        // Properties are experimenters' only.
        r.take_rest();
        Ok(BundleControl { bundle_id, kind, flags })
    }
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.bundle_id).u16(self.kind as u16).u16(self.flags);
    }
}

impl BundleAdd {
    /// What may be in a bundle: changes of flows, groups and ports, and packet-outs.
    fn is_bundlable(body: &Body) -> bool {
        matches!(
            body,
            Body::FlowMod(_) | Body::NxFlowMod(_) | Body::GroupMod(_) | Body::PortMod(_) | Body::PacketOut(_)
        )
    }

    /// `xid` is that of the message that carries it.
    pub(crate) fn decode(v: Version, xid: u32, r: &mut Reader<'_>, cx: &DecodeCx) -> Result<BundleAdd, OfError> {
        let bundle_id = r.u32()?;
        r.skip(2)?;
        let raw_flags = r.u16()?;
        let inner = r.rest();
        let h = RawHeader::peek(inner).ok_or(OfError::BfcMsgBadLen)?;
        if h.version != v.wire() {
            return Err(OfError::BfcBadVersion);
        }
        let len = usize::from(h.len);
        if len < HEADER_LEN || len > inner.len() {
            return Err(OfError::BfcMsgBadLen);
        }
        if h.xid != xid {
            return Err(OfError::BfcMsgBadXid);
        }
        let flags = flags(raw_flags)?;
        // Only a change may be inside: that also bounds the recursion, a bundle holds no bundle.
        if !is_bundlable_type(h.kind, inner) {
            return Err(OfError::BfcMsgUnsup);
        }
        let msg = Message::decode(&inner[..len], cx)?;
        r.take_rest();
        if !Self::is_bundlable(&msg.body) {
            return Err(OfError::BfcMsgUnsup);
        }
        Ok(BundleAdd { bundle_id, flags, msg })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.u32(self.bundle_id).zero(2).u16(self.flags).put(&self.msg.encode()?);
        Ok(())
    }
}

/// The message that a valid bundle-add holds.
pub fn inner_message(add: &[u8]) -> Option<&[u8]> {
    let h = RawHeader::peek(add)?;
    // The extension for 1.3 has a header more.
    let at = if h.version == Version::V13.wire() { 24 } else { 16 };
    let inner = add.get(at..)?;
    inner.get(..usize::from(RawHeader::peek(inner)?.len))
}

/// By the header alone: packet-out, flow-mod, group-mod, port-mod, Nicira's flow-mod.
fn is_bundlable_type(kind: u8, msg: &[u8]) -> bool {
    match kind {
        13..=16 => true,
        4 => msg.get(8..16) == Some(&[0, 0, 0x23, 0x20, 0, 0, 0, 13]),
        _ => false,
    }
}
