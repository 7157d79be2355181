//! Datapaths directly: `dpctl/...`.

use fv_core::{Command, Ufid};
use fv_dpif::text::{FlowText, format_actions, format_flow, parse_actions, parse_flow};
use fv_dpif::{Datapath, FlowDump, FlowPut, WorkerId};
use fv_flow::odp;

use super::{Ctx, full_name, port_lookup, port_names};
use crate::datapaths::DpInst;

const ANY: usize = usize::MAX;

pub const COMMANDS: &[Command<Ctx>] = &[
    Command { name: "dpctl/dump-dps", usage: Some(""), min: 0, max: 0, run: dump_dps },
    Command { name: "dpctl/show", usage: Some("[dp...]"), min: 0, max: ANY, run: show },
    Command {
        name: "dpctl/dump-flows",
        usage: Some("[-m] [--names] [dp] [filter=..] [type=..] [pmd=..]"),
        min: 0,
        max: 6,
        run: dump_flows,
    },
    Command {
        name: "dpctl/add-flow",
        usage: Some("[dp] flow actions"),
        min: 2,
        max: 4,
        run: |c, a| put(c, a, true, false),
    },
    Command {
        name: "dpctl/mod-flow",
        usage: Some("[dp] flow actions"),
        min: 2,
        max: 4,
        run: |c, a| put(c, a, false, true),
    },
    Command { name: "dpctl/get-flow", usage: Some("[dp] ufid"), min: 1, max: 3, run: get_flow },
    Command { name: "dpctl/del-flow", usage: Some("[dp] flow"), min: 1, max: 3, run: del_flow },
    Command { name: "dpctl/del-flows", usage: Some("[dp]"), min: 0, max: 1, run: del_flows },
    Command { name: "dpctl/add-dp", usage: Some("dp [iface...]"), min: 1, max: ANY, run: add_dp },
    Command { name: "dpctl/del-dp", usage: Some("dp"), min: 1, max: 1, run: del_dp },
    Command { name: "dpctl/add-if", usage: Some("dp iface..."), min: 2, max: ANY, run: add_if },
    Command { name: "dpctl/del-if", usage: Some("dp iface..."), min: 2, max: ANY, run: del_if },
    Command { name: "dpctl/parse-actions", usage: Some("actions"), min: 1, max: ANY, run: parse },
    Command { name: "dpctl/normalize-actions", usage: Some("flow actions"), min: 2, max: 4, run: normalize },
    Command { name: "dpctl/list-commands", usage: Some(""), min: 0, max: 0, run: |_, _| Ok(list()) },
];

fn list() -> String {
    let mut out = "The available commands are:\n".to_string();
    for c in COMMANDS {
        out.push_str(&format!("  {:<23} {}\n", c.name.trim_start_matches("dpctl/"), c.usage.unwrap_or("")));
    }
    out
}

/// Options in front of the arguments.
#[derive(Default)]
struct Opts {
    more: bool,
    statistics: bool,
    names: Option<bool>,
    may_create: bool,
}

