//! The pieces in which the kernel's tables are dumped, and which message belongs to which.

use crate::kinds::addr;
use crate::kinds::link::{self, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS};
use crate::kinds::neigh;
use crate::kinds::route::{self, RTA_TABLE};
use crate::kinds::rule;
use crate::tables::{Interest, Kind, Neighbours, Tables};
use crate::wire::{Builder, Message, NLM_F_DUMP, NLM_F_REQUEST};

/// What one request dumps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Piece {
    Links,
    Addrs,
    Rules { v6: bool },
    Routes { table: u32, v6: bool },
    Neighs,
}

impl Piece {
    pub fn kind(self) -> Kind {
        match self {
            Piece::Links => Kind::Links,
            Piece::Addrs => Kind::Addrs,
            Piece::Rules { .. } => Kind::Rules,
            Piece::Routes { .. } => Kind::Routes,
            Piece::Neighs => Kind::Neighbours,
        }
    }

    /// The strictest request that the kernel understands.
    pub fn request(self, seq: u32) -> Builder {
        let family = |v6| if v6 { libc::AF_INET6 as u8 } else { libc::AF_INET as u8 };
        let new = |kind, fixed: &[u8]| Builder::new(kind, NLM_F_REQUEST | NLM_F_DUMP, seq, fixed);
        match self {
            Piece::Links => {
                let mut b = new(link::RTM_GETLINK, &link::ifinfo(0, 0, 0));
                b.u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
                b
            }
            Piece::Addrs => new(addr::RTM_GETADDR, &[0; 8]),
            Piece::Rules { v6 } => new(rule::RTM_GETRULE, &route::rtmsg(family(v6), 0)),
            Piece::Routes { table, v6 } => {
                let mut b = new(route::RTM_GETROUTE, &route::rtmsg(family(v6), 0));
                b.u32(RTA_TABLE, table);
                b
            }
            Piece::Neighs => new(neigh::RTM_GETNEIGH, &neigh::ndmsg()),
        }
    }
}

/// What has to be dumped for an interest.
pub fn pieces(i: &Interest) -> Vec<Piece> {
    let mut all = vec![Piece::Links];
    if i.addrs {
        all.push(Piece::Addrs);
    }
    if i.neighbours != Neighbours::None {
        all.push(Piece::Neighs);
    }
    for v6 in [false, true] {
        if i.rules {
            all.push(Piece::Rules { v6 });
        }
        all.extend(i.route_tables.iter().map(|&table| Piece::Routes { table, v6 }));
    }
    all
}

/// Which table a notification is about.
pub fn class(kind: u16) -> Option<Kind> {
    Some(match kind {
        link::RTM_NEWLINK | link::RTM_DELLINK => Kind::Links,
        addr::RTM_NEWADDR | addr::RTM_DELADDR => Kind::Addrs,
        route::RTM_NEWROUTE | route::RTM_DELROUTE => Kind::Routes,
        rule::RTM_NEWRULE | rule::RTM_DELRULE => Kind::Rules,
        neigh::RTM_NEWNEIGH | neigh::RTM_DELNEIGH => Kind::Neighbours,
        _ => return None,
    })
}

/// One line of a dump. Kernels that do not filter answer with more than was asked for.
pub fn fill(t: &mut Tables, piece: Piece, m: &Message<'_>, interest: &Interest) {
    match piece {
        Piece::Links => {
            if let Some(mut l) = link::parse(m) {
                l.stats = None;
                t.links.put(l.index, l);
            }
        }
        Piece::Addrs => {
            if let Some(a) = addr::parse(m) {
                t.addrs.put(a.key, a);
            }
        }
        Piece::Rules { v6 } => {
            if let Some(r) = rule::parse(m).filter(|r| r.v6 == v6) {
                t.rules.put(r, ());
            }
        }
        Piece::Routes { table, v6 } => {
            if route::table_of(m) == Some(table)
                && let Some(r) = route::parse(m).filter(|r| r.key.dst.is_ipv6() == v6)
            {
                t.routes.add_dumped(r);
            }
        }
        Piece::Neighs => {
            let on = |i: u32| match &interest.neighbours {
                Neighbours::On(l) => l.contains(&i),
                _ => true,
            };
            if let Some(n) = neigh::parse(m).filter(|n| on(n.key.link)) {
                t.neighs.put(n.key, n);
            }
        }
    }
}
