//! Runs of bits of a field: operands of load, move, push, learn, output:reg.

use super::{Field, FieldValue};
use crate::key::{FlowKey, FlowMask, Match};

/// Bits `ofs..ofs + n_bits` of a field, counted from the least significant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Subfield {
    pub field: Field,
    pub ofs: u32,
    pub n_bits: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubfieldError {
    #[error("bit offset {ofs} and width {n_bits} exceed {} bits of {}", .field.n_bits(), .field.name())]
    OutOfRange { field: Field, ofs: u32, n_bits: u32 },
    #[error("{} is read-only", .0.name())]
    ReadOnly(Field),
    #[error("{} lacks its prerequisites in the match", .0.name())]
    Prerequisites(Field),
}

impl Subfield {
    pub const fn new(field: Field, ofs: u32, n_bits: u32) -> Subfield {
        Subfield { field, ofs, n_bits }
    }

    pub fn whole(field: Field) -> Subfield {
        Subfield { field, ofs: 0, n_bits: field.n_bits() }
    }

    /// Whether the run lies inside the field.
    pub fn check(&self) -> Result<(), SubfieldError> {
        let Subfield { field, ofs, n_bits } = *self;
        if n_bits == 0 || ofs.checked_add(n_bits).is_none_or(|end| end > field.n_bits()) {
            return Err(SubfieldError::OutOfRange { field, ofs, n_bits });
        }
        Ok(())
    }

    /// As a source in a rule with match `m`.
    pub fn check_src(&self, m: Option<&Match>) -> Result<(), SubfieldError> {
        self.check()?;
        match m {
            Some(m) if !self.field.are_prereqs_ok(m) => Err(SubfieldError::Prerequisites(self.field)),
            _ => Ok(()),
        }
    }

    /// As a destination in a rule with match `m`.
    pub fn check_dst(&self, m: Option<&Match>) -> Result<(), SubfieldError> {
        self.check_src(m)?;
        if !self.field.is_writable() {
            return Err(SubfieldError::ReadOnly(self.field));
        }
        Ok(())
    }

    /// The run's bits in place, as a mask of the field.
    pub fn mask(&self) -> FieldValue {
        FieldValue::ones(self.n_bits).raised(self.ofs)
    }

    /// The run's value, right-aligned.
    pub fn value(&self, key: &FlowKey) -> FieldValue {
        self.field.value(key).lowered(self.ofs) & FieldValue::ones(self.n_bits)
    }

    /// The low 128 bits of the run's value.
    pub fn read(&self, key: &FlowKey) -> u128 {
        self.value(key).0
    }

    /// Writes the low `n_bits` of `v`.
    pub fn write(&self, key: &mut FlowKey, v: impl Into<FieldValue>) {
        let m = self.mask();
        self.field.set_masked(key, &(v.into().raised(self.ofs) & m), &m);
    }

    /// Adds the run to what is matched.
    pub fn unwildcard(&self, mask: &mut FlowMask) {
        mask.set_bits(self.field, &self.mask());
    }

    /// Matches the run against the low bits of `v`, keeping what `m` matches of the field's other bits.
    pub fn write_match(&self, m: &mut Match, v: impl Into<FieldValue>) {
        let (old_v, old_m) = self.field.of_match(m);
        let bits = self.mask();
        let value = old_v & !bits | v.into().raised(self.ofs) & bits;
        m.set_field_masked(self.field, &value, &(old_m | bits));
    }
}
