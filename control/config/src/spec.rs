//! What the database asks for, as plain data that can only hold legal states.

use std::collections::{BTreeMap, BTreeSet};

use fv_ovsdb::Uuid;

use crate::pmd::PmdSpec;

pub type Options = BTreeMap<String, String>;

/// Something to go by, which is no part of what is asked for: hints do not make specifications differ.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hint(pub Option<u16>);

impl PartialEq for Hint {
    fn eq(&self, _: &Hint) -> bool {
        true
    }
}

/// Everything that the database asks for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Desired {
    pub next_cfg: i64,
    pub globals: Globals,
    /// By name.
    pub bridges: BTreeMap<String, BridgeSpec>,
    /// What could not be taken over as it stands; each row goes on with its default.
    pub diagnostics: Vec<String>,
}

/// `Open_vSwitch` row.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Globals {
    pub other_config: Options,
    pub external_ids: Options,
    pub flow_restore_wait: bool,
    pub flow_limit: u64,
    pub max_idle_ms: u64,
    pub max_revalidator_ms: u64,
    pub min_revalidate_pps: u64,
    pub stats_update_interval_ms: u64,
    pub pmd: PmdSpec,
    pub n_revalidators: Option<u32>,
    pub vlan_limit: u8,
    /// Keep idle processors from halting while packets come one by one; unset is where it pays.
    pub cpu_latency_qos: Option<bool>,
    /// (private key, certificate, CA certificate, bootstrap) of the SSL row.
    pub ssl: Option<(String, String, String, bool)>,
    /// Remotes of `manager_options`.
    pub managers: BTreeMap<Uuid, String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FailMode {
    #[default]
    Standalone,
    Secure,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct BridgeSpec {
    pub uuid: Uuid,
    pub name: String,
    /// "" reads as `system`.
    pub datapath_type: String,
    pub datapath_id: Option<u64>,
    pub hwaddr: Option<[u8; 6]>,
    pub fail_mode: FailMode,
    /// OpenFlow versions allowed, as wire bytes (1 is 1.0); empty is the default set.
    pub protocols: BTreeSet<u8>,
    pub controllers: Vec<ControllerSpec>,
    pub mac_aging_s: u32,
    pub mac_table_size: u32,
    pub forward_bpdu: bool,
    pub flood_vlans: BTreeSet<u16>,
    pub controller_queue_size: u32,
    pub disable_in_band: bool,
    pub dp_desc: Option<String>,
    pub dp_sn: Option<String>,
    pub other_config: Options,
    /// Table number -> its row's settings.
    pub tables: BTreeMap<u8, TableSpec>,
    /// By name.
    pub ports: BTreeMap<String, PortSpec>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableSpec {
    pub name: String,
    pub flow_limit: Option<u32>,
    /// `overflow_policy=evict`.
    pub evict: bool,
    /// Subfields, as text.
    pub groups: Vec<String>,
    pub prefixes: Vec<String>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct ControllerSpec {
    pub uuid: Uuid,
    pub target: String,
    pub max_backoff_ms: u32,
    pub inactivity_probe_ms: u32,
    pub in_band: bool,
    pub rate_limit: Option<u32>,
    pub burst_limit: Option<u32>,
    pub enable_async: bool,
    pub service: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum VlanMode {
    Access,
    #[default]
    Trunk,
    NativeTagged,
    NativeUntagged,
    Dot1qTunnel,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PriorityTags {
    #[default]
    Never,
    IfNonzero,
    Always,
}

/// A `Port` row: one interface, or several as a bond.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PortSpec {
    pub uuid: Uuid,
    pub name: String,
    pub vlan_mode: VlanMode,
    /// 0 where the mode has none.
    pub tag: u16,
    /// None: all VLANs.
    pub trunks: Option<BTreeSet<u16>>,
    pub cvlans: Option<BTreeSet<u16>>,
    pub qinq_ethtype: u16,
    pub priority_tags: PriorityTags,
    pub protected: bool,
    pub fake_bridge: bool,
    pub other_config: Options,
    /// By name.
    pub interfaces: BTreeMap<String, IfaceSpec>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct IfaceSpec {
    pub uuid: Uuid,
    pub name: String,
    /// "" is already `system`, the bridge's own interface `internal`.
    pub kind: String,
    pub options: Options,
    pub other_config: Options,
    pub ofport_request: Option<u16>,
    /// The number that the port had last.
    pub last_ofport: Hint,
    pub mtu_request: Option<u32>,
    pub mac: Option<[u8; 6]>,
    /// The row's `bfd` column.
    pub bfd: Options,
}
