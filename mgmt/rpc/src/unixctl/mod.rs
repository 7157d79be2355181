//! The control socket: JSON-RPC requests whose method is a command and whose params are its
//! arguments, all strings.

mod client;
mod server;

use std::fmt::Write;
use std::path::{Path, PathBuf};

pub use client::{CallError, call};
pub use server::{ConnToken, Request, Server};

/// `<rundir>/<program>.<pid>.ctl`.
pub fn default_path(rundir: &Path, program: &str, pid: u32) -> PathBuf {
    rundir.join(format!("{program}.{pid}.ctl"))
}

/// What `list-commands` answers; the commands come sorted.
pub fn command_list<'a>(commands: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::from("The available commands are:\n");
    for (name, usage) in commands {
        let _ = writeln!(out, "  {name:<23} {usage}");
    }
    out
}

/// What the socket answers itself, for the list of commands.
pub fn commands<C>() -> [fv_core::Command<C>; 1] {
    [fv_core::Command {
        name: "set-options",
        usage: Some("[--format text|json]"),
        min: 1,
        max: 2,
        run: |_, _| Err("this is an option of a connection".into()),
    }]
}
