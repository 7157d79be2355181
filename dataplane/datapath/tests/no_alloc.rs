//! A steady-state turn allocates nothing.
#![allow(unsafe_code)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::source::Source;
use common::*;
use fv_core::{Clock, Nanos, RecircId};
use fv_datapath::{CacheUse, Dp};
use fv_dpif::action::{HashAlg, Masked, SetField};
use fv_dpif::{Datapath, DpAction};
use fv_netdev::Polling;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.with(|n| n.set(n.get() + 1));
}

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn check(name: &str, actions: Vec<DpAction>, cache: CacheUse) {
    let dp = Dp::new("ovs-dummy", "dummy", Clock::stopped(), || 0);
    let frames = (0..500u32).map(|n| udp(n % 200, n)).collect();
    dp.add_port(Source::new("p1", Polling::Main, frames), None).unwrap();
    dp.add_port(Source::new("p2", Polling::Main, Vec::new()), None).unwrap();
    dp.add_port(Source::new("p3", Polling::Main, Vec::new()), None).unwrap();
    dp.set_cache_use(cache);
    let recirculated = vec![output(3)];
    let control = Control::new(move |key| {
        let actions = if key.base.recirc_id == 0 { actions.clone() } else { recirculated.clone() };
        forward(actions, dst_mask())
    });
    dp.set_upcall_handler(Some(control));
    for turn in 0..200 {
        dp.turn_main(Nanos::from_ms(turn * 100), 32);
    }
    let before = ALLOCATIONS.with(Cell::get);
    for turn in 200..400 {
        assert_eq!(dp.turn_main(Nanos::from_ms(turn * 100), 32).packets, 32);
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0, "{name}");
    check_conserved(&dp);
}

#[test]
fn turns_do_not_allocate() {
    let ttl = Masked { value: 5, mask: 255 };
    let none = Masked::default();
    let set = DpAction::Set(SetField::Ipv4 { src: none, dst: none, tos: Masked::default(), ttl });
    let push = DpAction::PushVlan { tpid: 0x8100, tci: 0x1005 };
    for cache in [CacheUse::Adaptive, CacheUse::Inverse(1), CacheUse::Inverse(0)] {
        check("output", vec![output(2)], cache);
        check("flood", vec![output(2), output(3)], cache);
        check("rewrite", vec![set.clone(), push.clone(), output(2)], cache);
        check("recirculate", vec![DpAction::Hash(HashAlg::L4 { basis: 0 }), DpAction::Recirc(RecircId(3))], cache);
        check("clone", vec![DpAction::Clone(vec![push.clone(), output(3)]), output(2)], cache);
        check("drop", vec![], cache);
    }
}
