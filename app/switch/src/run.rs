//! The control thread's loop.

use fv_core::{Clock, Registry};
use fv_rpc::Poller;
use fv_rpc::daemon::Signals;
use fv_rpc::{unixctl, vlog};

use crate::options::SwitchOptions;

/// What keeps the switch from starting, or ends it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("control socket: {0}")]
    Control(#[from] fv_rpc::stream::Error),
}

/// What commands work on.
#[derive(Default)]
struct Ctx {
    exit: bool,
}

/// Runs the switch until a signal or `exit` ends it. `ready` is called once, when the first
/// configuration is in place.
pub fn run(options: SwitchOptions, clock: Clock, ready: &mut dyn FnMut(), signals: Signals) -> Result<(), Error> {
    let mut signals = signals;
    let mut poller = Poller::new()?;
    let mut server = match options.unixctl.as_deref() {
        Some("none") => None,
        Some(p) => Some(unixctl::Server::open(&options.rundir.join(p))?),
        None => {
            let p = unixctl::default_path(&options.rundir, &options.program, std::process::id());
            Some(unixctl::Server::open(&p)?)
        }
    };
    let mut commands: Registry<Ctx> = Registry::default();
    commands.add(&vlog::commands());
    commands.add(&[fv_core::Command {
        name: "exit",
        usage: Some("[--cleanup]"),
        min: 0,
        max: 1,
        run: |c: &mut Ctx, _| {
            c.exit = true;
            Ok(String::new())
        },
    }]);
    let mut ctx = Ctx::default();
    ready();
    while !signals.turn() && !ctx.exit {
        let now = clock.now();
        if let Some(s) = &mut server {
            for r in s.turn(now) {
                let args: Vec<&str> = r.args.iter().map(String::as_str).collect();
                let reply = match r.command.as_str() {
                    "list-commands" => Ok(unixctl::command_list(commands.list())),
                    "version" => Ok(format!("{} (Open vSwitch) 3.7.1", options.program)),
                    c => commands.run(&mut ctx, c, &args),
                };
                if ctx.exit {
                    s.close_listener();
                }
                s.reply(r.token, reply);
            }
            s.want(&mut poller, now);
        }
        signals.want(&mut poller);
        if !ctx.exit {
            poller.wait(None, &clock)?;
        }
    }
    Ok(())
}
