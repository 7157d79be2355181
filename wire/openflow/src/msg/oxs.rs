//! Statistics as type-length-value entries (OpenFlow 1.5): flow statistics, sums and removals.

use crate::error::OfError;
use crate::wire::{Put, Reader};

/// The basic class, and its fields.
const CLASS: u16 = 0x8002;
const DURATION: u8 = 0;
const IDLE_TIME: u8 = 1;
const FLOW_COUNT: u8 = 3;
const PACKET_COUNT: u8 = 4;
const BYTE_COUNT: u8 = 5;

/// What was said; None was not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stats {
    /// Seconds and nanoseconds.
    pub duration: Option<(u32, u32)>,
    pub idle_s: Option<u32>,
    pub flows: Option<u32>,
    pub packets: Option<u64>,
    pub bytes: Option<u64>,
}

impl Stats {
    /// Takes the block and its padding. Entries that are not known are skipped.
    pub fn pull(r: &mut Reader<'_>) -> Result<Stats, OfError> {
        let whole = r.rest();
        let mut head = Reader::body(whole);
        head.skip(2)?;
        let len = usize::from(head.u16()?);
        let mut b = Reader::body(whole.get(4..len).ok_or(OfError::BrcBadLen)?);
        r.skip(len.next_multiple_of(8))?;
        let mut s = Stats::default();
        while !b.is_empty() {
            let (class, field, len) = (b.u16()?, b.u8()? >> 1, b.u8()?);
            let mut v = b.sub(len.into())?;
            if class != CLASS {
                continue;
            }
            match field {
                DURATION => s.duration = Some((v.u32()?, v.u32()?)),
                IDLE_TIME => s.idle_s = Some(v.u32()?),
                FLOW_COUNT => s.flows = Some(v.u32()?),
                PACKET_COUNT => s.packets = Some(v.u64()?),
                BYTE_COUNT => s.bytes = Some(v.u64()?),
                _ => {}
            }
        }
        Ok(s)
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let head = |out: &mut Vec<u8>, field: u8, len: u8| out.u16(CLASS).u8(field << 1).u8(len).done();
        out.u16(0).u16(0);
        if let Some((s, ns)) = self.duration {
            head(out, DURATION, 8);
            out.u32(s).u32(ns);
        }
        if let Some(s) = self.idle_s {
            head(out, IDLE_TIME, 8);
            out.u32(s).u32(0);
        }
        for (field, v) in [(PACKET_COUNT, self.packets), (BYTE_COUNT, self.bytes)] {
            if let Some(v) = v {
                head(out, field, 8);
                out.u64(v);
            }
        }
        if let Some(n) = self.flows {
            head(out, FLOW_COUNT, 4);
            out.u32(n);
        }
        let len = out.len() - start;
        out.set_u16(start + 2, len as u16);
        out.pad8(start);
    }
}

/// A counter that is known.
pub(crate) fn known(v: u64) -> Option<u64> {
    (v != u64::MAX).then_some(v)
}
