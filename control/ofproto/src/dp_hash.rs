//! How a select group chooses by a hash that the datapath computes: a table of as many slots as the
//! hash has values left under a mask, dealt out to buckets by their weights.

use fv_openflow::msg::group::GroupProps;

use crate::group::GroupBucket;

/// Fewest slots: more than buckets of equal weight need, so that any few of them share evenly.
const MIN_SLOTS: u64 = 16;
/// Each slot is a flow of the datapath. Groups that would need more choose by headers.
const MAX_SLOTS: u64 = 256;

/// The hash that the datapath computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DpHashAlg {
    /// The same in both directions.
    SymL4,
    /// The device's own, if it has one.
    L4,
}

/// The slots of a group, and the hash that chooses among them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DpHash {
    pub alg: DpHashAlg,
    pub basis: u32,
    /// Index of a bucket each; a power of two of them.
    slots: Vec<u16>,
}

impl DpHash {
    /// None if the group is to choose by headers: told to, or with weights that slots cannot express.
    pub(crate) fn of(props: &GroupProps, buckets: &[GroupBucket]) -> Option<DpHash> {
        let (alg, basis) = match props.selection_method.as_str() {
            "" => (DpHashAlg::SymL4, 0),
            "dp_hash" => {
                let alg = if props.selection_param >> 32 == 1 { DpHashAlg::SymL4 } else { DpHashAlg::L4 };
                (alg, props.selection_param as u32)
            }
            _ => return None,
        };
        let weights: Vec<u16> = buckets.iter().map(|b| b.weight).collect();
        Some(DpHash { alg, basis, slots: slots(&weights)? })
    }

    /// The bits of the hash that matter.
    pub fn mask(&self) -> u32 {
        self.slots.len() as u32 - 1
    }

    /// Buckets for a hash: its own, then those to turn to where that is not alive.
    pub fn candidates(&self, hash: u32) -> impl Iterator<Item = usize> + '_ {
        let (mask, n) = (self.mask(), self.slots.len() as u32);
        (0..n).map(move |i| usize::from(self.slots[(hash.wrapping_add(i) & mask) as usize]))
    }
}

/// Webster's method (Sainte-Laguë): slot by slot to the bucket with the greatest weight for each slot
/// that it would then have, less a half. Of equals the first.
fn slots(weights: &[u16]) -> Option<Vec<u16>> {
    let least = u64::from(*weights.iter().filter(|w| **w > 0).min()?);
    let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
    if total.div_ceil(least) > MAX_SLOTS {
        return None;
    }
    let n = total.div_ceil(least).max(MIN_SLOTS).next_power_of_two();
    let mut divisors = vec![1u64; weights.len()];
    let mut slots = Vec::with_capacity(n as usize);
    for _ in 0..n {
        let mut best = 0;
        for i in 1..weights.len() {
            // weight/divisor compared without division.
            if u64::from(weights[i]) * divisors[best] > u64::from(weights[best]) * divisors[i] {
                best = i;
            }
        }
        divisors[best] += 2;
        slots.push(u16::try_from(best).ok()?);
    }
    Some(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_as_the_reference_deals_them() {
        let check = |weights: &[u16], want: &str| {
            let got: String = slots(weights).unwrap().iter().map(|s| char::from(b'0' + *s as u8)).collect();
            assert_eq!(got, want, "{weights:?}");
        };
        check(&[1, 1], "0101010101010101");
        check(&[60000, 60000], "0101010101010101");
        check(&[1, 1, 1], "0120120120120120");
        check(&[10, 3, 1], "0010001200010000");
        check(&[10, 0, 1], "0000020000000000");
    }

    #[test]
    fn weights_that_no_table_expresses() {
        for w in [&[][..], &[0, 0], &[1000, 1], &[1; 257]] {
            assert_eq!(slots(w), None, "{w:?}");
        }
        for (w, n) in [(&[100, 1][..], 128), (&[200, 1], 256), (&[1; 64], 64), (&[1; 65], 128), (&[65535, 65535], 16)] {
            assert_eq!(slots(w).map(|s| s.len()), Some(n), "{w:?}");
        }
    }

    /// Of many slots each bucket gets its share to within one.
    #[test]
    fn shares_follow_weights() {
        let weights = [7u16, 1, 3, 0, 12, 5];
        let total: u32 = weights.iter().map(|w| u32::from(*w)).sum();
        let slots = slots(&weights).unwrap();
        for (i, w) in weights.iter().enumerate() {
            let got = slots.iter().filter(|s| usize::from(**s) == i).count() as f64;
            let want = slots.len() as f64 * f64::from(*w) / f64::from(total);
            assert!((got - want).abs() <= 1.0, "bucket {i}: {got} of {want}");
        }
    }
}
