//! What translation starts from, works on, and returns.

use std::net::IpAddr;
use std::sync::Arc;

use fv_core::{Nanos, OfPort, RecircId};
use fv_dpif::action::{HashAlg, SlowReasons};
use fv_dpif::{DpAction, Program};
use fv_flow::{FieldValue, FlowKey, FlowMask};
use fv_l2::MacTable;
use fv_ofproto::learn::LearnJob;
use fv_ofproto::view::{BridgeId, BridgeView, PortView, View};
use fv_ofproto::{Group, RuleRef, Snapshot, Tables};
use fv_openflow::action::{Action, Controller};
use fv_openflow::msg::port::PortConfig;
use fv_packet::Packet;
use fv_tunnel::Net;

use crate::trace::{Kind, Node, Tracer};

/// Deepest nesting of tables, clones and patch ports.
pub const MAX_DEPTH: u32 = 64;
/// Most table lookups of one translation.
pub const MAX_RESUBMITS: u32 = MAX_DEPTH * MAX_DEPTH;
/// Most datapath actions that tables may yield before no further one is looked up.
pub const MAX_ACTIONS: usize = 8192;
/// Most bytes on the pipeline's stack.
pub const MAX_STACK: usize = 64 * 1024;

/// Where bridge protocol data units go.
const STP_ADDR: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];

/// What to translate.
pub struct Input<'a> {
    pub view: &'a View,
    pub bridge: BridgeId,
    /// The packet's key with `in_port` as an OpenFlow port of `bridge`.
    pub key: FlowKey,
    /// The packet itself, if there is one; None when a flow is revalidated.
    pub packet: Option<&'a Packet>,
    pub start: Start<'a>,
    /// Keeps what a later step (packet-in, recirculation) needs of the pipeline and gives it a number;
    /// equal states get equal numbers.
    pub freeze: &'a dyn Fn(Frozen) -> RecircId,
    pub now: Nanos,
    /// Collect the account for `ofproto/trace`.
    pub trace: bool,
    /// With names of ports in it.
    pub names: bool,
}

/// Where the pipeline starts.
#[derive(Clone, Copy)]
pub enum Start<'a> {
    /// Table 0, as a received packet.
    Tables,
    /// These actions, as a packet-out.
    Actions(&'a [Action]),
    /// A frozen state, as a recirculated packet.
    Thaw(&'a Frozen),
    /// A frozen state that is gone.
    Lost,
}

/// What `push` put on the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pushed {
    pub value: FieldValue,
    /// Bytes of the field that was pushed.
    pub n_bytes: u8,
}

/// A pipeline's state, kept for a packet that comes back or goes to a controller.
#[derive(Clone, PartialEq, Debug)]
pub struct Frozen {
    pub bridge: BridgeId,
    pub table: u8,
    /// In port, tunnel metadata, metadata and registers of the moment.
    pub key: FlowKey,
    pub stack: Vec<Pushed>,
    pub action_set: Vec<Action>,
    pub actions: Vec<Action>,
    /// The rule's cookie, for packet-ins.
    pub cookie: u64,
    pub userdata: Vec<u8>,
    pub pause: bool,
}

/// What happens once, before the packet that caused it leaves.
#[derive(Clone)]
pub enum Effect {
    /// A packet teaches a flow.
    Learn {
        tables: Arc<Tables>,
        job: Arc<LearnJob>,
    },
    /// Asks who has an address that a tunnel's packets go to.
    AskNeighbour(Arc<AskNeighbour>),
    /// A packet told who has an address.
    NeighbourLearn {
        net: Arc<Net>,
        bridge: Arc<str>,
        ip: IpAddr,
        mac: [u8; 6],
    },
    MacLearn {
        bridge: BridgeId,
        table: Arc<MacTable>,
        vlan: u16,
        mac: [u8; 6],
        bundle: u64,
        how: fv_l2::Learn,
    },
    /// A packet for the port's BFD session.
    Bfd {
        monitor: Arc<fv_l2::PortMonitor>,
        frame: Vec<u8>,
    },
}

