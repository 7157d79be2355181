//! Options of a tunnel's header as they are on the wire (RFC 8926 section 3.5), and their text:
//! `{class=0xffff,type=0,len=4,0x5}`.

use super::number;
use crate::field::FieldValue;
use crate::key::{DpKey, Opts};

/// Bytes of an option's own header: class, type, and the length in words in the low five bits.
pub const HEADER: usize = 4;
/// Most bytes of options in one header.
pub const MAX_OPTIONS: usize = 252;
/// Bit of the type that says: who does not know this option must drop the packet.
pub const CRITICAL: u8 = 0x80;
const LEN_BITS: u8 = 0x1f;

/// One option in the form of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WireOption<'a> {
    /// Where its header begins.
    pub at: usize,
    pub class: u16,
    pub kind: u8,
    pub data: &'a [u8],
}

/// The options in `bytes`; ends before one that is cut short.
pub fn options(bytes: &[u8]) -> impl Iterator<Item = WireOption<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let h = bytes.get(at..at + HEADER)?;
        let n = usize::from(h[3] & LEN_BITS) * 4;
        let data = bytes.get(at + HEADER..at + HEADER + n)?;
        let o = WireOption { at, class: u16::from_be_bytes([h[0], h[1]]), kind: h[2], data };
        at += HEADER + n;
        Some(o)
    })
}

/// Whether `bytes` are whole options and no more than fit a header.
pub fn are_whole(bytes: &[u8]) -> bool {
    let end = options(bytes).last().map_or(0, |o| o.at + HEADER + o.data.len());
    end == bytes.len() && end <= MAX_OPTIONS
}

impl DpKey {
    /// The bytes of its options in the form of the wire.
    pub fn wire_options(&self) -> &[u8] {
        &self.opts.0[..usize::from(self.misc.opts_len)]
    }
}

pub(super) fn format(key: &DpKey, mask: &DpKey, verbose: bool) -> String {
    let mut out = String::new();
    for o in options(key.wire_options()) {
        let m = &mask.opts.0[o.at..];
        let mut parts = Vec::new();
        let mut field = |name: &str, v: u128, m: u128, all: u128, dec: bool| {
            let v = if dec { v.to_string() } else { super::hex(v) };
            if m == all {
                parts.push(format!("{name}={v}"));
            } else if verbose || m != 0 {
                parts.push(format!("{name}={v}/{}", if m == 0 && !dec { "0".into() } else { format!("{m:#x}") }));
            }
        };
        field("class", o.class.into(), u16::from_be_bytes([m[0], m[1]]).into(), 0xffff, false);
        field("type", o.kind.into(), m[2].into(), 0xff, false);
        let len = m[3] & LEN_BITS;
        field("len", o.data.len() as u128, if len == LEN_BITS { 0xff } else { len.into() }, 0xff, true);
        let dm = &m[HEADER..HEADER + o.data.len()];
        if !o.data.is_empty() && (verbose || dm.iter().any(|b| *b != 0)) {
            let v = FieldValue::from_be_bytes(o.data).hex();
            let exact = dm.iter().all(|b| *b == 0xff);
            parts.push(if exact { v } else { format!("{v}/{}", FieldValue::from_be_bytes(dm).hex()) });
        }
        out += &format!("{{{}}}", parts.join(","));
    }
    out
}

/// Reads options; what is given without a mask is matched exactly.
pub(super) fn parse(body: &str, key: &mut DpKey, mask: &mut DpKey) -> Option<()> {
    let (mut opts, mut masks) = (Vec::new(), Vec::new());
    let mut rest = body.trim();
    while !rest.is_empty() {
        let (one, after) = rest.strip_prefix('{')?.split_once('}')?;
        parse_one(one, &mut opts, &mut masks)?;
        if opts.len() > MAX_OPTIONS {
            return None;
        }
        rest = after.trim_start_matches([',', ' ']);
    }
    key.misc.opts_len = opts.len() as u8;
    mask.misc.opts_len = u8::MAX;
    let fill = |to: &mut Opts, from: &[u8]| to.0[..from.len()].copy_from_slice(from);
    fill(&mut key.opts, &opts);
    fill(&mut mask.opts, &masks);
    Some(())
}

