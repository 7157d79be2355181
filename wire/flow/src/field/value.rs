//! Values of fields: numbers wide enough for the widest.

use std::ops::{BitAnd, BitOr, Not};

/// Bytes that a value holds.
const BYTES: usize = 128;
const LIMBS: usize = BYTES / 16;

/// A field's value or mask: the wire's bytes, right-aligned. The first part is its low 128 bits,
/// which is all there is of every field but the options of tunnels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, PartialOrd, Ord)]
pub struct FieldValue(pub u128, High);

type High = [u128; LIMBS - 1];
const NO_HIGH: High = [0; LIMBS - 1];

impl FieldValue {
    pub const ZERO: FieldValue = FieldValue::new(0);
    /// All ones: as a mask, exact whatever the field.
    pub const EXACT: FieldValue = FieldValue::ones(8 * BYTES as u32);

    pub const fn new(low: u128) -> FieldValue {
        FieldValue(low, NO_HIGH)
    }

    /// The last 128 bytes of `b`, as one big-endian number.
    pub fn from_be_bytes(b: &[u8]) -> FieldValue {
        let b = &b[b.len().saturating_sub(BYTES)..];
        let mut limbs = [0; LIMBS];
        for (limb, part) in limbs.iter_mut().zip(b.rchunks(16)) {
            *limb = part.iter().fold(0, |v, x| v << 8 | u128::from(*x));
        }
        FieldValue::of(limbs)
    }

    /// The low `n` (at most 128) bytes, big-endian.
    pub fn to_be_bytes(self, n: usize) -> Vec<u8> {
        let n = n.min(BYTES);
        let mut out = vec![0; n];
        for (part, limb) in out.rchunks_mut(16).zip(self.limbs()) {
            part.copy_from_slice(&limb.to_be_bytes()[16 - part.len()..]);
        }
        out
    }

    /// `n` one bits at the right.
    pub const fn ones(n: u32) -> FieldValue {
        let mut limbs = [0u128; LIMBS];
        let mut i = 0;
        while i < LIMBS {
            let from = 128 * i as u32;
            limbs[i] = if n >= from + 128 {
                u128::MAX
            } else if n > from {
                (1 << (n - from)) - 1
            } else {
                0
            };
            i += 1;
        }
        FieldValue::of(limbs)
    }

    /// The least significant part first.
    const fn limbs(&self) -> [u128; LIMBS] {
        let h = self.1;
        [self.0, h[0], h[1], h[2], h[3], h[4], h[5], h[6]]
    }

    const fn of(l: [u128; LIMBS]) -> FieldValue {
        FieldValue(l[0], [l[1], l[2], l[3], l[4], l[5], l[6], l[7]])
    }

    pub fn is_zero(&self) -> bool {
        *self == FieldValue::ZERO
    }

    /// Whether it fits 128 bits.
    pub fn is_narrow(&self) -> bool {
        self.1 == NO_HIGH
    }

    /// Shifted to the left; what leaves the value is lost.
    #[must_use]
    pub fn raised(self, n: u32) -> FieldValue {
        let (from, out) = (self.limbs(), &mut [0; LIMBS]);
        let (limbs, bits) = (n as usize / 128, n % 128);
        for i in limbs..LIMBS {
            out[i] = from[i - limbs] << bits;
            if bits != 0 && i > limbs {
                out[i] |= from[i - limbs - 1] >> (128 - bits);
            }
        }
        FieldValue::of(*out)
    }

    #[must_use]
    pub fn lowered(self, n: u32) -> FieldValue {
        let (from, out) = (self.limbs(), &mut [0; LIMBS]);
        let (limbs, bits) = (n as usize / 128, n % 128);
        for i in 0..LIMBS.saturating_sub(limbs) {
            out[i] = from[i + limbs] >> bits;
            if bits != 0 && i + limbs + 1 < LIMBS {
                out[i] |= from[i + limbs + 1] << (128 - bits);
            }
        }
        FieldValue::of(*out)
    }

    /// Zero bits above the highest set one.
    pub fn leading_zeros(&self) -> u32 {
        let limbs = self.limbs();
        let top = limbs.iter().rposition(|l| *l != 0);
        top.map_or(8 * BYTES as u32, |i| 128 * (LIMBS - 1 - i) as u32 + limbs[i].leading_zeros())
    }

