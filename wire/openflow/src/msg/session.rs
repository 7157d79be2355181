//! What a connection is about: hello, errors, features, configuration, roles, asynchronous messages.

use super::port::Port;
use crate::error::{ErrorCode, OfError};
use crate::version::{Version, VersionSet};
use crate::wire::{Prop, Put, Reader, put_prop};

/// `OFPET_EXPERIMENTER`, and 1.0's and 1.1's type for errors of Nicira's.
const EXPERIMENTER: u16 = 0xffff;
const NX_VENDOR: u16 = 0xb0c2;

/// `versions` is what the sender speaks: from the bitmap, else all up to the header's version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    pub versions: VersionSet,
}

/// An error and the start of the message that caused it, or a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorMsg {
    pub error: ErrorKind,
    /// The offending message's first bytes (at least 64 if it has them).
    pub data: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    Known(OfError),
    /// Numbers that the table lacks, as they came.
    Unknown(crate::error::ErrorCode),
}

/// Features reply.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Features {
    pub datapath_id: u64,
    pub n_buffers: u32,
    pub n_tables: u8,
    /// OpenFlow 1.3+; 0 is the main connection.
    pub auxiliary_id: u8,
    pub capabilities: Capabilities,
    /// OpenFlow 1.0: which actions exist, as bits.
    pub actions: u32,
    /// OpenFlow 1.0 to 1.2: the ports; later versions ask for them.
    pub ports: Vec<Port>,
}

/// Capability bits as OpenFlow 1.3 numbers them; the bits that older versions name differently have
/// their own constants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities(pub u32);

impl Capabilities {
    pub const FLOW_STATS: u32 = 1 << 0;
    pub const TABLE_STATS: u32 = 1 << 1;
    pub const PORT_STATS: u32 = 1 << 2;
    /// OpenFlow 1.1+.
    pub const GROUP_STATS: u32 = 1 << 3;
    pub const IP_REASM: u32 = 1 << 5;
    pub const QUEUE_STATS: u32 = 1 << 6;
    /// OpenFlow 1.0 and 1.1.
    pub const ARP_MATCH_IP: u32 = 1 << 7;
    /// OpenFlow 1.2+.
    pub const PORT_BLOCKED: u32 = 1 << 8;
    /// OpenFlow 1.4+.
    pub const BUNDLES: u32 = 1 << 9;
    pub const FLOW_MONITORING: u32 = 1 << 10;
    /// OpenFlow 1.0's bit 3, kept apart from GROUP_STATS.
    pub const STP: u32 = 1 << 31;
}

/// Switch configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    pub frags: FragHandling,
    /// Before OpenFlow 1.3: packets with an invalid TTL go to the controller. None: the version lacks the bit.
    pub invalid_ttl_to_controller: Option<bool>,
    pub miss_send_len: u16,
}

impl Default for Config {
    fn default() -> Self {
        Config { frags: FragHandling::Normal, invalid_ttl_to_controller: None, miss_send_len: 128 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum FragHandling {
    #[default]
    Normal = 0,
    Drop = 1,
    Reassemble = 2,
    /// Nicira: match on `ip_frag` and on the first fragment's ports.
    NxMatch = 3,
}

/// A controller's role, in OpenFlow 1.2+ numbers (Nicira's are one less).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Role {
    NoChange = 0,
    #[default]
    Equal = 1,
    Primary = 2,
    Secondary = 3,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleMsg {
    pub role: Role,
    pub generation_id: Option<u64>,
}

/// OpenFlow 1.4+ (and its extension in 1.3): the role was changed by another's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleStatus {
    pub role: Role,
    /// 0: another asked for primary; 1: configuration; 2: experimenter.
    pub reason: u8,
    pub generation_id: Option<u64>,
}

/// Which reasons of each kind of message a controller wants: `[0]` as primary or equal, `[1]` as
/// secondary; bit N is reason N.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AsyncConfig {
    pub packet_in: [u32; 2],
    pub flow_removed: [u32; 2],
    pub port_status: [u32; 2],
    pub role_status: [u32; 2],
    pub table_status: [u32; 2],
    pub requestforward: [u32; 2],
    /// Bit N: kind N is given, in 1.4's order: packet-in, port-status, flow-removed, role-status,
    /// table-status, requestforward. (A 1.4+ message may give only some; older forms give three.)
    pub given: u8,
}

impl Hello {
    /// `header_version` counts when there is no bitmap. Elements that are not known are skipped.
    pub(crate) fn decode(header_version: u8, mut r: Reader<'_>) -> Result<Hello, OfError> {
        let mut versions = VersionSet::up_to(header_version);
        while !r.is_empty() {
            let whole = r.rest();
            let (kind, len) = (r.u16()?, usize::from(r.u16()?));
            let body = whole.get(4..len.max(4)).ok_or(OfError::BrcBadLen)?;
            if len < 4 {
                break;
            }
            if kind == 1
                && let Some(first) = body.first_chunk()
            {
                let v = VersionSet(u32::from_be_bytes(*first) & !1);
                if !v.is_empty() {
                    versions = v;
                }
            }
            let skip = len.next_multiple_of(8).min(whole.len());
            r = Reader::body(&whole[skip..]);
        }
        Ok(Hello { versions })
    }

