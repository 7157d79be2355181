//! The `vlog/*` commands. The logger is the process's: they need nothing of their context.

use fv_core::Command;

use super::state::{self, set_rate_limit};

/// The commands, for a registry over any context.
pub fn commands<C>() -> [Command<C>; 8] {
    let any = usize::MAX;
    [
        Command {
            name: "vlog/set",
            usage: Some("{spec | PATTERN:destination:pattern}"),
            min: 0,
            max: any,
            run: |_, specs| {
                specs.iter().try_for_each(|s| super::set(s))?;
                Ok(String::new())
            },
        },
        Command { name: "vlog/list", usage: Some(""), min: 0, max: 0, run: |_, _| Ok(state::list()) },
        Command { name: "vlog/list-pattern", usage: Some(""), min: 0, max: 0, run: |_, _| Ok(state::list_pattern()) },
        Command {
            name: "vlog/enable-rate-limit",
            usage: Some("[module]..."),
            min: 0,
            max: any,
            run: |_, modules| rate_limits(modules, true),
        },
        Command {
            name: "vlog/disable-rate-limit",
            usage: Some("[module]..."),
            min: 0,
            max: any,
            run: |_, modules| rate_limits(modules, false),
        },
        Command {
            name: "vlog/reopen",
            usage: Some(""),
            min: 0,
            max: 0,
            run: |_, _| state::reopen_file().map(|()| String::new()),
        },
        Command {
            name: "vlog/close",
            usage: Some(""),
            min: 0,
            max: 0,
            run: |_, _| {
                state::close_file();
                Ok(String::new())
            },
        },
        Command {
            name: "vlog/message",
            usage: None,
            min: 1,
            max: 1,
            run: |_, text| {
                log::info!(target: "vlog", "{}", text[0]);
                Ok(String::new())
            },
        },
    ]
}

fn rate_limits(modules: &[&str], on: bool) -> fv_core::Reply {
    if modules.is_empty() {
        set_rate_limit(None, on);
    }
    for m in modules {
        let known = m.eq_ignore_ascii_case("any");
        if !set_rate_limit(Some(*m).filter(|_| !known), on) {
            return Err("unknown module".into());
        }
    }
    Ok(String::new())
}
