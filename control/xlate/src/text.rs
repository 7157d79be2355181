//! Text of matches and actions for the account.

use fv_flow::Match;
use fv_openflow::action::Action;
use fv_openflow::text::Names;

pub fn format_match(m: &Match) -> String {
    fv_flow::text::format_match(m, None, fv_flow::text::Style::Rule)
}

pub fn format_action(a: &Action) -> String {
    fv_openflow::text::format_action(a, Names::default())
}

pub fn format_actions(a: &[Action]) -> String {
    fv_openflow::text::format_actions(a, Names::default())
}
