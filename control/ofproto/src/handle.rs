//! Requests of connections, carried out.

use fv_core::{Nanos, OfPort, TableId};
use fv_openflow::action::{Bind, CheckCx, check, options_of};
use fv_openflow::msg::flow::{AggregateStats, FlowModFlags, FlowStatsRequest, NO_BUFFER};
use fv_openflow::msg::packet::PacketOut;
use fv_openflow::msg::queue::QueueDesc;
use fv_openflow::msg::session::Config;
use fv_openflow::msg::stats::{Multipart, QUEUE_ALL, Reply, Request};
use fv_openflow::msg::table::{TableFeatures, TableMod, TableStats};
use fv_openflow::msg::{Body, FlowMod, FlowModCommand, FragHandling, Message, Role};
use fv_openflow::{OfError, Version};

use crate::bridge::Ofproto;
use crate::bundle::{Commit, Outcome};
use crate::conn::{Connection, Received, xid_of};
use crate::dump::{Dump, Form};
use crate::features::table_features;
use crate::flow_mod::{ChangeRef, Criteria, MAX_PORTS, Step};
use crate::group::Groups;
use crate::host::Host;
use crate::meter::meter_features;
use crate::rule::RuleRef;
use crate::tables::{N_TABLES, N_VISIBLE_TABLES, TABLE_INTERNAL, Tables};

/// Nicira's flow formats.
const OPENFLOW_10: u32 = 0;
const NXM: u32 = 2;

impl Ofproto {
    /// Carries out one message of `c`, which is not among the connections meanwhile.
    pub(crate) fn handle(&mut self, c: &mut Connection, r: Received, now: Nanos, host: &mut dyn Host) {
        let result = match r.message {
            Ok(m) => self.handle_message(c, m, &r.frame, now, host),
            Err(e) => Err(e),
        };
        if let Err(e) = result {
            c.error(xid_of(&r.frame), e, &r.frame);
        }
    }

