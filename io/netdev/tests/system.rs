//! Packet-socket ports against the running kernel. Needs root, as the switch does.

mod common;

use std::sync::atomic::Ordering::Relaxed;

use common::{Forwarder, Ns, batch, frame, recv, tcp, udp, until};
use fv_hostnet::netns;
use fv_netdev::{Device, DeviceError, SystemDevice, TapDevice};
use fv_packet::{Batch, Packet};

/// Two far ends joined by a forwarder in the middle.
fn pair(tag: &str, mtu: u32, prepare: &str, body: impl FnOnce(&Ns, &Ns, &Forwarder)) {
    let [sw, a, b] = ["s", "a", "b"].map(|n| Ns::new(&format!("{tag}{n}")));
    a.plug(&sw, "p0", 1, mtu);
    b.plug(&sw, "p1", 2, mtu);
    for ns in [&a, &b] {
        if !prepare.is_empty() {
            ns.exec(&format!("ethtool -K eth0 {prepare}"));
        }
    }
    sw.inside(|| {
        let [p0, p1] = ["p0", "p1"].map(|n| SystemDevice::open(n).expect("open"));
        let f = Forwarder::start(&p0, &p1);
        body(&a, &b, &f);
        assert_eq!(f.moved.dropped.load(Relaxed), 0);
    });
    assert_eq!((a.checksum_errors(), b.checksum_errors()), (0, 0));
}

#[test]
fn tcp_and_udp_with_default_offloads_pass_whole() {
    pair("d", 1500, "", |a, b, f| {
        tcp(a, b, "198.18.0.2", 20_000_000);
        udp(a, b, "198.18.0.1", "198.18.0.2", 1000);
        // Fragmented by the sender.
        udp(a, b, "198.18.0.1", "198.18.0.2", 8000);
        let m = &f.moved;
        assert!(m.longest.load(Relaxed) > 30_000, "segments travel uncut: {}", m.longest.load(Relaxed));
        assert!(m.segmented.load(Relaxed) > 0 && m.partial.load(Relaxed) > 0);
    });
}

#[test]
fn tcp_without_any_offload() {
    pair("n", 1500, "tx off rx off tso off gso off gro off", |a, b, f| {
        tcp(a, b, "198.18.0.2", 2_000_000);
        udp(a, b, "198.18.0.1", "198.18.0.2", 1000);
        assert_eq!((f.moved.longest.load(Relaxed), f.moved.segmented.load(Relaxed)), (1514, 0));
        assert_eq!(f.moved.partial.load(Relaxed), 0);
    });
}

#[test]
fn jumbo_frames() {
    pair("j", 9000, "tso off gso off gro off", |a, b, f| {
        tcp(a, b, "198.18.0.2", 5_000_000);
        udp(a, b, "198.18.0.1", "198.18.0.2", 8900);
        assert_eq!(f.moved.longest.load(Relaxed), 9014);
    });
}

#[test]
fn vlan_tags_that_the_kernel_strips_come_back() {
    let [sw, far] = ["vs", "vf"].map(Ns::new);
    far.plug(&sw, "p0", 1, 1500);
    let near = sw.inside(|| SystemDevice::open("p0").expect("open"));
    let end = far.inside(|| SystemDevice::open("eth0").expect("open"));
    let mut tx = end.open_txq(0).unwrap();
    let mut rx = near.open_rxq(0).unwrap();
    let tags: [&[u8]; 5] = [
        &[],
        &[0x81, 0x00, 0x60, 0x07],
        &[0x81, 0x00, 0x00, 0x00],
        &[0x88, 0xa8, 0x20, 0x64, 0x81, 0x00, 0x00, 0x05],
        &[0x81, 0x00, 0x00, 0x05, 0x81, 0x00, 0x00, 0x06],
    ];
    let frames: Vec<Vec<u8>> = tags
        .iter()
        .map(|t| {
            let plain = frame(7, 100);
            [&plain.data()[..12], t, &plain.data()[12..]].concat()
        })
        .collect();
    let sent = tx.send(&mut batch(frames.iter().map(|f| Packet::from_slice(f))));
    assert_eq!((sent.packets, sent.dropped), (5, 0));
    assert_eq!(sent.bytes, frames.iter().map(|f| f.len() as u64).sum::<u64>());
    let mut got = Batch::new();
    while got.len() < frames.len() {
        recv(rx.as_mut(), &mut got, "tagged frames");
    }
    for (g, f) in got.iter().zip(&frames) {
        assert_eq!(g.data(), &f[..]);
    }
}

