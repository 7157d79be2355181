//! Flow monitors: connections hear of the changes of flows that they watch.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use fv_classifier::MiniMatch;
use fv_core::OfPort;
use fv_openflow::OfError;
use fv_openflow::msg::flow::{GROUP_ANY, TABLE_ALL};
use fv_openflow::msg::monitor::*;
use fv_openflow::msg::stats::{Multipart, Reply};
use fv_openflow::msg::{Body, FlowRemovedReason};

use crate::bridge::Ofproto;
use crate::conn::{Closed, ConnId, Connection};
use crate::dump::{Dump, Form};
use crate::flow_mod::{Criteria, Step};
use crate::rule::{MAX_OPENFLOW_PRIORITY, RuleRef};
use crate::tables::N_TABLES;

/// Monitors of one connection: each change is compared with all.
const MAX_MONITORS: usize = 1024;
/// With more bytes than this unread by its peer, a connection's monitors are paused.
const PAUSE_BYTES: usize = 128 << 10;
/// Changes that may wait until the flows that were there first are told.
const MAX_DEFERRED: usize = 100_000;

struct Monitor {
    flags: MonitorFlags,
    out_port: OfPort,
    out_group: u32,
    table: u8,
    criterion: MiniMatch,
}

/// What one connection watches.
#[derive(Default)]
pub(crate) struct Monitors {
    by_id: BTreeMap<u32, Monitor>,
    /// Changes since a dump of the first flows began.
    deferred: Vec<Arc<Vec<FlowEvent>>>,
    n_deferred: usize,
    paused: Option<Paused>,
}

/// What is to be told of flows when the peer has read what it was sent before: no more than there are flows.
#[derive(Default)]
struct Paused {
    n: u64,
    /// By the rule's address, with its turn.
    changed: HashMap<usize, (u64, RuleRef, MonitorEvent)>,
}

impl Paused {
    /// Notes a change. True for a deletion that must be told at once: of a flow that the peer knows.
    fn note(&mut self, e: &FlowEvent) -> bool {
        let key = |r: &RuleRef| Arc::as_ptr(r) as usize;
        let before = e.old.as_ref().and_then(|o| self.changed.remove(&key(o))).or(self.changed.remove(&key(&e.rule)));
        let was_new = before.is_some_and(|b| b.2 == MonitorEvent::Added);
        let event = match e.event {
            MonitorEvent::Deleted(_) => return !was_new,
            MonitorEvent::Modified if was_new => MonitorEvent::Added,
            other => other,
        };
        self.n += 1;
        self.changed.insert(key(&e.rule), (self.n, e.rule.clone(), event));
        false
    }
}

/// One change of a flow.
#[derive(Debug)]
pub(crate) struct FlowEvent {
    event: MonitorEvent,
    rule: RuleRef,
    /// What a modification replaced.
    old: Option<RuleRef>,
    /// The connection and message that asked for it.
    source: Option<(ConnId, u32)>,
}

impl Monitor {
    fn new(m: &MonitorRequest) -> Monitor {
        Monitor {
            flags: m.flags,
            out_port: m.out_port,
            out_group: m.out_group,
            table: m.table,
            criterion: MiniMatch::new(&m.match_),
        }
    }

    fn outputs(&self, r: &RuleRef) -> bool {
        (self.out_port == OfPort::NONE || r.actions.outputs_to_port(self.out_port))
            && (self.out_group == GROUP_ANY || r.actions.outputs_to_group(self.out_group))
    }

    fn watches(&self, e: &FlowEvent) -> bool {
        let kind = match e.event {
            MonitorEvent::Initial => MonitorFlags::INITIAL,
            MonitorEvent::Added => MonitorFlags::ADD,
            MonitorEvent::Deleted(_) => MonitorFlags::DELETE,
            MonitorEvent::Modified => MonitorFlags::MODIFY,
        };
        self.flags.has(kind)
            && (self.table == TABLE_ALL || self.table == e.rule.table)
            && (self.outputs(&e.rule) || e.old.as_ref().is_some_and(|o| self.outputs(o)))
            && e.rule.matches().is_within(&self.criterion)
    }
}

