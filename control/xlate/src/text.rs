//! Text of matches and actions for the account.
use fv_flow::Match;
pub fn format_match(m: &Match) -> String {
    format!("{m:?}")
}
