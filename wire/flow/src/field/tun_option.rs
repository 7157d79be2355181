//! `tun_metadata0` to `tun_metadata63`: options of a tunnel's header (Geneve), each at the place in
//! the key that a bridge's table of options gives it.

use super::{Field, FieldValue, Header};
use crate::key::FlowKey;

/// Fields that can be mapped.
pub const N_TUN_OPTIONS: usize = 64;
/// Bytes that all mapped options may have.
pub const TUN_OPTION_SPACE: usize = 256;
/// Bytes that one option may have; also how long a field is before it is bound to a table.
pub const TUN_OPTION_MAX: u8 = 124;

/// One field: its number, and where its bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TunOption {
    index: u8,
    /// First byte in the key's options.
    at: u8,
    /// In bytes, at most [`TUN_OPTION_MAX`].
    len: u8,
    bound: bool,
}

impl TunOption {
    /// A field that no table has given a place yet. None if there is no such field.
    pub fn unbound(index: usize) -> Option<TunOption> {
        let index = u8::try_from(index).ok().filter(|i| usize::from(*i) < N_TUN_OPTIONS)?;
        Some(TunOption { index, at: 0, len: TUN_OPTION_MAX, bound: false })
    }

    /// The same of another width: what the wire gave.
    pub fn sized(self, len: u8) -> TunOption {
        TunOption { len: len.min(TUN_OPTION_MAX), ..self }
    }

    pub fn index(self) -> usize {
        self.index.into()
    }

    pub fn is_bound(self) -> bool {
        self.bound
    }

    pub(crate) fn n_bytes(self) -> usize {
        self.len.into()
    }

    /// Whether a packet has it.
    pub fn is_in(self, key: &FlowKey) -> bool {
        key.pipe.tun_present & self.bit() != 0
    }

    /// Takes it out of a packet's key.
    pub fn delete(self, key: &mut FlowKey) {
        self.write(key, &FieldValue::ZERO);
        key.pipe.tun_present &= !self.bit();
    }

    pub(super) fn bit(self) -> u64 {
        1 << self.index
    }

    pub(super) fn name(self) -> &'static str {
        NAMES[self.index()]
    }

    pub(super) fn header(self) -> &'static Header {
        &HEADERS[self.index()]
    }

    fn range(self) -> std::ops::Range<usize> {
        // Within the space by construction, see `TunLayout::add`.
        usize::from(self.at)..usize::from(self.at) + self.n_bytes()
    }

    pub(crate) fn bytes(self, key: &FlowKey) -> &[u8] {
        &key.dp.opts.0[self.range()]
    }

    pub(super) fn read(self, key: &FlowKey) -> FieldValue {
        FieldValue::from_be_bytes(self.bytes(key))
    }

    pub(super) fn write(self, key: &mut FlowKey, v: &FieldValue) {
        key.dp.opts.0[self.range()].copy_from_slice(&v.to_be_bytes(self.n_bytes()));
    }
}

/// Where each mapped field is. Copied with each match, so that a match can be told in text or bytes
/// by itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TunLayout {
    /// (first byte / 4, length); length 0: not mapped.
    places: [(u8, u8); N_TUN_OPTIONS],
}

impl Default for TunLayout {
    fn default() -> TunLayout {
        TunLayout { places: [(0, 0); N_TUN_OPTIONS] }
    }
}

impl TunLayout {
    /// The field, if it is mapped.
    pub fn option(&self, index: usize) -> Option<TunOption> {
        let (at, len) = *self.places.get(index)?;
        (len != 0).then(|| TunOption { index: index as u8, at: at * 4, len, bound: true })
    }

    /// The field at its place; None for one that is not mapped.
    pub fn bind(&self, f: Field) -> Option<Field> {
        match f {
            Field::TunMetadata(o) => self.option(o.index()).map(Field::TunMetadata),
            f => Some(f),
        }
    }

    /// A value that was given for the unbound field `f`, as a value of the field at its place: an
    /// option that is shorter than what was given takes the first bytes.
    pub fn bind_value(&self, f: Field, v: FieldValue, mask: FieldValue) -> Option<(Field, FieldValue, FieldValue)> {
        let to = self.bind(f)?;
        let cut = f.n_bits().saturating_sub(to.n_bits());
        // Zero may be told in no byte at all: such a mask is exact only if it is one of more.
        let exact = !mask.is_zero() && f.mask_bits() & !mask == FieldValue::ZERO;
        let mask = if exact { to.mask_bits() } else { mask.lowered(cut) & to.mask_bits() };
        Some((to, v.lowered(cut) & mask, mask))
    }

    /// Mapped fields in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = TunOption> + '_ {
        (0..N_TUN_OPTIONS).filter_map(|i| self.option(i))
    }

    /// Maps a field to the first gap that holds `len` bytes; false if there is none, if the length is
    /// none of an option, or if the field is mapped.
    pub fn add(&mut self, index: usize, len: u8) -> bool {
        if len == 0 || len > TUN_OPTION_MAX || index >= N_TUN_OPTIONS {
            return false;
        }
        let words = len.div_ceil(4);
        let taken = |w: u8| self.places.iter().any(|(at, n)| (*at..*at + n.div_ceil(4)).contains(&w));
        let last = (TUN_OPTION_SPACE / 4) as u8 - words;
        let gap = (0..=last).find(|at| !(*at..*at + words).any(taken));
        match gap {
            Some(at) if self.places[index].1 == 0 => {
                self.places[index] = (at, len);
                true
            }
            _ => false,
        }
    }

    pub fn remove(&mut self, index: usize) {
        if let Some(p) = self.places.get_mut(index) {
            *p = (0, 0);
        }
    }
}

macro_rules! numbered {
    ($($n:literal)+) => {
        const NAMES: [&str; N_TUN_OPTIONS] = [$(concat!("tun_metadata", $n)),+];
        static HEADERS: [Header; N_TUN_OPTIONS] = [$(Header {
            name: concat!("NXM_NX_TUN_METADATA", $n),
            class: 1,
            experimenter: 0,
            field: 40 + $n,
            min_version: 1,
        }),+];
    };
}
numbered! {
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
}
