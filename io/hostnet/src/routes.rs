//! The kernel's routes with its rules for adding, replacing and removing.
//!
//! The two families notify differently. IPv4: routes of one key form a list; a new one goes first
//! unless appended, replacing exchanges the first, and a removal names one whole route. IPv6: an
//! append re-sends the whole multipath route, a removal may name single next hops of it, and routes
//! of one key through different devices live side by side.

use std::ops::RangeInclusive;

use smallvec::SmallVec;

use crate::kinds::route::{NextHop, Route, RouteKey};
use crate::store::{Delta, Store};
use crate::wire::{NLM_F_APPEND, NLM_F_REPLACE};

/// About twice today's full Internet table. What is beyond is counted, not kept.
const MAX_KEYS: usize = 1 << 21;
/// Routes of one key.
const MAX_SAME_KEY: usize = 256;

type List = SmallVec<[Route; 1]>;

#[derive(Clone, Debug)]
pub struct RouteTable(Store<RouteKey, List>);

/// Whether a notification fitted what was known; if not, only a dump helps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Fit {
    Ok,
    Unknown,
}

impl Default for RouteTable {
    fn default() -> Self {
        RouteTable(Store::new(MAX_KEYS))
    }
}

impl RouteTable {
    /// Applies a notification that a route is new. Repeating one changes nothing.
    pub fn add(&mut self, r: Route, flags: u16) -> Fit {
        let v6 = r.key.dst.is_ipv6();
        let mut list = self.0.get(&r.key).cloned().unwrap_or_default();
        if let Some(same) = list.iter_mut().find(|x| same_route(x, &r)) {
            *same = r.clone();
        } else if v6 {
            match list.iter_mut().find(|x| grows_or_replaces(x, &r, flags)) {
                Some(x) => *x = r.clone(),
                None => list.push(r.clone()),
            }
        } else if flags & NLM_F_REPLACE != 0 && !list.is_empty() {
            list[0] = r.clone();
        } else if flags & NLM_F_APPEND != 0 {
            list.push(r.clone());
        } else {
            list.insert(0, r.clone());
        }
        list.truncate(MAX_SAME_KEY);
        self.0.put(r.key, list);
        Fit::Ok
    }

    /// A line of a dump: the kernel's own order.
    pub fn add_dumped(&mut self, r: Route) {
        let mut list = self.0.get(&r.key).cloned().unwrap_or_default();
        if list.len() < MAX_SAME_KEY && !list.iter().any(|x| same_route(x, &r)) {
            let key = r.key;
            list.push(r);
            self.0.put(key, list);
        }
    }

    pub fn remove(&mut self, r: &Route) -> Fit {
        let Some(mut list) = self.0.get(&r.key).cloned() else { return Fit::Unknown };
        if let Some(at) = list.iter().position(|x| same_route(x, r)) {
            list.remove(at);
        } else if let Some(x) = list.iter_mut().find(|x| covers(&x.next_hops, &r.next_hops)) {
            x.next_hops.retain(|h| !r.next_hops.iter().any(|d| d.same_way(h)));
        } else {
            return Fit::Unknown;
        }
        if list.is_empty() {
            self.0.remove(&r.key);
        } else {
            self.0.put(r.key, list);
        }
        Fit::Ok
    }

    /// Takes over one family of one table from a finished dump.
    pub(crate) fn install(&mut self, table: u32, v6: bool, fresh: RouteTable) {
        self.0.replace(piece(table, v6), fresh.0.into_map());
    }

    /// All routes, by table, prefix and metric; those of one key in the kernel's order.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.0.iter().flat_map(|(_, l)| l)
    }
    pub fn table(&self, table: u32, v6: bool) -> impl Iterator<Item = &Route> {
        self.0.range(piece(table, v6)).flat_map(|(_, l)| l)
    }
    pub fn get(&self, k: &RouteKey) -> &[Route] {
        self.0.get(k).map_or(&[], |l| l)
    }
    /// Number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub fn seq(&self) -> u64 {
        self.0.seq()
    }
    pub fn refused(&self) -> u64 {
        self.0.refused()
    }
    pub fn take_delta(&mut self) -> Delta<RouteKey> {
        self.0.take_delta()
    }
}

