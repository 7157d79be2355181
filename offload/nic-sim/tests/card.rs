//! A card between two wires in memory and a switch that is the test.

use std::sync::Arc;

use etherparse::PacketBuilder;
use fv_core::{DpPort, Nanos};
use fv_dpif::action::{Masked, SetField};
use fv_dpif::{DpAction, Program};
use fv_flow::extract::{Extra, extract};
use fv_flow::{DpKey, DpMask};
use fv_netdev::pair::{PairConfig, PairEnd, pair};
use fv_netdev::{Device, Options, RxQueue};
use fv_nic_sim::{Card, Cards, SimPort, SimProvider};
use fv_offload::{Op, OpKind, Outcome, PoolId, Provider, Report, Rule, RuleId, Treatment};
use fv_packet::{Batch, Packet};

struct Bed {
    cards: Arc<Cards>,
    provider: SimProvider,
    ports: Vec<Arc<SimPort>>,
    rx: Vec<Box<dyn RxQueue>>,
    /// The far ends of the wires.
    far: Vec<Arc<PairEnd>>,
    pool: PoolId,
    now: Nanos,
}

fn options(text: &str) -> Options {
    text.split_whitespace().filter_map(|w| w.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
}

fn frame(sport: u16) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(sport, 53);
    let mut out = Vec::new();
    builder.write(&mut out, &[0; 20]).unwrap();
    out
}

fn match_of(port: u32, sport: u16) -> (DpKey, DpMask) {
    let mut packet = Packet::from_slice(&frame(sport));
    packet.meta_mut().in_port = port;
    let key = extract(&mut packet, &Extra::default());
    let mut mask = DpMask::default();
    (mask.0.base.in_port, mask.0.base.recirc_id) = (u32::MAX, u32::MAX);
    mask.0.base.dl_type = u16::MAX.into();
    mask.0.base.tp_src = u16::MAX.into();
    (key, mask)
}

impl Bed {
    fn new(text: &str) -> Bed {
        let cards = Cards::new();
        let mut provider = SimProvider::new(cards.clone());
        let mut bed = (Vec::new(), Vec::new(), Vec::new(), PoolId(0));
        for (n, name) in ["p1", "p2"].iter().enumerate() {
            let (near, far) = pair(&format!("near{n}"), &format!("far{n}"), PairConfig::default());
            let mut o = options(text);
            o.insert("card".into(), "c0".into());
            let port = cards.plug(name, &o, near).unwrap();
            bed.3 = provider.attach(DpPort(n as u32 + 1), name).unwrap();
            port.open_txq(0).unwrap();
            bed.1.push(port.open_rxq(0).unwrap());
            bed.0.push(port);
            bed.2.push(far);
        }
        let (ports, rx, far, pool) = bed;
        Bed { cards, provider, ports, rx, far, pool, now: Nanos::from_secs(1000) }
    }

    fn card(&self) -> Arc<Card> {
        self.cards.find("c0").unwrap()
    }

    fn insert(&mut self, id: u64, sport: u16, treatment: Treatment) {
        let (key, mask) = match_of(1, sport);
        let rule = Rule { id: RuleId(id), pool: self.pool, key, mask, treatment };
        self.provider.submit(self.now, Op::Insert(Box::new(rule))).unwrap();
    }

    fn submit(&mut self, op: Op) {
        self.provider.submit(self.now, op).unwrap();
    }

    fn after(&mut self, ms: u64) -> Vec<Report> {
        self.now += Nanos::from_ms(ms);
        self.cards.turn(self.now, 1000);
        let mut out = Vec::new();
        self.provider.turn(self.now, &mut out);
        out
    }

    fn outcomes(&mut self, ms: u64) -> Vec<(u64, OpKind, Outcome)> {
        let of = |r: Report| match r {
            Report::Finished { rule, kind, outcome, .. } => Some((rule.0, kind, outcome)),
            _ => None,
        };
        self.after(ms).into_iter().filter_map(of).collect()
    }

    fn send(&self, sport: u16) {
        assert!(self.far[0].send(0, Packet::from_slice(&frame(sport))));
    }

