//! Conjunctive matches: what the rules that are only parts of a match decide together.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::rule::{ClsRule, Version};
use crate::subtable::Subtable;

/// A rule that matched and is a part.
pub(crate) struct Soft<'a, R> {
    pub subtable: &'a Subtable<R>,
    pub rule: Arc<ClsRule<R>>,
}

pub(crate) type Softs<'a, R> = SmallVec<[Soft<'a, R>; 8]>;

fn priority<R>(r: &Option<Arc<ClsRule<R>>>) -> i32 {
    r.as_ref().map_or(i32::MIN, |r| r.priority())
}

/// The conjunction that the parts of priority `p` complete, if any.
fn complete<R>(softs: &Softs<'_, R>, p: i32) -> Option<u32> {
    let mut seen: SmallVec<[(u32, u64); 8]> = SmallVec::new();
    for c in softs.iter().filter(|s| s.rule.priority() == p).flat_map(|s| s.rule.conjunctions()) {
        let i = seen.iter().position(|(id, _)| *id == c.id).unwrap_or_else(|| {
            seen.push((c.id, 0));
            seen.len() - 1
        });
        seen[i].1 |= 1 << (c.clause & 63);
        if seen[i].1.count_ones() >= u32::from(c.n_clauses) {
            return Some(c.id);
        }
    }
    None
}

/// Decides between `hard`, the best rule that stands alone, and the parts that matched. `by_id` looks
/// up the same packet with `conj_id` set, among rules that stand alone.
pub(crate) fn resolve<R>(
    version: Version,
    mut hard: Option<Arc<ClsRule<R>>>,
    mut softs: Softs<'_, R>,
    mut by_id: impl FnMut(u32) -> Option<Arc<ClsRule<R>>>,
) -> Option<Arc<ClsRule<R>>> {
    loop {
        softs.retain(|s| s.rule.priority() > priority(&hard));
        let Some(p) = softs.iter().map(|s| s.rule.priority()).max() else { return hard };
        if let Some(found) = complete(&softs, p).and_then(&mut by_id) {
            return Some(found);
        }
        // Nothing at this priority: each part gives way to the next rule of its very match.
        softs.retain(|s| {
            if s.rule.priority() < p {
                return true;
            }
            match s.subtable.next_below(&s.rule, version) {
                Some(r) if r.conjunctions().is_empty() => {
                    if r.priority() > priority(&hard) {
                        hard = Some(r);
                    }
                    false
                }
                Some(r) => {
                    s.rule = r;
                    true
                }
                None => false,
            }
        });
    }
}
