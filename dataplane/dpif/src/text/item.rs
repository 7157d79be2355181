//! The one shape of all action text: items between commas, each `word`, `name=value` or `name(items)`.

use std::net::{Ipv4Addr, Ipv6Addr};

use fv_flow::odp;

use super::{TextError, syntax};
use crate::action::Masked;

/// One item, and its parts.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    pub text: &'a str,
    /// Up to `=` or `(`.
    pub name: &'a str,
    /// Behind `=`.
    pub value: Option<&'a str>,
    /// Between the parentheses.
    pub body: Option<&'a str>,
}

/// Splits at the commas (and spaces) that are in no bracket. Empty items vanish.
pub fn items(text: &str) -> Result<Vec<Item<'_>>, TextError> {
    let mut out = Vec::new();
    let mut level = 0usize;
    let mut start = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '{' | '[' => level += 1,
            ')' | '}' | ']' => level = level.checked_sub(1).ok_or_else(|| syntax(&text[at..]))?,
            ',' | ' ' | '\t' | '\r' | '\n' if level == 0 => {
                out.extend(item(&text[start..at])?);
                start = at + 1;
            }
            _ => {}
        }
    }
    if level != 0 {
        return Err(syntax(&text[start..]));
    }
    out.extend(item(&text[start..])?);
    Ok(out)
}

fn item(text: &str) -> Result<Option<Item<'_>>, TextError> {
    if text.is_empty() {
        return Ok(None);
    }
    let end = text.find(['=', '(', '{']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let (mut value, mut body) = (None, None);
    if let Some(v) = rest.strip_prefix('=') {
        value = Some(v);
    } else if let Some(b) = rest.strip_prefix('(') {
        body = Some(b.strip_suffix(')').ok_or_else(|| syntax(text))?);
    }
    Ok(Some(Item { text, name, value, body }))
}

impl<'a> Item<'a> {
    pub fn bad(&self) -> TextError {
        syntax(self.text)
    }

    /// A bare word.
    pub fn is_flag(&self) -> bool {
        self.value.is_none() && self.body.is_none()
    }

    /// The items between the parentheses.
    pub fn inner(&self) -> Result<Vec<Item<'a>>, TextError> {
        items(self.body.ok_or_else(|| self.bad())?)
    }

    /// What is behind `=`, or between the parentheses.
    pub fn operand(&self) -> Result<&'a str, TextError> {
        self.value.or(self.body).ok_or_else(|| self.bad())
    }

    /// A number of at most `max`.
    pub fn number(&self, max: u128) -> Result<u128, TextError> {
        odp::number(self.operand()?).filter(|v| *v <= max).ok_or_else(|| self.bad())
    }

    pub fn u8(&self) -> Result<u8, TextError> {
        self.number(u8::MAX.into()).map(|v| v as u8)
    }

    pub fn u16(&self) -> Result<u16, TextError> {
        self.number(u16::MAX.into()).map(|v| v as u16)
    }

    pub fn u32(&self) -> Result<u32, TextError> {
        self.number(u32::MAX.into()).map(|v| v as u32)
    }

    pub fn u64(&self) -> Result<u64, TextError> {
        self.number(u64::MAX.into()).map(|v| v as u64)
    }

    pub fn ip4(&self) -> Result<u32, TextError> {
        self.operand()?.parse::<Ipv4Addr>().map(u32::from).map_err(|_| self.bad())
    }

    pub fn ip6(&self) -> Result<[u8; 16], TextError> {
        self.operand()?.parse::<Ipv6Addr>().map(|a| a.octets()).map_err(|_| self.bad())
    }

    pub fn mac(&self) -> Result<[u8; 6], TextError> {
        mac(self.operand()?).ok_or_else(|| self.bad())
    }

    /// `value` or `value/mask`, each read by `one`; no mask is `all`.
    fn masked<T>(&self, all: T, one: impl Fn(&Item<'a>) -> Result<T, TextError>) -> Result<Masked<T>, TextError> {
        let operand = self.operand()?;
        let part = |v| one(&Item { value: Some(v), body: None, ..*self });
        match operand.split_once('/') {
            Some((value, mask)) => Ok(Masked { value: part(value)?, mask: part(mask)? }),
            None => Ok(Masked { value: part(operand)?, mask: all }),
        }
    }

    pub fn masked_u8(&self) -> Result<Masked<u8>, TextError> {
        self.masked(u8::MAX, Item::u8)
    }

    pub fn masked_u16(&self) -> Result<Masked<u16>, TextError> {
        self.masked(u16::MAX, Item::u16)
    }

    pub fn masked_u32(&self) -> Result<Masked<u32>, TextError> {
        self.masked(u32::MAX, Item::u32)
    }

    pub fn masked_ip4(&self) -> Result<Masked<u32>, TextError> {
        self.masked(u32::MAX, Item::ip4)
    }

    pub fn masked_ip6(&self) -> Result<Masked<[u8; 16]>, TextError> {
        self.masked([u8::MAX; 16], Item::ip6)
    }

    pub fn masked_mac(&self) -> Result<Masked<[u8; 6]>, TextError> {
        self.masked([u8::MAX; 6], Item::mac)
    }

    /// A 128-bit number with a mask, in network order.
    pub fn masked_u128(&self) -> Result<Masked<[u8; 16]>, TextError> {
        self.masked([u8::MAX; 16], |i| i.number(u128::MAX).map(u128::to_be_bytes))
    }
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let mut out = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut out {
        let part = parts.next().filter(|p| (1..=2).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_hexdigit()))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(out)
}

/// Looks up items by name, and refuses those that nobody asked for.
pub struct Fields<'a> {
    items: Vec<Item<'a>>,
}

impl<'a> Fields<'a> {
    pub fn new(items: Vec<Item<'a>>) -> Fields<'a> {
        Fields { items }
    }

    pub fn take(&mut self, name: &str) -> Option<Item<'a>> {
        let at = self.items.iter().position(|i| i.name == name)?;
        Some(self.items.remove(at))
    }

    /// The item, or an error that shows `whole`.
    pub fn need(&mut self, name: &str, whole: &str) -> Result<Item<'a>, TextError> {
        self.take(name).ok_or_else(|| syntax(whole))
    }

    /// A field that may be missing.
    pub fn get<T: Default>(
        &mut self,
        name: &str,
        read: impl FnOnce(&Item<'a>) -> Result<T, TextError>,
    ) -> Result<T, TextError> {
        self.take(name).map_or_else(|| Ok(T::default()), |i| read(&i))
    }

    /// A bare word that may be missing.
    pub fn flag(&mut self, name: &str) -> Result<bool, TextError> {
        match self.take(name) {
            Some(i) if !i.is_flag() => Err(i.bad()),
            i => Ok(i.is_some()),
        }
    }

    pub fn end(self) -> Result<(), TextError> {
        self.items.first().map_or(Ok(()), |i| Err(i.bad()))
    }
}
