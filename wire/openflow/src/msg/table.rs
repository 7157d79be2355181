//! Tables: configuration, description, features, statistics.

use fv_core::TableId;

/// What happens to packets that no flow of a table matches (OpenFlow 1.1 and 1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableMiss {
    /// The version's default: controller up to 1.2, drop from 1.3 on.
    #[default]
    Default,
    Controller,
    Continue,
    Drop,
}

/// `None` leaves a property alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableMod {
    /// 0xff is every table.
    pub table: TableId,
    pub miss: TableMiss,
    /// OpenFlow 1.4+.
    pub eviction: Option<bool>,
    pub eviction_flags: u32,
    pub vacancy: Option<Vacancy>,
}

/// Vacancy events: thresholds in percent; `down == up == 0` switches them off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vacancy {
    pub down: u8,
    pub up: u8,
    pub current: u8,
}

/// Why a table tells about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TableReason {
    /// Fewer flows fit than the lower threshold says.
    VacancyDown = 3,
    /// More flows fit than the upper threshold says.
    VacancyUp = 4,
}

/// A table has become full or roomy (OpenFlow 1.4+).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableStatus {
    pub reason: TableReason,
    pub desc: TableDesc,
}

/// OpenFlow 1.4+ table description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableDesc {
    pub table: TableId,
    pub eviction: bool,
    pub eviction_flags: u32,
    pub vacancy: Option<Vacancy>,
}

/// Table statistics (all versions) and features (1.3+): one type, as the reference reports both.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableStats {
    pub table: TableId,
    pub active: u32,
    pub lookups: u64,
    pub matched: u64,
}

/// What a table can do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableFeatures {
    pub table: TableId,
    pub name: String,
    pub metadata_match: u64,
    pub metadata_write: u64,
    pub max_entries: u32,
    pub miss: TableMiss,
    pub supports_eviction: bool,
    pub supports_vacancy: bool,
    /// For flows that are not table-misses, and for those that are.
    pub nonmiss: TableInstructions,
    pub table_miss: TableInstructions,
    /// Fields that can be matched, with a mask, and left out (OXM headers in the encoding).
    pub matches: Vec<fv_flow::field::Field>,
    pub mask: Vec<fv_flow::field::Field>,
    pub wildcard: Vec<fv_flow::field::Field>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableInstructions {
    /// Tables that goto_table can name.
    pub next: Vec<u8>,
    /// Bit N: instruction type N of OpenFlow 1.3.
    pub instructions: u32,
    pub write: TableActions,
    pub apply: TableActions,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableActions {
    /// Bit N: action type N of OpenFlow 1.3.
    pub actions: u32,
    pub set_fields: Vec<fv_flow::field::Field>,
}
