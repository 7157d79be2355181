//! Names of protocol versions and cipher suites as OpenSSL writes them, mapped to what we have.

use rustls::crypto::aws_lc_rs::cipher_suite as cs;
use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};

/// (OpenSSL name, suite), in our order of preference.
static SUITES: &[(&str, SupportedCipherSuite)] = &[
    ("TLS_AES_256_GCM_SHA384", cs::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", cs::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", cs::TLS13_CHACHA20_POLY1305_SHA256),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", cs::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", cs::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", cs::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", cs::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", cs::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", cs::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Words of a cipher string that mean "what is good by default" to us.
const GROUPS: &[&str] = &["DEFAULT", "ALL", "HIGH", "SECURE", "COMPLEMENTOFDEFAULT", "ECDHE", "AESGCM"];

fn is_tls13(s: &SupportedCipherSuite) -> bool {
    s.tls13().is_some()
}

/// Versions of a list such as `TLSv1.2,TLSv1.3` or `TLSv1.2+`, and the names that we cannot
/// serve. An empty result means that nothing usable was named.
pub fn versions(list: &str) -> (Vec<&'static SupportedProtocolVersion>, Vec<String>) {
    let (mut v12, mut v13) = (false, false);
    let mut unknown = Vec::new();
    for name in list.split([',', ' ', '\t']).filter(|s| !s.is_empty()) {
        match name {
            "TLSv1+" | "TLSv1.1+" | "TLSv1.2+" => (v12, v13) = (true, true),
            "TLSv1.2" => v12 = true,
            "TLSv1.3" | "TLSv1.3+" => v13 = true,
            _ => unknown.push(name.to_string()),
        }
    }
    let mut out = Vec::new();
    if v13 {
        out.push(&version::TLS13);
    }
    if v12 {
        out.push(&version::TLS12);
    }
    (out, unknown)
}

/// Suites of TLS 1.2 that a cipher string names, in its order, and the words that mean nothing
/// to us. Exclusions and strength orders are met by all that we have.
pub fn ciphers(list: &str) -> (Vec<SupportedCipherSuite>, Vec<String>) {
    let mut out = Vec::new();
    let mut unknown = Vec::new();
    let mut add = |s: SupportedCipherSuite| {
        if !out.contains(&s) {
            out.push(s);
        }
    };
    for word in list.split([':', ',', ' ']).filter(|s| !s.is_empty()) {
        if word.starts_with(['!', '-', '+', '@']) {
            continue;
        }
        if GROUPS.contains(&word) {
            SUITES.iter().filter(|(_, s)| !is_tls13(s)).for_each(|(_, s)| add(*s));
        } else if let Some((_, s)) = SUITES.iter().find(|(n, s)| *n == word && !is_tls13(s)) {
            add(*s);
        } else {
            unknown.push(word.to_string());
        }
    }
    (out, unknown)
}

/// Suites of TLS 1.3 by name.
pub fn ciphersuites(list: &str) -> (Vec<SupportedCipherSuite>, Vec<String>) {
    let mut out: Vec<SupportedCipherSuite> = Vec::new();
    let mut unknown = Vec::new();
    for word in list.split([':', ',', ' ']).filter(|s| !s.is_empty()) {
        match SUITES.iter().find(|(n, s)| *n == word && is_tls13(s)) {
            Some((_, s)) if out.contains(s) => {}
            Some((_, s)) => out.push(*s),
            None => unknown.push(word.to_string()),
        }
    }
    (out, unknown)
}

/// All suites of TLS 1.2, or of 1.3.
pub fn all(tls13: bool) -> Vec<SupportedCipherSuite> {
    SUITES.iter().map(|(_, s)| *s).filter(|s| is_tls13(s) == tls13).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_names() {
        let check = |list: &str, n: usize, unknown: &[&str]| {
            let (v, u) = versions(list);
            assert_eq!((v.len(), u), (n, unknown.iter().map(|s| s.to_string()).collect()), "{list}");
        };
        check("TLSv1.2", 1, &[]);
        check("TLSv1.2,TLSv1.3", 2, &[]);
        check("TLSv1.2+", 2, &[]);
        check("TLSv1, TLSv1.1 TLSv1.2", 1, &["TLSv1", "TLSv1.1"]);
        check("", 0, &[]);

        let check = |list: &str, n: usize, unknown: &[&str]| {
            let (v, u) = ciphers(list);
            assert_eq!((v.len(), u), (n, unknown.iter().map(|s| s.to_string()).collect()), "{list}");
        };
        check("HIGH:!aNULL:!MD5", 6, &[]);
        check("DEFAULT:@SECLEVEL=2", 6, &[]);
        check("ECDHE-RSA-AES256-GCM-SHA384", 1, &[]);
        check("AES256-SHA:ECDHE-RSA-AES256-GCM-SHA384", 1, &["AES256-SHA"]);
        check("TLS_AES_128_GCM_SHA256", 0, &["TLS_AES_128_GCM_SHA256"]);
        assert_eq!(ciphersuites("TLS_AES_128_GCM_SHA256:x").0.len(), 1);
        assert_eq!(ciphersuites("TLS_AES_128_GCM_SHA256:x").1, ["x"]);
    }
}
