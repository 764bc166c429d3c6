//! Bucket properties as JSON: Riak's names and forms of values.
//!
//! Numbers, words and flags stand as themselves, quorums as a number or a word, functions as `{"mod":…,"fun":…}`, hooks
//! as the same or as `{"name":…}`. Read generously, as Riak does: a flag may be a text or a number. What only tells
//! where the properties belong (`name`, `active` and so on) may be sent back and says nothing.

use bytes::Bytes;
use kv::props::{Hook, ModFun, Reason, Repl, SyncOnWrite};
use kv::{BucketProps, Error, Prop, Quorum};
use serde_json::{Map, Value, json};

use super::names;

/// Names that come with the properties and are none.
const LABELS: [&str; 4] = ["name", "bucket_type", "active", "claimant"];

/// The properties by name.
pub(super) fn write(props: &BucketProps) -> Map<String, Value> {
    let mut all = Map::new();
    let mut put = |name: &str, value: Value| drop(all.insert(name.to_owned(), value));
    put("n_val", json!(props.n_val));
    put("allow_mult", json!(props.allow_mult));
    put("last_write_wins", json!(props.last_write_wins));
    put("precommit", props.precommit.iter().map(hook).collect());
    put("postcommit", props.postcommit.iter().map(hook).collect());
    put("chash_keyfun", mod_fun(&props.chash_keyfun));
    put("linkfun", mod_fun(&props.linkfun));
    put("old_vclock", json!(props.old_vclock));
    put("young_vclock", json!(props.young_vclock));
    put("big_vclock", json!(props.big_vclock));
    put("small_vclock", json!(props.small_vclock));
    for (name, quorum) in [
        ("pr", props.pr),
        ("r", props.r),
        ("w", props.w),
        ("pw", props.pw),
        ("dw", props.dw),
        ("rw", props.rw),
    ] {
        put(name, quorum_value(quorum));
    }
    put("basic_quorum", json!(props.basic_quorum));
    put("notfound_ok", json!(props.notfound_ok));
    put("node_confirms", json!(props.node_confirms));
    put("sync_on_write", json!(sync_word(props.sync_on_write)));
    put("aae_tree_exclude", json!(props.aae_tree_exclude));
    put("dvv_enabled", json!(props.dvv_enabled));
    put("ttl", json!(props.ttl));
    put("write_once", json!(props.write_once));
    put("consistent", json!(props.consistent));
    put("repl", repl_value(props.repl));
    let texts =
        [("backend", &props.backend), ("search_index", &props.search_index), ("datatype", &props.datatype)];
    props.search.iter().for_each(|on| put("search", json!(on)));
    props.hll_precision.iter().for_each(|bits| put("hll_precision", json!(bits)));
    for (name, text) in texts {
        text.iter().for_each(|text| names::put_name(&mut all, name, text));
    }
    all
}

/// The properties that a body `{"props":{…}}` names.
///
/// # Errors
/// `None` if it is no such body; otherwise [`Error::InvalidProps`] with what is wrong with each.
pub(super) fn read(body: &[u8]) -> Result<Vec<Prop>, Option<Error>> {
    let body: Value = serde_json::from_slice(body).map_err(|_| None)?;
    let props = body.get("props").and_then(Value::as_object).ok_or(None)?;
    let (mut named, mut wrong) = (Vec::new(), Vec::new());
    for (name, value) in props.iter().filter(|(name, _)| !LABELS.contains(&names::plain_field(name))) {
        // A property that is not set is told as none, and may come back so.
        match prop(name, value) {
            Some(Ok(prop)) => named.push(prop),
            Some(Err(word)) => {
                let name = Prop::NAMES.iter().find(|known| **known == name.as_str());
                wrong.push((*name.unwrap_or(&"props"), Reason::Word(word)));
            }
            None => {
                let meant = kv::closest(name, Prop::NAMES.iter().copied());
                let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
                wrong.push(("props", Reason::Text(format!("{name} is no property{meant}"))));
            }
        }
    }
    if wrong.is_empty() { Ok(named) } else { Err(Some(Error::InvalidProps(wrong))) }
}

/// Reads a name.
type ReadText = fn(&Value) -> Result<Bytes, &'static str>;

