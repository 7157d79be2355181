//! Names of streams: `tcp:HOST:PORT`, `punix:PATH` and so on, parsed once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::PathBuf;

use super::Error;
use super::names::{self, Known};

/// Default port of OVSDB, which streams use when a name has none.
pub const DEFAULT_PORT: u16 = 6640;
/// Size of the hosts file that is looked at.
const HOSTS_FILE_MAX: usize = 1 << 20;

/// Where an active stream goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    Tcp(SocketAddr),
    Ssl(SocketAddr),
    Unix(PathBuf),
}

/// Where a passive stream listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Local {
    Tcp(SocketAddr),
    Ssl(SocketAddr),
    Unix(PathBuf),
}

/// True if `name` has the form of a passive stream.
pub fn is_passive(name: &str) -> bool {
    ["ptcp:", "pssl:", "punix:"].iter().any(|p| name.starts_with(p))
}

/// Parses the name of an active stream. `default_port` is for names without one; None refuses
/// them.
pub fn active(name: &str, default_port: Option<u16>) -> Result<Target, Error> {
    match name.split_once(':') {
        Some(("tcp", rest)) => Ok(Target::Tcp(remote(rest, default_port)?)),
        Some(("ssl", rest)) => Ok(Target::Ssl(remote(rest, default_port)?)),
        Some(("unix", rest)) => Ok(Target::Unix(rest.into())),
        _ => Err(Error::UnknownType(name.to_string())),
    }
}

/// Parses the name of a passive stream.
pub fn passive(name: &str, default_port: Option<u16>) -> Result<Local, Error> {
    match name.split_once(':') {
        Some(("ptcp", rest)) => Ok(Local::Tcp(local(rest, default_port)?)),
        Some(("pssl", rest)) => Ok(Local::Ssl(local(rest, default_port)?)),
        Some(("punix", rest)) => Ok(Local::Unix(rest.into())),
        _ => Err(Error::UnknownType(name.to_string())),
    }
}

/// `HOST[:PORT]`.
fn remote(s: &str, default_port: Option<u16>) -> Result<SocketAddr, Error> {
    let (host, rest) = take_host(s).ok_or_else(|| Error::BadAddress(s.to_string()))?;
    let port = match rest {
        Some(p) => parse_port(p)?,
        None => default_port.ok_or_else(|| Error::BadAddress(format!("{s}: port must be specified")))?,
    };
    socket_addr(host, port)
}

/// `[PORT][:HOST]`.
fn local(s: &str, default_port: Option<u16>) -> Result<SocketAddr, Error> {
    let (port, host) = match s.split_once(':') {
        Some((p, h)) => (p, Some(h)),
        None => (s, None),
    };
    let port = match (port, default_port) {
        ("", Some(p)) => p,
        ("", None) => return Err(Error::BadAddress(format!("{s}: port must be specified"))),
        (p, _) => parse_port(p)?,
    };
    let Some(host) = host else {
        return Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    };
    match take_host(host) {
        Some((h, None)) => socket_addr(h, port),
        _ => Err(Error::BadAddress(s.to_string())),
    }
}

/// Splits `HOST[:REST]`, where HOST may be an IPv6 address in brackets, or bare if nothing
/// follows.
fn take_host(s: &str) -> Option<(&str, Option<&str>)> {
    if let Some(s) = s.strip_prefix('[') {
        let (host, rest) = s.split_once(']')?;
        return match rest {
            "" => Some((host, None)),
            _ => Some((host, Some(rest.strip_prefix(':')?))),
        };
    }
    if s.is_empty() {
        return None;
    }
    if s.parse::<Ipv6Addr>().is_ok() {
        return Some((s, None));
    }
    match s.split_once(':') {
        Some(("", _)) => None,
        Some((h, p)) => Some((h, Some(p))),
        None => Some((s, None)),
    }
}

fn parse_port(s: &str) -> Result<u16, Error> {
    s.parse().map_err(|_| Error::BadAddress(format!("{s}: bad port number")))
}

fn socket_addr(host: &str, port: u16) -> Result<SocketAddr, Error> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    if let Some((ip, zone)) = host.split_once('%')
        && let Ok(ip) = ip.parse::<Ipv6Addr>()
        && let Some(scope) = zone_index(zone)
    {
        return Ok(SocketAddrV6::new(ip, port, 0, scope).into());
    }
    // What the machine itself knows comes at once; a name server is never waited for.
    if let Some(ip) = lookup_hosts(host) {
        return Ok(SocketAddr::new(ip, port));
    }
    if !is_host_name(host) {
        return Err(Error::BadAddress(format!("\"{host}\" is not a valid IP address or host name")));
    }
    match names::look(host) {
        Known::Address(ip) => Ok(SocketAddr::new(ip, port)),
        Known::Pending => Err(Error::Resolving(host.to_string())),
        Known::NotFound => Err(Error::BadAddress(format!("\"{host}\" could not be resolved"))),
    }
}

