//! Packets whose flow the NIC has recognised.
//!
//! Reads: marks, what they lead to, and of the packets only what the flow's program needs. Writes: statistics,
//! transmit buffers. Next: the flush. Marked and other packets run in the order in which they came.
//! Cost: no parsing and no lookup, where the program is an output and the flow cannot be TCP.

use fv_core::DpPort;
use fv_dpif::{DropReason, Marks};
use fv_flow::key::{eth, ipproto};
use fv_packet::{BATCH_MAX, Batch, Packet};

use super::stats::Stat;
use super::{FRAME_MIN, Worker};
use crate::exec::Shape;
use crate::lookup::{Entry, NONE};
use crate::parse;

/// Packets in a row that marks have led to their flows.
pub struct Run {
    batch: Batch,
    found: [u32; BATCH_MAX],
}

impl Default for Run {
    fn default() -> Run {
        Run { batch: Batch::new(), found: [NONE; BATCH_MAX] }
    }
}

impl Worker {
    /// Whether marks matter for the burst in hand.
    #[inline]
    pub(super) fn has_marks(&self) -> bool {
        self.marks.is_some() && self.scratch.batch.iter().any(|p| p.meta().flow_mark != 0)
    }

    /// The burst in hand, which has come in by `port`, in runs of packets that marks lead to their flows and of
    /// others.
    pub(super) fn process_by_marks(&mut self, q: usize, port: DpPort) {
        let Some(marks) = self.marks.take() else { return };
        if self.all_marked(&marks, port) {
            self.run_marked();
        } else {
            self.process_some(q, port, &marks);
        }
        self.marks = Some(marks);
        self.finish_work(Some(q));
    }

    /// If marks lead all packets of the burst to their flows, makes them the run.
    fn all_marked(&mut self, marks: &Marks, port: DpPort) -> bool {
        let Some(run) = &mut self.run else { return false };
        let n = self.scratch.batch.len();
        let (mut burst, mut good) = ([0; BATCH_MAX], true);
        for (packet, mark) in self.scratch.batch.iter_mut().zip(&mut burst) {
            packet.prefetch();
            good &= packet.len() >= FRAME_MIN;
            let meta = packet.meta_mut();
            meta.in_port = port.0;
            *mark = meta.flow_mark;
            good &= *mark != 0;
        }
        if !good || !self.table.all_marked(marks, &burst[..n], &mut run.found[..n]) {
            return false;
        }
        for packet in self.scratch.batch.iter_mut() {
            // It means nothing to whom the packet may be sent.
            packet.meta_mut().flow_mark = 0;
        }
        std::mem::swap(&mut run.batch, &mut self.scratch.batch);
        true
    }

    #[cold]
    fn process_some(&mut self, q: usize, port: DpPort, marks: &Marks) {
        let mut all = self.scratch.batch.take();
        let mut unknown = [0; BATCH_MAX];
        for mut packet in all.drain() {
            let meta = packet.meta_mut();
            meta.in_port = port.0;
            // It means nothing to whom the packet may be sent.
            let mark = std::mem::take(&mut meta.flow_mark);
            if packet.len() < FRAME_MIN {
                self.env.drop(packet, DropReason::RxInvalidPacket);
                continue;
            }
            let flow = if mark == 0 { None } else { self.table.marked(marks, mark) };
            // Each came out of a batch as large.
            match flow {
                Some(index) => {
                    self.process_unmarked(q, marks, &unknown);
                    if let Some(run) = &mut self.run {
                        run.found[run.batch.len()] = index;
                        let _ = run.batch.push(packet);
                    }
                }
                None => {
                    self.run_marked();
                    unknown[self.scratch.batch.len()] = mark;
                    let _ = self.scratch.batch.push(packet);
                }
            }
        }
        self.process_unmarked(q, marks, &unknown);
        self.run_marked();
    }

    /// As if there were no marks, except that those of packets with flows are remembered.
    fn process_unmarked(&mut self, q: usize, marks: &Marks, unknown: &[u32; BATCH_MAX]) {
        let n = self.scratch.batch.len();
        if n == 0 {
            return;
        }
        self.scratch.parse(self.env.vlan_limit, None);
        self.process(0, Some(q));
        for (i, mark) in unknown[..n].iter().enumerate() {
            let index = self.scratch.found(i);
            if *mark != 0 && index != NONE {
                self.table.remember_mark(marks, *mark, index);
            }
        }
        self.finish_work(Some(q));
    }

