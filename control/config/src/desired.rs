//! The replica as specifications. Pure; what is illegal is left at its default and named.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use fv_ovsdb_db::client::{Client, RowRef};

use crate::pmd::PmdSpec;
use crate::spec::*;

/// Reads everything. None while the database has no `Open_vSwitch` row.
pub fn desired(db: &Client) -> Option<Desired> {
    let root = db.first("Open_vSwitch")?;
    let mut d = Desired { next_cfg: root.i64("next_cfg"), ..Desired::default() };
    d.globals = globals(db, root, &mut d.diagnostics);
    for uuid in root.uuids("bridges") {
        let Some(row) = db.row("Bridge", uuid) else { continue };
        let name = row.str("name");
        if name.contains('/') || name.contains('\\') || name.is_empty() {
            d.diagnostics.push(format!("ignoring bridge with invalid name \"{name}\""));
            continue;
        }
        let b = bridge(db, row, &mut d.diagnostics);
        if d.bridges.insert(name.to_string(), b).is_some() {
            d.diagnostics.push(format!("bridge {name} specified twice"));
        }
    }
    one_owner_per_interface(&mut d);
    Some(d)
}

/// An interface name may stand in one bridge only: the first one keeps it.
fn one_owner_per_interface(d: &mut Desired) {
    let mut seen = BTreeMap::<String, String>::new();
    let Desired { bridges, diagnostics, .. } = d;
    for (bridge, b) in bridges {
        for p in b.ports.values_mut() {
            p.interfaces.retain(|name, _| match seen.get(name) {
                Some(owner) => {
                    diagnostics.push(format!("interface {name} of bridge {bridge} is already in bridge {owner}"));
                    false
                }
                None => {
                    seen.insert(name.clone(), bridge.clone());
                    true
                }
            });
        }
        b.ports.retain(|_, p| !p.interfaces.is_empty());
    }
}

