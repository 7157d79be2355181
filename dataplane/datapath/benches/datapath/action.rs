//! Programs: what a packet costs beyond one that is only sent.

use fv_core::RecircId;
use fv_datapath::CacheUse;
use fv_dpif::DpAction;
use fv_dpif::action::{HashAlg, Masked, SetField};

use crate::common::output;
use crate::measure::{Run, result};
use crate::ring::shuffled;
use crate::turn::{Rules, case, io};

pub fn run(run: &Run) {
    let none = Masked::default();
    let ttl = Masked { value: 5, mask: 255 };
    let set_ttl = DpAction::Set(SetField::Ipv4 { src: none, dst: none, tos: Masked::default(), ttl });
    let push = DpAction::PushVlan { tpid: 0x8100, tci: 0x1005 };
    let programs: Vec<(&str, Vec<DpAction>)> = vec![
        ("output", vec![output(2)]),
        ("two outputs", vec![output(2), output(2)]),
        ("set ttl", vec![set_ttl, output(2)]),
        ("push and pop vlan", vec![push, DpAction::PopVlan, output(2)]),
        ("hash", vec![DpAction::Hash(HashAlg::L4 { basis: 0 }), output(2)]),
        ("clone", vec![DpAction::Clone(vec![output(2)]), output(2)]),
        ("recirculate once", vec![DpAction::Recirc(RecircId(1))]),
    ];
    let mut cases = vec![io("io".into(), shuffled(1000))];
    for (name, actions) in programs {
        cases.push(case(name.into(), 0, shuffled(1000), Rules::One, actions, CacheUse::Adaptive, 1000));
    }
    result(&run.measure(cases), &[]);
}
