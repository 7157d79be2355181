//! What a NIC can match and do, and whether that is enough for a flow.

use std::fmt;

use fv_core::{DpPort, Nanos};
use fv_dpif::action::SetField;
use fv_dpif::{DpAction, Program};
use fv_flow::{DpKey, DpMask, Field, FlowMask};

macro_rules! set {
    ($(#[$m:meta])* $name:ident { $($(#[$fm:meta])* $bit:ident = $text:literal),* $(,)? }) => {
        $(#[$m])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name(u32);
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy)]
        #[repr(u8)]
        enum Bits { $($bit),* }
        impl $name {
            $($(#[$fm])* pub const $bit: $name = $name(1 << Bits::$bit as u8);)*
            pub const NONE: $name = $name(0);
            pub const NAMES: &'static [(&'static str, $name)] = &[$(($text, $name::$bit)),*];
            pub const fn union(self, o: $name) -> $name {
                $name(self.0 | o.0)
            }
            pub const fn without(self, o: $name) -> $name {
                $name(self.0 & !o.0)
            }
            pub const fn contains(self, o: $name) -> bool {
                self.0 & o.0 == o.0
            }
            pub fn all() -> $name {
                $name::NAMES.iter().fold($name::NONE, |all, (_, one)| all.union(*one))
            }
            /// A comma list of names, or `all`; None if one is unknown.
            pub fn parse(text: &str) -> Option<$name> {
                if text == "all" {
                    return Some($name::all());
                }
                text.split(',').filter(|w| !w.is_empty()).try_fold($name::NONE, |all, word| {
                    $name::NAMES.iter().find(|(name, _)| *name == word).map(|(_, one)| all.union(*one))
                })
            }
        }
    };
}

mod fields {
    set! {
        /// Groups of fields that a NIC matches, with any mask. The ingress port needs no saying.
        FieldSet {
            ETH = "eth",
            ETH_TYPE = "eth_type",
            VLAN = "vlan",
            IPV4 = "ipv4",
            IPV6 = "ipv6",
            IP_PROTO = "ip_proto",
            IP_TOS = "ip_tos",
            IP_TTL = "ip_ttl",
            IP_FRAG = "ip_frag",
            /// TCP, UDP and SCTP ports; type and code of ICMP.
            PORTS = "ports",
            TCP_FLAGS = "tcp_flags",
            ARP = "arp",
            ND = "nd",
            MPLS = "mpls",
        }
    }
}

mod actions {
    set! {
        /// What a NIC can do by itself.
        ActionSet {
            OUTPUT = "output",
            DROP = "drop",
            SET_ETH = "set_eth",
            SET_IPV4 = "set_ipv4",
            SET_IPV6 = "set_ipv6",
            SET_PORTS = "set_ports",
            PUSH_VLAN = "push_vlan",
            POP_VLAN = "pop_vlan",
            /// More than one output.
            MULTIPLE = "multiple",
        }
    }
}

pub use actions::ActionSet;
pub use fields::FieldSet;

/// What a NIC is able to do; asked once a port, never probed flow by flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caps {
    pub fields: FieldSet,
    /// Empty: the NIC forwards nothing by itself.
    pub actions: ActionSet,
    /// Width of a mark; 0: the NIC does not mark.
    pub mark_bits: u8,
    /// Counters are at most this old when they are reported.
    pub stats_delay: Nanos,
    /// Packets may come out of its queues this long after the rule that marked them is gone.
    pub pipeline_delay: Nanos,
    /// Operations under way at most.
    pub depth: usize,
}

/// How much of a flow the NIC takes over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// It says which flow a packet is of.
    Mark,
    /// It forwards the packet.
    Full,
}

