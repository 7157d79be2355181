//! The daemon's log: nothing in it may be wrong that the test did not provoke.

/// Warnings that say something of the machine, not of the switch.
const HARMLESS: &[&str] = &[
    "reset by peer",
    "Broken pipe",
    "is not connected",
    "|timeval|WARN|",
    "ovs_rcu",
    "Dropped ",
    "extended ack",
    "ETHTOOL_GSSET_INFO",
    "unreasonably long dump",
];

/// Lines of a log that need an excuse.
pub struct LogCheck<'a> {
    text: &'a str,
    allowed: Vec<&'a str>,
}

impl<'a> LogCheck<'a> {
    pub fn new(text: &'a str) -> LogCheck<'a> {
        LogCheck { text, allowed: Vec::new() }
    }

    /// Lines that hold `part` are what the test wanted.
    pub fn allow(mut self, part: &'a str) -> LogCheck<'a> {
        self.allowed.push(part);
        self
    }

    pub fn bad_lines(&self) -> Vec<&'a str> {
        let wrong = |l: &str| {
            let error = l.contains("|ERR|") || l.contains("|EMER|");
            let warning = l.contains("|WARN|") && !HARMLESS.iter().any(|h| l.contains(h));
            (error || warning || l.contains("panicked at")) && !self.allowed.iter().any(|a| l.contains(a))
        };
        self.text.lines().filter(|l| wrong(l)).collect()
    }

    #[track_caller]
    pub fn check(&self) {
        let bad = self.bad_lines();
        assert!(bad.is_empty(), "unexpected in the log:\n{}", bad.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_has_no_excuse() {
        let log = "a|b|INFO|fine\na|b|WARN|odd\na|b|WARN|Broken pipe\na|b|ERR|bad\nthread 'x' panicked at y\n";
        assert_eq!(LogCheck::new(log).bad_lines().len(), 3);
        assert_eq!(LogCheck::new(log).allow("odd").allow("bad").allow("panicked").bad_lines().len(), 0);
    }
}
