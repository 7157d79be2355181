//! Options of an `Interface` row -> [`Config`].

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use fv_dpif::{TunnelKind, Vport};

use crate::config::{Address, Config, Inner, Key, Origin};

pub const VXLAN_PORT: u16 = 4789;
pub const GENEVE_PORT: u16 = 6081;
pub const GTPU_PORT: u16 = 2152;
pub const BAREUDP_PORT: u16 = 6635;
const TTL: u8 = 64;
/// SRv6 segments at most.
pub const MAX_SEGMENTS: usize = 6;

/// What the options ask for, and what is odd about them; or why that cannot be, in the words that the row's
/// `error` shows.
pub fn parse(
    name: &str,
    kind: TunnelKind,
    options: &BTreeMap<String, String>,
) -> Result<(Config, Vec<String>), String> {
    let mut p = Parser { name, kind, notes: Vec::new(), config: empty(kind) };
    let mut keys = [None, None, None];
    for (option, value) in options {
        match option.as_str() {
            "key" => keys[0] = Some(p.key(value)),
            "in_key" => keys[1] = Some(p.key(value)),
            "out_key" => keys[2] = Some(p.key(value)),
            _ => p.option(option, value),
        }
    }
    p.config.in_key = keys[1].or(keys[0]).unwrap_or_default();
    p.config.out_key = keys[2].or(keys[0]).unwrap_or_default();
    let text = |k: &String, v: &String| match k.as_str() {
        "erspan_idx" | "erspan_hwid" if v != "flow" && !v.starts_with("0x") => (k.clone(), format!("0x{v}")),
        _ => (k.clone(), v.clone()),
    };
    p.config.text = options.iter().filter(|(k, _)| k.as_str() != "psk").map(|(k, v)| text(k, v)).collect();
    p.finish()
}

fn empty(kind: TunnelKind) -> Config {
    let dst_port = match kind {
        TunnelKind::Vxlan => VXLAN_PORT,
        TunnelKind::Geneve => GENEVE_PORT,
        TunnelKind::Gtpu => GTPU_PORT,
        TunnelKind::Bareudp => BAREUDP_PORT,
        _ => 0,
    };
    let inner = match kind {
        TunnelKind::Gtpu | TunnelKind::Bareudp | TunnelKind::Srv6 => Inner::Layer3,
        _ => Inner::Ethernet,
    };
    Config {
        vport: Vport { kind, dst_port, gbp: false, gpe: false, payload: 0 },
        local: Address::Any,
        remote: Address::Any,
        in_key: Key::None,
        out_key: Key::None,
        tos: Origin::Fixed(0),
        ttl: Origin::Fixed(TTL),
        dont_fragment: true,
        csum: None,
        seq: false,
        egress_pkt_mark: None,
        inner,
        erspan_ver: 0,
        erspan_ver_flow: false,
        erspan_idx: 0,
        erspan_idx_flow: false,
        erspan_dir: 0,
        erspan_dir_flow: false,
        erspan_hwid: 0,
        erspan_hwid_flow: false,
        segments: Vec::new(),
        text: Vec::new(),
    }
}

struct Parser<'a> {
    name: &'a str,
    kind: TunnelKind,
    /// Lines, each of which begins with the port's name.
    notes: Vec<String>,
    config: Config,
}