impl Monitors {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    fn change(&mut self, m: &MonitorRequest) -> Result<(), OfError> {
        let known = self.by_id.contains_key(&m.id);
        match m.command {
            MonitorCommand::Add if known => return Err(OfError::MofcMonitorExists),
            MonitorCommand::Modify | MonitorCommand::Delete if !known => return Err(OfError::MofcUnknownMonitor),
            MonitorCommand::Add if self.by_id.len() >= MAX_MONITORS => return Err(OfError::BrcEperm),
            MonitorCommand::Delete => drop(self.by_id.remove(&m.id)),
            MonitorCommand::Add | MonitorCommand::Modify => drop(self.by_id.insert(m.id, Monitor::new(m))),
        }
        Ok(())
    }

    /// What of all monitors together `e` is told for; none if nobody watches it.
    fn flags_of(&self, e: &FlowEvent) -> MonitorFlags {
        self.by_id.values().filter(|m| m.watches(e)).fold(MonitorFlags::default(), |f, m| f.with(m.flags))
    }

    /// What this connection hears of changes that were made together.
    fn updates(&mut self, id: ConnId, events: &[FlowEvent]) -> Vec<FlowUpdate> {
        let mut out = Vec::new();
        let mut abbreviated = false;
        for e in events {
            let flags = self.flags_of(e);
            if flags == MonitorFlags::default() || self.paused.as_mut().is_some_and(|p| !p.note(e)) {
                continue;
            }
            match e.source {
                Some((source, xid)) if source == id && !flags.has(MonitorFlags::OWN) => {
                    if !std::mem::replace(&mut abbreviated, true) {
                        out.push(FlowUpdate::Abbrev(xid));
                    }
                }
                _ => out.push(flow_update(e.event, &e.rule, flags.has(MonitorFlags::ACTIONS))),
            }
        }
        out
    }
}

/// What an update says of a rule.
pub(crate) fn flow_update(event: MonitorEvent, r: &RuleRef, actions: bool) -> FlowUpdate {
    FlowUpdate::Full(Box::new(FlowUpdateFull {
        event,
        priority: r.priority().clamp(0, 0xffff) as u16,
        idle_timeout_s: r.idle_timeout_s(),
        hard_timeout_s: r.hard_timeout_s(),
        table: r.table,
        cookie: r.cookie,
        match_: crate::rule::match_of(r),
        actions: actions.then(|| (*r.actions).clone()),
    }))
}

impl Connection {
    /// Sends what changed, or keeps it until the flows that were there first are told.
    pub(crate) fn flows_changed(&mut self, events: &Arc<Vec<FlowEvent>>) {
        if self.monitors.is_empty() || !self.is_up() {
            return;
        }
        if self.dump.is_none() {
            return self.send_updates(events);
        }
        self.monitors.n_deferred += events.len();
        if self.monitors.n_deferred > MAX_DEFERRED {
            self.monitors = Monitors::default();
            return self.close(Closed::Backlog);
        }
        self.monitors.deferred.push(events.clone());
    }

    fn send_updates(&mut self, events: &[FlowEvent]) {
        let updates = self.monitors.updates(self.id, events);
        if !updates.is_empty() {
            self.send_async(Body::MultipartReply(Multipart { more: false, body: Reply::FlowMonitor(updates) }));
        }
        if self.output().len() > PAUSE_BYTES && self.monitors.paused.is_none() {
            self.monitors.paused = Some(Paused::default());
            self.tell_monitor_state(FlowUpdate::Paused, Body::MonitorPaused);
        }
    }

    /// The peer has read all: what changed while its monitors were paused is told now.
    pub(crate) fn resume_monitors(&mut self) {
        if self.dump.is_some() || !self.output().is_empty() || !self.is_up() {
            return;
        }
        let Some(p) = self.monitors.paused.take() else { return };
        let mut all: Vec<_> = p.changed.into_values().collect();
        all.sort_unstable_by_key(|c| c.0);
        let told = |(_, rule, event)| {
            let e = FlowEvent { event, rule, old: None, source: None };
            let flags = self.monitors.flags_of(&e);
            (flags != MonitorFlags::default()).then_some((e.rule, event, flags.has(MonitorFlags::ACTIONS)))
        };
        let changes: Vec<_> = all.into_iter().filter_map(told).collect();
        if changes.is_empty() {
            return self.tell_monitor_resumed();
        }
        self.dump = Some(Dump::of_changes(changes));
        self.continue_dump();
    }

    pub(crate) fn tell_monitor_resumed(&mut self) {
        self.tell_monitor_state(FlowUpdate::Resumed, Body::MonitorResumed);
    }

    fn tell_monitor_state(&mut self, update: FlowUpdate, message: Body) {
        let body = match self.version() {
            Some(v) if v >= fv_openflow::Version::V14 => {
                Body::MultipartReply(Multipart { more: false, body: Reply::FlowMonitor(vec![update]) })
            }
            _ => message,
        };
        self.send_async(body);
    }

