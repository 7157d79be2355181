//! Tables: lookup, resubmit, goto, and the limits on both.

use std::sync::Arc;

use fv_core::OfPort;
use fv_flow::key::FRAG_ANY;
use fv_ofproto::Rule;
use fv_ofproto::view::FragMode;
use fv_openflow::action::{Resubmit, TABLE_CURRENT};

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
        match rule {
            Some(rule) => self.recurse(rule),
            None => {
                self.enter(Kind::Table, |c| format!("{:2}. No match.", c.table));
                self.note(Kind::Action, |_| "drop".into());
                self.leave();
            }
        }
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

    /// The rule for the flow; with `honor_miss` the hidden rule of the miss.
    fn lookup(&mut self, table: u8, honor_miss: bool) -> Option<Arc<Rule>> {
        let mut flow = self.flow;
        if flow.base.nw_frag & FRAG_ANY != 0 {
            match self.br.frag_mode {
                FragMode::Normal => {
                    flow.dp.base.tp_src = 0.into();
                    flow.dp.base.tp_dst = 0.into();
                }
                FragMode::Drop => {
                    self.note(Kind::Detail, |_| {
                        "Packets are IP fragments and the fragment handling mode is \"drop\".".into()
                    });
                    return None;
                }
                FragMode::NxMatch => {}
            }
        }
        let tables = self.br.tables.clone();
        let found = tables.lookup(table, tables.version(), &flow, Some(&mut self.mask));
        self.credits.push(Credit::Table { tables: tables.clone(), table, hit: found.is_some() });
        if found.is_some() || !honor_miss {
            return found;
        }
        self.br.miss_rule(table)
    }

    fn recurse(&mut self, rule: Arc<Rule>) {
        if rule.is_miss_rule() {
            self.enter(Kind::Table, |c| format!("{:2}. No match.", c.table));
        } else {
            let r = rule.clone();
            self.enter(Kind::Table, |c| rule_text(c.table, &r));
        }
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
fn rule_text(table: u8, rule: &Rule) -> String {
    let m = fv_flow::text::format_match(&rule.matching());
    let mut s = format!("{table:2}. ");
    if !m.is_empty() {
        s.push_str(&m);
        s.push_str(", ");
    }
    s.push_str(&format!("priority {}", rule.priority));
    let cookie = rule.cookie();
    if cookie != 0 {
        s.push_str(&format!(", cookie {cookie:#x}"));
    }
    s
}