impl Parser<'_> {
    fn note(&mut self, text: impl std::fmt::Display) {
        self.notes.push(format!("{}: {text}", self.name));
    }

    fn key(&mut self, value: &str) -> Key {
        // As in the reference, what is no number counts as 0.
        if value == "flow" { Key::Flow } else { Key::Fixed(number(value).unwrap_or(0)) }
    }

    fn option(&mut self, option: &str, value: &str) {
        let kind = self.kind.name();
        match option {
            "remote_ip" => match self.address(value) {
                Ok(a) => self.config.remote = a,
                Err(Bad::Multicast) => self.note(format_args!("multicast remote_ip={value} not allowed")),
                Err(Bad::Syntax) => self.note(format_args!("bad {kind} 'remote_ip'")),
            },
            "local_ip" => match self.address(value) {
                Ok(a) => self.config.local = a,
                Err(_) => self.note(format_args!("bad {kind} 'local_ip'")),
            },
            "tos" if value == "inherit" => self.config.tos = Origin::Inherit,
            "tos" => match number(value).and_then(|n| u8::try_from(n).ok()) {
                Some(n) if n & 3 == 0 => self.config.tos = Origin::Fixed(n),
                _ => self.note(format_args!("invalid TOS {value}")),
            },
            "ttl" if value == "inherit" => self.config.ttl = Origin::Inherit,
            "ttl" => self.config.ttl = Origin::Fixed(number(value).map_or(0, |n| n as u8)),
            "dst_port" if self.kind.is_udp() => {
                if let Some(n) = number(value).and_then(|n| u16::try_from(n).ok()).filter(|n| *n != 0) {
                    self.config.vport.dst_port = n;
                }
            }
            "csum" if self.kind.is_udp() || self.kind.is_gre() => {
                self.config.csum = Some(value == "true");
            }
            "seq" if self.kind.is_gre() => self.config.seq = value == "true",
            "df_default" => self.config.dont_fragment = value != "false",
            "egress_pkt_mark" => self.config.egress_pkt_mark = number(value).and_then(|n| u32::try_from(n).ok()),
            "packet_type" => match value {
                "legacy_l2" => self.config.inner = Inner::Ethernet,
                "legacy_l3" => self.config.inner = Inner::Layer3,
                "ptap" => self.config.inner = Inner::Any,
                _ => self.note(format_args!("unknown packet_type '{value}'")),
            },
            "exts" if self.kind == TunnelKind::Vxlan => {
                for e in value.split(',') {
                    match e {
                        "gbp" => self.config.vport.gbp = true,
                        "gpe" => self.config.vport.gpe = true,
                        e => self.note(format_args!("unknown extension '{e}'")),
                    }
                }
            }
            "payload_type" if self.kind == TunnelKind::Bareudp => self.payload(value),
            "srv6_segs" if self.kind == TunnelKind::Srv6 => self.segments(value),
            "srv6_flowlabel" if self.kind == TunnelKind::Srv6 => {
                self.note(format_args!("srv6_flowlabel is not obeyed yet"));
            }
            o if o.starts_with("erspan_") && self.kind.is_erspan() => self.erspan(o, value),
            // Options of programs around the switch.
            "psk" | "remote_cert" | "remote_name" | "ipsec_encapsulation" | "ipsec_remote_ip" => {}
            o if o.starts_with("ipsec_") || o.starts_with("local_") || o.starts_with("remote_") => {}
            o => self.note(format_args!("unknown {kind} argument '{o}'")),
        }
    }

    fn address(&self, text: &str) -> Result<Address, Bad> {
        if text == "flow" {
            return Ok(Address::Flow);
        }
        let a: IpAddr = text.parse().map_err(|_| Bad::Syntax)?;
        if a.is_multicast() { Err(Bad::Multicast) } else { Ok(Address::Fixed(a)) }
    }

    fn payload(&mut self, value: &str) {
        match value {
            "mpls" => self.config.vport.payload = 0x8847,
            "ip" => self.config.vport.payload = 0x0800,
            v => match number(v).and_then(|n| u16::try_from(n).ok()).filter(|n| *n != 0) {
                Some(n) => self.config.vport.payload = n,
                None => self.note(format_args!("invalid payload_type {v}")),
            },
        }
    }

    fn segments(&mut self, value: &str) {
        let list: Result<Vec<Ipv6Addr>, _> = value.split(',').map(|s| s.trim().parse()).collect();
        match list {
            Ok(l) if l.len() <= MAX_SEGMENTS => self.config.segments = l,
            _ => self.note(format_args!("bad {} 'srv6_segs'", self.kind.name())),
        }
    }

    fn erspan(&mut self, option: &str, value: &str) {
        let flow = value == "flow";
        let limit = match option {
            "erspan_ver" => 2,
            "erspan_idx" => 0xf_ffff,
            "erspan_dir" => 1,
            "erspan_hwid" => 63,
            o => return self.note(format_args!("unknown {} argument '{o}'", self.kind.name())),
        };
        // The index and the hardware id are hexadecimal, whether they say so or not.
        let n = match option {
            "erspan_idx" | "erspan_hwid" => u64::from_str_radix(value.trim_start_matches("0x"), 16).ok(),
            _ => number(value),
        };
        let n = n.filter(|n| *n <= limit && (option != "erspan_ver" || *n != 0));
        let Some(n) = n.or(flow.then_some(0)) else { return self.note(format_args!("invalid {option}")) };
        let c = &mut self.config;
        match option {
            "erspan_ver" => (c.erspan_ver, c.erspan_ver_flow) = (n as u8, flow),
            "erspan_idx" => (c.erspan_idx, c.erspan_idx_flow) = (n as u32, flow),
            "erspan_dir" => (c.erspan_dir, c.erspan_dir_flow) = (n as u8, flow),
            _ => (c.erspan_hwid, c.erspan_hwid_flow) = (n as u8, flow),
        }
    }

    fn finish(mut self) -> Result<(Config, Vec<String>), String> {
        let kind = self.kind.name();
        let c = &self.config;
        let mut fatal = self.notes.iter().any(|n| n.contains("multicast"));
        if c.remote == Address::Any && self.kind != TunnelKind::Bareudp && !fatal {
            self.note(format_args!("{kind} type requires valid 'remote_ip' argument"));
            fatal = true;
        }
        let c = &self.config;
        if let (Some(l), Some(r)) = (c.local.fixed(), c.remote.fixed())
            && l.is_ipv4() != r.is_ipv4()
        {
            self.note("'remote_ip' and 'local_ip' has to be of the same address family");
            fatal = true;
        }
        if self.config.local == Address::Flow && self.config.remote != Address::Flow {
            self.note(format_args!("{kind} type requires 'remote_ip=flow' with 'local_ip=flow'"));
            fatal = true;
        }
        if self.kind == TunnelKind::Srv6
            && let Some(a) = self.config.remote.fixed()
            && !a.is_ipv6()
        {
            self.note("srv6 type requires an IPv6 'remote_ip'");
            fatal = true;
        }
        if fatal { Err(self.notes.join("\n")) } else { Ok((self.config, self.notes)) }
    }
}

