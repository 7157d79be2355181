//! Actions from text, as `ovs-ofctl` accepts them.

use super::parse_ct::{parse_ct, parse_nat};
use super::scan::{self, Item};
use super::{Lookups, learn};
use crate::action::*;
use fv_core::OfPort;
use fv_flow::text::parse_field_value;
use fv_flow::{Field, FieldValue, Subfield};

/// What is wrong with a text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    pub(super) fn text(s: impl Into<String>) -> Error {
        Error(s.into())
    }
}

type Result<T> = std::result::Result<T, Error>;

/// Deepest nesting of lists.
const MAX_DEPTH: u8 = 32;

/// A list of actions and instructions, e.g. `output:2,goto_table:1`.
pub fn parse_actions(s: &str, names: Lookups) -> Result<Actions> {
    let list = parse_list(s, names, 0)?;
    check_order(&list)?;
    Ok(list)
}

pub(super) fn parse_list(s: &str, names: Lookups, depth: u8) -> Result<Actions> {
    if depth > MAX_DEPTH {
        return Err(Error::text("Action nested too deeply"));
    }
    let items = scan::items(s)?;
    if items.iter().any(|i| i.key.eq_ignore_ascii_case("drop")) {
        if items.len() > 1 {
            return Err(Error::text("\"drop\" must not be accompanied by any other action or instruction"));
        }
        return Ok(Actions::new());
    }
    let mut out = Actions::new();
    for i in items {
        out.0.extend(action(&i, names, depth)?);
    }
    Ok(out)
}

/// `NXM_NX_REG0[]`, `reg0[3]`, `NXM_NX_REG0[0..5]`.
pub fn parse_subfield(s: &str) -> Result<Subfield> {
    let s = s.trim();
    let Some((name, range)) = s.split_once('[') else {
        return match Field::by_header_name(s).or_else(|| Field::by_name(s)) {
            Some(f) => Ok(Subfield::whole(f)),
            None => Err(Error(format!("{s}: unknown field `{s}'"))),
        };
    };
    let f = Field::by_header_name(name).or_else(|| Field::by_name(name));
    let f = f.ok_or_else(|| Error(format!("{s}: unknown field `{name}'")))?;
    let bad = || Error(format!("{s}: syntax error expecting [] or [<bit>] or [<start>..<end>]"));
    let range = range.strip_suffix(']').ok_or_else(bad)?;
    let bit = |t: &str| scan::number(t).and_then(|n| u32::try_from(n).ok()).ok_or_else(bad);
    let (first, last) = match range.split_once("..") {
        None if range.is_empty() => (0, f.n_bits() - 1),
        None => (bit(range)?, bit(range)?),
        Some((a, b)) => (bit(a)?, bit(b)?),
    };
    if first > last {
        return Err(Error(format!("{s}: starting bit {first} is after ending bit {last}")));
    }
    if last >= f.n_bits() {
        return Err(Error(format!("{s}: bit {last} is not valid because field has only {} bits", f.n_bits())));
    }
    Ok(Subfield::new(f, first, last - first + 1))
}