/// The first hop of a tunnel whose address is not known.
#[derive(Clone)]
pub struct AskNeighbour {
    pub net: Arc<Net>,
    /// Whose network the neighbour is on.
    pub bridge: BridgeId,
    pub bridge_name: String,
    pub src_mac: [u8; 6],
    pub src: IpAddr,
    pub target: IpAddr,
}

/// What each further packet of the flow counts for.
#[derive(Clone)]
pub enum Credit {
    Rule(RuleRef),
    /// A lookup in a table, and whether it found a rule.
    Table {
        tables: Arc<Tables>,
        table: u8,
        hit: bool,
    },
    /// A packet went through a patch port: out of this one.
    PatchTx(BridgeId, OfPort),
    /// ... and into that one.
    PatchRx(BridgeId, OfPort),
    /// The learned flow stays, or comes back.
    LearnRefresh(Effect),
    /// Packets that end a connection lower the rule's timeouts.
    FinTimeout {
        tables: Arc<Tables>,
        rule: RuleRef,
        idle_s: u16,
        hard_s: u16,
    },
    /// A group, with the bucket that was chosen or with all of them.
    Group(Arc<Group>, Option<usize>),
    /// The MAC entry stays fresh.
    MacRefresh(Effect),
    /// Packets go to this neighbour: it stays known.
    NeighbourUse {
        net: Arc<Net>,
        bridge: Arc<str>,
        ip: IpAddr,
    },
    /// Packets want a neighbour: it is asked again; or tell of one.
    NeighbourAgain(Effect),
}

/// Which changes of rules can concern a flow.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Looked {
    /// A bit of [`Looked::table_bit`] for each table that was looked into.
    pub tables: u64,
    /// Words of the key that were not the packet's own at some lookup.
    pub altered: u128,
}

impl Looked {
    /// Any change concerns it.
    pub const ALL: Looked = Looked { tables: u64::MAX, altered: u128::MAX };

    /// Tables share bits.
    pub fn table_bit(bridge: BridgeId, table: u8) -> u64 {
        1 << ((bridge.0.wrapping_mul(11)).wrapping_add(u32::from(table)) % 64)
    }
}

/// The result of a translation.
pub struct Output {
    pub program: Program,
    /// The bits of the key on which the program depends.
    pub mask: FlowMask,
    /// The flow at the end of the pipeline.
    pub flow: FlowKey,
    pub effects: Vec<Effect>,
    pub credits: Vec<Credit>,
    /// Numbers that `freeze` gave: to be held as long as the program is in use.
    pub frozen: Vec<RecircId>,
    pub slow: SlowReasons,
    pub error: Option<XlateError>,
    pub looked: Looked,
    pub trace: Vec<Node>,
    /// Neighbours without which the packet does not get everywhere.
    pub unresolved: Vec<Arc<AskNeighbour>>,
}

/// Why a packet could not be translated; it is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum XlateError {
    #[error("Bridge not found")]
    BridgeNotFound,
    #[error("Recursion too deep")]
    RecursionTooDeep,
    #[error("Too many resubmits")]
    TooManyResubmits,
    #[error("Stack too deep")]
    StackTooDeep,
    #[error("No recirculation context")]
    NoRecirculationContext,
    #[error("Recirculation conflict")]
    RecirculationConflict,
    #[error("Too many MPLS labels")]
    TooManyMplsLabels,
    #[error("Invalid tunnel metadata")]
    InvalidTunnelMetadata,
    #[error("Unsupported packet type")]
    UnsupportedPacketType,
    #[error("Congestion Drop")]
    Congestion,
    #[error("Forwarding is disabled")]
    ForwardingDisabled,
}

