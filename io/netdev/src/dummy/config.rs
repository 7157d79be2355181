//! A dummy device's options, read as a whole before any takes effect.

use std::path::{Path, PathBuf};

use crate::device::DeviceError;
use crate::dummy::emulate::Emulation;
use crate::dummy::stream::Target;
use crate::registry::{Env, Options};

/// Queues that a device has at most; more are taken as this many.
pub const QUEUES_MAX: usize = 1024;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    pub rxq_pcap: Option<PathBuf>,
    pub tx_pcap: Option<PathBuf>,
    pub stream: Option<Target>,
    pub pstream: Option<Target>,
    pub ifindex: Option<u32>,
    pub n_rxq: usize,
    pub n_txq: usize,
    pub numa_id: i32,
    pub emulation: Emulation,
}

impl Config {
    pub fn parse(options: &Options, pmd: bool, env: &Env) -> Result<Config, DeviceError> {
        let path = |key: &str| options.get(key).map(PathBuf::from);
        let both = path("pcap");
        let target = |key: &str| match options.get(key) {
            Some(v) => Target::parse(v, key == "pstream", &env.rundir)
                .map(Some)
                .map_err(|reason| DeviceError::bad_option(key, v, reason)),
            None => Ok(None),
        };
        let (stream, pstream) = (target("stream")?, target("pstream")?);
        if let (Some(_), Some(v)) = (&stream, options.get("pstream")) {
            return Err(DeviceError::bad_option("pstream", v, "stream is set too"));
        }
        Ok(Config {
            rxq_pcap: both.clone().or_else(|| path("rxq_pcap")),
            tx_pcap: both.or_else(|| path("tx_pcap")),
            stream,
            pstream,
            ifindex: number(options, "ifindex")?,
            n_rxq: if pmd { queues(options, "n_rxq")? } else { 1 },
            n_txq: if pmd { queues(options, "n_txq")? } else { 1 },
            numa_id: if pmd { number(options, "numa_id")?.unwrap_or(0) } else { 0 },
            emulation: Emulation::parse(options)?,
        })
    }

    /// As listings print it, in order of the names.
    pub fn report(&self, pmd: bool) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let mut add = |k: &str, v: String| out.push((k.to_string(), v));
        if let Some(n) = self.ifindex {
            add("ifindex", n.to_string());
        }
        if pmd {
            add("n_rxq", self.n_rxq.to_string());
            add("n_txq", self.n_txq.to_string());
            add("numa_id", self.numa_id.to_string());
        }
        if let Some(t) = &self.pstream {
            add("pstream", t.name.clone());
        }
        if let Some(t) = &self.stream {
            add("stream", t.name.clone());
        }
        out
    }

    pub fn same_capture(&self, other: &Config) -> bool {
        (&self.rxq_pcap, &self.tx_pcap) == (&other.rxq_pcap, &other.tx_pcap)
    }
}

pub(super) fn number<T: std::str::FromStr>(options: &Options, key: &str) -> Result<Option<T>, DeviceError> {
    match options.get(key) {
        Some(v) => v.parse().map(Some).map_err(|_| DeviceError::bad_option(key, v, "not a number in range")),
        None => Ok(None),
    }
}

fn queues(options: &Options, key: &str) -> Result<usize, DeviceError> {
    let n: i64 = number(options, key)?.unwrap_or(1);
    Ok(n.clamp(1, QUEUES_MAX as i64) as usize)
}

/// `path`, from `base` if it is relative.
pub(super) fn under(base: &Path, path: &str) -> PathBuf {
    base.join(path)
}
