//! Finds where a JSON value ends in a stream of them: by nesting depth outside strings, each byte
//! looked at once. The values are parsed elsewhere.

/// Nesting that is let through. Far more than any protocol here uses.
pub const MAX_DEPTH: u32 = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    #[error("message is longer than {0} bytes")]
    TooLong(usize),
    #[error("message is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("message is neither an object nor an array")]
    NotAValue,
}

/// The incremental splitter. After an error it must not be used further.
pub struct Framer {
    buf: Vec<u8>,
    depth: u32,
    in_string: bool,
    escaped: bool,
    message_max: usize,
}

impl Framer {
    pub fn new(message_max: usize) -> Framer {
        Framer { buf: Vec::new(), depth: 0, in_string: false, escaped: false, message_max }
    }

    /// Consumes bytes of `input` up to the end of a message, and returns that message.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, FrameError> {
        if self.buf.is_empty() {
            let blank = input.iter().take_while(|b| b.is_ascii_whitespace()).count();
            *input = &input[blank..];
        }
        let mut used = 0;
        let mut done = false;
        for &b in input.iter() {
            used += 1;
            if self.byte(b)? {
                done = true;
                break;
            }
        }
        if self.buf.len() + used > self.message_max {
            return Err(FrameError::TooLong(self.message_max));
        }
        self.buf.extend_from_slice(&input[..used]);
        *input = &input[used..];
        Ok(done.then(|| std::mem::take(&mut self.buf)))
    }

    /// True in the middle of a message.
    pub fn is_partial(&self) -> bool {
        !self.buf.is_empty()
    }

    /// True if `b` ends a message.
    fn byte(&mut self, b: u8) -> Result<bool, FrameError> {
        if self.in_string {
            if self.escaped {
                self.escaped = false;
            } else if b == b'\\' {
                self.escaped = true;
            } else if b == b'"' {
                self.in_string = false;
            }
            return Ok(false);
        }
        match b {
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth > MAX_DEPTH { Err(FrameError::TooDeep) } else { Ok(false) }
            }
            b'}' | b']' if self.depth > 0 => {
                self.depth -= 1;
                Ok(self.depth == 0)
            }
            _ if self.depth == 0 => Err(FrameError::NotAValue),
            b'"' => {
                self.in_string = true;
                Ok(false)
            }
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn split(parts: &[&[u8]]) -> Result<Vec<Vec<u8>>, FrameError> {
        let mut f = Framer::new(1 << 16);
        let mut out = Vec::new();
        for part in parts {
            let mut input = *part;
            while !input.is_empty() {
                out.extend(f.feed(&mut input)?);
            }
        }
        Ok(out)
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[\\[\\]{}\"\\\\a-z\u{e9} ]{0,8}".prop_map(Value::from),
        ];
        let tree = leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[{}\"\\\\a-c]{0,4}", inner), 0..4)
                    .prop_map(|v| Value::Object(v.into_iter().collect())),
            ]
        });
        tree.prop_map(|v| json!({ "v": v }))
    }

    proptest! {
        #[test]
        fn messages_are_found_however_the_stream_is_cut(
            values in prop::collection::vec((value(), "[ \n\t]{0,2}"), 1..4),
        ) {
            let text: String = values.iter().map(|(v, blank)| format!("{v}{blank}")).collect();
            let bytes = text.as_bytes();
            for at in 0..=bytes.len() {
                let got = split(&[&bytes[..at], &bytes[at..]]).unwrap();
                let got: Vec<Value> = got.iter().map(|m| serde_json::from_slice(m).unwrap()).collect();
                prop_assert!(got.iter().eq(values.iter().map(|(v, _)| v)), "cut at {at}");
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(split(&single).unwrap().len(), values.len());
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = split(&[&bytes]);
        }
    }

    #[test]
    fn limits_hold() {
        let deep = vec![b'['; MAX_DEPTH as usize];
        assert_eq!(split(&[&deep]), Ok(vec![]));
        assert_eq!(split(&[&deep, b"["]), Err(FrameError::TooDeep));
        let mut f = Framer::new(8);
        assert_eq!(f.feed(&mut &b"{      }"[..]).unwrap().unwrap().len(), 8);
        assert_eq!(f.feed(&mut &b"{       }"[..]), Err(FrameError::TooLong(8)));
        let check = |s: &str, e| assert_eq!(split(&[s.as_bytes()]), Err(e), "{s}");
        check("x", FrameError::NotAValue);
        check("{}]", FrameError::NotAValue);
        check("\"a\"", FrameError::NotAValue);
        check("{} 1", FrameError::NotAValue);
    }
}