/// The tagging port's way in and out, one tag.
fn tag(way: usize, p: &mut Packet) {
    if way == 0 {
        p.push_front(4);
        let d = p.data_mut();
        d.copy_within(4..16, 0);
        d[12..16].copy_from_slice(&[0x81, 0, 0, 100]);
    } else {
        assert_eq!(p.data()[12..16], [0x81, 0, 0, 100], "tagged");
        p.data_mut().copy_within(0..12, 4);
        p.pull_front(4);
    }
}

#[test]
fn large_segments_pass_whole_under_a_vlan_tag() {
    let [sw, a, b] = ["gs", "ga", "gb"].map(Ns::new);
    a.plug(&sw, "p0", 1, 1500);
    b.plug(&sw, "p1", 9, 1500);
    b.ip("addr flush dev eth0");
    // p0 -> tag -> p1 -> eth0 of b -> untag -> t0 of b, where the address is.
    let (t0, eth0) =
        b.inside(|| (TapDevice::open("t0", "tap").expect("tap"), SystemDevice::open("eth0").expect("open")));
    b.ip("link set t0 up");
    b.ip("addr add 198.18.0.2/24 dev t0");
    let [p0, p1] = sw.inside(|| ["p0", "p1"].map(|n| SystemDevice::open(n).expect("open")));
    let tagging = Forwarder::with(&p0, &p1, tag);
    let untagging = Forwarder::with(&t0, &eth0, tag);
    tcp(&a, &b, "198.18.0.2", 5_000_000);
    tcp(&b, &a, "198.18.0.1", 5_000_000);
    for f in [&tagging, &untagging] {
        assert!(f.moved.segmented.load(Relaxed) > 0 && f.moved.longest.load(Relaxed) > 20_000);
        assert_eq!(f.moved.dropped.load(Relaxed), 0);
    }
    assert_eq!((a.checksum_errors(), b.checksum_errors()), (0, 0));
}

#[test]
fn udp_segments_pass_whole() {
    pair("w", 1500, "", |a, b, f| {
        let bind = |ns: &Ns, at: &str| ns.inside(|| std::net::UdpSocket::bind(at).expect("bind"));
        let (c, s) = (bind(a, "198.18.0.1:5003"), bind(b, "198.18.0.2:5003"));
        s.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("timeout");
        common::udp_segment(&c, 1000);
        let data: Vec<u8> = (0..30_500).map(|i| (i / 1000) as u8).collect();
        c.send_to(&data, "198.18.0.2:5003").expect("send");
        let mut buf = [0; 2000];
        let mut got = Vec::new();
        for i in 0..31 {
            let n = s.recv(&mut buf).expect("receive");
            assert_eq!(n, if i < 30 { 1000 } else { 500 });
            got.extend_from_slice(&buf[..n]);
        }
        assert_eq!(got, data);
        assert_eq!((f.moved.segmented.load(Relaxed), f.moved.longest.load(Relaxed)), (1, 30_500 + 42));
    });
}

#[test]
fn a_renamed_device_is_not_this_port_any_more() {
    let [sw, far] = ["xs", "xf"].map(Ns::new);
    far.plug(&sw, "p0", 1, 1500);
    sw.inside(|| {
        let dev = SystemDevice::open("p0").expect("open");
        let (mut rx, mut tx) = (dev.open_rxq(0).unwrap(), dev.open_txq(0).unwrap());
        let end = far.inside(|| SystemDevice::open("eth0").expect("open"));
        let mut etx = end.open_txq(0).unwrap();
        sw.ip("link set p0 down");
        sw.ip("link set p0 name q0");
        sw.ip("link set q0 up");
        until("noticed", || dev.change_seq() > 0 && dev.status().ifindex.is_none());
        until("q0 up", || end.status().link_up);
        assert_eq!(etx.send(&mut batch([frame(1, 60)])).packets, 1);
        common::wait(&[rx.as_mut()], 500);
        assert_eq!(rx.recv(&mut Batch::new()).unwrap(), 0);
        assert_eq!(tx.send(&mut batch([frame(1, 60)])).dropped, 1);
        sw.ip("link set q0 down");
        sw.ip("link set q0 name p0");
        sw.ip("link set p0 up");
        until("back", || dev.status().link_up);
        assert_eq!(etx.send(&mut batch([frame(2, 60)])).packets, 1);
        let mut got = Batch::new();
        recv(rx.as_mut(), &mut got, "back");
        assert_eq!(got[0].data()[20], 2);
    });
}

