//! Benches of the emulated NIC with the switch around it: `cargo xtask bench NAME`.

#[path = "../../tests/bed/mod.rs"]
mod bed;
#[path = "../../tests/storm/mod.rs"]
mod storm;

/// Changes of a run, over all options.
const CHANGES: u64 = 100_000;

/// Cards with few marks and none to spare, with many, with errors, and one that forwards by itself.
const OPTIONS: [&str; 4] = [
    "actions= mark-bits=3 pipeline-delay-us=20000",
    "actions= mark-bits=24 pipeline-delay-us=500 table-size=20",
    "actions=output mark-bits=5 pipeline-delay-us=200 op-latency-us=150 busy-percent=5 fail-percent=5 table-size=24",
    "stats-delay-ms=3 op-latency-us=150 op-rate=20000 busy-percent=5 fail-percent=5 table-size=24",
];

fn main() {
    match std::env::args().skip(1).find(|a| a != "--bench").as_deref() {
        Some("races") => races(),
        _ => println!("benches: races"),
    }
}

/// Flows added, changed and deleted under traffic, with packets late in the NIC's queues.
fn races() {
    let mut all = storm::End::default();
    for (seed, options) in (1..).zip(OPTIONS) {
        let end = storm::storm(options, CHANGES / OPTIONS.len() as u64, seed);
        println!(
            "{options}: {} changes, {} packets, {} by marks, {} by the NIC; {} misdirected, {} lost, {} rules left",
            end.changes, end.packets, end.marked, end.forwarded, end.misdirected, end.lost, end.left_in_table
        );
        all.changes += end.changes;
        all.misdirected += end.misdirected;
        all.left_in_table += end.left_in_table;
        all.lost += end.lost;
        all.packets += end.packets;
    }
    println!(
        "RESULT changes={} packets={} misdirected={} left_in_table={} lost={}",
        all.changes, all.packets, all.misdirected, all.left_in_table, all.lost
    );
}
