//! Settings of poll workers: the `pmd-*` and `tx-*` keys of `other_config`.

use std::collections::BTreeMap;

use crate::spec::Options;

/// Longest sleep of a worker, in microseconds.
const SLEEP_MAX_US: u32 = 10_000;
/// Longest wait of packets that are ready to be sent, in microseconds.
const FLUSH_MAX_US: u32 = 1_000_000;
/// Most minutes between two rebalancings.
const REBALANCE_MAX_MIN: u32 = 20_000;

/// `pmd-rxq-assign`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RxqAssign {
    #[default]
    Cycles,
    RoundRobin,
    Group,
}

/// What `Open_vSwitch:other_config` says of poll workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PmdSpec {
    /// Hexadecimal digits of `pmd-cpu-mask`, if set and legal.
    pub cpu_mask: Option<String>,
    pub assign: RxqAssign,
    /// Workers with a pinned queue get no others.
    pub isolate: bool,
    pub auto_lb: bool,
    pub lb_load_pct: u8,
    pub lb_improvement_pct: u8,
    pub lb_interval_min: u32,
    pub max_sleep_us: u32,
    /// Cores with a longest sleep of their own.
    pub core_max_sleep_us: BTreeMap<u32, u32>,
    pub perf_metrics: bool,
    pub tx_flush_interval_us: u32,
}

impl Default for PmdSpec {
    fn default() -> PmdSpec {
        PmdSpec {
            cpu_mask: None,
            assign: RxqAssign::Cycles,
            isolate: true,
            auto_lb: false,
            lb_load_pct: 95,
            lb_improvement_pct: 25,
            lb_interval_min: 1,
            max_sleep_us: 0,
            core_max_sleep_us: BTreeMap::new(),
            perf_metrics: false,
            tx_flush_interval_us: 0,
        }
    }
}

impl PmdSpec {
    pub fn parse(o: &Options, diag: &mut Vec<String>) -> PmdSpec {
        let mut p = PmdSpec { cpu_mask: cpu_mask(o, diag), ..PmdSpec::default() };
        let on = |key: &str| o.get(key).is_some_and(|v| v == "true");
        p.assign = match o.get("pmd-rxq-assign").map(String::as_str) {
            None | Some("cycles") => RxqAssign::Cycles,
            Some("roundrobin") => RxqAssign::RoundRobin,
            Some("group") => RxqAssign::Group,
            Some(_) => {
                diag.push(
                    "Unsupported rx queue to PMD assignment mode in pmd-rxq-assign, defaulting to 'cycles'.".into(),
                );
                RxqAssign::Cycles
            }
        };
        p.isolate = o.get("pmd-rxq-isolate").is_none_or(|v| v != "false");
        if !p.isolate && p.assign != RxqAssign::Group {
            diag.push("pmd-rxq-isolate can only be set false when using pmd-rxq-assign=group".into());
            p.isolate = true;
        }
        p.auto_lb = on("pmd-auto-lb");
        p.lb_load_pct = number(o, "pmd-auto-lb-load-threshold", 95, 100, diag) as u8;
        p.lb_improvement_pct = number(o, "pmd-auto-lb-improvement-threshold", 25, 100, diag) as u8;
        // Zero is as often as possible.
        p.lb_interval_min = number(o, "pmd-auto-lb-rebal-interval", 1, REBALANCE_MAX_MIN, diag).max(1);
        // The older name counts where the newer is not set.
        for key in ["pmd-sleep-max", "pmd-maxsleep"] {
            if let Some(text) = o.get(key) {
                (p.max_sleep_us, p.core_max_sleep_us) = sleeps(key, text, diag);
                break;
            }
        }
        p.perf_metrics = on("pmd-perf-metrics");
        p.tx_flush_interval_us = number(o, "tx-flush-interval", 0, FLUSH_MAX_US, diag);
        p
    }
}

fn cpu_mask(o: &Options, diag: &mut Vec<String>) -> Option<String> {
    let text = o.get("pmd-cpu-mask")?;
    let digits = text.trim().trim_start_matches("0x").trim_start_matches("0X");
    let ok = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if !ok {
        diag.push(format!("invalid pmd-cpu-mask: \"{text}\""));
    }
    ok.then(|| digits.to_string())
}

/// The default where there is no number between 0 and `max`.
fn number(o: &Options, key: &str, default: u32, max: u32, diag: &mut Vec<String>) -> u32 {
    let Some(text) = o.get(key) else { return default };
    match text.trim().parse::<u32>() {
        Ok(n) if n <= max => n,
        _ => {
            diag.push(format!("{key}: \"{text}\" is not a number from 0 to {max}, using {default}"));
            default
        }
    }
}

