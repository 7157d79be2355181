//! Log line patterns: `%` escapes with optional `-` (left), `0` (zeros) and a width.

use std::fmt::Write;

use fv_core::Nanos;

use super::Level;

/// What a line is made from.
pub struct Line<'a> {
    pub program: &'a str,
    pub module: &'a str,
    pub level: Level,
    pub message: &'a str,
    /// Number of the message within its thread.
    pub number: u64,
    /// Empty for the main thread.
    pub thread: &'a str,
    pub host: &'a str,
    pub facility: u8,
    /// Wall clock.
    pub wall: Nanos,
    pub since_start: Nanos,
}

/// Dates are UTC for `%D`, local time for `%d`.
const DEFAULT_DATE: &str = "%Y-%m-%d %H:%M:%S.###";
/// Width of a field: no more than a line that somebody could read.
const WIDTH_MAX: usize = 512;

pub fn format(pattern: &str, line: &Line<'_>) -> String {
    let mut out = String::with_capacity(line.message.len() + 64);
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = one(&rest[at + 1..], line, &mut out);
    }
    out.push_str(rest);
    out
}

/// One escape, `s` starting after its `%`. Returns what follows.
fn one<'p>(s: &'p str, line: &Line<'_>, out: &mut String) -> &'p str {
    let left = s.starts_with('-');
    let s = s.strip_prefix('-').unwrap_or(s);
    let zero = s.starts_with('0');
    let digits = s.bytes().take_while(u8::is_ascii_digit).count();
    let width = s[..digits].parse().unwrap_or(0).min(WIDTH_MAX);
    let s = &s[digits..];
    let Some(escape) = s.chars().next() else { return "" };
    let mut s = &s[escape.len_utf8()..];
    // `%c{1}`, `%d{FORMAT}`.
    let mut braced = "";
    if matches!(escape, 'd' | 'D')
        && let Some(b) = s.strip_prefix('{')
        && let Some((inner, after)) = b.split_once('}')
    {
        (braced, s) = (inner, after);
    }
    let mut field = String::new();
    let _ = match escape {
        'A' => write!(field, "{}", line.program),
        'B' => write!(field, "{}", u32::from(line.facility) * 8 + u32::from(line.level.severity())),
        'c' => write!(field, "{}", line.module),
        'd' | 'D' => {
            let fmt = if braced.is_empty() { DEFAULT_DATE } else { braced };
            write!(field, "{}", date(fmt, line.wall, escape == 'd'))
        }
        'E' => write!(field, "{}", line.host),
        'm' => write!(field, "{}", line.message),
        'N' => write!(field, "{}", line.number),
        'n' => writeln!(field),
        'p' => write!(field, "{}", line.level),
        'P' => write!(field, "{}", std::process::id()),
        'r' => write!(field, "{}", line.since_start.ms()),
        't' => write!(field, "{}", if line.thread.is_empty() { "main" } else { line.thread }),
        'T' if line.thread.is_empty() => Ok(()),
        'T' => write!(field, "({})", line.thread),
        c => write!(field, "{c}"),
    };
    let pad = width.saturating_sub(field.chars().count());
    match (left, zero) {
        (true, _) => out.extend([field.as_str(), &" ".repeat(pad)]),
        (false, true) => out.extend([&"0".repeat(pad), field.as_str()]),
        (false, false) => out.extend([&" ".repeat(pad), field.as_str()]),
    }
    s
}

/// `strftime`, plus one digit of the fraction of a second for each `#`.
fn date(format: &str, wall: Nanos, local: bool) -> String {
    let text = crate::sys::strftime(format, wall.secs() as i64, local);
    let mut fraction = wall.0 % 1_000_000_000;
    let digit = |c| {
        if c != '#' {
            return c;
        }
        let d = (fraction / 100_000_000) as u8;
        fraction = fraction % 100_000_000 * 10;
        char::from(b'0' + d)
    };
    text.chars().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        let check = |pattern: &str, expected: &str| {
            let line = Line {
                program: "prog",
                module: "mod",
                level: Level::Warn,
                message: "text",
                number: 7,
                thread: "pmd1",
                host: "host",
                facility: 3,
                wall: Nanos(1_700_000_000_123_456_789),
                since_start: Nanos::from_ms(42),
            };
            assert_eq!(format(pattern, &line), expected, "{pattern}");
        };
        check("%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m", "2023-11-14T22:13:20.123Z|00007|mod(pmd1)|WARN|text");
        check("%D", "2023-11-14 22:13:20.123");
        check("%D{%H}x", "22x");
        check("%D{%p", "2023-11-14 22:13:20.123{WARN");
        check("<%B>%A %E %t %r", "<28>prog host pmd1 42");
        check("%5p|%-5p|", " WARN|WARN |");
        check("100%%", "100%");
        check("%q%", "q");
        check("%", "");
        check("%-", "");
        check("%99999999999m", &format!("{:>WIDTH_MAX$}", "text"));
        check("plain", "plain");
    }
}
