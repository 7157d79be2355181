//! Keys and masks as they are kept by the million: without their zeros.

use crate::key::{DP_WORDS, DpKey, DpMask};

/// A [`DpKey`], or the inside of a [`DpMask`], of which only the words are kept that are not zero: a
/// sixth of it for most flows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Packed {
    /// Which words are there.
    map: u128,
    words: Box<[u64]>,
}

const _: () = assert!(DP_WORDS <= 128);

impl Packed {
    pub fn new(key: &DpKey) -> Packed {
        let map = key.words().iter().enumerate().fold(0, |map, (i, w)| map | u128::from(*w != 0) << i);
        Packed { map, words: key.words().iter().copied().filter(|w| *w != 0).collect() }
    }

    pub fn key(&self) -> DpKey {
        let mut key = DpKey::default();
        let (all, mut map) = (key.words_mut(), self.map);
        for word in &self.words {
            all[map.trailing_zeros() as usize % DP_WORDS] = *word;
            map &= map.wrapping_sub(1);
        }
        key
    }

    /// One word of it.
    pub fn word(&self, i: usize) -> u64 {
        let bit = 1u128 << (i % DP_WORDS);
        match self.map & bit {
            0 => 0,
            _ => self.words[(self.map & (bit - 1)).count_ones() as usize],
        }
    }

    pub fn mask(&self) -> DpMask {
        DpMask(self.key())
    }
}

impl From<&DpMask> for Packed {
    fn from(mask: &DpMask) -> Packed {
        Packed::new(&mask.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_lost(words in proptest::collection::vec((0..DP_WORDS, any::<u64>()), 0..50)) {
            let mut key = DpKey::default();
            for (at, word) in words {
                key.words_mut()[at] = word;
            }
            let packed = Packed::new(&key);
            prop_assert_eq!(packed.key(), key);
            prop_assert!((0..DP_WORDS).all(|i| packed.word(i) == key.words()[i]));
            prop_assert_eq!(packed.mask(), DpMask(key));
        }
    }
}
