//! Datapath actions as plain data. Their text is in `text.rs`; executing them is the datapath's.

use fv_core::{DpPort, RecircId};

/// A value to write and the bits of it that are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Masked<T> {
    pub value: T,
    pub mask: T,
}

/// One header to rewrite: the reference's `set(...)` keys. Every field carries its own mask; a
/// zero mask leaves the field alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetField {
    SkbPriority(u32),
    SkbMark(Masked<u32>),
    Eth {
        src: Masked<[u8; 6]>,
        dst: Masked<[u8; 6]>,
    },
    Ipv4 {
        src: Masked<u32>,
        dst: Masked<u32>,
        tos: Masked<u8>,
        ttl: Masked<u8>,
    },
    Ipv6 {
        src: Masked<[u8; 16]>,
        dst: Masked<[u8; 16]>,
        label: Masked<u32>,
        tclass: Masked<u8>,
        hlimit: Masked<u8>,
    },
    Tcp {
        src: Masked<u16>,
        dst: Masked<u16>,
    },
    Udp {
        src: Masked<u16>,
        dst: Masked<u16>,
    },
    Sctp {
        src: Masked<u16>,
        dst: Masked<u16>,
    },
    Icmp {
        ty: Masked<u8>,
        code: Masked<u8>,
    },
    Icmpv6 {
        ty: Masked<u8>,
        code: Masked<u8>,
    },
    Arp {
        sip: Masked<u32>,
        tip: Masked<u32>,
        op: Masked<u16>,
        sha: Masked<[u8; 6]>,
        tha: Masked<[u8; 6]>,
    },
    Nd {
        target: Masked<[u8; 16]>,
        sll: Masked<[u8; 6]>,
        tll: Masked<[u8; 6]>,
    },
    NdExt {
        reserved: Masked<u32>,
        options_type: Masked<u8>,
    },
    /// Rewrites the outermost label stack entry.
    Mpls {
        lse: Masked<u32>,
    },
    /// Metadata for a tunnel port that encapsulates by itself (kernel-style tunnel actions).
    Tunnel(Box<TunnelKey>),
}

/// Tunnel metadata as an action carries it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TunnelKey {
    pub id: u64,
    pub src: u32,
    pub dst: u32,
    pub ipv6_src: [u8; 16],
    pub ipv6_dst: [u8; 16],
    pub tos: u8,
    pub ttl: u8,
    pub tp_src: u16,
    pub tp_dst: u16,
    pub flags: u16,
    pub gbp_id: u16,
    pub gbp_flags: u8,
    pub erspan_ver: u8,
    pub erspan_idx: u32,
    pub erspan_dir: u8,
    pub erspan_hwid: u8,
}

/// Why the slow path has to see each packet of a flow. Bits; the text names are fixed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlowReasons(pub u32);

impl SlowReasons {
    pub const CFM: SlowReasons = SlowReasons(1);
    pub const BFD: SlowReasons = SlowReasons(2);
    pub const LACP: SlowReasons = SlowReasons(4);
    pub const STP: SlowReasons = SlowReasons(8);
    pub const LLDP: SlowReasons = SlowReasons(16);
    /// The program cannot be expressed as datapath actions.
    pub const ACTION: SlowReasons = SlowReasons(32);
    /// The datapath cannot match as finely as the rules need.
    pub const MATCH: SlowReasons = SlowReasons(64);
    /// (bit, name, explanation shown by `ofproto/trace`)
    pub const NAMES: [(SlowReasons, &'static str, &'static str); 7] = [
        (Self::CFM, "cfm", "Consists of CFM packets."),
        (Self::BFD, "bfd", "Consists of BFD packets."),
        (Self::LACP, "lacp", "Consists of LACP packets."),
        (Self::STP, "stp", "Consists of STP packets."),
        (Self::LLDP, "lldp", "Consists of LLDP packets."),
        (Self::ACTION, "action", "Uses action(s) not supported by datapath."),
        (Self::MATCH, "match", "Needs more specific match than supported by datapath."),
    ];
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    pub fn contains(self, o: SlowReasons) -> bool {
        self.0 & o.0 == o.0
    }
}

