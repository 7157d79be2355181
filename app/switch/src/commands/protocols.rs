//! Protocols that guard ports.

use std::sync::Arc;

use fv_core::{Command, Reply};
use fv_l2::PortMonitor;

use super::Ctx;

pub const COMMANDS: &[Command<Ctx>] = &[
    Command { name: "bfd/show", usage: Some("[interface]"), min: 0, max: 1, run: bfd_show },
    Command {
        name: "bfd/set-forwarding",
        usage: Some("[interface] normal|false|true"),
        min: 1,
        max: 2,
        run: bfd_set_forwarding,
    },
];

/// Monitors by the names of their interfaces.
fn monitors(c: &Ctx) -> Vec<(&str, &Arc<PortMonitor>)> {
    let ifaces = c.engine.world.bridges.values().flat_map(|b| b.ifaces.values());
    let mut all: Vec<_> = ifaces.filter_map(|i| Some((i.name.as_str(), i.monitor.as_ref()?))).collect();
    all.sort_by_key(|(name, _)| *name);
    all
}

fn bfd_show(c: &mut Ctx, args: &[&str]) -> Reply {
    let now = c.engine.clock.now();
    let mut out = String::new();
    match args.first() {
        Some(name) => {
            let m = monitors(c).into_iter().find(|(n, _)| n == name);
            out = m.and_then(|(_, m)| m.with_bfd(|s| s.show(now))).ok_or("no such bfd object")?;
        }
        None => {
            for (name, m) in monitors(c) {
                if let Some(text) = m.with_bfd(|s| s.show(now)) {
                    out += &format!("---- {name} ----\n{text}");
                }
            }
        }
    }
    Ok(out)
}

fn bfd_set_forwarding(c: &mut Ctx, args: &[&str]) -> Reply {
    let now = c.engine.clock.now();
    let (name, word) = match args {
        [name, word] => (Some(*name), *word),
        [word] => (None, *word),
        _ => return Err("unknown fault string".into()),
    };
    let to = match word {
        "true" => Some(true),
        "false" => Some(false),
        "normal" => None,
        _ => return Err("unknown fault string".into()),
    };
    let mut found = false;
    for (n, m) in monitors(c) {
        if name.is_none_or(|name| name == n) {
            found |= m.with_bfd(|s| s.force_forwarding(to, now)).is_some();
        }
    }
    if name.is_some() && !found {
        return Err("no such BFD object".into());
    }
    c.engine.take_over_changes();
    Ok("OK".into())
}