/// The key range that holds one family of one table.
fn piece(table: u32, v6: bool) -> RangeInclusive<RouteKey> {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    let (lo, hi): (IpAddr, IpAddr) = if v6 {
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from_bits(u128::MAX).into())
    } else {
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into())
    };
    RouteKey { table, dst: lo, prefix_len: 0, tos: 0, priority: 0 }..=RouteKey {
        table,
        dst: hi,
        prefix_len: u8::MAX,
        tos: u8::MAX,
        priority: u32::MAX,
    }
}

fn same_route(a: &Route, b: &Route) -> bool {
    a.kind == b.kind
        && a.prefer_src == b.prefer_src
        && a.protocol == b.protocol
        && a.next_hops.len() == b.next_hops.len()
        && covers(&a.next_hops, &b.next_hops)
}

/// Every one of `part` is in `whole`.
fn covers(whole: &[NextHop], part: &[NextHop]) -> bool {
    part.iter().all(|p| whole.iter().any(|w| w.same_way(p)))
}

fn grows_or_replaces(old: &Route, new: &Route, flags: u16) -> bool {
    let grown = old.next_hops.len() < new.next_hops.len() && covers(&new.next_hops, &old.next_hops);
    let shrunk = new.next_hops.len() < old.next_hops.len() && covers(&old.next_hops, &new.next_hops);
    grown || shrunk || flags & NLM_F_REPLACE != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(dst: &str, hops: &[u32]) -> Route {
        let dst: std::net::IpAddr = dst.parse().unwrap();
        let hop = |&link: &u32| NextHop { link, gateway: None, weight: 1, flags: 0 };
        Route {
            key: RouteKey { table: 254, dst, prefix_len: 24, tos: 0, priority: 0 },
            kind: 1,
            scope: 0,
            protocol: 3,
            prefer_src: None,
            next_hops: hops.iter().map(hop).collect(),
        }
    }

    /// Plays notifications and returns the next hops of the routes left, in order.
    fn play(dst: &str, steps: &[(char, &[u32])]) -> Vec<Vec<u32>> {
        let mut t = RouteTable::default();
        for (op, hops) in steps {
            let r = route(dst, hops);
            let fit = match op {
                '+' => t.add(r, 0),
                'a' => t.add(r, NLM_F_APPEND),
                'r' => t.add(r, NLM_F_REPLACE),
                '-' => t.remove(&r),
                'x' => {
                    assert_eq!(t.remove(&r), Fit::Unknown);
                    Fit::Ok
                }
                _ => unreachable!(),
            };
            assert_eq!(fit, Fit::Ok, "{op}{hops:?}");
        }
        t.iter().map(|r| r.next_hops.iter().map(|h| h.link).collect()).collect()
    }

    #[test]
    fn ipv4_keeps_a_list() {
        let d = "198.18.0.0";
        assert_eq!(play(d, &[('+', &[1]), ('a', &[2]), ('+', &[3])]), [[3], [1], [2]]);
        assert_eq!(play(d, &[('+', &[1]), ('a', &[2]), ('r', &[3])]), [[3], [2]]);
        assert_eq!(play(d, &[('+', &[1]), ('+', &[1]), ('a', &[1])]), [[1]]);
        assert_eq!(play(d, &[('+', &[1]), ('a', &[2]), ('-', &[1]), ('x', &[9])]), [[2]]);
        assert_eq!(play(d, &[('+', &[1]), ('-', &[1]), ('x', &[1])]), Vec::<Vec<u32>>::new());
    }

    #[test]
    fn ipv6_grows_and_shrinks_multipath() {
        let d = "2001:2::";
        assert_eq!(play(d, &[('+', &[1]), ('a', &[1, 2])]), [[1, 2]]);
        assert_eq!(play(d, &[('a', &[1, 2, 3]), ('-', &[2])]), [[1, 3]]);
        assert_eq!(play(d, &[('+', &[1]), ('+', &[2])]), [[1], [2]], "one per device, as fe80::/64");
        assert_eq!(play(d, &[('+', &[1]), ('r', &[7])]), [[7]]);
    }

    #[test]
    fn pieces_do_not_touch_each_other() {
        let mut t = RouteTable::default();
        let _ = t.add(route("198.18.0.0", &[1]), 0);
        let _ = t.add(route("2001:2::", &[1]), 0);
        t.take_delta();
        t.install(254, true, RouteTable::default());
        assert_eq!(t.take_delta(), Delta::Keys([route("2001:2::", &[]).key].into()));
        assert_eq!((t.table(254, false).count(), t.table(254, true).count()), (1, 0));
    }
}
