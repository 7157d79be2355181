#![allow(unsafe_code)]
//! Moves frames between two kernel devices as `forward` does, through packet rings: whether they
//! would serve the switch better than recvmmsg and sendmmsg. Beside them stands the switch's own way.
//!
//! `rings HOW DEV0 DEV1 [--spin US]`, HOW one of
//! - `mmsg`: the switch's own kernel ports;
//! - `v2`: a TPACKET_V2 ring of slots that hold any frame, sent out of the ring: no copy of ours,
//!   which the switch, whose packets own their bytes, could not do;
//! - `v2copy`: the same with a copy into a buffer, as the switch would;
//! - `v2small`: slots of 2 KiB, larger frames by recv;
//! - `v2tx`: `v2`, and sent by a copy into a TPACKET_V2 ring of the other device;
//! - `v3`: a TPACKET_V3 ring, whose blocks are handed over when full or after a millisecond.

use std::io;
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fv_netdev::{Device, RxQueue, SystemDevice, TxQueue};
use fv_packet::Batch;
use libc::{c_int, c_void, iovec, mmsghdr, tpacket_req, tpacket_req3, tpacket2_hdr, tpacket3_hdr};

const SOL_PACKET: c_int = 263;
const BURST: usize = 32;
const VNET: usize = 10;
/// A slot for any frame.
const LARGE: usize = 68 << 10;
const SMALL: usize = 2 << 10;
const BLOCK: usize = 1 << 20;
/// Bytes of one ring.
const RING: usize = 16 << 20;
/// Where a frame begins in a slot for transmission.
const TX_AT: usize = size_of::<tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);

fn check(what: &str, r: isize) -> usize {
    usize::try_from(r).unwrap_or_else(|_| panic!("{what}: {}", io::Error::last_os_error()))
}

fn set<T>(fd: c_int, level: c_int, option: c_int, value: T) {
    // SAFETY: pointer and length describe `value`.
    let r = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), size_of::<T>() as u32) };
    check(&format!("option {option}"), r as isize);
}

/// A packet socket whose rings are mapped one behind the other.
struct Socket {
    fd: c_int,
    rx: *mut u8,
    tx: *mut u8,
    /// Bytes of a slot of either ring.
    slot: usize,
    rx_at: usize,
    tx_at: usize,
}

impl Socket {
    fn open(dev: &str, how: &str) -> Socket {
        // SAFETY: no pointers.
        let fd = check("socket", unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) } as isize) as c_int;
        let v3 = how == "v3";
        let slot = if how == "v2small" { SMALL } else { LARGE };
        let tx = how == "v2tx";
        set(fd, SOL_PACKET, libc::PACKET_VERSION, if v3 { 2 } else { 1 });
        set(fd, SOL_PACKET, libc::PACKET_VNET_HDR, 1);
        set(fd, SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        set(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 8 << 20);
        set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 8 << 20);
        if how == "v2small" {
            set(fd, SOL_PACKET, libc::PACKET_COPY_THRESH, SMALL as c_int);
        }
        let frames = RING / BLOCK * (BLOCK / slot);
        let ring = tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: (RING / BLOCK) as u32,
            tp_frame_size: slot as u32,
            tp_frame_nr: frames as u32,
        };
        if v3 {
            set(
                fd,
                SOL_PACKET,
                libc::PACKET_RX_RING,
                tpacket_req3 {
                    tp_block_size: BLOCK as u32,
                    tp_block_nr: (RING / BLOCK) as u32,
                    tp_frame_size: SMALL as u32,
                    tp_frame_nr: (RING / SMALL) as u32,
                    tp_retire_blk_tov: 1,
                    tp_sizeof_priv: 0,
                    tp_feature_req_word: 0,
                },
            );
        } else {
            set(fd, SOL_PACKET, libc::PACKET_RX_RING, ring);
        }
        if tx {
            set(fd, SOL_PACKET, libc::PACKET_TX_RING, ring);
        }
        let bytes = if tx { 2 * RING } else { RING };
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(null_mut(), bytes, prot, flags, fd, 0) };
        assert!(at != libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
        let name = std::ffi::CString::new(dev).expect("name");
        // SAFETY: all-zero bytes are a valid sockaddr_ll; the name is a C string.
        let (mut ll, index) = unsafe { (zeroed::<libc::sockaddr_ll>(), libc::if_nametoindex(name.as_ptr())) };
        ll.sll_family = libc::AF_PACKET as u16;
        ll.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        ll.sll_ifindex = index as c_int;
        let promiscuous = libc::packet_mreq {
            mr_ifindex: index as c_int,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set(fd, SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, promiscuous);
        // SAFETY: pointer and length describe `ll`.
        check("bind", unsafe { libc::bind(fd, (&raw const ll).cast(), size_of_val(&ll) as u32) } as isize);
        let rx = at.cast::<u8>();
        Socket { fd, rx, tx: rx.wrapping_add(RING), slot, rx_at: 0, tx_at: 0 }
    }

    fn slot_at(&self, ring: *mut u8, i: usize) -> *mut u8 {
        let per_block = BLOCK / self.slot;
        ring.wrapping_add(i / per_block * BLOCK + i % per_block * self.slot)
    }

    fn slots(&self) -> usize {
        RING / BLOCK * (BLOCK / self.slot)
    }
}

