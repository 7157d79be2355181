//! Pieces of the grammar: `key`, `key:value`, `key=value`, `key(value)`, separated by commas or spaces.

use super::parse::Error;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KeyValue<'a> {
    pub key: &'a str,
    /// Empty if there is none.
    pub value: &'a str,
}

/// A key with what a `)` was followed by, e.g. `->NXM_NX_REG0[0]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Item<'a> {
    pub key: &'a str,
    pub value: &'a str,
    pub tail: &'a str,
}

fn is_separator(c: char) -> bool {
    c == ',' || c.is_ascii_whitespace()
}

/// Bytes up to a separator that is not inside parentheses.
fn until_separator(s: &str) -> Result<usize, Error> {
    let mut depth = 0u32;
    for (i, c) in s.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1).ok_or_else(|| Error::text(format!("{s}: unbalanced parenthesis")))?,
            c if depth == 0 && is_separator(c) => return Ok(i),
            _ => {}
        }
    }
    if depth == 0 { Ok(s.len()) } else { Err(Error::text(format!("{s}: unbalanced parenthesis"))) }
}

/// The next item, and the rest of the text.
fn item(s: &str) -> Result<(Item<'_>, &str), Error> {
    let key_len = s.find(|c: char| is_separator(c) || matches!(c, ':' | '=' | '(')).unwrap_or(s.len());
    let (key, rest) = s.split_at(key_len);
    let body = &rest[until_separator(rest).map(|_| 0)?..];
    let len = until_separator(body)?;
    let (body, rest) = body.split_at(len);
    let (value, tail) = match body.chars().next() {
        Some(':' | '=') => (&body[1..], ""),
        Some('(') => {
            let close = matching_paren(body).ok_or_else(|| Error::text(format!("{body}: unbalanced parenthesis")))?;
            (&body[1..close], &body[close + 1..])
        }
        _ => ("", ""),
    };
    Ok((Item { key, value, tail }, rest))
}

fn matching_paren(s: &str) -> Option<usize> {
    let mut depth = 0;
    s.char_indices().find_map(|(i, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(i)
    })
}

pub(super) fn items(s: &str) -> Result<Vec<Item<'_>>, Error> {
    let mut out = Vec::new();
    let mut rest = s.trim_start_matches(is_separator);
    while !rest.is_empty() {
        let (i, r) = item(rest)?;
        out.push(i);
        rest = r.trim_start_matches(is_separator);
    }
    Ok(out)
}

pub(super) fn key_values(s: &str) -> Result<Vec<KeyValue<'_>>, Error> {
    Ok(items(s)?.into_iter().map(|i| KeyValue { key: i.key, value: i.value }).collect())
}

/// `FROM->TO`.
pub(super) fn arrow(s: &str) -> Result<(&str, &str), Error> {
    s.split_once("->").ok_or_else(|| Error::text(format!("{s}: missing `->'")))
}

/// Decimal, or hexadecimal with 0x.
pub(super) fn number128(s: &str) -> Option<u128> {
    let s = s.trim();
    let (digits, radix) = match s.strip_prefix("0x").or_else(|| s.strip_prefix("0X")) {
        Some(h) => (h, 16),
        None => (s, 10),
    };
    if digits.starts_with('+') { None } else { u128::from_str_radix(digits, radix).ok() }
}

pub(super) fn number(s: &str) -> Option<u64> {
    number128(s).and_then(|n| u64::try_from(n).ok())
}

macro_rules! sized {
    ($name:ident, $t:ty) => {
        pub(super) fn $name(s: &str, what: &str) -> Result<$t, Error> {
            number(s).and_then(|n| <$t>::try_from(n).ok()).ok_or_else(|| Error::text(format!("invalid {what} \"{s}\"")))
        }
    };
}
sized!(u8, u8);
sized!(u16, u16);
sized!(u32, u32);

pub(super) fn u64(s: &str, what: &str) -> Result<u64, Error> {
    number(s).ok_or_else(|| Error::text(format!("{s}: invalid {what}")))
}

/// Pairs of hexadecimal digits, with dots between them or not.
pub(super) fn hex_bytes(s: &str) -> Option<Vec<u8>> {
    let digits: String = s.chars().filter(|c| *c != '.').collect();
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).ok()).collect()
}
