//! The kernel's routes and addresses, as tunnels use them.
//!
//! A change of a route is one change here, however long the table is; only a change of links, which routes name by
//! number, reads it again.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fv_core::Nanos;
use fv_hostnet::{Delta, HostNet, Interest, Kind, RouteKey, Tables};
use fv_tunnel::{Net, Prefix, Route};

/// Messages read in one turn.
const BUDGET: usize = 4000;
/// Tables in the order of the kernel's default rules.
const TABLES: [u32; 3] = [255, 254, 253];
const UNICAST: u8 = 1;
const LOCAL: u8 = 2;

/// Where a route stands among those of its prefix: table, metric, type of service.
type Rank = (usize, u32, u8);

pub struct HostRoutes {
    net: HostNet,
    with_routes: bool,
    links_seen: u64,
    addrs_seen: u64,
    /// What is in force is the first of each.
    by_prefix: BTreeMap<Prefix, BTreeMap<Rank, Route>>,
}

impl HostRoutes {
    pub fn open(with_routes: bool) -> std::io::Result<HostRoutes> {
        let route_tables = if with_routes { TABLES.to_vec() } else { Vec::new() };
        let net = HostNet::open(Interest { addrs: true, route_tables, ..Interest::default() })?;
        Ok(HostRoutes { net, with_routes, links_seen: 0, addrs_seen: 0, by_prefix: BTreeMap::new() })
    }

    /// Takes over what has changed; true if anything has.
    pub fn turn(&mut self, now: Nanos, to: &Net) -> bool {
        // The first time, all that is there is to be known before anything is decided.
        let done = if self.links_seen == 0 { self.net.sync(now) } else { self.net.turn(now, BUDGET).map(|_| ()) };
        if let Err(e) = done {
            log::warn!(target: "ovs_router", "following the host's routes: {e}");
            return false;
        }
        let (links, addrs) = (self.net.tables().seq(Kind::Links), self.net.tables().seq(Kind::Addrs));
        let all = links != self.links_seen || addrs != self.addrs_seen;
        (self.links_seen, self.addrs_seen) = (links, addrs);
        let delta = self.net.tables_mut().routes.take_delta();
        if !self.with_routes {
            return all;
        }
        match delta {
            Delta::Keys(keys) if !all => {
                keys.iter().for_each(|k| self.changed(k, to));
                !keys.is_empty()
            }
            _ => {
                let keys: std::collections::BTreeSet<RouteKey> =
                    self.net.tables().routes.iter().map(|r| r.key).collect();
                for p in std::mem::take(&mut self.by_prefix).into_keys() {
                    to.routes.write().set_host(p, None);
                }
                keys.iter().for_each(|k| self.changed(k, to));
                true
            }
        }
    }

    fn changed(&mut self, k: &RouteKey, to: &Net) {
        let Some(prefix) = Prefix::new(k.dst, k.prefix_len) else { return };
        let Some(table) = TABLES.iter().position(|t| *t == k.table) else { return };
        let rank = (table, k.priority, k.tos);
        let list = self.by_prefix.entry(prefix).or_default();
        match route(self.net.tables(), k) {
            Some(r) => list.insert(rank, r),
            None => list.remove(&rank),
        };
        let best = list.values().next().cloned();
        if best.is_none() {
            self.by_prefix.remove(&prefix);
        }
        to.routes.write().set_host(prefix, best);
    }

    pub fn addresses(&self, link: u32) -> Vec<IpAddr> {
        let all = self.net.tables().addrs.iter();
        all.filter(|(k, _)| k.link == link).map(|(k, _)| k.ip).collect()
    }

    pub fn networks(&self, device: &str) -> Vec<(IpAddr, u8)> {
        let Some(link) = self.net.tables().link_by_name(device).map(|l| l.index) else { return Vec::new() };
        let all = self.net.tables().addrs.iter();
        all.filter(|(k, _)| k.link == link).map(|(k, _)| (k.ip, k.prefix_len)).collect()
    }
}

/// The kernel's route of this key, if packets can follow it.
fn route(t: &Tables, k: &RouteKey) -> Option<Route> {
    let r = t.routes.get(k).first()?;
    if !matches!(r.kind, UNICAST | LOCAL) {
        return None;
    }
    let hop = r.next_hops.first()?;
    let device = t.links.get(&hop.link)?.name.clone();
    let gateway = hop.gateway;
    let near = gateway.unwrap_or(k.dst);
    let mut first = None;
    let own = t.addrs.iter().filter(|(a, _)| a.link == hop.link && a.ip.is_ipv4() == k.dst.is_ipv4());
    let mut source = r.prefer_src.or((r.kind == LOCAL).then_some(k.dst));
    if source.is_none() {
        for (a, _) in own {
            first = first.or(Some(a.ip));
            if Prefix::new(a.ip, a.prefix_len) == Prefix::new(near, a.prefix_len) {
                source = Some(a.ip);
                break;
            }
        }
    }
    Some(Route { device, gateway, source: source.or(first), local: r.kind == LOCAL, metric: k.priority })
}
