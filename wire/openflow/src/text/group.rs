//! Groups, meters and queues as text.

use super::Names;
use super::flow::duration;
use super::format::{field_name, format_actions};
use crate::msg::flow::GROUP_ANY;
use crate::msg::group::*;
use crate::msg::meter::*;
use crate::msg::queue::QueueDesc;
use crate::version::Version;
use fv_core::OfPort;
use fv_flow::text::format_field;
use std::fmt::Write;

/// Whether a version's groups number their buckets: in Nicira's form, OpenFlow 1.0's do.
fn numbers_buckets(v: Version) -> bool {
    matches!(v, Version::V10 | Version::V15)
}

/// A group of a request.
pub(super) fn group_number(id: u32) -> String {
    match id {
        GROUP_ALL => "ALL".to_owned(),
        GROUP_ANY => "ANY".to_owned(),
        id => id.to_string(),
    }
}

fn bucket_number(id: u32) -> String {
    match id {
        BUCKET_FIRST => "first".to_owned(),
        BUCKET_LAST => "last".to_owned(),
        BUCKET_ALL => "all".to_owned(),
        id => id.to_string(),
    }
}

/// `group_id=1,type=all,bucket=...` as `dump-groups` shows it.
pub fn format_group_desc(g: &GroupDesc, v: Version, names: Names) -> String {
    format!("group_id={},type={}{}", g.group_id, g.kind.name(), body(g.kind, &g.buckets, &g.props, v, names))
}

fn body(kind: GroupType, buckets: &[Bucket], props: &GroupProps, v: Version, names: Names) -> String {
    let mut s = String::new();
    if !props.selection_method.is_empty() {
        let _ = write!(s, ",selection_method={}", props.selection_method);
        if props.selection_param != 0 {
            let _ = write!(s, ",selection_method_param={}", props.selection_param);
        }
        s += &fields(props);
    }
    for b in buckets {
        s += ",bucket=";
        if numbers_buckets(v) && b.bucket_id <= BUCKET_MAX {
            let _ = write!(s, "bucket_id:{},", b.bucket_id);
        }
        if b.weight != u16::from(kind == GroupType::Select) {
            let _ = write!(s, "weight:{},", b.weight);
        }
        if b.watch_port != OfPort::NONE {
            let _ = write!(s, "watch_port:{},", names.port(b.watch_port));
        }
        if b.watch_group != GROUP_ANY {
            let _ = write!(s, "watch_group:{},", b.watch_group);
        }
        let _ = write!(s, "actions={}", format_actions(&b.actions, names));
    }
    s
}

fn fields(props: &GroupProps) -> String {
    let all: Vec<String> = props
        .fields
        .iter()
        .map(|(f, mask)| match *mask == f.mask_bits() {
            true => field_name(*f).to_owned(),
            false => format!("{}={}", field_name(*f), format_field(*f, mask, None, None)),
        })
        .collect();
    match all.as_slice() {
        [] => String::new(),
        [one] => format!(",fields={one}"),
        _ => format!(",fields({})", all.join(",")),
    }
}

pub(super) fn group_mod(m: &GroupMod, v: Version) -> String {
    let (name, at_bucket) = match m.command {
        GroupCommand::Add => ("ADD", false),
        GroupCommand::Modify => ("MOD", false),
        GroupCommand::AddOrModify => ("ADD_OR_MOD", false),
        GroupCommand::Delete => ("DEL", false),
        GroupCommand::InsertBucket => ("INSERT_BUCKET", true),
        GroupCommand::RemoveBucket => ("REMOVE_BUCKET", true),
    };
    let mut s = format!("\n {name} ");
    if at_bucket && numbers_buckets(v) {
        let _ = write!(s, "command_bucket_id:{},", bucket_number(m.command_bucket_id));
    }
    let _ = write!(s, "group_id={}", m.group_id);
    if !at_bucket {
        let _ = write!(s, ",type={}", m.kind.name());
    }
    s + &body(m.kind, &m.buckets, &m.props, v, Names::default())
}

