//! Text to programs.

use std::net::IpAddr;

use fv_core::{DpPort, RecircId};

use super::item::{Fields, Item, items};
use super::{Ports, TextError, set, tunnel, userspace};
use crate::action::{CtAction, CtNat, DpAction, HashAlg};

/// Actions nested in actions at most.
const NESTING_MAX: usize = 16;
const CFI: u16 = 0x1000;
/// Helpers that connection tracking has.
const HELPERS: [&str; 2] = ["ftp", "tftp"];

/// Parses a program; "" and "drop" are the empty one. Ports may be numbers or names.
pub fn parse_actions(text: &str, ports: Ports) -> Result<Vec<DpAction>, TextError> {
    list(text, ports, 0)
}

fn list(text: &str, ports: Ports, depth: usize) -> Result<Vec<DpAction>, TextError> {
    if depth > NESTING_MAX {
        return Err(TextError::TooDeep(text.into()));
    }
    if text == "drop" {
        return Ok(Vec::new());
    }
    items(text)?.iter().map(|i| action(i, ports, depth)).collect()
}

/// A port's number or name.
pub(super) fn port(text: &str, ports: Ports) -> Option<DpPort> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().map(DpPort);
    }
    ports(text).map(DpPort)
}

fn action(i: &Item, ports: Ports, depth: usize) -> Result<DpAction, TextError> {
    let nested = |i: Item| list(i.body.ok_or_else(|| i.bad())?, ports, depth + 1);
    let fields = || i.inner().map(Fields::new);
    if i.is_flag() {
        return match i.name {
            "pop_vlan" => Ok(DpAction::PopVlan),
            "pop_eth" => Ok(DpAction::PopEth),
            "ct_clear" => Ok(DpAction::CtClear),
            "ct" => Ok(DpAction::Ct(Box::default())),
            _ => port(i.name, ports).map(DpAction::Output).ok_or_else(|| i.bad()),
        };
    }
    match i.name {
        "lb_output" => i.u32().map(DpAction::LbOutput),
        "meter" => i.u32().map(DpAction::Meter),
        "trunc" => i.u32().map(DpAction::Trunc),
        "recirc" => i.u32().map(|id| DpAction::Recirc(RecircId(id))),
        "tnl_pop" => port(i.operand()?, ports).map(DpAction::TunnelPop).ok_or_else(|| i.bad()),
        "hash" => hash(i),
        "push_eth" => {
            let mut f = fields()?;
            let (src, dst) = (f.need("src", i.text)?.mac()?, f.need("dst", i.text)?.mac()?);
            f.end().map(|()| DpAction::PushEth { src, dst })
        }
        "push_vlan" => push_vlan(fields()?, i.text),
        "push_mpls" => {
            let mut f = fields()?;
            let lse = lse(&mut f, i.text)?;
            let eth_type = f.need("eth_type", i.text)?.u16()?;
            f.end().map(|()| DpAction::PushMpls { lse, eth_type })
        }
        "pop_mpls" => {
            let mut f = fields()?;
            let eth_type = f.need("eth_type", i.text)?.u16()?;
            f.end().map(|()| DpAction::PopMpls { eth_type })
        }
        "set" => set::parse(i).map(DpAction::Set),
        "sample" => {
            let mut f = fields()?;
            let probability = probability(&f.need("sample", i.text)?)?;
            let actions = nested(f.need("actions", i.text)?)?;
            f.end().map(|()| DpAction::Sample { probability, actions })
        }
        "clone" => nested(*i).map(DpAction::Clone),
        "check_pkt_len" => {
            let mut f = fields()?;
            let size = f.need("size", i.text)?.u16()?;
            let greater = nested(f.need("gt", i.text)?)?;
            let less_equal = nested(f.need("le", i.text)?)?;
            f.end().map(|()| DpAction::CheckPktLen { size, greater, less_equal })
        }
        "dec_ttl" => {
            let mut f = fields()?;
            let exception = nested(f.need("le_1", i.text)?)?;
            f.end().map(|()| DpAction::DecTtl { exception })
        }
        "ct" => ct(fields()?).map(|ct| DpAction::Ct(Box::new(ct))),
        "userspace" => userspace::parse(i, ports),
        "tnl_push" => tunnel::parse(i, ports).map(|push| DpAction::TunnelPush(Box::new(push))),
        "add_mpls" | "push_nsh" | "pop_nsh" | "psample" => Err(TextError::Unsupported(i.text.into())),
        _ => Err(i.bad()),
    }
}

fn hash(i: &Item) -> Result<DpAction, TextError> {
    let inner = i.inner()?;
    match inner.as_slice() {
        [l4] if l4.name == "l4" => l4.u32().map(|basis| DpAction::Hash(HashAlg::L4 { basis })),
        [sym] if sym.name == "sym_l4" => sym.u32().map(|basis| DpAction::Hash(HashAlg::SymL4 { basis })),
        _ => Err(i.bad()),
    }
}

