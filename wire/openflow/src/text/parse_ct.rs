//! The larger actions from text: connection tracking, encapsulation, hashing, sampling.

use super::Lookups;
use super::parse::{Error, parse_list, parse_subfield};
use super::scan;
use crate::action::*;
use fv_core::OfPort;
use std::net::{Ipv4Addr, Ipv6Addr};

type Result<T> = std::result::Result<T, Error>;

fn err<T>(s: impl Into<String>) -> Result<T> {
    Err(Error::text(s))
}

pub(super) fn parse_ct(v: &str, names: Lookups, depth: u8) -> Result<Ct> {
    let mut c =
        Ct { commit: false, force: false, zone: CtZone::Imm(0), recirc_table: None, alg: 0, exec: Actions::new() };
    for kv in scan::key_values(v)? {
        match kv.key {
            "commit" => c.commit = true,
            "force" => c.force = true,
            "table" => match names.table(kv.value) {
                Some(0xff) => return err("invalid table 0xff in ct action"),
                Some(t) => c.recirc_table = Some(t),
                None => return err(format!("unknown table {}", kv.value)),
            },
            "zone" => {
                c.zone = match scan::number(kv.value) {
                    Some(n) => CtZone::Imm(u16::try_from(n).map_err(|_| Error::text(format!("invalid zone \"{n}\"")))?),
                    None => {
                        let s = parse_subfield(kv.value)?;
                        if s.n_bits != 16 {
                            return err(format!("{}: zone must be 16 bits wide", kv.value));
                        }
                        CtZone::Field(s)
                    }
                }
            }
            "alg" => match kv.value {
                "ftp" => c.alg = 21,
                "tftp" => c.alg = 69,
                a => return err(format!("invalid conntrack helper \"{a}\"")),
            },
            // A translation comes first among what is executed.
            "nat" => c.exec.0.insert(0, Action::Nat(Box::new(parse_nat(kv.value)?))),
            "exec" => c.exec.0.append(&mut parse_list(kv.value, names, depth + 1)?.0),
            k => return err(format!("invalid argument to \"ct\" action: `{k}'")),
        }
    }
    if c.force && !c.commit {
        return err("\"force\" flag requires \"commit\" flag.");
    }
    Ok(c)
}

pub(super) fn parse_nat(v: &str) -> Result<Nat> {
    let mut n = Nat::default();
    for kv in scan::key_values(v)? {
        match kv.key {
            "src" | "dst" => {
                if n.kind.is_some() {
                    return err("May only specify one of \"src\" or \"dst\".");
                }
                n.kind = Some(if kv.key == "src" { NatKind::Src } else { NatKind::Dst });
                if !kv.value.is_empty() {
                    (n.range, n.ports) = nat_range(kv.value)?;
                }
            }
            "persistent" => n.persistent = true,
            "hash" => n.hash = true,
            "random" => n.random = true,
            k => return err(format!("invalid key \"{k}\" in nat action")),
        }
    }
    if n.kind.is_none() && n != Nat::default() {
        return err("flags allowed only with \"src\" or \"dst\".");
    }
    if n.hash && n.random {
        return err("Both \"hash\" and \"random\" are not allowed.");
    }
    Ok(n)
}

/// `A`, `A-B`, either with `:PORT` or `:PORT-PORT`; IPv6 with ports in brackets.
fn nat_range(v: &str) -> Result<(NatRange, Option<(u16, u16)>)> {
    let bad = || Error::text(format!("{v}: invalid NAT range"));
    let (addresses, ports) = if v.starts_with('[') {
        match v.rfind(']') {
            Some(i) if i + 1 == v.len() => (v, None),
            Some(i) => (&v[..=i], Some(v[i + 1..].strip_prefix(':').ok_or_else(bad)?)),
            None => return Err(bad()),
        }
    } else if v.matches(':').count() == 1 {
        v.split_once(':').map_or((v, None), |(a, p)| (a, Some(p)))
    } else {
        (v, None)
    };
    let ports = match ports {
        None => None,
        Some(p) => {
            let (a, b) = p.split_once('-').unwrap_or((p, p));
            let (a, b) = (scan::u16(a, "port")?, scan::u16(b, "port")?);
            if b < a {
                return Err(bad());
            }
            Some((a, b))
        }
    };
    let (first, last) = addresses.split_once('-').map_or((addresses, None), |(a, b)| (a, Some(b)));
    if let Ok(a) = first.parse::<Ipv4Addr>() {
        let b = last.map(|b| b.parse::<Ipv4Addr>()).transpose().map_err(|_| bad())?;
        let (a, b) = (u32::from(a), b.map_or(0, u32::from));
        return if b != 0 && b < a { Err(bad()) } else { Ok((NatRange::V4(a, if a == b { 0 } else { b }), ports)) };
    }
    let v6 = |s: &str| {
        let s = s.strip_prefix('[').and_then(|s| s.strip_suffix(']')).unwrap_or(s);
        s.parse::<Ipv6Addr>().map(|a| a.octets()).map_err(|_| bad())
    };
    let a = v6(first)?;
    let b = last.map(v6).transpose()?.unwrap_or([0; 16]);
    if b != [0; 16] && b < a { Err(bad()) } else { Ok((NatRange::V6(a, if a == b { [0; 16] } else { b }), ports)) }
}

