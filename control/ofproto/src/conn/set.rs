//! All connections of one bridge.

use std::sync::Arc;

use fv_core::Nanos;
use fv_openflow::OfError;
use fv_openflow::Version;
use fv_openflow::VersionSet;
use fv_openflow::msg::packet::PacketInReason;
use fv_openflow::msg::{Body, FlowRemoved, PortStatus, Role, TableStatus};

use super::{Async, Closed, ConnId, Connection, Kind};
use crate::monitor::FlowEvent;
use crate::packet_in::PacketInJob;

/// A controller that configuration names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerSpec {
    /// E.g. `tcp:127.0.0.1:6653`. Active targets are controllers, passive ones only configure those
    /// who connect there.
    pub target: String,
    pub passive: bool,
    /// Zero: no probes.
    pub probe_interval: Nanos,
    /// Packets a second, and burst (0: a default).
    pub rate_limit: Option<(u32, u32)>,
    /// Whether connections hear of anything unasked before they say what they want to hear.
    pub enable_async: bool,
}

/// A configured active controller, connected or not.
struct Controller {
    spec: ControllerSpec,
    /// When it last had accepted this switch, or was configured.
    last_admitted: Nanos,
}

/// For `Controller` rows of the database and `ofproto/...` commands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnInfo {
    pub id: ConnId,
    pub kind: Kind,
    pub name: String,
    pub version: Option<Version>,
    pub role: Role,
    /// Nothing was heard for a while.
    pub is_idle: bool,
}

fn spec_of<'a>(controllers: &'a [Controller], passive: &'a [ControllerSpec], name: &str) -> Option<&'a ControllerSpec> {
    controllers.iter().map(|c| &c.spec).chain(passive).find(|s| s.target == name)
}

#[derive(Default)]
pub struct Conns {
    /// None while one is being served.
    list: Vec<Option<Box<Connection>>>,
    controllers: Vec<Controller>,
    /// What those who connect to passive targets get.
    passive: Vec<ControllerSpec>,
    versions: VersionSet,
    queue_size: usize,
    next_id: u64,
    pub(super) generation: Option<u64>,
    pending: Vec<Async>,
    /// What the view says of us, as last asked.
    seen: (bool, bool, bool),
    /// Where the next round starts.
    pub(crate) turn: usize,
}

impl Conns {
    pub(crate) fn set_versions(&mut self, v: VersionSet) {
        // Connections whose version is no longer allowed negotiate anew.
        for c in self.list.iter_mut().flatten() {
            if c.version.is_some_and(|x| !v.contains(x)) {
                c.close(Closed::Version);
            }
        }
        self.versions = v;
    }

    pub(crate) fn set_queue_size(&mut self, n: usize) {
        self.queue_size = n;
        self.iter_mut().for_each(|c| c.set_queue_size(n));
    }

    /// Takes over the configured controllers. True if there were no active ones before and are now, or
    /// the other way round.
    pub(crate) fn set_controllers(&mut self, specs: Vec<ControllerSpec>, now: Nanos) -> bool {
        let had = self.has_controllers();
        let old = std::mem::take(&mut self.controllers);
        let (passive, active): (Vec<_>, Vec<_>) = specs.into_iter().partition(|s| s.passive);
        for spec in active {
            let known = old.iter().find(|o| o.spec.target == spec.target);
            self.controllers.push(Controller { spec, last_admitted: known.map_or(now, |k| k.last_admitted) });
        }
        let gone = std::mem::replace(&mut self.passive, passive);
        for c in self.list.iter_mut().flatten() {
            match spec_of(&self.controllers, &self.passive, &c.name) {
                Some(s) => c.configure(s),
                None if c.kind == Kind::Primary || gone.iter().any(|s| s.target == c.name) => c.close(Closed::Removed),
                None => {}
            }
        }
        had != self.has_controllers()
    }

    /// Whether any active controller is configured.
    pub fn has_controllers(&self) -> bool {
        !self.controllers.is_empty()
    }

    pub(crate) fn add(&mut self, kind: Kind, name: &str, now: Nanos) -> ConnId {
        let id = ConnId(self.next_id);
        self.next_id += 1;
        let mut c = Connection::new(id, kind, name, self.versions, now);
        c.set_queue_size(self.queue_size);
        if let Some(s) = spec_of(&self.controllers, &self.passive, name) {
            c.configure(s);
        }
        self.list.push(Some(Box::new(c)));
        self.update_copies();
        id
    }

    /// Forgets those whose stream is gone and whose last messages are done.
    pub(crate) fn sweep(&mut self) {
        let n = self.list.len();
        self.list.retain(|c| c.as_ref().is_none_or(|c| !c.is_over()));
        if self.list.len() != n {
            self.update_copies();
        }
    }

    /// Primary connections keep copies only while someone snoops.
    fn update_copies(&mut self) {
        let snooped = self.iter().any(|c| c.kind == Kind::Snoop);
        for c in self.iter_mut().filter(|c| c.kind == Kind::Primary) {
            match snooped {
                true => {
                    c.copies.get_or_insert_default();
                }
                false => c.copies = None,
            }
        }
    }