    fn handle_message(
        &mut self,
        c: &mut Connection,
        mut m: Message,
        frame: &[u8],
        now: Nanos,
        host: &mut dyn Host,
    ) -> Result<(), OfError> {
        let xid = m.xid;
        m.body.bind(self.tlvs.table().layout())?;
        match m.body {
            // What only we may say, and what needs no answer.
            Body::Error(_) | Body::FlowAge | Body::EchoReply(_) | Body::Hello(_) => Ok(()),
            Body::EchoRequest(data) => {
                c.reply(xid, Body::EchoReply(data));
                Ok(())
            }
            Body::FeaturesRequest => {
                let f = self.features(c);
                c.reply(xid, Body::FeaturesReply(Box::new(f)));
                Ok(())
            }
            Body::GetConfigRequest => {
                let old = c.version().is_some_and(|v| v < Version::V13);
                c.reply(
                    xid,
                    Body::GetConfigReply(Config {
                        frags: self.frags,
                        invalid_ttl_to_controller: old.then_some(c.invalid_ttl),
                        miss_send_len: c.miss_send_len,
                    }),
                );
                Ok(())
            }
            Body::SetConfig(cfg) => {
                self.set_config(c, &cfg);
                Ok(())
            }
            Body::BarrierRequest => {
                self.commit(host);
                self.publish_view(host);
                self.conns.deliver_with(c);
                c.reply(xid, Body::BarrierReply);
                Ok(())
            }
            Body::PacketOut(p) => self.packet_out(c, &p, host),
            Body::Resume(p) => {
                self.commit(host);
                host.resume(self.id(), &p)?;
                self.make_learned(host);
                Ok(())
            }
            Body::FlowMod(fm) | Body::NxFlowMod(fm) => {
                reject_secondary(c)?;
                let fm = prepared(*fm, c.version())?;
                self.source = Some((c.id, xid));
                let done = self.flow_mod(now, &fm);
                self.source = None;
                done
            }
            Body::PortMod(p) => {
                reject_secondary(c)?;
                self.port_mod(&p, c.version() >= Some(Version::V14), host)
            }
            Body::TableMod(t) => {
                reject_secondary(c)?;
                self.table_mod(&t)
            }
            // Nobody would read the answer.
            Body::MultipartRequest(_) if c.is_gone() => Ok(()),
            Body::MonitorCancel(id) => Self::cancel_monitor(c, id),
            Body::MultipartRequest(r) => self.multipart(c, xid, r, now, host),
            Body::RoleRequest(r) => {
                let reply = self.conns.request_role(c, &r)?;
                c.reply(xid, Body::RoleReply(reply));
                Ok(())
            }
            Body::GetAsyncRequest => {
                c.reply(xid, Body::GetAsyncReply(c.masks()));
                Ok(())
            }
            Body::SetAsync(a) => {
                c.set_masks(&a);
                Ok(())
            }
            Body::BundleControl(b) => {
                let outcome = c.bundles.control(&b, frame, now)?;
                self.bundle(c, xid, frame, outcome, now, host)
            }
            Body::BundleAdd(mut b) => {
                reject_secondary(c)?;
                if let Body::FlowMod(fm) | Body::NxFlowMod(fm) = &mut b.msg.body {
                    **fm = prepared(std::mem::take(&mut **fm), c.version())?;
                    self.check_flow_mod(fm)?;
                } else if let Body::PacketOut(p) = &b.msg.body {
                    self.check_packet_out(p)?;
                }
                c.bundles.add(&b, frame, now)
            }
            Body::SetFlowFormat(f) => {
                if !matches!(f, OPENFLOW_10 | NXM) {
                    return Err(OfError::BrcEperm);
                }
                c.nxm = f == NXM;
                Ok(())
            }
            Body::FlowModTableId(on) => {
                c.table_id_in_command = on;
                Ok(())
            }
            Body::SetPacketInFormat(f) => {
                c.packet_in_format = f;
                Ok(())
            }
            Body::SetControllerId(id) => {
                c.controller_id = id;
                Ok(())
            }
            Body::GroupMod(m) => {
                reject_secondary(c)?;
                self.source = Some((c.id, xid));
                let done = self.group_mod(now, &m);
                self.source = None;
                done?;
                self.conns.forward(xid, Body::GroupMod(m));
                Ok(())
            }
            Body::MeterMod(m) => {
                reject_secondary(c)?;
                self.meter_mod(now, &m)?;
                self.conns.forward(xid, Body::MeterMod(m));
                Ok(())
            }
            Body::QueueConfigRequest(port) => self.queue_configs(c, xid, port, host),
            Body::TlvTableMod(m) => {
                reject_secondary(c)?;
                let (tables, groups) = (&self.tables, &self.groups);
                self.tlvs.change(&m, || options_used(tables, groups))?;
                self.view_dirty = true;
                Ok(())
            }
            Body::TlvTableRequest => {
                c.reply(xid, Body::TlvTableReply(self.tlvs.reply()));
                Ok(())
            }
            Body::CtFlushZone(_) => Err(OfError::BrcBadSubtype),
            Body::FeaturesReply(_)
            | Body::GetConfigReply(_)
            | Body::BarrierReply
            | Body::PacketIn(_)
            | Body::NxPacketIn(..)
            | Body::FlowRemoved(_)
            | Body::NxFlowRemoved(_)
            | Body::PortStatus(_)
            | Body::MultipartReply(_)
            | Body::RoleReply(_)
            | Body::RoleStatus(_)
            | Body::QueueConfigReply(..)
            | Body::TableStatus(_)
            | Body::RequestForward(_)
            | Body::MonitorPaused
            | Body::MonitorResumed
            | Body::TlvTableReply(_)
            | Body::GetAsyncReply(_) => Err(OfError::BrcBadType),
        }
    }

