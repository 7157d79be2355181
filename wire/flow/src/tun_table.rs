//! A bridge's table of tunnel options, and options between the form of the wire and that of the
//! pipeline.

use crate::field::{Field, TunLayout, TunOption};
use crate::key::{DpKey, DpMask, FlowKey, FlowMask, Opts};
use crate::odp::geneve::{CRITICAL, HEADER, options};

/// Which option is which field.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TunTable {
    layout: TunLayout,
    /// (class, type, field), in the order of the fields' numbers.
    maps: Vec<(u16, u8, TunOption)>,
}

/// An option that the sender calls critical is not mapped: the packet must be dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownCritical;

/// Options in the form of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WireOptions {
    pub bytes: Opts,
    pub len: u8,
    /// One of them is critical.
    pub critical: bool,
}

impl TunTable {
    /// Adds a mapping; false if the field or the option is mapped already, or there is no room.
    pub fn add(&mut self, class: u16, kind: u8, index: usize, len: u8) -> bool {
        let there = self.maps.iter().any(|(c, k, _)| (*c, *k) == (class, kind));
        if there || !len.is_multiple_of(4) || !self.layout.add(index, len) {
            return false;
        }
        let Some(o) = self.layout.option(index) else { return false };
        let at = self.maps.partition_point(|(.., other)| other.index() < index);
        self.maps.insert(at, (class, kind, o));
        true
    }

    pub fn remove(&mut self, index: usize) {
        self.layout.remove(index);
        self.maps.retain(|(.., o)| o.index() != index);
    }

    pub fn layout(&self) -> &TunLayout {
        &self.layout
    }

    pub fn is_empty(&self) -> bool {
        self.maps.is_empty()
    }

    fn find(&self, class: u16, kind: u8) -> Option<TunOption> {
        self.maps.iter().find(|(c, k, _)| (*c, *k) == (class, kind)).map(|(.., o)| *o)
    }

    /// Turns a key's options from the wire's form into the pipeline's. Of an option that comes twice
    /// the last counts; one of another length than its mapping is taken from its end, as numbers are.
    pub fn receive(&self, key: &mut FlowKey) -> Result<(), UnknownCritical> {
        if key.dp.misc.opts_len == 0 {
            return Ok(());
        }
        let wire = key.dp;
        (key.dp.opts, key.dp.misc.opts_len) = (Opts::default(), 0);
        for o in options(wire.wire_options()) {
            match self.find(o.class, o.kind) {
                Some(f) => Field::TunMetadata(f).set(key, &crate::FieldValue::from_be_bytes(o.data)),
                None if o.kind & CRITICAL != 0 => return Err(UnknownCritical),
                None => {}
            }
        }
        Ok(())
    }

    /// The bits of the wire's options, as `wire` has them, that decide the bits of `mask`. All headers
    /// are among them as soon as one option is looked at: they say where it is, or that it is not there.
    pub fn mask(&self, mask: &FlowMask, wire: &DpKey) -> DpMask {
        let mut m = mask.dp();
        (m.0.opts, m.0.misc.opts_len) = (Opts::default(), 0);
        if mask.0.pipe.tun_present == 0 {
            return m;
        }
        m.0.misc.opts_len = u8::MAX;
        for o in options(wire.wire_options()) {
            let at = o.at + HEADER;
            m.0.opts.0[o.at..at].fill(0xff);
            if let Some(f) = self.find(o.class, o.kind) {
                let bits = Field::TunMetadata(f).value(&mask.0).to_be_bytes(o.data.len());
                m.0.opts.0[at..at + o.data.len()].copy_from_slice(&bits);
            }
        }
        m
    }

