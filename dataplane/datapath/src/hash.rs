//! Keyed hashes. Two kinds: a fast one over 64-byte blocks for the lookup structures, and a slow,
//! strong one of 128 bits that names flows.
//!
//! Both are keyed with secrets made once a process, so that nobody outside can build collisions.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

use fv_core::Ufid;
use fv_flow::key::DP_WORDS;
use fv_flow::{DpKey, DpMask};

/// 64-byte blocks in a key.
pub const BLOCKS: usize = DP_WORDS / 8;
/// Words of a block.
pub type Block = [u64; 8];

/// Secrets of the block hash, one row a block.
pub struct BlockHash {
    secret: [Block; BLOCKS],
}

impl BlockHash {
    /// The process's secrets.
    pub fn process() -> &'static BlockHash {
        static ONE: OnceLock<BlockHash> = OnceLock::new();
        ONE.get_or_init(|| {
            let random = RandomState::new();
            let mut n = 0u64;
            let mut word = || {
                n += 1;
                random.hash_one(n)
            };
            BlockHash { secret: std::array::from_fn(|_| std::array::from_fn(|_| word())) }
        })
    }

    /// Adds block `i` of a key under `mask` to the hash `h`. Eight multiplications at most two deep.
    #[inline]
    pub fn add(&self, h: u64, i: usize, key: &Block, mask: &Block) -> u64 {
        let s = &self.secret[i];
        let w = |j: usize| (key[j] & mask[j]) ^ s[j];
        let a = fold(w(0), w(1)) ^ fold(w(2), w(3));
        let b = fold(w(4), w(5)) ^ fold(w(6), w(7));
        fold(a ^ h ^ s[0], b ^ s[7].rotate_left(17)) ^ a.rotate_left(32) ^ b
    }
}

/// The two halves of the 128-bit product, folded.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let p = u128::from(a) * u128::from(b);
    (p as u64) ^ ((p >> 64) as u64)
}

/// Block `i` of a key.
#[inline]
pub fn block(words: &[u64; DP_WORDS], i: usize) -> &Block {
    // The compiler sees a constant length, so that callers' loops are unrolled.
    words[i * 8..i * 8 + 8].try_into().unwrap_or(&[0; 8])
}

/// Bitmap of the blocks that are not all zero; bit 0 is always set.
#[inline]
pub fn blocks_of(words: &[u64; DP_WORDS]) -> u8 {
    let mut map = 1u8;
    for i in 1..BLOCKS {
        let any = block(words, i).iter().fold(0, |a, w| a | w);
        map |= u8::from(any != 0) << i;
    }
    map
}

/// Calls `f` with the number of each set bit.
#[inline]
pub fn each_block(mut map: u8, mut f: impl FnMut(usize)) {
    while map != 0 {
        f(map.trailing_zeros() as usize);
        map &= map - 1;
    }
}

/// Names of flows: 128 bits of a keyed hash (two SipHashes under different keys).
pub struct FlowNames {
    keys: [RandomState; 2],
}

impl FlowNames {
    /// The process's naming secret.
    pub fn process() -> &'static FlowNames {
        static ONE: OnceLock<FlowNames> = OnceLock::new();
        ONE.get_or_init(|| FlowNames { keys: [RandomState::new(), RandomState::new()] })
    }

    /// The ufid of a flow: of its full key and its mask, in the form of a random UUID.
    pub fn ufid(&self, key: &DpKey, mask: &DpMask) -> Ufid {
        let h = self.hash(key, mask);
        let version = 0xf << 76;
        let variant = 0x3 << 62;
        Ufid(h & !version & !variant | 0x4 << 76 | 0x2 << 62)
    }

    /// What two flows share exactly if they match the same packets by the same mask.
    pub fn megaflow(&self, masked: &DpKey, mask: &DpMask) -> u128 {
        self.hash(masked, mask)
    }

    fn hash(&self, key: &DpKey, mask: &DpMask) -> u128 {
        let half = |state: &RandomState| {
            let mut h = state.build_hasher();
            for words in [key.words(), mask.0.words()] {
                let map = blocks_of(words);
                h.write_u8(map);
                each_block(map, |i| {
                    for w in block(words, i) {
                        h.write_u64(*w);
                    }
                });
            }
            h.finish()
        };
        u128::from(half(&self.keys[0])) << 64 | u128::from(half(&self.keys[1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ufids_look_like_random_uuids() {
        let names = FlowNames::process();
        let mut key = DpKey::default();
        let mut seen = std::collections::HashSet::new();
        for port in 0..1000 {
            key.base.in_port = port;
            let text = names.ufid(&key, &DpMask::default()).to_string();
            assert_eq!(&text[14..15], "4", "{text}");
            assert!("89ab".contains(&text[19..20]), "{text}");
            assert!(seen.insert(text));
        }
    }

    #[test]
    fn absent_blocks_equal_zeros_and_masked_bits_do_not_count() {
        let h = BlockHash::process();
        let mut key = DpKey::default();
        key.base.in_port = 3;
        let mask: Block = std::array::from_fn(|i| if i == 0 { u64::from(u32::MAX) } else { 0 });
        let one = h.add(0, 0, block(key.words(), 0), &mask);
        key.base.recirc_id = 9;
        assert_eq!(h.add(0, 0, block(key.words(), 0), &mask), one);
        key.base.in_port = 4;
        assert_ne!(h.add(0, 0, block(key.words(), 0), &mask), one);
        assert_eq!(blocks_of(key.words()), 1);
        key.ct.nw_proto = 1;
        assert_eq!(blocks_of(key.words()), 0b1001);
    }

    /// Sequential addresses and ports spread over buckets as random numbers would.
    #[test]
    fn buckets_are_even() {
        let h = BlockHash::process();
        let all: Block = [u64::MAX; 8];
        let mut counts = vec![0u32; 1024];
        let mut key = DpKey::default();
        for i in 0..102_400u32 {
            key.base.nw_dst = i.into();
            counts[(h.add(0, 0, block(key.words(), 0), &all) & 1023) as usize] += 1;
        }
        let chi2: f64 = counts.iter().map(|c| (f64::from(*c) - 100.0).powi(2) / 100.0).sum();
        assert!((0.7..1.3).contains(&(chi2 / 1023.0)), "{chi2}");
    }
}
