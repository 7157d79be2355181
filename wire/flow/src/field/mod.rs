//! The one table of match fields. Key layout, text, NXM/OXM codes, prerequisites and masks all
//! derive from the rows of `table`.
//!
//! A field is a run of bits of a `FlowKey`. Its value travels as a [`FieldValue`], right-aligned:
//! what OpenFlow sends as the `n_bytes` payload of an OXM.

mod ops;
mod prereq;
mod subfield;
mod table;
mod tun_option;
mod value;

pub use ops::{DL_VLAN_NONE, FieldError, prefix_mask};
pub use subfield::{Subfield, SubfieldError};
pub use table::{Field, N_FIELDS};
pub use tun_option::{N_TUN_OPTIONS, TUN_OPTION_MAX, TUN_OPTION_SPACE, TunLayout, TunOption};
pub use value::{FieldValue, Packed};

use std::collections::HashMap;
use std::sync::LazyLock;

/// How a field may be masked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maskable {
    /// Exact match or nothing.
    Exact,
    /// Any bits.
    Full,
}

/// How a field's value is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Decimal,
    Hex,
    /// Hexadecimal, padded to the field's width ("ipv6_label=0x00003").
    Mac,
    Ipv4,
    Ipv6,
    CtState,
    OfPort10,
    OfPort,
    Frag,
    TunFlags,
    TcpFlags,
    PacketType,
}

/// What must hold of the rest of the flow for the field to exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prereq {
    None,
    Ethernet,
    Arp,
    VlanVid,
    Ipv4,
    Ipv6,
    IpAny,
    Ct,
    Mpls,
    Nsh,
    Tcp,
    Udp,
    Sctp,
    Icmpv4,
    Icmpv6,
    Nd,
    NdSolicit,
    NdAdvert,
}

/// A set of OpenFlow protocols (version and flow format).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Protocols(pub u16);

impl Protocols {
    pub const NONE: Protocols = Protocols(0);
    pub const OF10_STD: Protocols = Protocols(1 << 0);
    pub const OF10_STD_TID: Protocols = Protocols(1 << 1);
    pub const OF10_NXM: Protocols = Protocols(1 << 2);
    pub const OF10_NXM_TID: Protocols = Protocols(1 << 3);
    pub const OF11_STD: Protocols = Protocols(1 << 4);
    pub const OF12_OXM: Protocols = Protocols(1 << 5);
    pub const OF13_OXM: Protocols = Protocols(1 << 6);
    pub const OF14_OXM: Protocols = Protocols(1 << 7);
    pub const OF15_OXM: Protocols = Protocols(1 << 8);
    pub const OF10_STD_ANY: Protocols = Protocols(0x003);
    pub const NXM: Protocols = Protocols(0x00c);
    pub const OXM: Protocols = Protocols(0x1e0);
    pub const NXM_OXM: Protocols = Protocols(0x1ec);
    pub const NXM_OXM_OF11: Protocols = Protocols(0x1fc);
    pub const ANY: Protocols = Protocols(0x1ff);

    pub const fn contains(self, o: Protocols) -> bool {
        self.0 & o.0 == o.0
    }
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl std::ops::BitAnd for Protocols {
    type Output = Protocols;
    fn bitand(self, o: Protocols) -> Protocols {
        Protocols(self.0 & o.0)
    }
}
impl std::ops::BitOr for Protocols {
    type Output = Protocols;
    fn bitor(self, o: Protocols) -> Protocols {
        Protocols(self.0 | o.0)
    }
}
impl std::ops::BitAndAssign for Protocols {
    fn bitand_assign(&mut self, o: Protocols) {
        self.0 &= o.0;
    }
}
impl std::ops::BitOrAssign for Protocols {
    fn bitor_assign(&mut self, o: Protocols) {
        self.0 |= o.0;
    }
}

/// Protocols that can carry the field, by how it is masked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usable {
    pub exact: Protocols,
    /// IPv4 or IPv6 prefix masks.
    pub cidr: Protocols,
    pub bitwise: Protocols,
}

/// One NXM/OXM code of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// "NXM_OF_ETH_DST".
    pub name: &'static str,
    pub class: u16,
    /// 0 unless `class` is [`Header::EXPERIMENTER`].
    pub experimenter: u32,
    /// 0-127.
    pub field: u8,
    /// First OpenFlow version, as the wire's byte, in which a switch sends it.
    pub min_version: u8,
}

impl Header {
    pub const EXPERIMENTER: u16 = 0xffff;

    /// Class << 48 | experimenter << 16 | field << 9: without the "has mask" bit (8) and the
    /// payload length (0-7), which are zero here and ignored by [`Field::by_header`].
    pub const fn id(&self) -> u64 {
        (self.class as u64) << 48 | (self.experimenter as u64) << 16 | (self.field as u64) << 9
    }
}

/// Byte order and shape of a field's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repr {
    /// `size` bytes in network order.
    Be,
    /// One native integer of `size` bytes.
    Native,
    /// Native 32-bit registers, the most significant first.
    Regs,
}