/// RFC 1123, section 2.1: letters, digits and hyphens, with dots between; underscores do no harm.
fn is_host_name(s: &str) -> bool {
    let label = |l: &str| {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        (1..=63).contains(&l.len()) && l.bytes().all(legal)
    };
    let s = s.strip_suffix('.').unwrap_or(s);
    // Four numbers are an address that is wrong.
    s.len() <= 253 && s.split('.').all(label) && s.bytes().any(|b| b.is_ascii_alphabetic())
}

fn zone_index(zone: &str) -> Option<u32> {
    if let Ok(n) = zone.parse() {
        return Some(n);
    }
    std::fs::read_to_string(format!("/sys/class/net/{}/ifindex", zone.replace('/', "!"))).ok()?.trim().parse().ok()
}

fn lookup_hosts(host: &str) -> Option<IpAddr> {
    let text = std::fs::read("/etc/hosts").ok().filter(|t| t.len() <= HOSTS_FILE_MAX);
    let text = String::from_utf8_lossy(text.as_deref().unwrap_or_default()).into_owned();
    let mut found = text.lines().filter_map(|l| {
        let mut words = l.split('#').next()?.split_whitespace();
        let ip: IpAddr = words.next()?.parse().ok()?;
        words.any(|w| w.eq_ignore_ascii_case(host)).then_some(ip)
    });
    let first = found.next();
    let v4 = first.into_iter().chain(found).find(|ip| ip.is_ipv4());
    let builtin = (host == "localhost").then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    v4.or(first).or(builtin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_active_streams() {
        let check = |name: &str, expected: &str| {
            let got = match active(name, Some(DEFAULT_PORT)) {
                Ok(Target::Tcp(a)) => format!("tcp {a}"),
                Ok(Target::Ssl(a)) => format!("ssl {a}"),
                Ok(Target::Unix(p)) => format!("unix {}", p.display()),
                Err(_) => "error".into(),
            };
            assert_eq!(got, expected, "{name}");
        };
        check("tcp:127.0.0.1:6653", "tcp 127.0.0.1:6653");
        check("tcp:127.0.0.1", "tcp 127.0.0.1:6640");
        check("ssl:[::1]:6653", "ssl [::1]:6653");
        check("tcp:[::1]", "tcp [::1]:6640");
        check("tcp:::1", "tcp [::1]:6640");
        check("tcp:localhost:1", "tcp 127.0.0.1:1");
        check("unix:/a:b", "unix /a:b");
        check("tcp:", "error");
        check("tcp::1", "error");
        check("tcp:127.0.0.1:66000", "error");
        check("tcp:[::1]6653", "error");
        check("tcp:[::1", "error");
        check("udp:127.0.0.1:1", "error");
        check("tcp", "error");
        check("tcp:300.1.1.1:1", "error");
        check("tcp:no host:1", "error");
        assert!(active("tcp:127.0.0.1", None).is_err());
    }

    #[test]
    fn names_of_passive_streams() {
        let check = |name: &str, expected: &str| {
            let got = match passive(name, Some(DEFAULT_PORT)) {
                Ok(Local::Tcp(a)) => format!("tcp {a}"),
                Ok(Local::Ssl(a)) => format!("ssl {a}"),
                Ok(Local::Unix(p)) => format!("unix {}", p.display()),
                Err(_) => "error".into(),
            };
            assert_eq!(got, expected, "{name}");
        };
        check("ptcp:", "tcp 0.0.0.0:6640");
        check("ptcp:0", "tcp 0.0.0.0:0");
        check("ptcp:6653:127.0.0.1", "tcp 127.0.0.1:6653");
        check("ptcp::127.0.0.1", "tcp 127.0.0.1:6640");
        check("pssl:1:[::1]", "ssl [::1]:1");
        check("ptcp:1:::1", "tcp [::1]:1");
        check("punix:x.sock", "unix x.sock");
        check("ptcp:1:127.0.0.1:2", "error");
        check("ptcp:x", "error");
        check("tcp:1", "error");
    }
}
