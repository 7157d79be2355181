//! Tables: lookup, resubmit, goto, and the limits on both.

use fv_core::OfPort;
use fv_flow::key::FRAG_ANY;
use fv_ofproto::{PortView, RuleRef};
use fv_openflow::action::{Action, Resubmit, TABLE_CURRENT};
use fv_openflow::msg::FragHandling;
use fv_openflow::msg::port::PortConfig;
use fv_openflow::msg::table::TableMiss;

use crate::ctx::{Credit, Ctx, Frozen, Looked, MAX_ACTIONS, MAX_DEPTH, MAX_RESUBMITS, MAX_STACK, XlateError, no_recv};
use crate::trace::Kind;

impl Ctx<'_> {
    /// Looks the flow up in `table` as if it had come in on `in_port` and does what the rule says.
    ///
    /// `honor_miss`: a miss follows the table's miss configuration, else nothing happens.
    /// `packet_in`: a miss may go to a controller.
    pub fn table_action(&mut self, in_port: OfPort, table: u8, honor_miss: bool, packet_in: bool) {
        self.table_action_then(in_port, table, honor_miss, packet_in, Self::follow, |_| ());
    }

    /// As [`Self::table_action`]; `follow` does what the rule says. What `then` does is told as part of
    /// the table.
    pub fn table_action_then(
        &mut self,
        in_port: OfPort,
        table: u8,
        honor_miss: bool,
        packet_in: bool,
        follow: fn(&mut Self, RuleRef),
        then: impl FnOnce(&mut Self),
    ) {
        if self.was_mpls {
            // What the rules match is below the popped label.
            self.freeze_here();
            self.rest.push(if honor_miss {
                Action::GotoTable(table)
            } else {
                Action::Resubmit(Resubmit { in_port, table, with_ct_orig: false })
            });
            return then(self);
        }
        if !self.may_go_deeper() {
            return then(self);
        }
        let old_table = self.table;
        let rule = self.lookup(in_port, table, honor_miss, packet_in);
        self.enter(Kind::Table, |c| rule_text(c, table, &rule));
        self.credits.push(Credit::Rule(rule.clone()));
        let deeper = u32::from(table <= old_table);
        self.resubmits += 1;
        self.depth += deeper;
        follow(self, rule);
        self.depth -= deeper;
        then(self);
        self.leave();
        self.table = old_table;
    }

    /// The whole way of a received packet. If the port of entry drops the packet, it is told and
    /// counted, but what the rule says is not done.
    pub fn first_table(&mut self, in_port: OfPort, p: Option<&PortView>, lost: bool) {
        let rule = self.lookup(in_port, 0, true, true);
        self.enter(Kind::Table, |c| rule_text(c, 0, &rule));
        self.credits.push(Credit::Rule(rule.clone()));
        // What the port's protocols take is nobody else's, but counts for the rule.
        let consumed = lost || p.is_some_and(|p| self.is_special(p) || no_recv(p, self.flow.base.dl_dst));
        if !consumed {
            self.follow(rule.clone());
            // What the action set sends to a controller bears this rule's cookie.
            self.rule = Some(rule);
            self.end_of_pipeline();
        }
        self.leave();
    }

    pub fn may_go_deeper(&mut self) -> bool {
        if self.depth >= MAX_DEPTH {
            self.note(Kind::Error, |_| format!("over max translation depth {MAX_DEPTH}"));
            self.fail(XlateError::RecursionTooDeep);
        } else if self.resubmits >= MAX_RESUBMITS {
            self.note(Kind::Error, |_| format!("over {MAX_RESUBMITS} resubmit actions"));
            self.fail(XlateError::TooManyResubmits);
        } else if self.out.len() > MAX_ACTIONS {
            self.note(Kind::Error, |_| "resubmits yielded over 64 kB of actions".into());
            self.exit = true;
        } else if self.stack_bytes() >= MAX_STACK {
            self.note(Kind::Error, |_| "resubmits yielded over 64 kB of stack".into());
            self.fail(XlateError::StackTooDeep);
        } else {
            return true;
        }
        false
    }

    /// Each entry has a byte for its length.
    fn stack_bytes(&self) -> usize {
        self.stack.iter().map(|p| usize::from(p.n_bytes) + 1).sum()
    }

    /// The rule for the flow; where no flow matches, one of the hidden rules that say what then.
    fn lookup(&mut self, in_port: OfPort, table: u8, honor_miss: bool, packet_in: bool) -> RuleRef {
        let tables = self.br.tables.clone();
        let mut flow = self.flow;
        flow.dp.base.in_port = in_port.0;
        if self.flow.base.nw_frag & FRAG_ANY != 0 {
            match self.br.frags {
                FragHandling::Normal | FragHandling::Reassemble => {
                    // Rules must not see ports that later fragments do not have.
                    flow.dp.base.tp_src = 0.into();
                    flow.dp.base.tp_dst = 0.into();
                }
                FragHandling::Drop => {
                    self.table = table;
                    self.credits.push(Credit::Table { tables: tables.clone(), table, hit: true });
                    return tables.drop_frags_rule().clone();
                }
                FragHandling::NxMatch => {}
            }
        }
        let mut table = table;
        let miss = loop {
            self.looked.tables |= Looked::table_bit(self.br.id, table);
            let words = flow.words().iter().zip(self.inp.key.words()).enumerate();
            self.looked.altered |= words.fold(0, |a, (w, (now, first))| a | u128::from(now != first) << w);
            let i = self.snapshot();
            let found = self.snapshots[i].1.lookup(table, &flow, Some(&mut self.mask));
            self.credits.push(Credit::Table { tables: tables.clone(), table, hit: found.is_some() });
            self.table = table;
            if let Some(rule) = found {
                return rule;
            }
            let miss =
                if honor_miss { tables.table(table).map_or(TableMiss::Default, |t| t.miss()) } else { TableMiss::Drop };
            if miss != TableMiss::Continue || table >= fv_ofproto::TABLE_INTERNAL - 1 {
                break miss;
            }
            table += 1;
        };
        let controller = match miss {
            TableMiss::Continue | TableMiss::Controller => self.packet_in_ok(),
            TableMiss::Default => self.br.wants_miss,
            TableMiss::Drop => false,
        };
        if packet_in && controller { tables.miss_rule().clone() } else { tables.no_packet_in_rule().clone() }
    }

    /// Index of the current bridge's snapshot: one version for all lookups of a translation.
    pub fn snapshot(&mut self) -> usize {
        let id = self.br.id;
        self.snapshots.iter().position(|s| s.0 == id).unwrap_or_else(|| {
            self.snapshots.push((id, self.br.snapshot()));
            self.snapshots.len() - 1
        })
    }

    /// The port of entry is there and may send misses to controllers.
    fn packet_in_ok(&self) -> bool {
        self.port(self.in_port()).is_some_and(|p| !p.config.has(PortConfig::NO_PACKET_IN))
    }

    fn follow(&mut self, rule: RuleRef) {
        let actions = rule.actions.clone();
        let old = self.rule.replace(rule);
        // What a bucket leads to is no longer the group's doing.
        let in_group = std::mem::take(&mut self.in_group);
        self.do_actions(&actions.0);
        self.in_group = in_group;
        self.rule = old;
    }

    /// The same with a copy of the packet, where what the rule does cannot be undone.
    pub fn follow_aside(&mut self, rule: RuleRef) {
        let actions = rule.actions.clone();
        let old = self.rule.replace(rule);
        let in_group = std::mem::take(&mut self.in_group);
        self.clone_actions(&actions.0);
        self.in_group = in_group;
        self.rule = old;
    }

    pub fn resubmit(&mut self, r: &Resubmit) {
        let in_port = if r.in_port == OfPort::IN_PORT { self.in_port() } else { r.in_port };
        let table = if r.table == TABLE_CURRENT { self.table } else { r.table };
        // From the switch's own table a miss is still a miss.
        let internal = self.table == fv_ofproto::TABLE_INTERNAL;
        self.table_action(in_port, table, internal, internal);
        // `exit` in the other table ends that table's actions and these.
    }

    /// The pipeline stops; `finish_freezing` sends the packet round.
    pub fn freeze_here(&mut self) {
        self.freezing = true;
        self.exit = true;
    }

    /// Ends the program with a recirculation that goes on with what is left.
    pub fn finish_freezing(&mut self) {
        self.commit();
        let cookie = self.rule.as_ref().map_or(self.thawed_cookie, |r| r.cookie);
        let paused = self.pause.take();
        let state = Frozen {
            bridge: self.br.id,
            table: 0,
            key: crate::controller::metadata_of(&self.flow),
            stack: self.stack.clone(),
            // A group's bucket that stops takes along what the list around it still has.
            action_set: self.action_set.clone(),
            actions: std::mem::take(&mut self.rest),
            cookie,
            userdata: paused.as_ref().map_or_else(Vec::new, |c| c.userdata.clone()),
            pause: paused.is_some(),
        };
        match paused {
            // Nobody is asked about a packet that is not there.
            Some(_) if self.inp.trace && self.inp.packet.is_none() => {}
            Some(c) => self.controller_upcall(&c, c.reason, state),
            None => {
                let id = self.freeze(state);
                if let Some(algorithm) = self.hash_first.take() {
                    self.out.push(fv_dpif::DpAction::Hash(algorithm));
                }
                self.out.push(fv_dpif::DpAction::Recirc(id));
            }
        }
        self.unrolled = None;
        self.freezing = false;
        self.was_mpls = false;
        self.exit = true;
    }

    /// Continues a frozen pipeline.
    pub fn thaw(&mut self, f: &Frozen) {
        self.table = f.table;
        self.thawed_cookie = f.cookie;
        self.stack.clone_from(&f.stack);
        self.action_set.clone_from(&f.action_set);
        self.flow.pipe = f.key.pipe;
        (self.flow.dp.tun, self.flow.dp.opts) = (f.key.tun, f.key.opts);
        self.flow.dp.base.in_port = f.key.base.in_port;
        self.enter(Kind::Table, |_| "thaw".into());
        self.note(Kind::Table, |_| format!("Resuming from table {}", f.table));
        if !f.action_set.is_empty() {
            self.note(Kind::Table, |c| format!("Restoring action set: {}", c.actions_text(&f.action_set)));
        }
        if !f.actions.is_empty() {
            self.note(Kind::Table, |c| format!("Restoring actions: {}", c.actions_text(&f.actions)));
        }
        self.leave();
        if f.actions.is_empty() {
            let port = self.in_port();
            self.table_action(port, f.table, true, true);
        } else {
            self.do_actions(&f.actions);
        }
    }

    /// OpenFlow 1.1+: what `write_actions` collected, in the specification's order.
    pub fn execute_action_set(&mut self) {
        if self.action_set.is_empty() {
            return;
        }
        let set = crate::actions::ordered_set(&std::mem::take(&mut self.action_set));
        if set.is_empty() {
            return;
        }
        self.in_action_set = true;
        let is_last = std::mem::replace(&mut self.is_last, true);
        self.enter(Kind::Table, |_| "--. Executing action set:".into());
        self.do_actions(&set);
        self.leave();
        self.in_action_set = false;
        self.is_last = is_last;
    }
}

/// " 0. ip,in_port=1, priority 10, cookie 0x5"
fn rule_text(c: &Ctx<'_>, n: u8, rule: &RuleRef) -> String {
    let tables = &c.br.tables;
    if std::sync::Arc::ptr_eq(rule, tables.miss_rule()) {
        return format!("{n:2}. No match, and a \"packet-in\" is called for.");
    }
    if std::sync::Arc::ptr_eq(rule, tables.no_packet_in_rule()) {
        return format!("{n:2}. No match.");
    }
    if std::sync::Arc::ptr_eq(rule, tables.drop_frags_rule()) {
        return format!("{n:2}. Packets are IP fragments and the fragment handling mode is \"drop\".");
    }
    let m = c.match_text(&fv_ofproto::rule::match_of(rule));
    let mut s = format!("{n:2}. ");
    if !m.is_empty() {
        s.push_str(&m);
        s.push_str(", ");
    }
    s.push_str(&format!("priority {}", rule.priority()));
    if rule.cookie != 0 {
        s.push_str(&format!(", cookie {:#x}", rule.cookie));
    }
    s
}
