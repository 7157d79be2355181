//! The MAC learning table of one bridge.
//!
//! Lookups and refreshes lock one of sixteen shards for a few instructions and may come from
//! any worker. Whatever changes where packets go (a new entry, a move, an expiry) also takes the
//! order lock and raises [`MacTable::generation`], by which megaflows know that they are outdated.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use fv_core::Nanos;
use parking_lot::{Mutex, RwLock};

/// Defaults and limits of `mac-aging-time` (seconds) and `mac-table-size`.
pub const DEFAULT_IDLE_S: u64 = 300;
pub const MIN_IDLE_S: u64 = 15;
pub const MAX_IDLE_S: u64 = 3600;
pub const DEFAULT_MAX_ENTRIES: usize = 8192;
pub const MIN_MAX_ENTRIES: usize = 10;
pub const MAX_MAX_ENTRIES: usize = 1_000_000;
/// How long reflected gratuitous ARPs from bonds are not believed.
pub const GRAT_ARP_LOCK: Nanos = Nanos::from_secs(5);
const N_SHARDS: usize = 16;

/// A set of VLAN ids, bit `v % 64` of word `v / 64`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VlanSet(Box<[u64; 64]>);

impl Default for VlanSet {
    fn default() -> Self {
        VlanSet(Box::new([0; 64]))
    }
}

impl VlanSet {
    pub fn insert(&mut self, vlan: u16) {
        self.0[usize::from(vlan & 0xfff) / 64] |= 1 << (vlan % 64);
    }
    pub fn contains(&self, vlan: u16) -> bool {
        self.0[usize::from(vlan & 0xfff) / 64] >> (vlan % 64) & 1 != 0
    }
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..4096).filter(|v| self.contains(*v))
    }
}

impl FromIterator<u16> for VlanSet {
    fn from_iter<I: IntoIterator<Item = u16>>(it: I) -> Self {
        let mut s = VlanSet::default();
        it.into_iter().for_each(|v| s.insert(v));
        s
    }
}

type Key = (u16, [u8; 6]);

struct Entry {
    port: u64,
    is_static: bool,
    /// Time of the last packet from there.
    used: AtomicU64,
    /// `used` as the order knows it: the order is corrected when the entry gets to its front.
    ordered: u64,
    /// Until when gratuitous ARPs from bonds are ignored.
    locked_until: AtomicU64,
}

/// An entry as commands and lookups see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MacEntry {
    pub vlan: u16,
    pub mac: [u8; 6],
    /// What the caller gave to `learn`: a bundle.
    pub port: u64,
    pub is_static: bool,
    pub used: Nanos,
}

impl MacEntry {
    /// As `fdb/show` prints it.
    pub fn age_s(&self, now: Nanos) -> u64 {
        now.saturating_sub(self.used).secs()
    }
}

/// What kind of packet teaches.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Learn {
    pub gratuitous_arp: bool,
    pub from_bond: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learned {
    New,
    /// It was on that port.
    Moved(u64),
    Refreshed,
    /// A multicast source, a flooded VLAN, a static entry, a locked one, or a full table.
    Refused,
}

impl Learned {
    pub fn changes_forwarding(self) -> bool {
        matches!(self, Learned::New | Learned::Moved(_))
    }
}

/// Counters of `fdb/stats-show`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MacStats {
    pub entries: usize,
    pub max_entries: usize,
    pub static_entries: usize,
    pub learned: u64,
    pub expired: u64,
    pub evicted: u64,
    pub moved: u64,
}

/// Who is oldest, and on which port: only for changes.
#[derive(Default)]
struct Order {
    /// Per port, its entries by last known use. Static ones are not in it.
    ports: HashMap<u64, BTreeSet<(u64, Key)>>,
    /// (number of entries, port), to find the port that has most.
    by_count: BTreeSet<(usize, u64)>,
    stats: MacStats,
}

