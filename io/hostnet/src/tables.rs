//! What to follow, and the replica that results.

use crate::kinds::addr::{Addr, AddrKey};
use crate::kinds::link::Link;
use crate::kinds::neigh::{Neigh, NeighKey};
use crate::kinds::rule::Rule;
use crate::routes::RouteTable;
use crate::store::Store;

/// Entries of one table, routes apart.
const MAX_ENTRIES: usize = 1 << 17;

/// What to follow. Links always are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interest {
    pub addrs: bool,
    /// Routing tables by number, both families. Empty: no routes.
    pub route_tables: Vec<u32>,
    pub rules: bool,
    pub neighbours: Neighbours,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Neighbours {
    #[default]
    None,
    /// Only those on these links (by index).
    On(Vec<u32>),
    All,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Links,
    Addrs,
    Routes,
    Rules,
    Neighbours,
}

/// The replica. Each table has its own change sequence and list of changed keys.
pub struct Tables {
    pub links: Store<u32, Link>,
    pub addrs: Store<AddrKey, Addr>,
    pub routes: RouteTable,
    pub rules: Store<Rule, ()>,
    pub neighs: Store<NeighKey, Neigh>,
}

impl Default for Tables {
    fn default() -> Self {
        Tables {
            links: Store::new(MAX_ENTRIES),
            addrs: Store::new(MAX_ENTRIES),
            routes: RouteTable::default(),
            rules: Store::new(MAX_ENTRIES),
            neighs: Store::new(MAX_ENTRIES),
        }
    }
}

impl Tables {
    pub fn link_by_name(&self, name: &str) -> Option<&Link> {
        self.links.iter().map(|(_, l)| l).find(|l| l.name == name)
    }

    pub fn seq(&self, k: Kind) -> u64 {
        match k {
            Kind::Links => self.links.seq(),
            Kind::Addrs => self.addrs.seq(),
            Kind::Routes => self.routes.seq(),
            Kind::Rules => self.rules.seq(),
            Kind::Neighbours => self.neighs.seq(),
        }
    }

    /// Grows with every change of anything.
    pub fn total_seq(&self) -> u64 {
        self.links.seq() + self.addrs.seq() + self.routes.seq() + self.rules.seq() + self.neighs.seq()
    }
}