/// A slot's status word.
fn status<'a>(slot: *mut u8) -> &'a AtomicU32 {
    // SAFETY: every slot begins with its status, which both sides only access whole.
    unsafe { AtomicU32::from_ptr(slot.cast()) }
}

/// A frame with its vnet header in front.
type Piece = iovec;

fn transmit(fd: c_int, pieces: &mut [Piece]) {
    // SAFETY: all-zero bytes are valid mmsghdrs.
    let mut msgs: [mmsghdr; BURST] = unsafe { zeroed() };
    for (m, p) in msgs.iter_mut().zip(pieces.iter_mut()) {
        m.msg_hdr.msg_iov = p;
        m.msg_hdr.msg_iovlen = 1;
    }
    let mut sent = 0;
    while sent < pieces.len() {
        // SAFETY: the vectors point to frames that nobody changes before the call returns.
        let r = unsafe { libc::sendmmsg(fd, &raw mut msgs[sent], (pieces.len() - sent) as u32, 0) };
        sent += usize::try_from(r).unwrap_or(0).max(1);
    }
}

fn transmit_by_ring(s: &mut Socket, pieces: &[Piece]) {
    for p in pieces {
        let slot = s.slot_at(s.tx, s.tx_at);
        let mut tries = 0;
        while status(slot).load(Ordering::Acquire) & (libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING) != 0 {
            // SAFETY: sends what is in the ring.
            unsafe { libc::send(s.fd, null(), 0, libc::MSG_DONTWAIT) };
            tries += 1;
            if tries > 100 {
                return;
            }
        }
        let len = p.iov_len.min(s.slot - TX_AT);
        // SAFETY: the slot is ours; the piece is a frame of that length in the receive ring.
        unsafe {
            std::ptr::copy_nonoverlapping(p.iov_base.cast::<u8>(), slot.add(TX_AT), len);
            (*slot.cast::<tpacket2_hdr>()).tp_len = len as u32;
        }
        status(slot).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        s.tx_at = (s.tx_at + 1) % s.slots();
    }
    // SAFETY: sends what is in the ring.
    unsafe { libc::send(s.fd, null(), 0, libc::MSG_DONTWAIT) };
}

