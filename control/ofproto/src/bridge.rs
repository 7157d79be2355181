//! One bridge: its tables, ports and settings. Owned by control's thread.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use fv_classifier::{ClsRule, MiniMatch, Version};
use fv_core::{Nanos, OfPort};
use fv_flow::Match;
use fv_l2::{MacTable, VlanSet};
use fv_openflow::action::Action;
use fv_openflow::msg::FragHandling;
use fv_openflow::msg::TableStatus;
use fv_openflow::msg::flow::{FlowRemoved, FlowRemovedReason};
use fv_openflow::msg::stats::Desc;
use fv_openflow::{Actions, VersionSet};

use crate::commit::Committing;
use crate::conn::{ConnId, Conns};
use crate::flow_mod::Step;
use crate::group::Groups;
use crate::host::Host;
use crate::meter::Meters;
use crate::monitor::FlowEvent;
use crate::port::Port;
use crate::rule::{Rule, RuleRef};
use crate::tables::Tables;
use crate::tlv::TlvTable;
use crate::users::Users;
use crate::view::{BridgeId, BridgeView, BundleView};

/// Removed rules freed in one turn: each costs some microseconds when there are a million.
const PURGE_PORTION: usize = 1000;

/// Changed rules that are told one by one.
const MAX_CHANGED: usize = 64;

/// What configuration says of a bridge as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    pub dpid: u64,
    /// Without a controller: false forwards normally, true does nothing by itself.
    pub fail_secure: bool,
    pub forward_bpdu: bool,
    pub flood_vlans: VlanSet,
    pub desc: Desc,
    /// Versions that connections may negotiate.
    pub versions: VersionSet,
    /// Packet-ins that may wait for one controller (`controller-queue-size`).
    pub controller_queue_size: usize,
    pub mac_aging_s: u64,
    pub mac_table_size: usize,
    /// Keep flows from expiring (`flow-restore-wait`).
    pub flow_restore_wait: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            dpid: 0,
            fail_secure: false,
            forward_bpdu: false,
            flood_vlans: VlanSet::default(),
            desc: Desc {
                manufacturer: "Nicira, Inc.".into(),
                hardware: "Open vSwitch".into(),
                software: "3.7.1".into(),
                serial: "None".into(),
                datapath: "None".into(),
            },
            versions: VersionSet::ALL,
            controller_queue_size: 100,
            mac_aging_s: fv_l2::mac::DEFAULT_IDLE_S,
            mac_table_size: fv_l2::mac::DEFAULT_MAX_ENTRIES,
            flow_restore_wait: false,
        }
    }
}

/// See the crate's description. Changes to flows are visible after [`Ofproto::commit`], to everything
/// else after [`Host::publish`]; [`Ofproto::turn`] does both.
pub struct Ofproto {
    id: BridgeId,
    name: String,
    pub(crate) settings: Settings,
    pub(crate) tables: Arc<Tables>,
    mac_table: Arc<MacTable>,
    pub(crate) ports: BTreeMap<OfPort, Port>,
    pub(crate) bundles: Vec<BundleView>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) users: Users,
    /// Rules that take the flows of a cookie in a table with them when they go.
    pub(crate) teachers: HashMap<(u64, u8), usize>,
    /// Some connection watches flows.
    pub(crate) watched: bool,
    /// The connection and message that changes are made for.
    pub(crate) source: Option<(ConnId, u32)>,
    /// Changes since the last commit, for those who watch; one entry for what was made together.
    pub(crate) flow_events: Vec<Arc<Vec<FlowEvent>>>,
    pub(crate) frags: FragHandling,
    pub(crate) tlvs: TlvTable,
    /// Rules that came and went since [`Ofproto::take_changed`], one more than are told at most.
    pub(crate) changed: Vec<RuleRef>,
    /// Tables with changes at the pending version.
    pub(crate) touched: HashSet<u8>,
    /// Tables with removed rules that translations may still see.
    outdated: HashSet<u8>,
    /// Rules removed by this version are on their way out of these tables.
    garbage: Option<(Version, HashSet<u8>)>,
    /// Deleted since the last commit, to be reported.
    pub(crate) removed: Vec<(RuleRef, FlowRemovedReason, Nanos)>,
    timers: BTreeMap<(Nanos, usize), RuleRef>,
    pub(crate) view_dirty: bool,
    /// The flow that forwards everything while no controller is configured or fail-open is on.
    fail_open: Option<RuleRef>,
    pub(crate) conns: Conns,
    /// A large bundle that is being prepared.
    pub(crate) committing: Option<Box<Committing>>,
    pub(crate) next_port: u32,
    /// Flows looked at since the turn last asked, so that a message counts for what it costs.
    pub(crate) looked_at: Cell<usize>,
}