impl XlateError {
    /// The code of the `drop` action that packets meet.
    pub fn code(self) -> u32 {
        match self {
            XlateError::BridgeNotFound => 1,
            XlateError::RecursionTooDeep => 2,
            XlateError::TooManyResubmits => 3,
            XlateError::StackTooDeep => 4,
            XlateError::NoRecirculationContext => 5,
            XlateError::RecirculationConflict => 6,
            XlateError::TooManyMplsLabels => 7,
            XlateError::InvalidTunnelMetadata => 8,
            XlateError::UnsupportedPacketType => 9,
            XlateError::Congestion => 10,
            XlateError::ForwardingDisabled => 11,
        }
    }

    /// What packets do instead.
    pub fn program(self) -> Program {
        Program::new(vec![DpAction::Drop(self.code())])
    }
}

/// The state of one translation. `flow` is the packet as the pipeline has changed it, `base` the
/// packet as the datapath has it after the actions emitted so far.
pub(crate) struct Ctx<'a> {
    pub inp: &'a Input<'a>,
    pub br: Arc<BridgeView>,
    pub snapshots: Vec<(BridgeId, Snapshot)>,
    pub flow: FlowKey,
    pub base: FlowKey,
    pub mask: FlowMask,
    pub out: Vec<DpAction>,
    pub table: u8,
    pub rule: Option<RuleRef>,
    pub depth: u32,
    pub resubmits: u32,
    pub stack: Vec<Pushed>,
    pub action_set: Vec<Action>,
    /// Nothing comes after the action that is being done: it needs no copy of the packet.
    pub is_last: bool,
    /// Set by `exit` and by what stops a list of actions.
    pub exit: bool,
    pub error: Option<XlateError>,
    pub effects: Vec<Effect>,
    pub credits: Vec<Credit>,
    pub frozen: Vec<RecircId>,
    pub slow: SlowReasons,
    pub looked: Looked,
    /// The actions of the action set are being done.
    pub in_action_set: bool,
    /// A group's bucket is being done.
    pub in_group: bool,
    /// An MPLS label was popped from above what is not parsed yet.
    pub was_mpls: bool,
    /// The pipeline stops here and goes on when the packet comes round again.
    pub freezing: bool,
    /// ... or when a controller says so.
    pub pause: Option<Box<Controller>>,
    /// The packet needs this hash when it comes round.
    pub hash_first: Option<HashAlg>,
    /// Cookie of the rule whose actions go on after a recirculation.
    pub thawed_cookie: u64,
    /// What is left to do after that, innermost list first.
    pub rest: Vec<Action>,
    /// The table and cookie that `rest` restores last.
    pub unrolled: Option<(u8, u64)>,
    pub tracer: Option<Tracer>,
    pub unresolved: Vec<Arc<AskNeighbour>>,
}

/// Translates one packet or flow.
pub fn translate(inp: &Input<'_>) -> Output {
    crate::XLATE_ACTIONS.inc();
    let Some(br) = inp.view.bridges.get(&inp.bridge).cloned() else {
        return failed(inp, XlateError::BridgeNotFound);
    };
    let mut c = Ctx {
        inp,
        br,
        snapshots: Vec::new(),
        flow: inp.key,
        base: inp.key,
        mask: initial_mask(&inp.key),
        out: Vec::new(),
        table: 0,
        rule: None,
        depth: 0,
        resubmits: 0,
        stack: Vec::new(),
        action_set: Vec::new(),
        is_last: true,
        exit: false,
        error: None,
        effects: Vec::new(),
        credits: Vec::new(),
        frozen: Vec::new(),
        slow: SlowReasons::default(),
        looked: Looked::default(),
        in_action_set: false,
        in_group: false,
        was_mpls: false,
        freezing: false,
        pause: None,
        hash_first: None,
        thawed_cookie: u64::MAX,
        rest: Vec::new(),
        unrolled: None,
        tracer: inp.trace.then(Tracer::default),
        unresolved: Vec::new(),
    };
    c.flow.pipe.actset_output = OfPort::UNSET.0;
    c.run();
    c.finish()
}