pub(super) fn parse_conjunction(v: &str) -> Result<Action> {
    let bad = || Error::text(format!("{v}: syntax is conjunction(ID,CLAUSE/N)"));
    let (id, k) = v.split_once(',').ok_or_else(bad)?;
    let (clause, n) = k.split_once('/').ok_or_else(bad)?;
    let (clause, n_clauses) = (scan::u8(clause.trim(), "clause")?, scan::u8(n, "number of clauses")?);
    match (clause, n_clauses) {
        (_, 0 | 1) => err("conjunction must have at least 2 clauses"),
        (_, 65..) => err("conjunction must have at most 64 clauses"),
        (0, _) => err("clause index must be positive"),
        (c, n) if c > n => err("clause index must be less than or equal to number of clauses"),
        _ => Ok(Action::Conjunction { id: scan::u32(id, "conjunction ID")?, clause: clause - 1, n_clauses }),
    }
}

fn hash_fields(s: &str) -> Result<HashFields> {
    HashFields::ALL.into_iter().find(|f| f.name() == s).ok_or_else(|| Error::text(format!("unknown fields `{s}'")))
}

pub(super) fn parse_multipath(v: &str) -> Result<Action> {
    let p: Vec<&str> = v.split(',').map(str::trim).collect();
    let [fields, basis, algorithm, links, arg, dst] = p[..] else {
        return err(format!("{v}: not enough arguments to multipath action"));
    };
    let algorithm = MultipathAlgorithm::ALL
        .into_iter()
        .find(|a| a.name() == algorithm)
        .ok_or_else(|| Error::text(format!("{v}: unknown algorithm `{algorithm}'")))?;
    let n_links = scan::u32(links, "n_links")?;
    if !(1..=65536).contains(&n_links) {
        return err(format!("{v}: n_links {n_links} is not in valid range 1 to 65536"));
    }
    let dst = parse_subfield(dst)?;
    if dst.n_bits < 16 && n_links > 1 << dst.n_bits {
        return err(format!(
            "{v}: {}-bit destination field has {} possible values, less than specified n_links {n_links}",
            dst.n_bits,
            1 << dst.n_bits
        ));
    }
    let (fields, basis, arg) = (hash_fields(fields)?, scan::u16(basis, "basis")?, scan::u32(arg, "arg")?);
    let max_link = (n_links - 1) as u16;
    Ok(Action::Multipath(Box::new(Multipath { fields, basis, algorithm, max_link, arg, dst })))
}

pub(super) fn parse_bundle(v: &str, load: bool, names: Lookups) -> Result<Action> {
    let bad = || Error::text(format!("{v}: not enough arguments to bundle action"));
    let marks = ["members:", "members=", "slaves:", "slaves="];
    let (at, mark) = marks.iter().find_map(|m| v.find(m).map(|i| (i, m.len()))).ok_or_else(bad)?;
    let head: Vec<&str> = v[..at].split(',').map(str::trim).filter(|s| !s.is_empty()).collect();
    let (fields, basis, algorithm, kind, dst) = match head[..] {
        [f, b, a, k] if !load => (f, b, a, k, None),
        [f, b, a, k, d] if load => (f, b, a, k, Some(parse_subfield(d)?)),
        _ => return Err(bad()),
    };
    if kind != "ofport" {
        return err(format!("{v}: unknown member_type `{kind}'"));
    }
    let algorithm = match algorithm {
        "active_backup" => BundleAlgorithm::ActiveBackup,
        "hrw" => BundleAlgorithm::Hrw,
        a => return err(format!("{v}: unknown algorithm `{a}'")),
    };
    let members = v[at + mark..]
        .split([',', ' '])
        .filter(|s| !s.is_empty())
        .map(|s| names.port(s).ok_or_else(|| Error::text(format!("{s}: bad port number"))))
        .collect::<Result<Vec<OfPort>>>()?;
    let (fields, basis) = (hash_fields(fields)?, scan::u16(basis, "basis")?);
    Ok(Action::Bundle(Box::new(Bundle { algorithm, fields, basis, dst, members })))
}

