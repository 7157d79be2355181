//! Packets that wait for a neighbour's answer, and the questions.
//!
//! The first packets over a cold tunnel are kept, a few a neighbour and a port, and sent when it answers. What is
//! kept is the packet as it came; when the answer is there it is translated again, and of the program only what
//! goes through that neighbour is run: everything else was done at once.

use std::collections::VecDeque;
use std::net::IpAddr;

use fv_core::{DpPort, Nanos, OfPort};
use fv_dpif::{DpAction, DropReason, Program};
use fv_flow::DpKey;
use fv_packet::Packet;
use fv_tunnel::Resolved;
use fv_xlate::{AskNeighbour, Effect, Output};
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::slowpath::Slowpath;

/// Packets that wait for one neighbour.
const PER_NEIGHBOUR: usize = 16;
/// Packets from one port that wait for any.
const PER_PORT: usize = 128;
/// All that wait.
const TOTAL: usize = 1024;
/// How long a packet waits.
const PATIENCE: Nanos = Nanos::from_secs(3);

struct Waiting {
    packet: Packet,
    key: DpKey,
    since: Nanos,
}

#[derive(Default)]
struct State {
    by_neighbour: HashMap<(String, IpAddr), VecDeque<Waiting>>,
    by_port: HashMap<u32, usize>,
    total: usize,
}

/// The packets that wait. Short locks, and only where a neighbour is unknown.
#[derive(Default)]
pub struct Held(Mutex<State>);

impl Held {
    /// Takes a copy of the packet, if there is room.
    fn push(&self, place: (String, IpAddr), packet: &Packet, key: &DpKey, now: Nanos) -> bool {
        let mut s = self.0.lock();
        let port = key.base.in_port;
        let full = s.total >= TOTAL
            || s.by_port.get(&port).is_some_and(|n| *n >= PER_PORT)
            || s.by_neighbour.get(&place).is_some_and(|q| q.len() >= PER_NEIGHBOUR);
        if full {
            return false;
        }
        let waiting = Waiting { packet: packet.duplicate(), key: *key, since: now };
        s.by_neighbour.entry(place).or_default().push_back(waiting);
        *s.by_port.entry(port).or_default() += 1;
        s.total += 1;
        crate::HELD.inc();
        true
    }

    fn take(&self, place: &(String, IpAddr)) -> VecDeque<Waiting> {
        let mut s = self.0.lock();
        let list = s.by_neighbour.remove(place).unwrap_or_default();
        list.iter().for_each(|w| s.left(w));
        list
    }

    /// Gives up packets that have waited too long.
    pub(crate) fn expire(&self, now: Nanos) {
        let mut s = self.0.lock();
        if s.total == 0 {
            return;
        }
        let mut gone = Vec::new();
        s.by_neighbour.retain(|_, q| {
            while q.front().is_some_and(|w| now.saturating_sub(w.since) > PATIENCE) {
                gone.extend(q.pop_front());
            }
            !q.is_empty()
        });
        gone.iter().for_each(|w| s.left(w));
        DropReason::TunnelNeighbour.count(gone.len() as u64);
    }
}

impl State {
    fn left(&mut self, w: &Waiting) {
        self.total -= 1;
        if let Some(n) = self.by_port.get_mut(&w.key.base.in_port) {
            *n -= 1;
            if *n == 0 {
                self.by_port.remove(&w.key.base.in_port);
            }
        }
    }
}

impl Slowpath {
    /// Keeps the packet for each neighbour that it misses; false if there was no room for it.
    pub(crate) fn hold(&self, out: &Output, packet: &Packet, key: &DpKey, now: Nanos) -> bool {
        let mut held = false;
        for ask in &out.unresolved {
            held |= self.held.push((ask.bridge_name.clone(), ask.target), packet, key, now);
            // The answer may have come to another thread since the translation: then nobody else sends the packet.
            if ask.net.neighbours.find(&ask.bridge_name, ask.target, now).is_some() {
                self.send_held(&ask.bridge_name, ask.target, now);
            }
        }
        held
    }

    /// What an effect has to do with neighbours.
    pub(crate) fn neighbour(&self, e: &Effect, now: Nanos) {
        match e {
            Effect::AskNeighbour(ask) => self.ask(ask, now),
            Effect::NeighbourLearn { net, bridge, ip, mac }
                if net.neighbours.learn(bridge, *ip, *mac, now) == Resolved::Changed =>
            {
                self.neighbour_changed(bridge, *ip, now);
            }
            _ => {}
        }
    }

    /// A neighbour is known now, or another than before: flows follow, and what waited for it is sent.
    pub fn neighbour_changed(&self, bridge: &str, ip: IpAddr, now: Nanos) {
        self.model_changed();
        self.send_held(bridge, ip, now);
    }

    fn send_held(&self, bridge: &str, ip: IpAddr, now: Nanos) {
        let view = self.view.load();
        let mac = view.tunnels.net.neighbours.find(bridge, ip, now);
        for w in self.held.take(&(bridge.to_owned(), ip)) {
            let out = self.translate(&view, &w.key, Some(&w.packet), now);
            let (Some(out), Some(mac)) = (out, mac) else {
                DropReason::TunnelNeighbour.count(1);
                continue;
            };
            let program = Program::new(only_to(&out.program.actions, &mac));
            crate::HELD_SENT.inc();
            self.dp.execute(w.packet, &w.key, &program);
            self.release_later(out.frozen);
        }
    }