    fn set_config(&mut self, c: &mut Connection, cfg: &Config) {
        // A tool that only wants packets must not change the switch for all.
        if c.role != Role::Secondary && cfg.frags != self.frags && cfg.frags != FragHandling::Reassemble {
            self.frags = cfg.frags;
            self.view_dirty = true;
        }
        if let Some(on) = cfg.invalid_ttl_to_controller {
            c.invalid_ttl = on;
        }
        c.miss_send_len = cfg.miss_send_len;
    }

    fn packet_out(&mut self, c: &Connection, p: &PacketOut, host: &mut dyn Host) -> Result<(), OfError> {
        reject_secondary(c)?;
        self.check_packet_out(p)?;
        self.commit(host);
        self.publish_view(host);
        host.packet_out(self.id(), p)?;
        self.make_learned(host);
        Ok(())
    }

    fn check_packet_out(&self, p: &PacketOut) -> Result<(), OfError> {
        if p.buffer_id != NO_BUFFER {
            return Err(OfError::BrcBufferUnknown);
        }
        let port = p.in_port();
        let ok = port.0 < 0xff00 || matches!(port, OfPort::LOCAL | OfPort::NONE | OfPort::CONTROLLER);
        if !ok {
            return Err(OfError::BrcBadPort);
        }
        self.check_actions(&p.actions, 0)
    }

    fn table_mod(&mut self, m: &TableMod) -> Result<(), OfError> {
        let all = m.table == TableId(0xff);
        if !all && usize::from(m.table.0) >= N_VISIBLE_TABLES {
            let internal = m.table == TableId(TABLE_INTERNAL);
            return Err(if internal { OfError::TmfcEperm } else { OfError::TmfcBadTable });
        }
        for (id, t) in self.tables.visible() {
            if all || TableId(id) == m.table {
                t.set_miss(m.miss);
                if let Some(on) = m.eviction {
                    t.set_evicts(on);
                }
                if let Some(v) = m.vacancy {
                    t.set_vacancy(v);
                }
            }
        }
        self.view_dirty = true;
        Ok(())
    }

    fn bundle(
        &mut self,
        c: &mut Connection,
        xid: u32,
        frame: &[u8],
        o: Outcome,
        now: Nanos,
        host: &mut dyn Host,
    ) -> Result<(), OfError> {
        let reply = match o {
            Outcome::Reply(r) => r,
            Outcome::Commit(commit, r) => {
                reject_secondary(c)?;
                if Self::is_large(&commit) {
                    self.commit(host);
                    self.begin_commit(c, xid, frame, commit, r, now);
                    return Ok(());
                }
                self.carry_out(c, xid, &commit, now, host)?;
                r
            }
        };
        c.reply(xid, Body::BundleControl(reply));
        Ok(())
    }

    /// All changes of flows and groups at once, then those of ports, then the packets, each as its place
    /// in the bundle saw the tables.
    fn carry_out(
        &mut self,
        c: &mut Connection,
        xid: u32,
        commit: &Commit,
        now: Nanos,
        host: &mut dyn Host,
    ) -> Result<(), OfError> {
        let tables = self.tables.clone();
        let changing = tables.changing();
        let mut steps = Vec::new();
        self.source = Some((c.id, xid));
        for i in 0..commit.mods.len() {
            if let Err(e) = self.bundled_start(c, commit, i, now, &mut steps, host) {
                host.end_packet_outs(false);
                self.revert(steps);
                self.source = None;
                // First what was wrong, in the name of the message that was, then that all failed.
                let bytes = commit.mods.bytes_of(i);
                c.error(xid_of(bytes), e, bytes);
                return Err(OfError::BfcMsgFailed);
            }
        }
        self.finish(now, steps);
        self.source = None;
        drop(changing);
        for i in 0..commit.mods.len() {
            self.bundled_finish(c, commit, i, host)?;
        }
        self.commit(host);
        self.publish_view(host);
        host.end_packet_outs(true);
        self.make_learned(host);
        Ok(())
    }

