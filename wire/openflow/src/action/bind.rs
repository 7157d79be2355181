//! Gives options of tunnels (`tun_metadata0` ...) in matches and actions the places that a switch's
//! table of options has for them. On the wire they are numbers without a place.

use super::*;
use crate::error::OfError;
use crate::msg::{Body, Bucket, GroupProps, Request};
use fv_flow::{Match, TunLayout};

/// What names fields, and can be bound to a table of options.
pub trait Bind {
    /// An error if an option is not mapped.
    fn bind(&mut self, layout: &TunLayout) -> Result<(), OfError>;
}

fn bound(layout: &TunLayout, f: Field) -> Result<Field, OfError> {
    layout.bind(f).ok_or(OfError::NxFmfcInvalidTlvField)
}

impl Bind for Field {
    fn bind(&mut self, layout: &TunLayout) -> Result<(), OfError> {
        *self = bound(layout, *self)?;
        Ok(())
    }
}

impl Bind for Subfield {
    fn bind(&mut self, layout: &TunLayout) -> Result<(), OfError> {
        if self.field.tun_option().is_none() {
            return Ok(());
        }
        self.field.bind(layout)?;
        self.check().map_err(|_| OfError::BacBadSetLen)
    }
}

impl Bind for Match {
    fn bind(&mut self, layout: &TunLayout) -> Result<(), OfError> {
        if self.layout == *layout {
            return Ok(());
        }
        let given = *self;
        let options = || given.layout.iter().map(Field::TunMetadata);
        for f in options() {
            self.clear_field(f);
        }
        self.layout = *layout;
        for f in options().filter(|f| !f.is_all_wild(&given.mask)) {
            let (v, mask) = f.of_match(&given);
            let (f, v, mask) = layout.bind_value(f, v, mask).ok_or(OfError::NxFmfcInvalidTlvField)?;
            self.set_field_masked(f, &v, &mask);
        }
        Ok(())
    }
}

impl Bind for SetField {
    fn bind(&mut self, layout: &TunLayout) -> Result<(), OfError> {
        if self.field.tun_option().is_none_or(|o| o.is_bound()) {
            return self.field.bind(layout);
        }
        let (f, v, mask) =
            layout.bind_value(self.field, self.value.get(), self.mask.get()).ok_or(OfError::NxFmfcInvalidTlvField)?;
        (self.field, self.value, self.mask) = (f, v.into(), mask.into());
        Ok(())
    }
}

impl Bind for Learn {
    fn bind(&mut self, layout: &TunLayout) -> Result<(), OfError> {
        self.result_dst.iter_mut().try_for_each(|d| d.bind(layout))?;
        for s in &mut self.specs {
            if let LearnSrc::Field(f) = &mut s.src {
                f.bind(layout)?;
            }
            if let LearnDst::Match(d) | LearnDst::Load(d) = &mut s.dst {
                d.bind(layout)?;
            }
        }
        Ok(())
    }
}

impl Bind for Action {
    fn bind(&mut self, layout: &TunLayout) -> Result<(), OfError> {
        match self {
            Action::RegMove { src, dst } => {
                src.bind(layout)?;
                dst.bind(layout)
            }
            Action::SetField(s) => s.bind(layout),
            Action::OutputReg { src: s, .. }
            | Action::StackPush(s)
            | Action::StackPop(s)
            | Action::CheckPktLarger { dst: s, .. } => s.bind(layout),
            Action::Multipath(m) => m.dst.bind(layout),
            Action::Bundle(b) => b.dst.iter_mut().try_for_each(|d| d.bind(layout)),
            Action::DeleteField(f) => f.bind(layout),
            Action::Learn(l) => l.bind(layout),
            Action::Sample(s) => [&mut s.obs_domain_id, &mut s.obs_point_id].into_iter().try_for_each(|id| match id {
                SampleId::Field(f) => f.bind(layout),
                SampleId::Imm(_) => Ok(()),
            }),
            Action::Clone(list) | Action::WriteActions(list) => list.bind(layout),
            Action::Ct(ct) => {
                if let CtZone::Field(f) = &mut ct.zone {
                    f.bind(layout)?;
                }
                ct.exec.bind(layout)
            }
            _ => Ok(()),
        }
    }
}