    /// Sends the question into the bridge, as if the bridge itself asked; not more than one a second.
    fn ask(&self, ask: &AskNeighbour, now: Nanos) {
        if !ask.net.neighbours.may_ask(&ask.bridge_name, ask.target, now) {
            return;
        }
        let Some(frame) = fv_tunnel::request::frame(ask.src_mac, ask.src, ask.target) else { return };
        let view = self.view.load();
        let local = view.bridge(ask.bridge).and_then(|b| b.port(OfPort::LOCAL)).and_then(|p| p.dp_port);
        let Some(DpPort(local)) = local else { return };
        let mut packet = Packet::from_slice(&frame);
        packet.meta_mut().in_port = local;
        let key = fv_flow::extract::extract(&mut packet, &Default::default());
        let Some(out) = self.translate(&view, &key, Some(&packet), now) else { return };
        self.dp.execute(packet, &key, &out.program);
        self.release_later(out.frozen);
    }
}

/// The part of a program that sends through a tunnel to `mac`, with what brings the packet there.
fn only_to(actions: &[DpAction], mac: &[u8; 6]) -> Vec<DpAction> {
    let mut kept = Vec::new();
    for (i, a) in actions.iter().enumerate() {
        match a {
            DpAction::TunnelPush(push) => {
                // All that follows is of the packet with its new headers.
                if push.header.get(..6) == Some(mac) {
                    kept.extend_from_slice(&actions[i..]);
                }
                break;
            }
            DpAction::Clone(body) | DpAction::Sample { actions: body, probability: u32::MAX } => {
                let body = only_to(body, mac);
                if body.iter().any(sends) {
                    kept.push(DpAction::Clone(body));
                }
            }
            DpAction::CheckPktLen { size, greater, less_equal } => {
                let (greater, less_equal) = (only_to(greater, mac), only_to(less_equal, mac));
                kept.push(DpAction::CheckPktLen { size: *size, greater, less_equal });
            }
            DpAction::DecTtl { .. } => kept.push(DpAction::DecTtl { exception: Vec::new() }),
            DpAction::Output(_)
            | DpAction::Userspace { .. }
            | DpAction::Recirc(_)
            | DpAction::TunnelPop(_)
            | DpAction::LbOutput(_)
            | DpAction::Sample { .. }
            | DpAction::Meter(_)
            | DpAction::Drop(_) => {}
            other => kept.push(other.clone()),
        }
    }
    kept
}

fn sends(a: &DpAction) -> bool {
    match a {
        DpAction::TunnelPush(_) => true,
        DpAction::Clone(body) => body.iter().any(sends),
        DpAction::CheckPktLen { greater, less_equal, .. } => greater.iter().chain(less_equal).any(sends),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fv_dpif::action::TunnelPush;

    fn push(mac: u8) -> DpAction {
        DpAction::TunnelPush(Box::new(TunnelPush { header: vec![mac; 50], ..TunnelPush::default() }))
    }

    #[test]
    fn only_the_part_that_waited() {
        let out = |n| DpAction::Output(DpPort(n));
        let program = [
            out(1),
            DpAction::PushVlan { tpid: 0x8100, tci: 0x1005 },
            DpAction::Clone(vec![push(2), out(3)]),
            DpAction::Clone(vec![push(4), out(3)]),
            DpAction::PopVlan,
            push(2),
            out(5),
        ];
        let tag = program[1].clone();
        assert_eq!(only_to(&program, &[2; 6]), [tag.clone(), program[2].clone(), DpAction::PopVlan, push(2), out(5)]);
        assert_eq!(only_to(&program, &[4; 6]), [tag.clone(), program[3].clone(), DpAction::PopVlan]);
        assert_eq!(only_to(&program, &[6; 6]), [tag, DpAction::PopVlan]);
    }

    #[test]
    fn bounded_and_patient_for_a_while() {
        let held = Held::default();
        let packet = Packet::from_slice(&[0; 60]);
        let place = |n: u32| ("br".to_string(), IpAddr::from(n.to_be_bytes()));
        let key = |port| {
            let mut k = DpKey::default();
            k.base.in_port = port;
            k
        };
        let taken = (0..100).filter(|_| held.push(place(1), &packet, &key(1), Nanos::ZERO)).count();
        assert_eq!(taken, PER_NEIGHBOUR);
        let taken = (2..1000).filter(|n| held.push(place(*n), &packet, &key(1), Nanos::ZERO)).count();
        assert_eq!(taken, PER_PORT - PER_NEIGHBOUR);
        let taken = (2..100_000).filter(|n| held.push(place(*n), &packet, &key(*n), Nanos::ZERO)).count();
        assert_eq!(taken, TOTAL - PER_PORT);
        assert_eq!(held.take(&place(1)).len(), PER_NEIGHBOUR);
        assert!(held.push(place(1), &packet, &key(1), Nanos::from_secs(2)));
        held.expire(Nanos::from_secs(4));
        assert_eq!(held.0.lock().total, 1);
        held.expire(Nanos::from_secs(6));
        let s = held.0.lock();
        assert_eq!((s.total, s.by_port.len(), s.by_neighbour.len()), (0, 0, 0));
    }
}