    /// The dump is over: what had to wait for it.
    pub(crate) fn send_deferred(&mut self) {
        self.monitors.n_deferred = 0;
        for events in std::mem::take(&mut self.monitors.deferred) {
            self.send_updates(&events);
        }
    }
}

impl Ofproto {
    /// Makes, changes or ends monitors, all of the request or none, and starts to tell what they
    /// want to know at first.
    pub(crate) fn flow_monitor(
        &mut self,
        c: &mut Connection,
        xid: u32,
        requests: &[MonitorRequest],
    ) -> Result<(), OfError> {
        let tables = requests.iter().map(|m| m.table);
        if tables.into_iter().any(|t| t != TABLE_ALL && usize::from(t) >= N_TABLES) {
            return Err(OfError::BrcBadTableId);
        }
        // What happened before is no news to a new monitor.
        self.conns.deliver_with(c);
        let mut added = Vec::new();
        for m in requests {
            if let Err(e) = c.monitors.change(m) {
                added.iter().for_each(|id| drop(c.monitors.by_id.remove(id)));
                return Err(e);
            }
            if m.command == MonitorCommand::Add {
                added.push(m.id);
            }
        }
        self.watched |= !c.monitors.is_empty();
        let initial = |m: &&MonitorRequest| m.command != MonitorCommand::Delete && m.flags.has(MonitorFlags::INITIAL);
        let (full, short): (Vec<_>, Vec<_>) =
            requests.iter().filter(initial).partition(|m| m.flags.has(MonitorFlags::ACTIONS));
        let mut seen = HashSet::new();
        let mut rules = self.first_flows(&full, &mut seen)?;
        let with_actions = rules.len();
        rules.extend(self.first_flows(&short, &mut seen)?);
        c.dump = Some(Dump::new(xid, Form::Monitor { with_actions }, rules, fv_core::Nanos::ZERO));
        c.continue_dump();
        Ok(())
    }

    /// Flows that are there, those of `seen` left out.
    fn first_flows(&self, all: &[&MonitorRequest], seen: &mut HashSet<usize>) -> Result<Vec<RuleRef>, OfError> {
        let mut out = Vec::new();
        for m in all {
            let rules = self.select(
                &Criteria {
                    table: m.table,
                    match_: &m.match_,
                    cookie: 0,
                    cookie_mask: 0,
                    out_port: m.out_port,
                    out_group: m.out_group,
                    strict: None,
                },
                self.tables.version(),
            )?;
            out.extend(rules.into_iter().filter(|r| seen.insert(Arc::as_ptr(r) as usize)));
        }
        Ok(out)
    }

    pub(crate) fn cancel_monitor(c: &mut Connection, id: u32) -> Result<(), OfError> {
        c.monitors.by_id.remove(&id).map(drop).ok_or(OfError::MofcUnknownMonitor)
    }

    /// Notes for monitors what changed together.
    pub(crate) fn note_events(&mut self, steps: &[Step]) {
        if !self.watched {
            return;
        }
        let source = self.source;
        let mut events = Vec::new();
        let mut note = |event, rule: &RuleRef, old: Option<RuleRef>| {
            if rule.priority() <= MAX_OPENFLOW_PRIORITY {
                events.push(FlowEvent { event, rule: rule.clone(), old, source });
            }
        };
        let gone = MonitorEvent::Deleted(FlowRemovedReason::Delete);
        // Taken out without a reason: what comes next replaces it, or it is gone.
        let mut replaced: Option<RuleRef> = None;
        for s in steps {
            match s {
                Step::Added(r) => {
                    replaced = None;
                    note(MonitorEvent::Added, r, None);
                }
                Step::Modified(r) => {
                    let old = replaced.take();
                    let same = old.as_ref().is_some_and(|o| o.cookie == r.cookie && o.actions == r.actions);
                    if !same {
                        note(MonitorEvent::Modified, r, old);
                    }
                }
                Step::Removed(r, Some(why)) => note(MonitorEvent::Deleted(*why), r, None),
                Step::Removed(r, None) => {
                    if let Some(old) = replaced.replace(r.clone()) {
                        note(gone, &old, None);
                    }
                }
                Step::Group(..) => {}
            }
        }
        if let Some(old) = replaced {
            note(gone, &old, None);
        }
        if !events.is_empty() {
            self.flow_events.push(Arc::new(events));
        }
    }
}
