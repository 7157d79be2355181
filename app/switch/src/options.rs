//! What the command line tells the switch: plain data, legal by construction, no environment.

use std::path::PathBuf;

/// How `--enable-dummy` maps bridge and interface types to their dummies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DummyMode {
    /// Dummy types exist beside the real ones.
    Plain,
    /// Every other type is replaced by its dummy.
    Override,
    /// Only the `system` type is replaced.
    System,
}

/// TLS files and names, as given. A path of None is "not configured".
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SslOptions {
    pub private_key: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub ca_cert: Option<PathBuf>,
    /// `ca_cert` is fetched from the first peer when the file does not exist.
    pub bootstrap_ca_cert: bool,
    /// Certificate sent to peers that have none of ours yet.
    pub peer_ca_cert: Option<PathBuf>,
    pub protocols: Option<String>,
    pub ciphers: Option<String>,
    pub ciphersuites: Option<String>,
}

impl SslOptions {
    /// The process's TLS settings as the command line has them.
    pub fn tls(&self) -> fv_rpc::Tls {
        let tls = fv_rpc::Tls::default();
        tls.set_key_and_cert(self.private_key.as_deref(), self.certificate.as_deref());
        tls.set_ca(self.ca_cert.as_deref(), self.bootstrap_ca_cert);
        tls.set_peer_ca(self.peer_ca_cert.as_deref());
        tls.set_protocols(self.protocols.as_deref());
        tls.set_ciphers(self.ciphers.as_deref());
        tls.set_ciphersuites(self.ciphersuites.as_deref());
        tls
    }
}

/// Everything `run` needs beside the clock, the ready callback and the signals.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchOptions {
    /// Program name of logs, runtime files and `version`: `ovs-vswitchd` under either name.
    pub program: String,
    pub rundir: PathBuf,
    pub logdir: PathBuf,
    pub dbdir: PathBuf,
    pub sysconfdir: PathBuf,
    pub pkgdatadir: PathBuf,
    /// Remote(s) of the database server; None lets the switch decide by what it finds.
    pub database: Option<String>,
    /// Called through a name that promises to be a client only.
    pub always_client: bool,
    /// Serve the database here or fail.
    pub embedded_db: bool,
    pub dummy: Option<DummyMode>,
    pub disable_system: bool,
    pub disable_system_route: bool,
    /// NUMA node of each dummy core, as `--dummy-numa=0,0,1,1`.
    pub dummy_numa: Option<String>,
    /// `--unixctl`: None is the default path, `none` switches the control socket off.
    pub unixctl: Option<String>,
    pub ssl: SslOptions,
}

impl Default for SwitchOptions {
    fn default() -> SwitchOptions {
        SwitchOptions {
            program: "ovs-vswitchd".into(),
            rundir: "/var/run/openvswitch".into(),
            logdir: "/var/log/openvswitch".into(),
            dbdir: "/etc/openvswitch".into(),
            sysconfdir: "/etc".into(),
            pkgdatadir: "/usr/share/openvswitch".into(),
            database: None,
            always_client: false,
            embedded_db: false,
            dummy: None,
            disable_system: false,
            disable_system_route: false,
            dummy_numa: None,
            unixctl: None,
            ssl: SslOptions::default(),
        }
    }
}
