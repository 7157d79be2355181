//! Logging: the backend of the `log` crate, with levels per module and destination that can be
//! changed while running. The module is the record's target; a target with `::` counts as its
//! last part if it is one of ours. Trace records of dependencies are never wanted.
//!
//! Cost: a message that nobody wants costs one relaxed load as long as no module wants more than
//! the others, else one more lookup. Threads that must not wait call `defer_output`: their
//! messages go into a bounded queue that somebody else writes (`drain`).

mod commands;
mod level;
mod limit;
mod pattern;
mod sink;
mod spec;
mod state;

use std::fmt;
use std::path::Path;

use fv_core::Clock;

pub use commands::commands;
pub use level::{Destination, Level};
pub use spec::set;
pub use state::{close_file, defer_output, drain, list, list_pattern, register_modules, reopen_file, set_level};

use state::STATE;

/// Makes this the process's logger. `program` is what `%A` prints. Once per process.
pub fn init(program: &str, clock: &Clock) {
    state::configure(program, clock);
    if log::set_logger(&state::Backend).is_ok() {
        state::refresh_max_level();
    }
}

/// Appends to `path` from now on; says so in the log.
pub fn open_file(path: &Path) -> Result<(), String> {
    state::open_file(path)
}

/// `null`, `libc`, `unix:PATH` or `udp:IP:PORT`.
pub fn set_syslog_method(method: &str) -> Result<(), String> {
    let sink = sink::Syslog::open(method)?;
    STATE.lock().syslog = sink;
    Ok(())
}

/// Sends RFC 5424 messages to `HOST:PORT` too.
pub fn set_syslog_target(target: &str) -> Result<(), String> {
    let sink = sink::Syslog::open(&format!("udp:{target}"))?;
    STATE.lock().syslog_target = sink;
    Ok(())
}

/// What `%t` and `%T` print for this thread instead of its name.
pub fn set_thread_label(label: &str) {
    state::set_thread_label(label);
}

/// Emergency: the process cannot go on.
pub fn emer(module: &str, text: fmt::Arguments<'_>) {
    state::write_always(module, Level::Emer, text);
}
