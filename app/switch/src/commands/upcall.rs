//! The slow path: flow limits, revalidation.

use std::time::{Duration, Instant};

use fv_core::Command;

use super::{Ctx, full_name};

/// Longest that `revalidator/wait` holds control up.
const WAIT_LIMIT: Duration = Duration::from_secs(5);

pub const COMMANDS: &[Command<Ctx>] = &[
    Command { name: "upcall/show", usage: Some(""), min: 0, max: 0, run: show },
    Command { name: "upcall/disable-megaflows", usage: Some(""), min: 0, max: 0, run: |c, _| megaflows(c, false) },
    Command { name: "upcall/enable-megaflows", usage: Some(""), min: 0, max: 0, run: |c, _| megaflows(c, true) },
    Command {
        name: "upcall/disable-ufid",
        usage: Some(""),
        min: 0,
        max: 0,
        run: |_, _| Ok("Datapath dumping tersely using UFID disabled".into()),
    },
    Command {
        name: "upcall/enable-ufid",
        usage: Some(""),
        min: 0,
        max: 0,
        run: |_, _| Ok("Datapath dumping tersely using UFID enabled for supported datapaths".into()),
    },
    Command { name: "upcall/set-flow-limit", usage: Some("flow-limit-number"), min: 1, max: 1, run: set_limit },
    Command { name: "revalidator/wait", usage: Some(""), min: 0, max: 0, run: wait },
    Command { name: "revalidator/purge", usage: Some(""), min: 0, max: 0, run: |c, _| each(c, |s| s.purge()) },
    Command { name: "revalidator/pause", usage: None, min: 0, max: 0, run: |c, _| each(c, |s| s.set_paused(true)) },
    Command { name: "revalidator/resume", usage: None, min: 0, max: 0, run: |c, _| each(c, |s| s.set_paused(false)) },
];

fn each(c: &mut Ctx, f: impl Fn(&fv_slowpath::Slowpath)) -> fv_core::Reply {
    c.engine.world.dps.iter().for_each(|(_, i)| f(&i.slowpath));
    Ok(String::new())
}

fn show(c: &mut Ctx, _: &[&str]) -> fv_core::Reply {
    let mut out = String::new();
    for (_, i) in c.engine.world.dps.iter() {
        let s = i.slowpath.info();
        let offloaded = match i.overlay.n_offloaded() {
            0 => String::new(),
            n => format!("  offloaded flows : {n}\n"),
        };
        out.push_str(&format!(
            "{}:\n  flows         : (current {}) (avg {}) (max {}) (limit {})\n{offloaded}  dump duration : {}ms\n  ufid enabled : true\n\n  1: (keys {})\n",
            full_name(i),
            s.current,
            s.avg,
            s.max,
            s.limit,
            s.dump_duration.ms().max(1),
            s.keys
        ));
    }
    Ok(out)
}

fn megaflows(c: &mut Ctx, on: bool) -> fv_core::Reply {
    each(c, |s| s.set_megaflows(on))?;
    Ok(if on { "megaflows enabled".into() } else { "megaflows disabled".into() })
}

fn set_limit(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let n: u64 = args[0].parse().map_err(|_| format!("{}: not a number", args[0]))?;
    each(c, |s| s.set_flow_limit(n))?;
    Ok(format!("set flow_limit to {n}\n"))
}

/// Two whole rounds: one that may have begun before the caller's change, and one after it.
fn wait(c: &mut Ctx, _: &[&str]) -> fv_core::Reply {
    let mut all = c.engine.world.dps.iter();
    let Some((_, i)) = all.next() else { return Ok(String::new()) };
    if all.next().is_some() {
        return Err("can't wait on multiple udpifs.".into());
    }
    let (slowpath, started) = (i.slowpath.clone(), Instant::now());
    let goal = slowpath.rounds() + 2;
    while slowpath.rounds() < goal && started.elapsed() < WAIT_LIMIT {
        slowpath.kick();
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(String::new())
}