fn options<'a>(args: &'a [&'a str]) -> Result<(Opts, &'a [&'a str]), String> {
    let mut o = Opts::default();
    let mut rest = args;
    while let Some((first, more)) = rest.split_first() {
        match *first {
            "-m" | "--more" => o.more = true,
            "-s" | "--statistics" => o.statistics = true,
            "--names" => o.names = Some(true),
            "--no-names" => o.names = Some(false),
            "--may-create" => o.may_create = true,
            "--clear" => {}
            s if s.starts_with('-') => return Err(format!("Unrecognized option {s}")),
            _ => break,
        }
        rest = more;
    }
    Ok((o, rest))
}

fn dump_dps(c: &mut Ctx, _: &[&str]) -> fv_core::Reply {
    Ok(c.engine.world.dps.iter().map(|(_, i)| format!("{}\n", full_name(i))).collect())
}

fn show(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let (o, names) = options(args)?;
    let list: Vec<&DpInst> = match names {
        [] => c.engine.world.dps.iter().map(|(_, i)| i).collect(),
        n => {
            let open = |n: &&str| {
                let why = "Address family not supported by protocol";
                c.dp(Some(n)).map_err(|_| format!("ovs-vswitchd: opening datapath {n} failed ({why})"))
            };
            n.iter().map(open).collect::<Result<_, _>>()?
        }
    };
    let mut out = String::new();
    for i in list {
        let s = i.dp.stats();
        out.push_str(&format!(
            "{}:\n  lookups: hit:{} missed:{} lost:{}\n  flows: {}\n",
            full_name(i),
            s.hit,
            s.missed,
            s.lost,
            s.flows
        ));
        for p in i.dp.ports() {
            let config = i.dp.device(p.port).map(|d| d.status().config_text()).unwrap_or_default();
            let config = if config.is_empty() { String::new() } else { format!(": {config}") };
            let what = if p.kind == "system" { String::new() } else { format!(" ({}{config})", p.kind) };
            out.push_str(&format!("  port {}: {}{what}\n", p.port, p.name));
            if o.statistics {
                out.push_str(&port_stats(&i.dp.port_stats(p.port).unwrap_or_default()));
            }
        }
    }
    Ok(out)
}

fn port_stats(s: &fv_netdev::PortStats) -> String {
    let n = |v: Option<u64>| v.map_or("?".to_string(), |v| v.to_string());
    format!(
        "    RX packets:{} errors:{} dropped:{} overruns:{} frame:{}\n    \
         TX packets:{} errors:{} dropped:{} aborted:{} carrier:{}\n    \
         collisions:{}\n    \
         RX bytes:{}  TX bytes:{}\n",
        n(s.rx_packets),
        n(s.rx_errors),
        n(s.rx_dropped),
        n(s.rx_over_errors),
        n(s.rx_frame_errors),
        n(s.tx_packets),
        n(s.tx_errors),
        n(s.tx_dropped),
        n(s.tx_aborted_errors),
        n(s.tx_carrier_errors),
        n(s.collisions),
        n(s.rx_bytes),
        n(s.tx_bytes)
    )
}

/// Which flows `type=` selects.
fn type_wanted(list: &str, f: &FlowDump) -> Result<bool, String> {
    let mut any = false;
    for t in list.split(',') {
        any |= match t {
            "all" => true,
            "ovs" => f.layer == "ovs",
            "tc" | "dpdk" | "simnic" => f.layer == t,
            "offloaded" => f.offloaded && f.layer != "ovs",
            "partially-offloaded" => f.offloaded && f.layer == "ovs",
            "non-offloaded" => !f.offloaded,
            other => return Err(format!("Failed to parse type ({other})")),
        };
    }
    Ok(any)
}

fn dump_flows(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let (o, rest) = options(args)?;
    let (mut dp, mut kinds, mut pmd, mut filter) = (None, None, None, None);
    for a in rest {
        match a.split_once('=') {
            Some(("filter", f)) => filter = Some(f),
            Some(("type", t)) => kinds = Some(t),
            Some(("pmd", n)) => pmd = Some(n.parse::<i32>().map_err(|_| format!("Failed to parse pmd ({n})"))?),
            _ => dp = Some(*a),
        }
    }
    if let Some(k) = kinds {
        // Complain even if there is no flow to try it on.
        for t in k.split(',') {
            if !["all", "ovs", "tc", "dpdk", "simnic", "offloaded", "partially-offloaded", "non-offloaded"].contains(&t)
            {
                return Err(format!("Failed to parse type ({t})"));
            }
        }
    }
    let i = c.dp(dp)?;
    let filter =
        filter.map(|f| fv_flow::text::parse_match(f, None).map(|(m, _)| m)).transpose().map_err(|e| e.to_string())?;
    let now = c.engine.clock.now();
    let list = port_names(i);
    let lookup = |p: u32| list.get(&p).cloned();
    let names: Option<odp::Names> = if o.names.unwrap_or(o.more) { Some(&lookup) } else { None };
    let mut flows = Vec::new();
    i.overlay.flow_dump(&mut |f| {
        flows.push(f);
        true
    });
    flows.sort_by_key(|f| f.worker.0.max(WorkerId::MAIN.0));
    let mut out = String::new();
    let mut last: Option<i32> = None;
    for f in &flows {
        // Event workers are no poll-mode threads: tools know them as the main thread.
        let worker = f.worker.0.max(WorkerId::MAIN.0);
        if pmd.is_some_and(|p| p != worker) {
            continue;
        }
        if filter.as_ref().is_some_and(|m| !within(m, f)) {
            continue;
        }
        let header = last != Some(worker);
        last = Some(worker);
        if !kinds.map_or(Ok(true), |k| type_wanted(k, f))? {
            continue;
        }
        if header {
            out.push_str(&match worker {
                -1 => "flow-dump from the main thread:\n".to_string(),
                n => format!("flow-dump from pmd on cpu core: {n}\n"),
            });
        }
        out.push_str(&format_flow(f, now, FlowText { more: o.more }, names));
        out.push('\n');
    }
    Ok(out)
}

/// Whether a flow agrees with a filter on every bit that the filter matches and the flow knows.
fn within(m: &fv_flow::Match, f: &FlowDump) -> bool {
    let (mask, key) = (m.mask.dp(), m.key.dp);
    mask.0.words().iter().zip(f.mask.0.words()).zip(key.words().iter().zip(f.key.words())).all(
        |((m, have), (want, is))| {
            let both = m & have;
            m & !have == 0 && (want ^ is) & both == 0
        },
    )
}

/// Splits off a leading datapath name where there is one argument more than `n`.
fn with_dp<'a>(args: &'a [&'a str], n: usize) -> (Option<&'a str>, &'a [&'a str]) {
    if args.len() > n { (Some(args[0]), &args[1..]) } else { (None, args) }
}

