//! The database file: interchange with the reference's programs, torn tails, killed writers.

mod support;

use fv_ovsdb::{Database, Schema, vswitch};
use fv_ovsdb_db::log::{LogFile, encode, is_locked};
use fv_ovsdb_db::server::{ConnId, Now, Server};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use support::{tool, tool_ok};

const NOW: Now = Now { mono: fv_core::Nanos::from_secs(1000), wall: fv_core::Nanos::from_secs(1_700_000_000) };

fn zoo() -> Arc<Schema> {
    Arc::new(Schema::parse(include_str!("../../../wire/ovsdb/tests/zoo.ovsschema")).unwrap())
}

fn open(path: &Path, schema: &Arc<Schema>) -> (LogFile, Database) {
    LogFile::open(path, schema, 1).unwrap()
}

fn serve(path: &Path, schema: &Arc<Schema>) -> (Server, ConnId) {
    let (log, db) = open(path, schema);
    let mut s = Server::new(vec![(db, Some(Box::new(log)))]);
    let c = s.connection_opened();
    (s, c)
}

fn transact(s: &mut Server, c: ConnId, params: Value) -> Value {
    s.handle(c, json!({"id": 1, "method": "transact", "params": params}), NOW);
    s.take_outgoing(c).pop().expect("a reply")["result"].take()
}

/// Rows of a table without their versions, sorted.
fn select(s: &mut Server, c: ConnId, db: &str, table: &str) -> Vec<Value> {
    let mut r = transact(s, c, json!([db, {"op": "select", "table": table, "where": []}]));
    rows_without_versions(&mut r)
}

fn rows_without_versions(results: &mut Value) -> Vec<Value> {
    let mut rows = results[0]["rows"].as_array().cloned().expect("rows");
    rows.iter_mut().for_each(|r| {
        r.as_object_mut().unwrap().remove("_version");
    });
    rows.sort_by_key(|r| r["_uuid"].to_string());
    rows
}

fn tool_query(path: &Path, db: &str, table: &str) -> Vec<Value> {
    let q = json!([db, {"op": "select", "table": table, "where": []}]).to_string();
    let mut r: Value = serde_json::from_str(&tool_ok("ovsdb-tool", &["query", path.to_str().unwrap(), &q])).unwrap();
    rows_without_versions(&mut r)
}

fn write_something(s: &mut Server, c: ConnId) {
    let r = transact(
        s,
        c,
        json!(["T",
            {"op": "insert", "table": "Kid", "row": {"k": 1}, "uuid-name": "k1"},
            {"op": "insert", "table": "Kid", "row": {"k": 2}, "uuid-name": "k2"},
            {"op": "insert", "table": "Root", "row": {"name": "a\"\\\u{e9}", "kids": ["set", [["named-uuid", "k1"], ["named-uuid", "k2"]]],
                "m": ["map", [["a", "1"], ["b", "2"]]], "r": 1.5, "ints": ["set", [3, 1, 2]], "eph": 7}},
            {"op": "comment", "comment": "first"}]),
    );
    assert!(r[2]["uuid"].is_array(), "{r}");
    for op in [
        json!({"op": "mutate", "table": "Root", "where": [], "mutations": [["m", "insert", ["map", [["c", "3"]]]], ["m", "delete", "a"], ["ints", "insert", 9]]}),
        json!({"op": "update", "table": "Root", "where": [], "row": {"eph": 8}}),
        json!({"op": "mutate", "table": "Root", "where": [], "mutations": [["ints", "delete", ["set", [1, 2]]]]}),
        json!({"op": "insert", "table": "Root", "row": {"name": "gone"}}),
        json!({"op": "delete", "table": "Root", "where": [["name", "==", "gone"]]}),
    ] {
        let r = transact(s, c, json!(["T", op, {"op": "commit", "durable": true}]));
        assert!(r.as_array().unwrap().iter().all(|r| r.get("error").is_none()), "{r}");
    }
}