/// One item; most are one action.
fn action(i: &Item<'_>, names: Lookups, depth: u8) -> Result<Option<Action>> {
    let (key, v) = (i.key.to_ascii_lowercase(), i.value);
    let nested = || parse_list(v, names, depth + 1);
    Ok(Some(match key.as_str() {
        "output" => output(i, names)?,
        "controller" => controller(v)?,
        "group" => Action::Group(scan::u32(v, "group id")?),
        "meter" => Action::Meter(scan::u32(v, "meter id")?),
        "resubmit" => Action::Resubmit(resubmit(v, names)?),
        "learn" => Action::Learn(Box::new(learn::parse_learn(v, names)?)),
        "clone" => Action::Clone(nested()?),
        "write_actions" => {
            let list = nested()?;
            // An empty set changes nothing.
            if list.is_empty() {
                return Ok(None);
            }
            Action::WriteActions(list)
        }
        "clear_actions" => Action::ClearActions,
        "write_metadata" => {
            let (m, mask) = v.split_once('/').map_or((v, None), |(m, k)| (m, Some(k)));
            let mask = mask.map_or(Ok(u64::MAX), |k| scan::u64(k, "mask"))?;
            Action::WriteMetadata { metadata: scan::u64(m, "metadata")?, mask }
        }
        "goto_table" => Action::GotoTable(names.table(v).ok_or_else(|| Error(format!("unknown table \"{v}\"")))?),
        "ct" => Action::Ct(Box::new(parse_ct(v, names, depth)?)),
        "nat" => Action::Nat(Box::new(parse_nat(v)?)),
        "ct_clear" => Action::CtClear,
        "exit" => Action::Exit,
        "debug_slow" => Action::DebugSlow,
        "debug_recirc" => Action::DebugRecirc,
        "note" => {
            let mut data = scan::hex_bytes(v).ok_or_else(|| Error("bad hex digit in `note' argument".into()))?;
            // The wire has room for 6 bytes and any number of 8 more.
            let len = (data.len().max(1) + 2).next_multiple_of(8) - 2;
            data.resize(len, 0);
            Action::Note(data)
        }
        "set_field" => set_field(v, names)?,
        "load" => load_action(v)?,
        "move" => {
            let (from, to) = scan::arrow(v)?;
            let (src, dst) = (parse_subfield(from)?, parse_subfield(to)?);
            if src.n_bits != dst.n_bits {
                let (a, b) = (src.n_bits, dst.n_bits);
                return Err(Error(format!("{v}: source field is {a} bits wide but destination is {b} bits wide")));
            }
            writable(&dst)?;
            Action::RegMove { src, dst }
        }
        "push" => Action::StackPush(parse_subfield(v)?),
        "pop" => {
            let s = parse_subfield(v)?;
            writable(&s)?;
            Action::StackPop(s)
        }
        _ => return header(&key, i, names).transpose().unwrap_or_else(|| other(&key, i, names)).map(Some),
    }))
}

