//! Datapaths as bridges use them.

use fv_core::Command;
use fv_dpif::Datapath;
use fv_dpif::text::{FlowText, format_flow};
use fv_ofproto::DpFeatures;

use super::{Ctx, full_name, port_names};

pub const COMMANDS: &[Command<Ctx>] = &[
    Command { name: "dpif/dump-dps", usage: Some(""), min: 0, max: 0, run: dump_dps },
    Command { name: "dpif/show", usage: Some(""), min: 0, max: 0, run: show },
    Command {
        name: "dpif/dump-flows",
        usage: Some("[-m] [--names | --no-names] bridge"),
        min: 1,
        max: 4,
        run: dump_flows,
    },
    Command { name: "dpif/show-dp-features", usage: Some("bridge"), min: 1, max: 1, run: show_features },
    Command {
        name: "dpif/set-dp-features",
        usage: Some("[--force] bridge [feature [value]]"),
        min: 1,
        max: 4,
        run: set_features,
    },
];

fn dump_dps(c: &mut Ctx, _: &[&str]) -> fv_core::Reply {
    let mut lines: Vec<String> = c
        .engine
        .world
        .bridges
        .values()
        .filter_map(|b| Some(format!("{}@{}\n", c.engine.world.dps.find(&b.dp_kind)?.dp.kind(), b.name)))
        .collect();
    lines.sort();
    Ok(lines.concat())
}

fn show(c: &mut Ctx, _: &[&str]) -> fv_core::Reply {
    let w = &c.engine.world;
    let mut out = String::new();
    for (kind, i) in w.dps.iter() {
        let s = i.dp.stats();
        out.push_str(&format!("{}: hit:{} missed:{}\n", full_name(i), s.hit, s.missed));
        let mut bridges: Vec<_> = w.bridges.values().filter(|b| b.dp_kind == *kind).collect();
        bridges.sort_by(|a, b| a.name.cmp(&b.name));
        for b in bridges {
            out.push_str(&format!("  {}:\n", b.name));
            for x in b.ifaces.values() {
                let ofp = x.ofp.to_u16().unwrap_or(u16::MAX);
                let ofp = if x.ofp == fv_core::OfPort::LOCAL { 65534 } else { ofp };
                let odp = x.dp_port.map_or("none".to_string(), |p| p.to_string());
                let (kind, config) = match &x.device {
                    Some(d) => (d.kind().to_string(), d.status().config_text()),
                    None if x.tunnel.is_some() => {
                        (x.kind.clone(), x.tunnel.as_ref().map_or(String::new(), |t| t.options()))
                    }
                    None => ("patch".into(), x.peer.as_ref().map(|p| format!("peer={p}")).unwrap_or_default()),
                };
                let config = if config.is_empty() { String::new() } else { format!(": {config}") };
                out.push_str(&format!("    {} {ofp}/{odp}: ({kind}{config})\n", x.name));
            }
        }
    }
    Ok(out)
}

fn dump_flows(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let (mut more, mut names) = (false, None);
    for a in &args[..args.len() - 1] {
        match *a {
            "-m" => more = true,
            "--names" => names = Some(true),
            "--no-names" => names = Some(false),
            other => return Err(format!("{other}: unknown option")),
        }
    }
    let b = c.bridge(args[args.len() - 1])?;
    let i = c.dp_of(b)?;
    let now = c.engine.clock.now();
    let view = i.view.load();
    let id = b.of.id();
    let list = port_names(i);
    let lookup = |p: u32| list.get(&p).cloned();
    let names: Option<fv_dpif::text::Names> = if names.unwrap_or(more) { Some(&lookup) } else { None };
    let mut out = String::new();
    i.overlay.flow_dump(&mut |f| {
        let of_bridge = view.origin(&f.key).map(|(b, _)| b);
        if of_bridge == Some(id) {
            out.push_str(&format_flow(&f, now, FlowText { more }, names));
            out.push('\n');
        }
        true
    });
    Ok(out)
}

