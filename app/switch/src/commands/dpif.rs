//! Datapaths as bridges use them.

use fv_core::Command;
use fv_dpif::Datapath;
use fv_dpif::text::{FlowText, format_flow};

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
    i.dp.flow_dump(&mut |f| {
        let of_bridge = view.by_dp_port.get(&fv_core::DpPort(f.key.base.in_port)).map(|(b, _)| *b);
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
    ("tnl_push_pop", "Tunnel push pop", Value::Flag(false)),
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

fn show_features(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    c.bridge(args[0])?;
    Ok(FEATURES
        .iter()
        .map(|(_, title, v)| match v {
            Value::Flag(b) => format!("{title}: {}\n", if *b { "Yes" } else { "No" }),
            Value::Number(n) => format!("{title}: {n}\n"),
        })
        .collect())
}

fn set_features(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let args: Vec<&str> = args.iter().copied().filter(|a| *a != "--force").collect();
    let [bridge, rest @ ..] = &args[..] else { return Err("bridge name missing".into()) };
    c.bridge(bridge)?;
    let line = |(key, title, v): &(&str, &str, Value)| {
        let v = match v {
            Value::Flag(b) => b.to_string(),
            Value::Number(n) => n.to_string(),
        };
        format!("{key} ({title}) : [run time]:{v}, [boot time]:{v}\n")
    };
    match rest {
        [] => Ok(FEATURES.iter().map(line).collect()),
        [feature] => {
            FEATURES.iter().find(|f| f.0 == *feature).map(line).ok_or_else(|| format!("unknown feature {feature}"))
        }
        [feature, value, ..] => {
            let f = FEATURES.iter().find(|f| f.0 == *feature).ok_or_else(|| format!("unknown feature {feature}"))?;
            let same = match f.2 {
                Value::Flag(b) => value.parse::<bool>() == Ok(b),
                Value::Number(n) => value.parse::<u32>() == Ok(n),
            };
            if same {
                return Ok(String::new());
            }
            // Translation does not yet do without what the datapath can do.
            Err("Can not enable features not supported by the datapath".into())
        }
    }
}
