//! Ports: their description, status messages, modification, statistics.

use crate::error::OfError;
use crate::matching::ofp11;
use crate::version::Version;
use crate::wire::{Prop, Put, Reader, put_prop, text};
use fv_core::OfPort;

/// Description of one port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Port {
    pub port_no: OfPort,
    pub hw_addr: [u8; 6],
    /// At most 15 bytes in OpenFlow, longer ones are cut.
    pub name: String,
    pub config: PortConfig,
    pub state: PortState,
    pub curr: PortFeatures,
    pub advertised: PortFeatures,
    pub supported: PortFeatures,
    pub peer: PortFeatures,
    pub curr_speed_kbps: u32,
    pub max_speed_kbps: u32,
}

macro_rules! bits {
    ($(#[$m:meta])* $name:ident { $($(#[$fm:meta])* $c:ident = $v:expr),* $(,)? }) => {
        $(#[$m])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name(pub u32);
        impl $name {
            $($(#[$fm])* pub const $c: $name = $name($v);)*
            pub const fn has(self, o: $name) -> bool {
                self.0 & o.0 == o.0
            }
            pub const fn any(self, o: $name) -> bool {
                self.0 & o.0 != 0
            }
            #[must_use]
            pub const fn with(self, o: $name) -> $name {
                $name(self.0 | o.0)
            }
            #[must_use]
            pub const fn without(self, o: $name) -> $name {
                $name(self.0 & !o.0)
            }
            #[must_use]
            pub const fn set(self, o: $name, on: bool) -> $name {
                if on { self.with(o) } else { self.without(o) }
            }
        }
    };
}
pub(crate) use bits;

bits! {
    /// OFPPC_* (the numbers agree in all versions; some versions lack some).
    PortConfig {
        PORT_DOWN = 1 << 0,
        NO_STP = 1 << 1,
        NO_RECV = 1 << 2,
        NO_RECV_STP = 1 << 3,
        NO_FLOOD = 1 << 4,
        NO_FWD = 1 << 5,
        NO_PACKET_IN = 1 << 6,
    }
}

bits! {
    /// OFPPS_* as OpenFlow 1.1 numbers them, and OpenFlow 1.0's STP state in bits 8 and 9.
    PortState {
        LINK_DOWN = 1 << 0,
        BLOCKED = 1 << 1,
        LIVE = 1 << 2,
        STP_LISTEN = 0 << 8,
        STP_LEARN = 1 << 8,
        STP_FORWARD = 2 << 8,
        STP_BLOCK = 3 << 8,
        STP_MASK = 3 << 8,
    }
}

bits! {
    /// Speeds and modes of a link, in the numbers of OpenFlow 1.1+ (1.0 lacks 40 Gbps to OTHER).
    PortFeatures {
        M10_HD = 1 << 0,
        M10_FD = 1 << 1,
        M100_HD = 1 << 2,
        M100_FD = 1 << 3,
        G1_HD = 1 << 4,
        G1_FD = 1 << 5,
        G10_FD = 1 << 6,
        G40_FD = 1 << 7,
        G100_FD = 1 << 8,
        T1_FD = 1 << 9,
        OTHER = 1 << 10,
        COPPER = 1 << 11,
        FIBER = 1 << 12,
        AUTONEG = 1 << 13,
        PAUSE = 1 << 14,
        PAUSE_ASYM = 1 << 15,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PortReason {
    Add = 0,
    Delete = 1,
    Modify = 2,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortStatus {
    pub reason: PortReason,
    pub desc: Port,
}

/// Changes the bits of `mask` in a port's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortMod {
    pub port_no: OfPort,
    /// Must be the port's address; 1.4+ allow zero for "do not check".
    pub hw_addr: [u8; 6],
    pub config: PortConfig,
    pub mask: PortConfig,
    /// Zero bits leave the advertised features alone.
    pub advertise: PortFeatures,
}

/// Counters of one port; what is not known is `u64::MAX`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortStats {
    pub port_no: OfPort,
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_frame_err: u64,
    pub rx_over_err: u64,
    pub rx_crc_err: u64,
    pub collisions: u64,
    /// OpenFlow 1.3+.
    pub duration_ns: Option<u64>,
    /// Counters of this kind of port alone, by name (OpenFlow 1.4+).
    pub custom: Vec<(String, u64)>,
}

/// Counters of one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueStats {
    pub port_no: OfPort,
    pub queue: u32,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    pub duration_ns: Option<u64>,
}

impl PortStats {
    /// Nothing is known.
    pub fn unknown(port_no: OfPort) -> PortStats {
        let u = u64::MAX;
        PortStats {
            port_no,
            rx_packets: u,
            tx_packets: u,
            rx_bytes: u,
            tx_bytes: u,
            rx_dropped: u,
            tx_dropped: u,
            rx_errors: u,
            tx_errors: u,
            rx_frame_err: u,
            rx_over_err: u,
            rx_crc_err: u,
            collisions: u,
            duration_ns: None,
            custom: Vec::new(),
        }
    }
}

/// Speeds and modes in 1.0's numbers: no 40 Gbps to OTHER, the rest three lower.
fn features_in(f: u32, v: Version) -> PortFeatures {
    PortFeatures(if v == Version::V10 { f & 0x7f | (f & 0xf80) << 4 } else { f & 0xffff })
}
fn features_out(f: PortFeatures, v: Version) -> u32 {
    if v == Version::V10 { f.0 & 0x7f | (f.0 & 0xf800) >> 4 } else { f.0 }
}

/// Configuration bits that the version has.
fn config_bits(v: Version) -> u32 {
    if v == Version::V10 { 0x7f } else { 0x65 }
}
fn state_bits(v: Version) -> u32 {
    if v == Version::V10 { PortState::LINK_DOWN.0 | PortState::STP_MASK.0 } else { 7 }
}

/// A port number as the version writes it.
pub(crate) fn pull_port(v: Version, r: &mut Reader<'_>) -> Result<OfPort, OfError> {
    if v == Version::V10 { Ok(OfPort::from_u16(r.u16()?)) } else { ofp11::port(r.u32()?) }
}

impl Port {
    /// Longest description of 1.0 to 1.2.
    pub(crate) const FIXED_MAX: usize = 64;

    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<Port, OfError> {
        let whole = r.rest();
        let mut p = Port { port_no: pull_port(v, r)?, ..Default::default() };
        let mut len = whole.len();
        if v >= Version::V14 {
            len = r.u16()?.into();
            r.skip(2)?;
        } else if v > Version::V10 {
            r.skip(4)?;
        }
        p.hw_addr = r.array()?;
        if v > Version::V10 {
            r.skip(2)?;
        }
        p.name = text(r.bytes(16)?);
        p.config = PortConfig(r.u32()? & config_bits(v));
        p.state = PortState(r.u32()? & state_bits(v));
        if v < Version::V14 {
            p.pull_ethernet(v, r)?;
            return Ok(p);
        }
        let used = whole.len() - r.len();
        let mut props = r.sub(len.checked_sub(used).ok_or(OfError::BrcBadLen)?)?;
        while !props.is_empty() {
            let mut prop = Prop::pull(&mut props)?;
            if prop.kind == 0 {
                prop.body.skip(4)?;
                p.pull_ethernet(v, &mut prop.body)?;
            }
        }
        Ok(p)
    }

    fn pull_ethernet(&mut self, v: Version, r: &mut Reader<'_>) -> Result<(), OfError> {
        self.curr = features_in(r.u32()?, v);
        self.advertised = features_in(r.u32()?, v);
        self.supported = features_in(r.u32()?, v);
        self.peer = features_in(r.u32()?, v);
        if v > Version::V10 {
            (self.curr_speed_kbps, self.max_speed_kbps) = (r.u32()?, r.u32()?);
        }
        Ok(())
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        let start = out.len();
        match v {
            Version::V10 => out.u16(self.port_no.to_u16().unwrap_or(0xffff)),
            Version::V14 | Version::V15 => out.u32(self.port_no.0).u16(0).zero(2),
            _ => out.u32(self.port_no.0).zero(4),
        };
        out.put(&self.hw_addr).zero(if v == Version::V10 { 0 } else { 2 }).text(&self.name, 16);
        out.u32(self.config.0 & config_bits(v)).u32(self.state.0 & state_bits(v));
        if v < Version::V14 {
            return self.put_ethernet(out, v);
        }
        put_prop(out, 0, |o| {
            o.zero(4);
            self.put_ethernet(o, v);
        });
        let len = out.len() - start;
        out.set_u16(start + 4, len as u16);
    }

    fn put_ethernet(&self, out: &mut Vec<u8>, v: Version) {
        for f in [self.curr, self.advertised, self.supported, self.peer] {
            out.u32(features_out(f, v));
        }
        if v > Version::V10 {
            out.u32(self.curr_speed_kbps).u32(self.max_speed_kbps);
        }
    }
}

impl PortStatus {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<PortStatus, OfError> {
        let reason = match r.u8()? {
            0 => PortReason::Add,
            1 => PortReason::Delete,
            2 => PortReason::Modify,
            _ => return Err(OfError::NxBrcBadReason),
        };
        r.skip(7)?;
        Ok(PortStatus { reason, desc: Port::decode(v, r)? })
    }
    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        out.u8(self.reason as u8).zero(7);
        self.desc.encode(out, v);
    }
}

impl PortMod {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<PortMod, OfError> {
        let v10 = v == Version::V10;
        let port_no = pull_port(v, r)?;
        r.skip(if v10 { 0 } else { 4 })?;
        let hw_addr = r.array()?;
        r.skip(if v10 { 0 } else { 2 })?;
        let bits = config_bits(v);
        let (config, mask) = (PortConfig(r.u32()? & bits), PortConfig(r.u32()? & bits));
        let mut m = PortMod { port_no, hw_addr, config, mask, advertise: PortFeatures::default() };
        if v < Version::V14 {
            m.advertise = features_in(r.u32()?, v);
            r.skip(4)?;
        }
        while v >= Version::V14 && !r.is_empty() {
            let mut p = Prop::pull(r)?;
            match p.kind {
                0 => m.advertise = features_in(p.body.u32()?, v),
                _ => return Err(p.unknown()),
            }
        }
        Ok(m)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        let bits = config_bits(v);
        if v == Version::V10 {
            out.u16(self.port_no.to_u16().unwrap_or(0xffff)).put(&self.hw_addr);
        } else {
            out.u32(self.port_no.0).zero(4).put(&self.hw_addr).zero(2);
        }
        out.u32(self.config.0 & bits).u32(self.mask.0 & bits);
        let advertise = features_out(self.advertise, v);
        if v < Version::V14 {
            out.u32(advertise).zero(4);
        } else if advertise != 0 {
            put_prop(out, 0, |o| o.u32(advertise).done());
        }
    }
}

impl PortStats {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<PortStats, OfError> {
        let mut s = PortStats::unknown(OfPort::NONE);
        if v >= Version::V14 {
            return s.decode_props(v, r).map(|()| s);
        }
        s.port_no = pull_port(v, r)?;
        r.skip(if v == Version::V10 { 6 } else { 4 })?;
        for c in s.counters_mut() {
            *c = r.u64()?;
        }
        if v >= Version::V13 {
            s.duration_ns = duration_in(r)?;
        }
        Ok(s)
    }

    fn decode_props(&mut self, v: Version, r: &mut Reader<'_>) -> Result<(), OfError> {
        let len = usize::from(r.u16()?);
        let mut b = r.sub(len.checked_sub(2).ok_or(OfError::BrcBadLen)?)?;
        b.skip(2)?;
        self.port_no = pull_port(v, &mut b)?;
        self.duration_ns = duration_in(&mut b)?;
        for c in self.counters_mut().into_iter().take(8) {
            *c = b.u64()?;
        }
        while !b.is_empty() {
            let mut p = Prop::pull(&mut b)?;
            if p.kind == 0 {
                p.body.skip(4)?;
                for c in self.counters_mut().into_iter().skip(8) {
                    *c = p.body.u64()?;
                }
            } else if p.experimenter == Some((INTEL, INTEL_CUSTOM)) {
                self.custom = custom_in(&mut p.body)?;
            }
        }
        Ok(())
    }

    /// In the order of the wire.
    fn counters_mut(&mut self) -> [&mut u64; 12] {
        [
            &mut self.rx_packets,
            &mut self.tx_packets,
            &mut self.rx_bytes,
            &mut self.tx_bytes,
            &mut self.rx_dropped,
            &mut self.tx_dropped,
            &mut self.rx_errors,
            &mut self.tx_errors,
            &mut self.rx_frame_err,
            &mut self.rx_over_err,
            &mut self.rx_crc_err,
            &mut self.collisions,
        ]
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        let mut s = self.clone();
        let counters = s.counters_mut().map(|c| *c);
        let start = out.len();
        match v {
            Version::V10 => out.u16(self.port_no.to_u16().unwrap_or(0xffff)).zero(6),
            Version::V14 | Version::V15 => out.u16(0).zero(2).u32(self.port_no.0),
            _ => out.u32(self.port_no.0).zero(4),
        };
        if v >= Version::V14 {
            duration_out(out, self.duration_ns);
            counters[..8].iter().for_each(|c| out.u64(*c).done());
            put_prop(out, 0, |o| {
                o.zero(4);
                counters[8..].iter().for_each(|c| o.u64(*c).done());
            });
            // No device knows how long its frames were; readers expect the property.
            put_prop(out, EXPERIMENTER, |o| o.u32(INTEL).u32(INTEL_RFC2819).zero(4).put(&[0xff; 8 * 21]).done());
            if !self.custom.is_empty() {
                put_prop(out, EXPERIMENTER, |o| custom_out(o, &self.custom));
            }
            let len = out.len() - start;
            out.set_u16(start, len as u16);
            return;
        }
        counters.iter().for_each(|c| out.u64(*c).done());
        if v == Version::V13 {
            duration_out(out, self.duration_ns);
        }
    }
}

const EXPERIMENTER: u16 = 0xffff;
/// Experimenter and types of counters beyond the standard's.
const INTEL: u32 = 0x0000_aa01;
const INTEL_RFC2819: u32 = 1;
const INTEL_CUSTOM: u32 = 2;
/// Longest name of a counter, and most of them for one port.
const CUSTOM_NAME: usize = 63;
const MAX_CUSTOM: usize = 512;

/// Names and values, in the order of names.
fn custom_out(out: &mut Vec<u8>, counters: &[(String, u64)]) {
    let mut all: Vec<_> = counters.iter().filter(|(n, _)| !n.is_empty() && n.len() <= CUSTOM_NAME).collect();
    all.sort();
    all.truncate(MAX_CUSTOM);
    out.u32(INTEL).u32(INTEL_CUSTOM).zero(2).u16(all.len() as u16);
    all.iter().for_each(|(name, v)| out.u8(name.len() as u8).put(name.as_bytes()).u64(*v).done());
}

fn custom_in(r: &mut Reader<'_>) -> Result<Vec<(String, u64)>, OfError> {
    r.skip(2)?;
    let n = r.u16()?;
    let mut one = || {
        let len = usize::from(r.u8()?);
        Ok((text(r.bytes(len)?), r.u64()?))
    };
    (0..n).map(|_| one()).collect()
}

fn duration_in(r: &mut Reader<'_>) -> Result<Option<u64>, OfError> {
    let (s, ns) = (r.u32()?, r.u32()?);
    Ok((s != u32::MAX).then(|| u64::from(s) * 1_000_000_000 + u64::from(ns)))
}

fn duration_out(out: &mut Vec<u8>, ns: Option<u64>) {
    match ns {
        Some(ns) => out.u32((ns / 1_000_000_000) as u32).u32((ns % 1_000_000_000) as u32),
        None => out.u32(u32::MAX).u32(u32::MAX),
    };
}

impl QueueStats {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<QueueStats, OfError> {
        if v >= Version::V14 {
            r.skip(8)?;
        }
        let port_no = pull_port(v, r)?;
        r.skip(if v == Version::V10 { 2 } else { 0 })?;
        let (queue, tx_bytes, tx_packets, tx_errors) = (r.u32()?, r.u64()?, r.u64()?, r.u64()?);
        let duration_ns = if v >= Version::V13 { duration_in(r)? } else { None };
        Ok(QueueStats { port_no, queue, tx_bytes, tx_packets, tx_errors, duration_ns })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        match v {
            Version::V10 => out.u16(self.port_no.to_u16().unwrap_or(0xffff)).zero(2),
            Version::V14 | Version::V15 => out.u16(48).zero(6).u32(self.port_no.0),
            _ => out.u32(self.port_no.0),
        };
        out.u32(self.queue).u64(self.tx_bytes).u64(self.tx_packets).u64(self.tx_errors);
        if v >= Version::V13 {
            duration_out(out, self.duration_ns);
        }
    }
}
