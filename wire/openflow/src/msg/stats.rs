//! Multipart messages ("statistics" up to OpenFlow 1.2).

use super::flow::{AggregateStats, FlowStats, FlowStatsRequest};
use super::port::{Port, PortStats, QueueStats};
use super::table::{TableDesc, TableFeatures, TableStats};
use fv_core::OfPort;

/// One part of a request or reply; `more` says that another follows.
#[derive(Clone, PartialEq, Debug)]
pub struct Multipart<T> {
    pub more: bool,
    pub body: T,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    Desc,
    Flow(Box<FlowStatsRequest>),
    Aggregate(Box<FlowStatsRequest>),
    Table,
    /// `OfPort::NONE` is all.
    Port(OfPort),
    Queue {
        port: OfPort,
        queue: u32,
    },
    /// OpenFlow 1.5 may ask for one port; `OfPort::NONE` is all.
    PortDesc(OfPort),
    /// An empty list asks; a list with entries wants to set.
    TableFeatures(Vec<TableFeatures>),
    TableDesc,
    /// Nicira's forms of Flow and Aggregate (OpenFlow 1.0).
    NxFlow(Box<FlowStatsRequest>),
    NxAggregate(Box<FlowStatsRequest>),
}

#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    Desc(Desc),
    Flow(Vec<FlowStats>),
    Aggregate(AggregateStats),
    /// With what each table's features say of names and limits (OpenFlow 1.0 to 1.2 report them here).
    Table(Vec<(TableStats, TableFeatures)>),
    Port(Vec<PortStats>),
    Queue(Vec<QueueStats>),
    PortDesc(Vec<Port>),
    TableFeatures(Vec<TableFeatures>),
    TableDesc(Vec<TableDesc>),
    NxFlow(Vec<FlowStats>),
    NxAggregate(AggregateStats),
}

/// Description of the switch; texts are cut to the protocol's sizes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Desc {
    pub manufacturer: String,
    pub hardware: String,
    pub software: String,
    pub serial: String,
    pub datapath: String,
}

/// Nothing selects a queue: all of them.
pub const QUEUE_ALL: u32 = 0xffff_ffff;