impl std::ops::BitOrAssign for SlowReasons {
    fn bitor_assign(&mut self, o: SlowReasons) {
        self.0 |= o.0;
    }
}

/// What goes to userspace with a packet, and who receives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Userspace {
    /// Every packet of the flow is translated and executed by the slow path.
    SlowPath(SlowReasons),
    /// An OpenFlow `controller` action: a packet-in.
    Controller(ControllerUpcall),
    SFlow {
        vlan_tci: u16,
        output: u32,
    },
    FlowSample {
        probability: u16,
        collector_set_id: u32,
        obs_domain_id: u32,
        obs_point_id: u32,
        output: DpPort,
        direction: u8,
    },
    Ipfix {
        output: DpPort,
    },
    /// Opaque bytes, from `dpctl/add-flow`.
    Data(Vec<u8>),
}

/// The fields of a packet-in that translation fixed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ControllerUpcall {
    pub reason: u8,
    pub dont_send: bool,
    pub continuation: bool,
    pub recirc_id: u32,
    pub rule_cookie: u64,
    pub controller_id: u16,
    pub max_len: u16,
    /// Index of the bridge-side state (bridge, table, metadata, userdata) that the handler kept for this action.
    pub state: u64,
}

/// A connection-tracking step.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CtAction {
    pub commit: bool,
    pub force: bool,
    pub zone: u16,
    pub mark: Masked<u32>,
    pub label: Masked<[u8; 16]>,
    pub helper: Option<&'static str>,
    pub timeout: Option<String>,
    pub nat: Option<CtNat>,
}

/// NAT of a connection-tracking step; both flags false is plain `nat`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CtNat {
    pub src: bool,
    pub dst: bool,
    pub persistent: bool,
    pub hash: bool,
    pub random: bool,
    pub addr_min: Option<std::net::IpAddr>,
    pub addr_max: Option<std::net::IpAddr>,
    pub port_min: u16,
    pub port_max: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashAlg {
    L4 { basis: u32 },
    SymL4 { basis: u32 },
}

/// One action of a datapath flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DpAction {
    Output(DpPort),
    /// Output through a bond's hash table in the datapath.
    LbOutput(u32),
    Userspace {
        what: Userspace,
        /** Shown as `pid=`; the userspace datapath ignores it. */
        pid: u32,
        /** Deliver with the packet the actions of the flow. */
        with_actions: bool,
        tunnel_out_port: Option<DpPort>,
    },
    PushVlan {
        tpid: u16,
        /** With the CFI bit as presence bit. */
        tci: u16,
    },
    PopVlan,
    PushMpls {
        lse: u32,
        eth_type: u16,
    },
    PopMpls {
        eth_type: u16,
    },
    PushEth {
        src: [u8; 6],
        dst: [u8; 6],
    },
    PopEth,
    Set(SetField),
    Recirc(RecircId),
    Hash(HashAlg),
    Ct(Box<CtAction>),
    CtClear,
    Meter(u32),
    /// Cut to `max_len` bytes at the next output.
    Trunc(u32),
    /// `probability` of 2^32-1 is always.
    Sample {
        probability: u32,
        actions: Vec<DpAction>,
    },
    Clone(Vec<DpAction>),
    CheckPktLen {
        size: u16,
        greater: Vec<DpAction>,
        less_equal: Vec<DpAction>,
    },
    DecTtl {
        exception: Vec<DpAction>,
    },
    TunnelPop(DpPort),
    /// Prepared outer header of a tunnel.
    TunnelPush(Box<TunnelPush>),
    Drop(u32),
}

/// A header to push and where the result goes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TunnelPush {
    pub tnl_port: DpPort,
    pub out_port: DpPort,
    /// Type code as shown in text (vxlan 4, geneve 5 ...).
    pub kind: u32,
    pub header: Vec<u8>,
}

/// A flow's actions in order; empty is a drop.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    pub actions: Vec<DpAction>,
}

impl Program {
    pub fn new(actions: Vec<DpAction>) -> Program {
        Program { actions }
    }
}
