//! What each receive queue's lookups do about the tag cache, and why.

use std::fmt::Write;

use fv_core::Command;
use fv_datapath::{CacheUse, Why};

use super::Ctx;

pub const COMMANDS: &[Command<Ctx>] =
    &[Command { name: "dpif-netdev/cache-show", usage: Some("[dp]"), min: 0, max: 1, run: show }];

fn show(c: &mut Ctx, words: &[&str]) -> fv_core::Reply {
    let dp = c.dp(words.first().copied()).map_err(|_| "please specify an existing datapath".to_string())?;
    let mut out = match dp.dp.cache_use() {
        CacheUse::Adaptive => "cache: chosen for each queue by trial\n".to_string(),
        CacheUse::Always => "cache: always (smc-enable)\n".to_string(),
        CacheUse::Inverse(0) => "cache: never (emc-insert-inv-prob=0)\n".to_string(),
        CacheUse::Inverse(n) => format!("cache: one insertion in {n} (emc-insert-inv-prob)\n"),
    };
    let mut queues = dp.dp.queues();
    queues.sort_by(|a, b| (&a.name, a.queue).cmp(&(&b.name, b.queue)));
    for q in queues {
        let choice = &q.stats.cache;
        let why = match choice.why() {
            Why::Idle => "no packets yet".to_string(),
            Why::Set if choice.forbidden() => "emc-enable is false".to_string(),
            Why::Set => "as set".to_string(),
            Why::Cheap => "so few subtables are searched faster".to_string(),
            Why::Untried => "not tried yet".to_string(),
            Why::Measured => {
                let (with, without) = choice.costs();
                format!("{with:.0} cycles a lookup with, {without:.0} without, in {} trials", choice.trials())
            }
        };
        let on = if choice.on() { "used" } else { "not used" };
        let _ = writeln!(out, "  port: {:<16}  queue-id: {:2}  cache: {on} ({why})", q.name, q.queue);
    }
    Ok(out)
}