#[test]
fn reference_tools_read_our_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let p = path.to_str().unwrap();
    let (mut s, c) = serve(&path, &zoo());
    write_something(&mut s, c);
    let mut ours = select(&mut s, c, "T", "Root");
    let kids = select(&mut s, c, "T", "Kid");

    // While it is open here nobody else may write to it.
    assert!(!tool("ovsdb-tool", &["transact", p, "[\"T\"]"]).status.success());
    assert!(is_locked(&path) && LogFile::open(&path, &zoo(), 1).is_err_and(|e| e.is_locked()));
    assert!(!tool("ovsdb-tool", &["transact", p, "[\"T\"]"]).status.success(), "asking gives nothing up");
    drop(s);
    assert!(!is_locked(&path));

    assert_eq!(tool_ok("ovsdb-tool", &["db-name", p]).trim(), "T");
    assert_eq!(tool_ok("ovsdb-tool", &["db-version", p]).trim(), "1.0.0");
    let shown = tool_ok("ovsdb-tool", &["-mm", "show-log", p]);
    assert!(shown.contains("record 0: \"T\" schema") && shown.contains("\"first\""), "{shown}");
    ours.iter_mut().for_each(|r| r["eph"] = 0.into());
    assert_eq!(tool_query(&path, "T", "Root"), ours);
    assert_eq!(tool_query(&path, "T", "Kid"), kids);
    tool_ok("ovsdb-tool", &["compact", p]);
    let (mut s, c) = serve(&path, &zoo());
    assert_eq!(select(&mut s, c, "T", "Root"), ours);
    assert_eq!(select(&mut s, c, "T", "Kid"), kids);
}

#[test]
fn we_read_the_reference_tools_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let schema = dir.path().join("t.ovsschema");
    std::fs::write(&schema, include_str!("../../../wire/ovsdb/tests/zoo.ovsschema")).unwrap();
    let p = path.to_str().unwrap();
    tool_ok("ovsdb-tool", &["create", p, schema.to_str().unwrap()]);
    for ops in [
        r#"["T",{"op":"insert","table":"Root","row":{"name":"x","m":["map",[["a","1"]]],"ints":["set",[1,2,3]],"r":-0.25}},{"op":"comment","comment":"c"}]"#,
        r#"["T",{"op":"mutate","table":"Root","where":[],"mutations":[["ints","delete",2],["m","insert",["map",[["b","2"]]]]]}]"#,
        r#"["T",{"op":"insert","table":"Root","row":{"name":"y"}}]"#,
    ] {
        tool_ok("ovsdb-tool", &["transact", p, ops]);
    }
    let theirs = tool_query(&path, "T", "Root");
    let (mut s, c) = serve(&path, &zoo());
    assert_eq!(select(&mut s, c, "T", "Root"), theirs);
    write_something(&mut s, c);
    drop(s);
    tool_ok("ovsdb-tool", &["query", p, r#"["T"]"#]);
}

#[test]
fn compaction_keeps_rows_and_shrinks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let (log, db) = open(&path, &zoo());
    let mut s = Server::new(vec![(db, Some(Box::new(log)))]);
    let c = s.connection_opened();
    write_something(&mut s, c);
    let mut rows = select(&mut s, c, "T", "Root");
    rows.iter_mut().for_each(|r| r["eph"] = 0.into());
    drop(s);
    let (mut log, db) = open(&path, &zoo());
    let before = log.size();
    log.compact(&db, 5).unwrap();
    assert!(log.size() < before);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), log.size());
    log.append_record(&json!({"_date": 1, "Root": {}}), true).unwrap();
    drop(log);
    assert_eq!(tool_query(&path, "T", "Root"), rows);
    let (mut s, c) = serve(&path, &zoo());
    assert_eq!(select(&mut s, c, "T", "Root"), rows);
}

