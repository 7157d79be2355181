//! Frozen pipeline states by number. A recirculation id and the id inside a `controller` action are
//! the same kind of number; equal states share one, and a state lives as long as a program names it.

use std::sync::Arc;

use fv_core::RecircId;
use fv_xlate::Frozen;
use hashbrown::HashMap;
use parking_lot::Mutex;

/// More distinct states than this are not kept: the newest translation is refused its number.
const MAX_STATES: usize = 1 << 20;

#[derive(Default)]
pub struct FrozenStates {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    next: u32,
    by_id: HashMap<u32, Entry>,
    /// Hash of a state -> ids of states with that hash.
    by_hash: HashMap<u64, Vec<u32>>,
}

struct Entry {
    state: Arc<Frozen>,
    hash: u64,
    /// Programs that name the id. Zero right after `freeze`: the caller takes or drops it.
    refs: u32,
}

impl FrozenStates {
    /// The id of `state`, with one reference for the caller. 0 when there is no room: the packet-in
    /// or recirculation then finds no state and is dropped with a counter.
    pub fn freeze(&self, state: Frozen) -> RecircId {
        let hash = hash_of(&state);
        let mut g = self.inner.lock();
        let same = g.by_hash.get(&hash).and_then(|ids| ids.iter().find(|id| *g.by_id[*id].state == state).copied());
        if let Some(id) = same {
            if let Some(e) = g.by_id.get_mut(&id) {
                e.refs += 1;
            }
            return RecircId(id);
        }
        if g.by_id.len() >= MAX_STATES {
            return RecircId(0);
        }
        let id = loop {
            g.next = g.next.wrapping_add(1).max(1);
            if !g.by_id.contains_key(&g.next) {
                break g.next;
            }
        };
        g.by_id.insert(id, Entry { state: Arc::new(state), hash, refs: 1 });
        g.by_hash.entry(hash).or_default().push(id);
        RecircId(id)
    }

    pub fn find(&self, id: RecircId) -> Option<Arc<Frozen>> {
        self.inner.lock().by_id.get(&id.0).map(|e| e.state.clone())
    }

    /// Gives back references; a state without any is forgotten.
    pub fn release(&self, ids: &[RecircId]) {
        if ids.is_empty() {
            return;
        }
        let mut g = self.inner.lock();
        for id in ids {
            let Some(e) = g.by_id.get_mut(&id.0) else { continue };
            e.refs = e.refs.saturating_sub(1);
            if e.refs == 0 {
                let hash = e.hash;
                g.by_id.remove(&id.0);
                if let Some(v) = g.by_hash.get_mut(&hash) {
                    v.retain(|x| x != &id.0);
                    if v.is_empty() {
                        g.by_hash.remove(&hash);
                    }
                }
            }
        }
    }

    pub fn len(&self) -> usize {
        self.inner.lock().by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Only spreads states over buckets; equality decides.
fn hash_of(s: &Frozen) -> u64 {
    let mut h = 0xcbf2_9ce4_8422_2325u64;
    let mut mix = |v: u64| h = (h ^ v).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    mix(u64::from(s.table) | u64::from(s.pause) << 8);
    mix(s.cookie);
    s.key.words().iter().for_each(|w| mix(*w));
    s.userdata.iter().for_each(|b| mix(u64::from(*b)));
    mix(s.stack.len() as u64 | (s.actions.len() as u64) << 32);
    h
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(cookie: u64) -> Frozen {
        Frozen {
            bridge: Default::default(),
            table: 0,
            key: Default::default(),
            stack: vec![],
            action_set: vec![],
            actions: vec![],
            cookie,
            userdata: vec![],
            pause: false,
        }
    }

    #[test]
    fn equal_states_share_a_number_until_the_last_goes() {
        let f = FrozenStates::default();
        let (a, b, c) = (f.freeze(state(1)), f.freeze(state(1)), f.freeze(state(2)));
        assert_eq!(a, b);
        assert_ne!(a, c);
        f.release(&[a, c]);
        assert!(f.find(a).is_some() && f.find(c).is_none());
        f.release(&[b]);
        assert!(f.find(a).is_none() && f.is_empty());
    }
}
