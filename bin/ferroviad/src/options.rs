//! The command line and the environment.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use fv_rpc::daemon;
use fv_switch::{DummyMode, SslOptions, SwitchOptions};
use lexopt::{Arg, Parser, ValueExt};

/// Runtime files have this name whatever the program's file is called, so that the usual tools
/// find them.
pub const PROGRAM: &str = "ovs-vswitchd";

pub enum Parsed {
    Help,
    Version,
    Run(Box<Options>),
}

#[derive(Default, Debug)]
pub struct Options {
    pub switch: SwitchOptions,
    pub daemon: daemon::Options,
    pub user: Option<String>,
    pub rawio: bool,
    pub lock_memory: bool,
    pub verbose: Vec<String>,
    pub log_file: Option<PathBuf>,
    pub syslog_method: String,
    pub syslog_target: Option<String>,
}

/// The variables that count.
#[derive(Default)]
pub struct Environment(HashMap<&'static str, OsString>);

const VARIABLES: &[&str] =
    &["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR", "OVS_PKGDATADIR", "OVS_SYSLOG_METHOD"];

impl Environment {
    pub fn from_process() -> Environment {
        Environment(VARIABLES.iter().filter_map(|v| Some((*v, std::env::var_os(v)?))).collect())
    }

    fn dir(&self, name: &str) -> Option<PathBuf> {
        self.0.get(name).filter(|v| !v.is_empty()).map(PathBuf::from)
    }
}

/// Does an option take a value?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    No,
    Optional,
    Required,
}
use Value::{No, Optional, Required};

/// All options; the short ones are other names of some.
const OPTIONS: &[(&str, Value)] = &[
    ("help", No),
    ("version", No),
    ("mlockall", No),
    ("unixctl", Required),
    ("enable-dummy", Optional),
    ("disable-system", No),
    ("disable-system-route", No),
    ("dummy-numa", Required),
    ("hw-rawio-access", No),
    ("dpdk", Optional),
    ("embedded-db", No),
    ("detach", No),
    ("no-chdir", No),
    ("no-self-confinement", No),
    ("pidfile", Optional),
    ("overwrite-pidfile", No),
    ("monitor", No),
    ("user", Required),
    ("verbose", Optional),
    ("log-file", Optional),
    ("syslog-method", Required),
    ("syslog-target", Required),
    ("private-key", Required),
    ("certificate", Required),
    ("ca-cert", Required),
    ("bootstrap-ca-cert", Required),
    ("peer-ca-cert", Required),
    ("ssl-protocols", Required),
    ("ssl-ciphers", Required),
    ("ssl-ciphersuites", Required),
];

const SHORT: &[(char, &str)] =
    &[('h', "help"), ('V', "version"), ('v', "verbose"), ('p', "private-key"), ('c', "certificate"), ('C', "ca-cert")];

/// Parses the arguments, the program's name first.
pub fn parse(args: impl Iterator<Item = OsString>, env: &Environment) -> Result<Parsed, String> {
    let mut args = args;
    let called = args.next().unwrap_or_default();
    let called = Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut o = defaults(env, &called);
    let mut parser = Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        let (name, kind) = match arg {
            Arg::Long(l) => {
                let (name, kind) = long(l)?;
                if kind == No && parser.optional_value().is_some() {
                    return Err(format!("option '--{name}' doesn't allow an argument"));
                }
                (name, kind)
            }
            Arg::Short(c) => short(c)?,
            Arg::Value(v) if o.switch.database.is_none() => {
                o.switch.database = Some(v.string().map_err(|e| e.to_string())?);
                continue;
            }
            Arg::Value(_) => {
                return Err("at most one non-option argument accepted; use --help for usage".into());
            }
        };
        let value = value(&mut parser, name, kind)?;
        match name {
            "help" => return Ok(Parsed::Help),
            "version" => return Ok(Parsed::Version),
            _ => apply(&mut o, name, value)?,
        }
    }
    if o.switch.embedded_db && o.switch.database.is_some() {
        return Err("--embedded-db serves the database itself; it takes no DATABASE argument".into());
    }
    Ok(Parsed::Run(Box::new(o)))
}

