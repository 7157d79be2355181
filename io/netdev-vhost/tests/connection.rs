//! Front ends against a port: any order of messages, absurd ones, rings that stop and go on, connections that come
//! and go.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Instant;

use fv_core::Nanos;
use fv_netdev::{Device, EnabledQueues, Env, Options, Registry, RxQueue, TxQueue};
use fv_packet::{Batch, Packet};
use fv_testkit::vhost::{FrontEnd, GPA, LOG_ALL, PROTOCOL_FEATURES, USER, Waiting, bytes, req};
use fv_testkit::wait_value;

/// Those that count the process's descriptors run alone.
static TESTS: RwLock<()> = RwLock::new(());

/// A port in its own run directory, and the thread that serves it.
struct Rig {
    dir: tempfile::TempDir,
    device: Option<Arc<dyn Device>>,
    enabled: Arc<EnabledQueues>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Rig {
    fn server() -> Rig {
        Rig::new("dpdkvhostuser")
    }

    fn client() -> Rig {
        Rig::new("dpdkvhostuserclient")
    }

    fn new(kind: &str) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let (mut hub, hubs) = fv_netdev_vhost::hub().unwrap();
        let mut registry = Registry::new();
        fv_netdev_vhost::register(&hubs, &mut registry);
        let path = dir.path().join("guest").display().to_string();
        let options = Options::from([("vhost-server-path".to_string(), path)]);
        let env = Env { rundir: dir.path().into() };
        let device = registry.open(kind, "v0", &options, &env).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let s = stop.clone();
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            let now = || Nanos(start.elapsed().as_nanos() as u64);
            while !s.load(Ordering::Relaxed) {
                let next = hub.turn(now());
                let wait = next.map_or(10_000_000, |at| at.saturating_sub(now()).0.min(10_000_000));
                let mut fds = [rustix::event::PollFd::new(&hub, rustix::event::PollFlags::IN)];
                let limit = rustix::event::Timespec { tv_sec: 0, tv_nsec: wait as i64 };
                let _ = rustix::event::poll(&mut fds, Some(&limit));
            }
        });
        let enabled = device.enabled_rxqs().unwrap();
        Rig { dir, device: Some(device), enabled, stop, thread: Some(thread) }
    }

    fn device(&self) -> &dyn Device {
        &**self.device.as_ref().unwrap()
    }

    fn connect(&self, pairs: usize) -> FrontEnd {
        FrontEnd::connect(&self.dir.path().join("v0"), pairs)
    }

    fn rx(&self, q: usize) -> Box<dyn RxQueue> {
        self.device().open_rxq(q).unwrap()
    }

    fn tx(&self, q: usize) -> Box<dyn TxQueue> {
        self.device().open_txq(q).unwrap()
    }

    fn status(&self, key: &str) -> Option<String> {
        self.device().status().driver.get(key).cloned()
    }

    #[track_caller]
    fn wait_enabled(&self, queues: &[usize]) {
        let now = || (0..128).filter(|q| self.enabled.is_enabled(*q)).collect::<Vec<_>>();
        assert!(comes(|| now() == queues), "{:?}, not {queues:?}", now());
    }

    #[track_caller]
    fn wait_status(&self, value: &str) {
        assert!(comes(|| self.status("status").as_deref() == Some(value)), "never {value}");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.device = None;
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

/// Whether it comes true in time.
fn comes(mut f: impl FnMut() -> bool) -> bool {
    wait_value(20, || f().then_some(())).is_some()
}

fn frame(n: u8) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    f.extend([n; 60]);
    f
}

/// Frames that have come in one look.
fn recv(rx: &mut dyn RxQueue) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    rx.recv(&mut batch).unwrap();
    batch.iter().map(|p| p.data().to_vec()).collect()
}

fn send(tx: &mut dyn TxQueue, n: u8) -> u32 {
    let mut batch = Batch::new();
    batch.push(Packet::from_slice(&frame(n))).unwrap();
    tx.send(&mut batch).packets
}

/// Frames go both ways on queue `q`.
#[track_caller]
fn carries(rig: &Rig, f: &mut FrontEnd, q: usize, n: u8) {
    let (mut rx, mut tx) = (rig.rx(q), rig.tx(q));
    f.fill(q);
    assert!(f.transmit(q, &frame(n)));
    let got = wait_value(20, || Some(recv(&mut *rx)).filter(|got| !got.is_empty()));
    assert_eq!(got, Some(vec![frame(n)]));
    assert_eq!(send(&mut *tx, n + 100), 1);
    assert_eq!(f.wait_frame(q), frame(n + 100));
}

