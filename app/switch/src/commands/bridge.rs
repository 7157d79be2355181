//! Bridges: which there are, their flows.

use fv_core::Command;
use fv_ofproto::TABLE_INTERNAL;

use super::Ctx;

pub const COMMANDS: &[Command<Ctx>] = &[
    Command { name: "ofproto/list", usage: Some(""), min: 0, max: 0, run: list },
    Command { name: "bridge/dump-flows", usage: Some("[--offload-stats] bridge"), min: 1, max: 2, run: dump_flows },
    Command { name: "bridge/reconnect", usage: Some("[bridge]"), min: 0, max: 1, run: reconnect },
];

fn list(c: &mut Ctx, _: &[&str]) -> fv_core::Reply {
    Ok(c.engine.bridges.keys().map(|b| format!("{b}\n")).collect())
}

fn dump_flows(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let (offload, name) = match args {
        ["--offload-stats", n] => (true, *n),
        [n] => (false, *n),
        _ => return Err("bridge name missing".into()),
    };
    let now = c.engine.clock.now();
    let i = c.dp_of(c.bridge(name).map_err(|_| "Unknown bridge")?)?;
    i.slowpath.pull(now);
    let b = c.bridge(name)?;
    let mut out = String::new();
    for r in b.of.all_rules() {
        if r.table != 0 {
            out.push_str(&format!("table_id={}, ", r.table));
        }
        let s = &r.stats;
        out.push_str(&format!("duration={}s, ", now.saturating_sub(r.created).secs()));
        out.push_str(&format!("n_packets={}, n_bytes={}, ", s.packets(), s.bytes()));
        if offload {
            out.push_str("n_offload_packets=0, n_offload_bytes=0, ");
        }
        let m = fv_flow::text::format_match(&fv_ofproto::rule::match_of(&r), None, fv_flow::text::Style::Rule);
        let priority = r.priority();
        if priority != 0x8000 {
            out.push_str(&format!("priority={priority}"));
            if !m.is_empty() {
                out.push(',');
            }
        }
        out.push_str(&m);
        let actions = match r.table {
            TABLE_INTERNAL if !r.actions.0.is_empty() => "controller(reason=)".to_string(),
            _ => fv_xlate::text::format_actions(&r.actions.0),
        };
        out.push_str(&format!(",actions={actions}\n"));
    }
    Ok(out)
}

fn reconnect(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let now = c.engine.clock.now();
    match args.first() {
        Some(name) => {
            let b = c.engine.bridges.get_mut(*name).ok_or("unknown bridge")?;
            b.of.reconnect();
            b.io.reconnect(now);
        }
        None => c.engine.bridges.values_mut().for_each(|b| {
            b.of.reconnect();
            b.io.reconnect(now);
        }),
    }
    Ok(String::new())
}