    /// Changes of ports cannot be undone, so that what is atomic may not hold any.
    fn bundled_start(
        &mut self,
        c: &Connection,
        commit: &Commit,
        i: usize,
        now: Nanos,
        steps: &mut Vec<Step>,
        host: &mut dyn Host,
    ) -> Result<(), OfError> {
        let mut body = commit.mods.get(i).transpose()?.map(|m| m.body);
        body.iter_mut().try_for_each(|b| b.bind(self.tlvs.table().layout()))?;
        match body {
            Some(Body::FlowMod(fm) | Body::NxFlowMod(fm)) => {
                let fm = prepared(*fm, c.version())?;
                self.change_start(now, ChangeRef::Flow(&fm), steps)
            }
            Some(Body::GroupMod(gm)) => self.change_start(now, ChangeRef::Group(&gm), steps),
            Some(Body::PortMod(_)) if commit.atomic => Err(OfError::BfcMsgFailed),
            Some(Body::PacketOut(p)) => {
                self.check_packet_out(&p)?;
                host.hold_packet_out(self.id(), &p, self.pending_view())
            }
            Some(Body::PortMod(m)) => self.check_port_mod(&m, c.version() >= Some(Version::V14)),
            _ => Ok(()),
        }
    }

    fn bundled_finish(
        &mut self,
        c: &Connection,
        commit: &Commit,
        i: usize,
        host: &mut dyn Host,
    ) -> Result<(), OfError> {
        if is_flow_mod(commit.mods.bytes_of(i)) {
            return Ok(());
        }
        let Some(m) = commit.mods.get(i).transpose()? else { return Ok(()) };
        match m.body {
            Body::GroupMod(g) => self.conns.forward(m.xid, Body::GroupMod(g)),
            Body::PortMod(p) => self.port_mod(&p, c.version() >= Some(Version::V14), host)?,
            _ => {}
        }
        Ok(())
    }

    fn multipart(
        &mut self,
        c: &mut Connection,
        xid: u32,
        r: Multipart<Request>,
        now: Nanos,
        host: &mut dyn Host,
    ) -> Result<(), OfError> {
        self.commit(host);
        let body = match r.body {
            Request::Desc => Reply::Desc(self.settings.desc.clone()),
            Request::Flow(f) => return self.dump_flows(c, xid, &f, false, now, host),
            Request::NxFlow(f) => return self.dump_flows(c, xid, &f, true, now, host),
            Request::Aggregate(f) => Reply::Aggregate(self.aggregate(&f, host)?),
            Request::NxAggregate(f) => Reply::NxAggregate(self.aggregate(&f, host)?),
            Request::Table => Reply::Table(self.table_stats(host)),
            Request::Port(p) => return self.port_stats(c, xid, p, now, host),
            Request::Queue { port, queue } => self.queue_stats(port, queue, host)?,
            Request::PortDesc(p) => {
                let all = self.ports_in_order().filter(|x| p == OfPort::NONE || x.view.ofp == p);
                Reply::PortDesc(all.map(|x| x.desc()).collect())
            }
            Request::TableFeatures(set) if set.is_empty() => {
                let all = (0..N_VISIBLE_TABLES as u8).map(|t| table_features(&self.tables, t)).collect();
                Reply::TableFeatures(all)
            }
            Request::TableFeatures(_) => return Err(OfError::TffcEperm),
            Request::FlowMonitor(l) => return self.flow_monitor(c, xid, &l),
            Request::Group(id) => {
                host.pull_stats(self.id());
                Reply::Group(self.group_stats(id, now))
            }
            Request::GroupDesc(id) => Reply::GroupDesc(self.group_descs(id)),
            Request::GroupFeatures => Reply::GroupFeatures(Self::group_features(c.version().unwrap_or(Version::V10))),
            Request::Meter(id) => Reply::Meter(self.meter_stats(id, now)?),
            Request::MeterConfig(id) => Reply::MeterConfig(self.meter_configs(id)?),
            Request::MeterFeatures => Reply::MeterFeatures(meter_features()),
            Request::QueueDesc { port, queue } => Reply::QueueDesc(self.queue_descs(port, queue, host)?),
            // Nothing exports flows.
            Request::Ipfix => return Err(OfError::NxStNotConfigured),
            Request::TableDesc => Reply::TableDesc(self.tables.visible().map(|(id, t)| t.desc(id)).collect()),
        };
        c.reply(xid, Body::MultipartReply(Multipart { more: false, body }));
        Ok(())
    }

