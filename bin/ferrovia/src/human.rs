//! Numbers and times as people read them.

use std::io::{self, Write};
use std::time::Duration;

/// `1.23 G`: three digits and a decimal prefix.
pub fn rate(x: f64) -> String {
    let (x, prefix) = match x {
        x if x >= 1e9 => (x / 1e9, "G"),
        x if x >= 1e6 => (x / 1e6, "M"),
        x if x >= 1e3 => (x / 1e3, "k"),
        x => return format!("{x:.0}"),
    };
    let digits = if x >= 100.0 { 0 } else { usize::from(x < 10.0) + 1 };
    format!("{x:.digits$} {prefix}")
}

/// `2 d 3 h`: the two largest units.
pub fn span(d: Duration) -> String {
    let s = d.as_secs();
    let (days, hours, minutes) = (s / 86400, s / 3600 % 24, s / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{s} s"),
        (0, 0, m) => format!("{m} min {} s", s % 60),
        (0, h, m) => format!("{h} h {m} min"),
        (d, h, _) => format!("{d} d {h} h"),
    }
}

/// Prints `text` and ends its last line; a closed pipe is an error, not a panic.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.is_empty() && !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        let check = |x, expected: &str| assert_eq!(rate(x), expected);
        check(0.0, "0");
        check(999.0, "999");
        check(1234.0, "1.23 k");
        check(12_345_678.0, "12.3 M");
        check(123.4e9, "123 G");
    }

    #[test]
    fn two_units() {
        let check = |s, expected: &str| assert_eq!(span(Duration::from_secs(s)), expected);
        check(5, "5 s");
        check(65, "1 min 5 s");
        check(3700, "1 h 1 min");
        check(90_000, "1 d 1 h");
    }
}
