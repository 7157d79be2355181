//! Actions and instructions, independent of the protocol's version.
//!
//! One list holds both: instructions of OpenFlow 1.1+ follow the actions to apply, in their order of
//! execution (meter first, then the actions, clear, write, metadata, goto last).

mod bind;
mod check;
mod decode;
mod encode;
mod encode_nicira;
mod nicira;

pub use bind::{Bind, options_of};
pub use check::{CheckCx, check};
pub use decode::{decode_actions, decode_instructions};
pub use encode::{encode_actions, encode_instructions};
pub use nicira::load;

use fv_core::OfPort;
use fv_flow::field::{Field, FieldValue, Packed, Subfield};
use std::ops::Deref;

/// Largest encoding of one list of actions, and of all that one message carries.
pub const MAX_ACTIONS_LEN: usize = 65_535;
/// Deepest nesting of lists (clone, ct, write_actions ...): a decoder's stack is bounded by it.
pub const MAX_NESTING: u8 = 64;
/// `max_len` of an output to the controller: send whole packets, do not buffer.
pub const CONTROLLER_MAX_LEN: u16 = 0xffff;
/// Table number of `Resubmit` that means the current table.
pub const TABLE_CURRENT: u8 = 0xff;

/// One action or instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    // Output.
    /// `max_len` counts only when `port` is CONTROLLER.
    Output {
        port: OfPort,
        max_len: u16,
    },
    OutputReg {
        src: Subfield,
        max_len: u16,
    },
    /// Output of at most `max_len` bytes.
    OutputTrunc {
        port: OfPort,
        max_len: u32,
    },
    Controller(Box<Controller>),
    Enqueue {
        port: OfPort,
        queue: u32,
    },
    Group(u32),
    Bundle(Box<Bundle>),

    // Header changes.
    SetVlanVid {
        vid: u16,
        /// A packet without tag gets one (OpenFlow 1.0's meaning).
        push_vlan_if_needed: bool,
        /// The match, or an action before this one, guarantees a tag.
        flow_has_vlan: bool,
    },
    SetVlanPcp {
        pcp: u8,
        push_vlan_if_needed: bool,
        flow_has_vlan: bool,
    },
    /// `pop_vlan` is true in the form of OpenFlow 1.1+, which requires a tag.
    StripVlan {
        pop_vlan: bool,
    },
    PushVlan(u16),
    SetEthSrc([u8; 6]),
    SetEthDst([u8; 6]),
    SetIpv4Src(u32),
    SetIpv4Dst(u32),
    /// The six bits in their place in the TOS byte (0 to 252, multiples of 4).
    SetIpDscp(u8),
    SetIpEcn(u8),
    SetIpTtl(u8),
    SetL4SrcPort(L4Port),
    SetL4DstPort(L4Port),
    RegMove {
        src: Subfield,
        dst: Subfield,
    },
    SetField(Box<SetField>),
    StackPush(Subfield),
    StackPop(Subfield),
    DecTtl(DecTtl),
    SetMplsLabel(u32),
    SetMplsTc(u8),
    SetMplsTtl(u8),
    DecMplsTtl,
    PushMpls(u16),
    PopMpls(u16),
    DecNshTtl,
    DeleteField(Field),
    Encap(Box<Encap>),
    /// The new packet type (namespace << 16 | type), if one is given.
    Decap(Option<u32>),

    // Metadata.
    SetTunnel {
        id: u64,
        /// The 64-bit form was asked for although the id fits 32 bits.
        wide: bool,
    },
    SetQueue(u32),
    PopQueue,
    FinTimeout {
        idle_s: u16,
        hard_s: u16,
    },

    // Flow of control.
    Resubmit(Resubmit),
    Learn(Box<Learn>),
    /// `clause` counts from 0.
    Conjunction {
        id: u32,
        clause: u8,
        n_clauses: u8,
    },
    Multipath(Box<Multipath>),
    Clone(Actions),
    Sample(Box<Sample>),
    Ct(Box<Ct>),
    /// Only inside `Ct`.
    Nat(Box<Nat>),
    CtClear,
    CheckPktLarger {
        dst: Subfield,
        pkt_len: u16,
    },
    Note(Vec<u8>),
    Exit,
    DebugSlow,
    DebugRecirc,
    /// Made by translation when it freezes its state; never on the wire.
    UnrollXlate {
        table: u8,
        cookie: u64,
    },

    // Instructions.
    Meter(u32),
    ClearActions,
    WriteActions(Actions),
    WriteMetadata {
        metadata: u64,
        mask: u64,
    },
    GotoTable(u8),
}

