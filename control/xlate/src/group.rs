//! Groups: which bucket, and what it does.

use std::sync::Arc;

use fv_core::OfPort;
use fv_dpif::action::HashAlg;
use fv_flow::FlowMask;
use fv_flow::hash::{self, HashFields};
use fv_ofproto::{DpHash, DpHashAlg, Group};
use fv_openflow::msg::flow::GROUP_ANY;
use fv_openflow::msg::group::{Bucket, GroupType};
use fv_openflow::msg::port::PortConfig;

use crate::ctx::{Credit, Ctx};
use crate::trace::Kind;

/// Longest chain of groups that watch one another.
const MAX_WATCHED: u32 = 128;

impl Ctx<'_> {
    /// Sends the packet to a group. A select group may stop the pipeline until the datapath has
    /// computed a hash: then it is to be asked again.
    pub fn group(&mut self, id: u32) {
        if !self.may_go_deeper() {
            return;
        }
        // One that is gone: a frozen pipeline may still name it.
        let Some(group) = self.br.groups.get(&id).cloned() else { return };
        let outside = std::mem::replace(&mut self.in_group, true);
        match group.kind {
            GroupType::All | GroupType::Indirect => {
                let is_last = self.is_last;
                for (i, bucket) in group.buckets.iter().enumerate() {
                    self.is_last = is_last && i + 1 == group.buckets.len();
                    self.bucket(bucket);
                }
                self.is_last = is_last;
                self.credits.push(Credit::Group(group, None));
            }
            GroupType::Select => {
                let chosen = self.select(&group);
                self.one_bucket(group, chosen);
            }
            GroupType::FastFailover => {
                let chosen = self.first_live(&group, 0);
                self.one_bucket(group, chosen);
            }
        }
        self.in_group = outside;
    }

    fn one_bucket(&mut self, group: Arc<Group>, chosen: Option<usize>) {
        let Some((i, bucket)) = chosen.and_then(|i| Some((i, group.buckets.get(i)?))) else {
            self.note(Kind::Detail, |_| "no live bucket".into());
            return;
        };
        self.note(Kind::Detail, |_| format!("using bucket {}", bucket.bucket_id));
        self.bucket(bucket);
        self.credits.push(Credit::Group(group, Some(i)));
    }

    /// Executes a bucket as an action set. What it changes in the packet is undone afterwards, and
    /// where it ends, the list that named the group goes on.
    fn bucket(&mut self, bucket: &Bucket) {
        if self.error.is_some() {
            return;
        }
        let list = crate::actions::ordered_set(&bucket.actions.0);
        let (flow, was_mpls) = (self.flow, self.was_mpls);
        let rest = std::mem::take(&mut self.rest);
        self.enter(Kind::Bucket, |_| format!("bucket {}", bucket.bucket_id));
        self.depth += 1;
        self.do_actions(&list);
        self.depth -= 1;
        if self.freezing {
            self.finish_freezing();
        }
        self.leave();
        self.rest = rest;
        (self.flow, self.was_mpls) = (flow, was_mpls);
        if self.error.is_none() {
            self.exit = false;
        }
    }

    fn select(&mut self, group: &Group) -> Option<usize> {
        let best = match &group.dp_hash {
            Some(table) => return self.by_dp_hash(group, table),
            None if group.props.fields.is_empty() => self.default_hash(),
            None => self.fields_hash(group),
        };
        let mut chosen = None;
        for (i, bucket) in group.buckets.iter().enumerate() {
            if !self.is_live(group, bucket, 0) {
                continue;
            }
            let score = (hash::int(bucket.bucket_id, best) & 0xffff) * u32::from(bucket.weight);
            self.note(Kind::Detail, |_| format!("bucket {}: score {score}", bucket.bucket_id));
            if chosen.is_none_or(|(_, most)| score > most) {
                chosen = Some((i, score));
            }
        }
        chosen.map(|(i, _)| i)
    }

    /// By the hash that the datapath put into the packet, or has yet to.
    fn by_dp_hash(&mut self, group: &Group, table: &DpHash) -> Option<usize> {
        let hash = self.flow.base.dp_hash;
        if hash == 0 {
            let basis = table.basis;
            self.hash_first = Some(match table.alg {
                DpHashAlg::SymL4 => HashAlg::SymL4 { basis },
                DpHashAlg::L4 => HashAlg::L4 { basis },
            });
            self.freeze_here();
            return None;
        }
        self.mask.0.dp.base.dp_hash |= table.mask();
        // Among several hundred candidates are few buckets: what is said of each is not worth a line.
        let tracer = self.tracer.take();
        let live = |i: &usize| group.buckets.get(*i).is_some_and(|b| self.is_live(group, b, 0));
        let chosen = table.candidates(hash).find(live);
        self.tracer = tracer;
        chosen
    }

    fn default_hash(&mut self) -> u32 {
        HashFields::SymmetricL4.unwildcard(&self.flow, &mut self.mask);
        HashFields::SymmetricL4.hash(&self.flow.dp, 0)
    }

    /// The hash of the fields that the group names and the packet has.
    fn fields_hash(&mut self, group: &Group) -> u32 {
        let mut h = hash::finish(hash::add64(0, group.props.selection_param), 8);
        let mut looked_at = FlowMask::default();
        for (field, mask) in &group.props.fields {
            if field.prerequisites_met_wc(&self.flow, &mut looked_at) {
                let value = field.value(&self.flow) & *mask;
                h = hash::bytes(&value.to_be_bytes(field.n_bytes()), h);
                looked_at.set_bits(*field, mask);
            }
        }
        self.mask.merge(&looked_at);
        h
    }

    /// Whether the bucket may be used: it watches nothing, or something that is alive.
    fn is_live(&mut self, group: &Group, bucket: &Bucket, depth: u32) -> bool {
        let (port, watched) = (bucket.watch_port, bucket.watch_group);
        let dead_weight = group.kind == GroupType::Select && bucket.weight == 0;
        let watches = port != OfPort::NONE || watched != GROUP_ANY;
        let live = !dead_weight
            && (!watches
                || self.is_port_live(port)
                || (watched != GROUP_ANY && self.is_group_live(watched, depth + 1)));
        if !live {
            self.note(Kind::Detail, |_| {
                let what = match (port, watched) {
                    (OfPort::NONE, GROUP_ANY) => String::new(),
                    (OfPort::NONE, group) => format!("port {group}"),
                    (port, _) => format!("port {port}"),
                };
                format!("bucket {}: not live due to {what}", bucket.bucket_id)
            });
        }
        live
    }

    fn is_port_live(&self, port: OfPort) -> bool {
        let live = |p: &fv_ofproto::PortView| p.is_live() && !p.config.has(PortConfig::PORT_DOWN);
        self.br.ports.get(&port).is_some_and(live)
    }

    fn is_group_live(&mut self, id: u32, depth: u32) -> bool {
        if depth >= MAX_WATCHED {
            log::warn!(target: "ofproto_dpif_xlate", "bucket chaining exceeded {MAX_WATCHED} links");
            return false;
        }
        self.br.groups.get(&id).cloned().is_some_and(|g| self.first_live(&g, depth).is_some())
    }

    fn first_live(&mut self, group: &Group, depth: u32) -> Option<usize> {
        (0..group.buckets.len()).find(|i| self.is_live(group, &group.buckets[*i], depth))
    }
}
