//! Actions as the reference prints them.

use super::Names;
use crate::action::*;
use fv_core::OfPort;
use fv_flow::text::format_field;
use fv_flow::{Field, FieldValue, Subfield};
use std::net::{Ipv4Addr, Ipv6Addr};

/// A list: `drop` when it is empty.
pub fn format_actions(actions: &[Action], names: Names) -> String {
    let mut out = String::new();
    put_actions(&mut out, actions, names);
    out
}

pub fn format_action(action: &Action, names: Names) -> String {
    let mut out = String::new();
    put_action(&mut out, action, names);
    out
}

pub(super) fn put_actions(out: &mut String, actions: &[Action], names: Names) {
    if actions.is_empty() {
        out.push_str("drop");
    }
    for (i, a) in actions.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        put_action(out, a, names);
    }
}

/// `{:#x}` of the reference: zero has no prefix.
pub(super) fn hex(v: impl Into<u128>) -> String {
    match v.into() {
        0 => "0".to_owned(),
        v => format!("{v:#x}"),
    }
}

/// `NXM_NX_REG0[]`, `NXM_NX_REG0[3]`, `NXM_NX_REG0[0..5]`.
pub fn format_subfield(s: &Subfield) -> String {
    let name = header_name(s.field);
    let last = s.ofs + s.n_bits.max(1) - 1;
    match s.n_bits {
        n if s.ofs == 0 && n == s.field.n_bits() => format!("{name}[]"),
        1 => format!("{name}[{}]", s.ofs),
        _ => format!("{name}[{}..{last}]", s.ofs),
    }
}

/// The name that actions use: for IPv4 addresses not the one that matches use.
pub(super) fn field_name(f: Field) -> &'static str {
    match f {
        Field::Ipv4Src => "ip_src",
        Field::Ipv4Dst => "ip_dst",
        f => f.name(),
    }
}

fn header_name(f: Field) -> &'static str {
    // Of an option, its only one; of others, the oldest.
    let first = f.info().headers.first().or_else(|| f.header(1));
    first.map_or(f.name(), |h| h.name)
}

