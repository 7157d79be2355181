use super::*;
use crate::Registry;
use crate::dummy::World;
use fv_packet::hdr::{Arp, eth::ethertype, ipv4, tcp};
use fv_packet::{Batch, Csum};
use std::time::{Duration, Instant};

fn options(pairs: &[(&str, &str)]) -> Options {
    pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

fn world() -> (World, Env, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let env = Env { rundir: dir.path().into() };
    (World::new(Clock::stopped()), env, dir)
}

fn frame(n: usize) -> Packet {
    let f = ipv4::Fields { src: 0x0a000001, dst: 0x0a000002, ..Default::default() };
    Compose::payload_len(n).tcp(&tcp::Fields::default()).ipv4(&f).eth([2; 6], [4; 6])
}

fn send(device: &Dummy, packet: Packet) -> crate::Sent {
    let mut batch = Batch::new();
    batch.push(packet).unwrap();
    device.open_txq(0).unwrap().send(&mut batch)
}

fn recv(queue: &mut Box<dyn RxQueue>) -> Vec<Packet> {
    let mut batch = Batch::new();
    queue.recv(&mut batch).unwrap();
    batch.drain().collect()
}

/// Runs both ends until `done`.
fn until(world: &World, clock: &mut u64, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        *clock += 10;
        world.turn(Nanos::from_ms(*clock));
        assert!(Instant::now() < deadline, "nothing happened");
        std::thread::yield_now();
    }
}

#[test]
fn addresses_count_up_and_names_are_unique() {
    let (world, env, _dir) = world();
    let mut registry = Registry::new();
    world.register(&mut registry);
    assert_eq!(registry.kinds().collect::<Vec<_>>(), ["dummy", "dummy-internal", "dummy-pmd"]);
    let p1 = registry.open("dummy", "p1", &Options::new(), &env).unwrap();
    let p2 = registry.open("dummy-pmd", "p2", &Options::new(), &env).unwrap();
    assert_eq!(p1.status().mac, Some([0xaa, 0x55, 0xaa, 0x55, 0, 0]));
    assert_eq!(p2.status().mac, Some([0xaa, 0x55, 0xaa, 0x55, 0, 1]));
    assert_eq!((p1.polling(), p2.polling()), (Polling::Main, Polling::Poll));
    assert_eq!((p1.numa_id(), p2.numa_id()), (None, Some(0)));
    assert!(matches!(registry.open("dummy", "p1", &Options::new(), &env), Err(DeviceError::Exists(_))));
    assert_eq!(world.devices().len(), 2);
    drop(p1);
    assert!(world.device("p1").is_none());
    assert!(registry.open("dummy", "p1", &Options::new(), &env).is_ok());
}

#[test]
fn options_and_their_report() {
    let (world, env, _dir) = world();
    let d = world.open("p", "dummy-pmd", true, &options(&[("n_rxq", "3"), ("ifindex", "7")]), &env).unwrap();
    assert_eq!(d.status().config_text(), "ifindex=7, n_rxq=3, n_txq=1, numa_id=0");
    let seq = d.change_seq();
    let same = options(&[("n_rxq", "3"), ("ifindex", "7")]);
    assert_eq!(d.set_options(&same).unwrap(), Changed::Nothing);
    assert_eq!(d.change_seq(), seq);
    assert_eq!(d.set_options(&options(&[("n_rxq", "3")])).unwrap(), Changed::Status);
    assert_eq!(d.set_options(&options(&[("n_rxq", "9999"), ("numa_id", "1")])).unwrap(), Changed::Queues);
    assert_eq!((d.n_rxq(), d.numa_id()), (1024, Some(1)));
    assert!(d.change_seq() > seq);
    for (key, value, want) in [
        ("n_rxq", "x", "n_rxq: not a number in range (\"x\")"),
        ("ol_tso_segsz", "65536", "ol_tso_segsz: not a number in range (\"65536\")"),
        ("stream", "foo:1", "stream: unknown connection method (\"foo:1\")"),
        ("stream", "tcp:host:1", "stream: not an IP address and port (\"tcp:host:1\")"),
        ("pstream", "unix:x", "pstream: unknown connection method (\"unix:x\")"),
        ("pstream", "ptcp:99999", "pstream: not a port (\"ptcp:99999\")"),
    ] {
        assert_eq!(d.set_options(&options(&[(key, value)])).unwrap_err().to_string(), want);
    }
    assert_eq!(d.n_rxq(), 1024, "an error changes nothing");
    assert!(d.set_options(&options(&[("pcap", "/nonexistent/x")])).is_err());
}

