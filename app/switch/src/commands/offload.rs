//! Hardware offload: what is where, and why.

use std::fmt::Write as _;

use fv_core::{Command, DpPort, Ufid};
use fv_dpif::Datapath;

use super::{Ctx, full_name, port_names};
use crate::datapaths::DpInst;

pub const COMMANDS: &[Command<Ctx>] = &[
    Command { name: "dpctl/offload-stats-show", usage: Some("[dp]"), min: 0, max: 1, run: stats_show },
    Command { name: "dpif/offload/show", usage: Some("[dp]"), min: 0, max: 1, run: show },
    Command { name: "ferrovia/offload", usage: Some("[dp]"), min: 0, max: 1, run: tables },
    Command { name: "ferrovia/why-not-offloaded", usage: Some("[dp] ufid"), min: 1, max: 2, run: why },
];

fn chosen<'a>(c: &'a Ctx, args: &[&str]) -> Result<Vec<&'a DpInst>, String> {
    match args {
        [] => Ok(c.engine.world.dps.iter().map(|(_, i)| i).collect()),
        names => names.iter().map(|n| c.dp(Some(n))).collect(),
    }
}

fn stats_show(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let mut out = "HW Offload stats:\n".to_string();
    let mut pools = Vec::new();
    for i in chosen(c, args)? {
        pools.extend(i.overlay.pools());
    }
    let mut label = |name: &str, waiting: usize, inserted: usize| {
        let _ = write!(out, "  {name}:\n    Enqueued offloads: {waiting:6}\n    Inserted offloads: {inserted:6}\n");
    };
    label("Total", pools.iter().map(|p| p.waiting).sum(), pools.iter().map(|p| p.full + p.marked).sum());
    for p in &pools {
        label(&format!("[{} {}]", p.provider, p.name), p.waiting, p.full + p.marked);
    }
    Ok(out)
}

fn show(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let mut out = format!("Globally enabled: {}\nDatapaths:\n", c.engine.world.dps.offload.is_enabled());
    for i in chosen(c, args)? {
        let _ = writeln!(out, "{}:", full_name(i));
        let names = port_names(i);
        for provider in i.overlay.providers() {
            let _ = writeln!(out, "  {provider}");
            for port in i.overlay.ports_of(provider) {
                let _ = writeln!(out, "  - {}: port_no: {port}", names.get(&port.0).map_or("?", String::as_str));
            }
        }
    }
    Ok(out)
}

/// A line a table, and what keeps flows out of it.
fn tables(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let enabled = c.engine.world.dps.offload.is_enabled();
    let mut out = String::new();
    if !enabled {
        out.push_str("hardware offload is disabled (other_config:hw-offload)\n");
    }
    for i in chosen(c, args)? {
        let names = port_names(i);
        let name = |p: &DpPort| names.get(&p.0).cloned().unwrap_or_else(|| p.to_string());
        for p in i.overlay.pools() {
            let all = p.rate_hardware + p.rate_software;
            let share = if all > 0.0 { p.rate_hardware / all * 100.0 } else { 0.0 };
            let capacity = p.capacity.map_or("?".to_string(), |n| n.to_string());
            let ports = p.ports.iter().map(name).collect::<Vec<_>>().join(" ");
            let _ = write!(
                out,
                "{} {} ({ports}):\n  used {} of {capacity}: {} forwarded, {} marked\n  \
                 packets in hardware: {share:.1} % ({:.0} of {all:.0}/s)\n  moves in the last minute: {}\n  waiting: {}\n",
                p.provider, p.name, p.used, p.full, p.marked, p.rate_hardware, p.moves_last_minute, p.waiting
            );
            for (why, n) in &p.cannot {
                let _ = writeln!(out, "  in software: {n}, {why}");
            }
        }
    }
    if out.is_empty() {
        out.push_str("no port is on a NIC that has a flow table\n");
    }
    Ok(out)
}

fn why(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let (dp, text) = match args {
        [dp, text] => (Some(*dp), *text),
        _ => (None, args[0]),
    };
    let i = c.dp(dp)?;
    let ufid: Ufid = text.trim_start_matches("ufid:").parse().map_err(|()| "failed to parse ufid".to_string())?;
    if i.overlay.flow_get(ufid).is_none() {
        return Err("there is no such flow".into());
    }
    Ok(match i.overlay.why(ufid) {
        None => "the flow is offloaded\n".to_string(),
        Some(why) => format!("{why}\n"),
    })
}
