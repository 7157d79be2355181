//! Tables: lookup, resubmit, goto, and the limits on both.

use fv_core::OfPort;
use fv_flow::key::FRAG_ANY;
use fv_ofproto::RuleRef;
use fv_openflow::action::{Resubmit, TABLE_CURRENT};
use fv_openflow::msg::FragHandling;
use fv_openflow::msg::port::PortConfig;
use fv_openflow::msg::table::TableMiss;

use crate::ctx::{Credit, Ctx, Frozen, MAX_DEPTH, MAX_RESUBMITS, XlateError};
use crate::trace::Kind;

impl Ctx<'_> {
    /// Looks the flow up in `table` as if it had come in on `in_port` and does what the rule says.
    ///
    /// `honor_miss`: a miss follows the table's miss configuration, else nothing happens.
    pub fn table_action(&mut self, in_port: OfPort, table: u8, honor_miss: bool) {
        if !self.may_go_deeper() {
            return;
        }
        let (old_table, old_port) = (self.table, self.flow.base.in_port);
        self.table = table;
        self.flow.dp.base.in_port = in_port.0;
        let rule = self.lookup(table, honor_miss);
        self.flow.dp.base.in_port = old_port;
        self.recurse(rule);
        self.table = old_table;
    }

    fn may_go_deeper(&mut self) -> bool {
        if self.depth >= MAX_DEPTH {
            self.note(Kind::Error, |_| format!("over max translation depth {MAX_DEPTH}"));
            self.fail(XlateError::RecursionTooDeep);
        } else if self.resubmits >= MAX_RESUBMITS {
            self.note(Kind::Error, |_| format!("over {MAX_RESUBMITS} resubmit actions"));
            self.fail(XlateError::TooManyResubmits);
        } else {
            return true;
        }
        false
    }

    /// The rule for the flow; where no flow matches, one of the hidden rules that say what then.
    fn lookup(&mut self, table: u8, honor_miss: bool) -> RuleRef {
        let tables = self.br.tables.clone();
        let mut flow = self.flow;
        if flow.base.nw_frag & FRAG_ANY != 0 {
            match self.br.frags {
                FragHandling::Normal | FragHandling::Reassemble => {
                    flow.dp.base.tp_src = 0.into();
                    flow.dp.base.tp_dst = 0.into();
                }
                FragHandling::Drop => return tables.drop_frags_rule().clone(),
                FragHandling::NxMatch => {}
            }
        }
        let mut table = table;
        loop {
            let i = self.snapshot();
            let found = self.snapshots[i].1.lookup(table, &flow, Some(&mut self.mask));
            self.credits.push(Credit::Table { tables: tables.clone(), table, hit: found.is_some() });
            self.table = table;
            if let Some(rule) = found {
                return rule;
            }
            let miss = tables.table(table).map_or(TableMiss::Default, |t| t.miss());
            match miss {
                _ if !honor_miss => return tables.no_packet_in_rule().clone(),
                TableMiss::Continue if table < fv_ofproto::TABLE_INTERNAL - 1 => table += 1,
                TableMiss::Controller => return tables.miss_rule().clone(),
                TableMiss::Default if self.br.wants_miss && !self.no_packet_in() => return tables.miss_rule().clone(),
                _ => return tables.no_packet_in_rule().clone(),
            }
        }
    }

    /// Index of the current bridge's snapshot: one version for all lookups of a translation.
    fn snapshot(&mut self) -> usize {
        let id = self.br.id;
        self.snapshots.iter().position(|s| s.0 == id).unwrap_or_else(|| {
            self.snapshots.push((id, self.br.tables.snapshot()));
            self.snapshots.len() - 1
        })
    }

    /// The port of entry is configured not to send misses to controllers.
    fn no_packet_in(&self) -> bool {
        self.port(self.in_port()).is_some_and(|p| p.config.has(PortConfig::NO_PACKET_IN))
    }

    fn recurse(&mut self, rule: RuleRef) {
        let r = rule.clone();
        self.enter(Kind::Table, |c| rule_text(c, &r));
        self.credits.push(Credit::Rule(rule.clone()));
        self.resubmits += 1;
        self.depth += 1;
        let actions = rule.actions.clone();
        let old = self.rule.replace(rule);
        if actions.0.is_empty() {
            self.note(Kind::Action, |_| "drop".into());
        }
        self.do_actions(&actions.0);
        self.rule = old;
        self.depth -= 1;
        self.leave();
    }

    pub fn resubmit(&mut self, r: &Resubmit) {
        let in_port = if r.in_port == OfPort::IN_PORT { self.in_port() } else { r.in_port };
        let table = if r.table == TABLE_CURRENT { self.table } else { r.table };
        self.table_action(in_port, table, false);
        // `exit` in the other table ends that table's actions and these.
    }

    /// Continues a frozen pipeline.
    pub fn thaw(&mut self, f: &Frozen) {
        self.table = f.table;
        self.stack.clone_from(&f.stack);
        self.action_set.clone_from(&f.action_set);
        self.flow.pipe = f.key.pipe;
        self.flow.dp.base.in_port = f.key.base.in_port;
        if f.actions.is_empty() {
            let port = self.in_port();
            self.table_action(port, f.table, true);
        } else {
            self.enter(Kind::Table, |c| format!("Resuming from table {}", c.table));
            self.do_actions(&f.actions);
            self.leave();
        }
    }

    /// OpenFlow 1.1+: what `write_actions` collected, in the specification's order.
    pub fn execute_action_set(&mut self) {
        if self.action_set.is_empty() {
            return;
        }
        let set = crate::actions::ordered_set(&std::mem::take(&mut self.action_set));
        self.exit = false;
        self.enter(Kind::Table, |_| "--. Executing action set:".into());
        self.do_actions(&set);
        self.leave();
    }
}

/// " 0. ip,in_port=1, priority 10, cookie 0x5"
fn rule_text(c: &Ctx<'_>, rule: &RuleRef) -> String {
    let (n, tables) = (c.table, &c.br.tables);
    if std::sync::Arc::ptr_eq(rule, tables.miss_rule()) || std::sync::Arc::ptr_eq(rule, tables.no_packet_in_rule()) {
        return format!("{n:2}. No match.");
    }
    if std::sync::Arc::ptr_eq(rule, tables.drop_frags_rule()) {
        return format!("{n:2}. Packets are IP fragments and the fragment handling mode is \"drop\".");
    }
    let m = crate::text::format_match(&rule.matches().expand());
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
