//! The kinds of tunnels, and what a datapath must know of one to take its headers off.

/// What is around the inner packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TunnelKind {
    Vxlan,
    Geneve,
    Gre,
    Erspan,
    Ip6Gre,
    Ip6Erspan,
    Gtpu,
    Bareudp,
    Srv6,
}

impl TunnelKind {
    pub const ALL: [TunnelKind; 9] = [
        TunnelKind::Vxlan,
        TunnelKind::Geneve,
        TunnelKind::Gre,
        TunnelKind::Erspan,
        TunnelKind::Ip6Gre,
        TunnelKind::Ip6Erspan,
        TunnelKind::Gtpu,
        TunnelKind::Bareudp,
        TunnelKind::Srv6,
    ];

    /// The type of an `Interface` row.
    pub const fn name(self) -> &'static str {
        match self {
            TunnelKind::Vxlan => "vxlan",
            TunnelKind::Geneve => "geneve",
            TunnelKind::Gre => "gre",
            TunnelKind::Erspan => "erspan",
            TunnelKind::Ip6Gre => "ip6gre",
            TunnelKind::Ip6Erspan => "ip6erspan",
            TunnelKind::Gtpu => "gtpu",
            TunnelKind::Bareudp => "bareudp",
            TunnelKind::Srv6 => "srv6",
        }
    }

    pub fn by_name(name: &str) -> Option<TunnelKind> {
        TunnelKind::ALL.into_iter().find(|k| k.name() == name)
    }

    /// The number that stands for it in the text of `tnl_push`.
    pub const fn code(self) -> u32 {
        match self {
            TunnelKind::Gre => 3,
            TunnelKind::Vxlan => 4,
            TunnelKind::Geneve => 5,
            TunnelKind::Erspan => 107,
            TunnelKind::Ip6Erspan => 108,
            TunnelKind::Ip6Gre => 109,
            TunnelKind::Gtpu => 110,
            TunnelKind::Bareudp => 111,
            TunnelKind::Srv6 => 112,
        }
    }

    pub fn by_code(code: u32) -> Option<TunnelKind> {
        TunnelKind::ALL.into_iter().find(|k| k.code() == code)
    }

    pub const fn is_udp(self) -> bool {
        matches!(self, TunnelKind::Vxlan | TunnelKind::Geneve | TunnelKind::Gtpu | TunnelKind::Bareudp)
    }

    /// GRE, in one of its forms.
    pub const fn is_gre(self) -> bool {
        matches!(self, TunnelKind::Gre | TunnelKind::Erspan | TunnelKind::Ip6Gre | TunnelKind::Ip6Erspan)
    }

    pub const fn is_erspan(self) -> bool {
        matches!(self, TunnelKind::Erspan | TunnelKind::Ip6Erspan)
    }
}

/// The datapath's port of a kind of tunnel: all tunnels of that kind and UDP port share it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Vport {
    pub kind: TunnelKind,
    /// The UDP port; 0 for kinds without.
    pub dst_port: u16,
    /// VXLAN with the group policy extension.
    pub gbp: bool,
    /// VXLAN with the generic protocol extension.
    pub gpe: bool,
    /// EtherType of bare payloads of `bareudp`, 0 for MPLS or whatever else needs no telling.
    pub payload: u16,
}

impl Vport {
    /// The name of the datapath's port.
    pub fn name(&self) -> String {
        match self.kind {
            TunnelKind::Vxlan | TunnelKind::Gtpu | TunnelKind::Bareudp => {
                format!("{}_sys_{}", self.kind.name(), self.dst_port)
            }
            TunnelKind::Geneve => format!("genev_sys_{}", self.dst_port),
            kind => format!("{}_sys", kind.name()),
        }
    }
}