/// Where a field lives in a `FlowKey`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Byte offset.
    pub ofs: u16,
    /// Bytes of the container.
    pub size: u8,
    pub repr: Repr,
    /// Right shift of the container that brings the field to bit 0.
    pub shift: u8,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct FieldInfo {
    pub id: Field,
    /// Canonical name first, then the aliases that are accepted.
    pub names: &'static [&'static str],
    /// Width on the wire.
    pub n_bytes: u8,
    /// Bits that OpenFlow gives to the field.
    pub n_bits: u8,
    /// Bits of the value that the key stores (differs from `n_bits` ones in a few rows).
    pub valid: u128,
    pub place: Place,
    pub maskable: Maskable,
    pub format: Format,
    pub prereq: Prereq,
    pub writable: bool,
    /// In the order of the table: the last whose version fits is the one that is sent.
    pub headers: &'static [Header],
    pub usable: Usable,
}

impl FieldInfo {
    pub const fn name(&self) -> &'static str {
        self.names[0]
    }
}

struct Index {
    names: HashMap<&'static str, Field>,
    headers: HashMap<u64, Field>,
    header_names: HashMap<&'static str, Field>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut ix = Index { names: HashMap::new(), headers: HashMap::new(), header_names: HashMap::new() };
    for f in Field::tun_options() {
        ix.names.insert(f.name(), f);
        if let Some(h) = f.header(1) {
            ix.headers.insert(h.id(), f);
            ix.header_names.insert(h.name, f);
        }
    }
    for f in Field::all() {
        ix.names.extend(f.info().names.iter().map(|n| (*n, f)));
        ix.headers.extend(f.info().headers.iter().map(|h| (h.id(), f)));
        ix.header_names.extend(f.info().headers.iter().map(|h| (h.name, f)));
    }
    ix
});

impl Field {
    /// By canonical name or alias ("nw_src", "ip_src").
    pub fn by_name(name: &str) -> Option<Field> {
        INDEX.names.get(name).copied()
    }

    /// By the name of one of its codes ("NXM_OF_IP_SRC").
    pub fn by_header_name(name: &str) -> Option<Field> {
        INDEX.header_names.get(name).copied()
    }

    /// By code, in the form of [`Header::id`]; "has mask" and length bits are ignored.
    pub fn by_header(header: u64) -> Option<Field> {
        INDEX.headers.get(&(header & !0x1ff)).copied()
    }

    /// `tun_metadata0` to `tun_metadata63`, bound to no table.
    pub fn tun_options() -> impl Iterator<Item = Field> {
        (0..N_TUN_OPTIONS).filter_map(TunOption::unbound).map(Field::TunMetadata)
    }

    /// Every field, the options among those of tunnels.
    pub fn all_with_options() -> impl Iterator<Item = Field> {
        let (before, after) = table::TABLE.split_at(Field::Metadata.row());
        let id = |i: &FieldInfo| i.id;
        before.iter().map(id).chain(Field::tun_options()).chain(after.iter().map(id))
    }

    /// The option that this field is.
    pub fn tun_option(self) -> Option<TunOption> {
        match self {
            Field::TunMetadata(o) => Some(o),
            _ => None,
        }
    }

    /// Every field but the options, in the order of the table.
    pub fn all() -> impl Iterator<Item = Field> {
        table::TABLE.iter().map(|i| i.id)
    }

    pub fn info(self) -> &'static FieldInfo {
        table::TABLE.get(self.row()).unwrap_or(&table::TUN_METADATA)
    }

    pub fn name(self) -> &'static str {
        match self {
            Field::TunMetadata(o) => o.name(),
            f => f.info().name(),
        }
    }

    pub fn n_bits(self) -> u32 {
        match self {
            Field::TunMetadata(o) => 8 * o.n_bytes() as u32,
            f => f.info().n_bits.into(),
        }
    }

    pub fn n_bytes(self) -> usize {
        match self {
            Field::TunMetadata(o) => o.n_bytes(),
            f => f.info().n_bytes.into(),
        }
    }

    pub fn is_writable(self) -> bool {
        self.info().writable
    }

    /// The code to send to a peer that speaks `version` (the wire's byte: 1 is OpenFlow 1.0, 6 is
    /// 1.5). None for fields that have no code.
    pub fn header(self, version: u8) -> Option<&'static Header> {
        if let Field::TunMetadata(o) = self {
            return Some(o.header());
        }
        let hs = self.info().headers;
        hs.iter().rev().find(|h| h.min_version <= version).or(hs.first())
    }

    /// `reg0` to `reg15`.
    pub fn reg(n: usize) -> Option<Field> {
        table::TABLE.get(Field::Reg0.row() + n).map(|i| i.id).filter(|f| *f <= Field::Reg15)
    }

    /// Position among `reg0` to `reg15`.
    pub fn reg_index(self) -> Option<usize> {
        (Field::Reg0..=Field::Reg15).contains(&self).then(|| self.row() - Field::Reg0.row())
    }
}

#[cfg(test)]
mod tests;
