//! Figures of two sides and their ratios.

/// One measured quantity on both sides, a pair for each round.
pub struct Row {
    pub name: String,
    pairs: Vec<(f64, f64)>,
}

impl Row {
    pub fn new(name: impl Into<String>) -> Row {
        Row { name: name.into(), pairs: Vec::new() }
    }

    pub fn push(&mut self, reference: f64, ours: f64) {
        self.pairs.push((reference, ours));
    }

    /// Median over the rounds of ours / reference.
    pub fn ratio(&self) -> f64 {
        median(self.pairs.iter().map(|(r, o)| o / r.max(1e-9)))
    }

    pub fn print(&self, unit: &str) {
        let r = median(self.pairs.iter().map(|p| p.0));
        let o = median(self.pairs.iter().map(|p| p.1));
        println!("{:34} {:>10.3} {:>10.3} {unit:4} {:>6.2}", self.name, r, o, self.ratio());
    }
}

pub fn head() {
    println!("{:34} {:>10} {:>10} {:4} {:>6}", "", "reference", "ours", "", "ratio");
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut v: Vec<f64> = values.collect();
    v.sort_by(f64::total_cmp);
    v.get(v.len() / 2).copied().unwrap_or(f64::NAN)
}
