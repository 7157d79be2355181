//! Schemas: what is accepted, what is written back, and the built-in ones against the reference's.

use fv_ovsdb::vswitch::{server_schema, vswitch_schema};
use fv_ovsdb::{ColumnType, Datum, Schema};
use serde_json::{Value, json};

#[test]
fn builtin_schemas_round_trip() {
    for s in [vswitch_schema(), server_schema()] {
        let again = Schema::from_json(&s.to_json()).unwrap();
        assert_eq!(again, *s);
        assert_eq!(Schema::parse(&s.to_json().to_string()).unwrap(), *s);
    }
}

/// Every table and column of the installed reference is here with the same type.
#[test]
fn vswitch_schema_holds_the_references() {
    let text = std::fs::read_to_string("/usr/share/openvswitch/vswitch.ovsschema").expect("reference's schema");
    let theirs = Schema::parse(&text).unwrap();
    let ours = vswitch_schema();
    assert_eq!(ours.name, theirs.name);
    let names = |s: &Schema| s.tables.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&theirs));
    for t in &theirs.tables {
        let o = &ours.tables[ours.table(&t.name).unwrap()];
        assert_eq!((o.is_root, o.max_rows), (t.is_root, t.max_rows), "{}", t.name);
        let index_names = |t: &fv_ovsdb::TableSchema| {
            t.indexes
                .iter()
                .map(|i| i.iter().map(|c| t.columns[*c].name.clone()).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        assert_eq!(index_names(o), index_names(t), "{}", t.name);
        for c in &t.columns {
            let i = o.column(&c.name).unwrap_or_else(|| panic!("{} {}", t.name, c.name));
            let oc = &o.columns[i];
            assert_eq!(oc.ty.to_json(), c.ty.to_json(), "{} {}", t.name, c.name);
            assert_eq!((oc.mutable, oc.ephemeral), (c.mutable, c.ephemeral), "{} {}", t.name, c.name);
        }
    }
}

#[test]
fn schemas_that_are_refused() {
    let table = |t: Value| json!({"name": "D", "tables": {"T": t}});
    let column = |ty: Value| table(json!({"columns": {"c": {"type": ty}}}));
    assert!(Schema::from_json(&column(json!("integer"))).is_ok());
    for bad in [
        json!(5),
        json!({"tables": {}}),
        json!({"name": "1", "tables": {}}),
        json!({"name": "D", "version": "1.0", "tables": {}}),
        json!({"name": "D", "tables": {}, "extra": 1}),
        json!({"name": "D", "tables": {"_T": {"columns": {"c": {"type": "integer"}}}}}),
        table(json!({"columns": {}})),
        table(json!({"columns": {"_c": {"type": "integer"}}})),
        table(json!({"columns": {"c": {"type": "integer"}}, "maxRows": 0})),
        table(json!({"columns": {"c": {"type": "integer"}}, "indexes": [["d"]]})),
        table(json!({"columns": {"c": {"type": "integer"}}, "indexes": [[]]})),
        table(json!({"columns": {"c": {"type": "integer", "ephemeral": true}}, "indexes": [["c"]]})),
        column(json!("int")),
        column(json!({"key": "integer", "min": 2, "max": 3})),
        column(json!({"key": "integer", "min": 0, "max": 0})),
        column(json!({"key": "integer", "max": "many"})),
        column(json!({"key": {"type": "uuid", "refTable": "Nope"}})),
        column(json!({"key": {"type": "uuid", "refTable": "T", "refType": "odd"}})),
        column(json!({"key": {"type": "integer", "minInteger": 2, "maxInteger": 1}})),
        column(json!({"key": {"type": "string", "minLength": -1}})),
        column(json!({"key": {"type": "string", "minInteger": 1}})),
        column(json!({"key": {"type": "integer", "enum": ["set", []]}})),
        column(json!({"key": {"type": "integer", "enum": ["set", ["a"]]}})),
    ] {
        assert!(Schema::from_json(&bad).is_err(), "{bad}");
    }
    assert!(Schema::parse("{").is_err());
    assert!(Schema::parse(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))).is_err());
}

#[test]
fn values_as_json_and_as_text() {
    let check = |ty: Value, json: Value, back: Value, text: &str| {
        let ty = ColumnType::from_json(&ty).unwrap();
        let d = Datum::from_json(&ty, &json, None).unwrap_or_else(|e| panic!("{json}: {e}"));
        assert_eq!((d.to_json(&ty), d.to_string().as_str()), (back, text));
    };
    let set = |t: &str| json!({"key": t, "min": 0, "max": "unlimited"});
    let map = json!({"key": "string", "value": "integer", "min": 0, "max": "unlimited"});
    let uuid = json!(["uuid", "01234567-89ab-cdef-0123-456789abcdef"]);
    check(json!("integer"), json!(5), json!(5), "5");
    check(json!("integer"), json!(["set", [5]]), json!(5), "5");
    check(json!("integer"), json!(1e3), json!(1000), "1000");
    check(json!("real"), json!(3), json!(3), "3");
    check(json!("real"), json!(-0.0), json!(0), "0");
    check(json!("real"), json!(0.25), json!(0.25), "0.25");
    check(json!("boolean"), json!(true), json!(true), "true");
    check(json!("string"), json!("a_b-c.d"), json!("a_b-c.d"), "a_b-c.d");
    check(json!("string"), json!("a b\"\n"), json!("a b\"\n"), "\"a b\\\"\\n\"");
    check(json!("string"), json!("true"), json!("true"), "\"true\"");
    check(json!("string"), json!(""), json!(""), "\"\"");
    check(json!("uuid"), uuid.clone(), uuid.clone(), "01234567-89ab-cdef-0123-456789abcdef");
    check(set("integer"), json!(["set", [3, 1, 2]]), json!(["set", [1, 2, 3]]), "[1, 2, 3]");
    check(set("integer"), json!(["set", []]), json!(["set", []]), "[]");
    check(set("string"), json!("a"), json!("a"), "a");
    check(map.clone(), json!(["map", [["b", 2], ["a", 1]]]), json!(["map", [["a", 1], ["b", 2]]]), "{a=1, b=2}");

    let refuse = |ty: &Value, json: Value| {
        let ty = ColumnType::from_json(ty).unwrap();
        assert!(Datum::from_json(&ty, &json, None).is_err(), "{json}");
    };
    for (ty, bad) in [
        (json!("integer"), json!(1.5)),
        (json!("integer"), json!(9_223_372_036_854_775_808_u64)),
        (json!("integer"), json!(1e19)),
        (json!("string"), json!("a\0b")),
        (json!("uuid"), json!(["uuid", "0123456789abcdef0123456789abcdef"])),
        (json!("uuid"), json!(["named-uuid", "x"])),
        (json!("uuid"), json!(["uuid", 5])),
        (json!("integer"), json!(["set", [1, 2]])),
        (set("integer"), json!(["set", [1, 1]])),
        (map.clone(), json!(["map", [["a", 1], ["a", 1]]])),
        (map, json!(["set", []])),
    ] {
        refuse(&ty, bad);
    }
}
