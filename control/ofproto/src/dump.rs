//! Replies that may be long: flows are turned into messages while the peer reads them.

use fv_core::Nanos;
use fv_openflow::msg::flow::{FlowModFlags, FlowStats};
use fv_openflow::msg::monitor::MonitorEvent;
use fv_openflow::msg::stats::Multipart;
use fv_openflow::msg::{Body, Reply};

use crate::conn::{Connection, TX_HIGH};
use crate::monitor::flow_update;
use crate::rule::RuleRef;

/// Flows in one message; the largest has a 64 KiB list of actions of its own.
const CHUNK_BYTES: usize = 48 << 10;
/// What a flow takes besides actions, usually.
const FLOW_BYTES: usize = 150;

pub(crate) struct Dump {
    xid: u32,
    form: Form,
    now: Nanos,
    rules: std::iter::Peekable<std::vec::IntoIter<RuleRef>>,
    /// What happened to each, and whether its actions are told, if the form is `Changes`.
    events: Vec<(MonitorEvent, bool)>,
    /// Rules that are told.
    done: usize,
}

/// What the flows become.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Flow,
    /// Nicira's.
    NxFlow,
    /// A monitor's first flows; so many of them with actions, then those without.
    Monitor {
        with_actions: usize,
    },
    /// What changed while a monitor was paused.
    Changes,
}

impl Dump {
    /// Statistics of `rules` as of `now`.
    pub(crate) fn new(xid: u32, form: Form, rules: Vec<RuleRef>, now: Nanos) -> Dump {
        Dump { xid, form, now, done: 0, rules: rules.into_iter().peekable(), events: Vec::new() }
    }

    /// Changes of flows, each with whether its actions are told.
    pub(crate) fn of_changes(changes: Vec<(RuleRef, MonitorEvent, bool)>) -> Dump {
        let (rules, events) = changes.into_iter().map(|(r, e, actions)| (r, (e, actions))).unzip();
        Dump { events, ..Dump::new(0, Form::Changes, rules, Nanos::ZERO) }
    }

    fn next_part(&mut self) -> Body {
        let (mut flows, mut updates) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        while let Some(r) = self.rules.peek() {
            // A guess from the number of actions; the encoder splits what is still too long.
            let size = FLOW_BYTES + r.actions.len() * 64;
            if bytes > 0 && bytes + size > CHUNK_BYTES {
                break;
            }
            bytes += size;
            match self.form {
                Form::Monitor { with_actions } => {
                    updates.push(flow_update(MonitorEvent::Initial, r, self.done < with_actions));
                }
                Form::Changes => {
                    let (event, actions) =
                        self.events.get(self.done).copied().unwrap_or((MonitorEvent::Modified, true));
                    // Gone by now: that was told at once.
                    if r.removed_at().is_none() {
                        updates.push(flow_update(event, r, actions));
                    }
                }
                Form::Flow | Form::NxFlow => flows.push(flow_stats(r, self.now)),
            }
            self.done += 1;
            self.rules.next();
        }
        let more = self.rules.peek().is_some() && self.form != Form::Changes;
        let body = match self.form {
            Form::Flow => Reply::Flow(flows),
            Form::NxFlow => Reply::NxFlow(flows),
            Form::Monitor { .. } | Form::Changes => Reply::FlowMonitor(updates),
        };
        Body::MultipartReply(Multipart { more, body })
    }
}

impl Connection {
    /// Adds one message to the reply under way, if the peer reads; false if there was nothing to do.
    pub(crate) fn continue_dump(&mut self) -> bool {
        if self.output().len() >= TX_HIGH || self.closed().is_some() {
            return false;
        }
        let Some(d) = &mut self.dump else { return false };
        let part = d.next_part();
        let (xid, done, resumes) = (d.xid, d.rules.peek().is_none(), d.form == Form::Changes);
        if done {
            self.dump = None;
        }
        self.reply(xid, part);
        if done && resumes {
            self.tell_monitor_resumed();
        }
        if done {
            self.send_deferred();
        }
        true
    }
}

/// What a statistics reply says of a rule.
pub fn flow_stats(r: &RuleRef, now: Nanos) -> FlowStats {
    let (duration_s, duration_ns) = duration(now.saturating_sub(r.created));
    let seconds = |t: Nanos| Some(now.saturating_sub(t).secs().min(0xffff) as u16);
    FlowStats {
        match_: crate::rule::match_of(r),
        cookie: r.cookie,
        table: r.table,
        priority: r.priority().clamp(0, 0xffff) as u16,
        duration_s,
        duration_ns,
        idle_timeout_s: r.idle_timeout_s(),
        hard_timeout_s: r.hard_timeout_s(),
        idle_age_s: seconds(r.stats.used()),
        hard_age_s: seconds(r.modified()),
        importance: r.importance,
        flags: FlowModFlags(r.flags.0),
        packets: r.stats.packets(),
        bytes: r.stats.bytes(),
        actions: (*r.actions).clone(),
    }
}

/// A duration as the protocol splits it, in whole milliseconds.
pub(crate) fn duration(d: Nanos) -> (u32, u32) {
    (d.secs().min(u64::from(u32::MAX)) as u32, (d.ms() % 1000) as u32 * 1_000_000)
}