fn put(c: &mut Ctx, args: &[&str], create: bool, modify: bool) -> fv_core::Reply {
    let (o, rest) = options(args)?;
    let (dp, rest) = with_dp(rest, 2);
    let [flow, actions] = rest else { return Err("flow and actions are required".into()) };
    let i = c.dp(dp)?;
    let lookup = |s: &str| port_lookup(i, s);
    let p = parse_flow(flow, actions, &lookup).map_err(|e| match e {
        fv_dpif::text::TextError::InPort => "failed to put[create] flow: in_port is not an exact match\novs-vswitchd: updating flow table (Invalid argument)".to_string(),
        fv_dpif::text::TextError::Key(e) => format!("ovs-vswitchd: parsing flow key ({e}) (Invalid argument)"),
        _ => "ovs-vswitchd: parsing actions (Invalid argument)".to_string(),
    })?;
    let p = FlowPut { create: create || o.may_create, modify, ..p };
    i.overlay.flow_put(p).map_err(|e| format!("ovs-vswitchd: updating flow table ({e})"))?;
    Ok(String::new())
}

fn get_flow(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let (o, rest) = options(args)?;
    let (dp, rest) = with_dp(rest, 1);
    let [ufid] = rest else { return Err("ufid is required".into()) };
    let i = c.dp(dp)?;
    let u: Ufid = ufid.trim_start_matches("ufid:").parse().map_err(|()| "failed to parse ufid".to_string())?;
    let f = i.overlay.flow_get(u).ok_or("ovs-vswitchd: getting flow (No such file or directory)")?;
    let list = port_names(i);
    let lookup = |p: u32| list.get(&p).cloned();
    let names: Option<odp::Names> = if o.names.unwrap_or(o.more) { Some(&lookup) } else { None };
    Ok(format!("{}\n", format_flow(&f, c.engine.clock.now(), FlowText { more: o.more }, names)))
}

fn del_flow(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let (_, rest) = options(args)?;
    let (dp, rest) = with_dp(rest, 1);
    let [flow] = rest else { return Err("flow is required".into()) };
    let i = c.dp(dp)?;
    let lookup = |s: &str| port_lookup(i, s);
    let p = odp::parse(flow, &lookup).map_err(|e| format!("ovs-vswitchd: parsing flow key ({e})"))?;
    let ufid = match p.ufid {
        Some(u) => Some(u),
        None => {
            let mut found = None;
            i.overlay.flow_dump(&mut |f| {
                if f.mask.equal(&f.key, &p.key)
                    && p.mask.0.words().iter().zip(f.mask.0.words()).all(|(a, b)| a & !b == 0)
                {
                    found = Some(f.ufid);
                }
                found.is_none()
            });
            found
        }
    };
    let missing =
        || "ovs-vswitchd: deleting flow (No such file or directory)\nPerhaps you need to specify a UFID?".to_string();
    i.overlay.flow_del(ufid.ok_or_else(missing)?).map_err(|_| missing())?;
    Ok(String::new())
}

