//! Measuring: cases run in turn, the lowest decile counts; instructions are counted by callgrind.

use std::process::{Command, Stdio};

/// Something that is measured by packets. `run` does a bit of work and says how many it was.
pub struct Case {
    pub name: String,
    /// A case of the same packets without the datapath, whose cost is taken off.
    pub base: Option<usize>,
    /// Does a bit of work, some thousand packets, and says how many.
    pub run: Box<dyn FnMut() -> usize>,
    /// Ticks a packet, a value a round.
    rounds: Vec<f64>,
}

impl Case {
    pub fn new(name: impl Into<String>, base: Option<usize>, run: impl FnMut() -> usize + 'static) -> Case {
        Case { name: name.into(), base, run: Box::new(run), rounds: Vec::new() }
    }
}

/// Time stamp counter.
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reading the time stamp counter has no preconditions.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::time::Instant;
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// What a case came to.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    /// Ticks a packet: lowest decile and median, the base taken off.
    pub low: f64,
    pub median: f64,
    pub instructions: Option<f64>,
}

/// How a bench is run.
#[derive(Clone, Debug)]
pub struct Run {
    pub bench: String,
    pub rounds: usize,
    /// Only cases whose name starts so.
    pub only: Option<String>,
    /// Count the instructions of this one case, by its number, and do nothing else.
    pub count: Option<usize>,
    pub callgrind: bool,
}

impl Run {
    /// Measures the cases in turn and prints the table.
    pub fn measure(&self, mut cases: Vec<Case>) -> Vec<Row> {
        if let Some(n) = self.count {
            let case = &mut cases[n];
            // Caches, rankings and allocations settle first.
            (case.run)();
            (case.run)();
            println!("PACKETS {}", counted(&mut case.run));
            std::process::exit(0);
        }
        let wanted: Vec<bool> =
            cases.iter().map(|c| self.only.as_ref().is_none_or(|o| c.name.starts_with(o))).collect();
        let needed = |i: usize| wanted[i] || (0..wanted.len()).any(|j| wanted[j] && cases[j].base == Some(i));
        let needed: Vec<bool> = (0..cases.len()).map(needed).collect();
        for round in 0..self.rounds + 1 {
            for (case, _) in cases.iter_mut().zip(&needed).filter(|(_, n)| **n) {
                let start = ticks();
                let packets = (case.run)();
                // The first round warms up.
                if round > 0 {
                    case.rounds.push((ticks() - start) as f64 / packets.max(1) as f64);
                }
            }
        }
        let mut instructions = vec![None; cases.len()];
        if self.callgrind {
            for i in (0..cases.len()).filter(|i| needed[*i]) {
                instructions[i] = self.instructions(i);
            }
        }
        let mut rows = Vec::new();
        for i in (0..cases.len()).filter(|i| wanted[*i]) {
            let net = |share| {
                let base = cases[i].base.map_or(0.0, |b| quantile(&cases[b].rounds, share));
                quantile(&cases[i].rounds, share) - base
            };
            let count = instructions[i].map(|n| n - cases[i].base.and_then(|b| instructions[b]).unwrap_or(0.0));
            rows.push(Row { name: cases[i].name.clone(), low: net(10), median: net(50), instructions: count });
        }
        for row in &rows {
            let count = row.instructions.map_or(String::new(), |n| format!("{n:8.1} instructions"));
            println!("{:40} {:8.1} cycles a packet (median {:.1}){count}", row.name, row.low, row.median);
        }
        rows
    }

    /// Instructions a packet of one case, if valgrind is there.
    fn instructions(&self, case: usize) -> Option<f64> {
        let exe = std::env::current_exe().ok()?;
        let out = Command::new("valgrind")
            .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*measure::counted*"])
            .arg("--callgrind-out-file=/dev/null")
            .arg(exe)
            .args([self.bench.as_str(), "--count", &case.to_string()])
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let number = |text: &[u8], before: &str| {
            let text = String::from_utf8_lossy(text).into_owned();
            let line = text.lines().find(|l| l.contains(before))?;
            line.split(before).nth(1)?.split_whitespace().find_map(|w| w.parse::<f64>().ok())
        };
        let packets = number(&out.stdout, "PACKETS")?;
        Some(number(&out.stderr, "Collected")? / packets)
    }
}

/// What callgrind looks at.
#[inline(never)]
fn counted(run: &mut dyn FnMut() -> usize) -> usize {
    std::hint::black_box(run())
}

/// The value below which `share` percent lie.
pub fn quantile(values: &[f64], share: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() * share / 100).copied().unwrap_or(f64::NAN)
}

/// The last line: what programs read. Names of cases become keys.
pub fn result(rows: &[Row], more: &[(&str, String)]) {
    let mut line = String::from("RESULT");
    for row in rows {
        let key: String = row.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        line += &format!(" {key}={:.1}", row.low);
        if let Some(n) = row.instructions {
            line += &format!(" {key}_instructions={n:.1}");
        }
    }
    for (key, value) in more {
        line += &format!(" {key}={value}");
    }
    println!("{line}");
}
