//! Packet to key, and the hash of the key.

use fv_datapath::inner::{Level, Probe};
use fv_flow::extract::{Extra, extract_into};
use fv_packet::Packet;

use crate::common::udp;
use crate::measure::{Case, Run, result};

const PACKETS: usize = 256;
const PASSES: usize = 16;

fn tagged(mut f: Vec<u8>) -> Vec<u8> {
    f.splice(12..12, [0x81, 0, 0, 5]);
    f
}

fn udp6() -> Vec<u8> {
    let mut f = vec![2; 12];
    f.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 26, 17, 64]);
    f.extend([0x20; 32]);
    f.extend([0x10, 0, 0x20, 0, 0, 26, 0, 0]);
    f.resize(80, 0);
    f
}

fn arp() -> Vec<u8> {
    let mut f = vec![0xff; 12];
    f.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    f.resize(60, 1);
    f
}

/// At the level of this processor, as in lookups.
fn hash(probe: &Probe) -> u64 {
    probe.hash_now(Level::best())
}

fn parsed(name: &str, frame: Vec<u8>, hashed: bool) -> Case {
    let mut packets: Vec<Packet> = (0..PACKETS).map(|_| Packet::from_slice(&frame)).collect();
    let mut probes = vec![Probe::default(); 32];
    Case::new(name, None, move || {
        for _ in 0..PASSES {
            for burst in packets.chunks_mut(32) {
                for (packet, probe) in burst.iter_mut().zip(&mut probes) {
                    probe.blocks = extract_into(packet, &Extra::default(), &mut probe.key, probe.blocks);
                    if hashed {
                        std::hint::black_box(hash(probe));
                    }
                }
                std::hint::black_box(&mut probes);
            }
        }
        PACKETS * PASSES
    })
}

pub fn run(run: &Run) {
    let cases = vec![
        parsed("udp4", udp(1, 1), false),
        parsed("udp4 and hash", udp(1, 1), true),
        parsed("udp4 tagged", tagged(udp(1, 1)), false),
        parsed("udp6", udp6(), false),
        parsed("udp6 and hash", udp6(), true),
        parsed("arp", arp(), false),
    ];
    result(&run.measure(cases), &[]);
}
