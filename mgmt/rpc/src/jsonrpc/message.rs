//! The four kinds of JSON-RPC messages.

use serde_json::{Value, json};

#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    Request { method: String, params: Vec<Value>, id: Value },
    Notify { method: String, params: Vec<Value> },
    Reply { result: Value, id: Value },
    Error { error: Value, id: Value },
}

impl Message {
    /// Text is what is wrong with it.
    pub fn from_slice(text: &[u8]) -> Result<Message, String> {
        let value: Value = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        Message::from_value(value)
    }

    pub fn from_value(value: Value) -> Result<Message, String> {
        let Value::Object(mut m) = value else {
            return Err("message is not a JSON object".into());
        };
        let mut take = |key: &str| m.remove(key).filter(|v| !v.is_null());
        let (method, params, result, error, id) =
            (take("method"), take("params"), take("result"), take("error"), take("id"));
        if let Some(key) = m.keys().find(|k| !MEMBERS.contains(&k.as_str())) {
            return Err(format!("message has unexpected member \"{key}\""));
        }
        match (method, id) {
            (Some(method), id) => {
                let Value::String(method) = method else {
                    return Err("method is not a string".into());
                };
                if result.is_some() || error.is_some() {
                    return Err("request must not have \"result\" or \"error\"".into());
                }
                let Some(Value::Array(params)) = params else {
                    return Err("\"params\" must be an array".into());
                };
                Ok(match id {
                    Some(id) => Message::Request { method, params, id },
                    None => Message::Notify { method, params },
                })
            }
            (None, Some(id)) => match (result, error) {
                _ if params.is_some() => Err("reply must not have \"params\"".into()),
                (Some(_), Some(_)) => Err("reply has both \"result\" and \"error\"".into()),
                (None, Some(error)) => Ok(Message::Error { error, id }),
                (result, None) => Ok(Message::Reply { result: result.unwrap_or(Value::Null), id }),
            },
            (None, None) => Err("message has neither \"method\" nor \"id\"".into()),
        }
    }

    pub fn to_value(&self) -> Value {
        match self {
            Message::Request { method, params, id } => json!({"method": method, "params": params, "id": id}),
            Message::Notify { method, params } => json!({"method": method, "params": params, "id": null}),
            Message::Reply { result, id } => json!({"result": result, "error": null, "id": id}),
            Message::Error { error, id } => json!({"result": null, "error": error, "id": id}),
        }
    }

    /// One message as it goes over the wire.
    pub fn to_text(&self) -> String {
        self.to_value().to_string()
    }

    /// What answers an `echo` request.
    pub fn echo_reply(params: Vec<Value>, id: Value) -> Message {
        Message::Reply { result: Value::Array(params), id }
    }
}

const MEMBERS: &[&str] = &["method", "params", "result", "error", "id"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        let check = |text: &str, kind: &str| {
            let got = match Message::from_slice(text.as_bytes()) {
                Ok(Message::Request { .. }) => "request".into(),
                Ok(Message::Notify { .. }) => "notify".into(),
                Ok(Message::Reply { .. }) => "reply".into(),
                Ok(Message::Error { .. }) => "error".into(),
                Err(e) => e,
            };
            assert!(got.contains(kind), "{text}: {got}");
            if let Ok(m) = Message::from_slice(text.as_bytes()) {
                assert_eq!(Message::from_slice(m.to_text().as_bytes()), Ok(m));
            }
        };
        check(r#"{"method":"echo","params":[],"id":0}"#, "request");
        check(r#"{"method":"echo","params":["a"],"id":null}"#, "notify");
        check(r#"{"method":"echo","params":[]}"#, "notify");
        check(r#"{"result":{},"error":null,"id":"x"}"#, "reply");
        check(r#"{"result":null,"error":null,"id":"x"}"#, "reply");
        check(r#"{"result":null,"error":"x","id":1}"#, "error");
        check(r#"{"method":1,"params":[],"id":0}"#, "method is not");
        check(r#"{"method":"x","params":{},"id":0}"#, "must be an array");
        check(r#"{"method":"x","id":0}"#, "must be an array");
        check(r#"{"result":1,"error":2,"id":0}"#, "both");
        check(r#"{"result":1,"params":[],"id":0}"#, "must not have");
        check(r#"{"result":1}"#, "neither");
        check(r#"[]"#, "not a JSON object");
        check(r#"{"method":"x","params":[],"id":0,"y":1}"#, "unexpected");
        check(r#"{"method":"x""#, "EOF");
    }
}
