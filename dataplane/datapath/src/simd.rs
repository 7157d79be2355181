//! The primitives of lookups at each CPU level, and which level this processor has.
//!
//! A stage is a generic function over [`Simd`] that is compiled once per level (see
//! [`lookup::burst`](crate::lookup)), with the primitives inlined. [`Portable`] is the twin that the
//! others are checked against.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use crate::hash::{Block, BlockHash};
use crate::lookup::line::{Line, WAYS};

/// What the processor can do. The names are those of the x86-64 levels; V2 also wants AES.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Portable,
    V2,
    /// AVX2, BMI.
    V3,
    /// AVX-512 F, BW, DQ, VL.
    V4,
    /// Every key has the same hash.
    #[cfg(test)]
    Colliding,
}

impl Level {
    pub const ALL: [Level; 4] = [Level::Portable, Level::V2, Level::V3, Level::V4];

    /// The highest level that this processor has; asked once.
    pub fn best() -> Level {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| Level::ALL.into_iter().rev().find(|l| l.available()).unwrap_or(Level::Portable))
    }

    pub fn available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let v2 = || is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("aes");
            let v3 = || v2() && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2");
            let v4 = || {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            };
            match self {
                Level::Portable => true,
                Level::V2 => v2(),
                Level::V3 => v3(),
                Level::V4 => v3() && v4(),
                #[cfg(test)]
                Level::Colliding => true,
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Level::Portable
        }
    }

    /// The block hash of this level. All levels but the portable one agree.
    #[inline]
    pub fn hash(self, h: u64, i: usize, key: &Block, mask: &Block) -> u64 {
        #[cfg(test)]
        if self == Level::Colliding {
            return Colliding::hash(h, i, key, mask);
        }
        #[cfg(target_arch = "x86_64")]
        if self != Level::Portable {
            // SAFETY: a level above the portable one is only chosen where the processor has AES.
            return unsafe { x86::aes_hash_alone(h, i, key, mask) };
        }
        Portable::hash(h, i, key, mask)
    }
}