/// `N`, `CORE:N`, or a list of them: the default and the cores' own.
fn sleeps(key: &str, text: &str, diag: &mut Vec<String>) -> (u32, BTreeMap<u32, u32>) {
    let (mut default, mut cores) = (0, BTreeMap::new());
    for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        let (core, us) = match word.split_once(':') {
            Some((core, us)) => (Some(core.trim().parse::<u32>()), us.trim()),
            None => (None, word),
        };
        let us = us.parse::<u32>().ok();
        if us.is_some_and(|us| us > SLEEP_MAX_US) {
            diag.push(format!("{key}: \"{word}\" is longer than {SLEEP_MAX_US} us, using {SLEEP_MAX_US}"));
        }
        match (core, us.map(|us| us.min(SLEEP_MAX_US))) {
            (None, Some(us)) => default = us,
            (Some(Ok(core)), Some(us)) => {
                cores.insert(core, us);
            }
            _ => diag.push(format!("{key}: \"{word}\" is neither microseconds nor core:microseconds, ignored")),
        }
    }
    (default, cores)
}

/// `pmd-rxq-affinity`: pairs of queue and core. A text that is not such a list pins nothing.
pub fn affinity(text: &str) -> Result<Vec<(usize, u32)>, String> {
    let pair = |word: &str| -> Option<(usize, u32)> {
        let (queue, core) = word.split_once(':')?;
        Some((queue.trim().parse().ok()?, core.trim().parse().ok().filter(|c| *c < i32::MAX as u32)?))
    };
    let words = text.split(',').map(str::trim).filter(|w| !w.is_empty());
    words.map(|w| pair(w).ok_or_else(|| format!("pmd-rxq-affinity: \"{w}\" is not queue:core"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> (PmdSpec, Vec<String>) {
        let o = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let mut diag = Vec::new();
        let p = PmdSpec::parse(&o, &mut diag);
        (p, diag)
    }

    #[test]
    fn defaults() {
        assert_eq!(parse(&[]), (PmdSpec::default(), vec![]));
    }

    #[test]
    fn every_form_of_sleep() {
        for (text, default, cores, bad) in [
            ("50", 50, &[][..], 0),
            ("0", 0, &[], 0),
            ("3:100", 0, &[(3, 100)], 0),
            ("50,3:100,4:0", 50, &[(3, 100), (4, 0)], 0),
            ("3:100,50", 50, &[(3, 100)], 0),
            (" 50 , 3 : 100 ,", 50, &[(3, 100)], 0),
            ("3:100,3:200,5,6", 6, &[(3, 200)], 0),
            ("20000,1:10001", 10_000, &[(1, 10_000)], 2),
            ("x", 0, &[], 1),
            ("50,x:3,3:x,-1:5,3:-5,:,3:4:5", 50, &[], 6),
            ("", 0, &[], 0),
            ("99999999999", 0, &[], 1),
        ] {
            let (p, diag) = parse(&[("pmd-sleep-max", text)]);
            assert_eq!((p.max_sleep_us, p.core_max_sleep_us), (default, cores.iter().copied().collect()), "{text}");
            assert_eq!(diag.len(), bad, "{text}: {diag:?}");
        }
        assert_eq!(parse(&[("pmd-maxsleep", "70")]).0.max_sleep_us, 70);
        assert_eq!(parse(&[("pmd-maxsleep", "70"), ("pmd-sleep-max", "80")]).0.max_sleep_us, 80);
    }

    #[test]
    fn bad_values_are_named_and_change_nothing() {
        let (p, diag) = parse(&[
            ("pmd-rxq-assign", "foo"),
            ("pmd-rxq-isolate", "false"),
            ("pmd-auto-lb-load-threshold", "150"),
            ("pmd-auto-lb-improvement-threshold", "x"),
            ("pmd-auto-lb-rebal-interval", "0"),
            ("tx-flush-interval", "1000001"),
            ("pmd-cpu-mask", "foo"),
        ]);
        assert_eq!(p, PmdSpec::default());
        assert_eq!(diag.len(), 6, "{diag:?}");
        let (p, diag) = parse(&[("pmd-rxq-assign", "group"), ("pmd-rxq-isolate", "false"), ("pmd-cpu-mask", "0xF0")]);
        assert_eq!((p.isolate, p.assign, p.cpu_mask.as_deref()), (false, RxqAssign::Group, Some("F0")));
        assert_eq!(diag, [""; 0]);
    }

    #[test]
    fn affinities() {
        assert_eq!(affinity("0:3, 1:7,"), Ok(vec![(0, 3), (1, 7)]));
        assert_eq!(affinity(""), Ok(vec![]));
        for bad in ["0", "0:x", "x:0", "0:-1", "0:3,1", "0:4294967295"] {
            assert!(affinity(bad).is_err(), "{bad}");
        }
    }
}
