//! Meters: what controllers define, published whole with the view.

use std::sync::Arc;

use fv_core::Nanos;
use fv_openflow::OfError;
use fv_openflow::msg::flow::FlowRemovedReason;
use fv_openflow::msg::meter::*;
use hashbrown::HashMap;

use crate::bridge::Ofproto;
use crate::dump::duration;
use crate::group::Counter;
use crate::users::Target;

/// Meters of one bridge, and bands of one meter, as the reference's datapath has them.
const MAX_METERS: u32 = 1 << 18;
const MAX_BANDS: u8 = 8;
const CAPABILITIES: MeterFlags = MeterFlags(0xf);
/// Bit N: band type N; only drop.
const BAND_TYPES: u32 = 1 << 1;

/// All meters of a bridge, by number, the virtual ones included.
pub type Meters = HashMap<u32, Arc<Meter>>;

/// One meter. A modification makes a new one with the old counters.
#[derive(Debug)]
pub struct Meter {
    pub config: MeterConfig,
    pub created: Nanos,
    /// All packets, and what each band took. Credited from any thread.
    pub stats: Arc<Counter>,
    pub bands: Vec<Counter>,
}

impl Meter {
    fn new(config: &MeterConfig, created: Nanos) -> Meter {
        let bands = config.bands.iter().map(|_| Counter::default()).collect();
        Meter { config: config.clone(), created, stats: Arc::default(), bands }
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
        let mut new = Meter::new(&m.config, now);
        if let Some(old) = meters.get(&id) {
            (new.created, new.stats) = (old.created, old.stats.clone());
        }
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
            let (packets, bytes) = m.stats.read();
            let (duration_s, duration_ns) = duration(now.saturating_sub(m.created));
            let bands = m.bands.iter().map(Counter::read).collect();
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
    if c.bands.len() > usize::from(MAX_BANDS) {
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