    /// Zero bits below the lowest set one.
    pub fn trailing_zeros(&self) -> u32 {
        let limbs = self.limbs();
        let low = limbs.iter().position(|l| *l != 0);
        low.map_or(8 * BYTES as u32, |i| 128 * i as u32 + limbs[i].trailing_zeros())
    }

    /// Bits of the number: up to the highest set one.
    pub fn n_bits(&self) -> u32 {
        8 * BYTES as u32 - self.leading_zeros()
    }

    /// `0x1f`, but `0` for zero.
    pub fn hex(&self) -> String {
        if self.is_narrow() {
            return crate::odp::hex(self.0);
        }
        let digits: String = self.to_be_bytes(BYTES).iter().map(|b| format!("{b:02x}")).collect();
        format!("0x{}", digits.trim_start_matches('0'))
    }

    /// Decimal, or hexadecimal behind `0x`. None if it is neither, or does not fit.
    pub fn parse(s: &str) -> Option<FieldValue> {
        let Some(h) = s.strip_prefix("0x").or_else(|| s.strip_prefix("0X")) else {
            return crate::odp::number(s).map(FieldValue::new);
        };
        if h.is_empty() || !h.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let h = h.trim_start_matches('0');
        if h.len() > 2 * BYTES {
            return None;
        }
        let mut limbs = [0; LIMBS];
        for (limb, part) in limbs.iter_mut().zip(h.as_bytes().rchunks(32)) {
            *limb = u128::from_str_radix(std::str::from_utf8(part).ok()?, 16).ok()?;
        }
        Some(FieldValue::of(limbs))
    }
}

/// A value as it is kept: wide ones, which are rare, take room of their own.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Packed {
    low: u128,
    high: Option<Box<High>>,
}

impl Packed {
    pub fn get(&self) -> FieldValue {
        FieldValue(self.low, self.high.as_deref().copied().unwrap_or(NO_HIGH))
    }
}

impl From<FieldValue> for Packed {
    fn from(v: FieldValue) -> Packed {
        Packed { low: v.0, high: (!v.is_narrow()).then(|| Box::new(v.1)) }
    }
}

impl From<u64> for FieldValue {
    fn from(v: u64) -> Self {
        FieldValue::new(v.into())
    }
}

impl From<u128> for FieldValue {
    fn from(v: u128) -> Self {
        FieldValue::new(v)
    }
}

impl BitAnd for FieldValue {
    type Output = FieldValue;
    fn bitand(self, o: FieldValue) -> FieldValue {
        let (a, b) = (self.limbs(), o.limbs());
        FieldValue::of(std::array::from_fn(|i| a[i] & b[i]))
    }
}

impl BitOr for FieldValue {
    type Output = FieldValue;
    fn bitor(self, o: FieldValue) -> FieldValue {
        let (a, b) = (self.limbs(), o.limbs());
        FieldValue::of(std::array::from_fn(|i| a[i] | b[i]))
    }
}

impl Not for FieldValue {
    type Output = FieldValue;
    fn not(self) -> FieldValue {
        let a = self.limbs();
        FieldValue::of(std::array::from_fn(|i| !a[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = FieldValue> {
        prop::collection::vec(any::<u8>(), 0..=BYTES).prop_map(|b| FieldValue::from_be_bytes(&b))
    }

    proptest! {
        #[test]
        fn shifts_are_those_of_the_bits(v in value(), n in 0u32..1100) {
            let bit = |v: &FieldValue, i: u32| v.to_be_bytes(BYTES)[BYTES - 1 - i as usize / 8] >> (i % 8) & 1;
            let (left, right) = (v.raised(n), v.lowered(n));
            for i in 0..1024 {
                prop_assert_eq!(bit(&left, i), if i >= n { bit(&v, i - n) } else { 0 });
                prop_assert_eq!(bit(&right, i), if i + n < 1024 { bit(&v, i + n) } else { 0 });
                prop_assert_eq!(bit(&FieldValue::ones(n), i), u8::from(i < n));
            }
        }

        #[test]
        fn bytes_and_text_there_and_back(v in value()) {
            prop_assert_eq!(FieldValue::from_be_bytes(&v.to_be_bytes(BYTES)), v);
            prop_assert_eq!(FieldValue::parse(&v.hex()), Some(v));
            if !v.is_zero() {
                prop_assert!(v.lowered(v.n_bits()).is_zero() && !v.lowered(v.n_bits() - 1).is_zero());
                prop_assert_eq!(v.lowered(v.trailing_zeros()).0 & 1, 1);
            }
        }
    }
}
