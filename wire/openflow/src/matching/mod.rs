//! Matches on the wire: OpenFlow 1.0's fixed form, 1.1's fixed form, and NXM/OXM.

pub mod nxm;
pub mod ofp10;
pub mod ofp11;

use crate::error::OfError;
use crate::version::Version;
use crate::wire::{Put, Reader};
use fv_flow::Match;

/// `OFPMT_STANDARD`: the fixed form of OpenFlow 1.1.
const OFPMT_STANDARD: u16 = 0;
/// `OFPMT_OXM`.
const OFPMT_OXM: u16 = 1;

/// Takes the match of a 1.1+ message, with its padding. `loose` skips fields that are not known and
/// prerequisites that do not hold.
pub(crate) fn pull(r: &mut Reader<'_>, loose: bool) -> Result<nxm::Decoded, OfError> {
    let whole = r.rest();
    let mut head = Reader::new(whole, OfError::BmcBadLen);
    let kind = head.u16()?;
    let len = usize::from(head.u16()?);
    match kind {
        OFPMT_STANDARD => {
            if len != ofp11::LEN {
                return Err(OfError::BmcBadLen);
            }
            Ok(nxm::Decoded {
                match_: ofp11::decode(&r.array().map_err(|_| OfError::BmcBadLen)?)?,
                ..Default::default()
            })
        }
        OFPMT_OXM => {
            let body = whole.get(4..len).ok_or(OfError::BmcBadLen)?;
            r.skip(len.next_multiple_of(8)).map_err(|_| OfError::BmcBadLen)?;
            let mode = if loose { nxm::Mode::Loose } else { nxm::Mode::Strict };
            nxm::decode(body, mode, true)
        }
        _ => Err(OfError::BmcBadType),
    }
}

/// As [`put`], but in 1.1 too as entries: what its flow statistics carry.
pub(crate) fn put_entries(out: &mut Vec<u8>, m: &Match, version: Version) {
    let start = out.len();
    out.u16(OFPMT_OXM).u16(0);
    nxm::encode(out, m, Some(version), None);
    let len = out.len() - start;
    out.set_u16(start + 2, len as u16);
    out.pad8(start);
}

/// Writes the match of a 1.1+ message, with its padding.
pub(crate) fn put(out: &mut Vec<u8>, m: &Match, version: Version) {
    if version == Version::V11 {
        out.put(&ofp11::encode(m));
        return;
    }
    put_entries(out, m, version);
}
