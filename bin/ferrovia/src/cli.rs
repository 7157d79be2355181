//! The command line and its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "ferrovia",
    version,
    about = "Operator's tool of the Ferrovia virtual switch",
    long_about = "Operator's tool of the Ferrovia virtual switch.\n\n\
        Talks to a running ferroviad (or ovs-vswitchd) through its control socket, the one that \
        ovs-appctl uses. Configuration is done with ovs-vsctl, OpenFlow rules with ovs-ofctl; this \
        tool shows what comes of them.",
    after_help = "Run `ferrovia COMMAND --help' for the details of a command.",
    after_long_help = FILES
)]
pub struct Cli {
    #[command(flatten)]
    pub target: Target,
    #[command(subcommand)]
    pub command: Command,
}

const FILES: &str = "\
Files:
  RUNDIR/ovs-vswitchd.pid        process id of the daemon
  RUNDIR/ovs-vswitchd.PID.ctl    its control socket
RUNDIR is $OVS_RUNDIR, or /var/run/openvswitch.

Exit status:
  0  done, and what was asked about is in order
  1  it could not be done
  2  the daemon runs, but refused the command or does not answer as it should
  3  there is no daemon

Examples:
  ferrovia status                          is the switch well?
  ferrovia top                             live rates of all ports
  ferrovia why --bridge br0 in_port=1,tcp,nw_dst=198.18.0.2,tp_dst=80
  ferrovia call dpctl/dump-flows           any command of the control socket
  sudo ferrovia demo                       see it work, in under a minute";

/// Which daemon is meant, for all commands but `demo`.
#[derive(Args)]
pub struct Target {
    /// Control socket or pid of the daemon [default: by RUNDIR/ovs-vswitchd.pid]
    #[arg(short, long, global = true, value_name = "SOCKET|PID")]
    pub target: Option<String>,
    /// Seconds to wait for an answer
    #[arg(short = 'T', long, global = true, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
}

#[derive(Subcommand)]
pub enum Command {
    /// Show the switch at work between two namespaces, then remove everything again
    #[command(long_about = "Shows the switch at work, then removes everything again; takes under a minute.\n\n\
        Starts a ferroviad of its own with an embedded database in a temporary directory, makes two \
        network namespaces with a veth pair each (default offload settings), pings and runs TCP between \
        them through the switch, shows the flows that did it and the rate reached, and drops one of two \
        connections by an OpenFlow rule. Addresses are of 198.18.0.0/15, which no network uses.\n\n\
        Needs root, and the programs ip, ping, iperf3, ovs-vsctl, ovs-ofctl and ovs-appctl. A switch that \
        already runs on this machine is not touched. An interrupt also removes everything.")]
    Demo(Demo),
    /// Live view of ports and flows
    #[command(long_about = "Shows rates of all ports, the number of flows, and how many packets found theirs, \
        once per interval until interrupted.\n\n\
        Columns per port: packets and bits per second received and sent, and drops and errors per second of \
        both directions together. `hit' is the share of packets whose flow was known; the others were \
        translated first. `lost' are packets that could not even be translated.")]
    Top(Top),
    /// Explain in plain words what happens to a packet
    #[command(long_about = "Explains in plain words what happens to a packet: which rule decided, and why it is \
        dropped or where it goes. Sends nothing and changes nothing.\n\n\
        With --bridge, FLOW is an OpenFlow flow as ovs-ofctl takes it (in_port=1,tcp,tp_dst=80); without, it \
        is a datapath flow as dpctl/dump-flows prints it (in_port(1),eth(...),eth_type(0x0800),...). With \
        --bridge alone, explains what the switch has dropped so far.\n\n\
        Afterwards come the counters of dropped packets that are not zero.")]
    Why(Why),
    /// Whether the daemon is well; exit status 0 only if it is
    #[command(long_about = "Tells whether the daemon is well: that its process runs, the control socket answers, \
        every datapath can be listed, and its flow revalidation makes progress; then since when it runs, its \
        datapaths, flows and threads.\n\n\
        Exit status: 0 if it is well, 2 if the process runs but some part does not answer in time, 3 if \
        there is no process. Fit for a readiness or liveness probe.")]
    Status(Status),
    /// Run a command of the control socket, like ovs-appctl
    #[command(long_about = "Runs COMMAND with ARGS in the daemon and prints its answer, as ovs-appctl does. \
        `ferrovia call list-commands' lists them.\n\n\
        Exit status: 0 if the command succeeded, 2 if the daemon answered with an error.")]
    Call(Call),
}

#[derive(Args)]
pub struct Demo {
    /// The daemon to show [default: ferroviad beside this program]
    #[arg(long, value_name = "FILE")]
    pub daemon: Option<PathBuf>,
    /// Seconds of TCP in the measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=20))]
    pub seconds: u64,
}

#[derive(Args)]
pub struct Top {
    /// Print one interval, then end
    #[arg(long)]
    pub once: bool,
    /// Seconds between two views
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0)]
    pub interval: f64,
}

#[derive(Args)]
#[command(arg_required_else_help = true)]
pub struct Why {
    /// The bridge at which an OpenFlow flow arrives
    #[arg(short, long, value_name = "BRIDGE")]
    pub bridge: Option<String>,
    /// The packet's flow
    #[arg(value_name = "FLOW")]
    pub flow: Option<String>,
    /// Also print the trace that the explanation is made from
    #[arg(long)]
    pub trace: bool,
}

#[derive(Args)]
pub struct Status {
    /// Print nothing; only the exit status tells
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Args)]
pub struct Call {
    /// The command, e.g. dpif/show
    pub command: String,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        let c = Cli::parse_from(["ferrovia", "call", "ofproto/trace", "br0", "in_port=1", "-generate", "--x"]);
        let Command::Call(c) = c.command else { panic!() };
        assert_eq!(c.args, ["br0", "in_port=1", "-generate", "--x"]);
    }
}