#[test]
fn nothing_leaks_in_from_other_devices_and_nothing_sent_comes_back() {
    let [sw, a, b] = ["ls", "la", "lb"].map(Ns::new);
    a.plug(&sw, "p0", 1, 1500);
    b.plug(&sw, "p1", 2, 1500);
    let ends = [&a, &b].map(|ns| ns.inside(|| SystemDevice::open("eth0").expect("open")));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        for (tag, end) in [0xa, 0xb].into_iter().zip(&ends) {
            let mut tx = end.open_txq(0).unwrap();
            let stop = &stop;
            s.spawn(move || {
                while !stop.load(Relaxed) {
                    tx.send(&mut batch((0..8).map(|_| frame(tag, 60))));
                }
            });
        }
        let r = std::panic::catch_unwind(|| {
            sw.inside(|| {
                for _ in 0..30 {
                    let p0 = SystemDevice::open("p0").expect("open");
                    let (mut rx, mut tx) = (p0.open_rxq(0).unwrap(), p0.open_txq(0).unwrap());
                    tx.send(&mut batch([frame(0xc, 60)]));
                    for _ in 0..10 {
                        let mut got = Batch::new();
                        recv(rx.as_mut(), &mut got, "flood");
                        assert!(got.iter().all(|p| p.data()[20] == 0xa), "{got:?}", got = got[0]);
                    }
                }
            });
        });
        stop.store(true, Relaxed);
        r.unwrap();
    });
}

#[test]
fn a_device_that_is_missing_down_removed_and_made_again() {
    let [sw, far] = ["rs", "rf"].map(Ns::new);
    sw.inside(|| {
        assert!(matches!(SystemDevice::open("p0"), Err(DeviceError::NoSuchDevice)));
        assert!(matches!(SystemDevice::open("much-too-long-a-name"), Err(DeviceError::NoSuchDevice)));
        far.plug(&sw, "p0", 1, 1500);
        let dev = SystemDevice::open("p0").expect("open");
        let (mut rx, mut tx) = (dev.open_rxq(0).unwrap(), dev.open_txq(0).unwrap());
        until("link up", || dev.status().link_up);
        let mut seq = dev.change_seq();
        let mut moved = |what: &str| {
            until(what, || dev.change_seq() != seq);
            seq = dev.change_seq();
        };
        for round in 0..3u8 {
            let end = far.inside(|| SystemDevice::open("eth0").expect("open"));
            let (mut etx, mut erx) = (end.open_txq(0).unwrap(), end.open_rxq(0).unwrap());
            assert_eq!(etx.send(&mut batch([frame(round, 60)])).packets, 1);
            let mut got = Batch::new();
            recv(rx.as_mut(), &mut got, "after the device is back");
            assert_eq!(got[0].data(), frame(round, 60).data());
            assert_eq!(tx.send(&mut batch([frame(round, 70)])).packets, 1);
            let mut got = Batch::new();
            recv(erx.as_mut(), &mut got, "sent after the device is back");
            assert_eq!(got[0].len(), 70);

            sw.ip("link set p0 down");
            moved("down");
            assert!(!dev.status().admin_up && !dev.status().link_up);
            assert_eq!(tx.send(&mut batch([frame(1, 60), frame(2, 60)])).dropped, 2);
            assert_eq!(rx.recv(&mut Batch::new()).unwrap(), 0);
            sw.ip("link set p0 up");
            moved("up");
            until("link up again", || dev.status().link_up);
            assert_eq!(tx.send(&mut batch([frame(1, 60)])).packets, 1);

            sw.ip("link del p0");
            moved("gone");
            assert_eq!(dev.status().ifindex, None);
            assert_eq!(tx.send(&mut batch([frame(1, 60)])).dropped, 1);
            // Says so once; after that it is quiet, so that nobody polls it in a loop.
            assert_eq!(rx.recv(&mut Batch::new()).unwrap(), 0);
            let t = std::time::Instant::now();
            common::wait(&[rx.as_mut()], 50);
            assert!(t.elapsed().as_millis() >= 50, "not readable while gone");
            assert!(matches!(dev.set_mtu(1400), Err(DeviceError::NoSuchDevice)));
            far.plug(&sw, "p0", 1, 1500);
            moved("back");
            until("link up", || dev.status().link_up);
        }
        assert!(dev.status().link_resets >= 9, "{}", dev.status().link_resets);
    });
}