    /// The bitmap is left out when it would say what the header's version says already.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let top = self.versions.highest().map_or(0, Version::wire);
        if self.versions != VersionSet::up_to(top) {
            out.u16(1).u16(8).u32(self.versions.0);
        }
    }
}

impl ErrorMsg {
    /// The answer to `request`, with its first 64 bytes.
    pub fn reply_to(error: OfError, request: &[u8]) -> ErrorMsg {
        ErrorMsg { error: ErrorKind::Known(error), data: request[..request.len().min(64)].to_vec() }
    }

    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<ErrorMsg, OfError> {
        let (mut kind, mut code) = (r.u16()?, r.u16()?);
        let mut who = 0;
        if v <= Version::V11 && (kind, code) == (NX_VENDOR, 0) {
            (who, kind, code) = (r.u32()?, r.u16()?, r.u16()?);
        } else if kind == EXPERIMENTER && v >= Version::V12 {
            (kind, code) = (code, 0);
            who = r.u32()?;
        }
        let number = ErrorCode { vendor: who, kind, code };
        let error = OfError::from_code(v, number).map_or(ErrorKind::Unknown(number), ErrorKind::Known);
        Ok(ErrorMsg { error, data: r.take_rest().to_vec() })
    }

    /// An error that the version cannot say becomes NXBRC_UNENCODABLE_ERROR.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        let code = match self.error {
            ErrorKind::Known(e) => e.code(v).or(OfError::NxBrcUnencodableError.code(v)),
            ErrorKind::Unknown(c) => Some(c),
        };
        let c = code.unwrap_or(ErrorCode { vendor: 0, kind: 1, code: 0 });
        match (c.vendor, v) {
            (0, _) => out.u16(c.kind).u16(c.code),
            (w, Version::V10 | Version::V11) => out.u16(NX_VENDOR).u16(0).u32(w).u16(c.kind).u16(c.code),
            (w, _) => out.u16(EXPERIMENTER).u16(c.kind).u32(w),
        };
        out.put(&self.data);
    }
}

/// Bits that a version has no meaning for are not sent; its bit 3 is STP in 1.0, GROUP_STATS later.
fn capabilities_out(c: u32, v: Version) -> u32 {
    let common = 0x67;
    match v {
        Version::V10 => c & common | c & Capabilities::ARP_MATCH_IP | (c >> 31) << 3,
        Version::V11 => c & (common | Capabilities::GROUP_STATS | Capabilities::ARP_MATCH_IP),
        Version::V12 | Version::V13 => c & (common | Capabilities::GROUP_STATS | Capabilities::PORT_BLOCKED),
        _ => c & 0x76f,
    }
}