/// Calls a stage at a level: `at_level!(level, stage(args))` runs `stage::<S>(args)` compiled for it.
macro_rules! at_level {
    ($level:expr, fn $stage:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?) => {{
        use crate::simd::{Level, Portable};
        #[cfg(target_arch = "x86_64")]
        mod compiled {
            use super::*;
            use crate::simd::{V2, V3, V4};

            #[target_feature(enable = "sse4.2,aes,popcnt")]
            pub fn v2($($arg: $ty),*) $(-> $ret)? { $stage::<V2>($($arg),*) }
            #[target_feature(enable = "avx2,aes,bmi1,bmi2,lzcnt,popcnt")]
            pub fn v3($($arg: $ty),*) $(-> $ret)? { $stage::<V3>($($arg),*) }
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,aes,bmi1,bmi2,lzcnt,popcnt")]
            pub fn v4($($arg: $ty),*) $(-> $ret)? { $stage::<V4>($($arg),*) }
        }
        #[allow(unsafe_code)]
        match $level {
            Level::Portable => $stage::<Portable>($($arg),*),
            // SAFETY: each level is only chosen where the processor has its features.
            #[cfg(target_arch = "x86_64")]
            Level::V2 => unsafe { compiled::v2($($arg),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::V3 => unsafe { compiled::v3($($arg),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::V4 => unsafe { compiled::v4($($arg),*) },
            #[cfg(test)]
            Level::Colliding => $stage::<crate::simd::Colliding>($($arg),*),
            #[cfg(not(target_arch = "x86_64"))]
            _ => $stage::<Portable>($($arg),*),
        }
    }};
}
pub(crate) use at_level;

/// What lookups are made of.
pub trait Simd {
    /// Adds block `i` of a key under `mask` to the hash `h`.
    fn hash(h: u64, i: usize, key: &Block, mask: &Block) -> u64;
    /// Bitmap of the ways that hold `tag`; empty ways may be among them.
    fn candidates(line: &Line, tag: u16) -> u32;
    /// Whether `key` and `value` differ anywhere under `mask`.
    fn differ(key: &Block, value: &Block, mask: &Block) -> bool;
}

/// Plain code: the twin, and what other processors run.
#[derive(Clone, Copy)]
pub struct Portable;

impl Simd for Portable {
    #[inline(always)]
    fn hash(h: u64, i: usize, key: &Block, mask: &Block) -> u64 {
        BlockHash::process().add(h, i, key, mask)
    }

    #[inline(always)]
    fn candidates(line: &Line, tag: u16) -> u32 {
        let mut map = 0;
        for way in 0..WAYS {
            map |= u32::from(line.tags[way] == tag) << way;
        }
        map
    }

    #[inline(always)]
    fn differ(key: &Block, value: &Block, mask: &Block) -> bool {
        let mut differ = 0;
        for j in 0..8 {
            differ |= (key[j] ^ value[j]) & mask[j];
        }
        differ != 0
    }
}

/// The worst that can happen to a table: all that follows must still be right.
#[cfg(test)]
#[derive(Clone, Copy)]
pub struct Colliding;

#[cfg(test)]
impl Simd for Colliding {
    fn hash(_: u64, _: usize, _: &Block, _: &Block) -> u64 {
        0x0123_4567_89ab_cdef
    }

    fn candidates(line: &Line, tag: u16) -> u32 {
        Portable::candidates(line, tag)
    }

    fn differ(key: &Block, value: &Block, mask: &Block) -> bool {
        Portable::differ(key, value, mask)
    }
}

/// Asks the processor for the first `LINES` lines of a thing that is read soon.
#[inline(always)]
pub fn prefetch<const LINES: usize, T>(thing: &T) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..LINES {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = std::ptr::from_ref(thing).cast::<i8>().wrapping_add(line * 64);
        // SAFETY: a prefetch reads nothing that the program sees, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = thing;
}

#[cfg(target_arch = "x86_64")]
pub use x86::{V2, V3, V4};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Block, BlockHash, Line, Simd};

    /// Two keyed rounds of AES a lane, the lanes folded, two rounds more.
    ///
    /// # Safety
    /// The processor has AES.
    #[inline(always)]
    unsafe fn aes_hash(h: u64, i: usize, key: &Block, mask: &Block) -> u64 {
        let secrets = BlockHash::process();
        let (s, rounds) = (&secrets.secret[i], &secrets.rounds);
        // SAFETY: loads are unaligned and inside the blocks; AES as the caller promises.
        unsafe {
            let at = |b: &Block, lane: usize| _mm_loadu_si128(b.as_ptr().add(lane * 2).cast());
            let (k0, k1) = (at(rounds, 0), at(rounds, 1));
            let lane = |n: usize| {
                let x = _mm_xor_si128(_mm_and_si128(at(key, n), at(mask, n)), at(s, n));
                _mm_aesenc_si128(_mm_aesenc_si128(x, k0), k1)
            };
            let sum = _mm_xor_si128(_mm_xor_si128(lane(0), lane(1)), _mm_xor_si128(lane(2), lane(3)));
            let sum = _mm_xor_si128(sum, _mm_cvtsi64_si128(h as i64));
            let out = _mm_aesenc_si128(_mm_aesenc_si128(sum, at(rounds, 2)), at(rounds, 3));
            _mm_cvtsi128_si64(out) as u64
        }
    }

    /// [`aes_hash`] outside of a compiled stage.
    #[target_feature(enable = "sse2,aes")]
    pub fn aes_hash_alone(h: u64, i: usize, key: &Block, mask: &Block) -> u64 {
        // SAFETY: the features are enabled here.
        unsafe { aes_hash(h, i, key, mask) }
    }

    #[derive(Clone, Copy)]
    pub struct V2;

    impl Simd for V2 {
        #[inline(always)]
        fn hash(h: u64, i: usize, key: &Block, mask: &Block) -> u64 {
            // SAFETY: V2 is only used where there is AES.
            unsafe { aes_hash(h, i, key, mask) }
        }

        #[inline(always)]
        fn candidates(line: &Line, tag: u16) -> u32 {
            // SAFETY: SSE2 is in every x86-64; both loads are inside the 64 bytes of the line: tags 0-7, and from byte
            // 4 on, tags 2-9.
            unsafe {
                let base = std::ptr::from_ref(line).cast::<u8>();
                let tag = _mm_set1_epi16(tag as i16);
                let low = _mm_cmpeq_epi16(_mm_loadu_si128(base.cast()), tag);
                let high = _mm_cmpeq_epi16(_mm_loadu_si128(base.add(4).cast()), tag);
                let map = _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32;
                (map & 0xff) | (map >> 6 & 0x300)
            }
        }

        #[inline(always)]
        fn differ(key: &Block, value: &Block, mask: &Block) -> bool {
            // SAFETY: V2 has SSE4.1; loads are inside the blocks.
            unsafe {
                let at = |b: &Block, lane: usize| _mm_loadu_si128(b.as_ptr().add(lane * 2).cast());
                let lane = |n| _mm_and_si128(_mm_xor_si128(at(key, n), at(value, n)), at(mask, n));
                let any = _mm_or_si128(_mm_or_si128(lane(0), lane(1)), _mm_or_si128(lane(2), lane(3)));
                _mm_testz_si128(any, any) == 0
            }
        }
    }

    #[derive(Clone, Copy)]
    pub struct V3;

    impl Simd for V3 {
        #[inline(always)]
        fn hash(h: u64, i: usize, key: &Block, mask: &Block) -> u64 {
            // SAFETY: V3 is only used where there is AES.
            unsafe { aes_hash(h, i, key, mask) }
        }

        #[inline(always)]
        fn candidates(line: &Line, tag: u16) -> u32 {
            // SAFETY: V3 has AVX2; the load is the first half of the line.
            unsafe {
                let same = _mm256_cmpeq_epi16(
                    _mm256_loadu_si256(std::ptr::from_ref(line).cast()),
                    _mm256_set1_epi16(tag as i16),
                );
                let map = _mm256_movemask_epi8(_mm256_packs_epi16(same, _mm256_setzero_si256())) as u32;
                (map & 0xff) | (map >> 8 & 0x300)
            }
        }

        #[inline(always)]
        fn differ(key: &Block, value: &Block, mask: &Block) -> bool {
            // SAFETY: V3 has AVX2; loads are inside the blocks.
            unsafe {
                let at = |b: &Block, half: usize| _mm256_loadu_si256(b.as_ptr().add(half * 4).cast());
                let half = |n| _mm256_and_si256(_mm256_xor_si256(at(key, n), at(value, n)), at(mask, n));
                let any = _mm256_or_si256(half(0), half(1));
                _mm256_testz_si256(any, any) == 0
            }
        }
    }

    #[derive(Clone, Copy)]
    pub struct V4;

    impl Simd for V4 {
        #[inline(always)]
        fn hash(h: u64, i: usize, key: &Block, mask: &Block) -> u64 {
            // SAFETY: V4 is only used where there is AES.
            unsafe { aes_hash(h, i, key, mask) }
        }

        #[inline(always)]
        fn candidates(line: &Line, tag: u16) -> u32 {
            // SAFETY: V4 has AVX-512 BW and VL; the load is the first half of the line.
            unsafe {
                let tags = _mm256_loadu_si256(std::ptr::from_ref(line).cast());
                u32::from(_mm256_cmpeq_epi16_mask(tags, _mm256_set1_epi16(tag as i16))) & 0x3ff
            }
        }

        #[inline(always)]
        fn differ(key: &Block, value: &Block, mask: &Block) -> bool {
            // SAFETY: V4 has AVX-512 F; loads are the blocks.
            unsafe {
                let at = |b: &Block| _mm512_loadu_si512(b.as_ptr().cast());
                _mm512_test_epi64_mask(_mm512_xor_si512(at(key), at(value)), at(mask)) != 0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::tests::soft_aes;

    fn ways<S: Simd>(line: &Line, tag: u16) -> u32 {
        S::candidates(line, tag)
    }

    fn compared<S: Simd>(key: &Block, value: &Block, mask: &Block) -> bool {
        S::differ(key, value, mask)
    }

    fn hashed<S: Simd>(h: u64, i: usize, key: &Block, mask: &Block) -> u64 {
        S::hash(h, i, key, mask)
    }

    fn candidates(line: &Line, tag: u16) -> u32 {
        let twin = Portable::candidates(line, tag);
        for level in Level::ALL.into_iter().filter(|l| l.available()) {
            assert_eq!(at_level!(level, fn ways(line: &Line, tag: u16) -> u32), twin, "{level:?}");
        }
        twin
    }

    fn differ(key: &Block, value: &Block, mask: &Block) -> bool {
        let twin = Portable::differ(key, value, mask);
        for level in Level::ALL.into_iter().filter(|l| l.available()) {
            let is = at_level!(level, fn compared(key: &Block, value: &Block, mask: &Block) -> bool);
            assert_eq!(is, twin, "{level:?}");
        }
        twin
    }

    proptest! {
        #[test]
        fn every_level_finds_the_same_ways(tags in prop::array::uniform10(0u16..4), index: u32, tag in 0u16..4) {
            // What follows the tags must not be taken for some.
            let line = Line { tags, index: [index; WAYS], extra: index };
            let map = candidates(&line, tag);
            prop_assert_eq!(map.count_ones() as usize, tags.iter().filter(|t| **t == tag).count());
        }

        #[test]
        fn every_level_compares_the_same(key: Block, mask: Block, word in 0usize..8, bit in 0u32..64) {
            let mut value = key;
            prop_assert!(!differ(&key, &value, &mask));
            value[word] ^= 1 << bit;
            prop_assert_eq!(differ(&key, &value, &mask), mask[word] >> bit & 1 == 1);
        }

        #[test]
        fn every_level_hashes_the_same(h: u64, i in 0usize..crate::hash::BLOCKS, key: Block, mask: Block) {
            let (key, mask) = (&key, &mask);
            let soft = soft_aes(h, i, key, mask);
            for level in Level::ALL.into_iter().filter(|l| l.available()) {
                let inlined = at_level!(level, fn hashed(h: u64, i: usize, key: &Block, mask: &Block) -> u64);
                prop_assert_eq!(inlined, level.hash(h, i, key, mask));
                if level != Level::Portable {
                    prop_assert_eq!(inlined, soft, "{:?}", level);
                }
            }
        }
    }
}