#[test]
fn injection_and_counters() {
    let (world, env, _dir) = world();
    let d = world.open("p", "dummy-pmd", true, &options(&[("n_rxq", "2")]), &env).unwrap();
    d.receive(1, frame(9)).unwrap();
    assert_eq!(d.n_waiting(), 0, "nobody receives yet");
    let mut rxq = d.open_rxq(1).unwrap();
    assert_eq!(d.receive(2, frame(9)).unwrap_err().to_string(), "bad rx queue id.");
    for _ in 0..150 {
        d.receive(1, frame(6)).unwrap();
    }
    assert_eq!(rxq.len_hint(), Some(100));
    let n: usize = (0..5).map(|_| recv(&mut rxq).len()).sum();
    assert_eq!(n, 100);
    assert_eq!(send(&d, frame(6)).packets, 1);
    let stats = d.stats();
    assert_eq!((stats.rx_packets, stats.rx_bytes), (Some(100), Some(6000)));
    assert_eq!((stats.tx_packets, stats.tx_bytes), (Some(1), Some(60)));
    let names: Vec<_> = stats.custom.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        names.join(" "),
        "rx_custom_packets_1=100 rx_custom_packets_2=100 rx_q0_packets=0 rx_q0_bytes=0 rx_q1_packets=100 \
         rx_q1_bytes=6000 tx_q0_packets=1 tx_q0_bytes=60"
    );
    assert!(d.open_rxq(2).is_err());
}

#[test]
fn frames_must_fit() {
    let (world, env, _dir) = world();
    let d = world.open("p", "dummy", false, &Options::new(), &env).unwrap();
    let of = |len: usize| {
        let mut p = frame(len - 54);
        p.truncate(len);
        p
    };
    let mut tagged = of(1514);
    fv_packet::vlan::push(&mut tagged, fv_packet::hdr::vlan::Tag { tpid: ethertype::VLAN, tci: 1 });
    for (p, want) in [(of(1514), 1), (of(1515), 0), (tagged, 1), (Packet::from_slice(&[0; 13]), 0)] {
        let sent = send(&d, p);
        assert_eq!((sent.packets, sent.dropped), (want, 1 - want));
    }
    d.set_mtu(1501).unwrap();
    assert_eq!(send(&d, of(1515)).packets, 1);
    assert!(d.set_mtu(67).is_err());
}

#[test]
fn arp_for_own_addresses() {
    let (world, env, _dir) = world();
    let d = world.open("p", "dummy-internal", false, &Options::new(), &env).unwrap();
    let mut rxq = d.open_rxq(0).unwrap();
    d.add_ip4(Ipv4Addr::new(10, 0, 0, 1), 24);
    let ask = |tpa| Compose::arp(arp::OP_REQUEST, [6; 6], 0x0a000009, [0; 6], tpa).eth(eth::BROADCAST, [6; 6]);
    send(&d, ask(0x0a000002));
    send(&d, ask(0x0a000001));
    let got = recv(&mut rxq);
    assert_eq!(got.len(), 1);
    let reply = Arp::parse(&got[0].data()[14..]).unwrap();
    let mac = [0xaa, 0x55, 0xaa, 0x55, 0, 0];
    assert_eq!((reply.op(), reply.spa(), reply.tpa()), (arp::OP_REPLY, 0x0a000001, 0x0a000009));
    assert_eq!((reply.sha(), reply.tha()), (mac, [6; 6]));
    let e = eth::Eth::parse(got[0].data()).unwrap();
    assert_eq!((e.dst(), e.src()), ([6; 6], mac));
}