fn map(row: RowRef<'_>, column: &str) -> Options {
    row.map(column).map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

/// A number of `other_config`, its default if absent or illegal; clamped to `min..=max`.
fn number<T: FromStr + PartialOrd + Copy + std::fmt::Display>(
    o: &Options,
    key: &str,
    default: T,
    min: T,
    max: T,
    diag: &mut Vec<String>,
) -> T {
    match o.get(key).map(|v| (v, v.trim().parse::<T>())) {
        None => default,
        Some((_, Ok(v))) if v >= min && v <= max => v,
        Some((_, Ok(v))) => {
            let used = if v < min { min } else { max };
            diag.push(format!("{key}={v} is out of range, using {used}"));
            used
        }
        Some((text, Err(_))) => {
            diag.push(format!("{key}={text} is not a number, using {default}"));
            default
        }
    }
}

fn flag(o: &Options, key: &str, default: bool) -> bool {
    match o.get(key).map(String::as_str) {
        Some("true") => true,
        Some("false") => false,
        _ => default,
    }
}

fn on_off_auto(o: &Options, key: &str, diag: &mut Vec<String>) -> Option<bool> {
    match o.get(key).map(String::as_str) {
        Some("on") => Some(true),
        Some("off") => Some(false),
        Some("auto") | None => None,
        Some(other) => {
            diag.push(format!("{key}: \"{other}\" is none of auto, on, off"));
            None
        }
    }
}

/// Six hexadecimal pairs with colons.
pub fn parse_mac(s: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = s.split(':');
    for b in &mut mac {
        let p = parts.next()?;
        if p.is_empty() || p.len() > 2 {
            return None;
        }
        *b = u8::from_str_radix(p, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

fn mac(text: Option<&str>, what: &str, diag: &mut Vec<String>) -> Option<[u8; 6]> {
    let text = text?;
    let mac = parse_mac(text).filter(|m| m[0] & 1 == 0 && *m != [0; 6]);
    if mac.is_none() {
        diag.push(format!("{what}: \"{text}\" is not a unicast Ethernet address"));
    }
    mac
}

fn globals(db: &Client, root: RowRef<'_>, diag: &mut Vec<String>) -> Globals {
    let o = map(root, "other_config");
    let ssl = root.uuid_opt("ssl").and_then(|u| db.row("SSL", u));
    Globals {
        flow_restore_wait: flag(&o, "flow-restore-wait", false),
        flow_limit: number(&o, "flow-limit", 200_000, 0, u64::from(u32::MAX), diag),
        max_idle_ms: number(&o, "max-idle", 10_000, 500, u64::from(u32::MAX), diag),
        max_revalidator_ms: number(&o, "max-revalidator", 500, 100, u64::from(u32::MAX), diag),
        min_revalidate_pps: number(&o, "min-revalidate-pps", 5, 0, u64::from(u32::MAX), diag),
        stats_update_interval_ms: number(&o, "stats-update-interval", 5000, 5000, u64::from(u32::MAX), diag),
        pmd: PmdSpec::parse(&o, diag),
        n_revalidators: o.get("n-revalidator-threads").and_then(|v| v.parse().ok()).filter(|n| *n > 0),
        cpu_latency_qos: on_off_auto(&o, "cpu-latency-qos", diag),
        vlan_limit: number(&o, "vlan-limit", 1, 0, 2, diag),
        ssl: ssl.map(|s| {
            let text = |c: &str| s.str(c).to_string();
            (text("private_key"), text("certificate"), text("ca_cert"), s.bool("bootstrap_ca_cert"))
        }),
        managers: root
            .uuids("manager_options")
            .filter_map(|u| db.row("Manager", u))
            .map(|r| (r.uuid(), r.str("target").to_string()))
            .collect(),
        external_ids: map(root, "external_ids"),
        other_config: o,
    }
}

fn bridge(db: &Client, row: RowRef<'_>, diag: &mut Vec<String>) -> BridgeSpec {
    let name = row.str("name").to_string();
    let o = map(row, "other_config");
    let who = format!("bridge {name}");
    let datapath_id = o.get("datapath-id").and_then(|s| {
        let digits = s.trim_start_matches("0x");
        let id = (digits.len() == 16 || s.starts_with("0x") && digits.len() <= 16)
            .then(|| u64::from_str_radix(digits, 16).ok())
            .flatten()
            .filter(|id| *id != 0);
        if id.is_none() {
            diag.push(format!("{who}: datapath-id \"{s}\" is not 16 hexadecimal digits"));
        }
        id
    });
    let mut b = BridgeSpec {
        uuid: row.uuid(),
        datapath_type: row.str("datapath_type").to_string(),
        datapath_id,
        hwaddr: mac(o.get("hwaddr").map(String::as_str), &who, diag),
        fail_mode: if row.str("fail_mode") == "secure" { FailMode::Secure } else { FailMode::Standalone },
        protocols: row.strs("protocols").filter_map(protocol).collect(),
        controllers: row.uuids("controller").filter_map(|u| db.row("Controller", u)).map(controller).collect(),
        mac_aging_s: number(&o, "mac-aging-time", 300, 15, 3600, diag),
        mac_table_size: number(&o, "mac-table-size", 8192, 10, 1_000_000, diag),
        forward_bpdu: flag(&o, "forward-bpdu", false),
        flood_vlans: row.ints("flood_vlans").filter_map(vid).collect(),
        controller_queue_size: number(&o, "controller-queue-size", 100, 1, 512, diag),
        disable_in_band: flag(&o, "disable-in-band", false),
        dp_desc: o.get("dp-desc").cloned(),
        dp_sn: o.get("dp-sn").cloned(),
        tables: tables(db, row),
        ports: BTreeMap::new(),
        other_config: o,
        name,
    };
    b.controllers.sort_by(|x, y| x.target.cmp(&y.target));
    for p in row.uuids("ports").filter_map(|u| db.row("Port", u)) {
        let spec = port(db, p, &b.name, diag);
        b.ports.insert(spec.name.clone(), spec);
    }
    with_local_port(&mut b);
    b
}

/// A bridge always has a port of its own name, whether or not the database lists it.
fn with_local_port(b: &mut BridgeSpec) {
    if !b.ports.values().any(|p| p.interfaces.contains_key(&b.name)) {
        let i = IfaceSpec { name: b.name.clone(), kind: "internal".into(), ..IfaceSpec::default() };
        let p = b.ports.entry(b.name.clone()).or_insert_with(|| PortSpec {
            name: b.name.clone(),
            qinq_ethtype: 0x88a8,
            ..PortSpec::default()
        });
        p.interfaces.insert(i.name.clone(), i);
    }
}

/// The wire's version byte of an OpenFlow protocol name.
fn protocol(name: &str) -> Option<u8> {
    Some(match name {
        "OpenFlow10" => 1,
        "OpenFlow11" => 2,
        "OpenFlow12" => 3,
        "OpenFlow13" => 4,
        "OpenFlow14" => 5,
        "OpenFlow15" => 6,
        _ => return None,
    })
}

fn vid(v: i64) -> Option<u16> {
    u16::try_from(v).ok().filter(|v| *v < 4096)
}

fn controller(row: RowRef<'_>) -> ControllerSpec {
    let ms = |c: &str, default: u32| row.i64_opt(c).and_then(|v| u32::try_from(v).ok()).unwrap_or(default);
    ControllerSpec {
        uuid: row.uuid(),
        target: row.str("target").to_string(),
        max_backoff_ms: ms("max_backoff", 8000).max(1000),
        inactivity_probe_ms: ms("inactivity_probe", 5000),
        in_band: row.str("connection_mode") == "in-band",
        rate_limit: row.i64_opt("controller_rate_limit").and_then(|v| u32::try_from(v).ok()),
        burst_limit: row.i64_opt("controller_burst_limit").and_then(|v| u32::try_from(v).ok()),
        enable_async: row.bool_opt("enable_async_messages").unwrap_or(true),
        service: row.str("type") == "service",
    }
}

fn tables(db: &Client, row: RowRef<'_>) -> BTreeMap<u8, TableSpec> {
    let mut out = BTreeMap::new();
    for (k, v) in row.datum("flow_tables").iter() {
        let (fv_ovsdb::Atom::Integer(n), Some(fv_ovsdb::Atom::Uuid(u))) = (k, v) else { continue };
        let (Ok(n), Some(t)) = (u8::try_from(*n), db.row("Flow_Table", *u)) else { continue };
        out.insert(
            n,
            TableSpec {
                name: t.str("name").to_string(),
                flow_limit: t.i64_opt("flow_limit").and_then(|v| u32::try_from(v).ok()),
                evict: t.str("overflow_policy") == "evict",
                groups: t.strs("groups").map(str::to_string).collect(),
                prefixes: t.strs("prefixes").map(str::to_string).collect(),
            },
        );
    }
    out
}

fn port(db: &Client, row: RowRef<'_>, bridge: &str, diag: &mut Vec<String>) -> PortSpec {
    let name = row.str("name").to_string();
    let o = map(row, "other_config");
    let tag = row.i64_opt("tag").and_then(vid);
    let set = |column: &str| -> Option<BTreeSet<u16>> {
        let s: BTreeSet<u16> = row.ints(column).filter_map(vid).collect();
        (!s.is_empty()).then_some(s)
    };
    let mode = match row.str("vlan_mode") {
        "access" => VlanMode::Access,
        "trunk" => VlanMode::Trunk,
        "native-tagged" => VlanMode::NativeTagged,
        "native-untagged" => VlanMode::NativeUntagged,
        "dot1q-tunnel" => VlanMode::Dot1qTunnel,
        other => {
            if !other.is_empty() {
                diag.push(format!("port {name}: unknown VLAN mode \"{other}\""));
            }
            if tag.is_some() { VlanMode::Access } else { VlanMode::Trunk }
        }
    };
    let mut trunks = set("trunks");
    let tag = match mode {
        VlanMode::Trunk => {
            if tag.is_some() {
                diag.push(format!("port {name}: tag is ignored in trunk mode"));
            }
            0
        }
        _ => tag.unwrap_or(0),
    };
    match mode {
        VlanMode::Access | VlanMode::Dot1qTunnel if trunks.is_some() => {
            diag.push(format!("port {name}: trunks are ignored in this VLAN mode"));
            trunks = None;
        }
        VlanMode::NativeTagged | VlanMode::NativeUntagged => {
            // The native VLAN is always carried.
            if let Some(t) = &mut trunks {
                t.insert(tag);
            }
        }
        _ => {}
    }
    PortSpec {
        uuid: row.uuid(),
        vlan_mode: mode,
        tag,
        trunks,
        cvlans: if mode == VlanMode::Dot1qTunnel { set("cvlans") } else { None },
        qinq_ethtype: if o.get("qinq-ethtype").is_some_and(|s| s == "802.1q") { 0x8100 } else { 0x88a8 },
        priority_tags: match o.get("priority-tags").map(String::as_str) {
            Some("always") => PriorityTags::Always,
            Some("if-nonzero" | "true") => PriorityTags::IfNonzero,
            _ => PriorityTags::Never,
        },
        protected: row.bool("protected"),
        fake_bridge: row.bool("fake_bridge"),
        interfaces: row
            .uuids("interfaces")
            .filter_map(|u| db.row("Interface", u))
            .map(|i| iface(i, bridge, diag))
            .map(|i| (i.name.clone(), i))
            .collect(),
        other_config: o,
        name,
    }
}

fn iface(row: RowRef<'_>, bridge: &str, diag: &mut Vec<String>) -> IfaceSpec {
    let name = row.str("name").to_string();
    let other_config = map(row, "other_config");
    if let Some(Err(e)) = other_config.get("pmd-rxq-affinity").map(|t| crate::pmd::affinity(t)) {
        diag.push(format!("interface {name}: {e}"));
    }
    let kind = match row.str("type") {
        _ if name == bridge => "internal",
        "" => "system",
        t => t,
    };
    IfaceSpec {
        uuid: row.uuid(),
        kind: kind.to_string(),
        options: map(row, "options"),
        other_config,
        ofport_request: row
            .i64_opt("ofport_request")
            .and_then(|v| u16::try_from(v).ok())
            .filter(|v| *v > 0 && *v < 0xff00),
        last_ofport: Hint(row.i64_opt("ofport").and_then(|v| u16::try_from(v).ok()).filter(|v| *v > 0 && *v < 0xff00)),
        mtu_request: row.i64_opt("mtu_request").and_then(|v| u32::try_from(v).ok()).filter(|v| *v >= 68),
        mac: mac(row.str_opt("mac"), &format!("interface {name}"), diag),
        bfd: map(row, "bfd"),
        name,
    }
}
