//! A classic BPF program for the notification socket: what was not asked for is dropped by the
//! kernel before it is queued. A thousand route changes a second in somebody else's table then wake
//! nobody and cannot overflow the queue.

use libc::sock_filter;

use crate::kinds::{neigh, route};
use crate::wire::HEADER_LEN;

/// What passes of the kinds that can be busy; the others always pass.
pub struct Wanted<'a> {
    pub tables: &'a [u32],
    /// None: every neighbour.
    pub neighbour_links: Option<&'a [u32]>,
}

/// Past this many tables or links the reader sorts out by itself: the program must stay within the
/// reach of 8-bit jumps.
const MAX_LISTED: usize = 64;

const LD_H: u16 = 0x28;
const LD_W: u16 = 0x20;
const LD_B: u16 = 0x30;
const JEQ: u16 = 0x15;
const RET: u16 = 0x06;
const PASS: sock_filter = sock_filter { code: RET, jt: 0, jf: 0, k: u32::MAX };
const DROP: sock_filter = sock_filter { code: RET, jt: 0, jf: 0, k: 0 };

/// None where no program is needed or possible.
pub fn program(w: &Wanted<'_>) -> Option<Vec<sock_filter>> {
    let links = w.neighbour_links.unwrap_or(&[]);
    if w.tables.len() > MAX_LISTED || links.len() > MAX_LISTED {
        return None;
    }
    let mut tables: Vec<u8> = w.tables.iter().map(|&t| u8::try_from(t).unwrap_or(route::RT_TABLE_COMPAT)).collect();
    tables.sort_unstable();
    tables.dedup();
    let route_part = block(LD_B, HEADER_LEN + route::RTMSG_TABLE_AT, tables.iter().map(|&t| u32::from(t)));
    let neigh_part = match w.neighbour_links {
        None => vec![PASS],
        Some(l) => block(LD_W, HEADER_LEN + neigh::NDMSG_LINK_AT, l.iter().map(|&i| as_loaded(i))),
    };
    // ldh type; a matching type jumps to its block behind the type tests.
    let types =
        [(route::RTM_NEWROUTE, 0), (route::RTM_DELROUTE, 0), (neigh::RTM_NEWNEIGH, 1), (neigh::RTM_DELNEIGH, 1)];
    let starts = [types.len() + 1, types.len() + 1 + route_part.len()];
    let mut p = vec![sock_filter { code: LD_H, jt: 0, jf: 0, k: 4 }];
    for (n, (kind, part)) in types.into_iter().enumerate() {
        // The load is big-endian, the field in host order.
        let k = u32::from(u16::from_be_bytes(kind.to_ne_bytes()));
        let jt = u8::try_from(starts[part] - n - 1).ok()?;
        p.push(sock_filter { code: JEQ, jt, jf: 0, k });
    }
    p.push(PASS);
    p.extend(route_part);
    p.extend(neigh_part);
    Some(p)
}

/// Passes what equals one of `values` at `offset`, drops the rest.
fn block(load: u16, offset: usize, values: impl Iterator<Item = u32>) -> Vec<sock_filter> {
    let mut b = vec![sock_filter { code: load, jt: 0, jf: 0, k: offset as u32 }];
    for k in values {
        b.push(sock_filter { code: JEQ, jt: 0, jf: 1, k });
        b.push(PASS);
    }
    b.push(DROP);
    b
}

fn as_loaded(host_order: u32) -> u32 {
    u32::from_be_bytes(host_order.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Builder;

    /// The kernel's interpreter for the few instructions used.
    fn passes(p: &[sock_filter], data: &[u8]) -> bool {
        let (mut pc, mut acc) = (0, 0u32);
        loop {
            let i = p[pc];
            let at = i.k as usize;
            let be = |n: usize| data[at..at + n].iter().fold(0u32, |a, &b| a << 8 | u32::from(b));
            pc += 1;
            match i.code {
                LD_B => acc = be(1),
                LD_H => acc = be(2),
                LD_W => acc = be(4),
                JEQ => pc += usize::from(if acc == i.k { i.jt } else { i.jf }),
                RET => return i.k != 0,
                c => panic!("instruction {c:#x}"),
            }
        }
    }

    fn message(kind: u16, fixed: &[u8]) -> Vec<u8> {
        Builder::new(kind, 0, 0, fixed).finish().to_vec()
    }

    #[test]
    fn lets_pass_what_was_asked_for() {
        let w = Wanted { tables: &[254, 255, 1000], neighbour_links: Some(&[7]) };
        let p = program(&w).unwrap();
        let mut near = neigh::ndmsg();
        near[4..8].copy_from_slice(&7u32.to_ne_bytes());
        let cases: [(u16, &[u8], bool); 8] = [
            (route::RTM_NEWROUTE, &route::rtmsg(2, 254), true),
            (route::RTM_DELROUTE, &route::rtmsg(10, 255), true),
            (route::RTM_NEWROUTE, &route::rtmsg(2, 4711), true),
            (route::RTM_NEWROUTE, &route::rtmsg(2, 100), false),
            (route::RTM_DELROUTE, &route::rtmsg(2, 100), false),
            (neigh::RTM_NEWNEIGH, &near, true),
            (neigh::RTM_NEWNEIGH, &neigh::ndmsg(), false),
            (16, &[0; 16], true),
        ];
        for (kind, fixed, pass) in cases {
            assert_eq!(passes(&p, &message(kind, fixed)), pass, "{kind} {fixed:?}");
        }
        let none = program(&Wanted { tables: &[], neighbour_links: Some(&[]) }).unwrap();
        assert!(!passes(&none, &message(route::RTM_NEWROUTE, &route::rtmsg(2, 254))));
        let all = program(&Wanted { tables: &[], neighbour_links: None }).unwrap();
        assert!(passes(&all, &message(neigh::RTM_NEWNEIGH, &neigh::ndmsg())));
    }

    #[test]
    fn the_longest_program_still_jumps_right() {
        let tables: Vec<u32> = (100..164).collect();
        let links: Vec<u32> = (1..65).collect();
        let p = program(&Wanted { tables: &tables, neighbour_links: Some(&links) }).unwrap();
        let mut near = neigh::ndmsg();
        near[4..8].copy_from_slice(&64u32.to_ne_bytes());
        assert!(passes(&p, &message(neigh::RTM_DELNEIGH, &near)));
        assert!(passes(&p, &message(route::RTM_NEWROUTE, &route::rtmsg(2, 163))));
        assert!(!passes(&p, &message(route::RTM_NEWROUTE, &route::rtmsg(2, 99))));
    }
}
