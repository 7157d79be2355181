//! `ofproto/detrace`: the OpenFlow rules that a datapath flow was made of.

use fv_core::{Command, Ufid};
use fv_dpif::WorkerId;
use fv_ofproto::RuleRef;

use super::Ctx;

pub const COMMANDS: &[Command<Ctx>] =
    &[Command { name: "ofproto/detrace", usage: Some("UFID [pmd=PMD-ID]"), min: 1, max: 2, run: detrace }];

fn detrace(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let text = args[0].trim_start_matches("ufid:");
    let ufid: Ufid = text.parse().map_err(|()| "failed to parse ufid".to_string())?;
    let pmd: Option<i32> = match args.get(1) {
        None => None,
        Some(s) => Some(s.strip_prefix("pmd=").and_then(|n| n.parse().ok()).ok_or("Invalid pmd argument format.")?),
    };
    let on = |worker: WorkerId| match pmd {
        // What no poll-mode thread has is the main thread's, for users.
        Some(n) => worker.0.max(WorkerId::MAIN.0) == n,
        None => true,
    };
    let rules = c.engine.world.dps.iter().find_map(|(_, i)| {
        let f = fv_dpif::Datapath::flow_get(&*i.dp, ufid).filter(|f| on(f.worker))?;
        i.slowpath.rules_of(f.ufid)
    });
    let rules = rules.ok_or_else(|| format!("UFID was not found for {text}"))?;
    Ok(rules.iter().map(rule_text).collect())
}

fn rule_text(r: &RuleRef) -> String {
    let mut t = format!("cookie={:#x}, table={} ", r.cookie, r.table);
    let m = fv_flow::text::format_match(&fv_ofproto::rule::match_of(r), None, fv_flow::text::Style::Rule);
    let mut parts = Vec::new();
    if r.priority() != 0x8000 {
        parts.push(format!("priority={}", r.priority()));
    }
    if !m.is_empty() {
        parts.push(m);
    }
    let actions = if r.actions.is_empty() { "drop".into() } else { fv_xlate::text::format_actions(&r.actions) };
    parts.push(format!("actions={actions}"));
    t.push_str(&parts.join(","));
    t.push('\n');
    t
}