#[test]
fn removal_under_load() {
    let [sw, a, b] = ["us", "ua", "ub"].map(Ns::new);
    a.plug(&sw, "p0", 1, 1500);
    b.plug(&sw, "p1", 2, 1500);
    let ends = [&a, &b].map(|ns| ns.inside(|| SystemDevice::open("eth0").expect("open")));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        let mut tx = ends[0].open_txq(0).unwrap();
        let stop = &stop;
        s.spawn(move || {
            while !stop.load(Relaxed) {
                tx.send(&mut batch((0..32).map(|i| frame(i, 1000))));
            }
        });
        let r = std::panic::catch_unwind(|| {
            sw.inside(|| {
                let [p0, p1] = ["p0", "p1"].map(|n| SystemDevice::open(n).expect("open"));
                let f = Forwarder::start(&p0, &p1);
                for _ in 0..5 {
                    let before = f.moved.packets.load(Relaxed);
                    until("traffic", || f.moved.packets.load(Relaxed) > before + 1000);
                    sw.ip("link del p1");
                    let before = f.moved.dropped.load(Relaxed);
                    until("drops", || f.moved.dropped.load(Relaxed) > before + 1000);
                    b.plug(&sw, "p1", 2, 1500);
                    until("back", || p1.change_seq() > 0 && p1.status().link_up);
                    let back = b.inside(|| SystemDevice::open("eth0").expect("open"));
                    let mut rx = back.open_rxq(0).unwrap();
                    recv(rx.as_mut(), &mut Batch::new(), "traffic at the new device");
                }
            });
        });
        stop.store(true, Relaxed);
        r.unwrap();
    });
}

#[test]
fn status_and_statistics_are_the_kernels() {
    let [sw, far] = ["ts", "tf"].map(Ns::new);
    far.plug(&sw, "p0", 1, 1500);
    sw.inside(|| {
        let dev = SystemDevice::open("p0").expect("open");
        until("link up", || dev.status().link_up);
        dev.set_mac([2, 0, 0, 0, 0, 9]).unwrap();
        dev.set_mtu(1450).unwrap();
        let s = dev.status();
        assert_eq!((s.mac, s.mtu, s.admin_up), (Some([2, 0, 0, 0, 0, 9]), Some(1450), true));
        assert_eq!((s.speed_bps, s.duplex), (Some(10_000_000_000), Some(fv_netdev::Duplex::Full)));
        assert_eq!(s.driver["driver_name"], "veth");
        let end = far.inside(|| SystemDevice::open("eth0").expect("open"));
        let before = dev.stats();
        assert_eq!(end.open_txq(0).unwrap().send(&mut batch((0..5).map(|_| frame(1, 100)))).packets, 5);
        assert_eq!(dev.open_txq(0).unwrap().send(&mut batch((0..3).map(|_| frame(1, 200)))).packets, 3);
        // Longer than the MTU and not to be segmented: refused alone, the others pass.
        let sent = dev.open_txq(0).unwrap().send(&mut batch([frame(1, 60), frame(1, 5000), frame(1, 60)]));
        assert_eq!((sent.packets, sent.dropped, sent.bytes), (2, 1, 120));
        let after = dev.stats();
        let d = |f: fn(&fv_netdev::PortStats) -> Option<u64>| f(&after).unwrap() - f(&before).unwrap();
        assert_eq!((d(|s| s.rx_packets), d(|s| s.rx_bytes)), (5, 500));
        assert_eq!((d(|s| s.tx_packets), d(|s| s.tx_bytes), d(|s| s.tx_dropped)), (5, 720, 1));
        dev.set_admin_up(false).unwrap();
        assert!(!dev.status().admin_up);
        assert!(netns::named("../etc").is_err());
    });
}