fn push_vlan(mut f: Fields, text: &str) -> Result<DpAction, TextError> {
    let tpid = f.take("tpid").map_or(Ok(0x8100), |i| i.u16())?;
    let vid = f.need("vid", text)?.number(0xfff)? as u16;
    let pcp = f.need("pcp", text)?.number(7)? as u16;
    let cfi = f.take("cfi").map_or(Ok(1), |i| i.number(1))?;
    f.end()?;
    Ok(DpAction::PushVlan { tpid, tci: vid | pcp << 13 | if cfi == 0 { 0 } else { CFI } })
}

pub(super) fn lse(f: &mut Fields, text: &str) -> Result<u32, TextError> {
    let mut part = |name: &str, max: u128| f.need(name, text)?.number(max).map(|v| v as u32);
    Ok(part("label", 0xf_ffff)? << 12 | part("tc", 7)? << 9 | part("ttl", 255)? | part("bos", 1)? << 8)
}

/// `33.3%` of 2^32 - 1.
fn probability(i: &Item) -> Result<u32, TextError> {
    let text = i.operand()?;
    let digits = text.strip_suffix('%').unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let percent: f64 = digits.parse().ok().filter(|_| plain).ok_or_else(|| i.bad())?;
    if !(0.0..=100.0).contains(&percent) {
        return Err(i.bad());
    }
    Ok((percent / 100.0 * f64::from(u32::MAX)).round() as u32)
}

fn ct(mut f: Fields) -> Result<CtAction, TextError> {
    let force = f.flag("force_commit")?;
    let commit = f.flag("commit")? || force;
    let zone = f.get("zone", Item::u16)?;
    let mark = f.get("mark", Item::masked_u32)?;
    let label = f.get("label", Item::masked_u128)?;
    let helper = match f.take("helper") {
        Some(i) => {
            let name = i.operand()?;
            Some(*HELPERS.iter().find(|h| **h == name).ok_or_else(|| i.bad())?)
        }
        None => None,
    };
    let timeout = f.take("timeout").map(|i| i.operand().map(str::to_owned)).transpose()?;
    let nat = f.take("nat").map(|i| nat(&i)).transpose()?;
    f.end()?;
    Ok(CtAction { commit, force, zone, mark, label, helper, timeout, nat })
}

fn nat(i: &Item) -> Result<CtNat, TextError> {
    let mut nat = CtNat::default();
    if i.is_flag() {
        return Ok(nat);
    }
    let mut f = Fields::new(i.inner()?);
    let (src, dst) = (f.take("src"), f.take("dst"));
    (nat.src, nat.dst) = (src.is_some(), dst.is_some());
    nat.persistent = f.flag("persistent")?;
    nat.hash = f.flag("hash")?;
    nat.random = f.flag("random")?;
    f.end()?;
    if nat.src && nat.dst || nat.hash && nat.random {
        return Err(i.bad());
    }
    let Some(range) = src.or(dst) else { return if nat == CtNat::default() { Ok(nat) } else { Err(i.bad()) } };
    if let Some(text) = range.value {
        nat_range(text, &mut nat).ok_or_else(|| range.bad())?;
    }
    Ok(nat)
}

/// `a[-b][:p[-q]]`, IPv6 addresses in brackets if ports follow.
fn nat_range(text: &str, nat: &mut CtNat) -> Option<()> {
    let v6 = text.starts_with('[') || text.matches(':').count() > 1;
    let (addresses, ports) = if v6 {
        match text.rsplit_once("]:") {
            Some((a, p)) => (a, Some(p)),
            None => (text, None),
        }
    } else {
        text.split_once(':').map_or((text, None), |(a, p)| (a, Some(p)))
    };
    let address = |t: &str| t.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    if !addresses.is_empty() {
        let (min, max) = addresses.split_once('-').map_or((addresses, None), |(a, b)| (a, Some(b)));
        nat.addr_min = Some(address(min)?);
        nat.addr_max = max.map_or(Some(nat.addr_min), |m| address(m).map(Some))?;
        let (min, max) = (nat.addr_min?, nat.addr_max?);
        if min.is_ipv4() != max.is_ipv4() || min > max {
            return None;
        }
    }
    if let Some(ports) = ports {
        let (min, max) = ports.split_once('-').unwrap_or((ports, ports));
        (nat.port_min, nat.port_max) = (min.parse().ok()?, max.parse().ok()?);
        if nat.port_min == 0 || nat.port_max < nat.port_min {
            return None;
        }
    }
    Some(())
}
