//! Marks: numbers by which a NIC says which flow a packet is of.
//!
//! A worker that meets a mark for the first time looks the packet up and asks [`Marks::owner`] whether the flow
//! it found is the mark's; from then on the mark leads it there directly. What makes this safe is that a mark
//! gets a new owner only when no packet with its old meaning can still come: the hardware's rule is confirmed
//! gone, the NIC's pipeline has had time to run empty, and then every receive queue has been found empty or has
//! delivered more than it can hold. Bits of the mark that are not needed count its owners, so that a packet
//! which came late all the same is a miss.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fv_core::{DpPort, Nanos, Ufid};
use parking_lot::{Mutex, RwLock};

/// Bits of a mark that say which of its table's places it is, at most; the rest counts owners.
const PLACE_BITS: u32 = 18;
/// Packets that a worker has in hand at once.
const BURST: u64 = 32;
/// Releases between two looks at the queues, that are checked together, at most; later ones wait.
const BATCHES_MAX: usize = 64;

/// How far a receive queue has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueProgress {
    pub port: DpPort,
    pub queue: usize,
    /// Another number when the queue was closed and opened: what it held is gone.
    pub life: u64,
    /// Packets taken from it.
    pub delivered: u64,
    /// Times that it was found to hold no more.
    pub emptied: u64,
}

/// The owners of marks: written by whoever programs the NIC, read by workers when they meet a mark anew.
pub struct Marks {
    /// By place: moves when a mark gets an owner and when it loses it.
    turns: Box<[AtomicU32]>,
    owners: RwLock<Vec<Owner>>,
    free: Mutex<Free>,
}

#[derive(Clone, Copy, Default)]
struct Owner {
    mark: u32,
    flow: Option<Ufid>,
}

#[derive(Default)]
struct Free {
    /// Places whose marks nobody has; those free for longest first, so that the least is reused.
    places: VecDeque<u32>,
    /// Rules that are gone; packets may still be in the NIC's pipeline.
    leaving: VecDeque<(Nanos, u32)>,
    /// Packets may still be in receive queues; how far these were.
    draining: VecDeque<(Vec<QueueProgress>, Vec<u32>)>,
}

/// The place that a mark stands for.
pub const fn place_of(mark: u32) -> usize {
    (mark & ((1 << PLACE_BITS) - 1)) as usize
}

impl Default for Marks {
    fn default() -> Marks {
        let turns = (0..1 << PLACE_BITS).map(|_| AtomicU32::new(0)).collect();
        Marks { turns, owners: RwLock::default(), free: Mutex::default() }
    }
}

impl Marks {
    pub fn new() -> Arc<Marks> {
        Arc::default()
    }

    /// As long as this is the same, the mark's owner is. One load.
    #[inline]
    pub fn turn_of(&self, mark: u32) -> u32 {
        self.turns[place_of(mark)].load(Ordering::Acquire)
    }

    /// The place that `turn_of` reads, to ask for its line beforehand.
    #[inline]
    pub fn line_of(&self, mark: u32) -> &AtomicU32 {
        &self.turns[place_of(mark)]
    }

    /// The flow that packets with this mark are of, and the turn in which it is so. None: nobody's, or not any
    /// more.
    pub fn owner(&self, mark: u32) -> Option<(Ufid, u32)> {
        let owners = self.owners.read();
        let owner = owners.get(place_of(mark)).filter(|o| o.mark == mark)?;
        owner.flow.map(|flow| (flow, self.turn_of(mark)))
    }

    /// A mark of at most `bits` bits for a flow; it is never 0. None if all are taken or not yet free again.
    pub fn take(&self, bits: u8, flow: Ufid) -> Option<u32> {
        let bits = u32::from(bits.min(32));
        let limit = 1u32 << bits.min(PLACE_BITS);
        let mut owners = self.owners.write();
        if owners.is_empty() {
            // Place 0 is no mark's.
            owners.push(Owner::default());
        }
        let place = {
            let mut free = self.free.lock();
            let at = free.places.iter().position(|p| *p < limit);
            at.and_then(|at| free.places.remove(at))
        };
        let place = match place {
            Some(place) => place,
            None if (owners.len() as u32) < limit => {
                owners.push(Owner::default());
                owners.len() as u32 - 1
            }
            None => return None,
        };
        let generations = 1u64 << bits.saturating_sub(PLACE_BITS);
        let owner = &mut owners[place as usize];
        let generation = match owner.mark {
            0 => 0,
            mark => (u64::from(mark >> PLACE_BITS) + 1) % generations,
        };
        owner.mark = (generation as u32) << PLACE_BITS | place;
        owner.flow = Some(flow);
        self.turns[place as usize].fetch_add(1, Ordering::AcqRel);
        Some(owner.mark)
    }

    /// Packets with the mark are looked up like any other from now on; the mark is still in hardware.
    pub fn disown(&self, mark: u32) {
        let mut owners = self.owners.write();
        let owner = owners.get_mut(place_of(mark)).filter(|o| o.mark == mark);
        if owner.and_then(|o| o.flow.take()).is_some() {
            self.turns[place_of(mark)].fetch_add(1, Ordering::AcqRel);
        }
    }