/// Moves what `from` has to `to`, one burst.
fn move_v2(from: &mut Socket, to: &mut Socket, how: &str, spare: &mut [Vec<u8>]) -> usize {
    let mut pieces = [iovec { iov_base: null_mut(), iov_len: 0 }; BURST];
    let mut n = 0;
    let first = from.rx_at;
    while n < BURST {
        let slot = from.slot_at(from.rx, from.rx_at);
        let s = status(slot).load(Ordering::Acquire);
        if s & libc::TP_STATUS_USER == 0 {
            break;
        }
        // SAFETY: the slot is ours until its status is set back.
        let h = unsafe { slot.cast::<tpacket2_hdr>().read() };
        let mut at = slot.wrapping_add(usize::from(h.tp_mac) - VNET);
        let mut len = h.tp_snaplen as usize + VNET;
        if s & libc::TP_STATUS_COPY != 0 {
            at = spare[n].as_mut_ptr();
            // SAFETY: pointer and length describe the buffer.
            let r = unsafe { libc::recv(from.fd, at.cast(), spare[n].len(), libc::MSG_DONTWAIT) };
            len = usize::try_from(r).unwrap_or(0);
        } else if how == "v2copy" || how == "v2small" {
            // SAFETY: the frame is within its slot, and the buffer holds any frame.
            unsafe { std::ptr::copy_nonoverlapping(at, spare[n].as_mut_ptr(), len) };
            at = spare[n].as_mut_ptr();
            status(slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        pieces[n] = iovec { iov_base: at.cast::<c_void>(), iov_len: len };
        n += 1;
        from.rx_at = (from.rx_at + 1) % from.slots();
    }
    if n > 0 {
        if how == "v2tx" {
            transmit_by_ring(to, &pieces[..n])
        } else {
            transmit(to.fd, &mut pieces[..n])
        }
        for i in 0..n {
            status(from.slot_at(from.rx, (first + i) % from.slots())).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
    }
    n
}

/// Moves a block that `from` has to `to`.
fn move_v3(from: &mut Socket, to: &mut Socket) -> usize {
    let block = from.rx.wrapping_add(from.rx_at * BLOCK).cast::<libc::tpacket_block_desc>();
    // SAFETY: the block's status is accessed whole by both sides; the rest is ours once it says so.
    let (state, n, mut at) = unsafe {
        let h = &raw mut (*block).hdr.bh1;
        let state = AtomicU32::from_ptr(&raw mut (*h).block_status);
        if state.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return 0;
        }
        (state, (*h).num_pkts as usize, block.cast::<u8>().add((*h).offset_to_first_pkt as usize))
    };
    let mut pieces = Vec::with_capacity(n);
    for _ in 0..n {
        // SAFETY: the kernel says where its frames are.
        let h = unsafe { at.cast::<tpacket3_hdr>().read() };
        pieces.push(iovec {
            iov_base: at.wrapping_add(usize::from(h.tp_mac) - VNET).cast(),
            iov_len: h.tp_snaplen as usize + VNET,
        });
        at = at.wrapping_add(h.tp_next_offset as usize);
    }
    pieces.chunks_mut(BURST).for_each(|c| transmit(to.fd, c));
    state.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    from.rx_at = (from.rx_at + 1) % (RING / BLOCK);
    n
}

/// Calls `round` for ever; sleeps when it has found nothing for a while.
fn run(spin: Duration, fds: [c_int; 2], mut round: impl FnMut() -> usize) -> ! {
    let mut last = Instant::now();
    loop {
        if round() > 0 {
            last = Instant::now();
        } else if spin.is_zero() || last.elapsed() >= spin {
            let mut p = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
            // SAFETY: pointer and length describe `p`.
            unsafe { libc::poll(p.as_mut_ptr(), 2, -1) };
        } else {
            std::thread::yield_now();
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let spin_us = args.iter().position(|a| a == "--spin").and_then(|i| args.get(i + 1)?.parse().ok()).unwrap_or(0);
    let spin = Duration::from_micros(spin_us);
    let [how, dev0, dev1, ..] = args.as_slice() else {
        eprintln!("usage: rings mmsg|v2|v2copy|v2small|v2tx|v3 DEV0 DEV1 [--spin US]");
        std::process::exit(2);
    };
    if how == "mmsg" {
        let devices = [dev0, dev1].map(|d| SystemDevice::open(d).expect("device"));
        let mut rx: [Box<dyn RxQueue>; 2] = devices.each_ref().map(|d| d.open_rxq(0).expect("queue"));
        let mut tx: [Box<dyn TxQueue>; 2] = devices.each_ref().map(|d| d.open_txq(0).expect("queue"));
        let fds = rx.each_ref().map(|q| std::os::fd::AsRawFd::as_raw_fd(&q.fd().expect("descriptor")));
        let mut batch = Batch::new();
        run(spin, fds, || {
            (0..2)
                .map(|i| {
                    let n = rx[i].recv(&mut batch).unwrap_or(0);
                    if n > 0 {
                        tx[1 - i].send(&mut batch);
                    }
                    n
                })
                .sum()
        });
    }
    let (mut a, mut b) = (Socket::open(dev0, how), Socket::open(dev1, how));
    let mut spare = vec![vec![0u8; LARGE]; BURST];
    run(spin, [a.fd, b.fd], || match how.as_str() {
        "v3" => move_v3(&mut a, &mut b) + move_v3(&mut b, &mut a),
        how => move_v2(&mut a, &mut b, how, &mut spare) + move_v2(&mut b, &mut a, how, &mut spare),
    })
}
