use super::*;
use crate::pair::{PairConfig, PairEnd, pair};
use fv_core::{Clock, Nanos};
use parking_lot::Mutex;

fn stage_on_tx(make: impl Fn() -> Box<dyn Stage> + Send + Sync + 'static) -> (Arc<Wrapped>, Arc<PairEnd>) {
    let (a, b) = pair("a", "b", PairConfig::default());
    (Wrapped::new(a, move |way, _| (way == Way::Tx).then(&make)), b)
}

fn send(tx: &mut Box<dyn TxQueue>, n: u32) {
    for i in 0..n {
        let mut batch = Batch::new();
        let mut bytes = [0; 100];
        bytes[..4].copy_from_slice(&i.to_be_bytes());
        batch.push(Packet::from_slice(&bytes)).unwrap();
        assert_eq!(tx.send(&mut batch).packets, 1);
    }
}

fn arrived(b: &PairEnd) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| b.recv(0)).map(|p| p.data().to_vec()).collect()
}

fn through_faults(seed: u64, faults: Faults) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let clock = Clock::stopped();
    let c = clock.clone();
    let (a, b) = stage_on_tx(move || Box::new(Fault::new(c.clone(), seed, faults)));
    let mut tx = a.open_txq(0).unwrap();
    send(&mut tx, 900);
    let at_once = arrived(&b);
    clock.advance(faults.delay_max);
    tx.flush();
    (at_once, arrived(&b))
}

#[test]
fn faults_happen_as_often_as_said_and_repeatably() {
    let no = Faults::default();
    let (at_once, later) = through_faults(1, no);
    assert_eq!((at_once.len(), later.len()), (900, 0));
    let share = |n: usize| n as f64 / 900.0;

    let lossy = Faults { lost: 300_000, ..no };
    let (got, _) = through_faults(1, lossy);
    assert!((0.6..0.8).contains(&share(got.len())), "{}", got.len());
    assert_eq!(got, through_faults(1, lossy).0);
    assert_ne!(got, through_faults(2, lossy).0);

    let (got, _) = through_faults(1, Faults { corrupted: 1_000_000, ..no });
    for (got, sent) in got.iter().zip(&at_once) {
        let bits: u32 = got.iter().zip(sent).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(bits, 1);
    }

    let (got, _) = through_faults(1, Faults { duplicated: 1_000_000, ..no });
    assert_eq!(got.len(), 1024, "as many as the wire holds");

    let late = Faults { delayed: 500_000, delay_max: Nanos::from_ms(10), ..no };
    let (first, then) = through_faults(1, late);
    assert_eq!(first.len() + then.len(), 900);
    assert!((0.3..0.7).contains(&share(then.len())));
    assert!(!then.is_sorted(), "late packets overtake each other");
}

#[test]
fn rate_spaces_packets() {
    let clock = Clock::stopped();
    let c = clock.clone();
    // 100 bytes take a millisecond.
    let (a, b) = stage_on_tx(move || Box::new(Rate::new(c.clone(), 100_000, 10)));
    let mut tx = a.open_txq(0).unwrap();
    send(&mut tx, 30);
    assert_eq!(arrived(&b).len(), 1);
    for _ in 0..3 {
        clock.advance(Nanos::from_ms(1));
        tx.flush();
        assert_eq!(arrived(&b).len(), 1);
    }
    for _ in 0..100 {
        clock.advance(Nanos::from_ms(1));
        tx.flush();
    }
    assert_eq!(arrived(&b).len(), 7, "ten fitted the queue");
}

#[test]
fn trace_sees_both_ways() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (a, b) = pair("a", "b", PairConfig::default());
    let log = seen.clone();
    let a = Wrapped::new(a, move |way, q| {
        let log = log.clone();
        Some(Box::new(Trace::new(move |p: &Packet| log.lock().push((way, q, p.len())))))
    });
    let mut tx = a.open_txq(0).unwrap();
    let mut rx = a.open_rxq(0).unwrap();
    send(&mut tx, 1);
    b.send(0, Packet::from_slice(&[0; 60]));
    let mut batch = Batch::new();
    assert_eq!(rx.recv(&mut batch).unwrap(), 1);
    assert_eq!(*seen.lock(), [(Way::Tx, 0, 100), (Way::Rx, 0, 60)]);
    assert_eq!((a.name(), a.kind(), arrived(&b).len()), ("a", "pair", 1));
}