    pub fn get(&self, id: ConnId) -> Option<&Connection> {
        self.iter().find(|c| c.id == id)
    }

    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.iter_mut().find(|c| c.id == id)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.list.iter().flatten().map(|c| &**c)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.list.iter_mut().flatten().map(|c| &mut **c)
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Takes a connection out to serve it; `put_back` returns it.
    pub(crate) fn take(&mut self, i: usize) -> Option<Box<Connection>> {
        self.list.get_mut(i)?.take()
    }

    pub(crate) fn put_back(&mut self, i: usize, c: Box<Connection>) {
        if let Some(slot) = self.list.get_mut(i) {
            *slot = Some(c);
        }
    }

    pub fn info(&self) -> Vec<ConnInfo> {
        self.iter()
            .filter(|c| !c.is_gone())
            .map(|c| ConnInfo {
                id: c.id,
                kind: c.kind,
                name: c.name.clone(),
                version: c.version,
                role: c.role,
                is_idle: c.probed.is_some(),
            })
            .collect()
    }

    pub(crate) fn port_status(&mut self, s: &PortStatus) {
        self.pending.push(Async::PortStatus(s.clone()));
    }

    /// Tells all but the connection that is taken out what it changed.
    pub(crate) fn forward(&mut self, xid: u32, change: Body) {
        self.iter_mut().for_each(|c| c.forward(xid, &change));
    }

    pub(crate) fn table_status(&mut self, s: TableStatus) {
        self.pending.push(Async::TableStatus(s));
    }

    pub(crate) fn flow_removed(&mut self, f: &FlowRemoved) {
        self.pending.push(Async::FlowRemoved(Box::new(f.clone())));
    }

    pub(crate) fn flows_changed(&mut self, events: Arc<Vec<FlowEvent>>) {
        self.pending.push(Async::Flows(events));
    }

    /// Whether anybody watches flows.
    pub(crate) fn watches(&self) -> bool {
        self.iter().any(|c| !c.monitors.is_empty() && !c.is_gone())
    }

    /// Sends what came up to `c`, which is taken out, and to all others.
    pub(crate) fn deliver_with(&mut self, c: &mut Connection) {
        self.pending.iter().for_each(|a| c.tell(a));
        self.deliver();
    }

    /// Sends what came up; not while a connection is taken out.
    pub(crate) fn deliver(&mut self) {
        for a in std::mem::take(&mut self.pending) {
            self.iter_mut().for_each(|c| c.tell(&a));
        }
        let mut copies = Vec::new();
        for c in self.iter_mut() {
            if let Some(x) = &mut c.copies {
                copies.append(x);
            }
        }
        if !copies.is_empty() {
            self.iter_mut().filter(|c| c.kind == Kind::Snoop).for_each(|c| c.push_copy(&copies));
        }
    }

    /// What needs nothing of the bridge.
    pub(crate) fn answer_echoes(&mut self, now: Nanos) {
        self.iter_mut().for_each(|c| c.answer_echoes(now));
    }

    /// Timers of all connections; the earliest time of the next.
    pub(crate) fn tick(&mut self, now: Nanos) -> Option<Nanos> {
        self.iter_mut()
            .filter_map(|c| {
                for opened in c.bundles.expire(now) {
                    c.error(super::xid_of(&opened), OfError::BfcTimeout, &opened);
                }
                [c.tick(now), c.bundles.next_expiry()].into_iter().flatten().min()
            })
            .min()
    }

    pub(crate) fn close_all(&mut self, why: Closed) {
        self.iter_mut().for_each(|c| c.close(why));
    }

    pub(crate) fn packet_in(&mut self, j: &PacketInJob, now: Nanos) {
        self.iter_mut().for_each(|c| c.packet_in(&j.packet_in, j.controller_id, now));
    }

    pub fn any_controller_connected(&self) -> bool {
        self.iter().any(|c| c.kind == Kind::Primary && c.is_up())
    }

    /// Whether a connection wants misses without a flow, as the protocol before 1.3 demands.
    pub fn wants_miss(&self) -> bool {
        self.iter().any(Connection::wants_miss)
    }

    pub fn wants_invalid_ttl(&self) -> bool {
        self.iter().any(|c| c.wants(|m| m.packet_in, PacketInReason::InvalidTtl as u32))
    }

    /// Whether the view says something else of the connections than it did.
    pub(crate) fn take_view_change(&mut self) -> bool {
        let now = (self.any_controller_connected(), self.wants_miss(), self.wants_invalid_ttl());
        std::mem::replace(&mut self.seen, now) != now
    }

    /// For how long no controller had accepted this switch, and how long one may be away before the
    /// switch helps itself: each may be probed, fail to answer, and reconnect. None without controllers.
    pub(crate) fn failure(&mut self, now: Nanos) -> Option<(Nanos, Nanos)> {
        let admitted: Vec<String> =
            self.iter().filter(|c| c.is_admitted() && c.kind == Kind::Primary).map(|c| c.name.clone()).collect();
        for c in &mut self.controllers {
            if admitted.contains(&c.spec.target) {
                c.last_admitted = now;
            }
        }
        let last = self.controllers.iter().map(|c| c.last_admitted).max()?;
        let probe = self.controllers.iter().map(|c| c.spec.probe_interval).max()?;
        Some((now.saturating_sub(last), Nanos(probe.0.saturating_mul(3))))
    }
}