impl Order {
    fn insert(&mut self, port: u64, used: u64, key: Key) {
        let set = self.ports.entry(port).or_default();
        let n = set.len();
        set.insert((used, key));
        let grown = set.len();
        self.by_count.remove(&(n, port));
        self.by_count.insert((grown, port));
    }

    fn remove(&mut self, port: u64, used: u64, key: Key) {
        let Some(set) = self.ports.get_mut(&port) else { return };
        let n = set.len();
        set.remove(&(used, key));
        let left = set.len();
        self.by_count.remove(&(n, port));
        if left == 0 {
            self.ports.remove(&port);
        } else {
            self.by_count.insert((left, port));
        }
    }
}

type Shard = RwLock<hashbrown::HashMap<Key, Entry, foldhash::fast::RandomState>>;

pub struct MacTable {
    shards: [Shard; N_SHARDS],
    order: Mutex<Order>,
    generation: AtomicU64,
    idle_ns: AtomicU64,
    max_entries: AtomicUsize,
    flood_vlans: RwLock<VlanSet>,
}

impl Default for MacTable {
    fn default() -> Self {
        Self::new()
    }
}

impl MacTable {
    pub fn new() -> MacTable {
        MacTable {
            shards: std::array::from_fn(|_| Shard::default()),
            order: Mutex::default(),
            generation: AtomicU64::new(1),
            idle_ns: AtomicU64::new(Nanos::from_secs(DEFAULT_IDLE_S).0),
            max_entries: AtomicUsize::new(DEFAULT_MAX_ENTRIES),
            flood_vlans: RwLock::default(),
        }
    }

    fn shard(&self, k: &Key) -> &Shard {
        let m = &k.1;
        let h = u32::from_ne_bytes([m[2] ^ m[0], m[3] ^ m[1], m[4], m[5]]) ^ u32::from(k.0);
        &self.shards[(h.wrapping_mul(0x9e37_79b1) >> 24) as usize % N_SHARDS]
    }

    /// Changes whenever a lookup could give another answer than before.
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    fn bump(&self) {
        self.generation.fetch_add(1, Relaxed);
    }

    /// Out of range values are brought into range.
    pub fn set_idle_time(&self, seconds: u64) {
        self.idle_ns.store(Nanos::from_secs(seconds.clamp(MIN_IDLE_S, MAX_IDLE_S)).0, Relaxed);
    }

    pub fn idle_time(&self) -> Nanos {
        Nanos(self.idle_ns.load(Relaxed))
    }

    /// Out of range values are brought into range; surplus entries go at the next `expire`.
    pub fn set_max_entries(&self, n: usize) {
        self.max_entries.store(n.clamp(MIN_MAX_ENTRIES, MAX_MAX_ENTRIES), Relaxed);
    }

    /// VLANs in which nothing is learnt. A change forgets what was learnt.
    pub fn set_flood_vlans(&self, vlans: VlanSet) {
        let changed = *self.flood_vlans.read() != vlans;
        if changed {
            *self.flood_vlans.write() = vlans;
            self.flush();
        }
    }

    /// Where `mac` was last seen in `vlan`. None too if that VLAN floods.
    pub fn lookup(&self, vlan: u16, mac: [u8; 6]) -> Option<MacEntry> {
        if self.flood_vlans.read().contains(vlan) {
            return None;
        }
        let k = (vlan, mac);
        self.shard(&k).read().get(&k).map(|e| view(&k, e))
    }

    /// Whether `learn` would answer [`Learned::New`] or [`Learned::Moved`], without doing it.
    pub fn would_change(&self, now: Nanos, vlan: u16, mac: [u8; 6], port: u64, how: Learn) -> bool {
        if mac[0] & 1 != 0 || self.flood_vlans.read().contains(vlan) {
            return false;
        }
        let k = (vlan, mac);
        self.shard(&k).read().get(&k).is_none_or(|e| e.port != port && may_move(e, now, how))
    }