#[test]
fn both_ways_of_connecting_carry_frames() {
    let _shared = TESTS.read().unwrap_or_else(PoisonError::into_inner);
    let rig = Rig::server();
    assert_eq!(
        (rig.status("status").as_deref(), rig.status("mode").as_deref()),
        (Some("disconnected"), Some("server"))
    );
    let mut f = rig.connect(2);
    f.set_up(|_| true);
    rig.wait_enabled(&[0, 1]);
    carries(&rig, &mut f, 0, 1);
    carries(&rig, &mut f, 1, 2);
    assert_eq!(rig.device().n_rxq(), 2);
    let s = rig.device().status();
    assert!(s.link_up && s.driver["num_of_vrings"] == "4" && s.driver["vring_3_size"] == "64", "{:?}", s.driver);
    assert_eq!(rig.device().stats().rx_packets, Some(2));
    drop(f);
    rig.wait_status("disconnected");
    rig.wait_enabled(&[]);
    assert!(!rig.device().status().link_up);
    assert!(comes(|| rig.device().n_rxq() == 1), "queues of a guest that is gone");

    let rig = Rig::client();
    let waiting = Waiting::at(&rig.dir.path().join("guest"));
    for n in 0..3 {
        let mut f = waiting.accept(1);
        f.set_up(|_| true);
        rig.wait_enabled(&[0]);
        carries(&rig, &mut f, 0, n);
        // Off and on without any other message.
        f.enable(1, false);
        rig.wait_enabled(&[]);
        f.enable(1, true);
        rig.wait_enabled(&[0]);
        carries(&rig, &mut f, 0, n + 50);
    }
    assert_eq!(rig.status("mode").as_deref(), Some("client"));
}