/// (key, title, value): what this datapath can do. Conntrack features are absent.
const FEATURES: &[(&str, &str, Value)] = &[
    ("masked_set_action", "Masked set action", Value::Flag(true)),
    ("tnl_push_pop", "Tunnel push pop", Value::Flag(true)),
    ("ufid", "Ufid", Value::Flag(true)),
    ("trunc", "Truncate action", Value::Flag(true)),
    ("clone", "Clone action", Value::Flag(true)),
    ("sample_nesting", "Sample nesting", Value::Number(10)),
    ("ct_eventmask", "Conntrack eventmask", Value::Flag(false)),
    ("ct_clear", "Conntrack clear", Value::Flag(true)),
    ("max_hash_alg", "Max dp_hash algorithm", Value::Number(1)),
    ("check_pkt_len", "Check pkt length action", Value::Flag(true)),
    ("ct_timeout", "Conntrack timeout policy", Value::Flag(false)),
    ("explicit_drop_action", "Explicit Drop action", Value::Flag(true)),
    ("lb_output_action", "Optimized Balance TCP mode", Value::Flag(false)),
    ("ct_zero_snat", "Conntrack all-zero IP SNAT", Value::Flag(false)),
    ("add_mpls", "MPLS Label add", Value::Flag(false)),
    ("psample", "psample action", Value::Flag(false)),
    ("max_vlan_headers", "Max VLAN headers", Value::Number(2)),
    ("max_mpls_depth", "Max MPLS depth", Value::Number(3)),
    ("recirc", "Recirc", Value::Flag(true)),
    ("ct_state", "CT state", Value::Flag(false)),
    ("ct_zone", "CT zone", Value::Flag(false)),
    ("ct_mark", "CT mark", Value::Flag(false)),
    ("ct_label", "CT label", Value::Flag(false)),
    ("ct_state_nat", "CT state NAT", Value::Flag(false)),
    ("ct_orig_tuple", "CT orig tuple", Value::Flag(false)),
    ("ct_orig_tuple6", "CT orig tuple for IPv6", Value::Flag(false)),
    ("nd_ext", "IPv6 ND Extension", Value::Flag(true)),
];

#[derive(Clone, Copy, PartialEq)]
enum Value {
    Flag(bool),
    Number(u32),
}

impl Value {
    fn beyond(self, boot: Value) -> bool {
        match (self, boot) {
            (Value::Number(n), Value::Number(most)) => n > most,
            (Value::Flag(on), Value::Flag(can)) => on && !can,
            _ => false,
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Flag(b) => b.fmt(f),
            Value::Number(n) => n.fmt(f),
        }
    }
}

fn show_features(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let features = c.dp_of(c.bridge(args[0])?)?.features;
    Ok(FEATURES
        .iter()
        .map(|(key, title, boot)| match now(&features, key, *boot) {
            Value::Flag(b) => format!("{title}: {}\n", if b { "Yes" } else { "No" }),
            Value::Number(n) => format!("{title}: {n}\n"),
        })
        .collect())
}

/// The value of today.
fn now(f: &DpFeatures, key: &str, boot: Value) -> Value {
    match key {
        "trunc" => Value::Flag(f.trunc),
        "clone" => Value::Flag(f.clone),
        "check_pkt_len" => Value::Flag(f.check_pkt_len),
        "tnl_push_pop" => Value::Flag(f.tnl_push_pop),
        _ => boot,
    }
}

/// `[--force] BRIDGE [FEATURE [VALUE]]`.
fn set_features(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let args: Vec<&str> = args.iter().copied().filter(|a| *a != "--force").collect();
    let [bridge, rest @ ..] = &args[..] else { return Err("bridge name missing".into()) };
    let id = c.bridge(bridge)?.of.id();
    let features = c.dp_of(c.bridge(bridge)?)?.features;
    let line = |(key, title, boot): &(&str, &str, Value)| {
        format!("{key} ({title}) : [run time]:{}, [boot time]:{boot}\n", now(&features, key, *boot))
    };
    let Some(name) = rest.first() else { return Ok(FEATURES.iter().map(line).collect()) };
    // What is wrong with a feature or its value is no error to the reference, and its scripts.
    let Some(feature) = FEATURES.iter().find(|f| f.0 == *name) else {
        return Ok("Unexpected support field\n".into());
    };
    let Some(text) = rest.get(1) else { return Ok(line(feature)) };
    let value = match feature.2 {
        Value::Flag(_) => text.parse().map(Value::Flag).map_err(|_| "Boolean value expected\n"),
        Value::Number(_) => text.parse().map(Value::Number).map_err(|_| "Integer number expected\n"),
    };
    let value = match value {
        Ok(v) => v,
        Err(told) => return Ok(told.into()),
    };
    let kind = c.engine.world.kind_of(id).ok_or("no such bridge")?.to_string();
    let dp = c.engine.world.dps.find_mut(&kind).ok_or("no such datapath")?;
    match (feature.0, value) {
        ("trunc", Value::Flag(on)) => dp.features.trunc = on,
        ("clone", Value::Flag(on)) => dp.features.clone = on,
        ("check_pkt_len", Value::Flag(on)) => dp.features.check_pkt_len = on,
        ("tnl_push_pop", Value::Flag(on)) => dp.features.tnl_push_pop = on,
        (_, v) if v == feature.2 => return Ok(String::new()),
        (_, v) if v.beyond(feature.2) => {
            return Ok("Can not enable features not supported by the datapath\n".into());
        }
        (key, _) => return Err(format!("{key} is part of this datapath and cannot be taken from it")),
    }
    dp.publish();
    Ok(String::new())
}