    /// A packet from `mac` in `vlan` came in on `port`.
    pub fn learn(&self, now: Nanos, vlan: u16, mac: [u8; 6], port: u64, how: Learn) -> Learned {
        if mac[0] & 1 != 0 || self.flood_vlans.read().contains(vlan) {
            return Learned::Refused;
        }
        let k = (vlan, mac);
        if let Some(e) = self.shard(&k).read().get(&k) {
            if e.is_static {
                return if e.port == port { Learned::Refreshed } else { Learned::Refused };
            }
            if how.gratuitous_arp && !how.from_bond {
                e.locked_until.store((now + GRAT_ARP_LOCK).0, Relaxed);
            }
            if e.port == port {
                e.used.fetch_max(now.0, Relaxed);
                return Learned::Refreshed;
            }
            if !may_move(e, now, how) {
                return Learned::Refused;
            }
        }
        self.learn_slow(now, k, port, how)
    }

    /// Inserts or moves: at most once an address and change.
    fn learn_slow(&self, now: Nanos, k: Key, port: u64, how: Learn) -> Learned {
        let mut order = self.order.lock();
        let is_known = self.shard(&k).read().contains_key(&k);
        if !is_known && order.stats.entries >= self.max_entries.load(Relaxed) && !self.evict_one(&mut order) {
            return Learned::Refused;
        }
        let lock = if how.gratuitous_arp && !how.from_bond { (now + GRAT_ARP_LOCK).0 } else { 0 };
        let mut shard = self.shard(&k).write();
        let answer = match shard.get_mut(&k) {
            Some(e) if e.is_static || e.port == port => Learned::Refreshed,
            Some(e) => {
                let old = e.port;
                order.remove(old, e.ordered, k);
                e.port = port;
                e.used.store(now.0, Relaxed);
                e.ordered = now.0;
                order.stats.moved += 1;
                Learned::Moved(old)
            }
            None => {
                let entry = Entry {
                    port,
                    is_static: false,
                    used: AtomicU64::new(now.0),
                    ordered: now.0,
                    locked_until: AtomicU64::new(lock),
                };
                shard.insert(k, entry);
                order.stats.entries += 1;
                order.stats.learned += 1;
                Learned::New
            }
        };
        if answer.changes_forwarding() {
            order.insert(port, now.0, k);
            self.bump();
        }
        answer
    }

    /// Adds or replaces an entry that never expires, moves or is evicted. False if there is no room.
    pub fn add_static(&self, now: Nanos, vlan: u16, mac: [u8; 6], port: u64) -> bool {
        let k = (vlan, mac);
        let mut order = self.order.lock();
        self.take(&mut order, &k);
        if order.stats.entries >= self.max_entries.load(Relaxed) && !self.evict_one(&mut order) {
            return false;
        }
        let entry =
            Entry { port, is_static: true, used: AtomicU64::new(now.0), ordered: 0, locked_until: AtomicU64::new(0) };
        self.shard(&k).write().insert(k, entry);
        order.stats.entries += 1;
        order.stats.static_entries += 1;
        self.bump();
        true
    }

    /// Forgets one address, static or not. False if it was not known.
    pub fn remove(&self, vlan: u16, mac: [u8; 6]) -> bool {
        self.remove_key(&(vlan, mac))
    }

    fn remove_key(&self, k: &Key) -> bool {
        let mut order = self.order.lock();
        self.take(&mut order, k)
    }

    fn take(&self, order: &mut Order, k: &Key) -> bool {
        let Some(e) = self.shard(k).write().remove(k) else { return false };
        order.stats.entries -= 1;
        if e.is_static {
            order.stats.static_entries -= 1;
        } else {
            order.remove(e.port, e.ordered, *k);
        }
        self.bump();
        true
    }

