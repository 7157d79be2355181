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
    pub(crate) secret: [Block; BLOCKS],
    /// Round keys of the AES form, two words each.
    pub(crate) rounds: Block,
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
            let mut row = || std::array::from_fn(|_| word());
            BlockHash { secret: std::array::from_fn(|_| row()), rounds: row() }
        })
    }

    /// Hash of a flow's name.
    pub fn name(&self, name: u128) -> u64 {
        fold(name as u64 ^ self.rounds[0], (name >> 64) as u64 ^ self.rounds[1])
    }

    /// Adds block `i` of a key under `mask` to the hash `h`, where there is no AES. Five multiplications, two deep.
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
pub(crate) fn fold(a: u64, b: u64) -> u64 {
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
pub fn blocks_of(words: &[u64; DP_WORDS]) -> u16 {
    let mut map = 1u16;
    for i in 1..BLOCKS {
        let any = block(words, i).iter().fold(0, |a, w| a | w);
        map |= u16::from(any != 0) << i;
    }
    map
}

/// Calls `f` with the number of each set bit.
#[inline]
pub fn each_block(mut map: u16, mut f: impl FnMut(usize)) {
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
                h.write_u16(map);
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
pub(crate) mod tests {
    use super::*;
    use crate::simd::Level;

    /// The AES form of the block hash, in plain code.
    pub fn soft_aes(h: u64, i: usize, key: &Block, mask: &Block) -> u64 {
        let secrets = BlockHash::process();
        let bytes = |b: &Block, lane: usize| -> [u8; 16] {
            let pair = u128::from(b[lane * 2]) | u128::from(b[lane * 2 + 1]) << 64;
            pair.to_le_bytes()
        };
        let rounds = |x: [u8; 16], first: usize| {
            round(round(x, bytes(&secrets.rounds, first)), bytes(&secrets.rounds, first + 1))
        };
        let mut sum = u128::from(h).to_le_bytes();
        let mixed: Block = std::array::from_fn(|j| (key[j] & mask[j]) ^ secrets.secret[i][j]);
        for lane in 0..4 {
            let x = rounds(bytes(&mixed, lane), 0);
            sum = std::array::from_fn(|j| sum[j] ^ x[j]);
        }
        u128::from_le_bytes(rounds(sum, 2)) as u64
    }

    /// One AES round (FIPS 197, sections 5.1.1 to 5.1.4).
    fn round(state: [u8; 16], key: [u8; 16]) -> [u8; 16] {
        let times = |mut a: u8, mut b: u8| {
            let mut p = 0;
            while b != 0 {
                p ^= if b & 1 != 0 { a } else { 0 };
                a = a << 1 ^ if a & 0x80 != 0 { 0x1b } else { 0 };
                b >>= 1;
            }
            p
        };
        let substitute = |a: u8| {
            // The inverse is the 254th power.
            let inverse =
                (0..7).fold((a, 1u8), |(square, p), _| (times(square, square), times(times(square, square), p))).1;
            (1..5).fold(inverse, |s, n| s ^ inverse.rotate_left(n)) ^ 0x63
        };
        let shifted: [u8; 16] = std::array::from_fn(|n| substitute(state[(n + n % 4 * 4) % 16]));
        std::array::from_fn(|n| {
            let (column, row) = (n / 4 * 4, n % 4);
            let at = |r: usize| shifted[column + (row + r) % 4];
            times(at(0), 2) ^ times(at(1), 3) ^ at(2) ^ at(3) ^ key[n]
        })
    }

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
        let h = Level::best();
        let mut key = DpKey::default();
        key.base.in_port = 3;
        let mask: Block = std::array::from_fn(|i| if i == 0 { u64::from(u32::MAX) } else { 0 });
        let one = h.hash(0, 0, block(key.words(), 0), &mask);
        key.base.recirc_id = 9;
        assert_eq!(h.hash(0, 0, block(key.words(), 0), &mask), one);
        key.base.in_port = 4;
        assert_ne!(h.hash(0, 0, block(key.words(), 0), &mask), one);
        assert_eq!(blocks_of(key.words()), 1);
        key.ct.nw_proto = 1;
        assert_eq!(blocks_of(key.words()), 0b1001);
    }

    /// Sequential addresses and ports spread over buckets as random numbers would.
    #[test]
    fn buckets_are_even() {
        for level in [Level::Portable, Level::best()] {
            check_even(level);
        }
    }

    fn check_even(h: Level) {
        let all: Block = [u64::MAX; 8];
        let mut counts = vec![0u32; 1024];
        let mut key = DpKey::default();
        for i in 0..102_400u32 {
            key.base.nw_dst = i.into();
            counts[(h.hash(0, 0, block(key.words(), 0), &all) & 1023) as usize] += 1;
        }
        let chi2: f64 = counts.iter().map(|c| (f64::from(*c) - 100.0).powi(2) / 100.0).sum();
        assert!((0.7..1.3).contains(&(chi2 / 1023.0)), "{chi2}");
    }
}