impl Ofproto {
    /// A bridge without ports, with the flow that its fail mode demands.
    pub fn new(id: BridgeId, name: &str, settings: Settings, now: Nanos) -> Ofproto {
        let mut o = Ofproto {
            id,
            name: name.to_owned(),
            tables: Arc::new(Tables::new(now)),
            mac_table: Arc::new(MacTable::new()),
            ports: BTreeMap::new(),
            bundles: Vec::new(),
            groups: Arc::default(),
            meters: Arc::default(),
            users: Users::default(),
            teachers: HashMap::new(),
            watched: false,
            source: None,
            flow_events: Vec::new(),
            frags: FragHandling::Normal,
            tlvs: TlvTable::default(),
            changed: Vec::new(),
            touched: HashSet::new(),
            outdated: HashSet::new(),
            garbage: None,
            removed: Vec::new(),
            timers: BTreeMap::new(),
            view_dirty: true,
            fail_open: None,
            conns: Conns::default(),
            committing: None,
            next_port: 0,
            looked_at: Cell::new(0),
            settings: Settings::default(),
        };
        o.apply_settings(settings);
        o.add_default_flow(now);
        o.commit_flows();
        o
    }

    pub fn id(&self) -> BridgeId {
        self.id
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    pub fn mac_table(&self) -> &Arc<MacTable> {
        &self.mac_table
    }

    pub fn conns(&self) -> &Conns {
        &self.conns
    }

    /// Takes over settings. A change of the fail mode flushes the flows while no controller is
    /// configured, as the reference does.
    pub fn set_settings(&mut self, s: Settings, now: Nanos) {
        if s == self.settings {
            return;
        }
        let mode_changed = s.fail_secure != self.settings.fail_secure;
        self.apply_settings(s);
        if mode_changed && !self.conns.has_controllers() {
            self.flush_flows(now);
        }
        if self.settings.fail_secure {
            self.set_fail_open(false, now);
        }
    }

    fn apply_settings(&mut self, s: Settings) {
        self.mac_table.set_idle_time(s.mac_aging_s);
        self.mac_table.set_max_entries(s.mac_table_size);
        self.mac_table.set_flood_vlans(s.flood_vlans.clone());
        self.conns.set_versions(s.versions);
        self.conns.set_queue_size(s.controller_queue_size);
        self.settings = s;
        self.view_dirty = true;
    }

    /// The version at which changes are made that are not visible yet.
    /// The rules that came and went since the last time; None if there were too many to look at each.
    pub fn take_changed(&mut self) -> Option<Vec<RuleRef>> {
        let changed = std::mem::take(&mut self.changed);
        (changed.len() <= MAX_CHANGED).then_some(changed)
    }

    pub(crate) fn note_changed(&mut self, rule: &RuleRef) {
        if self.changed.len() <= MAX_CHANGED {
            self.changed.push(rule.clone());
        }
    }

    pub(crate) fn pending_version(&self) -> Version {
        self.tables.version().next()
    }

    /// Makes all flow changes visible to lookups at once, and reports what was deleted.
    pub fn commit(&mut self, host: &mut dyn Host) {
        if self.committing.is_some() {
            return;
        }
        if !self.removed.is_empty() {
            // Their last packets count.
            host.pull_stats(self.id);
        }
        self.commit_flows();
        for events in std::mem::take(&mut self.flow_events) {
            self.conns.flows_changed(events);
        }
        for (rule, why, at) in std::mem::take(&mut self.removed) {
            let msg = flow_removed(&rule, why, at);
            self.conns.flow_removed(&msg);
        }
    }

    fn commit_flows(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        let v = self.pending_version();
        for t in std::mem::take(&mut self.touched) {
            if let Some(table) = self.tables.table(t) {
                table.cls.publish();
                if let Some(reason) = table.vacancy_event() {
                    self.conns.table_status(TableStatus { reason, desc: table.desc(t) });
                }
            }
            self.outdated.insert(t);
        }
        self.tables.publish(v);
    }

    /// Frees some of the rules that no version in use sees: first new readers are kept off them, and
    /// when those before have left they go. True if there are more that could go now.
    pub(crate) fn collect_garbage(&mut self) -> bool {
        let Some((version, garbage)) = &mut self.garbage else {
            if !self.outdated.is_empty() {
                self.garbage = Some((self.tables.version(), std::mem::take(&mut self.outdated)));
                self.tables.readers.turn();
            }
            return self.garbage.is_some();
        };
        if !self.tables.readers.old_are_gone() {
            return false;
        }
        let tables = &self.tables;
        garbage.retain(|t| tables.table(*t).is_some_and(|t| t.cls.purge(*version, PURGE_PORTION)));
        if garbage.is_empty() {
            self.garbage = None;
        }
        self.garbage.is_some() || !self.outdated.is_empty()
    }

    pub(crate) fn arm(&mut self, r: &RuleRef) {
        if let Some(t) = r.expires() {
            r.timer.store(t.0, std::sync::atomic::Ordering::Relaxed);
            self.timers.insert((t, Arc::as_ptr(r) as usize), r.clone());
        }
    }

    pub(crate) fn disarm(&mut self, r: &RuleRef) {
        let t = r.timer.swap(0, std::sync::atomic::Ordering::Relaxed);
        if t != 0 {
            self.timers.remove(&(Nanos(t), Arc::as_ptr(r) as usize));
        }
    }

    /// Removes flows whose time is over. The earliest time at which it has something to do again.
    pub fn expire(&mut self, now: Nanos, host: &mut dyn Host) -> Option<Nanos> {
        for r in self.tables.take_reduced() {
            if r.removed_at().is_none() {
                self.disarm(&r);
                self.arm(&r);
            }
        }
        if self.settings.flow_restore_wait || self.committing.is_some() {
            return None;
        }
        let mut due = Vec::new();
        while let Some(e) = self.timers.first_entry() {
            if e.key().0 >= now {
                break;
            }
            let r = e.remove();
            r.timer.store(0, std::sync::atomic::Ordering::Relaxed);
            due.push(r);
        }
        if due.iter().any(|r| r.idle_timeout_s() != 0) {
            host.pull_stats(self.id);
        }
        let mut steps: Vec<Step> = Vec::new();
        for r in due {
            if r.hard_expires().is_some_and(|t| t < now) {
                self.remove_step(r, Some(FlowRemovedReason::HardTimeout), &mut steps);
            } else if r.idle_expires().is_some_and(|t| t < now) {
                self.remove_step(r, Some(FlowRemovedReason::IdleTimeout), &mut steps);
            } else {
                self.arm(&r);
            }
        }
        if !steps.is_empty() {
            self.finish(now, steps);
            self.commit(host);
        }
        self.timers.first_key_value().map(|((t, _), _)| Nanos(t.0 + 1))
    }

    /// Deletes every flow that is not the switch's own, without reports, and puts the default flow back.
    pub fn flush_flows(&mut self, now: Nanos) {
        self.complete_commit();
        let v = self.pending_version();
        let mut steps = Vec::new();
        let all: Vec<RuleRef> = self.tables.visible().flat_map(|(_, t)| t.cls.rules(v)).collect();
        for r in all {
            let ours = self.fail_open.as_ref().is_some_and(|f| Arc::ptr_eq(f, &r));
            if !ours {
                self.remove_step(r, None, &mut steps);
            }
        }
        self.finish(now, steps);
        self.add_default_flow(now);
    }

    /// Without controllers and in standalone mode, a flow of priority 0 forwards normally.
    fn add_default_flow(&mut self, now: Nanos) {
        if self.conns.has_controllers() || self.settings.fail_secure {
            return;
        }
        self.add_normal(0, now);
    }

    fn add_normal(&mut self, priority: i32, now: Nanos) -> RuleRef {
        self.complete_commit();
        let actions = Arc::new(Actions(vec![Action::output(OfPort::NORMAL)]));
        let rule = Rule::new(0, 0, actions, now);
        let rule = Arc::new(ClsRule::new(MiniMatch::new(&Match::default()), priority, rule));
        let mut steps = Vec::new();
        self.add_step(rule.clone(), &mut steps);
        self.finish(now, steps);
        rule
    }

    /// Puts the rule of fail-open in, or takes it out.
    pub(crate) fn set_fail_open(&mut self, on: bool, now: Nanos) {
        match (on, self.fail_open.take()) {
            (true, None) => self.fail_open = Some(self.add_normal(crate::rule::FAIL_OPEN_PRIORITY, now)),
            (true, kept) => self.fail_open = kept,
            (false, Some(r)) => {
                self.complete_commit();
                let mut steps = Vec::new();
                self.remove_step(r, None, &mut steps);
                self.finish(now, steps);
            }
            (false, None) => {}
        }
    }

    pub fn is_fail_open(&self) -> bool {
        self.fail_open.is_some()
    }

    /// What translation reads.
    pub fn view(&self) -> Arc<BridgeView> {
        Arc::new(BridgeView {
            id: self.id,
            name: self.name.clone(),
            dpid: self.settings.dpid,
            tables: self.tables.clone(),
            version: None,
            ports: self.ports.values().map(|p| (p.view.ofp, p.view.clone())).collect(),
            bundles: self.bundle_views(),
            mac_table: self.mac_table.clone(),
            groups: self.groups.clone(),
            meters: self.meters.clone(),
            tun_options: self.tlvs.table().clone(),
            forward_bpdu: self.settings.forward_bpdu,
            has_controller: self.conns.any_controller_connected(),
            wants_miss: self.conns.wants_miss(),
            fail_secure: self.settings.fail_secure,
            flood_vlans: self.settings.flood_vlans.clone(),
            frags: self.frags,
            invalid_ttl_to_controller: self.conns.wants_invalid_ttl(),
        })
    }

    /// What a packet in the middle of a bundle sees: all changes so far, none of those to come.
    pub(crate) fn pending_view(&self) -> Arc<BridgeView> {
        // Subtables that nothing but the pending version sees.
        self.tables.all().for_each(|(_, t)| t.cls.publish());
        let mut view = self.view();
        if let Some(v) = Arc::get_mut(&mut view) {
            v.version = Some(self.pending_version());
        }
        view
    }

    /// Hands the view on if something in it changed.
    pub fn publish_view(&mut self, host: &mut dyn Host) {
        if std::mem::take(&mut self.view_dirty) | self.conns.take_view_change() {
            host.publish(self.view());
        }
    }

    /// All rules, the switch's own included, as `bridge/dump-flows` shows them.
    pub fn all_rules(&self) -> Vec<RuleRef> {
        let v = self.tables.version();
        self.tables.all().flat_map(|(_, t)| t.cls.rules(v)).collect()
    }
}

fn flow_removed(r: &RuleRef, reason: FlowRemovedReason, at: Nanos) -> FlowRemoved {
    let (duration_s, duration_ns) = crate::dump::duration(at.saturating_sub(r.created));
    FlowRemoved {
        match_: crate::rule::match_of(r),
        cookie: r.cookie,
        priority: r.priority().clamp(0, 0xffff) as u16,
        reason,
        table: r.table,
        duration_s,
        duration_ns,
        idle_timeout_s: r.idle_timeout_s(),
        hard_timeout_s: r.hard_timeout_s(),
        packets: r.stats.packets(),
        bytes: r.stats.bytes(),
    }
}