    /// The entry of `port` that was used longest ago, with the order brought up to date.
    fn oldest(&self, order: &mut Order, port: u64) -> Option<(u64, Key)> {
        loop {
            let (recorded, k) = *order.ports.get(&port)?.first()?;
            let mut shard = self.shard(&k).write();
            let used = match shard.get_mut(&k) {
                Some(e) => {
                    e.ordered = e.used.load(Relaxed);
                    e.ordered
                }
                None => return None,
            };
            if used <= recorded {
                return Some((recorded, k));
            }
            let set = order.ports.get_mut(&port)?;
            set.remove(&(recorded, k));
            set.insert((used, k));
        }
    }

    /// Makes room at the cost of the port with most entries, so that one that floods addresses
    /// pushes out its own.
    fn evict_one(&self, order: &mut Order) -> bool {
        let Some(&(_, port)) = order.by_count.last() else { return false };
        let Some((_, k)) = self.oldest(order, port) else { return false };
        order.stats.evicted += 1;
        self.take(order, &k)
    }

    /// Drops what was not used for the idle time, and what is too much. The earliest time at which
    /// it could have something to do again, if there is any entry that ages.
    pub fn expire(&self, now: Nanos) -> Option<Nanos> {
        let mut order = self.order.lock();
        while order.stats.entries > self.max_entries.load(Relaxed) && self.evict_one(&mut order) {}
        let idle = self.idle_time();
        let ports: Vec<u64> = order.ports.keys().copied().collect();
        let mut next: Option<u64> = None;
        for p in ports {
            while let Some((used, k)) = self.oldest(&mut order, p) {
                let at = used.saturating_add(idle.0);
                if at > now.0 {
                    next = Some(next.map_or(at, |n| n.min(at)));
                    break;
                }
                order.stats.expired += 1;
                self.take(&mut order, &k);
            }
        }
        next.map(Nanos)
    }

    /// Forgets everything that was learnt; static entries stay.
    pub fn flush(&self) {
        self.flush_if(|_| true);
    }

    /// Forgets what was learnt on a port, and its static entries: the port is going away.
    pub fn flush_port(&self, port: u64) {
        let statics: Vec<_> =
            self.entries().into_iter().filter(|e| e.port == port && e.is_static).map(|e| (e.vlan, e.mac)).collect();
        statics.iter().for_each(|k| {
            self.remove_key(k);
        });
        self.flush_if(|p| p == port);
    }

    fn flush_if(&self, f: impl Fn(u64) -> bool) {
        let mut order = self.order.lock();
        let keys: Vec<Key> =
            order.ports.iter().filter(|(p, _)| f(**p)).flat_map(|(_, s)| s.iter().map(|e| e.1)).collect();
        keys.iter().for_each(|k| {
            self.take(&mut order, k);
        });
    }

    /// All entries, least recently used first.
    pub fn entries(&self) -> Vec<MacEntry> {
        let mut v: Vec<MacEntry> = Vec::new();
        for s in &self.shards {
            v.extend(s.read().iter().map(|(k, e)| view(k, e)));
        }
        v.sort_by_key(|e| (e.used, e.vlan, e.mac));
        v
    }

    pub fn len(&self) -> usize {
        self.order.lock().stats.entries
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn stats(&self) -> MacStats {
        MacStats { max_entries: self.max_entries.load(Relaxed), ..self.order.lock().stats }
    }

    /// Zeroes the totals; the current counts stay.
    pub fn clear_stats(&self) {
        let mut o = self.order.lock();
        o.stats = MacStats { entries: o.stats.entries, static_entries: o.stats.static_entries, ..MacStats::default() };
    }
}

fn may_move(e: &Entry, now: Nanos, how: Learn) -> bool {
    let locked = how.gratuitous_arp && how.from_bond && now.0 < e.locked_until.load(Relaxed);
    !e.is_static && !locked
}

fn view(k: &Key, e: &Entry) -> MacEntry {
    MacEntry { vlan: k.0, mac: k.1, port: e.port, is_static: e.is_static, used: Nanos(e.used.load(Relaxed)) }
}

#[cfg(test)]
mod tests;
