use std::collections::BTreeMap;

use fv_core::Nanos;
use proptest::prelude::*;

use super::packet::{self, FLAG_AUTH, FLAG_MULTIPOINT};
use super::{Bad, Config, Control, Diagnostic, Session, State};

const MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

fn config(words: &[(&str, &str)]) -> Config {
    let mut column: BTreeMap<String, String> = words.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    column.insert("enable".into(), "true".into());
    Config::parse(&column, |k, v| panic!("{k}={v}")).unwrap()
}

/// Two sessions and the wire between them.
struct Link {
    ends: [Session; 2],
    now: Nanos,
    /// Whether frames from that end arrive.
    open: [bool; 2],
    sent: [Vec<(Nanos, Control)>; 2],
    data: [Option<u64>; 2],
}

impl Link {
    fn new(a: &[(&str, &str)], b: &[(&str, &str)]) -> Link {
        let now = Nanos::from_secs(100);
        Link {
            ends: [Session::new("a", config(a), 0xaaaa, now), Session::new("b", config(b), 0xbbbb, now)],
            now,
            open: [true; 2],
            sent: Default::default(),
            data: [None; 2],
        }
    }

    /// Lets time pass as a thread would that sleeps until something is due.
    fn pass(&mut self, ms: u64) {
        let end = self.now + Nanos::from_ms(ms);
        while self.now <= end {
            for (i, mac) in MAC.into_iter().enumerate() {
                let rx = self.data[i];
                self.ends[i].run(self.now, rx);
                while let Some(frame) = self.ends[i].send(mac, self.now) {
                    let (payload, _) = packet::payload(&frame).unwrap();
                    self.sent[i].push((self.now, Control::parse(payload).unwrap()));
                    if self.open[i] {
                        self.ends[1 - i].receive(&frame, self.now).unwrap();
                        if let Some(n) = &mut self.data[1 - i] {
                            *n += 1;
                        }
                    }
                }
            }
            let next = self.ends[0].wake_at().min(self.ends[1].wake_at());
            self.now = next.max(self.now + Nanos(100_000)).min(end + Nanos(1));
        }
        self.now = end;
    }

    fn states(&self) -> [State; 2] {
        [self.ends[0].state, self.ends[1].state]
    }
}

#[test]
fn comes_up_and_falls() {
    let mut l = Link::new(&[("min_tx", "300"), ("min_rx", "300")], &[("min_tx", "500"), ("min_rx", "500")]);
    assert!(!l.ends[0].forwarding());
    l.pass(3000);
    assert_eq!(l.states(), [State::Up; 2]);
    assert!(l.ends[0].forwarding() && l.ends[1].forwarding());
    let text = l.ends[0].show(l.now);
    for line in ["TX Interval: Approx 500ms", "RX Interval: Approx 500ms", "Local Minimum TX Interval: 300ms"] {
        assert!(text.contains(line), "{text}");
    }
    // One end no longer hears: it tells the other.
    l.open[1] = false;
    l.pass(950);
    assert_eq!(l.ends[0].state, State::Up, "three intervals have not passed");
    l.pass(1000);
    assert_eq!(l.states(), [State::Down; 2]);
    assert_eq!(l.ends[0].diagnostic, Diagnostic::EXPIRED);
    assert_eq!(l.ends[1].diagnostic, Diagnostic::NEIGHBOR_DOWN);
    assert!(!l.ends[0].forwarding() && !l.ends[1].forwarding());
    // It heals.
    l.open[1] = true;
    l.pass(4000);
    assert_eq!(l.states(), [State::Up; 2]);
    let flaps = l.ends[0].status().into_iter().find(|(k, _)| *k == "flap_count").unwrap().1;
    assert_eq!(flaps, "3");
}

