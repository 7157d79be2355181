//! Groups: what controllers define, published whole with the view.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fv_core::Nanos;
use fv_openflow::msg::flow::{FlowRemovedReason, GROUP_ANY};
use fv_openflow::msg::group::*;
use fv_openflow::{OfError, Version};
use hashbrown::HashMap;

use crate::bridge::Ofproto;
use crate::dp_hash::DpHash;
use crate::dump::duration;
use crate::flow_mod::Step;
use crate::users::{Target, uses};

/// Buckets of one group: more than one message can define, so that only insertion meets it.
pub const MAX_BUCKETS: usize = 8192;
/// All types; weights, liveness and chaining.
const TYPES: u32 = 0xf;
const CAPABILITIES: u32 = 0x7;
/// Output, then set-MPLS-TTL to set-field, in OpenFlow 1.3's numbers.
const ACTIONS: u32 = 0x03ff_8001;

/// All groups of a bridge, by number.
pub type Groups = HashMap<u32, Arc<Group>>;

/// What was sent somewhere. Credited from any thread.
#[derive(Debug, Default)]
pub struct Counter {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    pub fn credit(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// (packets, bytes).
    pub fn read(&self) -> (u64, u64) {
        (self.packets.load(Relaxed), self.bytes.load(Relaxed))
    }
}

/// One group. A modification makes a new one.
#[derive(Debug)]
pub struct Group {
    pub id: u32,
    pub kind: GroupType,
    pub buckets: Vec<GroupBucket>,
    /// How a select group chooses.
    pub props: GroupProps,
    /// Of select groups that choose by the datapath's hash.
    pub dp_hash: Option<DpHash>,
    /// When the group was added; modifications keep it.
    pub created: Nanos,
    pub stats: Counter,
}

/// A bucket, and its counter, which survives the insertion and removal of others.
#[derive(Clone, Debug)]
pub struct GroupBucket {
    pub bucket: Bucket,
    pub stats: Arc<Counter>,
}

impl std::ops::Deref for GroupBucket {
    type Target = Bucket;
    fn deref(&self) -> &Bucket {
        &self.bucket
    }
}

impl Group {
    fn new(m: &GroupMod, created: Nanos) -> Group {
        let bucket = |b: &Bucket| GroupBucket { bucket: b.clone(), stats: Arc::default() };
        let buckets = m.buckets.iter().map(bucket).collect();
        Group::of(m.group_id, m.kind, buckets, m.props.clone(), created)
    }

    fn of(id: u32, kind: GroupType, buckets: Vec<GroupBucket>, props: GroupProps, created: Nanos) -> Group {
        let dp_hash = if kind == GroupType::Select { DpHash::of(&props, &buckets) } else { None };
        Group { id, kind, buckets, props, dp_hash, created, stats: Counter::default() }
    }

    fn with_buckets(&self, buckets: Vec<GroupBucket>) -> Group {
        Group::of(self.id, self.kind, buckets, self.props.clone(), self.created)
    }

    /// Counts packets that the group handled and that went to one of its buckets, or to all.
    pub fn credit(&self, bucket: Option<usize>, packets: u64, bytes: u64) {
        self.stats.credit(packets, bytes);
        let taken = bucket.map_or(&self.buckets[..], |b| self.buckets.get(b..=b).unwrap_or_default());
        taken.iter().for_each(|b| b.stats.credit(packets, bytes));
    }

    /// Groups that the packet may go to from here.
    fn next(&self) -> impl Iterator<Item = u32> {
        let named = self.buckets.iter().flat_map(|b| uses(&b.actions));
        named.filter_map(|t| if let Target::Group(id) = t { Some(id) } else { None })
    }

    fn position(&self, bucket_id: u32) -> Result<usize, OfError> {
        self.buckets.iter().position(|b| b.bucket_id == bucket_id).ok_or(OfError::GmfcUnknownBucket)
    }

    /// This group with more buckets: behind the one that the command names, first, or last.
    fn insert(&self, m: &GroupMod) -> Result<Group, OfError> {
        let at = match m.command_bucket_id {
            BUCKET_FIRST => 0,
            BUCKET_LAST => self.buckets.len(),
            id => self.position(id)? + 1,
        };
        if m.buckets.iter().any(|b| self.position(b.bucket_id).is_ok()) {
            return Err(OfError::GmfcBucketExists);
        }
        if self.buckets.len() + m.buckets.len() > MAX_BUCKETS {
            return Err(OfError::GmfcOutOfBuckets);
        }
        let mut buckets = self.buckets.clone();
        let new = m.buckets.iter().map(|b| GroupBucket { bucket: b.clone(), stats: Arc::default() });
        buckets.splice(at..at, new);
        Ok(self.with_buckets(buckets))
    }

    /// This group without a bucket, or without any. Where there is none, none is taken.
    fn remove(&self, bucket_id: u32) -> Result<Group, OfError> {
        let mut buckets = self.buckets.clone();
        match bucket_id {
            BUCKET_ALL => buckets.clear(),
            BUCKET_FIRST if buckets.is_empty() => {}
            BUCKET_FIRST => drop(buckets.remove(0)),
            BUCKET_LAST => drop(buckets.pop()),
            id => drop(buckets.remove(self.position(id)?)),
        }
        Ok(self.with_buckets(buckets))
    }

    fn desc(&self) -> GroupDesc {
        let buckets = self.buckets.iter().map(|b| b.bucket.clone()).collect();
        GroupDesc { kind: self.kind, group_id: self.id, buckets, props: self.props.clone() }
    }
}

impl Ofproto {
    pub fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }

