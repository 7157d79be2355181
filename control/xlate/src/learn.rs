//! `learn`: the flow that a packet teaches. It is made by control, which alone writes the tables.

use std::sync::Arc;

use fv_core::OfPort;
use fv_flow::FieldValue;
use fv_flow::{FlowKey, Match, TunLayout};
use fv_ofproto::learn::LearnJob;
use fv_openflow::action::{Action, Learn, LearnDst, LearnSrc, load};
use fv_openflow::msg::flow::{FlowMod, FlowModCommand, FlowModFlags, NO_BUFFER};

use crate::ctx::{Credit, Ctx, Effect};
use crate::trace::Kind;

impl Ctx<'_> {
    pub fn learn_flow(&mut self, l: &Learn) {
        for s in &l.specs {
            if let LearnSrc::Field(f) = &s.src {
                f.unwildcard(&mut self.mask);
            }
        }
        if self.inp.trace && self.inp.packet.is_none() {
            self.note(Kind::Warn, |_| "suppressing side effects, so learn action ignored".into());
            return;
        }
        let flow = flow_of(l, &self.flow, self.br.tun_options.layout());
        self.note(Kind::Detail, |c| flow_text(c, &flow));
        let job = Arc::new(LearnJob { flow, limit: l.limit });
        // Limits count rules of any match.
        self.looked = crate::ctx::Looked::ALL;
        let i = self.snapshot();
        let fits = match self.snapshots[i].1.may_learn(&job) {
            Ok(fits) => fits,
            Err(e) => {
                self.note(Kind::Error, |_| format!("LEARN action execution failed ({e})."));
                return;
            }
        };
        if let Some(dst) = &l.result_dst {
            self.load_subfield(dst, fits.into());
        }
        if !fits {
            self.note(Kind::Detail, |_| "Limit exceeded, learn failed".into());
            return;
        }
        let effect = Effect::Learn { tables: self.br.tables.clone(), job };
        self.credits.push(Credit::LearnRefresh(effect.clone()));
        self.effects.push(effect);
    }
}

/// The change that makes the flow which `l` says for a packet with this key.
pub fn flow_of(l: &Learn, key: &FlowKey, layout: &TunLayout) -> FlowMod {
    let mut match_ = Match { layout: *layout, ..Match::default() };
    let mut actions = Vec::new();
    if l.fin_idle_timeout_s != 0 || l.fin_hard_timeout_s != 0 {
        actions.push(Action::FinTimeout { idle_s: l.fin_idle_timeout_s, hard_s: l.fin_hard_timeout_s });
    }
    for s in &l.specs {
        let v = match &s.src {
            LearnSrc::Field(f) => f.value(key),
            LearnSrc::Value(v) => FieldValue::from_be_bytes(v),
        };
        match &s.dst {
            LearnDst::Match(d) => d.write_match(&mut match_, v),
            LearnDst::Load(d) => actions.push(load(*d, v)),
            LearnDst::Output => actions.extend(learned_port(v.0).map(|port| Action::Output { port, max_len: 0 })),
        }
    }
    let mut flags = FlowModFlags::default();
    if l.flags.send_flow_rem {
        flags = flags.with(FlowModFlags::SEND_FLOW_REM);
    }
    FlowMod {
        command: FlowModCommand::ModifyStrict,
        match_,
        priority: l.priority,
        new_cookie: l.cookie,
        modify_cookie: l.cookie != u64::MAX,
        table: l.table,
        idle_timeout_s: l.idle_timeout_s,
        hard_timeout_s: l.hard_timeout_s,
        buffer_id: NO_BUFFER,
        flags,
        actions: actions.into(),
        ..FlowMod::default()
    }
}

/// Ports that a learned flow may output to.
fn learned_port(v: u128) -> Option<OfPort> {
    let p = OfPort::from_u16(u16::try_from(v).ok()?);
    let named = [OfPort::IN_PORT, OfPort::FLOOD, OfPort::LOCAL, OfPort::ALL].contains(&p);
    (named || p.0 < 0xff00).then_some(p)
}

fn flow_text(c: &Ctx<'_>, f: &FlowMod) -> String {
    let mut t = format!("table={} {}", f.table, c.match_text(&f.match_));
    t.truncate(t.trim_end_matches(' ').len());
    t += &format!(" priority={}", f.priority);
    if f.new_cookie != 0 {
        t += &format!(" cookie={:#x}", f.new_cookie);
    }
    if f.idle_timeout_s != 0 {
        t += &format!(" idle={}", f.idle_timeout_s);
    }
    if f.hard_timeout_s != 0 {
        t += &format!(" hard={}", f.hard_timeout_s);
    }
    if f.flags.has(FlowModFlags::SEND_FLOW_REM) {
        t += " send_flow_rem";
    }
    let actions = if f.actions.is_empty() { "drop".into() } else { c.actions_text(&f.actions) };
    t + " actions=" + &actions
}