// UP-59: any legal order, and no ring runs before all is there.
#[test]
fn messages_in_any_order() {
    let _shared = TESTS.read().unwrap_or_else(PoisonError::into_inner);
    type Step = (&'static str, fn(&mut FrontEnd));
    let steps: [Step; 6] = [
        ("enable", |f| f.enable(1, true)),
        ("kick", |f| f.kick_ring(1)),
        ("base", |f| f.words(req::SET_VRING_BASE, &[1, 0])),
        ("address", |f| f.place_ring(1, 0)),
        ("size", |f| f.words(req::SET_VRING_NUM, &[1, 64])),
        ("memory", |f| f.share_memory()),
    ];
    let rig = Rig::server();
    // Each order that begins with another step, forwards and backwards.
    for shift in 0..12 {
        let mut order = steps;
        order.rotate_left(shift % 6);
        if shift >= 6 {
            order.reverse();
        }
        let mut f = rig.connect(1);
        f.negotiate();
        for (n, (name, step)) in order.iter().enumerate() {
            step(&mut f);
            f.ask_u64(req::GET_FEATURES);
            let names: Vec<_> = order[..=n].iter().map(|s| s.0).collect();
            let all = names.len() == 6 || names.len() == 5 && !names.contains(&"base");
            assert_eq!(rig.enabled.count() == 1, all, "{name} of {names:?}");
        }
        assert!(f.transmit(0, &frame(7)));
        assert_eq!(recv(&mut *rig.rx(0)), [frame(7)]);
        drop(f);
        rig.wait_status("disconnected");
    }
    // Without protocol features nobody enables anything.
    let mut f = rig.connect(1);
    f.features &= !PROTOCOL_FEATURES;
    f.send(req::SET_OWNER, &[], &[]);
    f.send(req::SET_FEATURES, &f.features.to_ne_bytes(), &[]);
    f.share_memory();
    f.set_up_ring(0);
    f.set_up_ring(1);
    rig.wait_enabled(&[0]);
    carries(&rig, &mut f, 0, 9);
}

#[test]
fn a_ring_stops_where_it_is_and_goes_on_there() {
    let _shared = TESTS.read().unwrap_or_else(PoisonError::into_inner);
    let rig = Rig::server();
    let mut f = rig.connect(1);
    f.set_up(|_| true);
    rig.wait_enabled(&[0]);
    let mut rx = rig.rx(0);
    for round in 1..4u8 {
        (0..5).for_each(|n| assert!(f.transmit(0, &frame(n))));
        assert_eq!(recv(&mut *rx).len(), 5);
        assert!(f.transmit(0, &frame(9)));
        assert_eq!(f.stop(1), u32::from(round) * 6 - 1, "what nobody has taken is not counted");
        assert_eq!((recv(&mut *rx).len(), rig.enabled.count()), (0, 0));
        f.words(req::SET_VRING_BASE, &[1, u32::from(round) * 6 - 1]);
        f.kick_ring(1);
        rig.wait_enabled(&[0]);
        assert_eq!(recv(&mut *rx), [frame(9)]);
    }
    // A running ring follows its memory and its place.
    f.share_memory();
    f.place_ring(1, 0);
    f.send(req::SET_VRING_CALL, &0x101u64.to_ne_bytes(), &[]);
    f.ask_u64(req::GET_FEATURES);
    assert!(f.transmit(0, &frame(1)));
    assert_eq!(recv(&mut *rx), [frame(1)]);
    // Regions one by one.
    let add = |f: &mut FrontEnd, fd: bool| {
        let (payload, memory) = ([&[0; 8][..], &f.region()].concat(), f.memory.try_clone().unwrap());
        if fd {
            f.try_request(req::ADD_MEM_REG, &payload, &[memory.as_fd()])
        } else {
            f.try_request(req::REM_MEM_REG, &payload, &[])
        }
    };
    assert!(!add(&mut f, true), "it is there");
    assert!(add(&mut f, false));
    assert_eq!(rig.enabled.count(), 0);
    assert!(!add(&mut f, false) && add(&mut f, true));
    rig.wait_enabled(&[0]);
    assert!(f.transmit(0, &frame(2)));
    assert_eq!(recv(&mut *rx), [frame(2)]);
    // A reset takes everything away but the connection.
    f.send(req::RESET_DEVICE, &[], &[]);
    f.ask_u64(req::GET_FEATURES);
    assert_eq!(rig.enabled.count(), 0);
    f.restart();
    f.set_up_ring(1);
    f.enable(1, true);
    rig.wait_enabled(&[0]);
    assert!(f.transmit(0, &frame(3)));
    assert_eq!(recv(&mut *rx), [frame(3)]);
}

#[test]
fn questions_are_answered() {
    let _shared = TESTS.read().unwrap_or_else(PoisonError::into_inner);
    let rig = Rig::server();
    let mut f = rig.connect(1);
    f.negotiate();
    assert_eq!(f.ask_u64(req::GET_QUEUE_NUM), 128);
    assert_eq!(f.ask_u64(req::GET_MAX_MEM_SLOTS), 64);
    f.send(req::SET_STATUS, &7u64.to_ne_bytes(), &[]);
    assert_eq!(f.ask_u64(req::GET_STATUS), 7);
    assert!(f.try_request(req::NET_SET_MTU, &9000u64.to_ne_bytes(), &[]));
    assert!(!f.try_request(req::NET_SET_MTU, &7u64.to_ne_bytes(), &[]));
    assert_eq!(rig.status("mtu").as_deref(), Some("9000"));
    let space = f.ask(req::GET_CONFIG, &[bytes(&[0, 12, 0]), vec![0; 12]].concat());
    assert_eq!(space[12..18], rig.device().status().mac.unwrap());
    assert_eq!(space[22..24], 9000u16.to_le_bytes());
    assert_eq!(f.ask(req::GET_CONFIG, &[bytes(&[20, 12, 0]), vec![0; 12]].concat()), [0; 0], "beyond the end");
    // The in-flight area, there and back.
    let spec = |queues: u16, size: u16| [&[0; 16][..], &queues.to_ne_bytes(), &size.to_ne_bytes(), &[0; 4]].concat();
    for _ in 0..50 {
        f.send(req::GET_INFLIGHT_FD, &spec(2, 64), &[]);
        let (area, fd) = f.reply().unwrap();
        let fd = fd.expect("a file");
        assert!(rustix::fs::fstat(&fd).unwrap().st_size as u64 == u64::from_ne_bytes(area[..8].try_into().unwrap()));
        assert!(f.try_request(req::SET_INFLIGHT_FD, &area, &[fd.as_fd()]));
        // More queues than the area has.
        let lie = [&area[..16], &9u16.to_ne_bytes(), &area[18..]].concat();
        assert!(!f.try_request(req::SET_INFLIGHT_FD, &lie, &[fd.as_fd()]));
    }
    // A guest that has migrated here is announced.
    f.share_memory();
    f.set_up_ring(1);
    f.enable(1, true);
    rig.wait_enabled(&[0]);
    let mac = [2, 0, 0, 0, 9, 9, 0, 0];
    f.send(req::SEND_RARP, &mac, &[]);
    let rarp = wait_value(20, || recv(&mut *rig.rx(0)).pop()).expect("an announcement");
    assert_eq!((&rarp[..6], &rarp[6..12], &rarp[12..14]), (&[0xff; 6][..], &mac[..6], &[0x80, 0x35][..]));
}

#[test]
fn writes_are_logged_while_a_guest_moves_away() {
    let _shared = TESTS.read().unwrap_or_else(PoisonError::into_inner);
    let rig = Rig::server();
    let mut f = rig.connect(1);
    f.set_up(|_| true);
    rig.wait_enabled(&[0]);
    f.fill(0);
    let log = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&log, 4096).unwrap();
    let logged = || {
        let mut bits = [0; 4096];
        rustix::io::pread(&log, &mut bits, 0).unwrap();
        bits.iter().map(|b| b.count_ones()).sum::<u32>()
    };
    let mut tx = rig.tx(0);
    assert_eq!(send(&mut *tx, 1), 1);
    assert_eq!(logged(), 0);
    f.send(req::SET_LOG_BASE, &[4096u64.to_ne_bytes(), [0; 8]].concat(), &[log.as_fd()]);
    assert_eq!(f.reply().unwrap().0, [0; 0]);
    f.send(req::SET_FEATURES, &(f.features | LOG_ALL).to_ne_bytes(), &[]);
    f.place_ring(0, 1);
    f.ask_u64(req::GET_FEATURES);
    assert_eq!(send(&mut *tx, 2), 1);
    // The buffer's page, and the used ring's.
    assert_eq!(logged(), 2);
    assert_eq!((f.wait_frame(0), f.wait_frame(0)), (frame(1), frame(2)));
    // An area that wraps, and one that the file does not have.
    assert!(!f.try_request(req::SET_LOG_BASE, &[u64::MAX, 4096].map(u64::to_ne_bytes).concat(), &[log.as_fd()]));
    assert!(!f.try_request(req::SET_LOG_BASE, &[8192u64, 0].map(u64::to_ne_bytes).concat(), &[log.as_fd()]));
    assert_eq!(send(&mut *tx, 3), 1, "the old log is still there");
}

fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

// Each of these ends its connection, with a reason, and costs no descriptor; the next connection is as good as any.
#[test]
fn absurd_messages_end_their_connection() {
    let _alone = TESTS.write().unwrap_or_else(PoisonError::into_inner);
    type Bad = (&'static str, fn(&mut FrontEnd));
    const BAD: &[Bad] = &[
        ("unknown request", |f| f.send(77, &[], &[])),
        ("unknown version", |f| f.send_flags(1, 2, &[], &[]).unwrap()),
        ("a reply where a request is due", |f| f.send_flags(1, 5, &[], &[]).unwrap()),
        ("payload too long", |f| f.send(req::SET_MEM_TABLE, &[0; 600], &[])),
        ("wrong payload size", |f| f.words(req::SET_VRING_NUM, &[1])),
        ("wrong number of descriptors", |f| f.send(req::SET_OWNER, &[], &[f.memory.as_fd()])),
        ("wrong number of descriptors", |f| f.send(req::SET_MEM_TABLE, &f.memory_table(), &[])),
        ("wrong number of descriptors", |f| f.send(req::SET_OWNER, &[], &[f.memory.as_fd(); 60])),
        ("ring number out of range", |f| f.words(req::SET_VRING_NUM, &[256, 64])),
        ("ring number out of range", |f| f.words(req::SET_VRING_ENABLE, &[0x1_0000, 1])),
        ("ring number out of range", |f| f.words(req::GET_VRING_BASE, &[u32::MAX, 0])),
        ("ring size out of range", |f| f.words(req::SET_VRING_NUM, &[1, 0])),
        ("ring size out of range", |f| f.words(req::SET_VRING_NUM, &[1, 65536])),
        ("ring index out of range", |f| f.words(req::SET_VRING_BASE, &[1, 65536])),
        ("ring 1: bad ring layout", |f| f.words(req::SET_VRING_NUM, &[1, 3])),
        ("value out of range", |f| f.words(req::SET_VRING_ENABLE, &[1, 9])),
        ("features that were not offered", |f| f.send(req::SET_FEATURES, &(1u64 << 60).to_ne_bytes(), &[])),
        ("the file ends before the region does", |f| {
            let region = [GPA, 1 << 40, USER, 0].map(u64::to_ne_bytes).concat();
            f.send(req::SET_MEM_TABLE, &[bytes(&[1, 0]), region].concat(), &[f.memory.as_fd()]);
        }),
        ("wraps around", |f| {
            let region = [u64::MAX, 4096, USER, 0].map(u64::to_ne_bytes).concat();
            f.send(req::SET_MEM_TABLE, &[bytes(&[1, 0]), region].concat(), &[f.memory.as_fd()]);
        }),
        ("overlaps another", |f| {
            let two = [&bytes(&[2, 0])[..], &f.region(), &f.region()].concat();
            f.send(req::SET_MEM_TABLE, &two, &[f.memory.as_fd(), f.memory.as_fd()]);
        }),
        ("in-flight area is too small or too large", |f| {
            f.send(req::GET_INFLIGHT_FD, &[&[0; 16][..], &[0xff; 8]].concat(), &[]);
        }),
    ];
    let rig = Rig::server();
    let mut before = 0;
    for (n, (reason, bad)) in BAD.iter().chain(BAD).enumerate() {
        {
            let mut f = rig.connect(1);
            f.set_up(|_| true);
            rig.wait_enabled(&[0]);
            carries(&rig, &mut f, 0, n as u8);
            bad(&mut f);
            assert!(f.is_closed(), "{reason}");
        }
        rig.wait_status("disconnected");
        let error = rig.status("error").unwrap_or_default();
        assert!(error.contains(reason), "{error}, not {reason}");
        rig.wait_enabled(&[]);
        match n + 1 == BAD.len() {
            true => before = open_fds(),
            false if n + 1 == 2 * BAD.len() => assert!(open_fds() <= before + 2, "{} open, not {before}", open_fds()),
            false => {}
        }
    }
    let stats = rig.device().stats();
    assert!(stats.custom.contains(&("vhost_bad_messages".into(), 2 * BAD.len() as u64)), "{:?}", stats.custom);
}

#[test]
fn a_bad_ring_rests_and_the_others_go_on() {
    let _shared = TESTS.read().unwrap_or_else(PoisonError::into_inner);
    let rig = Rig::server();
    let mut f = rig.connect(2);
    f.set_up(|_| true);
    rig.wait_enabled(&[0, 1]);
    f.jump(1, 40_000);
    let mut rx = rig.rx(0);
    assert!(comes(|| recv(&mut *rx).is_empty() && !rig.enabled.is_enabled(0)));
    rig.wait_enabled(&[1]);
    assert_eq!(rig.status("error").as_deref(), Some("ring 1: available index out of range"));
    carries(&rig, &mut f, 1, 3);
    assert_eq!(rig.status("status").as_deref(), Some("connected"));
}

// UP-51, UP-56: connections that come, work and are cut, while workers poll.
#[test]
fn many_connections_leave_nothing_behind() {
    let _alone = TESTS.write().unwrap_or_else(PoisonError::into_inner);
    let cycles = std::env::var("FERROVIA_VHOST_CYCLES").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    let rig = Rig::server();
    let over = AtomicBool::new(false);
    let rss = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4
    };
    std::thread::scope(|scope| {
        let (mut rx, mut tx) = (rig.rx(0), rig.tx(0));
        let over = &over;
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                recv(&mut *rx);
                send(&mut *tx, 1);
            }
        });
        let mut first = (0, 0);
        for n in 0..cycles {
            {
                let mut f = rig.connect(1 + n % 4);
                f.set_up(|q| q % 2 == 0);
                f.fill(0);
                f.transmit(0, &frame(1));
                if n % 3 == 0 {
                    f.wait_frame(0);
                }
            }
            if n == cycles / 3 {
                rig.wait_status("disconnected");
                first = (open_fds(), rss());
            }
        }
        rig.wait_status("disconnected");
        assert!(open_fds() <= first.0 + 2, "{} open descriptors, not {}", open_fds(), first.0);
        assert!(rss() < first.1 + 16_384, "{} KiB resident, not {}", rss(), first.1);
        over.store(true, Ordering::Relaxed);
    });
}