#[test]
fn jitter_stays_within_its_bounds() {
    for (mult, most) in [("1", 900_000_001), ("3", 1_000_100_001)] {
        let (a, b) = (&[("min_tx", "1000"), ("min_rx", "10"), ("mult", mult)][..], &[("min_rx", "10")][..]);
        let mut l = Link::new(a, b);
        l.pass(5000);
        l.sent[0].clear();
        l.pass(200_000);
        let gaps: Vec<u64> = l.sent[0].windows(2).map(|w| (w[1].0 - w[0].0).0).collect();
        assert!(gaps.len() > 190, "{}", gaps.len());
        assert!(gaps.iter().all(|g| (750_000_000..=most + 100_000).contains(g)), "{mult}: {gaps:?}");
        assert!(gaps.iter().max().unwrap() - gaps.iter().min().unwrap() > 50_000_000, "no jitter: {gaps:?}");
    }
}

/// Slower sending and more impatient receiving wait until the other end has answered a poll.
#[test]
fn polls_before_it_gets_slower() {
    let mut l = Link::new(&[("min_tx", "100"), ("min_rx", "100")], &[("min_tx", "100"), ("min_rx", "100")]);
    l.pass(5000);
    l.open[1] = false;
    let slower = config(&[("min_tx", "2000"), ("min_rx", "100")]);
    l.ends[0].set_config(slower, l.now);
    l.sent[0].clear();
    l.pass(150);
    assert!(l.sent[0].iter().all(|(_, c)| c.flags & packet::FLAG_POLL != 0 && c.min_tx_us == 2_000_000));
    assert!(l.ends[0].tx_interval_us() == 100_000, "not confirmed yet");
    l.open[1] = true;
    l.pass(300);
    assert_eq!(l.ends[0].tx_interval_us(), 2_000_000);
    l.pass(20_000);
    assert_eq!(l.states(), [State::Up; 2]);
    assert_eq!(l.ends[1].rx_interval_us(), 2_000_000);
}

#[test]
fn a_path_that_is_down_behind_the_other_end() {
    let mut l = Link::new(&[], &[]);
    l.pass(5000);
    l.ends[1].set_config(config(&[("cpath_down", "true")]), l.now);
    l.pass(10);
    assert_eq!(l.states(), [State::Up; 2]);
    assert!(!l.ends[0].forwarding() && l.ends[1].forwarding(), "told at once, not at the next interval");
    l.ends[1].set_config(config(&[]), l.now);
    l.pass(10);
    assert!(l.ends[0].forwarding());
    l.ends[0].force_forwarding(Some(false), l.now);
    assert!(!l.ends[0].forwarding());
    l.ends[0].force_forwarding(None, l.now);
    assert!(l.ends[0].forwarding());
}

#[test]
fn an_idle_session_gets_lazy() {
    let words = [("min_rx", "200"), ("min_tx", "200"), ("decay_min_rx", "3000")];
    let mut l = Link::new(&words, &[("min_rx", "200"), ("min_tx", "200")]);
    l.data[0] = Some(0);
    l.pass(12_000);
    assert_eq!(l.ends[0].rx_interval_us(), 3_000_000);
    // Data comes.
    for _ in 0..40 {
        *l.data[0].as_mut().unwrap() += 50;
        l.pass(100);
    }
    assert_eq!(l.ends[0].rx_interval_us(), 200_000);
    assert_eq!(l.states(), [State::Up; 2]);
}

#[test]
fn data_keeps_a_port_forwarding() {
    let mut l = Link::new(&[("min_rx", "100"), ("forwarding_if_rx", "true")], &[("min_rx", "100")]);
    l.data[0] = Some(0);
    l.pass(3000);
    l.open[1] = false;
    for _ in 0..30 {
        *l.data[0].as_mut().unwrap() += 5;
        l.pass(100);
    }
    assert_eq!(l.ends[0].state, State::Down);
    assert!(l.ends[0].forwarding(), "data came");
    for _ in 0..90 {
        *l.data[0].as_mut().unwrap() += 5;
        l.pass(100);
    }
    assert!(!l.ends[0].forwarding(), "but no control packet for a hundred intervals");
}