#[test]
fn a_large_file_compacts_itself_once_it_has_doubled() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let (mut s, c) = serve(&path, &zoo());
    transact(&mut s, c, json!(["T", {"op": "insert", "table": "Root", "row": {"name": "a"}}]));
    let mut largest = 0;
    for i in 0..40u8 {
        let big = char::from(b'a' + i % 26).to_string().repeat(600_000);
        let r = transact(&mut s, c, json!(["T", {"op": "update", "table": "Root", "where": [], "row": {"ro2": 1}}]));
        assert_eq!(r[0]["error"], "unknown column");
        let m = json!([["m", "delete", "k"], ["m", "insert", ["map", [["k", big]]]]]);
        let r = transact(&mut s, c, json!(["T", {"op": "mutate", "table": "Root", "where": [], "mutations": m}]));
        assert_eq!(r[0]["count"], 1, "{r}");
        let size = std::fs::metadata(&path).unwrap().len();
        if size < largest {
            assert!(largest > 9 << 20 && size < 1 << 20, "{largest} {size}");
            drop(s);
            let (mut s, c) = serve(&path, &zoo());
            assert_eq!(select(&mut s, c, "T", "Root")[0]["m"][1][0][1].as_str().unwrap().len(), 600_000);
            return;
        }
        largest = size;
    }
    panic!("never compacted at {largest}");
}

#[test]
fn a_torn_tail_is_cut_at_every_length() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let (mut s, c) = serve(&path, &zoo());
    transact(&mut s, c, json!(["T", {"op": "insert", "table": "Root", "row": {"name": "kept"}}]));
    let whole = std::fs::metadata(&path).unwrap().len() as usize;
    transact(&mut s, c, json!(["T", {"op": "insert", "table": "Root", "row": {"name": "torn"}}]));
    drop(s);
    let bytes = std::fs::read(&path).unwrap();
    for n in whole..bytes.len() {
        std::fs::write(&path, &bytes[..n]).unwrap();
        let (mut s, c) = serve(&path, &zoo());
        assert_eq!(select(&mut s, c, "T", "Root").len(), 1, "cut at {n}");
        transact(&mut s, c, json!(["T", {"op": "insert", "table": "Root", "row": {"name": "new"}}]));
        drop(s);
        assert_eq!(open(&path, &zoo()).1.row_count(1), 2, "cut at {n}");
    }
    // A flipped bit in the last record is the same as a cut.
    let mut flipped = bytes.clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &flipped).unwrap();
    assert_eq!(open(&path, &zoo()).1.row_count(1), 1);
    // One in the middle is damage: what follows it is kept aside.
    let mut damaged = bytes.clone();
    damaged[whole - 5] ^= 1;
    std::fs::write(&path, &damaged).unwrap();
    assert_eq!(open(&path, &zoo()).1.row_count(1), 0);
    assert!(std::fs::read(dir.path().join("t.db.damaged")).unwrap().ends_with(&bytes[whole..]));
}

#[test]
fn files_that_are_not_ours_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let other = encode(&json!({"name": "Other", "tables": {}}));
    let strange = encode(&zoo().to_json()) + &encode(&json!({"Nope": {}}));
    for content in ["", "hello\n", "OVSDB CLUSTER 3 aa\n{}\n", "OVSDB JSON 99999999999999999999 aa\n", &other, &strange]
    {
        let path = dir.path().join("x.db");
        std::fs::write(&path, content).unwrap();
        assert!(LogFile::open(&path, &zoo(), 1).is_err(), "{content:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), *content);
    }
}

#[test]
fn an_older_schema_is_converted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("conf.db");
    let p = path.to_str().unwrap();
    let mut old: Value = serde_json::from_str(vswitch::VSWITCH_SCHEMA).unwrap();
    old["version"] = "7.0.0".into();
    old["tables"]["Mirror"]["columns"].as_object_mut().unwrap().remove("filter");
    old["tables"]["Bridge"]["columns"]["bygone"] = json!({"type": "string"});
    let schema = dir.path().join("s");
    std::fs::write(&schema, old.to_string()).unwrap();
    tool_ok("ovsdb-tool", &["create", p, schema.to_str().unwrap()]);
    let ops = json!(["Open_vSwitch",
        {"op": "insert", "table": "Bridge", "row": {"name": "br0", "bygone": "x", "other_config": ["map", [["a", "b"]]]}, "uuid-name": "b"},
        {"op": "insert", "table": "Open_vSwitch", "row": {"bridges": ["named-uuid", "b"]}}]);
    tool_ok("ovsdb-tool", &["transact", p, &ops.to_string()]);
    let (mut s, c) = serve(&path, &vswitch::vswitch_schema());
    let rows = select(&mut s, c, "Open_vSwitch", "Bridge");
    assert_eq!((rows.len(), &rows[0]["name"], rows[0].get("bygone")), (1, &json!("br0"), None));
    drop(s);
    assert_eq!(tool_ok("ovsdb-tool", &["db-version", p]).trim(), vswitch::vswitch_schema().version);
    assert_eq!(tool_ok("ovsdb-tool", &["db-cksum", p]).trim(), vswitch::vswitch_schema().cksum);
    assert_eq!(tool_query(&path, "Open_vSwitch", "Bridge"), rows);
}

