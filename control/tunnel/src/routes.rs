//! Routes of outer packets: those that users added, and the host's.
//!
//! One hash table per origin, keyed by prefix; a lookup tries the lengths that occur, longest first. A full Internet
//! table is then a million small entries, and a change of one of them is one change here.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use hashbrown::HashMap;

/// Routes that users may add.
const MAX_USER_ROUTES: usize = 1 << 16;

/// A prefix. IPv4 is mapped, so that its lengths are 96 to 128.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Prefix {
    bits: u128,
    len: u8,
    v4: bool,
}

impl Prefix {
    /// None if the length is more than the address has.
    pub fn new(a: IpAddr, len: u8) -> Option<Prefix> {
        let v4 = a.is_ipv4();
        if len > if v4 { 32 } else { 128 } {
            return None;
        }
        let len = if v4 { len + 96 } else { len };
        Some(Prefix { bits: bits(a) & mask(len), len, v4 })
    }

    /// `1.2.3.0/24`; an address alone is a host.
    pub fn parse(text: &str) -> Option<Prefix> {
        let (a, len) = match text.split_once('/') {
            Some((a, len)) => (a.parse::<IpAddr>().ok()?, len.parse().ok()?),
            None => {
                let a = text.parse::<IpAddr>().ok()?;
                (a, if a.is_ipv4() { 32 } else { 128 })
            }
        };
        Prefix::new(a, len)
    }

    pub fn address(self) -> IpAddr {
        let a = Ipv6Addr::from_bits(self.bits);
        if self.v4 { a.to_ipv4_mapped().map_or(a.into(), IpAddr::V4) } else { a.into() }
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address(), if self.v4 { self.len - 96 } else { self.len })
    }
}

fn bits(a: IpAddr) -> u128 {
    match a {
        IpAddr::V4(a) => a.to_ipv6_mapped().to_bits(),
        IpAddr::V6(a) => a.to_bits(),
    }
}

fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    pub device: String,
    pub gateway: Option<IpAddr>,
    pub source: Option<IpAddr>,
    /// To the host itself.
    pub local: bool,
    pub metric: u32,
}

/// The way to an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    pub device: String,
    /// The gateway, or the address itself.
    pub next_hop: IpAddr,
    pub gateway: Option<IpAddr>,
    pub source: Option<IpAddr>,
}

/// Routes by prefix, with the lengths that occur.
#[derive(Default)]
struct Table {
    routes: HashMap<(u32, Prefix), Route>,
    /// How many routes have a length, longest first when iterated backwards.
    lengths: BTreeMap<(u8, u32, bool), usize>,
}

impl Table {
    fn put(&mut self, mark: u32, prefix: Prefix, route: Route) {
        if self.routes.insert((mark, prefix), route).is_none() {
            *self.lengths.entry((prefix.len, mark, prefix.v4)).or_default() += 1;
        }
    }

    fn remove(&mut self, mark: u32, prefix: Prefix) -> bool {
        if self.routes.remove(&(mark, prefix)).is_none() {
            return false;
        }
        if let Some(n) = self.lengths.get_mut(&(prefix.len, mark, prefix.v4)) {
            *n -= 1;
            if *n == 0 {
                self.lengths.remove(&(prefix.len, mark, prefix.v4));
            }
        }
        true
    }

    /// The longest match, with its length.
    fn find(&self, mark: u32, a: IpAddr) -> Option<(u8, &Route)> {
        let v4 = a.is_ipv4();
        let lengths = self.lengths.keys().rev().filter(|(_, m, f)| *m == mark && *f == v4);
        for (len, _, _) in lengths {
            let prefix = Prefix { bits: bits(a) & mask_of(*len), len: *len, v4 };
            if let Some(r) = self.routes.get(&(mark, prefix)) {
                return Some((*len, r));
            }
        }
        None
    }
}

fn mask_of(len: u8) -> u128 {
    mask(len)
}

#[derive(Default)]
pub struct Routes {
    user: Table,
    host: Table,
    seq: u64,
}

impl Routes {
    /// Adds or replaces a route of a user; false if there are too many.
    pub fn add(&mut self, mark: u32, prefix: Prefix, route: Route) -> bool {
        if self.user.routes.len() >= MAX_USER_ROUTES {
            return false;
        }
        self.user.put(mark, prefix, route);
        self.seq += 1;
        true
    }

    pub fn del(&mut self, mark: u32, prefix: Prefix) -> bool {
        self.seq += 1;
        self.user.remove(mark, prefix)
    }

    /// The host has this route now, or none for the prefix.
    pub fn set_host(&mut self, prefix: Prefix, route: Option<Route>) {
        self.seq += 1;
        match route {
            Some(r) => self.host.put(0, prefix, r),
            None => {
                self.host.remove(0, prefix);
            }
        }
    }

