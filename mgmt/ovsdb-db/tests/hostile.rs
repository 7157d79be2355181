//! Messages and files that are nearly right: no panic, no lost state, an answer or a closed
//! connection.

use fv_core::Nanos;
use fv_ovsdb::{Database, Schema};
use fv_ovsdb_db::client::{Client, Config};
use fv_ovsdb_db::log::{LogFile, encode};
use fv_ovsdb_db::server::{Now, Server};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

const NOW: Now = Now { mono: Nanos::from_secs(100), wall: Nanos::from_secs(100) };

fn zoo() -> Arc<Schema> {
    Arc::new(Schema::parse(include_str!("../../../wire/ovsdb/tests/zoo.ovsschema")).unwrap())
}

/// Requests that work, to be bent.
fn requests() -> Vec<Value> {
    let r = |method: &str, params: Value| json!({"id": 1, "method": method, "params": params});
    vec![
        r(
            "transact",
            json!(["T", {"op": "insert", "table": "Root", "row": {"name": "a", "m": ["map", [["a", "b"]]], "kids": ["named-uuid", "k"]}},
            {"op": "insert", "table": "Kid", "row": {"k": 1}, "uuid-name": "k"}, {"op": "comment", "comment": "c"}, {"op": "commit", "durable": true}]),
        ),
        r(
            "transact",
            json!(["T", {"op": "mutate", "table": "Root", "where": [["name", "==", "a"]], "mutations": [["ints", "insert", ["set", [1, 2]]], ["m", "delete", "a"], ["r", "+=", 1.5]]}]),
        ),
        r(
            "transact",
            json!(["T", {"op": "wait", "table": "Root", "where": [true], "columns": ["name"], "until": "!=", "rows": [{"name": "a"}], "timeout": 5}]),
        ),
        r(
            "transact",
            json!(["T", {"op": "select", "table": "Kid", "where": [["k", "<", 5], ["next", "excludes", ["set", []]]], "columns": ["k", "_uuid"]}]),
        ),
        r(
            "transact",
            json!(["T", {"op": "update", "table": "Root", "where": [["_uuid", "!=", ["uuid", "00000000-0000-0000-0000-000000000001"]]], "row": {"one": ["set", []]}}, {"op": "delete", "table": "Kid", "where": []}]),
        ),
        r(
            "monitor",
            json!(["T", "m", {"Root": [{"columns": ["name", "m"], "select": {"initial": true, "modify": false}}]}]),
        ),
        r(
            "monitor_cond",
            json!(["T", "c", {"Root": [{"columns": ["name"], "where": [["name", "==", "a"], false]}], "Kid": [{}]}]),
        ),
        r("monitor_cond_since", json!(["T", "s", {"Root": [{}]}, "00000000-0000-0000-0000-000000000000"])),
        r("monitor_cond_change", json!(["c", "c", {"Root": [{"where": [["b", "includes", true]]}]}])),
        r("monitor_cancel", json!(["m"])),
        r("lock", json!(["l"])),
        r("steal", json!(["l"])),
        r("unlock", json!(["l"])),
        r("get_schema", json!(["T"])),
        json!({"id": null, "method": "cancel", "params": [1]}),
    ]
}

fn count(v: &Value) -> usize {
    1 + match v {
        Value::Array(a) => a.iter().map(count).sum(),
        Value::Object(o) => o.values().map(count).sum(),
        _ => 0,
    }
}

/// Puts `with` in place of node number `n` in depth-first order.
fn replace(v: &mut Value, n: &mut usize, with: &Value) {
    if *n == 0 {
        *v = with.clone();
    }
    *n = n.wrapping_sub(1);
    match v {
        Value::Array(a) => a.iter_mut().for_each(|v| replace(v, n, with)),
        Value::Object(o) => o.values_mut().for_each(|v| replace(v, n, with)),
        _ => {}
    }
}

fn bend(v: &Value, bends: &[(usize, Value)]) -> Value {
    let mut v = v.clone();
    for (at, with) in bends {
        let mut n = at % count(&v);
        replace(&mut v, &mut n, with);
    }
    v
}

fn nest(depth: usize) -> Value {
    (0..depth).fold(json!("set"), |v, _| json!(["set", [v]]))
}

fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..100usize).prop_map(nest),
        proptest::sample::select(vec![
            json!([]),
            json!({}),
            json!(""),
            json!("T"),
            json!("_Server"),
            json!("Root"),
            json!("name"),
            json!("a\0b"),
            json!(["set", []]),
            json!(["map", []]),
            json!(["map", [["a", "b"]]]),
            json!(["set", [1, 1]]),
            json!(["uuid", "x"]),
            json!(["uuid", "00000000-0000-0000-0000-000000000000"]),
            json!(["named-uuid", "k"]),
            json!("transact"),
            json!("_uuid"),
            json!([["name", "==", "a"]]),
            json!({"name": ["set", []]}),
            json!([[[[[[]]]]]]),
        ]),
    ]
}

fn bends() -> impl Strategy<Value = Vec<(usize, Value)>> {
    proptest::collection::vec((any::<usize>(), odd()), 0..3)
}

