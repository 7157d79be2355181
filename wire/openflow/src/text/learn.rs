//! `learn(...)` as text, both ways.

use super::format::{field_name, format_subfield, hex};
use super::parse::{Error, parse_subfield};
use super::scan::{self, KeyValue};
use super::{Lookups, Names};
use crate::action::*;
use crate::msg::flow::DEFAULT_PRIORITY;
use fv_flow::text::{format_field, parse_field_value};
use fv_flow::{Field, FieldValue, Match, Subfield};

pub(super) fn format_learn(l: &Learn, names: Names) -> String {
    let mut parts = vec![format!("table={}", names.table(l.table))];
    let mut number = |name: &str, v: u32, default: u32| {
        if v != default {
            parts.push(format!("{name}={v}"));
        }
    };
    number("idle_timeout", l.idle_timeout_s.into(), 0);
    number("hard_timeout", l.hard_timeout_s.into(), 0);
    number("fin_idle_timeout", l.fin_idle_timeout_s.into(), 0);
    number("fin_hard_timeout", l.fin_hard_timeout_s.into(), 0);
    number("priority", l.priority.into(), DEFAULT_PRIORITY.into());
    if l.flags.send_flow_rem {
        parts.push("send_flow_rem".to_owned());
    }
    if l.flags.delete_learned {
        parts.push("delete_learned".to_owned());
    }
    if l.cookie != 0 {
        parts.push(format!("cookie={}", hex(l.cookie)));
    }
    if l.limit != 0 {
        parts.push(format!("limit={}", l.limit));
    }
    if let Some(d) = &l.result_dst {
        parts.push(format!("result_dst={}", format_subfield(d)));
    }
    parts.extend(l.specs.iter().map(|s| spec(s, names)));
    format!("learn({})", parts.join(","))
}

fn spec(s: &LearnSpec, names: Names) -> String {
    let number = |v: &[u8]| FieldValue::from_be_bytes(v);
    match (&s.src, &s.dst) {
        (LearnSrc::Value(v), LearnDst::Match(d)) if d.ofs == 0 && d.n_bits == d.field.n_bits() => {
            format!("{}={}", field_name(d.field), format_field(d.field, &number(v), None, names.ports))
        }
        (LearnSrc::Value(v), LearnDst::Match(d)) => format!("{}={}", format_subfield(d), number(v).hex()),
        (LearnSrc::Value(v), LearnDst::Load(d)) => format!("load:{}->{}", number(v).hex(), format_subfield(d)),
        (LearnSrc::Field(f), LearnDst::Match(d)) if f == d => format_subfield(d),
        (LearnSrc::Field(f), LearnDst::Match(d)) => format!("{}={}", format_subfield(d), format_subfield(f)),
        (LearnSrc::Field(f), LearnDst::Load(d)) => format!("load:{}->{}", format_subfield(f), format_subfield(d)),
        (LearnSrc::Field(f), LearnDst::Output) => format!("output:{}", format_subfield(f)),
        (LearnSrc::Value(v), LearnDst::Output) => format!("output:{}", number(v).hex()),
    }
}

pub(super) fn parse_learn(arg: &str, names: Lookups) -> Result<Learn, Error> {
    let mut l = Learn {
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        priority: DEFAULT_PRIORITY,
        table: 1,
        cookie: 0,
        fin_idle_timeout_s: 0,
        fin_hard_timeout_s: 0,
        flags: LearnFlags::default(),
        limit: 0,
        result_dst: None,
        specs: Vec::new(),
    };
    // The steps before say which fields the new flow matches: later ones need them.
    let mut matched = Match::default();
    for kv in scan::key_values(arg)? {
        let KeyValue { key, value } = kv;
        match key {
            "table" => {
                l.table = names
                    .table(value)
                    .filter(|t| *t != 0xff)
                    .ok_or_else(|| Error::text(format!("unknown table \"{value}\"")))?;
            }
            "priority" => l.priority = scan::u16(value, "priority")?,
            "idle_timeout" => l.idle_timeout_s = scan::u16(value, "idle_timeout")?,
            "hard_timeout" => l.hard_timeout_s = scan::u16(value, "hard_timeout")?,
            "fin_idle_timeout" => l.fin_idle_timeout_s = scan::u16(value, "fin_idle_timeout")?,
            "fin_hard_timeout" => l.fin_hard_timeout_s = scan::u16(value, "fin_hard_timeout")?,
            "cookie" => l.cookie = scan::u64(value, "cookie")?,
            "send_flow_rem" => l.flags.send_flow_rem = true,
            "delete_learned" => l.flags.delete_learned = true,
            "limit" => l.limit = scan::u32(value, "limit")?,
            "result_dst" => {
                let d = parse_subfield(value)?;
                if d.n_bits != 1 {
                    return Err(Error::text(format!("{value}: result_dst must be a single bit")));
                }
                l.result_dst = Some(d);
            }
            _ => l.specs.push(parse_spec(key, value, names, &mut matched)?),
        }
    }
    Ok(l)
}

