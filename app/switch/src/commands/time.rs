//! Virtual time.

use fv_core::{Command, Nanos};

use super::Ctx;

pub const COMMANDS: &[Command<Ctx>] = &[
    Command {
        name: "time/stop",
        usage: Some(""),
        min: 0,
        max: 0,
        run: |c, _| {
            c.engine.clock.stop();
            Ok(String::new())
        },
    },
    Command { name: "time/warp", usage: Some("[large_msecs] msecs"), min: 1, max: 2, run: warp },
];

/// Moves time by `large` in steps of `step`: after each, every thread has come to rest at the new
/// time, control included.
fn warp(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let ms = |s: &str| s.parse::<u64>().ok().filter(|n| *n > 0).ok_or_else(|| "invalid MSECS".to_string());
    let step = ms(args[args.len() - 1])?;
    let mut left = ms(args[0])?;
    c.engine.clock.stop();
    while left > 0 {
        let by = step.min(left);
        left -= by;
        c.engine.clock.advance(Nanos::from_ms(by));
        let now = c.engine.clock.now();
        c.engine.settle(now);
    }
    Ok("warped".into())
}
