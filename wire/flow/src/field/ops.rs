//! Reading and writing fields in keys, masks and matches.

use super::{Field, FieldValue, Maskable, Repr};
use crate::key::{FlowKey, FlowMask, Match, VLAN_CFI, VLAN_VID_MASK, eth};
use fv_core::ids::OfPort;
use zerocopy::IntoBytes;

/// The value of `dl_vlan` that means "no tag".
pub const DL_VLAN_NONE: u16 = 0xffff;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FieldError {
    #[error("{0} has no such value")]
    BadValue(&'static str),
    #[error("{0} does not support masks")]
    NotMaskable(&'static str),
}

impl Field {
    /// The container's bits. *Cost*: a few loads; control plane only.
    pub(super) fn container(self, key: &FlowKey) -> u128 {
        let p = self.info().place;
        let b = &key.as_bytes()[p.ofs as usize..][..p.size as usize];
        match (p.repr, b) {
            (Repr::Native, [a]) => u128::from(*a),
            (Repr::Native, [a, b]) => u128::from(u16::from_ne_bytes([*a, *b])),
            (Repr::Native, [a, b, c, d]) => u128::from(u32::from_ne_bytes([*a, *b, *c, *d])),
            (Repr::Regs, b) => b.chunks_exact(4).fold(0, |v, r| v << 32 | u128::from(reg(r))),
            (_, b) => FieldValue::from_be_bytes(b).0,
        }
    }

    pub(super) fn set_container(self, key: &mut FlowKey, v: u128) {
        let p = self.info().place;
        let b = &mut key.as_mut_bytes()[p.ofs as usize..][..p.size as usize];
        match (p.repr, b.len()) {
            (Repr::Native, 1) => b[0] = v as u8,
            (Repr::Native, 2) => b.copy_from_slice(&(v as u16).to_ne_bytes()),
            (Repr::Native, 4) => b.copy_from_slice(&(v as u32).to_ne_bytes()),
            (Repr::Regs, _) => {
                for (i, r) in b.chunks_exact_mut(4).rev().enumerate() {
                    r.copy_from_slice(&((v >> (32 * i)) as u32).to_ne_bytes());
                }
            }
            (_, n) => b.copy_from_slice(&v.to_be_bytes()[16 - n..]),
        }
    }

    /// The value of an exact mask.
    pub fn mask_bits(self) -> FieldValue {
        match self {
            Field::InPort => FieldValue::new(0xffff),
            Field::TunMetadata(o) => FieldValue::ones(8 * o.n_bytes() as u32),
            f => FieldValue::new(f.info().valid),
        }
    }

    /// The field's value in a key, whether or not its prerequisites hold.
    pub fn value(self, key: &FlowKey) -> FieldValue {
        if let Field::TunMetadata(o) = self {
            return o.read(key);
        }
        if self == Field::InPort {
            return FieldValue::new(OfPort(key.dp.base.in_port).to_u16().unwrap_or(0xffff).into());
        }
        let i = self.info();
        FieldValue::new(self.container(key) >> i.place.shift & i.valid)
    }

    /// Container bits that an exact match on the field decides.
    fn exact_container(self) -> u128 {
        match self {
            Field::InPort => u32::MAX.into(),
            f => f.place_bits(f.mask_bits()),
        }
    }

    /// The container bits that belong to the value or mask `bits`.
    fn place_bits(self, bits: FieldValue) -> u128 {
        let i = self.info();
        if self == Field::InPort {
            return if bits.0 == 0 { 0 } else { u32::MAX.into() };
        }
        let own = (bits.0 & i.valid) << i.place.shift;
        // A mask of these takes neighbours along: the tag's presence, or the unused half.
        own | match self {
            _ if bits.0 == 0 => 0,
            Field::DlVlan | Field::DlVlanPcp | Field::VlanPcp => VLAN_CFI.into(),
            Field::Icmpv4Type | Field::Icmpv4Code | Field::Icmpv6Type | Field::Icmpv6Code if bits.0 == 0xff => 0xff00,
            _ => 0,
        }
    }

    /// Whether the wire may carry `v` for this field.
    pub fn is_value_valid(self, v: FieldValue) -> bool {
        match self {
            Field::DlVlan => v.0 <= VLAN_VID_MASK.into() || v.0 == DL_VLAN_NONE.into(),
            Field::InPortOxm | Field::ActsetOutput => u32::try_from(v.0).is_ok_and(|p| OfPort(p).to_u16().is_some()),
            Field::CtState => v.0 <= crate::key::cs::ALL.into(),
            f => (v & !f.mask_bits()).is_zero(),
        }
    }

    /// Writes the field, and for VLAN fields what keeps the tag consistent: the presence bit, and a
    /// TPID of 0x8100 for a new tag or none for a removed one.
    pub fn set(self, key: &mut FlowKey, v: &FieldValue) {
        let i = self.info();
        match self {
            Field::InPort => key.dp.base.in_port = OfPort::from_u16(v.0 as u16).0,
            Field::TunMetadata(o) => {
                o.write(key, v);
                key.pipe.tun_present |= o.bit();
            }
            Field::DlVlan if v.0 == DL_VLAN_NONE.into() => set_tci(key, 0),
            Field::DlVlan => set_tci(key, tci(key) & !VLAN_VID_MASK | v.0 as u16 & VLAN_VID_MASK | VLAN_CFI),
            Field::DlVlanPcp | Field::VlanPcp => {
                set_tci(key, tci(key) & !crate::key::VLAN_PCP_MASK | (v.0 as u16 & 7) << 13 | VLAN_CFI)
            }
            Field::VlanVid => set_tci(key, tci(key) & !0x1fff | v.0 as u16 & 0x1fff),
            Field::VlanTci => set_tci(key, v.0 as u16),
            Field::Icmpv4Type | Field::Icmpv4Code | Field::Icmpv6Type | Field::Icmpv6Code => {
                self.set_container(key, v.0 & 0xff)
            }
            f => {
                let old = f.container(key) & !(i.valid << i.place.shift);
                f.set_container(key, old | (v.0 & i.valid) << i.place.shift);
            }
        }
    }

    /// Writes the bits of `v` under `mask`; the others stay.
    pub fn set_masked(self, key: &mut FlowKey, v: &FieldValue, mask: &FieldValue) {
        if *mask == self.mask_bits() {
            return self.set(key, v);
        }
        let old = self.value(key);
        self.set(key, &(old & !*mask | *v & *mask));
    }

    /// Whether the field is zero in the key.
    pub fn is_zero(self, key: &FlowKey) -> bool {
        self.value(key).is_zero()
    }

    /// Whether no bit of the field is matched, nor that it is there.
    pub fn is_all_wild(self, mask: &FlowMask) -> bool {
        let present = self.tun_option().is_some_and(|o| mask.0.pipe.tun_present & o.bit() != 0);
        !present && self.value(&mask.0).is_zero()
    }

    /// Whether every bit of the field is matched.
    pub fn is_exact(self, mask: &FlowMask) -> bool {
        match self {
            Field::InPort => mask.0.dp.base.in_port == u32::MAX,
            f => f.value(&mask.0) == f.mask_bits(),
        }
    }

    /// The field's value and mask in a match.
    pub fn of_match(self, m: &Match) -> (FieldValue, FieldValue) {
        let mask = match self {
            Field::InPort => FieldValue::new(u128::from(m.mask.0.dp.base.in_port & 0xffff)),
            f => f.value(&m.mask.0),
        };
        (self.value(&m.key), mask)
    }
}

fn reg(b: &[u8]) -> u32 {
    u32::from_ne_bytes([b[0], b[1], b[2], b[3]])
}

fn tci(key: &FlowKey) -> u16 {
    key.dp.base.vlans[0].tci.get()
}

fn set_tci(key: &mut FlowKey, tci: u16) {
    let tag = &mut key.dp.base.vlans[0];
    tag.tci = tci.into();
    if tci == 0 {
        tag.tpid = 0.into();
    } else if tag.tpid == 0 {
        tag.tpid = eth::VLAN_8021Q.into();
    }
}

impl FlowMask {
    /// Matches the whole field.
    pub fn set_field(&mut self, f: Field) {
        if f.tun_option().is_some() {
            return self.set_bits(f, &f.mask_bits());
        }
        let c = f.container(&self.0) | f.exact_container();
        f.set_container(&mut self.0, c);
    }

    /// Matches the bits `bits` of the field.
    pub fn set_bits(&mut self, f: Field, bits: &FieldValue) {
        if let Field::TunMetadata(o) = f {
            let old = o.read(&self.0);
            o.write(&mut self.0, &(old | *bits));
            self.0.pipe.tun_present |= o.bit();
            return;
        }
        let c = f.container(&self.0) | f.place_bits(*bits);
        f.set_container(&mut self.0, c);
    }

    /// Matches the first (most significant) `len` bits of the field.
    pub fn set_prefix(&mut self, f: Field, len: u32) {
        self.set_bits(f, &prefix_mask(f.n_bits(), len));
    }

    /// Stops matching the field.
    pub fn clear_field(&mut self, f: Field) {
        if let Field::TunMetadata(o) = f {
            o.write(&mut self.0, &FieldValue::ZERO);
            self.0.pipe.tun_present &= !o.bit();
            return;
        }
        let c = f.container(&self.0) & !f.exact_container();
        f.set_container(&mut self.0, c);
    }
}

/// The first `len` of `n_bits` bits.
pub fn prefix_mask(n_bits: u32, len: u32) -> FieldValue {
    let len = len.min(n_bits);
    FieldValue::ones(n_bits) & !FieldValue::ones(n_bits - len)
}

impl Match {
    /// Matches the field exactly. A `dl_vlan` of 0xffff matches packets without a tag.
    pub fn set_field(&mut self, f: Field, v: &FieldValue) {
        self.set_field_masked(f, v, &f.mask_bits());
    }

    /// Matches the bits of the field under `mask`, replacing what was matched of it before.
    pub fn set_field_masked(&mut self, f: Field, v: &FieldValue, mask: &FieldValue) {
        if let Field::TunMetadata(o) = f {
            // An option that is not there matches no value, not even zero.
            (self.key.pipe.tun_present, self.mask.0.pipe.tun_present) =
                (self.key.pipe.tun_present | o.bit(), self.mask.0.pipe.tun_present | o.bit());
            o.write(&mut self.key, &(*v & *mask));
            o.write(&mut self.mask.0, mask);
            return;
        }
        if f == Field::DlVlan && v.0 == DL_VLAN_NONE.into() {
            self.key.dp.base.vlans[0].tci = 0.into();
            self.mask.0.dp.base.vlans[0].tci = 0xffff.into();
            return;
        }
        let keep = match f {
            // The presence bit belongs to the tag, not to the priority.
            Field::DlVlanPcp | Field::VlanPcp => !(u128::from(crate::key::VLAN_PCP_MASK)),
            f => !f.exact_container(),
        };
        let bits = f.place_bits(*mask);
        let m = f.container(&self.mask.0) & keep | bits;
        f.set_container(&mut self.mask.0, m);
        let value = match f {
            Field::InPort => u128::from(OfPort::from_u16(v.0 as u16).0),
            f => (v.0 & f.info().valid) << f.info().place.shift,
        };
        let present = match f {
            Field::DlVlan | Field::DlVlanPcp | Field::VlanPcp => bits & u128::from(VLAN_CFI),
            _ => 0,
        };
        let k = f.container(&self.key) & keep | value & bits | present;
        f.set_container(&mut self.key, k);
    }

    /// As [`Match::set_field_masked`] for values from outside.
    pub fn try_set_field(&mut self, f: Field, v: &FieldValue, mask: &FieldValue) -> Result<(), FieldError> {
        let exact = f.mask_bits();
        if *mask & exact != exact && !mask.is_zero() && f.info().maskable == Maskable::Exact {
            return Err(FieldError::NotMaskable(f.name()));
        }
        if !f.is_value_valid(*v) {
            return Err(FieldError::BadValue(f.name()));
        }
        self.set_field_masked(f, v, mask);
        Ok(())
    }

    /// Stops matching the field.
    pub fn clear_field(&mut self, f: Field) {
        self.mask.clear_field(f);
        if let Field::TunMetadata(o) = f {
            o.write(&mut self.key, &FieldValue::ZERO);
            self.key.pipe.tun_present &= !o.bit();
            return;
        }
        let k = f.container(&self.key) & !f.exact_container();
        f.set_container(&mut self.key, k);
    }
}