fn mac(m: &[u8; 6]) -> String {
    let [a, b, c, d, e, f] = m;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

pub(super) fn dotted_hex(b: &[u8]) -> String {
    b.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(".")
}

pub(super) fn put_action(out: &mut String, action: &Action, names: Names) {
    let text = match action {
        Action::Output { port, max_len } => output(*port, *max_len, names),
        Action::OutputReg { src, .. } => format!("output:{}", format_subfield(src)),
        Action::OutputTrunc { port, max_len } => format!("output(port={},max_len={max_len})", names.port(*port)),
        Action::Controller(c) => controller(c),
        Action::Enqueue { port, queue } => format!("enqueue:{}:{queue}", names.port(*port)),
        Action::Group(g) => format!("group:{g}"),
        Action::Bundle(b) => bundle(b, names),
        Action::SetVlanVid { vid, push_vlan_if_needed, .. } => {
            format!("{}_vlan_vid:{vid}", if *push_vlan_if_needed { "mod" } else { "set" })
        }
        Action::SetVlanPcp { pcp, push_vlan_if_needed, .. } => {
            format!("{}_vlan_pcp:{pcp}", if *push_vlan_if_needed { "mod" } else { "set" })
        }
        Action::StripVlan { pop_vlan } => if *pop_vlan { "pop_vlan" } else { "strip_vlan" }.to_owned(),
        Action::PushVlan(t) => format!("push_vlan:{t:#06x}"),
        Action::SetEthSrc(m) => format!("mod_dl_src:{}", mac(m)),
        Action::SetEthDst(m) => format!("mod_dl_dst:{}", mac(m)),
        Action::SetIpv4Src(a) => format!("mod_nw_src:{}", Ipv4Addr::from(*a)),
        Action::SetIpv4Dst(a) => format!("mod_nw_dst:{}", Ipv4Addr::from(*a)),
        Action::SetIpDscp(t) => format!("mod_nw_tos:{t}"),
        Action::SetIpEcn(e) => format!("mod_nw_ecn:{e}"),
        Action::SetIpTtl(t) => format!("mod_nw_ttl:{t}"),
        Action::SetL4SrcPort(p) => format!("mod_tp_src:{}", p.port),
        Action::SetL4DstPort(p) => format!("mod_tp_dst:{}", p.port),
        Action::RegMove { src, dst } => format!("move:{}->{}", format_subfield(src), format_subfield(dst)),
        Action::SetField(s) => set_field(s, names),
        Action::StackPush(s) => format!("push:{}", format_subfield(s)),
        Action::StackPop(s) => format!("pop:{}", format_subfield(s)),
        Action::DecTtl(d) if d.controllers.is_empty() => "dec_ttl".to_owned(),
        Action::DecTtl(d) => {
            let ids: Vec<String> = d.controllers.iter().map(u16::to_string).collect();
            format!("dec_ttl({})", ids.join(","))
        }
        Action::SetMplsLabel(l) => format!("set_mpls_label({l})"),
        Action::SetMplsTc(t) => format!("set_mpls_tc({t})"),
        Action::SetMplsTtl(t) => format!("set_mpls_ttl({t})"),
        Action::DecMplsTtl => "dec_mpls_ttl".to_owned(),
        Action::PushMpls(t) => format!("push_mpls:{t:#06x}"),
        Action::PopMpls(t) => format!("pop_mpls:{t:#06x}"),
        Action::DecNshTtl => "dec_nsh_ttl".to_owned(),
        Action::DeleteField(f) => format!("delete_field:{}", f.name()),
        _ => return put_other(out, action, names),
    };
    out.push_str(&text);
}

fn put_other(out: &mut String, action: &Action, names: Names) {
    let nested = |word: &str, list: &[Action]| format!("{word}({})", format_actions(list, names));
    let text = match action {
        Action::Encap(e) => encap(e),
        Action::Decap(None) => "decap()".to_owned(),
        Action::Decap(Some(t)) => format!("decap(packet_type(ns={},type={}))", t >> 16, hex(t & 0xffff)),
        Action::SetTunnel { id, wide } => {
            let wide = if *wide || *id > u32::MAX.into() { "64" } else { "" };
            format!("set_tunnel{wide}:{}", hex(*id))
        }
        Action::SetQueue(q) => format!("set_queue:{q}"),
        Action::PopQueue => "pop_queue".to_owned(),
        Action::FinTimeout { idle_s, hard_s } => fin_timeout(*idle_s, *hard_s),
        Action::Resubmit(r) => resubmit(r, names),
        Action::Learn(l) => super::learn::format_learn(l, names),
        Action::Conjunction { id, clause, n_clauses } => format!("conjunction({id},{}/{n_clauses})", clause + 1),
        Action::Multipath(m) => format!(
            "multipath({},{},{},{},{},{})",
            m.fields.name(),
            m.basis,
            m.algorithm.name(),
            u32::from(m.max_link) + 1,
            m.arg,
            format_subfield(&m.dst)
        ),
        Action::Clone(list) => nested("clone", list),
        Action::WriteActions(list) => nested("write_actions", list),
        Action::Sample(s) => sample(s, names),
        Action::Ct(c) => ct(c, names),
        Action::Nat(n) => nat(n),
        Action::CtClear => "ct_clear".to_owned(),
        Action::CheckPktLarger { dst, pkt_len } => format!("check_pkt_larger({pkt_len})->{}", format_subfield(dst)),
        Action::Note(data) => format!("note:{}", dotted_hex(data)),
        Action::Exit => "exit".to_owned(),
        Action::DebugSlow => "debug_slow".to_owned(),
        Action::DebugRecirc => "debug_recirc".to_owned(),
        Action::UnrollXlate { table, cookie } => {
            format!("unroll_xlate(table={table}, cookie={cookie:x})")
        }
        Action::Meter(m) => format!("meter:{m}"),
        Action::ClearActions => "clear_actions".to_owned(),
        Action::WriteMetadata { metadata, mask: u64::MAX } => format!("write_metadata:{}", hex(*metadata)),
        Action::WriteMetadata { metadata, mask } => format!("write_metadata:{}/{}", hex(*metadata), hex(*mask)),
        Action::GotoTable(t) => format!("goto_table:{}", names.table(*t)),
        // put_action has the others.
        _ => String::new(),
    };
    out.push_str(&text);
}

fn output(port: OfPort, max_len: u16, names: Names) -> String {
    match port {
        OfPort::CONTROLLER => format!("CONTROLLER:{max_len}"),
        p if p.is_reserved() => names.port(p),
        p => format!("output:{}", names.port(p)),
    }
}

fn controller(c: &Controller) -> String {
    let mut parts = Vec::new();
    if c.reason != PacketInReason::Action {
        parts.push(format!("reason={}", c.reason.name()));
    }
    if c.max_len != CONTROLLER_MAX_LEN {
        parts.push(format!("max_len={}", c.max_len));
    }
    if c.controller_id != 0 {
        parts.push(format!("id={}", c.controller_id));
    }
    if !c.userdata.is_empty() {
        parts.push(format!("userdata={}", dotted_hex(&c.userdata)));
    }
    if c.pause {
        parts.push("pause".to_owned());
    }
    if c.meter_id != 0 {
        parts.push(format!("meter_id={}", c.meter_id));
    }
    let only_len = c.max_len != CONTROLLER_MAX_LEN && parts.len() == 1;
    if parts.is_empty() || only_len {
        return format!("CONTROLLER:{}", c.max_len);
    }
    format!("controller({})", parts.join(","))
}

impl PacketInReason {
    pub const fn name(self) -> &'static str {
        match self {
            PacketInReason::NoMatch => "no_match",
            PacketInReason::Action => "action",
            PacketInReason::InvalidTtl => "invalid_ttl",
            PacketInReason::ActionSet => "action_set",
            PacketInReason::Group => "group",
            PacketInReason::PacketOut => "packet_out",
            PacketInReason::ExplicitMiss | PacketInReason::ImplicitMiss => "",
        }
    }
}