fn del_flows(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    c.dp(args.first().copied())?.overlay.flow_flush();
    Ok(String::new())
}

/// Bridges own datapaths here; their lives follow the database.
fn add_dp(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    match c.dp(Some(args[0])) {
        Ok(_) => Err(format!("ovs-vswitchd: add_dp ({}: File exists)", args[0])),
        Err(_) => {
            let (kind, name) = args[0].split_once('@').unwrap_or(("netdev", args[0]));
            if name != format!("ovs-{kind}") {
                return Err(format!("ovs-vswitchd: add_dp (datapaths are named ovs-TYPE; {name}: Invalid argument)"));
            }
            c.engine.world.dps.open(kind).map_err(|e| format!("ovs-vswitchd: add_dp ({e})"))?;
            args[1..].iter().try_for_each(|i| c.engine.dp_add_if(kind, i).map_err(|e| format!("ovs-vswitchd: {e}")))?;
            Ok(String::new())
        }
    }
}

fn del_dp(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let i = c.dp(Some(args[0]))?;
    if i.bridge_count() > 0 {
        return Err("ovs-vswitchd: del_dp (bridges use the datapath: Device or resource busy)".into());
    }
    for p in i.dp.ports() {
        i.overlay.detach(p.port);
        let _ = i.dp.del_port(p.port);
    }
    c.engine.world.dps.close_unused();
    Ok(String::new())
}

fn add_if(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let kind = c.dp(Some(args[0]))?.dp.kind().to_string();
    args[1..].iter().try_for_each(|i| c.engine.dp_add_if(&kind, i).map_err(|e| format!("ovs-vswitchd: {e}")))?;
    Ok(String::new())
}

fn del_if(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let i = c.dp(Some(args[0]))?;
    for name in &args[1..] {
        let port = port_lookup(i, name).ok_or_else(|| format!("ovs-vswitchd: no port named {name}"))?;
        i.overlay.detach(fv_core::DpPort(port));
        i.dp.del_port(fv_core::DpPort(port)).map_err(|e| format!("ovs-vswitchd: deleting port {name} ({e})"))?;
    }
    c.engine.world.dps.staff();
    Ok(String::new())
}

fn parse(_: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let mut out = String::new();
    for a in args {
        let acts = parse_actions(a, &|_| None).map_err(|e| format!("ovs-vswitchd: parsing actions ({e})"))?;
        out.push_str(&format_actions(&acts, None));
        out.push('\n');
    }
    Ok(out)
}

/// The actions for packets of a flow, by the tags and labels that they have at each output.
fn normalize(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let (_, rest) = options(args)?;
    let [flow, actions] = rest else { return Err("flow and actions are required".into()) };
    let i = c.dp(None).ok();
    let lookup = |s: &str| i.and_then(|i| port_lookup(i, s));
    let p = odp::parse(flow, &lookup).map_err(|e| format!("ovs-vswitchd: parsing flow key ({e})"))?;
    let acts = parse_actions(actions, &lookup).map_err(|e| format!("ovs-vswitchd: parsing actions ({e})"))?;
    let mut out = format!("input flow: {}\n", odp::format(&p.key, None, false, None));
    let tags = p.key.base.vlans.iter().filter(|v| v.tci.get() & 0x1000 != 0).count();
    let head = if tags == 0 {
        "no vlan: ".to_string()
    } else {
        format!("vlan(vid={}): ", p.key.base.vlans[0].tci.get() & 0xfff)
    };
    out.push_str(&head);
    out.push_str("no mpls: ");
    out.push_str(&format_actions(&acts, None));
    out.push('\n');
    Ok(out)
}
