//! The operator's tool: shows that the switch works, how it is, and why a packet goes where it goes.

mod call;
mod cli;
mod datapath;
mod demo;
mod human;
mod socket;
mod status;
mod top;
mod why;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Demo(o) => demo::run(&o),
        Command::Status(o) => status::run(&cli.target, &o),
        Command::Top(o) => top::run(&cli.target, &o),
        Command::Why(o) => why::run(&cli.target, &o),
        Command::Call(o) => call::run(&cli.target, &o),
    };
    done.unwrap_or_else(|e| {
        eprintln!("ferrovia: {e:#}");
        ExitCode::FAILURE
    })
}