fn bits(n: u32) -> u16 {
    n.min(0x3ff) as u16
}

/// Big-endian bytes of a value of `n_bits` bits, as the wire rounds them.
fn immediate(v: FieldValue, n_bits: u32) -> LearnSrc {
    LearnSrc::Value(v.to_be_bytes(2 * n_bits.div_ceil(16) as usize))
}

fn parse_spec(key: &str, value: &str, names: Lookups, matched: &mut Match) -> Result<LearnSpec, Error> {
    if key == "output" {
        let s = parse_subfield(value)?;
        return Ok(LearnSpec { n_bits: bits(s.n_bits), src: LearnSrc::Field(s), dst: LearnDst::Output });
    }
    if key == "load" {
        let (from, to) = scan::arrow(value)?;
        let dst = parse_subfield(to)?;
        let src = match FieldValue::parse(from) {
            Some(v) if v.n_bits() > dst.n_bits => {
                return Err(Error::text(format!("{value}: value {from} does not fit into {} bits", dst.n_bits)));
            }
            Some(v) => immediate(v, dst.n_bits),
            None => LearnSrc::Field(same_width(parse_subfield(from)?, dst)?),
        };
        return Ok(LearnSpec { n_bits: bits(dst.n_bits), src, dst: LearnDst::Load(dst) });
    }
    let dst = match Field::by_name(key) {
        Some(f) => Subfield::whole(f),
        None => parse_subfield(key)?,
    };
    let src = match value {
        "" => LearnSrc::Field(dst),
        v => match parse_subfield(v) {
            Ok(s) => LearnSrc::Field(same_width(s, dst)?),
            Err(_) => match_value(dst, v, names, matched)?,
        },
    };
    Ok(LearnSpec { n_bits: bits(dst.n_bits), src, dst: LearnDst::Match(dst) })
}

fn same_width(src: Subfield, dst: Subfield) -> Result<Subfield, Error> {
    if src.n_bits == dst.n_bits {
        return Ok(src);
    }
    Err(Error::text(format!(
        "{} and {}: source field is {} bits wide but destination is {} bits wide",
        format_subfield(&src),
        format_subfield(&dst),
        src.n_bits,
        dst.n_bits
    )))
}

fn match_value(dst: Subfield, v: &str, names: Lookups, matched: &mut Match) -> Result<LearnSrc, Error> {
    if dst.ofs == 0 && dst.n_bits == dst.field.n_bits() {
        let (value, mask) = parse_field_value(dst.field, v, names.ports).map_err(|e| Error::text(e.to_string()))?;
        if mask != dst.field.mask_bits() {
            return Err(Error::text(format!("{v}: a learned match takes no mask")));
        }
        matched.set_field(dst.field, &value);
        return Ok(immediate(value, dst.n_bits));
    }
    let n = FieldValue::parse(v).ok_or_else(|| Error::text(format!("{v}: unknown field or value")))?;
    if n.n_bits() > dst.n_bits {
        return Err(Error::text(format!("{v}: does not fit into {} bits", dst.n_bits)));
    }
    Ok(immediate(n, dst.n_bits))
}