/// A list of actions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Actions(pub Vec<Action>);

/// A new L4 port, and the protocol (TCP, UDP, SCTP) that the match guarantees, 0 if unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct L4Port {
    pub port: u16,
    pub ip_proto: u8,
}

/// Which form a `SetField` was given in: text and encoding keep it where the version has both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SetForm {
    /// `set_field:V->F`
    #[default]
    SetField,
    /// `load:V->F[]`
    Load,
}

/// Sets the bits of `mask` in `field` to those of `value`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetField {
    pub field: Field,
    pub value: Packed,
    pub mask: Packed,
    /// For VLAN fields: the match, or an action before this one, guarantees a tag.
    pub flow_has_vlan: bool,
    pub form: SetForm,
}

/// Why a packet went to the controller (OFPR_*), in the numbers of OpenFlow 1.4+.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PacketInReason {
    NoMatch = 0,
    /// An explicit output to the controller.
    #[default]
    Action = 1,
    InvalidTtl = 2,
    ActionSet = 3,
    Group = 4,
    PacketOut = 5,
    ExplicitMiss = 6,
    ImplicitMiss = 7,
}

/// `controller(...)`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Controller {
    pub max_len: u16,
    pub controller_id: u16,
    pub reason: PacketInReason,
    pub userdata: Vec<u8>,
    pub pause: bool,
    /// The meter to apply, if one is given: 0 is none.
    pub meter_id: u32,
    /// The extensible form was asked for although the short one would do.
    pub extended: bool,
}

/// `dec_ttl`: the controllers that learn of an expired TTL.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DecTtl {
    /// Empty means controller 0, in the short form.
    pub controllers: Vec<u16>,
}

/// `resubmit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resubmit {
    /// `OfPort::IN_PORT` keeps the packet's.
    pub in_port: OfPort,
    /// [`TABLE_CURRENT`] keeps the current one.
    pub table: u8,
    /// Match on the original tuple of the connection.
    pub with_ct_orig: bool,
}

/// Which fields a hash covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u16)]
pub enum HashFields {
    #[default]
    EthSrc = 0,
    SymmetricL4 = 1,
    SymmetricL3L4 = 2,
    SymmetricL3L4Udp = 3,
    NwSrc = 4,
    NwDst = 5,
    SymmetricL3 = 6,
}

/// `multipath`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Multipath {
    pub fields: HashFields,
    pub basis: u16,
    pub algorithm: MultipathAlgorithm,
    /// Number of links minus one.
    pub max_link: u16,
    pub arg: u32,
    pub dst: Subfield,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum MultipathAlgorithm {
    ModuloN = 0,
    HashThreshold = 1,
    Hrw = 2,
    IterHash = 3,
}

/// `bundle` and `bundle_load`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bundle {
    pub algorithm: BundleAlgorithm,
    pub fields: HashFields,
    pub basis: u16,
    /// Where the chosen port goes; None outputs to it.
    pub dst: Option<Subfield>,
    pub members: Vec<OfPort>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum BundleAlgorithm {
    ActiveBackup = 0,
    Hrw = 1,
}

/// `learn`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Learn {
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    pub priority: u16,
    pub table: u8,
    pub cookie: u64,
    pub fin_idle_timeout_s: u16,
    pub fin_hard_timeout_s: u16,
    pub flags: LearnFlags,
    /// Most flows that this action may add; 0 is no limit.
    pub limit: u32,
    /// Where "this packet's flow could be learned" is written.
    pub result_dst: Option<Subfield>,
    pub specs: Vec<LearnSpec>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LearnFlags {
    pub send_flow_rem: bool,
    pub delete_learned: bool,
}

/// One step of `learn`: what it takes, and what the new flow does with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LearnSpec {
    pub n_bits: u16,
    pub src: LearnSrc,
    pub dst: LearnDst,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LearnSrc {
    Field(Subfield),
    /// Big-endian bytes that hold `n_bits` bits, right-justified.
    Value(Vec<u8>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LearnDst {
    Match(Subfield),
    Load(Subfield),
    Output,
}

/// `sample`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    pub probability: u16,
    pub collector_set_id: u32,
    pub obs_domain_id: SampleId,
    pub obs_point_id: SampleId,
    /// `OfPort::NONE` if none.
    pub sampling_port: OfPort,
    pub direction: SampleDirection,
}

/// A number, or the field that holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SampleId {
    Imm(u32),
    Field(Subfield),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum SampleDirection {
    #[default]
    Default = 0,
    Ingress = 1,
    Egress = 2,
}

/// `ct`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ct {
    pub commit: bool,
    pub force: bool,
    pub zone: CtZone,
    /// Table to go on in; None does not recirculate.
    pub recirc_table: Option<u8>,
    /// The protocol port of the helper: 21 is ftp, 69 tftp, 0 none.
    pub alg: u16,
    /// Nat, and changes of mark and label.
    pub exec: Actions,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CtZone {
    Imm(u16),
    Field(Subfield),
}

/// `nat`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Nat {
    /// None: only translate packets of connections that already are.
    pub kind: Option<NatKind>,
    pub persistent: bool,
    pub hash: bool,
    pub random: bool,
    pub range: NatRange,
    /// First and last port; None if no port is given; last equals first for one port.
    pub ports: Option<(u16, u16)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NatKind {
    Src,
    Dst,
}

/// First and last address; the last is zero when only one is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NatRange {
    #[default]
    None,
    V4(u32, u32),
    V6([u8; 16], [u8; 16]),
}

