//! `ferrovia call`: one command of the control socket.

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Call, Target};
use crate::socket::{Daemon, EXIT_SICK, Error, fail};

pub fn run(target: &Target, o: &Call) -> Result<ExitCode> {
    let args: Vec<&str> = o.args.iter().map(String::as_str).collect();
    match Daemon::find(target).and_then(|d| d.call(&o.command, &args)) {
        Ok(text) => {
            crate::human::print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(Error::Refused(text)) => {
            eprint!("{text}");
            if !text.ends_with('\n') {
                eprintln!();
            }
            eprintln!("ferrovia: the daemon returned an error");
            Ok(ExitCode::from(EXIT_SICK))
        }
        Err(e) => Ok(fail(&e)),
    }
}