#[test]
fn packets_that_are_not_taken() {
    let good = Control {
        diagnostic: Diagnostic::NONE,
        state: State::Up,
        flags: 0,
        mult: 3,
        my_discriminator: 7,
        your_discriminator: 0xaaaa,
        min_tx_us: 100_000,
        min_rx_us: 100_000,
        min_rx_echo_us: 0,
    };
    let frame = |c: Control| packet::frame(c, (MAC[0], MAC[1]), (1, 2), 5);
    let byte = |at: usize, value: u8| {
        let mut f = frame(good);
        f[at] = value;
        f
    };
    let cases = [
        (frame(Control { your_discriminator: 0, ..good }), Bad::NoYours(State::Up)),
        (frame(Control { your_discriminator: 9, ..good }), Bad::NotOurs { got: 9, ours: 0xaaaa }),
        (frame(Control { my_discriminator: 0, ..good }), Bad::NoDiscriminator),
        (frame(Control { flags: FLAG_AUTH, ..good }), Bad::Auth),
        (frame(Control { flags: FLAG_MULTIPOINT, ..good }), Bad::Multipoint),
        (frame(Control { mult: 0, ..good }), Bad::NoMultiplier),
        (byte(42, 0x40), Bad::Version(2)),
        (byte(45, 23), Bad::Length(23)),
        (byte(45, 25), Bad::Length(25)),
        (byte(22, 254), Bad::Ttl(254)),
        (byte(23, 6), Bad::NotUdp),
        (byte(12, 9), Bad::NotUdp),
        (frame(good)[..60].to_vec(), Bad::Short),
    ];
    for (f, why) in cases {
        let mut s = Session::new("a", config(&[]), 0xaaaa, Nanos(1));
        let before = s.show(Nanos(2));
        assert_eq!(s.receive(&f, Nanos(2)), Err(why));
        assert_eq!(s.show(Nanos(2)), before, "{why}: nothing changes");
    }
    let mut s = Session::new("a", config(&[]), 0xaaaa, Nanos(1));
    assert_eq!(s.receive(&frame(good), Nanos(2)), Ok(()));
}

#[test]
fn settings_that_cannot_be_read_are_told() {
    let column =
        [("enable", "true"), ("mult", "256"), ("min_tx", "abc"), ("bfd_src_ip", "hey"), ("bfd_local_dst_mac", "1:2")];
    let column = column.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let mut bad = Vec::new();
    let c = Config::parse(&column, |k, _| bad.push(k.to_string()));
    assert_eq!(c, Some(Config::default()));
    assert_eq!(bad, ["bfd_local_dst_mac", "bfd_src_ip", "min_tx", "mult"]);
    assert_eq!(Config::parse(&BTreeMap::new(), |_, _| ()), None);
}

proptest! {
    /// Whatever arrives: no panic, and a session that is not addressed is not touched.
    #[test]
    fn any_frame(bytes in proptest::collection::vec(any::<u8>(), 0..90), start in any::<bool>()) {
        let mut s = Session::new("a", config(&[]), 0xaaaa, Nanos(1));
        let mut f = bytes;
        if start && f.len() > 50 {
            let head = packet::frame(Control {
                diagnostic: Diagnostic::NONE, state: State::Down, flags: 0, mult: 1, my_discriminator: 1,
                your_discriminator: 0, min_tx_us: 0, min_rx_us: 0, min_rx_echo_us: 0,
            }, (MAC[0], MAC[1]), (1, 2), 5);
            f[..43].copy_from_slice(&head[..43]);
        }
        let _ = s.receive(&f, Nanos(5));
        s.run(Nanos(6), Some(3));
        let _ = s.wake_at();
    }

    #[test]
    fn control_packets_round_trip(
        (state, diag, flags, mult) in (0..4u8, 0..32u8, 0..64u8, 1..=255u8),
        (mine, yours, tx, rx, echo) in (1..=u32::MAX, any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>()),
    ) {
        let c = Control {
            diagnostic: Diagnostic::from_wire(diag), state: State::from_wire(state),
            flags: flags & !(FLAG_AUTH | FLAG_MULTIPOINT), mult, my_discriminator: mine, your_discriminator: yours,
            min_tx_us: tx, min_rx_us: rx, min_rx_echo_us: echo,
        };
        prop_assert_eq!(Control::parse(&c.to_bytes()), Ok(c));
    }
}