/// Actions on headers. None: not one of them.
fn header(key: &str, i: &Item<'_>, names: Lookups) -> Result<Option<Action>> {
    let v = i.value;
    let ip = |s: &str| {
        s.parse::<std::net::Ipv4Addr>()
            .map(u32::from)
            .map_err(|_| Error(format!("{s}: could not convert to IP address")))
    };
    let mac = |s: &str| {
        let (value, _) = parse_field_value(Field::EthSrc, s, names.ports).map_err(|e| Error(e.to_string()))?;
        let mut m = [0; 6];
        m.copy_from_slice(&value.to_be_bytes(6));
        Ok::<_, Error>(m)
    };
    let l4 = || scan::u16(v, "port number").map(|port| L4Port { port, ip_proto: 0 });
    let below = |n: u16, limit: u16, what: &str| {
        if n < limit { Ok(n) } else { Err(Error(format!("{v}: not a valid {what}"))) }
    };
    Ok(Some(match key {
        "mod_vlan_vid" | "set_vlan_vid" => Action::SetVlanVid {
            vid: below(scan::u16(v, "VLAN VID")?, 4096, "VLAN VID")?,
            push_vlan_if_needed: key.starts_with("mod"),
            flow_has_vlan: false,
        },
        "mod_vlan_pcp" | "set_vlan_pcp" => Action::SetVlanPcp {
            pcp: below(scan::u16(v, "VLAN PCP")?, 8, "VLAN PCP")? as u8,
            push_vlan_if_needed: key.starts_with("mod"),
            flow_has_vlan: false,
        },
        "strip_vlan" => Action::StripVlan { pop_vlan: false },
        "pop_vlan" => Action::StripVlan { pop_vlan: true },
        "push_vlan" => match scan::u16(v, "ethertype")? {
            t @ (0x8100 | 0x88a8) => Action::PushVlan(t),
            _ => return Err(Error(format!("{v}: not a valid VLAN ethertype"))),
        },
        "mod_dl_src" => Action::SetEthSrc(mac(v)?),
        "mod_dl_dst" => Action::SetEthDst(mac(v)?),
        "mod_nw_src" => Action::SetIpv4Src(ip(v)?),
        "mod_nw_dst" => Action::SetIpv4Dst(ip(v)?),
        "mod_nw_tos" => match scan::u8(v, "TOS")? {
            t if t & 3 == 0 => Action::SetIpDscp(t),
            _ => return Err(Error(format!("{v}: not a valid TOS"))),
        },
        "mod_nw_ecn" => Action::SetIpEcn(below(scan::u16(v, "ECN")?, 4, "ECN")? as u8),
        "mod_nw_ttl" => Action::SetIpTtl(scan::u8(v, "TTL")?),
        "mod_tp_src" => Action::SetL4SrcPort(l4()?),
        "mod_tp_dst" => Action::SetL4DstPort(l4()?),
        "dec_ttl" => {
            let ids = scan::items(v)?.iter().map(|i| scan::u16(i.key, "controller id")).collect::<Result<_>>()?;
            Action::DecTtl(DecTtl { controllers: ids })
        }
        "set_mpls_label" => match scan::u32(v, "label")? {
            l if l < 1 << 20 => Action::SetMplsLabel(l),
            _ => return Err(Error(format!("{v}: not a valid MPLS label"))),
        },
        "set_mpls_tc" => Action::SetMplsTc(below(scan::u16(v, "TC")?, 8, "MPLS TC")? as u8),
        "set_mpls_ttl" => Action::SetMplsTtl(scan::u8(v, "TTL")?),
        "dec_mpls_ttl" => Action::DecMplsTtl,
        "push_mpls" => match scan::u16(v, "push_mpls")? {
            t @ (0x8847 | 0x8848) => Action::PushMpls(t),
            _ => return Err(Error(format!("{v}: not a valid MPLS ethertype"))),
        },
        "pop_mpls" => Action::PopMpls(scan::u16(v, "pop_mpls")?),
        "dec_nsh_ttl" => Action::DecNshTtl,
        "delete_field" => Action::DeleteField(parse_subfield(v)?.field),
        "encap" => Action::Encap(Box::new(super::parse_ct::parse_encap(v)?)),
        "decap" => Action::Decap(super::parse_ct::parse_decap(v)?),
        _ => return Ok(None),
    }))
}

fn other(key: &str, i: &Item<'_>, names: Lookups) -> Result<Action> {
    let v = i.value;
    Ok(match key {
        "enqueue" => {
            let (port, queue) = v.split_once([',', ':']).ok_or_else(|| {
                Error("\"enqueue\" syntax is \"enqueue:PORT:QUEUE\" or \"enqueue(PORT,QUEUE)\"".into())
            })?;
            let port = names.port(port).ok_or_else(|| Error(format!("{port}: enqueue to unknown port")))?;
            Action::Enqueue { port, queue: scan::u32(queue, "queue")? }
        }
        "set_queue" => Action::SetQueue(scan::u32(v, "queue")?),
        "pop_queue" => Action::PopQueue,
        "set_tunnel" | "set_tunnel64" => {
            Action::SetTunnel { id: scan::u64(v, "tunnel id")?, wide: key == "set_tunnel64" }
        }
        "fin_timeout" => {
            let (mut idle_s, mut hard_s) = (0, 0);
            for kv in scan::key_values(v)? {
                match kv.key {
                    "idle_timeout" => idle_s = scan::u16(kv.value, kv.key)?,
                    "hard_timeout" => hard_s = scan::u16(kv.value, kv.key)?,
                    k => return Err(Error(format!("invalid key '{k}' in 'fin_timeout' argument"))),
                }
            }
            Action::FinTimeout { idle_s, hard_s }
        }
        "check_pkt_larger" => {
            let pkt_len = scan::u16(v, "packet length")?;
            let to = i.tail.strip_prefix("->").ok_or_else(|| Error(format!("{v}{}: missing `->'", i.tail)))?;
            let dst = parse_subfield(to)?;
            if dst.n_bits != 1 {
                return Err(Error("Only 1-bit destination field is allowed".into()));
            }
            Action::CheckPktLarger { dst, pkt_len }
        }
        "conjunction" => super::parse_ct::parse_conjunction(v)?,
        "multipath" => super::parse_ct::parse_multipath(v)?,
        "bundle" | "bundle_load" => super::parse_ct::parse_bundle(v, key == "bundle_load", names)?,
        "sample" => super::parse_ct::parse_sample(v, names)?,
        // A port by itself.
        _ if i.value.is_empty() => match names.port(i.key) {
            Some(p) => Action::output(p),
            None => return Err(Error(format!("unknown action {}", i.key))),
        },
        _ => return Err(Error(format!("unknown action {}", i.key))),
    })
}

