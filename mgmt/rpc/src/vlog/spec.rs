//! Specs of `-v` and `vlog/set`: `[MODULE][:DESTINATION][:LEVEL]` in any order,
//! `PATTERN:DESTINATION:PATTERN`, `FACILITY:NAME`.

use super::state::{STATE, is_module, set_level};
use super::{Destination, Level};

/// Facility names by number.
const FACILITIES: &[(&str, u8)] = &[
    ("kern", 0),
    ("user", 1),
    ("mail", 2),
    ("daemon", 3),
    ("auth", 4),
    ("syslog", 5),
    ("lpr", 6),
    ("news", 7),
    ("uucp", 8),
    ("clock", 9),
    ("ftp", 11),
    ("ntp", 12),
    ("audit", 13),
    ("alert", 14),
    ("clock2", 15),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];

/// A spec, understood.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Spec {
    Level { module: Option<String>, destination: Option<Destination>, level: Level },
    Pattern { destination: Option<Destination>, pattern: String },
    Facility(u8),
}

/// Applies one spec. Errors are what the reference's tools print.
pub fn set(spec: &str) -> Result<(), String> {
    match parse(spec, is_module)? {
        Spec::Level { module, destination, level } => set_level(module.as_deref(), destination, level),
        Spec::Pattern { destination, pattern } => {
            let mut s = STATE.lock();
            for d in Destination::ALL.into_iter().filter(|d| destination.is_none_or(|o| o == *d)) {
                s.patterns[d as usize] = pattern.clone();
            }
        }
        Spec::Facility(n) => STATE.lock().facility = n,
    }
    Ok(())
}

fn parse(spec: &str, module_of: impl Fn(&str) -> Option<String>) -> Result<Spec, String> {
    let starts = |word: &str| spec.get(..word.len()).is_some_and(|s| s.eq_ignore_ascii_case(word));
    if starts("PATTERN:") {
        return pattern(&spec["PATTERN:".len()..]);
    }
    if starts("FACILITY:") {
        let name = &spec["FACILITY:".len()..];
        let found = FACILITIES.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        return found.map(|(_, n)| Spec::Facility(*n)).ok_or_else(|| "invalid facility".into());
    }
    let (mut module, mut destination, mut level) = (None, None, None);
    for word in spec.split([' ', ',', ':']).filter(|w| !w.is_empty()) {
        if let Some(l) = Level::parse(word) {
            put(&mut level, l, "levels")?;
        } else if let Some(d) = Destination::parse(word) {
            put(&mut destination, d, "destinations")?;
        } else if word.eq_ignore_ascii_case("any") {
            // Stands for all modules or all destinations, which is what saying nothing means.
        } else if let Some(m) = module_of(word) {
            put(&mut module, m, "modules")?;
        } else {
            return Err(format!("no destination, level, or module \"{word}\""));
        }
    }
    Ok(Spec::Level { module, destination, level: level.unwrap_or(Level::Dbg) })
}

fn put<T>(slot: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("cannot specify multiple {what}")),
    }
}

fn pattern(rest: &str) -> Result<Spec, String> {
    let (dest, pattern) = rest.split_once(':').unwrap_or((rest, ""));
    let destination = match dest {
        "" => return Err("missing destination".into()),
        d if d.eq_ignore_ascii_case("any") => None,
        d => Some(Destination::parse(d).ok_or_else(|| format!("unknown destination \"{d}\""))?),
    };
    Ok(Spec::Pattern { destination, pattern: pattern.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs() {
        let modules = |w: &str| ["jsonrpc", "vlog"].iter().find(|m| **m == w).map(|m| m.to_string());
        let check = |spec: &str, expected: &str| {
            let got = match parse(spec, modules) {
                Ok(Spec::Level { module, destination, level }) => {
                    let d = destination.map_or("any", Destination::name);
                    format!("{} {d} {level}", module.as_deref().unwrap_or("any"))
                }
                Ok(Spec::Pattern { destination, pattern }) => {
                    format!("{}={pattern}", destination.map_or("any", Destination::name))
                }
                Ok(Spec::Facility(n)) => n.to_string(),
                Err(e) => e,
            };
            assert_eq!(got, expected, "{spec}");
        };
        check("", "any any DBG");
        check(" ", "any any DBG");
        check(":::", "any any DBG");
        check("any", "any any DBG");
        check("any any any", "any any DBG");
        check("jsonrpc", "jsonrpc any DBG");
        check("ANY:file:ERR", "any FILE ERR");
        check("jsonrpc,file,warn", "jsonrpc FILE WARN");
        check("console:off", "any CONSOLE OFF");
        check("dbg info", "cannot specify multiple levels");
        check("file console", "cannot specify multiple destinations");
        check("jsonrpc vlog", "cannot specify multiple modules");
        check("foo", "no destination, level, or module \"foo\"");
        check("console:foo", "no destination, level, or module \"foo\"");
        check("PATTERN:foo:x", "unknown destination \"foo\"");
        check("PATTERN:", "missing destination");
        check("PATTERN:file", "FILE=");
        check("pattern:any:%m:x", "any=%m:x");
        check("FACILITY:local0", "16");
        check("FACILITY:", "invalid facility");
    }
}