/// What becomes of packets that cannot be translated for a reason that was found before.
pub fn failed(inp: &Input<'_>, e: XlateError) -> Output {
    Output {
        program: e.program(),
        mask: initial_mask(&inp.key),
        flow: inp.key,
        effects: Vec::new(),
        credits: Vec::new(),
        frozen: Vec::new(),
        slow: SlowReasons::default(),
        error: Some(e),
        looked: Looked::ALL,
        trace: Vec::new(),
        unresolved: Vec::new(),
    }
}

/// What every flow matches: where the packet came from and which headers it has.
fn initial_mask(key: &FlowKey) -> FlowMask {
    let mut m = FlowMask::default();
    let b = &mut m.0.dp.base;
    b.in_port = u32::MAX;
    b.recirc_id = u32::MAX;
    b.dl_type = u16::MAX.into();
    if matches!(key.base.dl_type.get(), 0x0800 | 0x86dd) {
        b.nw_frag = 3;
    }
    m.0.dp.misc.packet_type = u32::MAX;
    m
}

/// Whether the port's configuration drops what it receives: everything, as from OpenFlow 1.1 on, or
/// bridge protocol frames.
pub(crate) fn no_recv(p: &PortView, dl_dst: [u8; 6]) -> bool {
    p.config.has(PortConfig::NO_RECV) || dl_dst == STP_ADDR && p.config.has(PortConfig::NO_RECV_STP)
}

impl Ctx<'_> {
    fn run(&mut self) {
        self.enter(Kind::Bridge, |c| format!("bridge(\"{}\")", c.br.name));
        match self.inp.start {
            Start::Tables => self.receive(),
            Start::Actions(a) => {
                // Not even a controller gets a packet in through a port that takes none.
                if !self.port(self.in_port()).is_some_and(|p| no_recv(&p, self.flow.base.dl_dst)) {
                    self.do_actions(a);
                    self.end_of_pipeline();
                }
            }
            Start::Thaw(f) => {
                self.thaw(f);
                self.end_of_pipeline();
            }
            Start::Lost => {
                let id = self.inp.key.base.recirc_id;
                self.note(Kind::Error, |_| format!("Recirculation context not found for ID {id:x}"));
                self.fail(XlateError::NoRecirculationContext);
            }
        }
        self.leave();
    }

    /// The action set, or the way back to the datapath.
    pub fn end_of_pipeline(&mut self) {
        if self.error.is_some() {
            return;
        }
        if !self.freezing {
            self.execute_action_set();
        }
        if self.freezing {
            self.finish_freezing();
        }
    }

    /// A packet arrives on its in_port.
    fn receive(&mut self) {
        let port = self.in_port();
        let p = self.port(port);
        let passes = self.leaves_tunnel(p.as_ref());
        self.first_table(port, p.as_ref(), !passes);
    }

    pub fn in_port(&self) -> OfPort {
        OfPort(self.flow.base.in_port)
    }

    pub fn port(&self, p: OfPort) -> Option<PortView> {
        self.br.ports.get(&p).cloned()
    }

    pub fn fail(&mut self, e: XlateError) {
        if self.error.is_none() {
            self.error = Some(e);
        }
        self.exit = true;
    }

    // The account. Text is made only if somebody listens.

    pub fn enter(&mut self, kind: Kind, text: impl FnOnce(&Self) -> String) {
        if self.tracer.is_some() {
            let text = text(self);
            if let Some(t) = &mut self.tracer {
                t.enter(kind, text);
            }
        }
    }

    pub fn leave(&mut self) {
        if let Some(t) = &mut self.tracer {
            t.leave();
        }
    }

    pub fn note(&mut self, kind: Kind, text: impl FnOnce(&Self) -> String) {
        if self.tracer.is_some() {
            let text = text(self);
            if let Some(t) = &mut self.tracer {
                t.leaf(kind, text);
            }
        }
    }
}