pub(super) fn group_descs(all: &[GroupDesc], v: Version) -> String {
    all.iter().map(|g| format!("\n {}", format_group_desc(g, v, Names::default()))).collect()
}

pub(super) fn group_stats(all: &[GroupStats]) -> String {
    let mut s = String::new();
    for g in all {
        let _ = write!(s, "\n group_id={},", g.group_id);
        if let Some((sec, ns)) = g.duration {
            let _ = write!(s, "duration={},", duration(sec, ns));
        }
        let _ = write!(s, "ref_count={},packet_count={},byte_count={}", g.ref_count, g.packets, g.bytes);
        for (i, (packets, bytes)) in g.buckets.iter().enumerate() {
            let _ = write!(s, ",bucket{i}:packet_count={packets},byte_count={bytes}");
        }
    }
    s
}

pub(super) fn group_features(f: &GroupFeatures, v: Version) -> String {
    let mut s = format!("\n Group table:\n    Types:  {:#x}\n    Capabilities:  {:#x}", f.types, f.capabilities);
    let names = ["all group", "select group", "indirect group", "fast failover group"];
    for (i, name) in names.iter().enumerate().filter(|(i, _)| f.types >> i & 1 != 0) {
        let actions = action_names(f.actions[i], v);
        let _ = write!(s, "\n    {name}:\n       max_groups={:#x}\n       actions: {actions}", f.max_groups[i]);
    }
    s
}

/// Names of actions in the order in which they are shown; the first number is 1.0's bit if it has
/// one, the second 1.1's, the third that of later versions.
const ACTION_NAMES: [(&str, Option<u32>, Option<u32>, Option<u32>); 25] = [
    ("output", Some(0), Some(0), Some(0)),
    ("group", None, Some(22), Some(22)),
    ("enqueue", Some(11), None, None),
    ("set_field", None, None, Some(25)),
    ("set_vlan_vid", Some(1), Some(1), None),
    ("set_vlan_pcp", Some(2), Some(2), None),
    ("strip_vlan", Some(3), Some(18), Some(18)),
    ("push_vlan", None, Some(17), Some(17)),
    ("mod_dl_src", Some(4), Some(3), None),
    ("mod_dl_dst", Some(5), Some(4), None),
    ("mod_nw_src", Some(6), Some(5), None),
    ("mod_nw_dst", Some(7), Some(6), None),
    ("mod_nw_tos", Some(8), Some(7), None),
    ("mod_nw_ecn", None, Some(8), None),
    ("mod_nw_ttl", None, Some(23), Some(23)),
    ("mod_tp_src", Some(9), Some(9), None),
    ("mod_tp_dst", Some(10), Some(10), None),
    ("dec_ttl", None, Some(24), Some(24)),
    ("set_mpls_label", None, Some(13), None),
    ("set_mpls_tc", None, Some(14), None),
    ("set_mpls_ttl", None, Some(15), Some(15)),
    ("dec_mpls_ttl", None, Some(16), Some(16)),
    ("push_mpls", None, Some(19), Some(19)),
    ("pop_mpls", None, Some(20), Some(20)),
    ("set_queue", None, Some(21), Some(21)),
];

fn action_names(actions: u32, v: Version) -> String {
    let wire = crate::msg::group::actions_out(actions, v);
    let names: Vec<&str> = ACTION_NAMES
        .iter()
        .filter(|(_, v10, v11, later)| {
            let bit = match v {
                Version::V10 => v10,
                Version::V11 => v11,
                _ => later,
            };
            bit.is_some_and(|b| wire >> b & 1 != 0)
        })
        .map(|(name, ..)| *name)
        .collect();
    names.join(" ")
}

pub(super) fn meter_number(id: u32) -> String {
    match id {
        METER_ALL => "all".to_owned(),
        METER_CONTROLLER => "controller".to_owned(),
        METER_SLOWPATH => "slowpath".to_owned(),
        id => id.to_string(),
    }
}

