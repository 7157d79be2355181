//! What the switch says it can do.

use fv_core::TableId;
use fv_flow::field::{Field, Maskable};
use fv_openflow::Version;
use fv_openflow::msg::session::{Capabilities, Features};
use fv_openflow::msg::table::{TableActions, TableFeatures, TableInstructions};

use crate::bridge::Ofproto;
use crate::conn::Connection;
use crate::tables::{N_VISIBLE_TABLES, Tables};

/// Flows that a table is said to hold.
const MAX_FLOWS_SHOWN: u32 = 1_000_000;
/// OpenFlow 1.3 numbers of the actions: output, and set-MPLS-TTL to set-field.
const ACTIONS: u32 = 1 | 0x7ff << 15;
/// OpenFlow 1.3 numbers of the instructions: goto_table is the first.
const INSTRUCTIONS: u32 = 0x7e;
const GOTO_TABLE: u32 = 1 << 1;

impl Ofproto {
    pub(crate) fn features(&self, c: &Connection) -> Features {
        let v = c.version().unwrap_or(Version::V10);
        let mut bits =
            Capabilities::FLOW_STATS | Capabilities::TABLE_STATS | Capabilities::PORT_STATS | Capabilities::QUEUE_STATS;
        if v <= Version::V11 {
            bits |= Capabilities::ARP_MATCH_IP;
        }
        if v >= Version::V11 {
            bits |= Capabilities::GROUP_STATS;
        }
        if v >= Version::V14 {
            bits |= Capabilities::BUNDLES;
        }
        Features {
            datapath_id: self.settings.dpid,
            n_buffers: 0,
            n_tables: N_VISIBLE_TABLES as u8,
            auxiliary_id: 0,
            capabilities: Capabilities(bits),
            // OUTPUT to ENQUEUE: all twelve of OpenFlow 1.0.
            actions: 0xfff,
            ports: if v < Version::V13 { self.ports_in_order().map(|p| p.desc()).collect() } else { Vec::new() },
        }
    }
}

pub(crate) fn table_features(tables: &Tables, id: u8) -> TableFeatures {
    let t = tables.table(id);
    let last = usize::from(id) + 1 >= N_VISIBLE_TABLES;
    let actions =
        TableActions { actions: ACTIONS, set_fields: Field::all_with_options().filter(|f| f.is_writable()).collect() };
    let instructions = TableInstructions {
        next: (id.saturating_add(1)..N_VISIBLE_TABLES as u8).collect(),
        instructions: if last { INSTRUCTIONS & !GOTO_TABLE } else { INSTRUCTIONS },
        write: actions.clone(),
        apply: actions,
    };
    TableFeatures {
        table: TableId(id),
        name: t.map(|t| t.name()).unwrap_or_default(),
        metadata_match: u64::MAX,
        metadata_write: u64::MAX,
        max_entries: t
            .map(|t| t.max_flows())
            .filter(|n| *n != usize::MAX)
            .map_or(MAX_FLOWS_SHOWN, |n| n.min(u32::MAX as usize) as u32),
        miss: t.map(|t| t.miss()).unwrap_or_default(),
        // As the reference says, which evicts all the same.
        supports_eviction: false,
        supports_vacancy: false,
        nonmiss: instructions.clone(),
        table_miss: instructions,
        matches: Field::all_with_options().collect(),
        mask: Field::all_with_options().filter(|f| f.info().maskable == Maskable::Full).collect(),
        wildcard: Field::all_with_options().collect(),
    }
}
