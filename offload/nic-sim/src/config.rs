//! A card's properties, from the options of the interface that is its first port.

use fv_core::Nanos;
use fv_netdev::{DeviceError, Options};
use fv_offload::{ActionSet, Caps, FieldSet};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CardConfig {
    /// Rules that fit.
    pub table_size: usize,
    /// The size is not told: only trying finds out.
    pub hide_size: bool,
    /// Operations a second; 0: as many as come.
    pub op_rate: u64,
    /// From the start of an operation to its effect.
    pub op_latency: Nanos,
    /// Operations under way at most.
    pub op_depth: usize,
    /// Age of counters when they are told.
    pub stats_delay: Nanos,
    /// Between matching and the receive queue: packets that have a mark while its rule is changed.
    pub pipeline_delay: Nanos,
    pub mark_bits: u8,
    pub fields: FieldSet,
    pub actions: ActionSet,
    /// Of a hundred operations, those that fail, and those that are put off.
    pub fail_percent: u8,
    pub busy_percent: u8,
    pub n_rxq: usize,
    /// Packets that a receive queue holds.
    pub ring_size: usize,
}

impl Default for CardConfig {
    fn default() -> CardConfig {
        CardConfig {
            table_size: 1024,
            hide_size: false,
            op_rate: 0,
            op_latency: Nanos::ZERO,
            op_depth: 256,
            stats_delay: Nanos::ZERO,
            pipeline_delay: Nanos::ZERO,
            mark_bits: 24,
            fields: FieldSet::all().without(FieldSet::ND).without(FieldSet::MPLS),
            actions: ActionSet::all(),
            fail_percent: 0,
            busy_percent: 0,
            n_rxq: 1,
            ring_size: 1024,
        }
    }
}

/// Largest values that options may have.
const TABLE_MAX: u64 = 1 << 20;
const RXQ_MAX: u64 = 64;
const DELAY_MAX_MS: u64 = 60_000;

impl CardConfig {
    /// Options that are not the card's are left to others.
    pub fn from_options(options: &Options) -> Result<CardConfig, DeviceError> {
        let mut c = CardConfig::default();
        for (name, value) in options {
            let number = |max: u64| match value.parse::<u64>() {
                Ok(n) if n <= max => Ok(n),
                _ => Err(DeviceError::bad_option(name, value, format!("not a number up to {max}"))),
            };
            let delay = |unit_ns: u64| Ok(Nanos(number(DELAY_MAX_MS * 1_000_000 / unit_ns)? * unit_ns));
            match name.as_str() {
                "table-size" => c.table_size = number(TABLE_MAX)? as usize,
                "hide-table-size" => c.hide_size = value == "true",
                "op-rate" => c.op_rate = number(10_000_000)?,
                "op-latency-us" => c.op_latency = delay(1000)?,
                "op-depth" => c.op_depth = number(65_536)?.max(1) as usize,
                "stats-delay-ms" => c.stats_delay = delay(1_000_000)?,
                "pipeline-delay-us" => c.pipeline_delay = delay(1000)?,
                "mark-bits" => c.mark_bits = number(32)? as u8,
                "fields" => {
                    let all = FieldSet::parse(value);
                    c.fields = all.ok_or_else(|| DeviceError::bad_option(name, value, "unknown field"))?;
                }
                "actions" => {
                    let all = ActionSet::parse(value);
                    c.actions = all.ok_or_else(|| DeviceError::bad_option(name, value, "unknown action"))?;
                }
                "fail-percent" => c.fail_percent = number(100)? as u8,
                "busy-percent" => c.busy_percent = number(100)? as u8,
                "n_rxq" => c.n_rxq = number(RXQ_MAX)?.max(1) as usize,
                "n_rxq_desc" => c.ring_size = number(65_536)?.max(1) as usize,
                _ => {}
            }
        }
        Ok(c)
    }

    pub fn caps(&self) -> Caps {
        Caps {
            fields: self.fields,
            actions: self.actions,
            mark_bits: self.mark_bits,
            stats_delay: self.stats_delay,
            pipeline_delay: self.pipeline_delay,
            depth: self.op_depth,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_checked() {
        let options = |text: &str| -> Options {
            text.split_whitespace().filter_map(|w| w.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
        };
        let c = CardConfig::from_options(&options("table-size=10 op-latency-us=7 fields=eth,ipv4 card=x")).unwrap();
        assert_eq!((c.table_size, c.op_latency), (10, Nanos(7000)));
        assert_eq!(c.fields, FieldSet::ETH.union(FieldSet::IPV4));
        for bad in ["table-size=-1", "mark-bits=33", "fields=nose", "op-latency-us=60000001", "fail-percent=x"] {
            assert!(CardConfig::from_options(&options(bad)).is_err(), "{bad}");
        }
    }
}