    pub fn clear_host(&mut self) {
        self.host = Table::default();
        self.seq += 1;
    }

    /// The longest prefix; of equal ones the user's. The host's routes have no mark, those of users serve packets
    /// of theirs.
    pub fn lookup(&self, mark: u32, to: IpAddr) -> Option<Found> {
        let user = self.user.find(mark, to);
        let host = self.host.find(0, to);
        let unmarked = if mark != 0 { self.user.find(0, to) } else { None };
        // A user's route beats every one of the host's that is not 32 bits longer, as in the reference.
        let user = user.or(unmarked).map(|(len, r)| (u16::from(len) + 32, r));
        let host = host.map(|(len, r)| (u16::from(len), r));
        let (_, r) = [host, user].into_iter().flatten().max_by_key(|(len, _)| *len)?;
        Some(Found {
            device: r.device.clone(),
            next_hop: r.gateway.unwrap_or(to),
            gateway: r.gateway,
            source: r.source,
        })
    }

    /// Devices that some route goes through.
    pub fn devices(&self) -> std::collections::BTreeSet<&str> {
        let all = self.user.routes.values().chain(self.host.routes.values());
        all.map(|r| r.device.as_str()).collect()
    }

    /// Grows with every change.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// As `ovs/route/show` prints it.
    pub fn show(&self) -> String {
        let mut all: Vec<(&(u32, Prefix), &Route, bool)> = Vec::new();
        all.extend(self.user.routes.iter().map(|(k, r)| (k, r, true)));
        all.extend(self.host.routes.iter().map(|(k, r)| (k, r, false)));
        all.sort_by_key(|((mark, p), _, user)| (std::cmp::Reverse((p.len, *user)), p.bits, *mark));
        let mut out = String::from("Route Table:\n");
        for ((mark, p), r, user) in all {
            out += if user { "User: " } else { "Cached: " };
            out += &p.to_string();
            if *mark != 0 {
                out += &format!(" MARK {mark}");
            }
            out += &format!(" dev {}", r.device);
            if let Some(g) = r.gateway {
                out += &format!(" GW {g}");
            }
            if let Some(s) = r.source {
                out += &format!(" SRC {s}");
            }
            if r.local && !user {
                out += " local";
            }
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(device: &str, gw: Option<&str>) -> Route {
        Route { device: device.into(), gateway: gw.map(|g| g.parse().unwrap()), source: None, local: false, metric: 0 }
    }

    fn p(s: &str) -> Prefix {
        Prefix::parse(s).unwrap()
    }

    #[test]
    fn longest_prefix_marks_and_users() {
        let mut r = Routes::default();
        r.add(0, p("10.0.0.0/8"), route("a", None));
        r.add(0, p("10.1.2.3/16"), route("b", Some("10.0.0.1")));
        r.add(7, p("10.0.0.0/8"), route("c", None));
        r.set_host(p("10.1.0.0/24"), Some(route("h", None)));
        r.set_host(p("0.0.0.0/0"), Some(route("d", None)));
        r.set_host(p("::/0"), Some(route("six", None)));
        let to = |mark, a: &str| r.lookup(mark, a.parse().unwrap()).map(|f| f.device);
        assert_eq!(to(0, "10.9.9.9").as_deref(), Some("a"));
        assert_eq!(to(0, "10.1.9.9").as_deref(), Some("b"));
        assert_eq!(to(7, "10.1.9.9").as_deref(), Some("c"));
        assert_eq!(to(0, "10.1.0.9").as_deref(), Some("b"), "users go first");
        assert_eq!(to(0, "11.1.0.9").as_deref(), Some("d"));
        assert_eq!(to(0, "2001::1").as_deref(), Some("six"));
        assert_eq!(r.lookup(0, "10.1.9.9".parse().unwrap()).unwrap().next_hop.to_string(), "10.0.0.1");
        assert!(r.del(0, p("10.1.0.0/16")) && !r.del(0, p("10.1.0.0/16")));
        assert_eq!(r.lookup(0, "10.1.9.9".parse().unwrap()).unwrap().device, "a");
        assert!(r.show().contains("User: 10.0.0.0/8 MARK 7 dev c\n"));
        assert_eq!(r.show().lines().last(), Some("Cached: ::/0 dev six"));
    }

    #[test]
    fn texts() {
        assert_eq!(p("1.1.2.92/24").to_string(), "1.1.2.0/24");
        assert_eq!(p("2001:cafe::92/24").to_string(), "2001:ca00::/24");
        assert_eq!((Prefix::parse("1.1.1.1/33"), Prefix::parse("foo")), (None, None));
    }
}