enum Bad {
    Syntax,
    Multicast,
}

/// Decimal, or hexadecimal with `0x`; too big a number is the biggest, as `strtoull` has it.
fn number(s: &str) -> Option<u64> {
    let (digits, radix) = match s.strip_prefix("0x").or_else(|| s.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (s, 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    Some(u64::from_str_radix(digits, radix).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(kind: TunnelKind, o: &[(&str, &str)]) -> Result<(Config, Vec<String>), String> {
        parse("t", kind, &o.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect())
    }

    #[test]
    fn values() {
        let (c, notes) = run(
            TunnelKind::Vxlan,
            &[("remote_ip", "1.1.2.92"), ("in_key", "77"), ("out_key", "flow"), ("exts", "gbp"), ("csum", "true")],
        )
        .unwrap();
        assert!(notes.is_empty());
        assert_eq!((c.in_key, c.out_key, c.vport.gbp, c.csum), (Key::Fixed(77), Key::Flow, true, Some(true)));
        assert_eq!(
            c.describe(4789),
            "(vxlan: ::->1.1.2.92, key=0x4d, legacy_l2, dp port=4789, out_key=flow, ttl=64, csum=true)"
        );
        let (c, _) =
            run(TunnelKind::Erspan, &[("remote_ip", "flow"), ("erspan_ver", "1"), ("erspan_idx", "3")]).unwrap();
        assert_eq!((c.erspan_ver, c.erspan_idx, c.remote), (1, 3, Address::Flow));
    }

    #[test]
    fn words_of_the_errors() {
        let text = |o| run(TunnelKind::Vxlan, o).unwrap_err();
        assert_eq!(text(&[]), "t: vxlan type requires valid 'remote_ip' argument");
        assert_eq!(text(&[("remote_ip", "224.0.0.1")]), "t: multicast remote_ip=224.0.0.1 not allowed");
        assert_eq!(
            text(&[("remote_ip", "2001::5"), ("local_ip", "1.2.3.4")]),
            "t: 'remote_ip' and 'local_ip' has to be of the same address family"
        );
        let (_, notes) = run(TunnelKind::Gre, &[("remote_ip", "1.2.3.4"), ("bogus", "1"), ("tos", "zz")]).unwrap();
        assert_eq!(notes, ["t: unknown gre argument 'bogus'", "t: invalid TOS zz"]);
    }
}