fn output(i: &Item<'_>, names: Lookups) -> Result<Action> {
    let v = i.value;
    if v.contains('[') {
        return Ok(Action::OutputReg { src: parse_subfield(v)?, max_len: CONTROLLER_MAX_LEN });
    }
    if v.contains("port=") {
        let (mut port, mut max_len) = (None, None);
        for kv in scan::key_values(v)? {
            match kv.key {
                "port" => {
                    port = Some(
                        names
                            .port(kv.value)
                            .ok_or_else(|| Error(format!("output to unknown truncate port: {}", kv.value)))?,
                    )
                }
                "max_len" => max_len = Some(scan::u32(kv.value, "max_len")?),
                k => return Err(Error(format!("invalid key '{k}' in output_trunc argument"))),
            }
        }
        return match (port, max_len) {
            (Some(port), Some(max_len)) if max_len >= 14 => Ok(Action::OutputTrunc { port, max_len }),
            (Some(_), Some(n)) => Err(Error(format!("max_len {n} is less than the minimum value 14"))),
            _ => Err(Error(format!("{v}: output needs port and max_len"))),
        };
    }
    match names.port(v) {
        Some(p) => Ok(Action::output(p)),
        None => match parse_subfield(v) {
            Ok(src) if !v.is_empty() => Ok(Action::OutputReg { src, max_len: CONTROLLER_MAX_LEN }),
            _ => Err(Error(format!("{v}: output to unknown port"))),
        },
    }
}

fn controller(v: &str) -> Result<Action> {
    if v.is_empty() {
        return Ok(Action::output(OfPort::CONTROLLER));
    }
    if let Some(n) = scan::number(v) {
        let max_len = u16::try_from(n).map_err(|_| Error(format!("invalid max_len \"{v}\"")))?;
        return Ok(Action::Output { port: OfPort::CONTROLLER, max_len });
    }
    let mut c = Controller { max_len: CONTROLLER_MAX_LEN, ..Default::default() };
    for kv in scan::key_values(v)? {
        match kv.key {
            "reason" => {
                c.reason = (0..6)
                    .filter_map(PacketInReason::from_wire)
                    .find(|r| r.name() == kv.value)
                    .ok_or_else(|| Error(format!("unknown reason \"{}\"", kv.value)))?;
            }
            "max_len" => c.max_len = scan::u16(kv.value, "max_len")?,
            "id" => c.controller_id = scan::u16(kv.value, "id")?,
            "userdata" => {
                c.userdata = scan::hex_bytes(kv.value)
                    .ok_or_else(|| Error("bad hex digit in `controller' action `userdata'".into()))?;
            }
            "pause" => c.pause = true,
            "meter_id" => c.meter_id = scan::u32(kv.value, "meter_id")?,
            k => return Err(Error(format!("unknown key \"{k}\" parsing controller action"))),
        }
    }
    if c == (Controller { max_len: c.max_len, ..Default::default() }) {
        return Ok(Action::Output { port: OfPort::CONTROLLER, max_len: c.max_len });
    }
    Ok(Action::Controller(Box::new(c)))
}

