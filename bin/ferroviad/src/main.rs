//! The switch daemon: arguments, environment, process, signals. The switch itself is a library.

mod help;
mod modules;
mod options;
mod sigbus;

use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use fv_core::Clock;
use fv_rpc::daemon::{self, Daemon, Signals};
use fv_rpc::vlog;

use options::{Environment, Options, Parsed};

/// Release of the reference that we behave like; scripts compare it.
const REFERENCE_VERSION: &str = "3.7.1";
/// Longest wait of the log thread when no thread has anything to say.
const LOG_WAIT: Duration = TRIM_EVERY;
/// How often memory that is free is given back.
const TRIM_EVERY: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let clock = Clock::new();
    vlog::init(options::PROGRAM, &clock);
    vlog::set_thread_label("");
    vlog::register_modules(modules::MODULES);

    let env = Environment::from_process();
    let parsed = match options::parse(std::env::args_os(), &env) {
        Ok(p) => p,
        Err(e) => return fail(&anyhow!(e)),
    };
    let done = match parsed {
        Parsed::Help => {
            print!("{}", help::TEXT);
            Ok(())
        }
        Parsed::Version => {
            println!("{} (Open vSwitch) {REFERENCE_VERSION}", options::PROGRAM);
            println!("Ferrovia {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Parsed::Run(o) => serve(*o, clock),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(&e),
    }
}

fn fail(e: &anyhow::Error) -> ExitCode {
    eprintln!("{}: {e}", options::PROGRAM);
    ExitCode::FAILURE
}

fn serve(o: Options, clock: Clock) -> Result<()> {
    start_log(&o)?;
    if let Some(user) = &o.user {
        if let Some(f) = o.log_file.as_ref().filter(|f| f.exists()) {
            daemon::give_file(f, user)?;
        }
        daemon::become_user(user, o.rawio)?;
    }
    let mut process = Daemon::start(&o.daemon)?;
    sigbus::install()?;
    // From here on there may be threads.
    if o.lock_memory {
        daemon::lock_memory();
    }
    let signals = Signals::new().map_err(|e| anyhow!("cannot receive signals: {e}"))?;
    std::thread::Builder::new()
        .name("log".into())
        .spawn(|| {
            let mut trimmed = Instant::now();
            loop {
                vlog::drain(LOG_WAIT);
                if trimmed.elapsed() >= TRIM_EVERY {
                    trimmed = Instant::now();
                    daemon::return_free_memory();
                }
            }
        })
        .map_err(|e| anyhow!("cannot start a thread: {e}"))?;
    log::info!(target: "vswitchd", "{} (Open vSwitch) {REFERENCE_VERSION}", options::PROGRAM);
    log_panics();
    let run = || fv_switch::run(o.switch, clock, &mut || process.ready(), signals);
    // A switch whose model is half changed must not go on: the monitor starts a new one.
    let result = panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| std::process::abort());
    vlog::drain(Duration::ZERO);
    result.map_err(Into::into)
}

/// Panics go to the log: a daemon has no terminal. Whoever catches one decides what it costs.
fn log_panics() {
    panic::set_hook(Box::new(|info| {
        vlog::emer("util", format_args!("{info}"));
    }));
}

fn start_log(o: &Options) -> Result<()> {
    vlog::set_syslog_method(&o.syslog_method).map_err(|e| anyhow!(e))?;
    if let Some(t) = &o.syslog_target {
        vlog::set_syslog_target(t).map_err(|e| anyhow!(e))?;
    }
    for spec in &o.verbose {
        vlog::set(spec).map_err(|e| anyhow!("processing \"{spec}\": {e}"))?;
    }
    if let Some(f) = &o.log_file {
        // A log that cannot be opened has been reported on the console; the switch matters more.
        let _ = vlog::open_file(f);
    }
    Ok(())
}