impl Bind for Actions {
    fn bind(&mut self, layout: &TunLayout) -> Result<(), OfError> {
        self.0.iter_mut().try_for_each(|a| a.bind(layout))
    }
}

impl Bind for Vec<Bucket> {
    fn bind(&mut self, layout: &TunLayout) -> Result<(), OfError> {
        self.iter_mut().try_for_each(|b| b.actions.bind(layout))
    }
}

impl Bind for GroupProps {
    fn bind(&mut self, layout: &TunLayout) -> Result<(), OfError> {
        for (f, mask) in self.fields.iter_mut().filter(|(f, _)| f.tun_option().is_some()) {
            let (to, v, _) = layout.bind_value(*f, *mask, f.mask_bits()).ok_or(OfError::NxFmfcInvalidTlvField)?;
            (*f, *mask) = (to, v);
        }
        Ok(())
    }
}

/// Requests of controllers; there is nothing to bind in what a switch says.
impl Bind for Body {
    fn bind(&mut self, layout: &TunLayout) -> Result<(), OfError> {
        match self {
            Body::FlowMod(m) | Body::NxFlowMod(m) => {
                m.match_.bind(layout)?;
                m.actions.bind(layout)
            }
            Body::PacketOut(p) => {
                p.metadata.bind(layout)?;
                p.actions.bind(layout)
            }
            Body::GroupMod(m) => {
                m.buckets.bind(layout)?;
                m.props.bind(layout)
            }
            Body::Resume(r) => {
                r.packet_in.metadata.bind(layout)?;
                let Some(c) = &mut r.packet_in.continuation else { return Ok(()) };
                c.actions.iter_mut().chain(&mut c.action_set).try_for_each(|a| a.bind(layout))
            }
            Body::MultipartRequest(m) => match &mut m.body {
                Request::Flow(r) | Request::Aggregate(r) | Request::NxFlow(r) | Request::NxAggregate(r) => {
                    r.match_.bind(layout)
                }
                Request::FlowMonitor(list) => list.iter_mut().try_for_each(|r| r.match_.bind(layout)),
                _ => Ok(()),
            },
            Body::BundleAdd(b) => b.msg.body.bind(layout),
            _ => Ok(()),
        }
    }
}

/// Which options a list of actions names, a bit each.
pub fn options_of(list: &Actions) -> u64 {
    let mut used = 0;
    for a in list {
        let mut count = |f: &Field| used |= f.tun_option().map_or(0, |o| 1u64 << o.index());
        match a {
            Action::RegMove { src, dst } => [src, dst].iter().for_each(|s| count(&s.field)),
            Action::SetField(s) => count(&s.field),
            Action::OutputReg { src: s, .. }
            | Action::StackPush(s)
            | Action::StackPop(s)
            | Action::CheckPktLarger { dst: s, .. } => count(&s.field),
            Action::Multipath(m) => count(&m.dst.field),
            Action::Bundle(b) => b.dst.iter().for_each(|d| count(&d.field)),
            Action::DeleteField(f) => count(f),
            Action::Learn(l) => {
                l.result_dst.iter().for_each(|d| count(&d.field));
                for s in &l.specs {
                    if let LearnSrc::Field(f) = &s.src {
                        count(&f.field);
                    }
                    if let LearnDst::Match(d) | LearnDst::Load(d) = &s.dst {
                        count(&d.field);
                    }
                }
            }
            Action::Sample(s) => {
                for id in [&s.obs_domain_id, &s.obs_point_id] {
                    if let SampleId::Field(f) = id {
                        count(&f.field);
                    }
                }
            }
            Action::Ct(ct) => {
                if let CtZone::Field(f) = &ct.zone {
                    count(&f.field);
                }
            }
            _ => {}
        }
        used |= a.nested().map_or(0, options_of);
    }
    used
}
