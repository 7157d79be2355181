//! Taps against the running kernel. Needs root, as the switch does.

mod common;

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use common::{Forwarder, Ns, batch, frame, recv, tcp, udp, until};
use fv_hostnet::{Rtnl, netns};
use fv_netdev::{Device, DeviceError, SystemDevice, TapDevice};
use fv_packet::{Batch, Packet};

#[test]
fn names_that_are_taken_are_refused() {
    let sw = Ns::new("tn");
    sw.inside(|| {
        sw.ip("link add v0 type veth peer name v1");
        assert!(matches!(TapDevice::open("v0", "tap"), Err(DeviceError::Exists(_))));
        assert!(matches!(TapDevice::open("br/0", "internal"), Err(DeviceError::BadName(_))));
        assert!(matches!(TapDevice::open("t%d", "tap"), Err(DeviceError::BadName(_))));
        let first = TapDevice::open("br0", "internal").expect("open");
        assert_eq!((first.kind(), first.name()), ("internal", "br0"));
        assert!(matches!(TapDevice::open("br0", "tap"), Err(DeviceError::Exists(_))), "in use");
        drop(first);
        assert!(!sw.ip("link").contains("br0"), "gone with its descriptor");
        let second = TapDevice::open("br0", "internal").expect("open again");
        let _rx = second.open_rxq(0).unwrap();
        second.remove();
        assert!(!sw.ip("link").contains("br0"), "gone although a queue lives");
        assert_eq!(second.status().ifindex, None);
    });
}

#[test]
fn removal_by_somebody_else_ends_the_queue() {
    let sw = Ns::new("td");
    sw.inside(|| {
        let tap = TapDevice::open("t0", "internal").expect("open");
        let (mut rx, mut tx) = (tap.open_rxq(0).unwrap(), tap.open_txq(0).unwrap());
        tap.set_admin_up(true).unwrap();
        let seq = tap.change_seq();
        sw.ip("link del t0");
        assert!(tap.change_seq() > seq);
        assert!(matches!(rx.recv(&mut Batch::new()), Err(DeviceError::Gone)));
        assert_eq!(tx.send(&mut batch([frame(1, 60)])).dropped, 1);
        assert!(matches!(tap.set_mtu(1400), Err(DeviceError::Gone)));
        assert!(!tap.status().link_up);
        // Nobody who still waits on the descriptor is kept awake.
        let t = std::time::Instant::now();
        common::wait(&[rx.as_mut()], 50);
        assert!(t.elapsed().as_millis() >= 50);
        assert_eq!(rx.recv(&mut Batch::new()).unwrap(), 0);
        assert_eq!(tx.send(&mut batch([frame(1, 60)])).dropped, 1);
        let again = TapDevice::open("t0", "internal").expect("the name is free");
        assert!(again.status().ifindex.is_some() && tap.status().ifindex.is_none());
    });
}

