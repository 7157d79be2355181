//! Flows added, changed and deleted under traffic, with packets late in the NIC's queues.

mod bed;
mod storm;

#[test]
fn late_packets_are_forwarded_by_their_own_flow() {
    // Marks of three bits have none to spare for generations; of 24, they have. And everything at once.
    for options in [
        "actions= mark-bits=3 pipeline-delay-us=20000",
        "actions= mark-bits=24 pipeline-delay-us=500 table-size=20",
        "actions=output mark-bits=5 pipeline-delay-us=200 op-latency-us=150 busy-percent=5 fail-percent=5 table-size=24",
        "stats-delay-ms=3 op-latency-us=150 op-rate=20000 busy-percent=5 fail-percent=5 table-size=24",
    ] {
        let end = storm::storm(options, 6000, 7);
        assert_eq!((end.misdirected, end.left_in_table, end.lost), (0, 0, 0), "{options}");
        assert!(end.marked + end.forwarded > 50, "{options}: {end:?}");
    }
}