    fn requested(&mut self, f: &FlowStatsRequest, host: &mut dyn Host) -> Result<Vec<RuleRef>, OfError> {
        host.pull_stats(self.id());
        // Packets counted only now may have brought flows back.
        self.make_learned(host);
        self.select(
            &Criteria {
                table: f.table,
                match_: &f.match_,
                cookie: f.cookie,
                cookie_mask: f.cookie_mask,
                out_port: f.out_port,
                out_group: f.out_group,
                strict: None,
            },
            self.tables.version(),
        )
    }

    fn dump_flows(
        &mut self,
        c: &mut Connection,
        xid: u32,
        f: &FlowStatsRequest,
        nx: bool,
        now: Nanos,
        host: &mut dyn Host,
    ) -> Result<(), OfError> {
        let rules = self.requested(f, host)?;
        let form = if nx { Form::NxFlow } else { Form::Flow };
        c.dump = Some(Dump::new(xid, form, rules, now));
        c.continue_dump();
        Ok(())
    }

    fn aggregate(&mut self, f: &FlowStatsRequest, host: &mut dyn Host) -> Result<AggregateStats, OfError> {
        let rules = self.requested(f, host)?;
        let sum = |f: fn(&RuleRef) -> u64| rules.iter().map(f).fold(0, u64::wrapping_add);
        let a = AggregateStats {
            packets: sum(|r| r.stats.packets()),
            bytes: sum(|r| r.stats.bytes()),
            flows: rules.len().min(u32::MAX as usize) as u32,
        };
        Ok(a)
    }

    fn table_stats(&mut self, host: &mut dyn Host) -> Vec<(TableStats, TableFeatures)> {
        host.pull_stats(self.id());
        let stats = |id: u8| {
            let t = self.tables.table(id)?;
            let (lookups, matched) = t.counters();
            let active = t.cls.len().min(u32::MAX as usize) as u32;
            Some(TableStats { table: TableId(id), active, lookups, matched })
        };
        (0..N_VISIBLE_TABLES as u8).filter_map(|id| Some((stats(id)?, table_features(&self.tables, id)))).collect()
    }

    fn port_stats(
        &mut self,
        c: &mut Connection,
        xid: u32,
        port: OfPort,
        now: Nanos,
        host: &mut dyn Host,
    ) -> Result<(), OfError> {
        let id = self.id();
        let all: Vec<_> = self
            .ports_in_order()
            .filter(|p| port == OfPort::NONE || p.view.ofp == port)
            .filter_map(|p| {
                let mut s = host.port_stats(id, p.view.ofp)?;
                s.duration_ns.get_or_insert(now.saturating_sub(p.created).ms() * 1_000_000);
                Some(s)
            })
            .collect();
        c.reply(xid, Body::MultipartReply(Multipart { more: false, body: Reply::Port(all) }));
        Ok(())
    }