    /// Marks of what the switch receives on the first port.
    fn marks(&mut self) -> Vec<u32> {
        let mut batch = Batch::new();
        self.rx[0].recv(&mut batch).unwrap();
        batch.drain().map(|p| p.meta().flow_mark).collect()
    }
}

fn full(actions: Vec<DpAction>) -> Treatment {
    Treatment::Full(Arc::new(Program::new(actions)))
}

#[test]
fn marked_packets_tell_their_rule() {
    let mut bed = Bed::new("");
    bed.insert(1, 1000, Treatment::Mark(7));
    assert_eq!(bed.outcomes(1), [(1, OpKind::Insert, Outcome::Done)]);
    [1000, 1001, 1000].into_iter().for_each(|p| bed.send(p));
    bed.after(1);
    assert_eq!(bed.marks(), [7, 0, 7]);
    bed.submit(Op::Modify(RuleId(1), Treatment::Mark(8)));
    bed.send(1000);
    bed.after(1);
    assert_eq!(bed.marks(), [8]);
    bed.submit(Op::Remove(RuleId(1)));
    assert_eq!(bed.outcomes(1), [(1, OpKind::Remove, Outcome::Done)]);
    bed.send(1000);
    bed.after(1);
    assert_eq!((bed.marks(), bed.card().rules()), (vec![0], 0));
}

#[test]
fn fully_offloaded_flows_are_forwarded_and_counted() {
    let mut bed = Bed::new("stats-delay-ms=1000");
    let ttl = SetField::Ipv4 {
        src: Masked::default(),
        dst: Masked { value: 0x0a000009, mask: u32::MAX },
        tos: Masked::default(),
        ttl: Masked { value: 63, mask: 255 },
    };
    let tag = DpAction::PushVlan { tpid: 0x8100, tci: 0x1005 };
    bed.insert(1, 1000, full(vec![DpAction::Set(ttl), tag, DpAction::Output(DpPort(2))]));
    bed.after(1);
    (0..10).for_each(|_| bed.send(1000));
    bed.after(1);
    let out: Vec<Packet> = std::iter::from_fn(|| bed.far[1].recv(0)).collect();
    assert_eq!((out.len(), bed.marks().len()), (10, 0));
    let parsed = etherparse::PacketHeaders::from_ethernet_slice(out[0].data()).unwrap();
    assert_eq!(out[0].data()[12..16], [0x81, 0, 0, 5]);
    let Some(etherparse::NetHeaders::Ipv4(ip, _)) = parsed.net else { panic!() };
    assert_eq!((ip.time_to_live, ip.destination), (63, [10, 0, 0, 9]));
    assert_eq!(ip.header_checksum, ip.calc_header_checksum());

    // Counters come late, and say from when they are.
    let read = bed.now;
    let mut told = Vec::new();
    for _ in 0..30 {
        told.extend(bed.after(100));
    }
    let bytes = 10 * frame(1000).len() as u64;
    let counts: Vec<_> = told
        .iter()
        .filter_map(|r| match r {
            Report::Counted { count, as_of, .. } => Some((count.packets, count.bytes, *as_of >= read)),
            _ => None,
        })
        .collect();
    assert_eq!(counts, [(10, bytes, true)], "once, as nothing more came");
    (0..3).for_each(|_| bed.send(1000));
    bed.submit(Op::Remove(RuleId(1)));
    let last = bed.after(1).into_iter().find_map(|r| match r {
        Report::Finished { last, .. } => Some(last.packets),
        _ => None,
    });
    // The removal came before or after the packets: together they are all.
    assert_eq!(last.unwrap() + bed.marks().len() as u64, 13);
    assert_eq!(bed.card().counts("p1").unwrap().received, 13);
}