#[test]
fn frames_pass_both_ways_and_statistics_are_the_switchs() {
    let sw = Ns::new("tp");
    sw.inside(|| {
        let tap = TapDevice::open("t0", "tap").expect("open");
        let (mut rx, mut tx) = (tap.open_rxq(0).unwrap(), tap.open_txq(0).unwrap());
        assert_eq!(tx.send(&mut batch([frame(1, 60)])).dropped, 1, "down");
        let seq = tap.change_seq();
        tap.set_admin_up(true).unwrap();
        assert!(tap.change_seq() > seq && tap.status().admin_up && tap.status().link_up);
        // A packet socket on the interface is the host's side.
        let host = SystemDevice::open("t0").expect("open");
        let (mut hrx, mut htx) = (host.open_rxq(0).unwrap(), host.open_txq(0).unwrap());
        let before = tap.stats();
        assert_eq!(tx.send(&mut batch((0..4).map(|i| frame(i, 100)))).packets, 4);
        let mut got = Batch::new();
        while got.len() < 4 {
            recv(hrx.as_mut(), &mut got, "from the switch");
        }
        assert_eq!(got[3].data(), frame(3, 100).data());
        let vlan = [&frame(9, 100).data()[..12], &[0x81, 0, 0, 5], &frame(9, 100).data()[12..]].concat();
        assert_eq!(htx.send(&mut batch([frame(9, 1400), Packet::from_slice(&vlan)])).packets, 2);
        let mut got = Batch::new();
        while got.len() < 2 {
            recv(rx.as_mut(), &mut got, "from the host");
        }
        assert_eq!((got[0].len(), got[1].data()), (1400, &vlan[..]));
        let s = tap.stats();
        let d = |a: Option<u64>, b: Option<u64>| a.unwrap() - b.unwrap();
        assert_eq!((d(s.tx_packets, before.tx_packets), d(s.tx_bytes, before.tx_bytes)), (4, 400));
        assert_eq!((d(s.rx_packets, before.rx_packets), d(s.rx_bytes, before.rx_bytes)), (2, 1504));
        assert!(s.tx_dropped.unwrap() >= 1);
        sw.ip("link set t0 down");
        sw.ip("link set t0 name t9 up");
        assert!(tap.status().link_up, "found under its new name");
        tap.set_mac([2, 0, 0, 0, 0, 77]).unwrap();
        tap.set_mtu(1300).unwrap();
        let st = tap.status();
        assert_eq!((st.mac, st.mtu), (Some([2, 0, 0, 0, 0, 77]), Some(1300)));
        assert_eq!(st.driver["driver_name"], "tun");
    });
}

#[test]
fn tcp_over_a_tap_that_moved_to_another_namespace() {
    let [sw, a, b] = ["ms", "ma", "mb"].map(Ns::new);
    b.plug(&sw, "p1", 2, 1500);
    sw.inside(|| {
        let tap = TapDevice::open("t0", "tap").expect("open");
        let p1 = SystemDevice::open("p1").expect("open");
        let seq = tap.change_seq();
        let index = tap.status().ifindex.unwrap();
        Rtnl::open().unwrap().move_to(index, a.fd().as_fd()).unwrap();
        a.ip("link set t0 name eth7 up");
        a.ip("addr add 198.18.0.1/24 dev eth7");
        assert!(!sw.ip("link").contains("t0"));
        until("seen there", || tap.status().link_up);
        assert!(tap.change_seq() > seq);
        tap.set_mac([2, 0, 0, 0, 0, 78]).unwrap();
        assert!(a.ip("link show eth7").contains("02:00:00:00:00:4e"));
        let f = Forwarder::start(&tap, &p1);
        tcp(&a, &b, "198.18.0.2", 10_000_000);
        tcp(&b, &a, "198.18.0.1", 10_000_000);
        udp(&a, &b, "198.18.0.1", "198.18.0.2", 8000);
        assert!(f.moved.longest.load(Relaxed) > 20_000 && f.moved.segmented.load(Relaxed) > 0);
        let seq = tap.change_seq();
        a.ip("link set eth7 down");
        until("followed there", || tap.change_seq() > seq && !tap.status().admin_up);
        let s = tap.stats();
        assert!(s.rx_bytes.unwrap() > 10_000_000 && s.tx_bytes.unwrap() > 10_000_000);
        drop(f);
        tap.remove();
        assert!(!a.ip("link").contains("eth7"));
    });
    assert_eq!((a.checksum_errors(), b.checksum_errors()), (0, 0));
    assert!(netns::current().is_ok());
}

#[test]
fn a_namespace_that_a_tap_moved_to_can_end() {
    let (sw, pod) = (Ns::new("ne"), Ns::new("np"));
    sw.inside(|| {
        let tap = TapDevice::open("t0", "internal").expect("open");
        let index = tap.status().ifindex.unwrap();
        Rtnl::open().unwrap().move_to(index, pod.fd().as_fd()).unwrap();
        until("seen there", || tap.status().ifindex.is_some() && tap.set_admin_up(true).is_ok());
        let seq = tap.change_seq();
        drop(pod);
        until("gone with its namespace", || tap.change_seq() > seq && tap.status().ifindex.is_none());
        assert!(matches!(tap.set_mtu(1400), Err(DeviceError::Gone)));
    });
}
