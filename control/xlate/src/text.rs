//! Text of matches and actions for the account.

use fv_flow::Match;
use fv_openflow::action::Action;

pub fn format_match(m: &Match) -> String {
    fv_flow::text::format_match(m, None, fv_flow::text::Style::Rule)
}

pub fn format_action(a: &Action) -> String {
    format!("{a:?}")
}

pub fn format_actions(a: &[Action]) -> String {
    format!("{a:?}")
}