    /// No rule gives the mark any more. It is free again when [`Marks::progress`] says so.
    pub fn release(&self, mark: u32, now: Nanos, pipeline_delay: Nanos) {
        self.disown(mark);
        let mut free = self.free.lock();
        let at = now + pipeline_delay;
        let place = free.leaving.iter().rposition(|(t, _)| *t <= at).map_or(0, |p| p + 1);
        free.leaving.insert(place, (at, mark));
    }

    /// Marks wait for [`Marks::progress`] with queues that have been looked into.
    pub fn waiting(&self, now: Nanos) -> bool {
        let free = self.free.lock();
        !free.draining.is_empty() || free.leaving.front().is_some_and(|(at, _)| *at <= now)
    }

    /// Marks that wait to be free again.
    pub fn n_waiting(&self) -> usize {
        let free = self.free.lock();
        free.leaving.len() + free.draining.iter().map(|(_, marks)| marks.len()).sum::<usize>()
    }

    /// How far all receive queues are. `ring_max` is what the largest of them holds.
    pub fn progress(&self, now: Nanos, queues: &[QueueProgress], ring_max: u64) {
        let mut free = self.free.lock();
        while free.draining.front().is_some_and(|(then, _)| then.iter().all(|t| has_passed(t, queues, ring_max))) {
            let marks = free.draining.pop_front().map(|(_, marks)| marks).unwrap_or_default();
            free.places.extend(marks.into_iter().map(|m| place_of(m) as u32));
        }
        if free.draining.len() >= BATCHES_MAX {
            return;
        }
        let n = free.leaving.iter().take_while(|(at, _)| *at <= now).count();
        if n > 0 {
            let marks = free.leaving.drain(..n).map(|(_, mark)| mark).collect();
            free.draining.push_back((queues.to_vec(), marks));
        }
    }
}

/// Whether whatever the queue held at `then` has been taken out and dealt with. Counters move after a burst
/// was dealt with, but the burst may have begun before `then`: so one more of each is asked for.
fn has_passed(then: &QueueProgress, now: &[QueueProgress], ring_max: u64) -> bool {
    let same = now.iter().find(|q| (q.port, q.queue, q.life) == (then.port, then.queue, then.life));
    same.is_none_or(|q| {
        q.emptied.wrapping_sub(then.emptied) >= 2 || q.delivered.wrapping_sub(then.delivered) > ring_max + BURST
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(delivered: u64, emptied: u64) -> Vec<QueueProgress> {
        vec![QueueProgress { port: DpPort(1), queue: 0, life: 0, delivered, emptied }]
    }

    fn is_free(marks: &Marks) -> bool {
        // Two places, one of which is no mark's.
        let mark = marks.take(1, Ufid(9));
        mark.inspect(|m| marks.owners.write()[place_of(*m)] = Owner::default());
        mark.inspect(|m| marks.free.lock().places.push_back(*m));
        mark.is_some()
    }

    #[test]
    fn a_mark_is_free_when_the_queues_have_moved_on() {
        for (later, passed) in [
            (queue(10, 5), false),
            (queue(10, 6), false),
            (queue(10, 7), true),
            (queue(1000, 5), false),
            (queue(10 + 1024 + 33, 5), true),
            (Vec::new(), true),
            (vec![QueueProgress { life: 1, ..queue(0, 0)[0] }], true),
        ] {
            let marks = Marks::default();
            let mark = marks.take(1, Ufid(1)).unwrap();
            assert_eq!((marks.owner(mark), marks.take(1, Ufid(2))), (Some((Ufid(1), 1)), None));
            marks.release(mark, Nanos(100), Nanos(50));
            assert_eq!((marks.owner(mark), marks.turn_of(mark)), (None, 2));
            // Not before the pipeline has run empty.
            marks.progress(Nanos(149), &queue(0, 0), 1024);
            marks.progress(Nanos(149), &queue(5000, 50), 1024);
            assert!(!is_free(&marks) && !marks.waiting(Nanos(149)) && marks.waiting(Nanos(150)));
            marks.progress(Nanos(150), &queue(10, 5), 1024);
            marks.progress(Nanos(200), &later, 1024);
            assert_eq!(is_free(&marks), passed, "{later:?}");
        }
    }

    #[test]
    fn owners_are_counted_in_spare_bits() {
        let marks = Marks::default();
        let mut seen = Vec::new();
        for round in 0..5 {
            let mark = marks.take(20, Ufid(round)).unwrap();
            assert_eq!(place_of(mark), 1);
            seen.push(mark >> PLACE_BITS);
            for old in 0..round.min(3) {
                let old = (seen[seen.len() - 2 - old as usize] << PLACE_BITS) | 1;
                assert_eq!(marks.owner(old), None, "an older meaning");
            }
            marks.release(mark, Nanos::ZERO, Nanos::ZERO);
            marks.progress(Nanos(1), &queue(0, 0), 0);
            marks.progress(Nanos(1), &queue(0, 2), 0);
        }
        assert_eq!(seen, [0, 1, 2, 3, 0]);
    }
}
