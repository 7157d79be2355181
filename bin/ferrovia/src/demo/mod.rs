//! `ferrovia demo`: the switch at work between two namespaces.
//!
//! Everything made on the way is owned by `Stage`, which removes it when it is dropped: at the
//! end, on an error, and when a signal interrupts.

mod run;
mod stage;
mod story;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::cli::Demo;
use run::{Interrupted, Runner};
use stage::Stage;

/// Programs the demo runs, and the Debian package of each.
const PROGRAMS: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("ping", "iputils-ping"),
    ("iperf3", "iperf3"),
    ("ethtool", "ethtool"),
    ("ovs-vsctl", "openvswitch-switch"),
    ("ovs-ofctl", "openvswitch-common"),
    ("ovs-appctl", "openvswitch-common"),
];

/// As a shell says it for SIGINT.
const EXIT_INTERRUPTED: u8 = 130;

pub fn run(o: &Demo) -> Result<ExitCode> {
    check_machine()?;
    let daemon = match &o.daemon {
        Some(p) => p.clone(),
        None => std::env::current_exe().context("path of this program")?.with_file_name("ferroviad"),
    };
    if !daemon.exists() {
        bail!(
            "there is no {}: build it with `cargo build --release --bin ferroviad', or name it with --daemon",
            daemon.display()
        );
    }
    let runner = Runner::new()?;
    let mut stage = Stage::new(&runner)?;
    let told = story::tell(&runner, &mut stage, &daemon, o.seconds);
    let why = told.as_ref().err().map(|_| stage.log_tail());
    let cleared = stage.clear();
    match told {
        Err(e) if e.is::<Interrupted>() => {
            eprintln!("ferrovia: interrupted; everything the demo made is removed");
            return Ok(ExitCode::from(EXIT_INTERRUPTED));
        }
        Err(e) => {
            if let Some(log) = why.filter(|l| !l.is_empty()) {
                eprintln!("The end of the switch's log:\n{log}");
            }
            return Err(e);
        }
        Ok(()) => {}
    }
    cleared?;
    runner.say("\nAll of it is removed again: the switch, its database, both namespaces, their devices.")?;
    Ok(ExitCode::SUCCESS)
}

fn check_machine() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "the demo makes namespaces and devices, which only root may: run `sudo make demo' or `sudo ferrovia demo'"
        );
    }
    let missing = missing_packages(on_path);
    if !missing.is_empty() {
        bail!("programs are missing: apt-get install {}", missing.join(" "));
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        bail!("there is no /dev/net/tun, which the switch's own ports need: modprobe tun");
    }
    Ok(())
}

fn missing_packages(there: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let mut out: Vec<_> = PROGRAMS.iter().filter(|(p, _)| !there(p)).map(|(_, package)| *package).collect();
    out.dedup();
    out
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|d| d.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_each_missing_package_once() {
        assert_eq!(missing_packages(|p| !p.starts_with("ovs-of") && !p.starts_with("ovs-app")), ["openvswitch-common"]);
        assert!(missing_packages(|_| true).is_empty());
        assert!(on_path("sh") && !on_path("no-such-program"));
    }
}
