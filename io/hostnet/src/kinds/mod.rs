//! The kernel's objects as plain values, one file per kind: constants, value, parser.

pub mod addr;
pub mod link;
pub mod neigh;
pub mod route;
pub mod rule;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Builder, Messages};

    /// A message of each kind with every attribute that its parser reads.
    fn samples() -> Vec<Vec<u8>> {
        let ip = [198, 18, 0, 1];
        let mut fixed = [0u8; 16];
        let mut build = |family: u8, len: usize, fill: &dyn Fn(&mut Builder)| {
            fixed[0] = family;
            fixed[1] = 24;
            fixed[4] = 7;
            let mut b = Builder::new(16, 0, 1, &fixed[..len]);
            fill(&mut b);
            b.finish().to_vec()
        };
        let inet = libc::AF_INET as u8;
        vec![
            build(0, 16, &|b| {
                b.text(3, "eth0").attr(1, &[2, 0, 0, 0, 0, 1]).u32(4, 1500).u32(5, 9).attr(16, &[6]).attr(33, &[1]);
                b.nest(18, |n| {
                    n.text(1, "veth");
                });
                b.attr(23, &[1; 200]).u32(35, 3).u32(45, 1).u32(49, 2);
            }),
            build(inet, 8, &|b| {
                b.attr(1, &ip).attr(2, &ip).u32(8, 128);
            }),
            build(inet, 12, &|b| {
                b.attr(1, &ip).u32(4, 3).attr(5, &ip).u32(6, 100).attr(7, &ip).u32(15, 1000);
                b.attr(18, &[10, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
                let hop = [16, 0, 0, 4, 3, 0, 0, 0, 8, 0, 5, 0, 198, 18, 0, 9];
                b.attr(9, &[hop, hop].concat());
            }),
            build(inet, 12, &|b| {
                b.attr(1, &ip)
                    .attr(2, &ip)
                    .text(3, "eth0")
                    .u32(6, 9)
                    .u32(10, 1)
                    .u32(16, 0xff)
                    .u32(15, 500)
                    .attr(19, &[1]);
            }),
            build(inet, 12, &|b| {
                b.attr(1, &ip).attr(2, &[2, 0, 0, 0, 0, 1]);
            }),
        ]
    }

    /// How many parsers make something of the datagram.
    fn parsed(datagram: &[u8]) -> usize {
        let mut n = 0;
        for m in Messages(datagram) {
            n += usize::from(link::parse(&m).is_some())
                + usize::from(addr::parse(&m).is_some())
                + usize::from(route::parse(&m).is_some_and(|r| r.key.prefix_len <= 128))
                + usize::from(rule::parse(&m).is_some())
                + usize::from(neigh::parse(&m).is_some())
                + usize::from(route::table_of(&m).is_some());
        }
        n
    }

    #[test]
    fn every_sample_is_understood_and_no_change_of_it_is_fatal() {
        let all = samples();
        for s in &all {
            assert!(parsed(s) > 0);
            for cut in 0..s.len() {
                parsed(&s[..cut]);
            }
            for at in 0..s.len() {
                for v in [0, 1, 4, 31, 33, 129, 254, 255] {
                    let mut bad = s.clone();
                    bad[at] = v;
                    parsed(&bad);
                }
            }
        }
        let route = Messages(&all[2]).next().and_then(|m| route::parse(&m)).expect("a route");
        assert_eq!((route.key.table, route.next_hops.len(), route.next_hops[0].weight), (1000, 2, 5));
        let rule = Messages(&all[3]).next().and_then(|m| rule::parse(&m)).expect("a rule");
        assert_eq!((rule.table, rule.fwmark, rule.l3mdev), (500, Some((1, 0xff)), true));
    }

    #[test]
    fn prefixes_longer_than_addresses_are_refused() {
        for (n, at) in [(1, 17), (2, 17), (3, 18)] {
            let mut s = samples().swap_remove(n);
            s[at] = 33;
            let refused = Messages(&s).next().is_none_or(|m| match n {
                1 => addr::parse(&m).is_none(),
                2 => route::parse(&m).is_none(),
                _ => rule::parse(&m).is_none(),
            });
            assert!(refused, "sample {n}");
        }
    }
}
