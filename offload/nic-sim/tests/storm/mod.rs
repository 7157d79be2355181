//! Random changes to flows under traffic; used by a test and by a bench.
#![allow(dead_code)]

use fv_datapath::Stat;
use fv_dpif::Datapath;

use crate::bed::Bed;

const FLOWS: u64 = 64;

#[derive(Debug, Default)]
pub struct End {
    pub changes: u64,
    pub misdirected: u64,
    pub left_in_table: usize,
    /// Packets that were neither forwarded nor dropped with a reason.
    pub lost: u64,
    pub marked: u64,
    /// By the NIC alone.
    pub forwarded: u64,
    pub packets: u64,
}

pub fn storm(options: &str, changes: u64, seed: u64) -> End {
    let mut bed = Bed::new(options);
    let mut random = seed;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % below
    };
    let mut done = 0;
    while done < changes {
        let n = next(FLOWS) as u16 + 1;
        match next(3) {
            // A packet of a flow that is not there adds it.
            0 => done += u64::from(bed.ufid(n).is_none_or(|u| bed.dp.flow_get(u).is_none())),
            1 => done += u64::from(bed.modify(n)),
            _ => {
                if let Some(ufid) = bed.ufid(n) {
                    done += u64::from(bed.overlay.flow_retire(ufid, Box::new(|_| ())).is_ok());
                }
            }
        }
        bed.send(n, 1 + next(3));
        let other = next(FLOWS) as u16 + 1;
        bed.send(other, 1);
        let pause = next(120);
        bed.step(pause);
    }
    bed.wait_ms(50);
    let ufids: Vec<_> = bed.control.ufids.lock().values().copied().collect();
    for ufid in ufids {
        let _ = bed.overlay.flow_del(ufid);
    }
    bed.wait_ms(60);
    let packets = bed.sent.values().sum::<u64>();
    End {
        changes: done,
        misdirected: bed.misdirected,
        left_in_table: bed.card().rules(),
        lost: packets - bed.received,
        marked: bed.stat(Stat::MarkHit),
        forwarded: bed.card().counts("p1").map_or(0, |c| c.forwarded),
        packets,
    }
}
