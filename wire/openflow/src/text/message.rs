//! Messages as one line of a log.

use super::Names;
use super::flow::format_flow_mod;
use super::format::{format_actions, hex};
use super::{group, monitor};
use crate::msg::bundle::{BUNDLE_ATOMIC, BUNDLE_ORDERED};
use crate::msg::session::{ErrorKind, RoleMsg};
use crate::msg::stats::{QUEUE_ALL, Reply, Request};
use crate::msg::{Body, BundleControlKind, Message, TableDesc, TableReason, TableStatus};
use crate::version::Version;

/// `OFPT_HELLO (OF1.3) (xid=0x1): version bitmap: 0x04`.
pub fn log_line(m: &Message) -> String {
    let version = if m.version == Version::V10 { String::new() } else { format!(" ({})", m.version.short()) };
    let kind = match &m.body {
        Body::MultipartRequest(_) => " request",
        Body::MultipartReply(_) => " reply",
        _ => "",
    };
    format!("{}{kind}{version} (xid={:#x}):{}", name(m), m.xid, detail(&m.body, m.version))
}

/// The protocol's name; what OpenFlow 1.0 and 1.1 lack comes from Nicira.
fn name(m: &Message) -> String {
    let is_group = match &m.body {
        Body::GroupMod(_) => m.version == Version::V10,
        Body::MultipartRequest(r) => match r.body {
            Request::Group(_) | Request::GroupDesc(_) => m.version == Version::V10,
            Request::GroupFeatures => m.version <= Version::V11,
            _ => false,
        },
        Body::MultipartReply(r) => match r.body {
            Reply::Group(_) | Reply::GroupDesc(_) => m.version == Version::V10,
            Reply::GroupFeatures(_) => m.version <= Version::V11,
            _ => false,
        },
        _ => false,
    };
    let name = m.body.name();
    let is_monitor = match &m.body {
        Body::MultipartRequest(r) => matches!(r.body, Request::FlowMonitor(_)),
        Body::MultipartReply(r) => matches!(r.body, Reply::FlowMonitor(_)),
        Body::MonitorCancel(_) | Body::MonitorPaused | Body::MonitorResumed => true,
        _ => false,
    };
    if (is_monitor || matches!(m.body, Body::RequestForward(_))) && m.version == Version::V13 {
        return name.replace("OFP", "ONF").replace("NXT", "ONFT");
    }
    let is_group = is_group || is_monitor && m.version < Version::V13;
    if is_group { name.replace("OFP", "NX") } else { name.to_owned() }
}

fn detail(body: &Body, v: Version) -> String {
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
        Body::RequestForward(m) => {
            let reason = if matches!(m.body, Body::GroupMod(_)) { "group_mod" } else { "meter_mod" };
            format!(" reason={reason}{}", detail(&m.body, m.version))
        }
        Body::TableStatus(s) => table_status(s),
        Body::GroupMod(m) => group::group_mod(m, v),
        Body::MeterMod(m) => group::meter_mod(m),
        Body::QueueConfigRequest(p) => format!(" port={}", names.port(*p)),
        Body::QueueConfigReply(p, q) => group::port_queues(*p, q),
        Body::MonitorCancel(id) => format!(" id={id}"),
        Body::MultipartRequest(r) => request(&r.body),
        Body::MultipartReply(r) => reply(&r.body, v),
        Body::SetFlowFormat(f) => format!(" format={}", if *f == 2 { "nxm" } else { "openflow10" }),
        Body::FlowModTableId(on) => format!(" {}", if *on { "enable" } else { "disable" }),
        Body::SetControllerId(id) => format!(" id={id}"),
        Body::CtFlushZone(z) => format!(" zone_id={z}"),
        _ => String::new(),
    }
}

fn request(r: &Request) -> String {
    match r {
        Request::Group(id) | Request::GroupDesc(id) => format!(" group_id={}", group::group_number(*id)),
        Request::Meter(id) | Request::MeterConfig(id) => format!(" meter={}", group::meter_number(*id)),
        Request::QueueDesc { port, queue: QUEUE_ALL } => format!(" port={}", Names::default().port(*port)),
        Request::QueueDesc { port, queue } => format!(" port={} queue={queue}", Names::default().port(*port)),
        Request::FlowMonitor(l) => monitor::requests(l),
        _ => String::new(),
    }
}

fn reply(r: &Reply, v: Version) -> String {
    match r {
        Reply::Group(l) => group::group_stats(l),
        Reply::GroupDesc(l) => group::group_descs(l, v),
        Reply::GroupFeatures(f) => group::group_features(f, v),
        Reply::Meter(l) => group::meter_stats(l),
        Reply::MeterConfig(l) => group::meter_configs(l),
        Reply::MeterFeatures(f) => group::meter_features(f),
        Reply::QueueDesc(l) => group::queues(l),
        Reply::FlowMonitor(l) => monitor::updates(l),
        _ => String::new(),
    }
}

fn table_status(s: &TableStatus) -> String {
    let reason = match s.reason {
        TableReason::VacancyDown => "VACANCY_DOWN",
        TableReason::VacancyUp => "VACANCY_UP",
    };
    format!(" reason={reason}\ntable_desc:-{}", table_desc(&s.desc))
}

fn table_desc(d: &TableDesc) -> String {
    let flags = ["OTHER", "IMPORTANCE", "LIFETIME"];
    let flags: Vec<&str> =
        flags.iter().enumerate().filter(|(i, _)| d.eviction_flags >> i & 1 != 0).map(|(_, n)| *n).collect();
    let eviction = if d.eviction { "on" } else { "off" };
    let vacancy = match d.vacancy {
        Some(v) => format!("on vacancy_down={}% vacancy_up={}% vacancy={}%", v.down, v.up, v.current),
        None => "off".to_owned(),
    };
    let flags = flags.join("|");
    format!("\n  table {}:\n   eviction={eviction} eviction_flags={flags}\n   vacancy={vacancy}", d.table.0)
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
