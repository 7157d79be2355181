//! Meters: what controllers define, published whole with the view.

use std::sync::Arc;

use fv_core::Nanos;
use fv_dpif::{MeterBand, MeterId, MeterUnit};
use fv_openflow::OfError;
use fv_openflow::msg::flow::FlowRemovedReason;
use fv_openflow::msg::meter::*;
use hashbrown::HashMap;

use crate::bridge::Ofproto;
use crate::dump::duration;
use crate::users::Target;

/// Meters of one bridge, and bands of one meter, as the reference's datapath has them.
const MAX_METERS: u32 = 1 << 18;
const MAX_BANDS: u8 = 8;
const CAPABILITIES: MeterFlags = MeterFlags(0xf);
/// Bit N: band type N; only drop.
const BAND_TYPES: u32 = 1 << 1;

/// All meters of a bridge, by number, the virtual ones included.
pub type Meters = HashMap<u32, Arc<Meter>>;

/// One meter. A modification makes a new one.
#[derive(Debug)]
pub struct Meter {
    pub config: MeterConfig,
    pub created: Nanos,
    /// What limits and counts, as the datapath runs it.
    pub running: Arc<fv_dpif::Meter>,
}

impl Meter {
    fn new(config: &MeterConfig, id: Arc<MeterId>, created: Nanos, now: Nanos) -> Meter {
        let unit = if config.flags.has(MeterFlags::PKTPS) { MeterUnit::Packets } else { MeterUnit::Kilobits };
        // A burst that the flags do not announce is not meant.
        let burst = |b: &Band| if config.flags.has(MeterFlags::BURST) { b.burst } else { 0 };
        let bands: Vec<MeterBand> = config.bands.iter().map(|b| MeterBand { rate: b.rate, burst: burst(b) }).collect();
        let running = Arc::new(fv_dpif::Meter::new(id, unit, &bands, now));
        Meter { config: config.clone(), created, running }
    }
}

impl Ofproto {
    pub fn meters(&self) -> &Arc<Meters> {
        &self.meters
    }

    pub fn meter_mod(&mut self, now: Nanos, m: &MeterMod) -> Result<(), OfError> {
        let id = m.config.meter_id;
        let meters = match m.command {
            MeterCommand::Delete => {
                let all = id == METER_ALL;
                // What is not there needs no deletion.
                let ids: Vec<u32> = self.meters.keys().copied().filter(|k| all || *k == id).collect();
                let mut steps = Vec::new();
                for id in ids {
                    self.delete_users(Target::Meter(id), FlowRemovedReason::MeterDelete, &mut steps);
                    Arc::make_mut(&mut self.meters).remove(&id);
                    self.view_dirty = true;
                }
                self.finish(now, steps);
                return Ok(());
            }
            MeterCommand::Add => {
                check_id(id)?;
                if self.meters.contains_key(&id) {
                    return Err(OfError::MmfcMeterExists);
                }
                if self.meters.len() >= MAX_METERS as usize {
                    return Err(OfError::MmfcOutOfMeters);
                }
                check_config(&m.config)?;
                Arc::make_mut(&mut self.meters)
            }
            MeterCommand::Modify => {
                if !self.meters.contains_key(&id) {
                    return Err(OfError::MmfcUnknownMeter);
                }
                check_config(&m.config)?;
                Arc::make_mut(&mut self.meters)
            }
        };
        let new = match meters.get(&id) {
            // Programs that name it mean the new one at once.
            Some(old) => Meter::new(&m.config, old.running.id().clone(), old.created, now),
            None => Meter::new(&m.config, MeterId::allocate(), now, now),
        };
        meters.insert(id, Arc::new(new));
        self.view_dirty = true;
        Ok(())
    }

    /// One meter, which must exist, or all, in the order of their numbers.
    fn requested_meters(&self, id: u32) -> Result<Vec<&Arc<Meter>>, OfError> {
        let mut all: Vec<_> = match id {
            METER_ALL => self.meters.values().collect(),
            id => vec![self.meters.get(&id).ok_or(OfError::MmfcUnknownMeter)?],
        };
        all.sort_unstable_by_key(|m| m.config.meter_id);
        Ok(all)
    }

    pub(crate) fn meter_configs(&self, id: u32) -> Result<Vec<MeterConfig>, OfError> {
        Ok(self.requested_meters(id)?.into_iter().map(|m| m.config.clone()).collect())
    }

    pub(crate) fn meter_stats(&self, id: u32, now: Nanos) -> Result<Vec<MeterStats>, OfError> {
        let one = |m: &Arc<Meter>| {
            let ((packets, bytes), bands) = m.running.counts();
            let (duration_s, duration_ns) = duration(now.saturating_sub(m.created));
            let meter_id = m.config.meter_id;
            MeterStats {
                meter_id,
                flow_count: self.users.count(Target::Meter(meter_id)),
                packets,
                bytes,
                duration_s,
                duration_ns,
                bands,
            }
        };
        Ok(self.requested_meters(id)?.into_iter().map(one).collect())
    }
}

pub(crate) fn meter_features() -> MeterFeatures {
    MeterFeatures {
        max_meters: MAX_METERS,
        band_types: BAND_TYPES,
        capabilities: CAPABILITIES,
        max_bands: MAX_BANDS,
        max_color: 0,
    }
}

/// Numbers of meters that can exist. The virtual ones work without a flow that names them, and so
/// only where something carries them out.
fn check_id(id: u32) -> Result<(), OfError> {
    if (1..=METER_MAX).contains(&id) { Ok(()) } else { Err(OfError::MmfcInvalidMeter) }
}

fn check_config(c: &MeterConfig) -> Result<(), OfError> {
    if c.bands.is_empty() || c.bands.len() > usize::from(MAX_BANDS) {
        return Err(OfError::MmfcOutOfBands);
    }
    if c.bands.iter().any(|b| b.kind != BandKind::Drop) {
        return Err(OfError::MmfcBadBand);
    }
    let one_unit = c.flags.has(MeterFlags::KBPS) != c.flags.has(MeterFlags::PKTPS);
    if c.flags.0 & !CAPABILITIES.0 != 0 || !one_unit {
        return Err(OfError::MmfcBadFlags);
    }
    Ok(())
}
