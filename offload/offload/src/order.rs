//! `hw-offload-priority`: which provider is asked first about a port.

/// Provider names, the most wanted first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProviderOrder {
    names: Vec<String>,
    /// `none`: the port stays in software.
    none: bool,
}

impl ProviderOrder {
    /// Parses `"a,b"` or `"none"`. Also returns the names that are not in `known`: each is to be reported
    /// and does nothing.
    pub fn parse<'a>(text: &'a str, known: &[&str]) -> (ProviderOrder, Vec<&'a str>) {
        let (mut order, mut unknown) = (ProviderOrder::default(), Vec::new());
        if text.trim() == "none" {
            order.none = true;
            return (order, unknown);
        }
        for name in text.split([',', ' ', '\t']).filter(|n| !n.is_empty()) {
            if !known.contains(&name) {
                unknown.push(name);
            } else if !order.names.iter().any(|n| n == name) {
                order.names.push(name.into());
            }
        }
        (order, unknown)
    }

    /// The indices of `providers` in the order in which they are asked. Those that are not named come last
    /// unless `self` is an interface's own list (`strict`), which admits no others.
    pub fn sort(&self, providers: &[&str], strict: bool) -> Vec<usize> {
        if self.none {
            return Vec::new();
        }
        let place = |i: &usize| self.names.iter().position(|n| n == providers[*i]).unwrap_or(usize::MAX);
        let strict = strict && !self.names.is_empty();
        let mut all: Vec<usize> = (0..providers.len()).filter(|i| !strict || place(i) != usize::MAX).collect();
        all.sort_by_key(place);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_applied() {
        let known = ["tc", "dpdk", "sim"];
        let sorted = |text, strict| ProviderOrder::parse(text, &known).0.sort(&known, strict);
        assert_eq!(sorted("sim,dpdk", false), [2, 1, 0]);
        assert_eq!(sorted("sim", true), [2]);
        assert_eq!(sorted("", true), [0, 1, 2]);
        assert_eq!(sorted("none", false), [0usize; 0]);
        assert_eq!(ProviderOrder::parse("sim, x,sim", &known).1, ["x"]);
    }
}