impl HashFields {
    pub const fn name(self) -> &'static str {
        match self {
            HashFields::EthSrc => "eth_src",
            HashFields::SymmetricL4 => "symmetric_l4",
            HashFields::SymmetricL3L4 => "symmetric_l3l4",
            HashFields::SymmetricL3L4Udp => "symmetric_l3l4+udp",
            HashFields::NwSrc => "nw_src",
            HashFields::NwDst => "nw_dst",
            HashFields::SymmetricL3 => "symmetric_l3",
        }
    }
}

impl MultipathAlgorithm {
    pub const ALL: [MultipathAlgorithm; 4] = [
        MultipathAlgorithm::ModuloN,
        MultipathAlgorithm::HashThreshold,
        MultipathAlgorithm::Hrw,
        MultipathAlgorithm::IterHash,
    ];
    pub const fn name(self) -> &'static str {
        match self {
            MultipathAlgorithm::ModuloN => "modulo_n",
            MultipathAlgorithm::HashThreshold => "hash_threshold",
            MultipathAlgorithm::Hrw => "hrw",
            MultipathAlgorithm::IterHash => "iter_hash",
        }
    }
}

fn bundle(b: &Bundle, names: Names) -> String {
    let algorithm = match b.algorithm {
        BundleAlgorithm::ActiveBackup => "active_backup",
        BundleAlgorithm::Hrw => "hrw",
    };
    let members: Vec<String> = b.members.iter().map(|p| names.port(*p)).collect();
    let (word, dst) = match &b.dst {
        Some(d) => ("bundle_load", format!("{},", format_subfield(d))),
        None => ("bundle", String::new()),
    };
    format!("{word}({},{},{algorithm},ofport,{dst}members:{})", b.fields.name(), b.basis, members.join(","))
}

/// `load` takes one run of bits; what is not one run is a set-field whatever form it came in.
fn set_field(s: &SetField, names: Names) -> String {
    let (value, mask) = (s.value.get(), s.mask.get());
    let whole = mask == s.field.mask_bits();
    let n_bits = mask.n_bits() - mask.trailing_zeros().min(mask.n_bits());
    let (ofs, n_bits) = if whole { (0, s.field.n_bits()) } else { (mask.trailing_zeros(), n_bits) };
    let one_run = whole || n_bits > 0 && mask.lowered(ofs) == FieldValue::ones(n_bits);
    if s.form == SetForm::Load && one_run {
        // As the wire has it: one load carries at most 64 bits.
        let pieces = (0..n_bits).step_by(64).map(|at| {
            let piece = Subfield::new(s.field, ofs + at, (n_bits - at).min(64));
            let value = value.lowered(piece.ofs).0 & FieldValue::ones(piece.n_bits).0;
            format!("load:{}->{}", hex(value), format_subfield(&piece))
        });
        return pieces.collect::<Vec<_>>().join(",");
    }
    format!("set_field:{}->{}", format_field(s.field, &value, Some(&mask), names.ports), field_name(s.field))
}

fn encap(e: &Encap) -> String {
    let props: Vec<String> = e
        .props
        .iter()
        .map(|p| match p {
            EncapProp::NshMdType(t) => format!("md_type={t}"),
            EncapProp::NshTlv { class, kind, data } => {
                let hex: String = data.iter().map(|b| format!("{b:02x}")).collect();
                format!("tlv({class:#06x},{kind},0x{hex})")
            }
        })
        .collect();
    let kind = match e.packet_type {
        0 => "ethernet".to_owned(),
        0x1_894f => "nsh".to_owned(),
        0x1_8847 => "mpls".to_owned(),
        0x1_8848 => "mpls_mc".to_owned(),
        t => format!("packet_type({},{})", t >> 16, hex(t & 0xffff)),
    };
    if props.is_empty() { format!("encap({kind})") } else { format!("encap({kind}({}))", props.join(",")) }
}