fn prop(name: &str, value: &Value) -> Option<Result<Prop, &'static str>> {
    let texts = ["backend", "search_index", "datatype"];
    let plain = names::plain_field(name);
    let is_encoded = plain != name && texts.contains(&plain);
    let (name, text) = if is_encoded { (plain, encoded_text as ReadText) } else { (name, text as ReadText) };
    Some(match name {
        "n_val" => int(value).map(Prop::NVal),
        "allow_mult" => flag(value).map(Prop::AllowMult),
        "last_write_wins" => flag(value).map(Prop::LastWriteWins),
        "precommit" => hooks(value).map(Prop::Precommit),
        "postcommit" => hooks(value).map(Prop::Postcommit),
        "chash_keyfun" => read_mod_fun(value).map(Prop::ChashKeyfun),
        "linkfun" => read_mod_fun(value).map(Prop::Linkfun),
        "old_vclock" => int(value).map(Prop::OldVclock),
        "young_vclock" => int(value).map(Prop::YoungVclock),
        "big_vclock" => int(value).map(Prop::BigVclock),
        "small_vclock" => int(value).map(Prop::SmallVclock),
        "pr" => quorum(value).map(Prop::Pr),
        "r" => quorum(value).map(Prop::R),
        "w" => quorum(value).map(Prop::W),
        "pw" => quorum(value).map(Prop::Pw),
        "dw" => quorum(value).map(Prop::Dw),
        "rw" => quorum(value).map(Prop::Rw),
        "basic_quorum" => flag(value).map(Prop::BasicQuorum),
        "notfound_ok" => flag(value).map(Prop::NotfoundOk),
        "backend" => text(value).map(|name| Prop::Backend(Some(name))),
        "search" => flag(value).map(|on| Prop::Search(Some(on))),
        "repl" => repl(value).map(Prop::Repl),
        "search_index" => text(value).map(|name| Prop::SearchIndex(Some(name))),
        "datatype" => text(value).map(|name| Prop::Datatype(Some(name))),
        "consistent" => flag(value).map(Prop::Consistent),
        "write_once" => flag(value).map(Prop::WriteOnce),
        "hll_precision" => int(value).map(|bits| Prop::HllPrecision(Some(bits))),
        "node_confirms" => int(value).map(Prop::NodeConfirms).map_err(|_| "not_valid_quorum"),
        "sync_on_write" => sync(value).map(Prop::SyncOnWrite),
        "aae_tree_exclude" => flag(value).map(Prop::AaeTreeExclude),
        "dvv_enabled" => flag(value).map(Prop::DvvEnabled),
        "ttl" => int(value).map(Prop::Ttl),
        _ => return None,
    })
}

fn int(value: &Value) -> Result<u32, &'static str> {
    value.as_u64().and_then(|number| u32::try_from(number).ok()).ok_or("not_integer")
}

fn flag(value: &Value) -> Result<bool, &'static str> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        Value::Number(number) => number.as_i64().map(|number| number > 0).ok_or("not_boolean"),
        _ => Err("not_boolean"),
    }
}

fn quorum(value: &Value) -> Result<Quorum, &'static str> {
    match value.as_str() {
        Some("one") => Ok(Quorum::One),
        Some("quorum") => Ok(Quorum::Quorum),
        Some("all") => Ok(Quorum::All),
        Some(_) => Err("not_valid_quorum"),
        None => int(value).map(Quorum::Exactly).map_err(|_| "not_valid_quorum"),
    }
}

fn quorum_value(quorum: Quorum) -> Value {
    match quorum {
        Quorum::Default => json!("default"),
        Quorum::One => json!("one"),
        Quorum::Quorum => json!("quorum"),
        Quorum::All => json!("all"),
        Quorum::Exactly(count) => json!(count),
    }
}

fn encoded_text(value: &Value) -> Result<Bytes, &'static str> {
    value.as_str().and_then(names::decoded).ok_or("not_a_name")
}

fn text(value: &Value) -> Result<Bytes, &'static str> {
    value.as_str().map(|text| Bytes::copy_from_slice(text.as_bytes())).ok_or("not_a_name")
}

fn mod_fun(fun: &ModFun) -> Value {
    let mut object = names::named("mod", &fun.module);
    names::put_name(&mut object, "fun", &fun.function);
    Value::Object(object)
}

fn read_mod_fun(value: &Value) -> Result<ModFun, &'static str> {
    let part = |name: &str| match value.get(name) {
        Some(part) => text(part),
        None => value.get(names::encoded_field(name)).ok_or("not_a_function").and_then(encoded_text),
    };
    Ok(ModFun { module: part("mod")?, function: part("fun")? })
}

fn hook(hook: &Hook) -> Value {
    match hook {
        Hook::Erlang(fun) => mod_fun(fun),
        Hook::Named(name) => Value::Object(names::named("name", name)),
    }
}

fn hooks(value: &Value) -> Result<Vec<Hook>, &'static str> {
    let read = |hook: &Value| match (hook.get("name"), hook.get(names::encoded_field("name"))) {
        (Some(name), _) => text(name).map(Hook::Named),
        (None, Some(name)) => encoded_text(name).map(Hook::Named),
        (None, None) => read_mod_fun(hook).map(Hook::Erlang),
    };
    match value {
        Value::Array(list) => list.iter().map(read).collect(),
        // Riak takes one hook for a list of it.
        Value::Object(_) => read(value).map(|hook| vec![hook]),
        _ => Err("not_a_list"),
    }
}

fn sync_word(sync: SyncOnWrite) -> &'static str {
    match sync {
        SyncOnWrite::Backend => "backend",
        SyncOnWrite::One => "one",
        SyncOnWrite::All => "all",
    }
}

