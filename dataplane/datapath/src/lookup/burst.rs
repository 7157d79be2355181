//! The lookup of a burst, in stages, so that the memory accesses of different packets overlap.
//!
//! Reads: keys, the cache's lines, subtables' lines, entries, flows' states. Writes: the cache, hit
//! counts. Next: execution. Each stage goes over all packets, does what needs the line that the stage
//! before has asked for, and asks for the next. Compiled once per CPU level.

use super::cache::{Cache, next_index};
use super::dpcls::{Classifier, Subtable};
use super::entry::{Slab, State};
use super::line::{NONE, tag_of};
use super::{Ask, CacheUse, Probe, Table, Tally};
use crate::simd::{Simd, at_level, prefetch};

/// Packets of a burst at most; as many bits as a bitmap has.
pub const BURST: usize = 32;

/// A burst of one ingress port.
pub struct Burst<'a> {
    pub probes: &'a [Probe],
    /// Hashes of the whole keys, as far as `hashed` says so.
    pub hashes: &'a mut [u64; BURST],
    pub hashed: &'a mut u32,
    /// Indices of the entries that were found, [`NONE`] for a miss.
    pub found: &'a mut [u32],
}

/// Looks up a burst in the classifier `c` of its port.
pub fn lookup(table: &mut Table, c: usize, burst: &mut Burst, ask: Ask) -> Tally {
    at_level!(table.level, fn stages(table: &mut Table, c: usize, burst: &mut Burst<'_>, ask: Ask) -> Tally)
}

#[inline(always)]
fn stages<S: Simd>(table: &mut Table, c: usize, burst: &mut Burst<'_>, ask: Ask) -> Tally {
    let n = burst.probes.len().min(burst.found.len()).min(BURST);
    let all = ((1u64 << n) - 1) as u32;
    let mut tally = Tally::default();
    // Who has set the cache to be used wants to see it used.
    let mut todo = match ask == Ask::Nothing || table.cache_use == CacheUse::Adaptive {
        true => hot::<S>(table, c, burst, n, all, &mut tally),
        false => all,
    };
    if todo == 0 && table.slab.find(table.hot).is_some_and(|e| e.state() == State::Current) {
        return tally;
    }
    if ask != Ask::Nothing && todo != 0 {
        let asked = todo;
        todo = cached::<S>(&mut table.cache, &table.slab, burst, asked);
        tally.cache = u64::from((asked & !todo).count_ones());
        table.cache.looked(asked.count_ones().into(), tally.cache);
    }
    let uncached = todo;
    todo = subtables::<S>(&mut table.classifiers[c], &table.slab, burst, todo, &mut tally);
    let mut bits = todo;
    while bits != 0 {
        burst.found[bits.trailing_zeros() as usize] = NONE;
        bits &= bits - 1;
    }
    if ask == Ask::Remember || ask == Ask::Sometimes {
        let mut bits = uncached & !todo;
        while bits != 0 {
            let i = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            if ask == Ask::Remember || table.dice() {
                table.cache.insert(burst.hashes[i], burst.found[i]);
            }
        }
    }
    settle(table, burst, n, &mut tally);
    let first = burst.found[0];
    let differ = burst.found[..n].iter().fold(0, |d, f| d | (f ^ first));
    table.hot = if differ == 0 { first } else { NONE };
    tally
}

/// Compares with the flow that all of the last burst had, if the first packet has it too: a flow that
/// matches is the right one, whatever subtable it is in. Returns the packets that are still to do.
#[inline(always)]
fn hot<S: Simd>(table: &mut Table, c: usize, burst: &mut Burst<'_>, n: usize, all: u32, tally: &mut Tally) -> u32 {
    let Some(entry) = table.slab.find(table.hot).filter(|e| n != 0 && e.matches::<S>(&burst.probes[0])) else {
        return all;
    };
    let probes = &burst.probes[..n];
    let left = match entry.mask().blocks {
        // Both in registers.
        1 => differing(probes, |p| S::differ(p.first(), &entry.base, entry.mask().first())),
        _ => differing(probes, |p| !entry.matches::<S>(p)),
    };
    burst.found[..n].fill(table.hot);
    let hits = u64::from((all & !left).count_ones());
    if table.classifiers[c].simple {
        tally.simple += hits;
    } else {
        (tally.subtable, tally.tried) = (hits, hits);
    }
    // The flow's subtable is to stay in front.
    let front = table.classifiers[c].subtables.iter_mut().find(|s| std::ptr::eq(&*s.mask, entry.mask()));
    if let Some(subtable) = front {
        subtable.hits += hits;
    }
    left
}

/// A bit for each probe of which `differs` is true.
#[inline(always)]
fn differing(probes: &[Probe], mut differs: impl FnMut(&Probe) -> bool) -> u32 {
    probes.iter().enumerate().fold(0, |left, (i, p)| left | u32::from(differs(p)) << i)
}

/// Asks the cache for the packets in `todo`; returns those that it does not know.
#[inline(always)]
fn cached<S: Simd>(cache: &mut Cache, slab: &Slab, burst: &mut Burst<'_>, todo: u32) -> u32 {
    let mut bits = todo;
    while bits != 0 {
        let i = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        if *burst.hashed >> i & 1 == 0 {
            burst.hashes[i] = burst.probes[i].hash::<S>();
        }
        prefetch::<1, _>(cache.line(burst.hashes[i]));
    }
    *burst.hashed |= todo;
    let mut ways = [0u32; BURST];
    let mut bits = todo;
    while bits != 0 {
        let i = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        let line = cache.line(burst.hashes[i]);
        ways[i] = S::candidates(line, tag_of(burst.hashes[i]));
        let index = next_index(line, &mut ways[i]);
        burst.found[i] = index;
        if let Some(place) = slab.place_of(index) {
            prefetch::<2, _>(place);
        }
    }
    let mut unknown = 0;
    let mut bits = todo;
    while bits != 0 {
        let i = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        let probe = &burst.probes[i];
        loop {
            match slab.find(burst.found[i]) {
                Some(e) if e.matches::<S>(probe) => {
                    prefetch::<1, _>(&*e.flow);
                    break;
                }
                // Another flow of the same tag, or nothing more to try.
                _ => {
                    let index = next_index(cache.line(burst.hashes[i]), &mut ways[i]);
                    if index == NONE {
                        unknown |= 1 << i;
                        break;
                    }
                    burst.found[i] = index;
                }
            }
        }
    }
    unknown
}

/// Searches the subtables for the packets in `todo`; returns those that none matched.
#[inline(always)]
fn subtables<S: Simd>(
    classifier: &mut Classifier,
    slab: &Slab,
    burst: &mut Burst<'_>,
    mut todo: u32,
    tally: &mut Tally,
) -> u32 {
    let simple = classifier.simple;
    for (tried, subtable) in (1u64..).zip(classifier.subtables.iter_mut()) {
        if todo == 0 {
            break;
        }
        let left = match &subtable.single {
            Some(_) => direct::<S>(subtable, slab, burst, todo),
            None => staged::<S>(subtable, slab, burst, todo),
        };
        let hits = u64::from((todo & !left).count_ones());
        todo = left;
        subtable.hits += hits;
        if simple {
            tally.simple += hits;
        } else {
            tally.subtable += hits;
            tally.tried += hits * tried;
        }
    }
    todo
}

/// Compares with a subtable's only rule.
#[inline(always)]
fn direct<S: Simd>(subtable: &Subtable, slab: &Slab, burst: &mut Burst<'_>, todo: u32) -> u32 {
    let Some(rule) = &subtable.single else { return todo };
    let (mask, more) = (subtable.mask.first(), subtable.mask.blocks != 1);
    let (mut left, mut bits) = (todo, todo);
    while bits != 0 {
        let i = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        let probe = &burst.probes[i];
        let mut same = !S::differ(probe.first(), &rule.value, mask);
        if more && same {
            same = slab.find(rule.index).is_some_and(|e| e.rest_matches(probe, &subtable.mask));
        }
        left &= !(u32::from(same) << i);
        burst.found[i] = if same { rule.index } else { burst.found[i] };
    }
    left
}

/// Hashes all, then looks at all lines, then compares all keys.
#[inline(always)]
fn staged<S: Simd>(subtable: &Subtable, slab: &Slab, burst: &mut Burst<'_>, todo: u32) -> u32 {
    let (mask, lines) = (&*subtable.mask, &subtable.table.lines);
    let mut hashes = [0u64; BURST];
    let mut bits = todo;
    while bits != 0 {
        let i = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        hashes[i] = mask.hash::<S>(burst.probes[i].key.words());
        prefetch::<1, _>(lines.line(lines.home(hashes[i])));
    }
    // Flows may be further on, or in the table before its growth.
    let settled = subtable.is_settled();
    let (mut candidates, mut unsure) = (0u32, 0u32);
    let mut ways = [0u32; BURST];
    let mut bits = todo;
    while bits != 0 {
        let i = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        let line = lines.line(lines.home(hashes[i]));
        ways[i] = S::candidates(line, tag_of(hashes[i]));
        let index = next_index(line, &mut ways[i]);
        unsure |= u32::from(line.extra != 0 || ways[i] != 0 || !settled) << i;
        candidates |= u32::from(index != NONE) << i;
        // What is not verified below is overwritten by whoever finds it, or by NONE.
        burst.found[i] = index;
        if let Some(place) = slab.place_of(index) {
            prefetch::<2, _>(place);
        }
    }
    let mut left = todo;
    let mut bits = candidates;
    while bits != 0 {
        let i = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        if let Some(e) = slab.find(burst.found[i])
            && e.matches_by::<S>(&burst.probes[i], mask)
        {
            prefetch::<1, _>(&*e.flow);
            left &= !(1 << i);
        }
    }
    let mut bits = left & unsure;
    while bits != 0 {
        let i = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        let check = |index: u32| slab.find(index).is_some_and(|e| e.matches_by::<S>(&burst.probes[i], mask));
        if let Some(index) = subtable.find(hashes[i], check) {
            burst.found[i] = index;
            left &= !(1 << i);
        }
    }
    left
}

/// Sees to it that what was found lives and has its present program. The state is in the line that
/// statistics will touch.
#[inline(always)]
fn settle(table: &mut Table, burst: &mut Burst<'_>, n: usize, tally: &mut Tally) {
    let mut last = NONE;
    for i in 0..n {
        let index = burst.found[i];
        if index == last {
            continue;
        }
        match table.slab.find(index).map(|e| e.state()) {
            None | Some(State::Current) => last = index,
            Some(State::Changed) => {
                if let Some(e) = table.slab.find_mut(index) {
                    e.refresh();
                }
                last = index;
            }
            Some(State::Dead) => burst.found[i] = table.replace_dead(&burst.probes[i], tally),
        }
    }
}
