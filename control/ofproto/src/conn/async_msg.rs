//! Who gets which asynchronous message.

use std::sync::Arc;

use fv_core::Nanos;
use fv_openflow::Version;
use fv_openflow::msg::packet::{PacketIn, PacketInReason};
use fv_openflow::msg::session::AsyncConfig;
use fv_openflow::msg::{Body, FlowRemoved, Message, PortStatus, Role, TableStatus};

use super::{Connection, Kind};
use crate::monitor::FlowEvent;

/// A message that comes unasked.
#[derive(Clone, Debug)]
pub(crate) enum Async {
    PortStatus(PortStatus),
    FlowRemoved(Box<FlowRemoved>),
    TableStatus(TableStatus),
    /// For monitors: what changed together.
    Flows(Arc<Vec<FlowEvent>>),
}

/// What a connection wants, by kind of message and role: `[0]` as equal or primary, `[1]` as secondary.
pub(crate) type Masks = AsyncConfig;

/// What connections of a version want if they do not say.
pub(crate) fn default_masks(v: Version) -> Masks {
    let bits = |reasons: &[PacketInReason]| reasons.iter().fold(0, |m, r| m | 1 << *r as u32);
    let mut packet_in = bits(&[PacketInReason::NoMatch, PacketInReason::Action]);
    // Idle and hard timeout, deletion, and from 1.1 on that by a group's.
    let mut flow_removed = 0x7 | if v >= Version::V11 { 0x8 } else { 0 };
    if v >= Version::V14 {
        packet_in |= bits(&[PacketInReason::ActionSet, PacketInReason::Group, PacketInReason::PacketOut]);
        flow_removed |= 0x30;
    }
    AsyncConfig {
        packet_in: [packet_in, 0],
        flow_removed: [flow_removed, 0],
        port_status: [0x7, 0x7],
        role_status: if v >= Version::V14 { [0x3, 0x3] } else { [0, 0] },
        table_status: [0, 0],
        requestforward: [0, 0],
        given: 0xff,
    }
}

/// The reason as this version can say it.
pub(crate) fn wire_reason(r: PacketInReason, v: Version) -> PacketInReason {
    use PacketInReason as R;
    match r {
        R::ActionSet | R::Group | R::PacketOut if v < Version::V14 => R::Action,
        R::ExplicitMiss if v < Version::V13 => R::Action,
        R::ExplicitMiss | R::ImplicitMiss => R::NoMatch,
        r => r,
    }
}

impl Connection {
    pub(crate) fn masks(&self) -> Masks {
        self.async_cfg.unwrap_or_else(|| {
            if !self.hears_unasked {
                return AsyncConfig { given: 0xff, ..AsyncConfig::default() };
            }
            let mut m = default_masks(self.version().unwrap_or(Version::V10));
            if self.invalid_ttl {
                m.packet_in[0] |= 1 << PacketInReason::InvalidTtl as u32;
            }
            m
        })
    }

    /// Takes over what a message gives.
    pub(crate) fn set_masks(&mut self, new: &AsyncConfig) {
        let mut m = self.masks();
        let kinds: [(&mut [u32; 2], &[u32; 2]); 6] = [
            (&mut m.packet_in, &new.packet_in),
            (&mut m.flow_removed, &new.flow_removed),
            (&mut m.port_status, &new.port_status),
            (&mut m.role_status, &new.role_status),
            (&mut m.table_status, &new.table_status),
            (&mut m.requestforward, &new.requestforward),
        ];
        for (i, (to, from)) in kinds.into_iter().enumerate() {
            if new.given >> i & 1 != 0 {
                *to = *from;
            }
        }
        m.given = 0xff;
        self.async_cfg = Some(m);
    }

    /// `kind` picks the mask of a kind of message.
    pub(crate) fn wants(&self, kind: impl Fn(&Masks) -> [u32; 2], reason: u32) -> bool {
        if !self.is_up() || self.kind() == Kind::Snoop {
            return false;
        }
        // Tools that connect to ask something are not bothered, unless they ask for it.
        if self.kind() == Kind::Service && self.miss_send_len == 0 {
            return false;
        }
        let m = kind(&self.masks());
        m[usize::from(self.role == Role::Secondary)] >> reason & 1 != 0
    }

    pub(crate) fn tell(&mut self, a: &Async) {
        match a {
            Async::TableStatus(s) => {
                if self.version() >= Some(Version::V14) && self.wants(|m| m.table_status, s.reason as u32) {
                    self.send_async(Body::TableStatus(*s));
                }
            }
            Async::Flows(events) => self.flows_changed(events),
            Async::PortStatus(p) => {
                if self.wants(|m| m.port_status, p.reason as u32) {
                    self.send_async(Body::PortStatus(Box::new(p.clone())));
                }
            }
            Async::FlowRemoved(f) => {
                if self.wants(|m| m.flow_removed, f.reason as u32) {
                    self.send_async(if self.nxm {
                        Body::NxFlowRemoved(f.clone())
                    } else {
                        Body::FlowRemoved(f.clone())
                    });
                }
            }
        }
    }

    /// Tells what another connection changed, if this one wants to hear of such changes.
    pub(crate) fn forward(&mut self, xid: u32, change: &Body) {
        let reason = u32::from(matches!(change, Body::MeterMod(_)));
        let Some(v) = self.version().filter(|v| *v >= Version::V13) else { return };
        if self.wants(|m| m.requestforward, reason) {
            self.send_async(Body::RequestForward(Box::new(Message::new(v, xid, change.clone()))));
        }
    }

    /// Whether table misses without a flow go to this connection: only before OpenFlow 1.3, and not
    /// to one that would not hear of them, such as a tool that only asks something.
    pub(crate) fn wants_miss(&self) -> bool {
        self.controller_id == 0
            && self.version().is_some_and(|v| v < Version::V13)
            && self.wants(|m| m.packet_in, PacketInReason::NoMatch as u32)
    }

    /// Sends a packet if this connection wants it. Always all of it: there are no buffers that the
    /// rest could come from, so that neither `max_len` nor `miss_send_len` cuts.
    pub(crate) fn packet_in(&mut self, p: &PacketIn, controller_id: u16, now: Nanos) {
        let Some(v) = self.version() else { return };
        if self.controller_id != controller_id || p.reason == PacketInReason::ImplicitMiss && !self.wants_miss() {
            return;
        }
        let reason = wire_reason(p.reason, v);
        if self.wants(|m| m.packet_in, reason as u32) {
            let total_len = p.total_len.max(p.packet.len() as u32);
            self.send_packet_in(PacketIn { reason, total_len, ..p.clone() }, now);
        }
    }
}
