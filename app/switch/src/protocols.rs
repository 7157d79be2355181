//! The protocols that guard ports, as rows configure them.

use fv_config::IfaceSpec;
use fv_core::Nanos;
use fv_l2::{BfdMatch, PortMonitor, bfd};

use crate::world::Iface;

/// Gives an interface the sessions that its row asks for.
pub fn configure(i: &mut Iface, spec: &IfaceSpec, now: Nanos) {
    let bad = |key: &str, value: &str| {
        log::warn!(target: "bfd", "interface {}: bfd:{key}={value} is not understood, using the default", spec.name);
    };
    let config = bfd::Config::parse(&spec.bfd, bad);
    i.bfd = config.as_ref().map(BfdMatch::from);
    if config.is_none() && i.monitor.is_none() {
        return;
    }
    i.monitor.get_or_insert_with(|| PortMonitor::new(&spec.name)).set_bfd(config, discriminator, now);
}

/// A number that others cannot guess (RFC 5880, section 6.3); a session is found by its port, not by this.
fn discriminator() -> u32 {
    let u = fv_ovsdb::Uuid::new_v4();
    u.as_bytes().first_chunk().map_or(1, |b| u32::from_be_bytes(*b).max(1))
}