    /// The queues of one port or all, as far as their statistics tell that they exist.
    fn queue_descs(&self, port: OfPort, queue: u32, host: &mut dyn Host) -> Result<Vec<QueueDesc>, OfError> {
        if port != OfPort::NONE && !self.ports.contains_key(&port) {
            return Err(OfError::QofcBadPort);
        }
        let mut all = Vec::new();
        for p in self.ports_in_order().map(|p| p.view.ofp).filter(|p| port == OfPort::NONE || *p == port) {
            let queues = host.queue_stats(self.id(), p).into_iter().map(|q| q.queue);
            let wanted = queues.filter(|q| queue == QUEUE_ALL || *q == queue);
            all.extend(wanted.map(|queue| QueueDesc { port_no: p, queue, ..QueueDesc::default() }));
        }
        if all.is_empty() && queue != QUEUE_ALL {
            return Err(OfError::QofcBadQueue);
        }
        Ok(all)
    }

    fn queue_configs(&self, c: &mut Connection, xid: u32, port: OfPort, host: &mut dyn Host) -> Result<(), OfError> {
        // 1.0 cannot ask for all ports.
        if port == OfPort::NONE && c.version() == Some(Version::V10) {
            return Err(OfError::QofcBadPort);
        }
        let queues = self.queue_descs(port, QUEUE_ALL, host)?;
        c.reply(xid, Body::QueueConfigReply(port, queues));
        Ok(())
    }

    fn queue_stats(&self, port: OfPort, queue: u32, host: &mut dyn Host) -> Result<Reply, OfError> {
        if port != OfPort::NONE && !self.ports.contains_key(&port) {
            return Err(OfError::QofcBadPort);
        }
        let mut all = Vec::new();
        for p in self.ports_in_order().filter(|p| port == OfPort::NONE || p.view.ofp == port) {
            for q in host.queue_stats(self.id(), p.view.ofp) {
                if queue == QUEUE_ALL || q.queue == queue {
                    all.push(q);
                }
            }
        }
        // Asking for one queue that no port has is an error, a wildcard may find nothing.
        if all.is_empty() && queue != QUEUE_ALL {
            return Err(OfError::QofcBadQueue);
        }
        Ok(Reply::Queue(all))
    }
}

/// By its type: most messages of a bundle are such.
pub(crate) fn is_flow_mod(message: &[u8]) -> bool {
    message.get(1) == Some(&14)
}

fn reject_secondary(c: &Connection) -> Result<(), OfError> {
    if c.role == Role::Secondary { Err(OfError::BrcIsSecondary) } else { Ok(()) }
}

/// What a flow-mod of a connection means in its version, its actions checked against its match. The
/// counters of a flow that is added over another start anew in OpenFlow 1.0, and in 1.1 also those
/// of modified ones; later versions say so by a flag.
/// The options of tunnels that flows and groups name, a bit each.
fn options_used(tables: &Tables, groups: &Groups) -> u64 {
    let version = tables.version();
    let rules = tables.all().flat_map(|(_, t)| t.cls.rules(version));
    let of_rules = rules.fold(0, |all, r| all | r.matches().expand().mask.0.pipe.tun_present | options_of(&r.actions));
    let buckets = groups.values().flat_map(|g| &g.buckets);
    buckets.fold(of_rules, |all, b| all | options_of(&b.actions))
}

pub(crate) fn prepared(mut fm: FlowMod, v: Option<Version>) -> Result<FlowMod, OfError> {
    let version = v.unwrap_or(Version::V10);
    let resets = match version {
        Version::V10 => fm.command == FlowModCommand::Add,
        Version::V11 => !fm.command.is_delete(),
        _ => false,
    };
    if resets {
        fm.flags = fm.flags.with(FlowModFlags::RESET_COUNTS);
    }
    if !fm.command.is_delete() {
        let cx = CheckCx {
            match_: &fm.match_,
            max_port: OfPort(MAX_PORTS),
            table: fm.table,
            n_tables: N_TABLES as u8,
            version,
        };
        check(&mut fm.actions, &cx)?;
        // No packet is ever buffered, so that a flow-mod cannot release one.
        if fm.buffer_id != NO_BUFFER {
            return Err(OfError::BrcBufferUnknown);
        }
    }
    Ok(fm)
}
