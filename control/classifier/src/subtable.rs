//! The rules of one mask.

use std::sync::Arc;

use fv_flow::FlowMask;
use fv_flow::key::FLOW_WORDS;
use parking_lot::RwLock;
use smallvec::SmallVec;

use crate::mini::{MiniMask, MiniMatch};
use crate::prefix::{Asked, Lengths};
use crate::rule::{ClsRule, Version};
use crate::sharded::Sharded;
use crate::stage::{HASH_SEED, N_STAGES, STAGES, hash_word};
use crate::trie::{Bits, Trie};

type Words = [u64; FLOW_WORDS];

/// Masked bits of one word that belong to one stage.
#[derive(Clone, Copy)]
struct Part {
    word: u8,
    mask: u64,
}

struct Stage {
    /// Which of the four.
    id: u8,
    /// End of its parts.
    end: u8,
}

/// Rules of equal match, by descending priority, and then the one inserted last first.
type Chain<R> = SmallVec<[Arc<ClsRule<R>>; 1]>;

/// L4 ports are kept as one prefix (source, destination) so that a miss need not match all of them.
struct Ports {
    mask: u32,
    len: u8,
    trie: RwLock<Trie<u32>>,
}

pub(crate) struct Subtable<R> {
    pub(crate) mask: MiniMask,
    parts: Box<[Part]>,
    /// Those that have parts; the last one is looked up in `rules`, the others in `indices`.
    stages: SmallVec<[Stage; N_STAGES]>,
    pub(crate) lengths: Lengths,
    ports: Option<Ports>,
    /// How many rules have a hash of the words up to a stage.
    indices: Box<[Sharded<usize>]>,
    rules: Sharded<Chain<R>>,
}

/// Both ports as one number, source first.
fn ports_of(words: &Words) -> u32 {
    // The last four bytes of the first block, in memory order.
    let b = words[7].to_ne_bytes();
    u32::from_be_bytes([b[4], b[5], b[6], b[7]])
}

fn ports_word(v: u32) -> u64 {
    let p = v.to_be_bytes();
    u64::from_ne_bytes([0, 0, 0, 0, p[0], p[1], p[2], p[3]])
}

impl<R> Subtable<R> {
    pub(crate) fn new(mask: MiniMask) -> Subtable<R> {
        let mut parts = Vec::new();
        let mut stages = SmallVec::<[Stage; N_STAGES]>::new();
        for (id, stage) in STAGES.iter().enumerate() {
            let start = parts.len();
            parts.extend(mask.iter().map(|(w, m)| Part { word: w as u8, mask: m & stage[w] }).filter(|p| p.mask != 0));
            if parts.len() > start {
                stages.push(Stage { id: id as u8, end: parts.len() as u8 });
            }
        }
        let full = mask.expand();
        let pm = ports_of(full.0.words());
        Subtable {
            lengths: Lengths::of(&full),
            ports: (pm != 0).then(|| Ports { mask: pm, len: 32 - pm.trailing_zeros() as u8, trie: RwLock::default() }),
            indices: (1..stages.len()).map(|_| Sharded::default()).collect(),
            rules: Sharded::default(),
            parts: parts.into(),
            stages,
            mask,
        }
    }

    fn start(&self, stage: usize) -> usize {
        if stage == 0 { 0 } else { usize::from(self.stages[stage - 1].end) }
    }

    fn parts_to(&self, stages: usize) -> &[Part] {
        &self.parts[..self.start(stages)]
    }

    fn hash_stage(&self, h: u64, stage: usize, words: &Words) -> u64 {
        self.parts[self.start(stage)..usize::from(self.stages[stage].end)]
            .iter()
            .fold(h, |h, p| hash_word(h, words[usize::from(p.word)] & p.mask))
    }

    fn hash(&self, words: &Words) -> u64 {
        self.parts.iter().fold(HASH_SEED, |h, p| hash_word(h, words[usize::from(p.word)] & p.mask))
    }

    /// Whether a rule of this subtable covers the key.
    fn agrees(&self, m: &MiniMatch, words: &Words) -> bool {
        self.mask.iter().zip(m.values()).all(|((w, mask), v)| words[w] & mask == *v)
    }

    fn find_at(&self, hash: u64, version: Version, words: &Words) -> Option<Arc<ClsRule<R>>> {
        self.rules
            .find(
                hash,
                |c| c.first().is_some_and(|r| self.agrees(r.matches(), words)),
                |c| c.iter().find(|r| r.is_visible(version)).cloned(),
            )
            .flatten()
    }

    pub(crate) fn find(&self, version: Version, words: &Words) -> Option<Arc<ClsRule<R>>> {
        self.find_at(self.hash(words), version, words)
    }

