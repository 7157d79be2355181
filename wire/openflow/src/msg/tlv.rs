//! Nicira's table of tunnel options: which option of a tunnel's header is which `tun_metadata` field.

use crate::error::OfError;
use crate::wire::{Put, Reader};

/// `tun_metadata` fields.
pub const MAX_FIELDS: u16 = 64;
/// Bytes that all mapped options may have.
pub const MAX_OPTION_SPACE: u32 = 256;
/// Bytes of one option, a multiple of 4.
const MAX_OPTION_LEN: u8 = 124;

/// One option.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TlvMap {
    pub class: u16,
    pub kind: u8,
    /// In bytes.
    pub len: u8,
    /// The field's number.
    pub index: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlvCommand {
    Add,
    Delete,
    Clear,
}

/// NXT_TLV_TABLE_MOD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlvTableMod {
    pub command: TlvCommand,
    pub maps: Vec<TlvMap>,
}

/// NXT_TLV_TABLE_REPLY.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlvTableReply {
    pub max_option_space: u32,
    pub max_fields: u16,
    pub maps: Vec<TlvMap>,
}

fn pull_maps(r: &mut Reader<'_>) -> Result<Vec<TlvMap>, OfError> {
    let mut maps = Vec::new();
    while !r.is_empty() {
        let m = TlvMap { class: r.u16()?, kind: r.u8()?, len: r.u8()?, index: r.u16()? };
        r.skip(2)?;
        if !m.len.is_multiple_of(4) || m.len > MAX_OPTION_LEN {
            return Err(OfError::NxTtmfcBadOptLen);
        }
        if m.index >= MAX_FIELDS {
            return Err(OfError::NxTtmfcBadFieldIdx);
        }
        maps.push(m);
    }
    Ok(maps)
}

fn put_maps(out: &mut Vec<u8>, maps: &[TlvMap]) {
    for m in maps {
        out.u16(m.class).u8(m.kind).u8(m.len).u16(m.index).zero(2);
    }
}

impl TlvTableMod {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<TlvTableMod, OfError> {
        let command = match r.u16()? {
            0 => TlvCommand::Add,
            1 => TlvCommand::Delete,
            2 => TlvCommand::Clear,
            _ => return Err(OfError::NxTtmfcBadCommand),
        };
        r.skip(6)?;
        Ok(TlvTableMod { command, maps: pull_maps(r)? })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u16(self.command as u16).zero(6);
        put_maps(out, &self.maps);
    }
}

impl TlvTableReply {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<TlvTableReply, OfError> {
        let (max_option_space, max_fields) = (r.u32()?, r.u16()?);
        r.skip(10)?;
        Ok(TlvTableReply { max_option_space, max_fields, maps: pull_maps(r)? })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.max_option_space).u16(self.max_fields).zero(10);
        put_maps(out, &self.maps);
    }
}