pub(super) fn parse_sample(v: &str, names: Lookups) -> Result<Action> {
    let mut s = Sample {
        probability: 0,
        collector_set_id: 0,
        obs_domain_id: SampleId::Imm(0),
        obs_point_id: SampleId::Imm(0),
        sampling_port: OfPort::NONE,
        direction: SampleDirection::Default,
    };
    let id = |v: &str, what| match scan::number(v) {
        Some(_) => scan::u32(v, what).map(SampleId::Imm),
        None => parse_subfield(v).map(SampleId::Field),
    };
    for kv in scan::key_values(v)? {
        match kv.key {
            "probability" => s.probability = scan::u16(kv.value, kv.key)?,
            "collector_set_id" => s.collector_set_id = scan::u32(kv.value, kv.key)?,
            "obs_domain_id" => s.obs_domain_id = id(kv.value, kv.key)?,
            "obs_point_id" => s.obs_point_id = id(kv.value, kv.key)?,
            "sampling_port" => {
                let p = names.port(kv.value);
                s.sampling_port = p.ok_or_else(|| Error::text(format!("{}: unknown port", kv.value)))?;
            }
            "ingress" => s.direction = SampleDirection::Ingress,
            "egress" => s.direction = SampleDirection::Egress,
            k => return err(format!("invalid key \"{k}\" in \"sample\" argument")),
        }
    }
    if s.probability == 0 {
        return err("invalid probability value \"0\"");
    }
    Ok(Action::Sample(Box::new(s)))
}

pub(super) fn parse_encap(v: &str) -> Result<Encap> {
    let items = scan::items(v)?;
    let [i] = &items[..] else { return err(format!("{v}: one header is expected")) };
    let packet_type = match i.key {
        "ethernet" => 0,
        "nsh" => 0x1_894f,
        "mpls" => 0x1_8847,
        "mpls_mc" => 0x1_8848,
        k => return err(format!("Encap hdr not supported: {k}")),
    };
    let mut props = Vec::new();
    for p in scan::items(i.value)? {
        match p.key {
            "md_type" => props.push(EncapProp::NshMdType(scan::u8(p.value, "md_type")?)),
            "tlv" => {
                let f: Vec<&str> = p.value.split(',').map(str::trim).collect();
                let [class, kind, data] = f[..] else { return err(format!("{}: invalid NSH TLV", p.value)) };
                let data = data.strip_prefix("0x").and_then(scan::hex_bytes);
                let data = data.filter(|d| d.len() <= 240);
                props.push(EncapProp::NshTlv {
                    class: scan::u16(class, "TLV class")?,
                    kind: scan::u8(kind, "TLV type")?,
                    data: data.ok_or_else(|| Error::text(format!("{}: invalid NSH TLV value", p.value)))?,
                });
            }
            k => return err(format!("Invalid property: {k}")),
        }
    }
    Ok(Encap { packet_type, header_len: 0, props })
}

pub(super) fn parse_decap(v: &str) -> Result<Option<u32>> {
    if v.trim().is_empty() {
        return Ok(None);
    }
    let items = scan::items(v)?;
    let [i] = &items[..] else { return err(format!("{v}: bad decap argument")) };
    if i.key != "packet_type" {
        return err(format!("Missing packet_type attribute specifying ns and type: {v}"));
    }
    let (mut ns, mut kind) = (0, 0);
    for kv in scan::key_values(i.value)? {
        match kv.key {
            "ns" => ns = scan::u16(kv.value, "ns")?,
            "type" => kind = scan::u16(kv.value, "type")?,
            k => return err(format!("Invalid attribute: {k}")),
        }
    }
    Ok(Some(u32::from(ns) << 16 | u32::from(kind)))
}