fn defaults(env: &Environment, called: &str) -> Options {
    let d = SwitchOptions::default();
    let sysconfdir = env.dir("OVS_SYSCONFDIR").unwrap_or(d.sysconfdir);
    let switch = SwitchOptions {
        program: PROGRAM.into(),
        rundir: env.dir("OVS_RUNDIR").unwrap_or(d.rundir),
        logdir: env.dir("OVS_LOGDIR").unwrap_or(d.logdir),
        dbdir: env.dir("OVS_DBDIR").unwrap_or_else(|| sysconfdir.join("openvswitch")),
        pkgdatadir: env.dir("OVS_PKGDATADIR").unwrap_or(d.pkgdatadir),
        sysconfdir,
        // libtool's wrapped binaries are called lt-NAME.
        always_client: called.strip_prefix("lt-").unwrap_or(called) == PROGRAM,
        ..SwitchOptions::default()
    };
    let method = env.0.get("OVS_SYSLOG_METHOD").map(|v| v.to_string_lossy().into_owned());
    let found = if Path::new("/dev/log").exists() { "libc" } else { "null" };
    Options { switch, syslog_method: method.unwrap_or_else(|| found.into()), ..Options::default() }
}

/// An option by its name or the beginning of it, as long as that is clear.
fn long(name: &str) -> Result<(&'static str, Value), String> {
    if let Some(found) = OPTIONS.iter().find(|(n, _)| *n == name) {
        return Ok(*found);
    }
    let mut matches = OPTIONS.iter().filter(|(n, _)| n.starts_with(name));
    match (matches.next(), matches.next()) {
        (Some(found), None) => Ok(*found),
        (Some(_), Some(_)) => Err(format!("option '--{name}' is ambiguous")),
        _ => Err(format!("unrecognized option '--{name}'")),
    }
}

fn short(c: char) -> Result<(&'static str, Value), String> {
    match SHORT.iter().find(|(s, _)| *s == c) {
        Some((_, name)) => long(name),
        None => Err(format!("invalid option -- '{c}'")),
    }
}

fn value(parser: &mut Parser, name: &str, kind: Value) -> Result<Option<String>, String> {
    let text = |v: OsString| v.string().map_err(|e| e.to_string());
    match kind {
        No => Ok(None),
        Optional => parser.optional_value().map(text).transpose(),
        Required => match parser.value() {
            Ok(v) => text(v).map(Some),
            Err(_) => Err(format!("option '--{name}' requires an argument")),
        },
    }
}