    /// Carries out a group-mod. It is visible to lookups after the next publication of the view.
    pub fn group_mod(&mut self, now: Nanos, m: &GroupMod) -> Result<(), OfError> {
        self.complete_commit();
        let mut steps = Vec::new();
        let r = self.group_mod_start(now, m, &mut steps);
        match r {
            Ok(()) => self.finish(now, steps),
            Err(_) => self.revert(steps),
        }
        r
    }

    pub(crate) fn group_mod_start(&mut self, now: Nanos, m: &GroupMod, steps: &mut Vec<Step>) -> Result<(), OfError> {
        let old = self.groups.get(&m.group_id).cloned();
        let known = || old.as_deref().ok_or(OfError::GmfcUnknownGroup);
        let new = match m.command {
            GroupCommand::Delete => {
                self.delete_groups(m.group_id, steps);
                return Ok(());
            }
            GroupCommand::InsertBucket => known()?.insert(m)?,
            GroupCommand::RemoveBucket => known()?.remove(m.command_bucket_id)?,
            GroupCommand::Modify if old.is_none() => return Err(OfError::GmfcUnknownGroup),
            _ if m.group_id > GROUP_MAX => return Err(OfError::GmfcInvalidGroup),
            GroupCommand::Add if old.is_some() => return Err(OfError::GmfcGroupExists),
            GroupCommand::Add => Group::new(m, now),
            GroupCommand::Modify => Group::new(m, known()?.created),
            GroupCommand::AddOrModify => Group::new(m, old.as_ref().map_or(now, |o| o.created)),
        };
        if new.buckets.len() > MAX_BUCKETS {
            return Err(OfError::GmfcOutOfBuckets);
        }
        if self.loops(&new) {
            return Err(OfError::GmfcLoop);
        }
        self.set_group(m.group_id, Some(Arc::new(new)), steps);
        Ok(())
    }

    /// Whether packets could come from the group back to it.
    fn loops(&self, new: &Group) -> bool {
        let mut seen = HashSet::new();
        let mut todo: Vec<u32> = new.next().collect();
        while let Some(id) = todo.pop() {
            if id == new.id {
                return true;
            }
            if seen.insert(id)
                && let Some(g) = self.groups.get(&id)
            {
                todo.extend(g.next());
            }
        }
        false
    }

    /// Deletes a group, or all, and the flows that use what is deleted.
    fn delete_groups(&mut self, id: u32, steps: &mut Vec<Step>) {
        let ids: Vec<u32> = match id {
            GROUP_ALL => self.groups.keys().copied().collect(),
            id => self.groups.contains_key(&id).then_some(id).into_iter().collect(),
        };
        for id in ids {
            self.delete_users(Target::Group(id), FlowRemovedReason::GroupDelete, steps);
            self.set_group(id, None, steps);
        }
    }

    /// Deletes the flows that use something, those of the change under way included.
    pub(crate) fn delete_users(&mut self, t: Target, why: FlowRemovedReason, steps: &mut Vec<Step>) {
        let mut rules = self.users.of(t);
        rules.extend(steps.iter().filter_map(|s| match s {
            Step::Added(r) | Step::Modified(r) if uses(&r.actions).contains(&t) => Some(r.clone()),
            _ => None,
        }));
        for r in rules {
            if r.removed_at().is_none() {
                self.remove_step(r, Some(why), steps);
            }
        }
    }

    /// Puts a group in, or takes it out; the step says how it was.
    fn set_group(&mut self, id: u32, group: Option<Arc<Group>>, steps: &mut Vec<Step>) {
        let old = self.put_group(id, group);
        steps.push(Step::Group(id, old));
    }

    pub(crate) fn put_group(&mut self, id: u32, group: Option<Arc<Group>>) -> Option<Arc<Group>> {
        self.view_dirty = true;
        // While the view still has the map, this copies it: pointers, once a publication.
        let groups = Arc::make_mut(&mut self.groups);
        match group {
            Some(g) => groups.insert(id, g),
            None => groups.remove(&id),
        }
    }

    /// One group or all, in the order of their numbers.
    fn requested_groups(&self, id: u32) -> Vec<&Arc<Group>> {
        let mut all: Vec<_> = match id {
            GROUP_ALL | GROUP_ANY => self.groups.values().collect(),
            id => self.groups.get(&id).into_iter().collect(),
        };
        all.sort_unstable_by_key(|g| g.id);
        all
    }

    pub(crate) fn group_descs(&self, id: u32) -> Vec<GroupDesc> {
        self.requested_groups(id).into_iter().map(|g| g.desc()).collect()
    }

    pub(crate) fn group_stats(&self, id: u32, now: Nanos) -> Vec<GroupStats> {
        let one = |g: &Arc<Group>| {
            let (packets, bytes) = g.stats.read();
            GroupStats {
                group_id: g.id,
                ref_count: self.users.count(Target::Group(g.id)),
                duration: Some(duration(now.saturating_sub(g.created))),
                packets,
                bytes,
                buckets: g.buckets.iter().map(|b| b.stats.read()).collect(),
            }
        };
        self.requested_groups(id).into_iter().map(one).collect()
    }

    pub(crate) fn group_features(v: Version) -> GroupFeatures {
        // 1.0's actions have no group among them.
        let actions = if v == Version::V10 { ACTIONS & !(1 << 22) } else { ACTIONS };
        GroupFeatures { types: TYPES, capabilities: CAPABILITIES, max_groups: [GROUP_MAX; 4], actions: [actions; 4] }
    }
}
