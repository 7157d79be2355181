//! Answers to operators.

use std::fmt;

use fv_core::{DpPort, Nanos};
use fv_dpif::FlowDump;

use super::{Book, State};
use crate::caps::{Level, WhyNot};
use crate::rebalance::Place;

/// Why a flow is in software, or partly.
#[derive(Clone, PartialEq, Debug)]
pub enum WhySoft {
    Disabled,
    NoFlow,
    /// Its packets come from a port that is on no NIC with a flow table.
    NoNic(DpPort),
    /// Not looked at yet.
    New,
    Cannot(WhyNot),
    /// In hardware, which says of its packets which flow they are of; the rest it cannot.
    Partial(WhyNot),
    /// The NIC cannot do it, as it has said.
    Refused(Option<WhyNot>),
    UnderWay(&'static str),
    /// The table is full of flows that have more packets.
    Full {
        rate: f32,
        used: u32,
    },
    /// There is room, and it will be tried.
    Soon {
        rate: f32,
    },
    /// It has no packets.
    Idle,
}

impl fmt::Display for WhySoft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhySoft::Disabled => write!(f, "hardware offload is disabled"),
            WhySoft::NoFlow => write!(f, "there is no such flow"),
            WhySoft::NoNic(port) => write!(f, "port {port} is on no NIC that has a flow table"),
            WhySoft::New => write!(f, "it has not been looked at yet"),
            WhySoft::Cannot(why) => write!(f, "{why}"),
            WhySoft::Partial(why) => write!(f, "partially offloaded: {why}"),
            WhySoft::Refused(Some(why)) => write!(f, "the NIC refused it: {why}"),
            WhySoft::Refused(None) => write!(f, "the NIC refused it"),
            WhySoft::UnderWay(what) => write!(f, "it is being {what}"),
            WhySoft::Full { rate, used } => {
                write!(f, "the table is full: {used} flows have priority over its {rate:.0} packets/s")
            }
            WhySoft::Soon { rate } => write!(f, "it waits for its turn, with {rate:.0} packets/s"),
            WhySoft::Idle => write!(f, "it is idle"),
        }
    }
}

/// A table as operators see it.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolReport {
    pub provider: &'static str,
    pub name: String,
    pub ports: Vec<DpPort>,
    pub used: u32,
    /// As far as it is known.
    pub capacity: Option<u32>,
    /// Flows in hardware: wholly, and marked.
    pub full: usize,
    pub marked: usize,
    /// Flows that could be in hardware and are not.
    pub waiting: usize,
    /// Flows that the NIC cannot do, by reason.
    pub cannot: Vec<(String, usize)>,
    /// Packets a second in hardware, and those of flows that wait, as far as rates are known.
    pub rate_hardware: f64,
    pub rate_software: f64,
    pub moves_last_minute: usize,
    pub inserts: u64,
    pub swaps: u64,
}

impl Book {
    pub fn provider_names(&self) -> Vec<&'static str> {
        self.providers.iter().map(|p| p.name()).collect()
    }

    pub fn ports_of(&self, provider: &str) -> Vec<DpPort> {
        let of = |p: &&super::Pool| self.providers[p.provider].name() == provider;
        let mut ports: Vec<DpPort> = self.pools.iter().filter(of).flat_map(|p| p.ports.iter().copied()).collect();
        ports.sort();
        ports
    }

    pub fn why(&self, flow: &FlowDump, _now: Nanos) -> Option<WhySoft> {
        let port = DpPort(flow.key.base.in_port);
        let Some(entry) = self.by_ufid.get(&flow.ufid).map(|i| self.entry(*i)) else {
            return Some(if self.by_port.contains_key(&port) { WhySoft::New } else { WhySoft::NoNic(port) });
        };
        let Some(id) = entry.id else { return Some(entry.why.map_or(WhySoft::New, WhySoft::Cannot)) };
        match entry.state {
            State::Hard if entry.level == Level::Full => return None,
            State::Hard => return Some(WhySoft::Partial(entry.why.unwrap_or(WhyNot::NotAble))),
            State::Inserting | State::Waiting => return Some(WhySoft::UnderWay("inserted")),
            State::Removing => return Some(WhySoft::UnderWay("removed")),
            State::Soft => {}
        }
        if self.rebalancer.place(id) == Place::Barred {
            return Some(WhySoft::Refused(entry.why));
        }
        let (rate, info) = (self.rebalancer.rate(id), self.rebalancer.info(self.name_of(entry.pool)));
        let per_s = rate.estimate();
        Some(match info.limit {
            _ if rate.is_known() && per_s == 0.0 => WhySoft::Idle,
            Some(limit) if info.used >= limit => WhySoft::Full { rate: per_s, used: info.used },
            _ => WhySoft::Soon { rate: per_s },
        })
    }

    pub fn reports(&self, now: Nanos) -> Vec<PoolReport> {
        (0..self.pools.len()).filter(|p| !self.pools[*p].ports.is_empty()).map(|p| self.report(p, now)).collect()
    }

    fn report(&self, pool: usize, now: Nanos) -> PoolReport {
        let p = &self.pools[pool];
        let info = self.rebalancer.info(self.name_of(pool));
        let minute = |at: &&Nanos| **at + Nanos::from_secs(60) >= now;
        let mut report = PoolReport {
            provider: self.providers[p.provider].name(),
            name: p.name.clone(),
            ports: p.ports.clone(),
            used: info.used,
            capacity: info.limit,
            full: 0,
            marked: 0,
            waiting: 0,
            cannot: Vec::new(),
            rate_hardware: 0.0,
            rate_software: 0.0,
            moves_last_minute: p.moves.iter().filter(minute).count(),
            inserts: info.inserts,
            swaps: info.swaps,
        };
        for (_, entry) in self.living().filter(|(_, e)| e.pool == pool) {
            let Some(id) = entry.id.filter(|id| self.rebalancer.place(*id) != Place::Barred) else {
                let why = entry.why.map_or("refused".into(), |w| w.to_string());
                match report.cannot.iter_mut().find(|(text, _)| *text == why) {
                    Some((_, n)) => *n += 1,
                    None => report.cannot.push((why, 1)),
                }
                continue;
            };
            let rate = f64::from(self.rebalancer.rate(id).estimate());
            match (entry.state, entry.level) {
                (State::Hard | State::Removing, level) => {
                    report.rate_hardware += rate;
                    *if level == Level::Full { &mut report.full } else { &mut report.marked } += 1;
                }
                _ => {
                    report.rate_software += rate;
                    report.waiting += 1;
                }
            }
        }
        report.cannot.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        report
    }
}