/// Why a flow, or some of what is possible with it, stays in software.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhyNot {
    /// The flow matches a field that the NIC does not.
    Field(&'static str),
    /// The flow does something that the NIC cannot.
    Action(&'static str),
    /// An output leads to a port that is not the card's.
    OtherCard(DpPort),
    /// The flow is of packets that software has seen before.
    Recirculated,
    /// The NIC neither marks nor forwards.
    NotAble,
    /// The NIC refused it without saying why.
    Refused,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyNot::Field(name) => write!(f, "the NIC cannot match {name}"),
            WhyNot::Action(name) => write!(f, "the NIC cannot do {name}"),
            WhyNot::OtherCard(port) => write!(f, "output to port {port}, which is not on the NIC"),
            WhyNot::Recirculated => write!(f, "packets come from recirculation, not from the NIC"),
            WhyNot::NotAble => write!(f, "the NIC neither marks nor forwards"),
            WhyNot::Refused => write!(f, "the NIC refused the flow"),
        }
    }
}

impl Caps {
    /// What the NIC can do for a flow, and if that is not everything, why. `ours` says which ports are on the
    /// same card.
    pub fn level(
        &self,
        key: &DpKey,
        mask: &DpMask,
        program: &Program,
        ours: &dyn Fn(DpPort) -> bool,
    ) -> Result<(Level, Option<WhyNot>), WhyNot> {
        self.matches(key, mask)?;
        match self.does(program, ours) {
            Ok(()) => Ok((Level::Full, None)),
            Err(why) if self.mark_bits > 0 => Ok((Level::Mark, Some(why))),
            Err(why) => Err(why),
        }
    }

    /// Whether it can tell exactly the packets of the flow from all others.
    fn matches(&self, key: &DpKey, mask: &DpMask) -> Result<(), WhyNot> {
        if key.base.recirc_id != 0 {
            return Err(WhyNot::Recirculated);
        }
        let able = self.bits();
        let known = known_zero();
        let mut left = FlowMask::default();
        let parts = mask.0.words().iter().zip(key.words()).zip(able.words().iter().zip(known.words()));
        for (to, ((mask, key), (able, known))) in left.0.dp.words_mut().iter_mut().zip(parts) {
            // What every packet off the wire has zero need not be looked at, if zero is wanted.
            *to = mask & !able & !(known & !key);
        }
        if left.is_empty() {
            return Ok(());
        }
        Err(WhyNot::Field(Field::all().find(|f| !f.is_all_wild(&left)).map_or("a reserved field", Field::name)))
    }

    fn does(&self, program: &Program, ours: &dyn Fn(DpPort) -> bool) -> Result<(), WhyNot> {
        if self.actions == ActionSet::NONE {
            return Err(WhyNot::NotAble);
        }
        let mut outputs = 0;
        for action in &program.actions {
            let needed = needs(action)?;
            if !self.actions.contains(needed) {
                return Err(WhyNot::Action(name_of(needed)));
            }
            if let DpAction::Output(port) = action {
                outputs += 1;
                if !ours(*port) {
                    return Err(WhyNot::OtherCard(*port));
                }
            }
        }
        let needed = match outputs {
            0 => ActionSet::DROP,
            1 => ActionSet::NONE,
            _ => ActionSet::MULTIPLE,
        };
        if self.actions.contains(needed) { Ok(()) } else { Err(WhyNot::Action(name_of(needed))) }
    }