    /// The visible rule of the same match as `rule` whose priority comes next.
    pub(crate) fn next_below(&self, rule: &ClsRule<R>, version: Version) -> Option<Arc<ClsRule<R>>> {
        let key = rule.matches().expand().key;
        self.rules
            .find(
                self.hash(key.words()),
                |c| c.first().is_some_and(|r| r.matches().values() == rule.matches().values()),
                |c| c.iter().find(|r| r.priority() < rule.priority() && r.is_visible(version)).cloned(),
            )
            .flatten()
    }

    /// As `find`, and adds the bits that decided to `wc`.
    pub(crate) fn find_wc(
        &self,
        version: Version,
        words: &Words,
        asked: &mut Asked<'_>,
        wc: &mut FlowMask,
    ) -> Option<Arc<ClsRule<R>>> {
        let mut h = HASH_SEED;
        for (i, s) in self.stages.iter().enumerate() {
            if asked.rules_out(&self.lengths, usize::from(s.id), wc) {
                fold(wc, self.parts_to(i));
                return None;
            }
            h = self.hash_stage(h, i, words);
            if let Some(index) = self.indices.get(i)
                && index.find(h, |_| true, |_| ()).is_none()
            {
                fold(wc, self.parts_to(i + 1));
                return None;
            }
        }
        let found = self.find_at(h, version, words);
        match &self.ports {
            // The other fields of the last stage were looked at too: only the ports may be narrowed.
            Some(p) if found.is_none() => {
                let (bits, _) = p.trie.read().lookup(ports_of(words) & p.mask);
                let mine = ports_word(u32::MAX);
                for part in &self.parts {
                    let m = if part.word == 7 { part.mask & !mine } else { part.mask };
                    wc.0.words_mut()[usize::from(part.word)] |= m;
                }
                wc.0.words_mut()[7] |= ports_word(p.mask & u32::MAX.top(bits));
            }
            _ => fold(wc, &self.parts),
        }
        found
    }

    /// The rule of this very match and priority.
    pub(crate) fn find_exactly(&self, m: &MiniMatch, priority: i32, version: Version) -> Option<Arc<ClsRule<R>>> {
        let key = m.expand().key;
        self.rules
            .find(
                self.hash(key.words()),
                |c| c.first().is_some_and(|r| r.matches().values() == m.values()),
                |c| c.iter().find(|r| r.priority() == priority && r.is_visible(version)).cloned(),
            )
            .flatten()
    }

    pub(crate) fn insert(&self, rule: Arc<ClsRule<R>>) {
        let key = rule.matches().expand().key;
        let words = key.words();
        if let Some(p) = &self.ports {
            p.trie.write().insert(ports_of(words), p.len);
        }
        let h = self.change_indices(words, true);
        let values = rule.matches().clone();
        let again = rule.clone();
        self.rules.upsert(
            h,
            |c| c.first().is_some_and(|r| r.matches().values() == values.values()),
            |c| {
                let at = c.iter().position(|r| r.priority() <= again.priority()).unwrap_or(c.len());
                c.insert(at, again);
                true
            },
            || Some(SmallVec::from_buf([rule])),
        );
    }

    pub(crate) fn remove(&self, rule: &Arc<ClsRule<R>>) {
        let key = rule.matches().expand().key;
        let words = key.words();
        let h = self.change_indices(words, false);
        if let Some(p) = &self.ports {
            p.trie.write().remove(ports_of(words), p.len);
        }
        self.rules.upsert(
            h,
            |c| c.first().is_some_and(|r| r.matches().values() == rule.matches().values()),
            |c| {
                c.retain(|r| !Arc::ptr_eq(r, rule));
                !c.is_empty()
            },
            || None,
        );
    }

    /// Counts a rule in or out of the index of each stage but the last; returns the whole hash.
    fn change_indices(&self, words: &Words, add: bool) -> u64 {
        let mut h = HASH_SEED;
        for i in 0..self.stages.len() {
            h = self.hash_stage(h, i, words);
            if let Some(index) = self.indices.get(i) {
                index.upsert(
                    h,
                    |_| true,
                    |n| {
                        *n = if add { *n + 1 } else { *n - 1 };
                        *n > 0
                    },
                    || add.then_some(1),
                );
            }
        }
        h
    }

    pub(crate) fn for_each(&self, mut f: impl FnMut(&Arc<ClsRule<R>>)) {
        self.rules.for_each(|c| c.iter().for_each(&mut f));
    }
}

fn fold(wc: &mut FlowMask, parts: &[Part]) {
    let w = wc.0.words_mut();
    for p in parts {
        w[usize::from(p.word)] |= p.mask;
    }
}