/// `encap`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encap {
    /// Namespace << 16 | type.
    pub packet_type: u32,
    /// Size of the header to push, 0 for the type's default.
    pub header_len: u16,
    pub props: Vec<EncapProp>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EncapProp {
    NshMdType(u8),
    NshTlv { class: u16, kind: u8, data: Vec<u8> },
}

impl HashFields {
    /// The hash itself.
    pub fn flow(self) -> fv_flow::hash::HashFields {
        fv_flow::hash::HashFields::ALL[self as usize].0
    }
}

impl MultipathAlgorithm {
    /// The choice itself.
    pub fn flow(self) -> fv_flow::hash::MultipathAlgorithm {
        fv_flow::hash::MultipathAlgorithm::ALL[self as usize].0
    }
}

impl Actions {
    pub const fn new() -> Actions {
        Actions(Vec::new())
    }
    pub fn push(&mut self, a: Action) {
        self.0.push(a);
    }
    /// The table that `goto_table` names, if there is one.
    pub fn goto_table(&self) -> Option<u8> {
        match self.last() {
            Some(Action::GotoTable(t)) => Some(*t),
            _ => None,
        }
    }
    pub fn meter(&self) -> Option<u32> {
        self.iter().find_map(|a| if let Action::Meter(m) = a { Some(*m) } else { None })
    }
    /// Whether an action of the list, at any depth, outputs to `port`.
    pub fn outputs_to_port(&self, port: OfPort) -> bool {
        self.iter().any(|a| a.outputs_to_port(port))
    }
    /// Whether an action of the list, at any depth, sends to `group`.
    pub fn outputs_to_group(&self, group: u32) -> bool {
        self.iter().any(|a| {
            matches!(a, Action::Group(g) if *g == group) || a.nested().is_some_and(|n| n.outputs_to_group(group))
        })
    }
}

impl Action {
    /// An output that carries whole packets if it goes to the controller.
    pub fn output(port: OfPort) -> Action {
        Action::Output { port, max_len: if port == OfPort::CONTROLLER { CONTROLLER_MAX_LEN } else { 0 } }
    }

    /// Whether this is an instruction of OpenFlow 1.1+ other than apply-actions.
    pub fn is_instruction(&self) -> bool {
        matches!(
            self,
            Action::Meter(_)
                | Action::ClearActions
                | Action::WriteActions(_)
                | Action::WriteMetadata { .. }
                | Action::GotoTable(_)
        )
    }

    /// The list inside.
    pub fn nested(&self) -> Option<&Actions> {
        match self {
            Action::Clone(a) | Action::WriteActions(a) => Some(a),
            Action::Ct(ct) => Some(&ct.exec),
            _ => None,
        }
    }

    fn outputs_to_port(&self, p: OfPort) -> bool {
        match self {
            Action::Output { port, .. } | Action::Enqueue { port, .. } | Action::OutputTrunc { port, .. } => *port == p,
            Action::Controller(_) => p == OfPort::CONTROLLER,
            _ => self.nested().is_some_and(|n| n.outputs_to_port(p)),
        }
    }
}

impl Deref for Actions {
    type Target = [Action];
    fn deref(&self) -> &[Action] {
        &self.0
    }
}

impl From<Vec<Action>> for Actions {
    fn from(v: Vec<Action>) -> Self {
        Actions(v)
    }
}

impl FromIterator<Action> for Actions {
    fn from_iter<I: IntoIterator<Item = Action>>(i: I) -> Self {
        Actions(i.into_iter().collect())
    }
}

impl<'a> IntoIterator for &'a Actions {
    type Item = &'a Action;
    type IntoIter = std::slice::Iter<'a, Action>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
