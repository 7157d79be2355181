//! One tunnel port's options as values.

use std::net::IpAddr;

use fv_dpif::{TunnelKind, Vport};

/// An address of the outer packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Address {
    /// Any on receipt; the route's on transmission.
    #[default]
    Any,
    /// Flows set it.
    Flow,
    Fixed(IpAddr),
}

impl Address {
    pub fn fixed(self) -> Option<IpAddr> {
        if let Address::Fixed(a) = self { Some(a) } else { None }
    }
}

/// A tunnel key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Key {
    /// Packets carry none; received packets with 0 belong to the port too.
    #[default]
    None,
    /// Flows set and match it.
    Flow,
    Fixed(u64),
}

/// A byte of the outer IP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    Fixed(u8),
    /// The inner packet's.
    Inherit,
}

/// What the port carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Inner {
    #[default]
    Ethernet,
    /// Packets without Ethernet header, which the bridge sees with one of zeros.
    Layer3,
    /// Both, told apart by the tunnel header.
    Any,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    pub vport: Vport,
    pub local: Address,
    pub remote: Address,
    pub in_key: Key,
    pub out_key: Key,
    pub tos: Origin,
    pub ttl: Origin,
    pub dont_fragment: bool,
    /// None: as the kind needs it.
    pub csum: Option<bool>,
    pub seq: bool,
    pub egress_pkt_mark: Option<u32>,
    pub inner: Inner,
    pub erspan_ver: u8,
    pub erspan_ver_flow: bool,
    pub erspan_idx: u32,
    pub erspan_idx_flow: bool,
    pub erspan_dir: u8,
    pub erspan_dir_flow: bool,
    pub erspan_hwid: u8,
    pub erspan_hwid_flow: bool,
    /// SRv6 segments in the order in which they are visited.
    pub segments: Vec<std::net::Ipv6Addr>,
    /// What listings print: the row's options, sorted.
    pub text: Vec<(String, String)>,
}

impl Config {
    pub fn kind(&self) -> TunnelKind {
        self.vport.kind
    }

    /// The options as listings print them.
    pub fn options(&self) -> String {
        let words: Vec<String> = self.text.iter().map(|(k, v)| format!("{k}={v}")).collect();
        words.join(", ")
    }

    /// As `ofproto/list-tunnels` tells it, behind the port's name.
    pub fn describe(&self, dp_port: u32) -> String {
        let key = |k: Key| match k {
            Key::None => "0".to_string(),
            Key::Flow => "flow".into(),
            Key::Fixed(n) => format!("{n:#x}"),
        };
        let address = |a: Address| match a {
            Address::Any => "::".to_string(),
            Address::Flow => "flow".into(),
            Address::Fixed(a) => a.to_string(),
        };
        let inner = match self.inner {
            Inner::Ethernet => "legacy_l2",
            Inner::Layer3 => "legacy_l3",
            Inner::Any => "ptap",
        };
        let mut s = format!(
            "({}: {}->{}, key={}, {inner}, dp port={dp_port}",
            self.kind().name(),
            address(self.local),
            address(self.remote),
            key(self.in_key),
        );
        if self.out_key != self.in_key {
            s += &format!(", out_key={}", key(self.out_key));
        }
        s += &match self.ttl {
            Origin::Inherit => ", ttl=inherit".to_string(),
            Origin::Fixed(n) => format!(", ttl={n}"),
        };
        s += &match self.tos {
            Origin::Inherit => ", tos=inherit".to_string(),
            Origin::Fixed(0) => String::new(),
            Origin::Fixed(n) => format!(", tos={n:#x}"),
        };
        if !self.dont_fragment {
            s += ", df=false";
        }
        if let Some(csum) = self.csum {
            s += &format!(", csum={csum}");
        }
        s + ")"
    }
}