fn resubmit(v: &str, names: Lookups) -> Result<Resubmit> {
    let mut r = Resubmit { in_port: OfPort::IN_PORT, table: TABLE_CURRENT, with_ct_orig: false };
    let mut parts = v.split(',').map(str::trim);
    if let Some(p) = parts.next().filter(|p| !p.is_empty()) {
        r.in_port = names.port(p).ok_or_else(|| Error(format!("{p}: resubmit to unknown port")))?;
    }
    if let Some(t) = parts.next().filter(|t| !t.is_empty()) {
        r.table = names.table(t).ok_or_else(|| Error(format!("{t}: resubmit to unknown table")))?;
    }
    match parts.next() {
        None | Some("") => {}
        Some("ct") => r.with_ct_orig = true,
        Some(x) => return Err(Error(format!("{x}: unknown parameter"))),
    }
    if r.in_port == OfPort::IN_PORT && r.table == TABLE_CURRENT {
        return Err(Error("at least one \"in_port\" or \"table\" must be specified on resubmit".into()));
    }
    Ok(r)
}

fn writable(s: &Subfield) -> Result<()> {
    if s.field.is_writable() { Ok(()) } else { Err(Error(format!("{} is read-only", s.field.name()))) }
}

fn set_field(v: &str, names: Lookups) -> Result<Action> {
    let (value, field) = v.rsplit_once("->").ok_or_else(|| Error(format!("{v}: missing `->'")))?;
    let f = Field::by_name(field).or_else(|| Field::by_header_name(field));
    let f = f.ok_or_else(|| Error(format!("{field} is not a valid OXM field name")))?;
    if !f.is_writable() {
        return Err(Error(format!("{} is read-only", f.name())));
    }
    let (value, mask) = parse_field_value(f, value, names.ports).map_err(|e| Error(e.to_string()))?;
    if !f.is_value_valid(value) {
        return Err(Error(format!("{v}: value is not valid for field {}", f.name())));
    }
    Ok(Action::SetField(Box::new(SetField {
        field: f,
        value: (value & mask).into(),
        mask: mask.into(),
        flow_has_vlan: false,
        form: SetForm::SetField,
    })))
}

fn load_action(v: &str) -> Result<Action> {
    let (value, to) = scan::arrow(v)?;
    let dst = parse_subfield(to)?;
    writable(&dst)?;
    let n = FieldValue::parse(value).ok_or_else(|| Error(format!("{v}: bad value {value}")))?;
    if n.n_bits() > dst.n_bits {
        return Err(Error(format!("{v}: value {value} does not fit into {} bits", dst.n_bits)));
    }
    Ok(load(dst, n))
}

/// Instructions come behind the actions, each at most once, in their order of execution.
fn check_order(list: &Actions) -> Result<()> {
    let rank = |a: &Action| match a {
        Action::Meter(_) => (0, "meter"),
        Action::ClearActions => (2, "clear_actions"),
        Action::WriteActions(_) => (3, "write_actions"),
        Action::WriteMetadata { .. } => (4, "write_metadata"),
        Action::GotoTable(_) => (5, "goto_table"),
        _ => (1, "apply_actions"),
    };
    for pair in list.windows(2) {
        let ((a, first), (b, second)) = (rank(&pair[0]), rank(&pair[1]));
        if a == b && a != 1 {
            return Err(Error(format!("duplicate {first} instruction not allowed, for OpenFlow 1.1+ compatibility")));
        }
        if a > b {
            return Err(Error(format!(
                "invalid instruction ordering: {second} must appear before {first}, for OpenFlow 1.1+ compatibility"
            )));
        }
    }
    Ok(())
}