    /// The options that a packet of `key` carries, in the order of the fields; those for which a
    /// header has no room left are not among them.
    pub fn send(&self, key: &FlowKey) -> WireOptions {
        let mut out = WireOptions::default();
        for (class, kind, f) in self.maps.iter().filter(|(.., f)| f.is_in(key)) {
            let data = f.bytes(key);
            let at = usize::from(out.len);
            let end = at + HEADER + data.len();
            if end > crate::odp::geneve::MAX_OPTIONS {
                continue;
            }
            let [a, b] = class.to_be_bytes();
            out.bytes.0[at..at + HEADER].copy_from_slice(&[a, b, *kind, (data.len() / 4) as u8]);
            out.bytes.0[at + HEADER..end].copy_from_slice(data);
            out.len = end as u8;
            out.critical |= kind & CRITICAL != 0;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::FieldValue;
    use proptest::prelude::*;

    fn table() -> TunTable {
        let mut t = TunTable::default();
        assert!(t.add(0xffff, 0, 5, 4) && t.add(0xffff, 1, 0, 8) && t.add(0xffff, 0x82, 63, 124));
        assert!(!t.add(0xffff, 1, 9, 4), "an option is one field");
        assert!(!t.add(0xffff, 9, 5, 4), "a field is one option");
        assert!(!t.add(0xffff, 9, 6, 124), "there is no room");
        t
    }

    fn field(t: &TunTable, index: usize) -> Field {
        Field::TunMetadata(t.layout().option(index).unwrap())
    }

    #[test]
    fn what_is_sent_is_received() {
        let t = table();
        let mut k = FlowKey::default();
        let wide = FieldValue::from_be_bytes(&[7; 124]);
        for (index, v) in [(0, FieldValue::new(0x1122_3344_5566)), (63, wide)] {
            field(&t, index).set(&mut k, &v);
        }
        let w = t.send(&k);
        assert_eq!((w.len, w.critical), (12 + 128, true));
        assert_eq!(w.bytes.0[..12], [0xff, 0xff, 1, 2, 0, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66]);
        let mut back = FlowKey::default();
        (back.dp.opts, back.dp.misc.opts_len) = (w.bytes, w.len);
        t.receive(&mut back).unwrap();
        assert_eq!(back, k);
    }

    #[test]
    fn unknown_options_are_passed_over_unless_critical() {
        let t = table();
        let of = |bytes: &[u8]| {
            let mut k = FlowKey::default();
            k.dp.opts.0[..bytes.len()].copy_from_slice(bytes);
            k.dp.misc.opts_len = bytes.len() as u8;
            t.receive(&mut k).map(|()| k)
        };
        let k = of(&[1, 2, 3, 1, 9, 9, 9, 9, 0xff, 0xff, 0, 1, 0, 0, 0, 8]).unwrap();
        assert_eq!(field(&t, 5).value(&k), FieldValue::new(8));
        assert_eq!(k.pipe.tun_present, 1 << 5);
        assert_eq!(of(&[1, 2, 0x83, 0]), Err(UnknownCritical));
    }

    proptest! {
        /// Packets that agree under the mask of the wire are alike to the pipeline under its own.
        #[test]
        fn masks_of_the_wire_decide_those_of_the_pipeline(
            a in prop::collection::vec((0u8..4, 0u8..3, any::<u8>()), 0..5),
            b in prop::collection::vec((0u8..4, 0u8..3, any::<u8>()), 0..5),
            looked in prop::collection::vec((0usize..3, any::<u8>()), 0..3),
        ) {
            let t = table();
            let make = |list: &[(u8, u8, u8)]| {
                let mut k = FlowKey::default();
                for (kind, words, v) in list {
                    let at = usize::from(k.dp.misc.opts_len);
                    k.dp.opts.0[at..at + 4].copy_from_slice(&[0xff, 0xff, *kind, *words]);
                    k.dp.opts.0[at + 4..at + 4 + 4 * usize::from(*words)].fill(*v);
                    k.dp.misc.opts_len += 4 + 4 * words;
                }
                k
            };
            let mut mask = FlowMask::default();
            for (n, bits) in looked {
                mask.set_bits(field(&t, [5, 0, 63][n]), &FieldValue::new(bits.into()));
            }
            let (wa, wb) = (make(&a), make(&b));
            if t.mask(&mask, &wa.dp).equal(&wa.dp, &wb.dp) {
                let (mut x, mut y) = (wa, wb);
                t.receive(&mut x).unwrap();
                t.receive(&mut y).unwrap();
                prop_assert!(mask.equal(&x, &y));
            }
        }
    }
}
