//! Programs to text.

use std::fmt::Write;
use std::net::IpAddr;

use fv_core::DpPort;
use fv_flow::odp::{format_mac, hex};

use super::{Names, set, tunnel, userspace};
use crate::action::{CtAction, CtNat, DpAction, HashAlg};

/// VLAN presence, in the place of the CFI bit.
const CFI: u16 = 0x1000;

/// `drop` for none; ports by name where `names` knows one.
pub fn format_actions(actions: &[DpAction], names: Option<Names>) -> String {
    let mut out = String::new();
    put_list(&mut out, actions, names);
    out
}

fn put_list(out: &mut String, actions: &[DpAction], names: Option<Names>) {
    if actions.is_empty() {
        return out.push_str("drop");
    }
    for (n, action) in actions.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        put_action(out, action, names);
    }
}

pub(super) fn port_text(port: DpPort, names: Option<Names>) -> String {
    names.and_then(|f| f(port.0)).unwrap_or_else(|| port.to_string())
}

/// Label, traffic class, TTL and bottom-of-stack bit of a label stack entry.
pub(super) fn lse_parts(lse: u32) -> (u32, u32, u32, u32) {
    (lse >> 12, lse >> 9 & 7, lse & 255, lse >> 8 & 1)
}

fn put_action(out: &mut String, action: &DpAction, names: Option<Names>) {
    let port = |p: &DpPort| port_text(*p, names);
    let list = |actions: &[DpAction]| format_actions(actions, names);
    // Writing to a string cannot fail.
    let _ = match action {
        DpAction::Output(p) => write!(out, "{}", port(p)),
        DpAction::LbOutput(bond) => write!(out, "lb_output({bond})"),
        DpAction::Userspace { what, pid, with_actions, tunnel_out_port } => {
            write!(out, "{}", userspace::format(what, *pid, *with_actions, *tunnel_out_port, names))
        }
        DpAction::PushVlan { tpid, tci } => {
            let tpid = if *tpid == 0x8100 { String::new() } else { format!("tpid=0x{tpid:04x},") };
            let cfi = if tci & CFI == 0 { ",cfi=0" } else { "" };
            write!(out, "push_vlan({tpid}vid={},pcp={}{cfi})", tci & 0xfff, tci >> 13)
        }
        DpAction::PopVlan => write!(out, "pop_vlan"),
        DpAction::PushMpls { lse, eth_type } => {
            let (label, tc, ttl, bos) = lse_parts(*lse);
            write!(out, "push_mpls(label={label},tc={tc},ttl={ttl},bos={bos},eth_type=0x{eth_type:x})")
        }
        DpAction::PopMpls { eth_type } => write!(out, "pop_mpls(eth_type=0x{eth_type:x})"),
        DpAction::PushEth { src, dst } => {
            write!(out, "push_eth(src={},dst={})", format_mac(src), format_mac(dst))
        }
        DpAction::PopEth => write!(out, "pop_eth"),
        DpAction::Set(field) => write!(out, "set({})", set::format(field)),
        DpAction::Recirc(id) => write!(out, "recirc({})", hex(id.0.into())),
        DpAction::Hash(HashAlg::L4 { basis }) => write!(out, "hash(l4({basis}))"),
        DpAction::Hash(HashAlg::SymL4 { basis }) => write!(out, "hash(sym_l4({basis}))"),
        DpAction::Ct(ct) => write!(out, "{}", ct_text(ct)),
        DpAction::CtClear => write!(out, "ct_clear"),
        DpAction::Meter(id) => write!(out, "meter({id})"),
        DpAction::Trunc(max_len) => write!(out, "trunc({max_len})"),
        DpAction::Sample { probability, actions } => {
            let percent = 100.0 * f64::from(*probability) / f64::from(u32::MAX);
            write!(out, "sample(sample={percent:.1}%,actions({}))", list(actions))
        }
        DpAction::Clone(actions) => write!(out, "clone({})", list(actions)),
        DpAction::CheckPktLen { size, greater, less_equal } => {
            write!(out, "check_pkt_len(size={size},gt({}),le({}))", list(greater), list(less_equal))
        }
        DpAction::DecTtl { exception } => write!(out, "dec_ttl(le_1({}))", list(exception)),
        DpAction::TunnelPop(p) => write!(out, "tnl_pop({})", port(p)),
        DpAction::TunnelPush(push) => write!(out, "{}", tunnel::format(push, names)),
        DpAction::Drop(_) => write!(out, "drop"),
    };
}

fn ct_text(ct: &CtAction) -> String {
    let mut parts = Vec::new();
    if ct.force {
        parts.push("force_commit".into());
    } else if ct.commit {
        parts.push("commit".into());
    }
    if ct.zone != 0 {
        parts.push(format!("zone={}", ct.zone));
    }
    if ct.mark.mask != 0 {
        parts.push(format!("mark={:#x}/{:#x}", ct.mark.value, ct.mark.mask));
    }
    let (label, mask) = (u128::from_be_bytes(ct.label.value), u128::from_be_bytes(ct.label.mask));
    if mask == u128::MAX {
        parts.push(format!("label={label:#x}"));
    } else if mask != 0 {
        parts.push(format!("label={label:#x}/{mask:#x}"));
    }
    if let Some(helper) = ct.helper {
        parts.push(format!("helper={helper}"));
    }
    if let Some(timeout) = &ct.timeout {
        parts.push(format!("timeout={timeout}"));
    }
    if let Some(nat) = &ct.nat {
        parts.push(nat_text(nat));
    }
    if parts.is_empty() { "ct".into() } else { format!("ct({})", parts.join(",")) }
}

fn nat_text(nat: &CtNat) -> String {
    if !nat.src && !nat.dst {
        return "nat".into();
    }
    let mut out = format!("nat({}", if nat.src { "src" } else { "dst" });
    if nat.addr_min.is_some() || nat.port_min != 0 {
        out.push('=');
    }
    if let Some(min) = nat.addr_min {
        let bracket = |a: IpAddr| match a {
            IpAddr::V6(a) if nat.port_min != 0 => format!("[{a}]"),
            a => a.to_string(),
        };
        out.push_str(&bracket(min));
        if let Some(max) = nat.addr_max.filter(|max| *max != min) {
            out.push('-');
            out.push_str(&bracket(max));
        }
    }
    if nat.port_min != 0 {
        out.push_str(&format!(":{}", nat.port_min));
        if nat.port_max > nat.port_min {
            out.push_str(&format!("-{}", nat.port_max));
        }
    }
    for (on, word) in [(nat.persistent, ",persistent"), (nat.hash, ",hash"), (nat.random, ",random")] {
        if on {
            out.push_str(word);
        }
    }
    out.push(')');
    out
}