/// A server that names transactions as it likes does not keep the next one from serving the client.
#[test]
fn a_transaction_that_is_no_uuid_is_forgotten() {
    let mut server = Server::new(vec![(Database::new(zoo()), None)]);
    let config = Config { database: "T".into(), schema: zoo(), tables: vec![], quiet: &[], lock: None };
    let mut client = Client::new(config);
    for round in 0..2 {
        let conn = server.connection_opened();
        client.connected();
        for _ in 0..6 {
            client.take_outgoing().into_iter().for_each(|m| server.handle(conn, m, NOW));
            for mut m in server.take_outgoing(conn) {
                let named = m["result"].as_array().is_some_and(|a| a.len() == 3 && a[1].is_string());
                if named && round == 0 {
                    m["result"][1] = "T".into();
                }
                client.handle(m).unwrap();
            }
        }
        assert!(client.is_synced());
        server.connection_closed(conn);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_server_answers_or_closes(messages in proptest::collection::vec((any::<proptest::sample::Index>(), bends()), 1..30)) {
        let mut server = Server::new(vec![(Database::new(zoo()), None)]);
        let good = server.connection_opened();
        let mut bad = server.connection_opened();
        let requests = requests();
        let mut t = NOW;
        for (which, bends) in messages {
            let m = bend(which.get(&requests), &bends);
            server.handle(bad, m.clone(), t);
            let out = server.take_outgoing(bad);
            match server.close_reason(bad) {
                Some(why) => {
                    prop_assert!(why != "internal error", "{}", m);
                    server.connection_closed(bad);
                    bad = server.connection_opened();
                }
                // A request is answered at once, unless it waits.
                None if m["method"] != "cancel" && !m["id"].is_null() && out.is_empty() => {
                    prop_assert_eq!(&m["method"], "transact");
                }
                None => {}
            }
            t.mono += Nanos::from_ms(1);
            server.turn(t);
            server.take_outgoing(bad);
        }
        server.handle(good, json!({"id": 1, "method": "list_dbs", "params": []}), t);
        prop_assert_eq!(&server.take_outgoing(good)[0]["result"], &json!(["T", "_Server"]));
    }

    #[test]
    fn the_client_takes_or_refuses(
        tamper in proptest::collection::vec((any::<u8>(), bends()), 1..30), plain in any::<bool>()
    ) {
        let mut server = Server::new(vec![(Database::new(zoo()), None)]);
        let config = Config { database: "T".into(), schema: zoo(), tables: vec![], quiet: &[], lock: Some("l".into()) };
        let mut client = Client::new(config);
        let writer = server.connection_opened();
        let mut conn = server.connection_opened();
        client.connected();
        for (n, bends) in tamper {
            let op = json!({"op": "insert", "table": "Root", "row": {"name": n.to_string(), "m": ["map", [["a", "b"]]]}});
            server.handle(writer, json!({"id": 1, "method": "transact", "params": ["T", op]}), NOW);
            server.take_outgoing(writer);
            let mut replies = Vec::new();
            for m in client.take_outgoing() {
                if plain && m["method"] == "monitor_cond_since" {
                    replies.push(json!({"id": m["id"], "error": "unknown method"}));
                } else {
                    server.handle(conn, m, NOW);
                }
            }
            replies.extend(server.take_outgoing(conn));
            for m in replies {
                if client.handle(bend(&m, &bends)).is_err() {
                    server.connection_closed(conn);
                    conn = server.connection_opened();
                    client.connected();
                    break;
                }
            }
        }
        // A peer that is honest again brings it back in step.
        server.connection_closed(conn);
        conn = server.connection_opened();
        client.connected();
        for _ in 0..6 {
            client.take_outgoing().into_iter().for_each(|m| server.handle(conn, m, NOW));
            for m in server.take_outgoing(conn) {
                client.handle(m).unwrap();
            }
        }
        prop_assert!(client.is_synced());
    }

    #[test]
    fn damaged_files_open_or_are_refused(cut in any::<usize>(), flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..3)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.db");
        let mut bytes = encode(&zoo().to_json()).into_bytes();
        let schema_end = bytes.len();
        for i in 0..4 {
            let uuid = format!("00000000-0000-0000-0000-00000000000{i}");
            bytes.extend(encode(&json!({"_date": 1, "_is_diff": true, "Root": {uuid: {"name": i.to_string()}}})).into_bytes());
        }
        for (at, with) in flips {
            let n = bytes.len();
            bytes[at % n] = with;
        }
        bytes.truncate(schema_end + cut % (bytes.len() - schema_end + 1));
        std::fs::write(&path, &bytes).unwrap();
        if let Ok((log, db)) = LogFile::open(&path, &zoo(), 1) {
            let rows = db.row_count(zoo().table("Root").unwrap());
            prop_assert!(rows <= 4);
            drop(log);
            // What was repaired stays as it is.
            let (_, again) = LogFile::open(&path, &zoo(), 1).unwrap();
            prop_assert_eq!(again.row_count(zoo().table("Root").unwrap()), rows);
        } else {
            prop_assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
    }
}
