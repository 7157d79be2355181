//! The rules of one mask.

use std::sync::Arc;

use fv_flow::FlowMask;
use fv_flow::key::FLOW_WORDS;
use parking_lot::RwLock;
use smallvec::SmallVec;

use crate::mini::{MiniMask, MiniMatch};
use crate::prefix::{Asked, Lengths};
use crate::rule::{ClsRule, Version};
use crate::stage::{HASH_SEED, N_STAGES, STAGES, hash_word};
use crate::table::{HashCounts, RuleTable};
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
    indices: Box<[HashCounts]>,
    rules: RuleTable<R>,
}

/// The word of a key whose last four bytes are the ports.
const PORTS_WORD: usize = 7;

/// Both ports as one number, source first.
fn ports_of(word: u64) -> u32 {
    let b = word.to_ne_bytes();
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
        let pm = ports_of(full.0.words()[PORTS_WORD]);
        Subtable {
            lengths: Lengths::of(&full),
            ports: (pm != 0).then(|| Ports { mask: pm, len: 32 - pm.trailing_zeros() as u8, trie: RwLock::default() }),
            indices: (1..stages.len()).map(|_| HashCounts::default()).collect(),
            rules: RuleTable::default(),
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

    fn hash_stage(&self, h: u64, stage: usize, word: impl Fn(usize) -> u64) -> u64 {
        self.parts[self.start(stage)..usize::from(self.stages[stage].end)]
            .iter()
            .fold(h, |h, p| hash_word(h, word(usize::from(p.word)) & p.mask))
    }

    fn hash(&self, word: impl Fn(usize) -> u64) -> u64 {
        self.parts.iter().fold(HASH_SEED, |h, p| hash_word(h, word(usize::from(p.word)) & p.mask))
    }

    fn hash_of(&self, m: &MiniMatch) -> u64 {
        self.hash(|w| m.value(w))
    }

    /// Whether a rule of this subtable covers the key.
    fn agrees(&self, m: &MiniMatch, words: &Words) -> bool {
        self.mask.iter().zip(m.values()).all(|((w, mask), v)| words[w] & mask == *v)
    }

    fn find_at(&self, hash: u64, version: Version, words: &Words) -> Option<Arc<ClsRule<R>>> {
        self.rules.find(hash, |r| self.agrees(r.matches(), words), |r| r.is_visible(version))
    }

    pub(crate) fn find(&self, version: Version, words: &Words) -> Option<Arc<ClsRule<R>>> {
        self.find_at(self.hash(|w| words[w]), version, words)
    }

    /// The visible rule of the same match as `rule` whose priority comes next.
    pub(crate) fn next_below(&self, rule: &ClsRule<R>, version: Version) -> Option<Arc<ClsRule<R>>> {
        self.rules.find(
            self.hash_of(rule.matches()),
            |r| r.matches().values() == rule.matches().values(),
            |r| r.priority() < rule.priority() && r.is_visible(version),
        )
    }

    /// As `find`, and adds the bits that decided to `wc`.
    pub(crate) fn find_wc(
        &self,
        version: Version,
        words: &Words,
        asked: &mut Asked<'_>,
        wc: &mut FlowMask,
    ) -> Option<Arc<ClsRule<R>>> {
        // A rule that covers the key is one that no trie and no index rules out: asked for first, where the
        // tries would have to be gone down, it saves that, which costs most when there are many rules.
        if !asked.knows(&self.lengths)
            && let Some(found) = self.find(version, words)
        {
            fold(wc, &self.parts);
            return Some(found);
        }
        let mut h = HASH_SEED;
        for (i, s) in self.stages.iter().enumerate() {
            if asked.rules_out(&self.lengths, usize::from(s.id), wc) {
                fold(wc, self.parts_to(i));
                return None;
            }
            h = self.hash_stage(h, i, |w| words[w]);
            if let Some(index) = self.indices.get(i)
                && !index.contains(h)
            {
                fold(wc, self.parts_to(i + 1));
                return None;
            }
        }
        let found = self.find_at(h, version, words);
        match &self.ports {
            // The other fields of the last stage were looked at too: only the ports may be narrowed.
            Some(p) if found.is_none() => {
                let ports = ports_of(words[PORTS_WORD]) & p.mask;
                let bits = p.trie.try_read().map_or(p.len, |t| t.lookup(ports).0);
                let mine = ports_word(u32::MAX);
                for part in &self.parts {
                    let m = if usize::from(part.word) == PORTS_WORD { part.mask & !mine } else { part.mask };
                    wc.0.words_mut()[usize::from(part.word)] |= m;
                }
                wc.0.words_mut()[PORTS_WORD] |= ports_word(p.mask & u32::MAX.top(bits));
            }
            _ => fold(wc, &self.parts),
        }
        found
    }

    /// The rule of this very match and priority.
    pub(crate) fn find_exactly(&self, m: &MiniMatch, priority: i32, version: Version) -> Option<Arc<ClsRule<R>>> {
        self.rules.find(
            self.hash_of(m),
            |r| r.matches().values() == m.values(),
            |r| r.priority() == priority && r.is_visible(version),
        )
    }

    // The writer's part: one thread at a time.

    pub(crate) fn insert(&self, rule: Arc<ClsRule<R>>) {
        let m = rule.matches();
        if let Some(p) = &self.ports {
            p.trie.write().insert(ports_of(m.value(PORTS_WORD)), p.len);
        }
        let h = self.change_indices(m, HashCounts::insert);
        let again = rule.clone();
        self.rules.insert(h, again, |r| r.matches().values() == rule.matches().values());
    }

    pub(crate) fn remove(&self, rule: &Arc<ClsRule<R>>) {
        let m = rule.matches();
        let h = self.change_indices(m, HashCounts::remove);
        if let Some(p) = &self.ports {
            p.trie.write().remove(ports_of(m.value(PORTS_WORD)), p.len);
        }
        self.rules.remove(h, rule, |r| r.matches().values() == m.values());
    }

    /// Counts a rule in or out of the index of each stage but the last; returns the whole hash.
    fn change_indices(&self, m: &MiniMatch, change: fn(&HashCounts, u64)) -> u64 {
        let mut h = HASH_SEED;
        for i in 0..self.stages.len() {
            h = self.hash_stage(h, i, |w| m.value(w));
            if let Some(index) = self.indices.get(i) {
                change(index, h);
            }
        }
        h
    }

    pub(crate) fn for_each(&self, f: impl FnMut(&Arc<ClsRule<R>>)) {
        self.rules.for_each(f);
    }
}

fn fold(wc: &mut FlowMask, parts: &[Part]) {
    let w = wc.0.words_mut();
    for p in parts {
        w[usize::from(p.word)] |= p.mask;
    }
}
