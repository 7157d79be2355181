//! The order in which the reference visits a bridge's ports: that of its hash table of port numbers.

use fv_core::OfPort;

/// Puts `ports` in that order. Within a bucket the reference's order depends on how often it was
/// reconfigured; here the lower number is first.
pub fn like_reference(mut ports: Vec<OfPort>) -> Vec<OfPort> {
    let mask = bucket_mask(ports.len());
    ports.sort_unstable_by_key(|p| (hash(p.0 & 0xffff) & mask, p.0));
    ports
}

/// Buckets less one of a table that has grown to `n` elements.
fn bucket_mask(n: usize) -> u32 {
    let mut mask = 0;
    for i in 1..=n as u32 {
        if i / 2 > mask {
            mask = (i / 2 + 1).next_power_of_two() - 1;
            mask |= (mask & 1) << 1;
        }
    }
    mask
}

/// MurmurHash3 (32 bits) of a seed and two zero words.
fn hash(seed: u32) -> u32 {
    let zero_word = |h: u32| h.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    let mut h = zero_word(zero_word(seed)) ^ 8;
    h = (h ^ h >> 16).wrapping_mul(0x85eb_ca6b);
    h = (h ^ h >> 13).wrapping_mul(0xc2b2_ae35);
    h ^ h >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_grow() {
        for (n, want) in [(0, 0), (1, 0), (2, 3), (7, 3), (8, 7), (15, 7), (16, 15)] {
            assert_eq!(bucket_mask(n), want, "{n}");
        }
    }
}
