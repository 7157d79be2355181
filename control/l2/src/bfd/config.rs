//! The settings of a session, from the `bfd` column of an interface.

use std::collections::BTreeMap;

const DEFAULT_DST_MAC: [u8; 6] = [0x00, 0x23, 0x20, 0x00, 0x00, 0x01];
pub(super) const DEFAULT_SRC_IP: u32 = u32::from_be_bytes([169, 254, 1, 1]);
const DEFAULT_DST_IP: u32 = u32::from_be_bytes([169, 254, 1, 0]);
const DEFAULT_MULT: u8 = 3;
const DEFAULT_MIN_RX_MS: u32 = 1000;
const DEFAULT_MIN_TX_MS: u32 = 100;
/// Longest interval that is taken: the wire has 32 bits of microseconds.
const MAX_INTERVAL_MS: u32 = u32::MAX / 1000;

/// How a session behaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    pub min_rx_us: u32,
    pub min_tx_us: u32,
    /// `min_rx_us` while no data comes; 0 turns this off.
    pub decay_min_rx_us: u32,
    pub forwarding_if_rx: bool,
    pub cpath_down: bool,
    pub check_tnl_key: bool,
    pub local_src_mac: Option<[u8; 6]>,
    pub local_dst_mac: [u8; 6],
    /// Frames to other addresses are not for this session.
    pub remote_dst_mac: Option<[u8; 6]>,
    /// If set, packets to other addresses are not for this session either.
    pub src_ip: Option<u32>,
    pub dst_ip: u32,
    pub oam: bool,
    pub mult: u8,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            min_rx_us: DEFAULT_MIN_RX_MS * 1000,
            min_tx_us: DEFAULT_MIN_TX_MS * 1000,
            decay_min_rx_us: 0,
            forwarding_if_rx: false,
            cpath_down: false,
            check_tnl_key: false,
            local_src_mac: None,
            local_dst_mac: DEFAULT_DST_MAC,
            remote_dst_mac: None,
            src_ip: None,
            dst_ip: DEFAULT_DST_IP,
            oam: false,
            mult: DEFAULT_MULT,
        }
    }
}

impl Config {
    /// None if the column does not enable a session. What cannot be read keeps its default and is told to `bad`
    /// as (key, value).
    pub fn parse(column: &BTreeMap<String, String>, mut bad: impl FnMut(&str, &str)) -> Option<Config> {
        let mut c = Config::default();
        if column.get("enable").map(String::as_str) != Some("true") {
            return None;
        }
        for (key, value) in column {
            if !c.set(key, value) {
                bad(key, value);
            }
        }
        Some(c)
    }

    fn set(&mut self, key: &str, value: &str) -> bool {
        let ms = || value.parse::<u32>().ok().map(|ms| ms.clamp(1, MAX_INTERVAL_MS) * 1000);
        match key {
            "min_rx" => put(&mut self.min_rx_us, ms()),
            "min_tx" => put(&mut self.min_tx_us, ms()),
            "decay_min_rx" if value == "0" => put(&mut self.decay_min_rx_us, Some(0)),
            "decay_min_rx" => put(&mut self.decay_min_rx_us, ms()),
            "mult" => put(&mut self.mult, value.parse().ok().filter(|m| *m > 0)),
            "forwarding_if_rx" => put(&mut self.forwarding_if_rx, value.parse().ok()),
            "cpath_down" => put(&mut self.cpath_down, value.parse().ok()),
            "check_tnl_key" => put(&mut self.check_tnl_key, value.parse().ok()),
            "oam" => put(&mut self.oam, value.parse().ok()),
            "bfd_local_src_mac" => put(&mut self.local_src_mac, mac(value).map(Some)),
            "bfd_local_dst_mac" => put(&mut self.local_dst_mac, mac(value)),
            "bfd_remote_dst_mac" => put(&mut self.remote_dst_mac, mac(value).map(Some)),
            "bfd_src_ip" => put(&mut self.src_ip, ip(value).map(Some)),
            "bfd_dst_ip" => put(&mut self.dst_ip, ip(value)),
            // Unknown keys are other programs' business.
            _ => true,
        }
    }
}

fn put<T>(at: &mut T, value: Option<T>) -> bool {
    let ok = value.is_some();
    if let Some(v) = value {
        *at = v;
    }
    ok
}

fn mac(s: &str) -> Option<[u8; 6]> {
    let mut out = [0; 6];
    let mut parts = s.split(':');
    for b in &mut out {
        let part = parts.next().filter(|p| (1..=2).contains(&p.len()))?;
        *b = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(out)
}

fn ip(s: &str) -> Option<u32> {
    s.parse::<std::net::Ipv4Addr>().ok().map(u32::from)
}