    fn run_marked(&mut self) {
        let n = self.run.as_ref().map_or(0, |r| r.batch.len());
        let Some(mut run) = self.run.take_if(|_| n != 0) else { return };
        self.env.stats.add(Stat::MarkHit, n as u64);
        self.pressed |= n == BATCH_MAX;
        let shape = self.table.entry(run.found[0]).map_or(Shape::Actions, |e| e.shape);
        let mut alike = true;
        let mut i = 0;
        while i < n {
            // Packets of one flow are counted at once.
            let index = run.found[i];
            let Some(entry) = self.table.entry(index) else { break };
            let (mut packets, mut bytes, mut flags) = (0, 0, 0);
            while i < n && run.found[i] == index {
                let packet = &mut run.batch[i];
                (packets, bytes) = (packets + 1, bytes + packet.len() as u64);
                let special = !packet.meta().is_ready();
                flags |= look(packet, entry, special, self.env.vlan_limit);
                alike &= !special && entry.shape == shape;
                i += 1;
            }
            entry.flow.count(&entry.slot, packets, bytes, self.env.now, flags);
        }
        if let (true, Shape::Output(port)) = (alike, shape) {
            self.env.output_all(&mut run.batch, port);
        } else {
            for (packet, index) in run.batch.drain().zip(run.found) {
                if let Some(entry) = self.table.entry(index) {
                    self.env.run(packet, entry.shape, &entry.code, 0);
                }
            }
        }
        self.run = Some(run);
    }
}

/// Finds out of a packet what its flow needs, and returns its TCP flags.
#[inline]
fn look(packet: &mut Packet, entry: &Entry, special: bool, vlan_limit: u8) -> u16 {
    if !special && !entry.code.needs_headers {
        if !entry.flow.tcp {
            return 0;
        }
        if let Some(flags) = tcp_flags(packet.data(), vlan_limit) {
            return flags;
        }
    }
    parse::extract(packet, vlan_limit).base.tcp_flags.get()
}

/// TCP flags of a frame without IPv6 extension headers; None: this is not so easily said.
fn tcp_flags(data: &[u8], vlan_limit: u8) -> Option<u16> {
    let u16_at = |at: usize| data.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let mut l3 = 14;
    let mut eth_type = u16_at(12)?;
    if matches!(eth_type, eth::VLAN_8021Q | eth::VLAN_8021AD) && vlan_limit == 1 {
        eth_type = u16_at(16)?;
        l3 = 18;
    }
    let (proto, l4) = match eth_type {
        eth::IP => {
            let header = data.get(l3..l3 + 20)?;
            // A first fragment is for the extraction to judge.
            if header[0] >> 4 != 4 || u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
                return None;
            }
            let (header_len, total) = (usize::from(header[0] & 15) * 4, usize::from(u16_at(l3 + 2)?));
            if header_len < 20 || total < header_len + 20 || l3 + total > data.len() {
                return if header[9] == ipproto::TCP { None } else { Some(0) };
            }
            (header[9], l3 + header_len)
        }
        eth::IPV6 => return None,
        eth::VLAN_8021Q | eth::VLAN_8021AD => return None,
        _ => return Some(0),
    };
    if proto != ipproto::TCP {
        return Some(0);
    }
    // A header that claims to be longer than the packet, or too short, is the extraction's business too.
    let offset = usize::from(*data.get(l4 + 12)? >> 4) * 4;
    (offset == 20).then(|| u16_at(l4 + 12).map(|f| f & 0xfff))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_that_extraction_finds() {
        let tcp = |flags: u8, ihl: u8, frag: u16, len: usize| {
            let mut f = vec![0u8; 14 + len];
            f[12..14].copy_from_slice(&[8, 0]);
            f[14] = 0x40 | ihl;
            f[16..18].copy_from_slice(&(len as u16).to_be_bytes());
            f[20..22].copy_from_slice(&frag.to_be_bytes());
            f[23] = 6;
            let l4 = 14 + usize::from(ihl) * 4;
            if f.len() > l4 + 13 {
                (f[l4 + 12], f[l4 + 13]) = (0x51, flags);
            }
            f
        };
        let mut tagged = tcp(0x12, 5, 0, 60);
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        let mut udp = tcp(0x12, 5, 0, 60);
        udp[23] = 17;
        let mut arp = tcp(2, 5, 0, 60);
        arp[13] = 6;
        let mut found = 0;
        for frame in [
            tcp(0x12, 5, 0, 60),
            tcp(2, 6, 0, 60),
            tcp(2, 5, 1, 60),
            tcp(2, 5, 0x2000, 60),
            tcp(2, 5, 0, 30),
            tagged,
            udp,
            arp,
        ] {
            for n in 0..=frame.len() {
                let expected = parse::extract(&mut Packet::from_slice(&frame[..n]), 1).base.tcp_flags.get();
                if let Some(flags) = tcp_flags(&frame[..n], 1) {
                    assert_eq!(flags, expected, "{:02x?}", &frame[..n]);
                    found += usize::from(flags != 0);
                }
            }
        }
        assert!(found >= 3);
    }
}