#[test]
fn a_full_table_says_so_and_operations_take_time() {
    let mut bed = Bed::new("table-size=2 op-rate=1000 op-latency-us=5000 op-depth=3");
    (1..=3).for_each(|id| bed.insert(id, id as u16, Treatment::Mark(id as u32)));
    let (key, mask) = match_of(1, 9);
    let rule = Rule { id: RuleId(4), pool: bed.pool, key, mask, treatment: Treatment::Mark(4) };
    assert!(bed.provider.submit(bed.now, Op::Insert(Box::new(rule))).is_err(), "too many under way");
    assert_eq!(bed.outcomes(4), []);
    assert_eq!(bed.outcomes(1), [(1, OpKind::Insert, Outcome::Done)]);
    assert_eq!(bed.provider.due(), bed.now + Nanos::from_ms(1));
    assert_eq!(bed.outcomes(1), [(2, OpKind::Insert, Outcome::Done)]);
    assert_eq!(bed.outcomes(1), [(3, OpKind::Insert, Outcome::OutOfRoom)]);
    assert_eq!(bed.provider.pools()[0].capacity, Some(2));
}

#[test]
fn packets_in_the_queues_outlive_their_rule() {
    let mut bed = Bed::new("pipeline-delay-us=2000");
    bed.insert(1, 1000, Treatment::Mark(7));
    bed.after(1);
    bed.send(1000);
    bed.after(0);
    bed.submit(Op::Remove(RuleId(1)));
    assert_eq!(bed.outcomes(1), [(1, OpKind::Remove, Outcome::Done)]);
    assert_eq!(bed.marks(), [0u32; 0]);
    bed.after(1);
    assert_eq!(bed.marks(), [7], "the rule is gone, its mark is not");
}

#[test]
fn a_reset_and_a_port_that_goes_evict() {
    let mut bed = Bed::new("");
    bed.insert(1, 1000, full(vec![DpAction::Output(DpPort(2))]));
    bed.insert(2, 2000, Treatment::Mark(5));
    bed.after(1);
    bed.send(1000);
    bed.after(1);
    bed.insert(3, 3000, Treatment::Mark(6));
    bed.card().reset();
    let reports = bed.after(0);
    let evicted: u64 =
        reports.iter().map(|r| if let Report::Evicted { last, .. } = r { last.packets } else { 0 }).sum();
    assert_eq!((evicted, reports.len()), (1, 4), "{reports:?}");
    assert_eq!(reports[3], Report::Reset(bed.pool));
    assert!(matches!(reports[2], Report::Finished { rule: RuleId(3), outcome: Outcome::Lost, .. }));
    // Output to a port that goes.
    bed.insert(4, 1000, full(vec![DpAction::Output(DpPort(2))]));
    bed.insert(5, 2000, Treatment::Mark(5));
    bed.after(1);
    bed.provider.detach(DpPort(2));
    let reports = bed.after(0);
    assert!(matches!(reports[..], [Report::Evicted { rule: RuleId(4), .. }]), "{reports:?}");
    bed.ports[0].remove();
    bed.ports[1].remove();
    bed.after(0);
    assert!(bed.cards.all().is_empty());
}

#[test]
fn errors_come_as_often_as_asked_for() {
    let mut bed = Bed::new("busy-percent=20 fail-percent=20 table-size=100000 op-depth=2000");
    for id in 1..=1000 {
        bed.insert(id, id as u16, Treatment::Mark(1));
    }
    let all = bed.outcomes(1);
    let of = |o: Outcome| all.iter().filter(|(_, _, outcome)| *outcome == o).count();
    assert!((150..250).contains(&of(Outcome::Busy)) && (110..210).contains(&of(Outcome::Lost)));
    assert_eq!(of(Outcome::Done), bed.card().rules());
}

#[test]
fn a_second_port_cannot_change_the_card() {
    let bed = Bed::new("table-size=10");
    let wire = || pair("a", "b", PairConfig::default()).0;
    assert!(bed.cards.plug("p3", &options("card=c0 table-size=11"), wire()).is_err());
    assert!(bed.cards.plug("p1", &options("card=c0"), wire()).is_err(), "the name is taken");
    let third = bed.cards.plug("p3", &options("card=c0 n_rxq=2"), wire()).unwrap();
    assert_eq!(third.n_rxq(), 2);
    assert!(third.set_options(&options("card=c0 n_rxq=2")).is_ok());
    assert!(third.set_options(&options("card=c0 n_rxq=3")).is_err());
}