fn sync(value: &Value) -> Result<SyncOnWrite, &'static str> {
    match value.as_str() {
        Some("backend") => Ok(SyncOnWrite::Backend),
        Some("one") => Ok(SyncOnWrite::One),
        Some("all") => Ok(SyncOnWrite::All),
        _ => Err("not_valid_sync_param"),
    }
}

fn repl_value(repl: Repl) -> Value {
    match repl {
        Repl::False => json!(false),
        Repl::Realtime => json!("realtime"),
        Repl::Fullsync => json!("fullsync"),
        Repl::True => json!(true),
    }
}

fn repl(value: &Value) -> Result<Repl, &'static str> {
    match value.as_str() {
        Some("realtime") => Ok(Repl::Realtime),
        Some("fullsync") => Ok(Repl::Fullsync),
        _ => flag(value).map(|on| if on { Repl::True } else { Repl::False }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::props::Subject;

    fn body(props: &str) -> Vec<u8> {
        format!("{{\"props\":{props}}}").into_bytes()
    }

    #[test]
    fn every_property_survives_the_way_out_and_in() {
        let changes = [
            Prop::NVal(5),
            Prop::AllowMult(true),
            Prop::Precommit(vec![Hook::Named(Bytes::from("js"))]),
            Prop::R(Quorum::One),
            Prop::W(Quorum::Exactly(4)),
            Prop::Search(Some(false)),
            Prop::Postcommit(vec![Hook::Named(Bytes::from_static(b"\xFF%"))]),
            Prop::Linkfun(ModFun { module: Bytes::from_static(b"m\xFE"), function: Bytes::from("f") }),
            Prop::Repl(Repl::Realtime),
            Prop::SyncOnWrite(SyncOnWrite::All),
            Prop::HllPrecision(Some(9)),
            Prop::NodeConfirms(2),
            Prop::Ttl(86_400),
        ];
        // What an older program may have stored, too.
        let mut props = BucketProps::of_new_type();
        (props.backend, props.search_index) = (Some(Bytes::from("multi")), Some(Bytes::from_static(b"\xFF")));
        let before = props.clone();
        let props = props.changed(&changes, Subject::NewType).unwrap();
        let text = serde_json::to_string(&json!({ "props": write(&props) })).unwrap();
        let named = read(text.as_bytes()).unwrap();
        assert_eq!(before.changed(&named, Subject::NewType), Ok(props));
        for name in Prop::NAMES {
            let optional = ["search_index", "datatype"];
            assert!(text.contains(&format!("\"{name}\":")) || optional.contains(name), "{name}");
        }
    }

    #[test]
    fn forms_are_riaks() {
        let all = write(&BucketProps::default());
        assert_eq!(all["chash_keyfun"], json!({ "mod": "riak_core_util", "fun": "chash_std_keyfun" }));
        assert_eq!(all["linkfun"], json!({ "mod": "riak_kv_wm_link_walker", "fun": "mapreduce_linkfun" }));
        assert_eq!((&all["r"], &all["pr"], &all["precommit"]), (&json!("quorum"), &json!(0), &json!([])));
        assert_eq!((&all["allow_mult"], &all["n_val"]), (&json!(false), &json!(3)));
        let given =
            body(r#"{"allow_mult":"TRUE","basic_quorum":1,"name":"b","precommit":{"name":"js"},"w":2}"#);
        let expected = [
            Prop::AllowMult(true),
            Prop::BasicQuorum(true),
            Prop::Precommit(vec![Hook::Named(Bytes::from("js"))]),
            Prop::W(Quorum::Exactly(2)),
        ];
        assert_eq!(read(&given), Ok(expected.to_vec()));
    }

    #[test]
    fn what_is_wrong_is_told_by_name() {
        for bad in ["", "{", "[]", "{\"props\":3}", "{}"] {
            assert_eq!(read(bad.as_bytes()), Err(None), "{bad}");
        }
        let given = body(
            r#"{"n_val":"three","allow_mult":"maybe","r":"some","x":1,"alow_mult":true,"linkfun":{},"old_vclock":-1}"#,
        );
        let Err(Some(Error::InvalidProps(reasons))) = read(&given) else { panic!("all are wrong") };
        let told: Vec<String> = reasons.iter().map(|reason| format!("{reason:?}")).collect();
        let expected = [
            r#"("allow_mult", Word("not_boolean"))"#,
            r#"("props", Text("alow_mult is no property; did you mean allow_mult?"))"#,
            r#"("linkfun", Word("not_a_function"))"#,
            r#"("n_val", Word("not_integer"))"#,
            r#"("old_vclock", Word("not_integer"))"#,
            r#"("r", Word("not_valid_quorum"))"#,
            r#"("props", Text("x is no property"))"#,
        ];
        assert_eq!(told, expected);
    }
}