fn parse_one(text: &str, opts: &mut Vec<u8>, masks: &mut Vec<u8>) -> Option<()> {
    let (mut class, mut kind, mut len) = ((0u16, 0u16), (0u8, 0u8), (0u8, 0u8));
    let (mut data, mut data_mask) = (FieldValue::ZERO, None);
    let split = |s: &str, all: u128| -> Option<(u128, u128)> {
        let (v, m) = match s.split_once('/') {
            Some((v, m)) => (number(v)?, number(m)?),
            None => (number(s)?, all),
        };
        (v <= all && m <= all).then_some((v, m))
    };
    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        match part.split_once('=') {
            Some(("class", s)) => class = split(s, 0xffff).map(|(v, m)| (v as u16, m as u16))?,
            Some(("type", s)) => kind = split(s, 0xff).map(|(v, m)| (v as u8, m as u8))?,
            Some(("len", s)) => len = split(s, 0xff).map(|(v, m)| (v as u8, m as u8))?,
            Some(_) => return None,
            None => {
                let (v, m) = part.split_once('/').map_or((part, None), |(v, m)| (v, Some(m)));
                data = FieldValue::parse(v)?;
                data_mask = Some(m.map(FieldValue::parse).unwrap_or_else(|| Some(FieldValue::ones(1024)))?);
            }
        }
    }
    let n = usize::from(len.0);
    if !n.is_multiple_of(4) || n > 124 || data.n_bits() > 8 * n as u32 {
        return None;
    }
    opts.extend(class.0.to_be_bytes());
    opts.extend([kind.0, len.0 / 4]);
    opts.extend(data.to_be_bytes(n));
    masks.extend(class.1.to_be_bytes());
    masks.extend([kind.1, if len.1 == 0xff { 0xff } else { len.1 & LEN_BITS }]);
    masks.extend(data_mask.unwrap_or(FieldValue::ones(1024)).to_be_bytes(n));
    Some(())
}

#[cfg(test)]
mod tests {
    use crate::odp;

    #[test]
    fn text_of_options_is_the_references() {
        let check = |text: &str, verbose: bool, want: &str| {
            let flow = format!("tunnel(dst=1.1.1.1,ttl=64,geneve({text})),in_port(1)");
            let p = odp::parse(&flow, &|_| None).unwrap();
            let got = odp::format(&p.key, Some(&p.mask), verbose, None);
            assert!(got.contains(&format!("geneve({want})")), "{got}");
        };
        let all = "{class=0xffff,type=0,len=4,0x5}{class=0xffff,type=0x5,len=8,0xb0000}{class=0x1,type=0x81,len=0}";
        check(all, false, all);
        let masked = "{class=0xffff,type=0,len=4,0x5/0xff}{class=0xffff/0xf0ff,type=0x5,len=8,0xb0000}";
        check(masked, false, masked);
        check("{class=0x1,type=0x81,len=4}", false, "{class=0x1,type=0x81,len=4,0}");
        check("{class=0/0,type=0x5/0,len=4/0,0x1/0}", false, "{}");
        let wide = "{class=0x2,type=0x3,len=24,0x112233445566778899aabbccddeeff00112233}";
        check(wide, false, wide);
        for bad in ["{len=5}", "{len=128}", "{len=4,0x100000000}", "{class=0x10000,len=0}", "{len=4", "len=4}"] {
            let flow = format!("tunnel(dst=1.1.1.1,ttl=64,geneve({bad})),in_port(1)");
            assert!(odp::parse(&flow, &|_| None).is_err(), "{bad}");
        }
        let many = "{class=1,type=1,len=124}".repeat(2);
        let flow = format!("tunnel(dst=1.1.1.1,ttl=64,geneve({many})),in_port(1)");
        assert!(odp::parse(&flow, &|_| None).is_err(), "more than a header holds");
    }
}
