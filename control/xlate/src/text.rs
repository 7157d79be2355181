//! Text of matches and actions for the account.

use fv_core::OfPort;
use fv_flow::Match;
use fv_flow::text::{PortNames, Style};
use fv_openflow::action::Action;
use fv_openflow::text::Names;

use crate::ctx::Ctx;

/// Actions with numbers of ports.
pub fn format_actions(a: &[Action]) -> String {
    fv_openflow::text::format_actions(a, Names::default())
}

impl Ctx<'_> {
    pub fn match_text(&self, m: &Match) -> String {
        self.with_names(|ports| fv_flow::text::format_match(m, ports, Style::Rule))
    }

    pub fn action_text(&self, a: &Action) -> String {
        self.with_names(|ports| fv_openflow::text::format_action(a, Names { ports, ..Names::default() }))
    }

    pub fn actions_text(&self, a: &[Action]) -> String {
        self.with_names(|ports| fv_openflow::text::format_actions(a, Names { ports, ..Names::default() }))
    }

    /// Ports are those of the current bridge.
    fn with_names(&self, f: impl FnOnce(Option<PortNames<'_>>) -> String) -> String {
        let name = |p: OfPort| self.br.ports.get(&p).map(|p| p.name.clone());
        f(if self.inp.names { Some(&name) } else { None })
    }
}
