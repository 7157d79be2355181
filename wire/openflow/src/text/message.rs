//! Messages as one line of a log.

use super::Names;
use super::flow::format_flow_mod;
use super::format::{format_actions, hex};
use crate::msg::bundle::{BUNDLE_ATOMIC, BUNDLE_ORDERED};
use crate::msg::session::{ErrorKind, RoleMsg};
use crate::msg::{Body, BundleControlKind, Message};
use crate::version::Version;

/// `OFPT_HELLO (OF1.3) (xid=0x1): version bitmap: 0x04`.
pub fn log_line(m: &Message) -> String {
    let version = if m.version == Version::V10 { String::new() } else { format!(" ({})", m.version.short()) };
    let kind = match &m.body {
        Body::MultipartRequest(_) => " request",
        Body::MultipartReply(_) => " reply",
        _ => "",
    };
    format!("{}{kind}{version} (xid={:#x}):{}", m.body.name(), m.xid, detail(&m.body))
}

fn detail(body: &Body) -> String {
    let names = Names::default();
    match body {
        Body::Hello(h) => {
            let v: Vec<String> = (0..32).filter(|n| h.versions.0 & 1 << n != 0).map(|n| format!("{n:#04x}")).collect();
            format!("\n version bitmap: {}", v.join(", "))
        }
        Body::Error(e) => match e.error {
            ErrorKind::Known(k) => format!(" {k}"),
            ErrorKind::Unknown(c) => format!(" vendor {:#x}, type {}, code {}", c.vendor, c.kind, c.code),
        },
        Body::EchoRequest(d) | Body::EchoReply(d) => format!(" {} bytes of payload", d.len()),
        Body::FeaturesReply(f) => {
            format!(" dpid:{:016x} n_tables:{}, n_buffers:{}", f.datapath_id, f.n_tables, f.n_buffers)
        }
        Body::GetConfigReply(c) | Body::SetConfig(c) => {
            let frags = ["normal", "drop", "reassemble", "nx-match"][c.frags as usize];
            format!(" frags={frags} miss_send_len={}", c.miss_send_len)
        }
        Body::FlowMod(f) | Body::NxFlowMod(f) => format!(" {}", format_flow_mod(f, names)),
        Body::PacketOut(p) => format!(
            " in_port={} actions={} data_len={}",
            names.port(p.in_port()),
            format_actions(&p.actions, names),
            p.packet.len()
        ),
        Body::PacketIn(p) | Body::NxPacketIn(_, p) => format!(
            " total_len={} in_port={} (via {}) data_len={}",
            p.total_len,
            names.port(fv_core::OfPort(p.metadata.key.dp.base.in_port)),
            p.reason.name(),
            p.packet.len()
        ),
        Body::PortStatus(s) => {
            let what = ["ADD", "DEL", "MOD"][s.reason as usize];
            format!(" {what}: {}({})", names.port(s.desc.port_no), s.desc.name)
        }
        Body::RoleRequest(r) | Body::RoleReply(r) => role(r),
        Body::BundleControl(b) => {
            format!("\n bundle_id={} type={} flags={}", hex(b.bundle_id), b.kind.name(), bundle_flags(b.flags))
        }
        Body::BundleAdd(b) => {
            format!("\n bundle_id={} flags={}\n{}", hex(b.bundle_id), bundle_flags(b.flags), log_line(&b.msg))
        }
        Body::SetFlowFormat(f) => format!(" format={}", if *f == 2 { "nxm" } else { "openflow10" }),
        Body::FlowModTableId(on) => format!(" {}", if *on { "enable" } else { "disable" }),
        Body::SetControllerId(id) => format!(" id={id}"),
        Body::CtFlushZone(z) => format!(" zone_id={z}"),
        _ => String::new(),
    }
}

fn role(r: &RoleMsg) -> String {
    let name = ["nochange", "equal", "primary", "secondary"][r.role as usize];
    match r.generation_id {
        Some(g) => format!(" role={name} generation_id={g}"),
        None => format!(" role={name}"),
    }
}

fn bundle_flags(f: u16) -> String {
    let words = [(BUNDLE_ATOMIC, "atomic"), (BUNDLE_ORDERED, "ordered")];
    let set: Vec<&str> = words.iter().filter(|(b, _)| f & b != 0).map(|(_, w)| *w).collect();
    if set.is_empty() { "0".to_owned() } else { set.join(" ") }
}

impl BundleControlKind {
    const fn name(self) -> &'static str {
        match self {
            BundleControlKind::OpenRequest => "OPEN_REQUEST",
            BundleControlKind::OpenReply => "OPEN_REPLY",
            BundleControlKind::CloseRequest => "CLOSE_REQUEST",
            BundleControlKind::CloseReply => "CLOSE_REPLY",
            BundleControlKind::CommitRequest => "COMMIT_REQUEST",
            BundleControlKind::CommitReply => "COMMIT_REPLY",
            BundleControlKind::DiscardRequest => "DISCARD_REQUEST",
            BundleControlKind::DiscardReply => "DISCARD_REPLY",
        }
    }
}