fn fin_timeout(idle: u16, hard: u16) -> String {
    let mut parts = Vec::new();
    if idle != 0 {
        parts.push(format!("idle_timeout={idle}"));
    }
    if hard != 0 {
        parts.push(format!("hard_timeout={hard}"));
    }
    format!("fin_timeout({})", parts.join(","))
}

fn resubmit(r: &Resubmit, names: Names) -> String {
    let port = if r.in_port == OfPort::IN_PORT { String::new() } else { names.port(r.in_port) };
    if r.table == TABLE_CURRENT && !port.is_empty() && !r.with_ct_orig {
        return format!("resubmit:{port}");
    }
    let table = if r.table == TABLE_CURRENT { String::new() } else { names.table(r.table) };
    format!("resubmit({port},{table}{})", if r.with_ct_orig { ",ct" } else { "" })
}

fn sample(s: &Sample, names: Names) -> String {
    let id = |i: &SampleId| match i {
        SampleId::Imm(n) => n.to_string(),
        SampleId::Field(f) => format_subfield(f),
    };
    let mut t = format!(
        "sample(probability={},collector_set_id={},obs_domain_id={},obs_point_id={}",
        s.probability,
        s.collector_set_id,
        id(&s.obs_domain_id),
        id(&s.obs_point_id)
    );
    if s.sampling_port != OfPort::NONE {
        t += &format!(",sampling_port={}", names.port(s.sampling_port));
    }
    t += match s.direction {
        SampleDirection::Default => "",
        SampleDirection::Ingress => ",ingress",
        SampleDirection::Egress => ",egress",
    };
    t + ")"
}

fn ct(c: &Ct, names: Names) -> String {
    let mut parts = Vec::new();
    if c.commit {
        parts.push("commit".to_owned());
    }
    if c.force {
        parts.push("force".to_owned());
    }
    if let Some(t) = c.recirc_table {
        parts.push(format!("table={}", names.table(t)));
    }
    match &c.zone {
        CtZone::Imm(0) => {}
        CtZone::Imm(z) => parts.push(format!("zone={z}")),
        CtZone::Field(f) => parts.push(format!("zone={}", format_subfield(f))),
    }
    // A translation that comes first stands outside of exec().
    let (first, rest) = match c.exec.split_first() {
        Some((Action::Nat(n), rest)) => (Some(n), rest),
        _ => (None, &c.exec[..]),
    };
    parts.extend(first.map(|n| nat(n)));
    if !rest.is_empty() {
        parts.push(format!("exec({})", format_actions(rest, names)));
    }
    match c.alg {
        0 => {}
        21 => parts.push("alg=ftp".to_owned()),
        69 => parts.push("alg=tftp".to_owned()),
        n => parts.push(format!("alg={n}")),
    }
    format!("ct({})", parts.join(","))
}

fn nat(n: &Nat) -> String {
    let kind = match n.kind {
        None => return "nat".to_owned(),
        Some(NatKind::Src) => "src",
        Some(NatKind::Dst) => "dst",
    };
    let v6 = |a: &[u8; 16]| {
        let a = Ipv6Addr::from(*a);
        if n.ports.is_some() { format!("[{a}]") } else { a.to_string() }
    };
    let range = match &n.range {
        NatRange::None => String::new(),
        NatRange::V4(a, 0) => Ipv4Addr::from(*a).to_string(),
        NatRange::V4(a, b) => format!("{}-{}", Ipv4Addr::from(*a), Ipv4Addr::from(*b)),
        NatRange::V6(a, b) if *b == [0; 16] => v6(a),
        NatRange::V6(a, b) => format!("{}-{}", v6(a), v6(b)),
    };
    let ports = match n.ports {
        None => String::new(),
        Some((a, b)) if a == b => format!(":{a}"),
        Some((a, b)) => format!(":{a}-{b}"),
    };
    let mut t = format!("nat({kind}");
    if !range.is_empty() {
        t += &format!("={range}{ports}");
    }
    for (on, word) in [(n.persistent, ",persistent"), (n.hash, ",hash"), (n.random, ",random")] {
        if on {
            t += word;
        }
    }
    t + ")"
}
