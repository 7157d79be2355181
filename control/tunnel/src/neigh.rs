//! The neighbours of bridges: who has which address. Written by packets, read by translation.
//!
//! Cost: a short lock, on misses and once a round for flows that carry packets; never for a packet of a flow.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use fv_core::Nanos;
use hashbrown::HashMap;
use parking_lot::Mutex;

/// Neighbours at most, questions that wait for an answer included.
pub const MAX_NEIGHBOURS: usize = 8192;
/// Seconds for which nobody needs to confirm an entry.
pub const AGING_S: u32 = 900;
pub const MAX_AGING_S: u32 = 3600;
/// A neighbour is asked once in this time.
const REQUEST_INTERVAL: Nanos = Nanos::from_secs(1);
/// A question that nobody asks any more is forgotten.
const QUESTION_AGE: Nanos = Nanos::from_secs(10);

type Place = (String, IpAddr);

#[derive(Clone, Copy, Debug)]
struct Entry {
    mac: [u8; 6],
    expires: Nanos,
}

#[derive(Default)]
struct State {
    known: HashMap<Place, Entry>,
    /// When each was asked last.
    asked: HashMap<Place, Nanos>,
}

pub struct Neighbours {
    state: Mutex<State>,
    aging_s: AtomicU32,
    seq: AtomicU64,
}

impl Default for Neighbours {
    fn default() -> Self {
        Neighbours { state: Mutex::default(), aging_s: AtomicU32::new(AGING_S), seq: AtomicU64::new(0) }
    }
}

/// What learning changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolved {
    Nothing,
    /// Who has the address is known now, or is another.
    Changed,
}

/// A line of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeighRow {
    pub ip: IpAddr,
    pub mac: [u8; 6],
    pub bridge: String,
    pub stale: bool,
}

impl Neighbours {
    /// Who has the address on the bridge's network.
    pub fn find(&self, bridge: &str, ip: IpAddr, now: Nanos) -> Option<[u8; 6]> {
        let s = self.state.lock();
        let e = s.known.get(&(bridge.to_owned(), ip))?;
        (e.expires > now).then_some(e.mac)
    }

    /// Packets use the entry: it stays. False if it is not there any more.
    pub fn used(&self, bridge: &str, ip: IpAddr, now: Nanos) -> bool {
        let aging = self.aging();
        let mut s = self.state.lock();
        match s.known.get_mut(&(bridge.to_owned(), ip)) {
            Some(e) if e.expires > now => {
                e.expires = now + aging;
                true
            }
            _ => false,
        }
    }

    pub fn learn(&self, bridge: &str, ip: IpAddr, mac: [u8; 6], now: Nanos) -> Resolved {
        if ip.is_unspecified() || ip.is_multicast() || mac[0] & 1 != 0 || mac == [0; 6] {
            return Resolved::Nothing;
        }
        let expires = now + self.aging();
        let mut s = self.state.lock();
        let place = (bridge.to_owned(), ip);
        s.asked.remove(&place);
        let old = s.known.get(&place).copied();
        if old.is_none() && s.known.len() >= MAX_NEIGHBOURS && !make_room(&mut s, now) {
            crate::NEIGHBOUR_FULL.inc();
            return Resolved::Nothing;
        }
        s.known.insert(place, Entry { mac, expires });
        if old.is_some_and(|o| o.mac == mac && o.expires > now) {
            return Resolved::Nothing;
        }
        drop(s);
        self.seq.fetch_add(1, Ordering::Release);
        Resolved::Changed
    }

    /// Whether the neighbour is to be asked now: once a second, whoever wants it.
    pub fn may_ask(&self, bridge: &str, ip: IpAddr, now: Nanos) -> bool {
        let mut s = self.state.lock();
        let place = (bridge.to_owned(), ip);
        if let Some(at) = s.asked.get(&place)
            && now < *at + REQUEST_INTERVAL
        {
            return false;
        }
        if s.asked.len() >= MAX_NEIGHBOURS {
            s.asked.retain(|_, at| now < *at + QUESTION_AGE);
            if s.asked.len() >= MAX_NEIGHBOURS {
                return false;
            }
        }
        s.asked.insert(place, now);
        crate::NEIGHBOUR_REQUESTS.inc();
        true
    }

