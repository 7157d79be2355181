//! Meters: modification, configuration, features, statistics (OpenFlow 1.3+).

use super::port::bits;
use crate::error::OfError;
use crate::wire::{Put, Reader};

/// Highest number of a meter that flows can name.
pub const METER_MAX: u32 = 0xffff_0000;
/// Virtual meters: packets that leave the fast path, and packets to controllers.
pub const METER_SLOWPATH: u32 = 0xffff_fffd;
pub const METER_CONTROLLER: u32 = 0xffff_fffe;
/// Every meter.
pub const METER_ALL: u32 = 0xffff_ffff;

bits! {
    /// OFPMF_*.
    MeterFlags {
        KBPS = 1 << 0,
        PKTPS = 1 << 1,
        BURST = 1 << 2,
        STATS = 1 << 3,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum MeterCommand {
    Add = 0,
    Modify = 1,
    Delete = 2,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BandKind {
    Drop,
    /// Lowers the DSCP's drop precedence by so much.
    DscpRemark {
        prec_level: u8,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Band {
    pub kind: BandKind,
    /// Kilobits or packets a second.
    pub rate: u32,
    /// Kilobits or packets.
    pub burst: u32,
}

/// A meter as it is configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterConfig {
    pub meter_id: u32,
    pub flags: MeterFlags,
    pub bands: Vec<Band>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterMod {
    pub command: MeterCommand,
    pub config: MeterConfig,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterStats {
    pub meter_id: u32,
    pub flow_count: u32,
    pub packets: u64,
    pub bytes: u64,
    pub duration_s: u32,
    pub duration_ns: u32,
    /// (packets, bytes) that each band took.
    pub bands: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MeterFeatures {
    pub max_meters: u32,
    /// Bit N: band type N.
    pub band_types: u32,
    pub capabilities: MeterFlags,
    pub max_bands: u8,
    pub max_color: u8,
}

const DROP: u16 = 1;
const DSCP_REMARK: u16 = 2;
const BAND_LEN: u16 = 16;

impl Band {
    fn decode(r: &mut Reader<'_>) -> Result<Band, OfError> {
        let (kind, len) = (r.u16()?, r.u16()?);
        // Each type that is known is of the same size.
        if len != BAND_LEN {
            return Err(OfError::BrcBadLen);
        }
        let (rate, burst, level) = (r.u32()?, r.u32()?, r.u8()?);
        r.skip(3)?;
        let kind = match kind {
            DROP => BandKind::Drop,
            DSCP_REMARK => BandKind::DscpRemark { prec_level: level },
            _ => return Err(OfError::MmfcBadBand),
        };
        Ok(Band { kind, rate, burst })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, level) = match self.kind {
            BandKind::Drop => (DROP, 0),
            BandKind::DscpRemark { prec_level } => (DSCP_REMARK, prec_level),
        };
        out.u16(kind).u16(BAND_LEN).u32(self.rate).u32(self.burst).u8(level).zero(3);
    }
}

fn bands(r: &mut Reader<'_>) -> Result<Vec<Band>, OfError> {
    let mut out = Vec::new();
    while !r.is_empty() {
        out.push(Band::decode(r)?);
    }
    Ok(out)
}

impl MeterMod {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<MeterMod, OfError> {
        let command = match r.u16()? {
            0 => MeterCommand::Add,
            1 => MeterCommand::Modify,
            2 => MeterCommand::Delete,
            _ => return Err(OfError::MmfcBadCommand),
        };
        let (flags, meter_id) = (MeterFlags(r.u16()?.into()), r.u32()?);
        let mut config = MeterConfig { meter_id, flags, bands: Vec::new() };
        if command == MeterCommand::Delete {
            // What else a deletion says does not matter.
            r.take_rest();
            config.flags = MeterFlags::default();
            return Ok(MeterMod { command, config });
        }
        // A rate has one unit.
        if flags.has(MeterFlags::KBPS.with(MeterFlags::PKTPS)) {
            return Err(OfError::MmfcBadFlags);
        }
        config.bands = bands(r)?;
        Ok(MeterMod { command, config })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u16(self.command as u16).u16(self.config.flags.0 as u16).u32(self.config.meter_id);
        self.config.bands.iter().for_each(|b| b.encode(out));
    }
}

impl MeterConfig {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<MeterConfig, OfError> {
        let len = usize::from(r.u16()?);
        let mut b = r.sub(len.checked_sub(2).ok_or(OfError::BrcBadLen)?)?;
        let (flags, meter_id) = (MeterFlags(b.u16()?.into()), b.u32()?);
        Ok(MeterConfig { meter_id, flags, bands: bands(&mut b)? })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0).u16(self.flags.0 as u16).u32(self.meter_id);
        self.bands.iter().for_each(|b| b.encode(out));
        let len = out.len() - start;
        out.set_u16(start, len as u16);
    }
}

impl MeterStats {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<MeterStats, OfError> {
        let meter_id = r.u32()?;
        let len = usize::from(r.u16()?);
        let mut b = r.sub(len.checked_sub(6).ok_or(OfError::BrcBadLen)?)?;
        b.skip(6)?;
        let mut s = MeterStats { meter_id, flow_count: b.u32()?, ..MeterStats::default() };
        (s.packets, s.bytes) = (b.u64()?, b.u64()?);
        (s.duration_s, s.duration_ns) = (b.u32()?, b.u32()?);
        while !b.is_empty() {
            s.bands.push((b.u64()?, b.u64()?));
        }
        Ok(s)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u32(self.meter_id).u16(0).zero(6).u32(self.flow_count).u64(self.packets).u64(self.bytes);
        out.u32(self.duration_s).u32(self.duration_ns);
        self.bands.iter().for_each(|(p, n)| out.u64(*p).u64(*n).done());
        let len = out.len() - start;
        out.set_u16(start + 4, len as u16);
    }
}

impl MeterFeatures {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<MeterFeatures, OfError> {
        let f = MeterFeatures {
            max_meters: r.u32()?,
            band_types: r.u32()?,
            capabilities: MeterFlags(r.u32()?),
            max_bands: r.u8()?,
            max_color: r.u8()?,
        };
        // OpenFlow 1.5 adds features that nobody has.
        r.take_rest();
        Ok(f)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.max_meters).u32(self.band_types).u32(self.capabilities.0);
        out.u8(self.max_bands).u8(self.max_color).zero(2);
    }
}
