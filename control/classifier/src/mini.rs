//! Matches and masks without their zero words.

use std::hash::{Hash, Hasher};

use fv_flow::key::FLOW_WORDS;
use fv_flow::{FlowKey, FlowMask, Match};
use hashbrown::Equivalent;

const _: () = assert!(FLOW_WORDS <= 128);

/// Indices of the set bits, ascending.
fn bits(mut map: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (map != 0).then(|| {
            let i = map.trailing_zeros() as usize;
            map &= map - 1;
            i
        })
    })
}

fn map_of(mask: &FlowMask) -> u128 {
    mask.0.words().iter().enumerate().fold(0, |m, (i, w)| m | (u128::from(*w != 0) << i))
}

/// The nonzero words of a mask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MiniMask {
    map: u128,
    words: Box<[u64]>,
}

impl Hash for MiniMask {
    fn hash<H: Hasher>(&self, h: &mut H) {
        hash_mask(self.map, &self.words, h);
    }
}

fn hash_mask<H: Hasher>(map: u128, words: &[u64], h: &mut H) {
    h.write_u128(map);
    words.iter().for_each(|w| h.write_u64(*w));
}

/// The mask of a match, to look it up without making one.
pub(crate) struct MaskOf<'a>(pub &'a MiniMatch);

impl Hash for MaskOf<'_> {
    fn hash<H: Hasher>(&self, h: &mut H) {
        hash_mask(self.0.map, self.0.masks(), h);
    }
}

impl Equivalent<MiniMask> for MaskOf<'_> {
    fn equivalent(&self, m: &MiniMask) -> bool {
        self.0.map == m.map && *self.0.masks() == *m.words
    }
}

impl MiniMask {
    pub fn new(mask: &FlowMask) -> MiniMask {
        let map = map_of(mask);
        MiniMask { map, words: bits(map).map(|i| mask.0.words()[i]).collect() }
    }

    pub(crate) fn of(m: &MiniMatch) -> MiniMask {
        MiniMask { map: m.map, words: m.masks().into() }
    }

    /// (word index, mask) of each nonzero word.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        bits(self.map).zip(self.words.iter().copied())
    }

    pub fn expand(&self) -> FlowMask {
        let mut m = FlowMask::default();
        for (i, w) in self.iter() {
            m.0.words_mut()[i] = w;
        }
        m
    }

    /// Whether every bit of `o` is in this mask.
    pub(crate) fn contains(&self, o: &MiniMask) -> bool {
        if o.map & !self.map != 0 {
            return false;
        }
        let mut own = self.iter();
        o.iter().all(|(i, w)| own.find(|(j, _)| *j == i).is_some_and(|(_, m)| w & !m == 0))
    }
}

/// A match in 16 bytes a word that it uses, instead of a [`Match`]'s 1408.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MiniMatch {
    map: u128,
    /// The masks of the mapped words, then their values.
    words: Box<[u64]>,
}

impl MiniMatch {
    /// Bits of the key that are not in the mask are dropped.
    pub fn new(m: &Match) -> MiniMatch {
        let map = map_of(&m.mask);
        let masks = bits(map).map(|i| m.mask.0.words()[i]);
        let values = bits(map).map(|i| m.key.words()[i] & m.mask.0.words()[i]);
        MiniMatch { map, words: masks.chain(values).collect() }
    }

    pub(crate) fn masks(&self) -> &[u64] {
        &self.words[..self.words.len() / 2]
    }

    /// The values of the mapped words.
    pub(crate) fn values(&self) -> &[u64] {
        &self.words[self.words.len() / 2..]
    }

    /// The value of a word of the key; zero where nothing of it is matched.
    pub(crate) fn value(&self, word: usize) -> u64 {
        let bit = 1u128 << word;
        match self.map & bit {
            0 => 0,
            _ => self.values()[(self.map & (bit - 1)).count_ones() as usize],
        }
    }

    /// (word index, mask, value) of each word that is matched.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64, u64)> + '_ {
        bits(self.map).zip(self.masks().iter().zip(self.values())).map(|(i, (m, v))| (i, *m, *v))
    }

    pub fn expand(&self) -> Match {
        let mut m = Match::default();
        for (i, mask, value) in self.iter() {
            m.mask.0.words_mut()[i] = mask;
            m.key.words_mut()[i] = value;
        }
        m
    }

    /// Matches every packet.
    pub fn is_catch_all(&self) -> bool {
        self.map == 0
    }

    pub fn covers(&self, key: &FlowKey) -> bool {
        self.covers_words(key.words())
    }

    pub(crate) fn covers_words(&self, key: &[u64; FLOW_WORDS]) -> bool {
        self.iter().all(|(i, m, v)| key[i] & m == v)
    }

    /// Whether this match is at least as specific as `criterion` and agrees with it: the relation
    /// of OpenFlow's loose modify and delete.
    pub fn is_within(&self, criterion: &MiniMatch) -> bool {
        if criterion.map & !self.map != 0 {
            return false;
        }
        let mut own = self.iter();
        criterion.iter().all(|(i, m, v)| own.find(|o| o.0 == i).is_some_and(|(_, om, ov)| m & !om == 0 && ov & m == v))
    }

    /// Whether some packet matches both.
    pub fn overlaps(&self, o: &MiniMatch) -> bool {
        let mut other = o.iter().peekable();
        self.iter().all(|(i, m, v)| {
            while other.next_if(|x| x.0 < i).is_some() {}
            match other.peek() {
                Some(&(j, om, ov)) if j == i => (v ^ ov) & m & om == 0,
                _ => true,
            }
        })
    }
}

impl From<&Match> for MiniMatch {
    fn from(m: &Match) -> Self {
        MiniMatch::new(m)
    }
}
