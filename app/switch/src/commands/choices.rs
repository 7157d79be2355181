//! Commands that choose between implementations. There is one of each here: it can be shown and
//! chosen, others are unknown.

use fv_core::Command;
use fv_datapath::WorkerKind;

use super::{Ctx, pmd::poll_workers};

pub const COMMANDS: &[Command<Ctx>] = &[
    Command { name: "dpif-netdev/subtable-lookup-info-get", usage: Some(""), min: 0, max: 0, run: lookup_get },
    Command { name: "dpif-netdev/subtable-lookup-prio-get", usage: None, min: 0, max: 0, run: lookup_get },
    Command {
        name: "dpif-netdev/subtable-lookup-prio-set",
        usage: Some("[lookup_func] [prio]"),
        min: 2,
        max: 2,
        run: lookup_set,
    },
    Command { name: "dpif-netdev/dpif-impl-get", usage: Some(""), min: 0, max: 0, run: dpif_get },
    Command {
        name: "dpif-netdev/dpif-impl-set",
        usage: Some("dpif_implementation_name"),
        min: 1,
        max: 1,
        run: dpif_set,
    },
    Command { name: "dpif-netdev/miniflow-parser-get", usage: Some(""), min: 0, max: 0, run: parser_get },
    Command {
        name: "dpif-netdev/miniflow-parser-set",
        usage: Some("[-pmd core] miniflow_implementation_name [study_pkt_cnt]"),
        min: 1,
        max: 5,
        run: parser_set,
    },
];

/// Cores of all poll workers, or "none".
fn pmds(c: &Ctx) -> String {
    let mut cores: Vec<i32> =
        c.engine.world.dps.iter().flat_map(|(_, i)| poll_workers(i, None)).map(|w| w.id.0).collect();
    cores.sort_unstable();
    cores.dedup();
    match cores.is_empty() {
        true => "none".into(),
        false => cores.iter().map(i32::to_string).collect::<Vec<_>>().join(","),
    }
}

/// A reply that the log keeps too.
fn told(reply: fv_core::Reply) -> fv_core::Reply {
    match &reply {
        Ok(text) => log::info!(target: "dpif_netdev", "{}", text.trim_end()),
        Err(text) => log::error!(target: "dpif_netdev", "{}", text.trim_end()),
    }
    reply
}

fn lookup_get(c: &mut Ctx, _: &[&str]) -> fv_core::Reply {
    let subtables = |i: &crate::datapaths::DpInst| -> usize {
        let all = i.dp.workers();
        let ids = all.iter().filter(|w| w.kind != WorkerKind::Event).map(|w| w.id);
        ids.filter_map(|id| i.dp.ask(id, |w| w.table_size().1)).sum()
    };
    let used: usize = c.engine.world.dps.iter().map(|(_, i)| subtables(i)).sum();
    Ok(format!(
        "Available dpcls implementations:\n  generic (Use count: {used}, Priority: {})\n",
        c.subtable_lookup_priority
    ))
}

fn lookup_set(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let priority = args[1].parse::<u8>().map_err(|_| "error converting priority, use integer in range 0-255\n")?;
    if args[0] != "generic" {
        return Err("error, subtable lookup function not found\n".into());
    }
    c.subtable_lookup_priority = priority;
    log::info!(target: "dpif_netdev_lookup", "Subtable function 'generic' set priority to {priority}");
    told(Ok("Lookup priority change affected 0 dpcls ports and 0 subtables.\n".into()))
}

fn dpif_get(c: &mut Ctx, _: &[&str]) -> fv_core::Reply {
    Ok(format!("Available DPIF implementations:\n  dpif_scalar (pmds: {})\n", pmds(c)))
}

fn dpif_set(_: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    told(match args[0] {
        "dpif_scalar" => Ok("DPIF implementation set to dpif_scalar.\n".into()),
        other => Err(format!("DPIF implementation not available: Unknown DPIF implementation {other}.\n")),
    })
}

fn parser_get(c: &mut Ctx, _: &[&str]) -> fv_core::Reply {
    Ok(format!("Available MFEX implementations:\n  scalar (available: True pmds: {})\n", pmds(c)))
}

fn parser_set(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    told(set_parser(c, args))
}

fn set_parser(c: &Ctx, args: &[&str]) -> fv_core::Reply {
    let (mut rest, mut on) = (args, String::new());
    if let ["-pmd", more @ ..] = args {
        let (core, more) = more.split_first().ok_or("Error: -pmd option requires a thread id argument.\n")?;
        let core: i32 = core.parse().ok().filter(|n| *n >= 0).ok_or_else(|| {
            format!(
                "Error: miniflow extract parser not changed, PMD thread passed is not valid: '{core}'. \
                 Pass a valid pmd thread ID.\n"
            )
        })?;
        let name = more.first().ok_or(
            "Error: no miniflow extract name provided. Output of miniflow-parser-get shows implementation list.\n",
        )?;
        known(name)?;
        if !c.engine.world.dps.iter().any(|(_, i)| !poll_workers(i, Some(core)).is_empty()) {
            return Err(format!(
                "Error: miniflow extract parser not changed, PMD thread {core} not in use, pass a valid pmd thread ID.\n"
            ));
        }
        (rest, on) = (more, format!(", on pmd thread {core}"));
    }
    known(rest[0])?;
    match rest.get(1) {
        // A number of packets belongs to an implementation that is not here.
        Some(other) => Err(format!("Error: unknown argument {other}.\n")),
        None => Ok(format!("Miniflow extract implementation set to {}{on}.\n", rest[0])),
    }
}

fn known(name: &str) -> Result<(), String> {
    match name {
        "scalar" => Ok(()),
        _ => Err(format!("Error: unknown miniflow extract implementation {name}.\n")),
    }
}
