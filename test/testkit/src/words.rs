//! Splits a command line into words: blanks separate, single or double quotes keep together.

/// Words of `line`. Quotes may stand inside a word; there is no escaping.
pub fn words(line: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for c in line.chars() {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => out.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    out.extend(word);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_and_keeps() {
        let check = |line: &str, expected: &[&str]| assert_eq!(words(line), expected, "{line}");
        check("", &[]);
        check("  a  b ", &["a", "b"]);
        check("a 'b c' \"d 'e\" f''g", &["a", "b c", "d 'e", "fg"]);
        check("''", &[""]);
        check("x='1 2'", &["x=1 2"]);
    }
}
