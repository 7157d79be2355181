//! Groups: modification, description, features, statistics.

use crate::action::Actions;
use fv_core::OfPort;
use fv_flow::field::{Field, FieldValue};

pub(crate) use super::group_codec::actions_out;

/// Highest number of a group.
pub const GROUP_MAX: u32 = 0xffff_ff00;
/// Every group.
pub const GROUP_ALL: u32 = 0xffff_fffc;
/// No bucket's number is above this.
pub const BUCKET_MAX: u32 = 0xffff_ff00;
pub const BUCKET_FIRST: u32 = 0xffff_fffd;
pub const BUCKET_LAST: u32 = 0xffff_fffe;
pub const BUCKET_ALL: u32 = 0xffff_ffff;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum GroupType {
    /// Every bucket gets the packet.
    #[default]
    All = 0,
    /// One of the buckets, by weight.
    Select = 1,
    /// The only bucket.
    Indirect = 2,
    /// The first live bucket.
    FastFailover = 3,
}

impl GroupType {
    pub const ALL: [GroupType; 4] = [GroupType::All, GroupType::Select, GroupType::Indirect, GroupType::FastFailover];

    /// As `ovs-ofctl` writes it.
    pub const fn name(self) -> &'static str {
        ["all", "select", "indirect", "ff"][self as usize]
    }

    /// Whether buckets of this type may name what must be alive.
    pub const fn watches(self) -> bool {
        matches!(self, GroupType::Select | GroupType::FastFailover)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum GroupCommand {
    Add = 0,
    Modify = 1,
    Delete = 2,
    InsertBucket = 3,
    RemoveBucket = 5,
    /// Nicira: adds what is not there.
    AddOrModify = 0x8000,
}

impl GroupCommand {
    pub(crate) const ALL: [GroupCommand; 6] = [
        GroupCommand::Add,
        GroupCommand::Modify,
        GroupCommand::Delete,
        GroupCommand::InsertBucket,
        GroupCommand::RemoveBucket,
        GroupCommand::AddOrModify,
    ];

    /// Whether the message says all of the group.
    pub const fn defines(self) -> bool {
        matches!(self, GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrModify)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// Numbered from 0 in versions that do not number buckets.
    pub bucket_id: u32,
    /// Of select groups; 0 in others.
    pub weight: u16,
    /// `OfPort::NONE` and [`super::flow::GROUP_ANY`]: nothing is watched.
    pub watch_port: OfPort,
    pub watch_group: u32,
    pub actions: Actions,
}

/// How a select group chooses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupProps {
    /// Empty: the switch's own choice. Else `hash` or `dp_hash`.
    pub selection_method: String,
    pub selection_param: u64,
    /// What `hash` looks at, with masks, in the fields' own order.
    pub fields: Vec<(Field, FieldValue)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMod {
    pub command: GroupCommand,
    pub kind: GroupType,
    pub group_id: u32,
    /// Where buckets are inserted or removed: a bucket's number or `BUCKET_*`.
    pub command_bucket_id: u32,
    pub buckets: Vec<Bucket>,
    pub props: GroupProps,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupDesc {
    pub kind: GroupType,
    pub group_id: u32,
    pub buckets: Vec<Bucket>,
    pub props: GroupProps,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupStats {
    pub group_id: u32,
    /// Flows and groups that send packets here.
    pub ref_count: u32,
    /// Seconds and nanoseconds; not in OpenFlow 1.1 and 1.2.
    pub duration: Option<(u32, u32)>,
    pub packets: u64,
    pub bytes: u64,
    /// (packets, bytes) of each bucket in its order.
    pub buckets: Vec<(u64, u64)>,
}

/// Arrays are in the order of [`GroupType::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupFeatures {
    /// Bit N: type N.
    pub types: u32,
    pub capabilities: u32,
    pub max_groups: [u32; 4],
    /// Bit N: action type N of OpenFlow 1.3.
    pub actions: [u32; 4],
}

impl Default for Bucket {
    fn default() -> Self {
        Bucket {
            bucket_id: 0,
            weight: 0,
            watch_port: OfPort::NONE,
            watch_group: super::flow::GROUP_ANY,
            actions: Actions::default(),
        }
    }
}

impl Default for GroupMod {
    fn default() -> Self {
        GroupMod {
            command: GroupCommand::Add,
            kind: GroupType::All,
            group_id: 0,
            command_bucket_id: BUCKET_ALL,
            buckets: Vec::new(),
            props: GroupProps::default(),
        }
    }
}