impl Features {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<Features, OfError> {
        let (datapath_id, n_buffers, n_tables, auxiliary_id) = (r.u64()?, r.u32()?, r.u8()?, r.u8()?);
        r.skip(2)?;
        let mut caps = r.u32()?;
        if v == Version::V10 && caps & 8 != 0 {
            caps = caps & !8 | Capabilities::STP;
        }
        let actions = r.u32()?;
        let mut ports = Vec::new();
        while v <= Version::V12 && !r.is_empty() {
            ports.push(Port::decode(v, r)?);
        }
        Ok(Features {
            datapath_id,
            n_buffers,
            n_tables,
            auxiliary_id: if v >= Version::V13 { auxiliary_id } else { 0 },
            capabilities: Capabilities(caps),
            actions: if v == Version::V10 { actions } else { 0 },
            ports,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        let aux = if v >= Version::V13 { self.auxiliary_id } else { 0 };
        out.u64(self.datapath_id).u32(self.n_buffers).u8(self.n_tables).u8(aux).zero(2);
        out.u32(capabilities_out(self.capabilities.0, v)).u32(if v == Version::V10 { self.actions } else { 0 });
        if v <= Version::V12 {
            // What does not fit is left out: peers ask with a port description request then.
            for p in self.ports.iter().take((usize::from(u16::MAX) - 32) / Port::FIXED_MAX) {
                p.encode(out, v);
            }
        }
    }
}

impl Config {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<Config, OfError> {
        let (flags, miss_send_len) = (r.u16()?, r.u16()?);
        let ttl = v < Version::V13;
        let known = if ttl { 7 } else { 3 };
        if flags & !known != 0 {
            return Err(OfError::ScfcBadFlags);
        }
        let frags = match flags & 3 {
            0 => FragHandling::Normal,
            1 => FragHandling::Drop,
            2 => FragHandling::Reassemble,
            _ => FragHandling::NxMatch,
        };
        Ok(Config { frags, invalid_ttl_to_controller: ttl.then_some(flags & 4 != 0), miss_send_len })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let ttl = u16::from(self.invalid_ttl_to_controller == Some(true)) << 2;
        out.u16(self.frags as u16 | ttl).u16(self.miss_send_len);
    }
}

impl Role {
    fn from_wire(r: u32) -> Result<Role, OfError> {
        Ok(match r {
            0 => Role::NoChange,
            1 => Role::Equal,
            2 => Role::Primary,
            3 => Role::Secondary,
            _ => return Err(OfError::RrfcBadRole),
        })
    }
}

impl RoleMsg {
    pub(crate) fn decode(r: &mut Reader<'_>, request: bool) -> Result<RoleMsg, OfError> {
        let role = Role::from_wire(r.u32()?)?;
        r.skip(4)?;
        let generation = r.u64()?;
        // In a request only a claim of a role that excludes others carries a generation.
        let claims = !request || matches!(role, Role::Primary | Role::Secondary);
        Ok(RoleMsg { role, generation_id: (claims && generation != u64::MAX).then_some(generation) })
    }
    pub(crate) fn decode_nx(r: &mut Reader<'_>) -> Result<RoleMsg, OfError> {
        let role = r.u32()?.checked_add(1).ok_or(OfError::RrfcBadRole)?;
        Ok(RoleMsg { role: Role::from_wire(role)?, generation_id: None })
    }
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.role as u32).zero(4).u64(self.generation_id.unwrap_or(u64::MAX));
    }
    pub(crate) fn encode_nx(&self, out: &mut Vec<u8>) {
        out.u32((self.role as u32).saturating_sub(1));
    }
}

impl RoleStatus {
    /// Reasons that are not known stay numbers.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<RoleStatus, OfError> {
        let (role, reason) = (Role::from_wire(r.u32()?)?, r.u8()?);
        r.skip(3)?;
        let generation = r.u64()?;
        r.take_rest();
        Ok(RoleStatus { role, reason, generation_id: (generation != u64::MAX).then_some(generation) })
    }
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.role as u32).u8(self.reason).zero(3).u64(self.generation_id.unwrap_or(u64::MAX));
    }
}

impl AsyncConfig {
    /// Reasons that exist, by kind.
    const REASONS: [u32; 6] = [0x3f, 0x07, 0x3f, 0x07, 0x18, 0x03];

    /// The kinds of message in the order of 1.4's properties: two properties each, secondary first.
    fn kinds(&mut self) -> [&mut [u32; 2]; 6] {
        [
            &mut self.packet_in,
            &mut self.port_status,
            &mut self.flow_removed,
            &mut self.role_status,
            &mut self.table_status,
            &mut self.requestforward,
        ]
    }

    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<AsyncConfig, OfError> {
        if v >= Version::V14 { Self::decode_props(r) } else { Self::decode_fixed(r) }
    }

    pub(crate) fn decode_fixed(r: &mut Reader<'_>) -> Result<AsyncConfig, OfError> {
        let mut a = AsyncConfig { given: 7, ..Default::default() };
        for k in a.kinds().into_iter().take(3) {
            *k = [r.u32()?, r.u32()?];
        }
        Ok(a)
    }

    pub(crate) fn decode_props(r: &mut Reader<'_>) -> Result<AsyncConfig, OfError> {
        let mut a = AsyncConfig::default();
        while !r.is_empty() {
            let mut p = Prop::pull(r)?;
            let n = usize::from(p.kind);
            if n >= 12 {
                return Err(p.unknown());
            }
            let mask = p.body.u32()?;
            p.end()?;
            if mask & !Self::REASONS[n / 2] != 0 {
                return Err(OfError::AcfcInvalid);
            }
            a.kinds()[n / 2][1 - n % 2] = mask;
            a.given |= 1 << (n / 2);
        }
        Ok(a)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        let mut a = *self;
        if v < Version::V14 {
            for k in a.kinds().into_iter().take(3) {
                out.u32(k[0]).u32(k[1]);
            }
            return;
        }
        for (i, k) in a.kinds().into_iter().enumerate().filter(|(i, _)| self.given & 1 << i != 0) {
            for (secondary, mask) in [(0, k[1]), (1, k[0])] {
                put_prop(out, (2 * i + secondary) as u16, |o| o.u32(mask).done());
            }
        }
    }
}
