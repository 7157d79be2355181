//! Messages of vhost-user front ends, in any order and with any descriptors.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fv_netdev_vhost::memory::GuestMemory;
use fv_netdev_vhost::message::{HEADER, Header, Request, code};
use fv_netdev_vhost::session::{Refused, RingPlan, Rings, Session};
use rustix::fs::MemfdFlags;

/// Bytes of the file that every descriptor is.
const FILE: u64 = 0x1_0000;

/// Which rings are in, with the memory of each, and how often one was put in.
#[derive(Default)]
struct Seats(BTreeMap<usize, Arc<GuestMemory>>, usize);

impl Rings for Seats {
    fn start(&mut self, ring: usize, plan: RingPlan) -> Result<(), Refused> {
        let n = u64::from(plan.size);
        let packed = plan.features >> 34 & 1 != 0;
        let lens = if packed { [16 * n, 4, 4] } else { [16 * n, 6 + 2 * n, 6 + 8 * n] };
        for (part, len) in [plan.desc, plan.avail, plan.used].into_iter().zip(lens) {
            let at = part.addr().get() as u64;
            let inside = plan.memory.regions().iter().any(|r| {
                let start = r.host().addr().get() as u64;
                at >= start && at + len <= start + r.spec.len
            });
            assert!(inside, "a part outside of memory");
        }
        self.1 += 1;
        assert!(self.0.insert(ring, plan.memory).is_none(), "ring {ring} is put in twice");
        Ok(())
    }

    fn stop(&mut self, ring: usize) -> Result<Option<u32>, Refused> {
        assert!(self.0.remove(&ring).is_some(), "ring {ring} is not there");
        Ok(Some(7))
    }

    fn enable(&mut self, ring: usize, _enabled: bool) -> Result<(), Refused> {
        assert!(self.0.contains_key(&ring), "ring {ring} is not there");
        Ok(())
    }

    fn announce(&mut self, _mac: [u8; 6]) {}

    fn set_guest_mtu(&mut self, mtu: u16) {
        assert!(mtu >= 68);
    }

    fn identity(&self) -> ([u8; 6], u16) {
        ([2, 0, 0, 0, 0, 1], 1)
    }
}

/// Each message is a byte that says how many descriptors it has, and its bytes.
pub fn messages(b: &[u8]) {
    drive(b);
}

/// How often a ring was put in.
fn drive(mut b: &[u8]) -> usize {
    let file = rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&file, FILE).expect("size");
    let (mut session, mut seats) = (Session::default(), Seats::default());
    while let Some(([n_fds, head @ ..], rest)) = b.split_first_chunk::<{ 1 + HEADER }>() {
        let Ok(h) = Header::parse(head) else { break };
        let Some((payload, rest)) = rest.split_at_checked(h.size) else { break };
        b = rest;
        let fds: Vec<OwnedFd> = (0..n_fds % 10).filter_map(|_| file.try_clone().ok()).collect();
        let Ok(request) = Request::parse(h.request, payload, fds) else { break };
        match session.handle(h.request, h.need_reply, request, &mut seats) {
            Ok((Some(reply), _)) => assert!(reply.bytes.len() >= HEADER),
            Ok((None, refused)) => assert!(refused.is_none(), "refused in silence"),
            Err(_) => break,
        }
    }
    session.close(&mut seats);
    assert!(seats.0.is_empty(), "rings are left");
    seats.1
}

pub fn seeds() -> Vec<Vec<u8>> {
    let message = |fds: u8, request: u32, payload: &[u64]| {
        let head = [request, 9, payload.len() as u32 * 8].map(u32::to_ne_bytes).concat();
        let payload: Vec<u8> = payload.iter().flat_map(|w| w.to_ne_bytes()).collect();
        [vec![fds], head, payload].concat()
    };
    let pair = |a: u64, b: u64| a | b << 32;
    let region = [0x1000, FILE, 0x7000_0000, 0];
    let ring = |n: u64| {
        let at = 0x7000_0000 + n * 0x2000;
        [
            message(0, code::SET_VRING_NUM, &[pair(n, 16)]),
            message(0, code::SET_VRING_BASE, &[pair(n, 3)]),
            message(0, code::SET_VRING_ADDR, &[pair(n, 1), at, at + 0x400, at + 0x800, 0x1400]),
            message(1, code::SET_VRING_KICK, &[n]),
            message(1, code::SET_VRING_CALL, &[n]),
            message(0, code::SET_VRING_ENABLE, &[pair(n, 1)]),
        ]
        .concat()
    };
    let begin = |features: u64| {
        [
            message(0, code::SET_PROTOCOL_FEATURES, &[1 << 3 | 1 << 1]),
            message(0, code::SET_OWNER, &[]),
            message(0, code::SET_FEATURES, &[1 << 30 | 1 << 32 | features]),
        ]
        .concat()
    };
    let table = message(1, code::SET_MEM_TABLE, &[&[1][..], &region].concat());
    let split = [begin(0), table.clone(), ring(0), ring(1)].concat();
    let packed = [begin(1 << 34), ring(1), ring(2), table].concat();
    let rest = [
        message(0, code::GET_VRING_BASE, &[1]),
        message(1, code::SET_LOG_BASE, &[4096, 0]),
        message(0, code::SET_FEATURES, &[1 << 30 | 1 << 26]),
        message(0, code::GET_INFLIGHT_FD, &[0, 0, pair(0x40_0002, 0)]),
        message(1, code::SET_INFLIGHT_FD, &[4096, 0, pair(0x4_0002, 0)]),
        message(0, code::REM_MEM_REG, &[&[0][..], &region].concat()),
        message(1, code::ADD_MEM_REG, &[&[0][..], &region].concat()),
        message(0, code::GET_CONFIG, &[pair(0, 4), 0]),
        message(0, code::SEND_RARP, &[0x0102_0304]),
        message(0, code::NET_SET_MTU, &[1500]),
        message(0, code::RESET_DEVICE, &[]),
        message(0, code::RESET_OWNER, &[]),
    ];
    vec![split.clone(), packed, [split, rest.concat()].concat()]
}

#[test]
fn seeds_start_rings() {
    assert_eq!(seeds().iter().map(|s| drive(s)).collect::<Vec<_>>(), [4, 2, 7]);
}