    /// Entries whose time is over stop serving; true if there were any since the last call.
    pub fn expire(&self, now: Nanos) -> bool {
        let mut s = self.state.lock();
        s.asked.retain(|_, at| now < *at + QUESTION_AGE);
        let before = s.known.len();
        s.known.retain(|_, e| e.expires > now);
        let changed = s.known.len() != before;
        drop(s);
        if changed {
            self.seq.fetch_add(1, Ordering::Release);
        }
        changed
    }

    /// Forgets the entries of a bridge, or all.
    pub fn flush(&self, bridge: Option<&str>) {
        let mut s = self.state.lock();
        s.known.retain(|(b, _), _| bridge.is_some_and(|x| x != b));
        s.asked.clear();
        drop(s);
        self.seq.fetch_add(1, Ordering::Release);
    }

    pub fn set_aging(&self, seconds: u32) {
        self.aging_s.store(seconds, Ordering::Relaxed);
    }

    pub fn aging_s(&self) -> u32 {
        self.aging_s.load(Ordering::Relaxed)
    }

    fn aging(&self) -> Nanos {
        Nanos::from_secs(self.aging_s().into())
    }

    /// Grows whenever a lookup may say something else.
    pub fn seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    /// Sorted by address.
    pub fn rows(&self, now: Nanos) -> Vec<NeighRow> {
        let s = self.state.lock();
        let mut rows: Vec<NeighRow> = s
            .known
            .iter()
            .map(|((b, ip), e)| NeighRow { ip: *ip, mac: e.mac, bridge: b.clone(), stale: e.expires <= now })
            .collect();
        rows.sort_by(|a, b| (a.ip, &a.bridge).cmp(&(b.ip, &b.bridge)));
        rows
    }
}

/// Makes room for one: what is over goes, else what would end first.
fn make_room(s: &mut State, now: Nanos) -> bool {
    s.known.retain(|_, e| e.expires > now);
    if s.known.len() < MAX_NEIGHBOURS {
        return true;
    }
    let first = s.known.iter().min_by_key(|(_, e)| e.expires).map(|(p, _)| p.clone());
    first.is_some_and(|p| s.known.remove(&p).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Nanos = Nanos::from_secs;

    #[test]
    fn learnt_refreshed_and_aged() {
        let n = Neighbours::default();
        let ip: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(n.learn("br", ip, [2; 6], S(0)), Resolved::Changed);
        assert_eq!(n.learn("br", ip, [2; 6], S(1)), Resolved::Nothing);
        assert_eq!(n.find("br", ip, S(2)), Some([2; 6]));
        assert_eq!(n.find("other", ip, S(2)), None);
        assert!(n.used("br", ip, S(800)));
        assert_eq!(n.find("br", ip, S(1600)), Some([2; 6]));
        assert_eq!(n.learn("br", ip, [4; 6], S(1600)), Resolved::Changed, "another has it now");
        assert!(!n.used("br", ip, S(2501)));
        assert!(n.expire(S(2501)) && n.rows(S(2501)).is_empty());
        for (ip, mac) in [("224.0.0.1", [2; 6]), ("0.0.0.0", [2; 6]), ("10.0.0.1", [1; 6]), ("10.0.0.1", [0; 6])] {
            assert_eq!(n.learn("br", ip.parse().unwrap(), mac, S(0)), Resolved::Nothing);
        }
    }

    #[test]
    fn asked_once_a_second_and_bounded() {
        let n = Neighbours::default();
        let ip: IpAddr = "10.0.0.1".parse().unwrap();
        let asked = (0..10_000).filter(|ms| n.may_ask("br", ip, Nanos::from_ms(*ms))).count();
        assert_eq!(asked, 10);
        for i in 0..2 * MAX_NEIGHBOURS as u32 {
            n.learn("br", std::net::Ipv4Addr::from(0x0a00_0000 + i).into(), [2; 6], S(u64::from(i / 1000)));
            n.may_ask("br", std::net::Ipv4Addr::from(0x0b00_0000 + i).into(), S(20));
        }
        assert_eq!(n.rows(S(0)).len(), MAX_NEIGHBOURS);
        assert!(n.state.lock().asked.len() <= MAX_NEIGHBOURS);
    }
}