    /// The bits of a key that it can match.
    fn bits(&self) -> DpKey {
        let mut k = DpKey::default();
        let has = |group| self.fields.contains(group);
        k.base.in_port = u32::MAX;
        k.base.recirc_id = u32::MAX;
        k.misc.packet_type = u32::MAX;
        if has(FieldSet::ETH) {
            (k.base.dl_src, k.base.dl_dst) = ([0xff; 6], [0xff; 6]);
        }
        if has(FieldSet::ETH_TYPE) {
            k.base.dl_type = u16::MAX.into();
        }
        if has(FieldSet::VLAN) {
            (k.base.vlans[0].tpid, k.base.vlans[0].tci) = (u16::MAX.into(), u16::MAX.into());
        }
        if has(FieldSet::IPV4) || has(FieldSet::ARP) {
            (k.base.nw_src, k.base.nw_dst) = (u32::MAX.into(), u32::MAX.into());
        }
        if has(FieldSet::IPV6) {
            (k.v6.ipv6_src, k.v6.ipv6_dst) = ([0xff; 16], [0xff; 16]);
            k.v6.ipv6_label = u32::MAX.into();
        }
        if has(FieldSet::IP_PROTO) {
            k.base.nw_proto = u8::MAX;
        }
        if has(FieldSet::IP_TOS) {
            k.base.nw_tos = u8::MAX;
        }
        if has(FieldSet::IP_TTL) {
            k.base.nw_ttl = u8::MAX;
        }
        if has(FieldSet::IP_FRAG) {
            k.base.nw_frag = u8::MAX;
        }
        if has(FieldSet::PORTS) {
            (k.base.tp_src, k.base.tp_dst) = (u16::MAX.into(), u16::MAX.into());
        }
        if has(FieldSet::TCP_FLAGS) {
            k.base.tcp_flags = u16::MAX.into();
        }
        if has(FieldSet::ARP) || has(FieldSet::ND) {
            (k.v6.arp_sha, k.v6.arp_tha) = ([0xff; 6], [0xff; 6]);
        }
        if has(FieldSet::ND) {
            k.v6.nd_target = [0xff; 16];
        }
        if has(FieldSet::MPLS) {
            k.misc.mpls_lse = [u32::MAX.into(); 3];
        }
        k
    }
}

/// Bits that are zero in every packet that comes off the wire and has not been recirculated.
fn known_zero() -> DpKey {
    let mut k = DpKey::default();
    k.base.dp_hash = u32::MAX;
    k.base.pkt_mark = u32::MAX;
    k.base.ct_mark = u32::MAX;
    k.base.ct_state = u16::MAX;
    k.base.ct_zone = u16::MAX;
    k.misc.skb_priority = u32::MAX;
    // Whole blocks: a tunnel's metadata, and connection tracking's.
    for word in &mut k.words_mut()[2 * 8..4 * 8] {
        *word = u64::MAX;
    }
    k
}

fn name_of(one: ActionSet) -> &'static str {
    ActionSet::NAMES.iter().find(|(_, bit)| one.contains(*bit)).map_or("nothing", |(name, _)| name)
}