fn meter_flags(f: MeterFlags) -> String {
    let names = [
        (MeterFlags::KBPS, "kbps "),
        (MeterFlags::PKTPS, "pktps "),
        (MeterFlags::BURST, "burst "),
        (MeterFlags::STATS, "stats "),
    ];
    names.iter().filter(|(b, _)| f.has(*b)).map(|(_, n)| *n).collect()
}

/// `meter=1 kbps bands=` and a line for each band.
pub fn format_meter_config(c: &MeterConfig) -> String {
    let mut s = format!("meter={} {}bands=\n", meter_number(c.meter_id), meter_flags(c.flags));
    for b in &c.bands {
        let kind = if b.kind == BandKind::Drop { "drop" } else { "dscp_remark" };
        let _ = write!(s, "type={kind} rate={}", b.rate);
        if c.flags.has(MeterFlags::BURST) {
            let _ = write!(s, " burst_size={}", b.burst);
        }
        if let BandKind::DscpRemark { prec_level } = b.kind {
            let _ = write!(s, " prec_level={prec_level}");
        }
        s.push('\n');
    }
    s
}

pub(super) fn meter_mod(m: &MeterMod) -> String {
    let name = ["ADD", "MOD", "DEL"][m.command as usize];
    format!(" {name} {}", format_meter_config(&m.config).trim_end_matches('\n'))
}

pub(super) fn meter_configs(all: &[MeterConfig]) -> String {
    let texts: Vec<String> = all.iter().map(format_meter_config).collect();
    texts.iter().map(|t| format!("\n{t}")).collect::<String>().trim_end_matches('\n').to_owned()
}

pub(super) fn meter_stats(all: &[MeterStats]) -> String {
    let mut s = String::new();
    for m in all {
        let _ = write!(
            s,
            "\nmeter:{} flow_count:{} packet_in_count:{} byte_in_count:{} duration:{} bands:\n",
            meter_number(m.meter_id),
            m.flow_count,
            m.packets,
            m.bytes,
            duration(m.duration_s, m.duration_ns)
        );
        for (i, (packets, bytes)) in m.bands.iter().enumerate() {
            let _ = writeln!(s, "{i}: packet_count:{packets} byte_count:{bytes}");
        }
    }
    s.trim_end_matches('\n').to_owned()
}

pub(super) fn meter_features(f: &MeterFeatures) -> String {
    let kinds = [(1, "drop "), (2, "dscp_remark ")];
    let kinds: String = kinds.iter().filter(|(b, _)| f.band_types >> b & 1 != 0).map(|(_, n)| *n).collect();
    format!(
        "\nmax_meter:{} max_bands:{} max_color:{}\nband_types: {}\ncapabilities: {}",
        f.max_meters,
        f.max_bands,
        f.max_color,
        kinds.trim_end(),
        meter_flags(f.capabilities).trim_end()
    )
}

/// Ports in the order of their numbers, each with its queues.
pub(super) fn queues(all: &[QueueDesc]) -> String {
    let mut all: Vec<&QueueDesc> = all.iter().collect();
    all.sort_by_key(|q| (q.port_no, q.queue));
    let mut s = String::new();
    let mut last = None;
    for q in all {
        if last != Some(q.port_no) {
            let start = if last.is_none() { " " } else { "\n" };
            let _ = write!(s, "{start}port={}", Names::default().port(q.port_no));
            last = Some(q.port_no);
        }
        s += &queue(q);
    }
    s
}

fn queue(q: &QueueDesc) -> String {
    let rate = |name: &str, r: Option<u16>| match r {
        Some(r) if r <= 1000 => format!(" {name}:{}.{}%", r / 10, r % 10),
        Some(_) => format!(" {name}:(disabled)"),
        None => String::new(),
    };
    format!("\nqueue {}:{}{}", q.queue, rate("min_rate", q.min_rate), rate("max_rate", q.max_rate))
}

pub(super) fn port_queues(port: OfPort, all: &[QueueDesc]) -> String {
    let mut all: Vec<&QueueDesc> = all.iter().collect();
    all.sort_by_key(|q| (q.port_no, q.queue));
    format!(" port={}{}", Names::default().port(port), all.into_iter().map(queue).collect::<String>())
}
