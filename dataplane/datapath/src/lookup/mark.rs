//! From a NIC's mark straight to the flow.
//!
//! Reads: what is remembered of the mark, its turn, the entry. Cost: three lines. What is remembered holds
//! as long as the mark's turn and the entry's own memory of the mark do; everything else is a miss, after which the
//! packet is looked up like any other.

use fv_dpif::Marks;
use fv_dpif::mark::place_of;

use super::Table;
use super::entry::State;
use super::line::NONE;
use crate::simd::prefetch;

/// By a mark's place: the entry that it led to, in which turn.
#[derive(Default)]
pub struct Remembered(Vec<(u32, u32)>);

impl Table {
    /// The entry of the flow that a mark names, with its present program; a dying flow is a miss.
    #[inline]
    pub fn marked(&mut self, marks: &Marks, mark: u32) -> Option<u32> {
        let &(index, turn) = self.marked.0.get(place_of(mark))?;
        if turn != marks.turn_of(mark) {
            return None;
        }
        let entry = self.slab.find_mut(index)?;
        match entry.state() {
            _ if entry.mark != mark => return None,
            State::Current => {}
            State::Changed => entry.refresh(),
            State::Dead => return None,
        }
        Some(index)
    }

    /// As `marked` for the packets of a burst: says whether all of them are led to their flows. In stages, each of which
    /// asks for the line that the next one needs.
    pub fn all_marked(&mut self, marks: &Marks, burst: &[u32], found: &mut [u32]) -> bool {
        for mark in burst {
            if let Some(place) = self.marked.0.get(place_of(*mark)) {
                prefetch::<1, _>(place);
            }
            prefetch::<1, _>(marks.line_of(*mark));
        }
        for (mark, index) in burst.iter().zip(found.iter_mut()) {
            *index = match self.marked.0.get(place_of(*mark)) {
                Some((index, turn)) if *turn == marks.turn_of(*mark) => *index,
                _ => NONE,
            };
            if let Some(place) = self.slab.place_of(*index) {
                prefetch::<2, _>(place);
            }
        }
        for (mark, index) in burst.iter().zip(found.iter()) {
            match self.slab.find(*index) {
                Some(entry) if entry.mark == *mark => prefetch::<1, _>(&*entry.flow),
                _ => return false,
            }
        }
        let mut last = NONE;
        for index in found.iter() {
            if *index == last {
                continue;
            }
            last = *index;
            match self.slab.find(last).map(|e| e.state()) {
                Some(State::Current) => {}
                Some(State::Changed) => {
                    if let Some(entry) = self.slab.find_mut(last) {
                        entry.refresh();
                    }
                }
                _ => return false,
            }
        }
        true
    }

    /// A packet with this mark was found to be of the flow at `index`.
    #[cold]
    pub fn remember_mark(&mut self, marks: &Marks, mark: u32, index: u32) {
        let Some((owner, turn)) = marks.owner(mark) else { return };
        let Some(entry) = self.slab.find_mut(index).filter(|e| e.flow.ufid == owner) else { return };
        entry.mark = mark;
        let place = place_of(mark);
        if self.marked.0.len() <= place {
            self.marked.0.resize((place + 1).next_power_of_two(), (NONE, 0));
        }
        self.marked.0[place] = (index, turn);
    }
}