/// What an action asks of the NIC, or its name if no NIC of ours does it.
fn needs(action: &DpAction) -> Result<ActionSet, WhyNot> {
    Ok(match action {
        DpAction::Output(_) => ActionSet::OUTPUT,
        DpAction::Drop(_) => ActionSet::DROP,
        DpAction::PushVlan { .. } => ActionSet::PUSH_VLAN,
        DpAction::PopVlan => ActionSet::POP_VLAN,
        DpAction::Set(SetField::Eth { .. }) => ActionSet::SET_ETH,
        DpAction::Set(SetField::Ipv4 { .. }) => ActionSet::SET_IPV4,
        DpAction::Set(SetField::Ipv6 { .. }) => ActionSet::SET_IPV6,
        DpAction::Set(SetField::Tcp { .. } | SetField::Udp { .. } | SetField::Sctp { .. }) => ActionSet::SET_PORTS,
        DpAction::Set(_) => return Err(WhyNot::Action("set")),
        DpAction::LbOutput(_) => return Err(WhyNot::Action("lb_output")),
        DpAction::Userspace { .. } => return Err(WhyNot::Action("userspace")),
        DpAction::PushMpls { .. } => return Err(WhyNot::Action("push_mpls")),
        DpAction::PopMpls { .. } => return Err(WhyNot::Action("pop_mpls")),
        DpAction::PushEth { .. } => return Err(WhyNot::Action("push_eth")),
        DpAction::PopEth => return Err(WhyNot::Action("pop_eth")),
        DpAction::Recirc(_) => return Err(WhyNot::Action("recirc")),
        DpAction::Hash(_) => return Err(WhyNot::Action("hash")),
        DpAction::Ct(_) => return Err(WhyNot::Action("ct")),
        DpAction::CtClear => return Err(WhyNot::Action("ct_clear")),
        DpAction::Meter(_) => return Err(WhyNot::Action("meter")),
        DpAction::Trunc(_) => return Err(WhyNot::Action("trunc")),
        DpAction::Sample { .. } => return Err(WhyNot::Action("sample")),
        DpAction::Clone(_) => return Err(WhyNot::Action("clone")),
        DpAction::CheckPktLen { .. } => return Err(WhyNot::Action("check_pkt_len")),
        DpAction::DecTtl { .. } => return Err(WhyNot::Action("dec_ttl")),
        DpAction::TunnelPop(_) => return Err(WhyNot::Action("tnl_pop")),
        DpAction::TunnelPush(_) => return Err(WhyNot::Action("tnl_push")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caps() -> Caps {
        Caps {
            fields: FieldSet::all().without(FieldSet::IP_TTL),
            actions: ActionSet::all().without(ActionSet::PUSH_VLAN),
            mark_bits: 24,
            stats_delay: Nanos::ZERO,
            pipeline_delay: Nanos::ZERO,
            depth: 64,
        }
    }

    fn level(caps: &Caps, mask: impl FnOnce(&mut DpKey, &mut DpKey), actions: &[DpAction]) -> Result<Level, String> {
        let (mut key, mut m) = (DpKey::default(), DpMask::default());
        m.0.base.in_port = u32::MAX;
        mask(&mut key, &mut m.0);
        let program = Program::new(actions.to_vec());
        let (level, why) = caps.level(&key, &m, &program, &|p| p.0 < 10).map_err(|why| why.to_string())?;
        assert_eq!(level == Level::Full, why.is_none());
        Ok(level)
    }

    #[test]
    fn fields_decide_whether_at_all() {
        let out = [DpAction::Output(DpPort(1))];
        assert_eq!(level(&caps(), |_, m| m.base.tp_dst = 0xff00.into(), &out), Ok(Level::Full));
        assert_eq!(level(&caps(), |_, m| m.base.nw_ttl = 1, &out), Err("the NIC cannot match nw_ttl".into()));
        assert_eq!(level(&caps(), |_, m| m.ct.label[3] = 1, &out), Ok(Level::Full), "zero off the wire");
        let tracked = |k: &mut DpKey, m: &mut DpKey| (k.base.ct_state, m.base.ct_state) = (0x20, 0x20);
        assert_eq!(level(&caps(), tracked, &out), Err("the NIC cannot match ct_state".into()));
        let recirculated = |k: &mut DpKey, _: &mut DpKey| k.base.recirc_id = 3;
        assert!(level(&caps(), recirculated, &out).is_err());
    }

    #[test]
    fn actions_decide_how_much() {
        let vlan = [DpAction::PushVlan { tpid: 0x8100, tci: 0x1001 }, DpAction::Output(DpPort(1))];
        assert_eq!(level(&caps(), |_, _| (), &vlan), Ok(Level::Mark));
        assert_eq!(level(&caps(), |_, _| (), &[DpAction::Output(DpPort(10))]), Ok(Level::Mark), "another card");
        assert_eq!(level(&caps(), |_, _| (), &[]), Ok(Level::Full), "a drop");
        assert_eq!(level(&caps(), |_, _| (), &[DpAction::Recirc(fv_core::RecircId(1))]), Ok(Level::Mark));
        let deaf = Caps { mark_bits: 0, ..caps() };
        assert!(level(&deaf, |_, _| (), &vlan).is_err_and(|why| why.contains("push_vlan")));
    }

    #[test]
    fn sets_are_read_by_name() {
        assert_eq!(FieldSet::parse("eth,ports"), Some(FieldSet::ETH.union(FieldSet::PORTS)));
        assert_eq!(ActionSet::parse("all"), Some(ActionSet::all()));
        assert_eq!(ActionSet::parse("fly"), None);
    }
}