fn apply(o: &mut Options, name: &str, value: Option<String>) -> Result<(), String> {
    let text = value.clone().unwrap_or_default();
    let in_dir = |dir: &Path, default: &str| dir.join(value.as_deref().unwrap_or(default));
    let path = || Some(PathBuf::from(&text));
    let ssl: &mut SslOptions = &mut o.switch.ssl;
    match name {
        "mlockall" => o.lock_memory = true,
        "unixctl" => o.switch.unixctl = Some(text),
        "enable-dummy" => {
            o.switch.dummy = Some(match value.as_deref() {
                None | Some("") => DummyMode::Plain,
                Some("override") => DummyMode::Override,
                Some("system") => DummyMode::System,
                Some(v) => return Err(format!("{v}: unknown dummy level")),
            });
        }
        "disable-system" => o.switch.disable_system = true,
        "disable-system-route" => o.switch.disable_system_route = true,
        "dummy-numa" => o.switch.dummy_numa = Some(text),
        "hw-rawio-access" => o.rawio = true,
        "dpdk" => return Err("Using --dpdk to configure DPDK is not supported.".into()),
        "embedded-db" => o.switch.embedded_db = true,
        "detach" => o.daemon.detach = true,
        "no-chdir" => o.daemon.no_chdir = true,
        // We have nothing to confine: no path comes from the network.
        "no-self-confinement" => {}
        "pidfile" => o.daemon.pidfile = Some(in_dir(&o.switch.rundir, &format!("{PROGRAM}.pid"))),
        "overwrite-pidfile" => o.daemon.overwrite_pidfile = true,
        "monitor" => o.daemon.monitor = true,
        "user" => o.user = Some(text),
        "verbose" => o.verbose.push(value.unwrap_or_else(|| "any:any:dbg".into())),
        "log-file" => o.log_file = Some(in_dir(&o.switch.logdir, &format!("{PROGRAM}.log"))),
        "syslog-method" => o.syslog_method = text,
        "syslog-target" => o.syslog_target = Some(text),
        "private-key" => ssl.private_key = path(),
        "certificate" => ssl.certificate = path(),
        "ca-cert" | "bootstrap-ca-cert" => {
            ssl.ca_cert = path();
            ssl.bootstrap_ca_cert = name == "bootstrap-ca-cert";
        }
        "peer-ca-cert" => ssl.peer_ca_cert = path(),
        "ssl-protocols" => ssl.protocols = Some(text),
        "ssl-ciphers" => ssl.ciphers = Some(text),
        "ssl-ciphersuites" => ssl.ciphersuites = Some(text),
        _ => return Err(format!("unrecognized option '--{name}'")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &str) -> Result<Options, String> {
        let env = Environment([("OVS_RUNDIR", "/r".into()), ("OVS_LOGDIR", "/l".into())].into());
        match parse(args.split_whitespace().map(Into::into), &env)? {
            Parsed::Run(o) => Ok(*o),
            Parsed::Help => Err("help".into()),
            Parsed::Version => Err("version".into()),
        }
    }

    #[test]
    fn a_usual_command_line() {
        let o = options(
            "/usr/sbin/ovs-vswitchd --enable-dummy=override --disable-system --disable-system-route unix:/x/db.sock \
             --detach --no-chdir --pidfile --log-file -vvconn -vofproto_dpif -v --verbose=console:off --monitor \
             -p key -c cert --bootstrap-ca-cert=ca --user=a:b --mlockall --unixctl u.ctl",
        )
        .unwrap();
        let s = &o.switch;
        assert_eq!((s.dummy, s.disable_system, s.disable_system_route), (Some(DummyMode::Override), true, true));
        assert_eq!(s.database.as_deref(), Some("unix:/x/db.sock"));
        assert!(s.always_client && o.lock_memory && !o.rawio);
        assert!(o.daemon.detach && o.daemon.no_chdir && o.daemon.monitor && !o.daemon.overwrite_pidfile);
        assert_eq!(o.daemon.pidfile.as_deref(), Some(Path::new("/r/ovs-vswitchd.pid")));
        assert_eq!(o.log_file.as_deref(), Some(Path::new("/l/ovs-vswitchd.log")));
        assert_eq!(o.verbose, ["vconn", "ofproto_dpif", "any:any:dbg", "console:off"]);
        assert_eq!(s.ssl.private_key.as_deref(), Some(Path::new("key")));
        assert!(s.ssl.bootstrap_ca_cert && s.ssl.ca_cert.is_some());
        assert_eq!((o.user.as_deref(), s.unixctl.as_deref()), (Some("a:b"), Some("u.ctl")));
        assert_eq!(s.dbdir, Path::new("/etc/openvswitch"));
    }

    #[test]
    fn files_are_relative_to_their_directories() {
        let o = options("ferroviad --pidfile=p --log-file=/abs/l").unwrap();
        assert_eq!(o.daemon.pidfile.as_deref(), Some(Path::new("/r/p")));
        assert_eq!(o.log_file.as_deref(), Some(Path::new("/abs/l")));
        assert!(!o.switch.always_client && o.switch.database.is_none());
    }

    #[test]
    fn wrong_command_lines() {
        let check = |args: &str, expected: &str| {
            assert_eq!(options(&format!("x {args}")).map(|_| ()).unwrap_err(), expected, "{args}");
        };
        check("--foo", "unrecognized option '--foo'");
        check("-q", "invalid option -- 'q'");
        check("a b", "at most one non-option argument accepted; use --help for usage");
        check("--dis", "option '--dis' is ambiguous");
        check("--unixctl", "option '--unixctl' requires an argument");
        check("--enable-dummy=x", "x: unknown dummy level");
        check("--dpdk", "Using --dpdk to configure DPDK is not supported.");
        check("--embedded-db tcp:1.2.3.4:5", "--embedded-db serves the database itself; it takes no DATABASE argument");
        check("--mon=3", "option '--monitor' doesn't allow an argument");
        check("-V", "version");
        check("--he", "help");
    }
}
