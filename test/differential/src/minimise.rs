//! Makes a case that differs as small as it can be.

use crate::case::Case;

/// Most runs of one search.
const MAX_RUNS: u32 = 150;

/// Removes steps, rules and settings as long as `differs` holds.
pub fn minimise(case: &Case, mut differs: impl FnMut(&Case) -> bool) -> Case {
    let mut best = case.clone();
    let mut runs = 0;
    let mut smaller = |best: &mut Case, smaller: Case| {
        runs += 1;
        let yes = runs <= MAX_RUNS && differs(&smaller);
        if yes {
            *best = smaller;
        }
        yes
    };
    shrink(&mut best, |c| &mut c.steps, &mut smaller);
    for b in 0..2 {
        shrink(&mut best, |c| &mut c.rules[b], &mut smaller);
    }
    shrink(&mut best, |c| &mut c.groups, &mut smaller);
    shrink(&mut best, |c| &mut c.ports, &mut smaller);
    shrink(&mut best, |c| &mut c.port_mods, &mut smaller);
    best
}

/// Takes away halves, quarters, ... and single elements of one list.
fn shrink<T: Clone>(
    best: &mut Case,
    list: impl Fn(&mut Case) -> &mut Vec<T>,
    smaller: &mut impl FnMut(&mut Case, Case) -> bool,
) {
    let mut chunk = list(best).len();
    while chunk > 0 {
        let mut at = 0;
        while at < list(best).len() {
            let mut c = best.clone();
            let l = list(&mut c);
            l.drain(at..(at + chunk).min(l.len()));
            if !smaller(best, c) {
                at += chunk;
            }
        }
        chunk /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_stays() {
        let mut c = Case::new(1);
        c.rules[0] = (0..20).map(|i| i.to_string()).collect();
        let m = minimise(&c, |c| c.rules[0].contains(&"7".to_string()) && c.rules[0].contains(&"13".to_string()));
        assert_eq!(m.rules[0], ["7", "13"]);
        assert!(m.steps.is_empty() && m.rules[1].is_empty());
    }
}