/// Writes for ever and says what was acknowledged; only when it is run again by the next test.
#[test]
fn writer_child() {
    let Some(path) = std::env::var_os("FV_OVSDB_WRITER") else { return };
    let (mut s, c) = serve(Path::new(&path), &zoo());
    let mut out = std::io::stdout();
    for n in select(&mut s, c, "T", "Root").len().. {
        let r = transact(&mut s, c, json!(["T", {"op": "insert", "table": "Root", "row": {"name": n.to_string()}}]));
        assert!(r[0]["uuid"].is_array(), "{r}");
        writeln!(out, "acknowledged {n}").unwrap();
        if n % 9 == 0 {
            s.compact(None, NOW).unwrap();
        }
    }
}

#[test]
fn a_killed_writer_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("t.db");
    let mut last = 0;
    for round in 0..8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer_child", "--nocapture", "--test-threads=1"])
            .env("FV_OVSDB_WRITER", &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let n: usize = lines
            .by_ref()
            .map_while(Result::ok)
            .filter_map(|l| l.split_once("acknowledged ").and_then(|(_, n)| n.parse().ok()))
            .nth(20 + 37 * round)
            .expect("the child writes");
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had acknowledged, though we had not read it yet, counts too.
        last = lines
            .map_while(Result::ok)
            .filter_map(|l| l.split_once("acknowledged ").and_then(|(_, n)| n.parse().ok()))
            .fold(n, usize::max);
        let (log, db) = open(&path, &zoo());
        assert!(!dir.path().join("t.db.tmp").exists());
        let rows = db.row_count(zoo().table("Root").unwrap());
        assert!(rows > last, "{rows} rows, but {last} was acknowledged");
        drop(log);
    }
    assert!(last > 100);
    tool_ok("ovsdb-tool", &["query", path.to_str().unwrap(), r#"["T"]"#]);
}

/// Runs under a limit on the size of files; only when it is run again by the next test.
#[test]
fn full_disk_child() {
    let Some(path) = std::env::var_os("FV_OVSDB_FULL") else { return };
    let (mut s, c) = serve(Path::new(&path), &zoo());
    let insert =
        |n: usize| json!(["T", {"op": "insert", "table": "Root", "row": {"name": format!("{n}-{}", "x".repeat(500))}}]);
    let mut kept = 0;
    let refused = loop {
        let r = transact(&mut s, c, insert(kept));
        if r.get(1).is_some() {
            break r;
        }
        kept += 1;
    };
    assert_eq!(refused[1]["error"], "I/O error");
    assert_eq!(select(&mut s, c, "T", "Root").len(), kept);
    // Small ones may still fit; large ones are refused again; nothing that was kept is lost.
    for _ in 0..3 {
        assert_eq!(transact(&mut s, c, insert(kept))[1]["error"], "I/O error");
    }
    println!("kept {kept}");
}

#[test]
fn a_full_disk_loses_nothing_and_leaves_a_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let command = format!(
        "trap '' XFSZ; ulimit -f 64; exec '{}' --exact full_disk_child --nocapture --test-threads=1",
        std::env::current_exe().unwrap().display()
    );
    let out = Command::new("sh").args(["-c", &command]).env("FV_OVSDB_FULL", &path).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    let (_, kept) = text.split_once("kept ").expect("the child's count");
    let kept: usize = kept.split_whitespace().next().unwrap().parse().unwrap();
    assert!(kept > 10);
    let bytes = std::fs::metadata(&path).unwrap().len();
    let (log, db) = open(&path, &zoo());
    assert_eq!((log.size(), db.row_count(zoo().table("Root").unwrap())), (bytes, kept));
}