#[test]
fn captures() {
    let (world, env, dir) = world();
    let path = |f: &str| dir.path().join(f).to_str().unwrap().to_string();
    let d = world.open("p", "dummy", false, &options(&[("pcap", &path("both.pcap"))]), &env).unwrap();
    let _rxq = d.open_rxq(0).unwrap();
    d.receive(0, frame(1)).unwrap();
    send(&d, frame(2));
    d.set_options(&options(&[("tx_pcap", &path("tx.pcap")), ("rxq_pcap", &path("rx.pcap"))])).unwrap();
    d.receive(0, frame(3)).unwrap();
    send(&d, frame(4));
    let lengths = |f: &str| {
        let mut reader = pcap::Reader::open(&dir.path().join(f)).unwrap();
        let mut out = Vec::new();
        while let Some((_, p)) = reader.read().unwrap() {
            out.push(p.len());
        }
        out
    };
    assert_eq!((lengths("both.pcap"), lengths("rx.pcap"), lengths("tx.pcap")), (vec![55, 56], vec![57], vec![58]));
    if let Ok(out) = std::process::Command::new("tcpdump").args(["-nr", &path("both.pcap")]).output() {
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}

#[test]
fn streams_carry_packets_both_ways() {
    let (world, env, _dir) = world();
    let mut clock = 1000;
    let client = world.open("c", "dummy", false, &options(&[("stream", "unix:s.sock")]), &env).unwrap();
    let mut client_rx = client.open_rxq(0).unwrap();
    world.turn(Nanos::from_ms(clock));
    assert_eq!(client.conn_state(), ConnState::Disconnected);
    let server = world.open("s", "dummy", false, &options(&[("pstream", "punix:s.sock")]), &env).unwrap();
    let mut server_rx = server.open_rxq(0).unwrap();
    assert_eq!(server.conn_state(), ConnState::Unknown);
    until(&world, &mut clock, || client.conn_state() == ConnState::Connected);
    for n in [1, 1400] {
        send(&client, frame(n));
        until(&world, &mut clock, || server.n_waiting() == 1);
        assert_eq!(recv(&mut server_rx)[0].data(), frame(n).data());
        send(&server, frame(n + 1));
        until(&world, &mut clock, || client.n_waiting() == 1);
        assert_eq!(recv(&mut client_rx)[0].data(), frame(n + 1).data());
    }
    server.remove();
    until(&world, &mut clock, || client.conn_state() == ConnState::Disconnected);
    assert!(!env.rundir.join("s.sock").exists());
}

#[test]
fn streams_over_tcp() {
    let (world, env, _dir) = world();
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = probe.local_addr().unwrap().port();
    drop(probe);
    let listen = format!("ptcp:{port}:127.0.0.1");
    let connect = format!("tcp:127.0.0.1:{port}");
    let server = world.open("s", "dummy", false, &options(&[("pstream", &listen)]), &env).unwrap();
    let client = world.open("c", "dummy", false, &options(&[("stream", &connect)]), &env).unwrap();
    let _server_rx = server.open_rxq(0).unwrap();
    let mut clock = 0;
    until(&world, &mut clock, || client.conn_state() == ConnState::Connected);
    send(&client, frame(9));
    until(&world, &mut clock, || server.n_waiting() == 1);
}

#[test]
fn a_peer_that_breaks_the_framing_is_closed() {
    use std::io::{Read, Write};
    let (world, env, dir) = world();
    let d = world.open("s", "dummy", false, &options(&[("pstream", "punix:s.sock")]), &env).unwrap();
    let mut rxq = d.open_rxq(0).unwrap();
    let mut clock = 0;
    let mut peer = std::os::unix::net::UnixStream::connect(dir.path().join("s.sock")).unwrap();
    // In pieces: a length, half a frame, the rest with a length that is too small.
    peer.write_all(&[0]).unwrap();
    world.turn(Nanos::ZERO);
    peer.write_all(&[60]).unwrap();
    peer.write_all(&frame(6).data()[..20]).unwrap();
    world.turn(Nanos::ZERO);
    peer.write_all(&frame(6).data()[20..]).unwrap();
    until(&world, &mut clock, || d.n_waiting() == 1);
    assert_eq!(recv(&mut rxq)[0].data(), frame(6).data());
    peer.write_all(&[0, 13]).unwrap();
    peer.set_nonblocking(true).unwrap();
    until(&world, &mut clock, || matches!(peer.read(&mut [0; 8]), Ok(0)));
}

#[test]
fn emulated_offloads() {
    let (world, env, _dir) = world();
    let received = |set: &[(&str, &str)], packet: Packet| {
        let d = world.open("p", "dummy", false, &options(set), &env).unwrap();
        let mut rxq = d.open_rxq(0).unwrap();
        d.receive(0, packet).unwrap();
        let p = recv(&mut rxq).pop().unwrap();
        (p.meta().ip_csum, p.meta().csum, p.meta().gso.size)
    };
    assert_eq!(received(&[], frame(9)), (Csum::Unknown, Csum::Unknown, 0));
    let good = [("ol_ip_rx_csum_set_good", "true"), ("ol_l4_rx_csum_set_bad", "true")];
    assert_eq!(received(&good, frame(9)), (Csum::Good, Csum::Bad, 0));
    let partial = [("ol_ip_rx_csum_set_partial", "true"), ("ol_l4_rx_csum_set_partial", "true")];
    assert_eq!(received(&partial, frame(9)), (Csum::Partial, Csum::Partial, 0));
    assert_eq!(received(&[("ol_tso_segsz", "500")], frame(900)), (Csum::Unknown, Csum::Partial, 500));
    assert_eq!(received(&[("ol_tso_segsz", "500")], frame(500)), (Csum::Unknown, Csum::Unknown, 0));

    let transmitted = |set: &[(&str, &str)]| {
        let (world, env, dir) = self::world();
        let path = dir.path().join("t.pcap");
        let mut all = vec![("tx_pcap", path.to_str().unwrap())];
        all.extend_from_slice(set);
        let d = world.open("p", "dummy", false, &options(&all), &env).unwrap();
        let mut p = frame(9);
        assert!(fv_packet::compose::make_partial(&mut p, fv_packet::GsoKind::None, 0));
        let sum = p.data()[50..52].to_vec();
        send(&d, p);
        let got = pcap::Reader::open(&path).unwrap().read().unwrap().unwrap().1;
        (got.data() == frame(9).data(), got.data()[50..52] == sum)
    };
    assert_eq!(transmitted(&[]), (true, false));
    assert_eq!(transmitted(&[("ol_l4_tx_csum", "true")]), (true, false));
    assert_eq!(transmitted(&[("ol_l4_tx_csum_disabled", "true")]), (false, true));
}
