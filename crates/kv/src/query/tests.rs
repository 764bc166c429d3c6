#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeSet;

const TERM: &str = "19650501|SMITH|ANNE.MARIE.ANNE-MARIE|LS9_0TW";

fn substitutions() -> Substitutions {
    let text = |text: &str| Constant::Text(text.to_owned());
    [("dl1", text("|")), ("dl2", text(".")), ("qgn", text("ANNE")), ("year", Constant::Number(2025))]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

fn run(pipeline: &str, term: &str) -> Attributes {
    let pipeline = Pipeline::parse(pipeline, &substitutions()).unwrap();
    let mut attributes = Attributes::new(Bytes::copy_from_slice(term.as_bytes()), Bytes::from_static(b"key"));
    pipeline.run(&mut attributes);
    attributes
}

fn is(pipeline: &str, condition: &str, term: &str) -> bool {
    Condition::parse(condition, &substitutions()).unwrap().holds(&run(pipeline, term))
}

fn text(attributes: &Attributes, name: &str) -> Option<String> {
    let text = attributes.text(&Name(name.to_owned()))?;
    Some(String::from_utf8(text.to_vec()).unwrap())
}

#[test]
fn a_search_for_people() {
    let pipeline =
        "delim($term, :dl1, ($dob, $fn, $gn, $pc)) | split($gn, :dl2, $gn) | index($dob, 4, 4, $day)";
    let found = run(pipeline, TERM);
    assert_eq!(text(&found, "fn").as_deref(), Some("SMITH"));
    assert_eq!(text(&found, "day").as_deref(), Some("0501"));
    assert!(is(pipeline, r#"($fn = "SMITH") AND (:qgn IN $gn)"#, TERM));
    assert!(is(pipeline, r#"begins_with($fn, "SM") AND NOT ends_with($pc, "XX") AND $day = "0501""#, TERM));
    assert!(!is(pipeline, r#"$fn = "SMIT" OR "JOHN" IN $gn"#, TERM));
    assert!(is(pipeline, r#"$dob BETWEEN "1965" AND "1966" AND $fn IN ("JONES", "SMITH")"#, TERM));
    let groups = r#"regex($term, "\|(?P<fn>SM[A-Z]+)\|", ($fn))"#;
    assert!(is(groups, "attribute_exists($fn)", TERM) && is(groups, "attribute_not_exists($fn)", "x|y|z"));
    let named = "delim($term, \"|\", ($dob, $kvs)) | kvsplit($kvs, \"#\", \"=\")";
    assert!(is(named, r#"$pgn = "ANNE" AND $pc <> "x""#, "1965|fn=SMITH#pgn=ANNE#pc=LS9"));
}

#[test]
fn a_report_by_age() {
    let pipeline = "index($term, 0, 4, $yob) | to_integer($yob, $yob) | index($term, 4, 4, $birthday) \
        | map($birthday, >=, ((\"0530\", :year)), 2024, $yoc) | subtract($yoc, $yob, $age) | to_string($age, $age) \
        | join(($age, $key), \"-\", $both) | slice($term, 3, $parts)";
    assert_eq!(text(&run(pipeline, "19650501"), "age").as_deref(), Some("59"));
    assert_eq!(text(&run(pipeline, "19650630"), "age").as_deref(), Some("60"));
    assert_eq!(text(&run(pipeline, "19650630"), "both").as_deref(), Some("60-key"));
    assert!(is(pipeline, r#""06" IN $parts OR "30" IN $parts"#, "19650630"));
}

#[test]
fn a_stage_without_its_input_is_skipped() {
    for stage in
        ["to_integer($term, $x)", "index($term, 2, 9, $x)", "split($nothing, \",\", $x)", "add($term, 1, $x)"]
    {
        assert!(is(stage, "attribute_not_exists($x)", "abc"), "{stage}");
    }
    let overflow = "to_integer($term, $n) | add($n, 1, $x)";
    assert!(is(overflow, "attribute_not_exists($x)", "9223372036854775807"));
    assert!(
        !is("", "$nothing = \"\"", "t")
            && !is("", "$nothing <> \"\"", "t")
            && is("", "NOT $nothing = 1", "t")
    );
    assert!(is("", "$term <> 1", "1") && !is("", "$term = 1", "1") && !is("", "$term < 2", "1"));
}

#[test]
fn texts_that_are_joined_again_and_again_have_a_bound() {
    let doubled = ["join(($term, $term), \"\", $term)"; 60].join(" | ");
    let long = text(&run(&doubled, "12345678"), "term").unwrap();
    assert!(long.len() <= JOINED_BYTES_MAX && long.len() > JOINED_BYTES_MAX / 3);
}

#[test]
fn sets_bind_as_they_should() {
    let sets = [(1, [1, 2, 3]), (2, [2, 3, 4]), (3, [3, 4, 5])];
    let found = |number: u32| -> BTreeSet<u32> {
        sets.iter().filter(|(it, _)| *it == number).flat_map(|(_, set)| *set).collect()
    };
    let of = |text: &str| SetExpression::parse(text).unwrap().combine(&found).into_iter().collect::<Vec<_>>();
    assert_eq!(of("$1 UNION $2"), [1, 2, 3, 4]);
    assert_eq!(of("($1 INTERSECT $2) UNION ($3 SUBTRACT $1)"), [2, 3, 4, 5]);
    assert_eq!(of("$1 UNION $2 INTERSECT $3 SUBTRACT $1"), [1, 2, 3, 4]);
    assert_eq!(of("($1 UNION $2) SUBTRACT $3"), [1, 2]);
    assert_eq!(of("$1 SUBTRACT $2 SUBTRACT $3"), [1]);
    assert_eq!(SetExpression::parse("$1 UNION ($3 SUBTRACT $1)").unwrap().queries(), [1, 3].into());
}

#[test]
fn what_makes_no_sense_is_refused_with_its_place() {
    let condition = |text: &str| Condition::parse(text, &substitutions()).unwrap_err().to_string();
    assert_eq!(condition("$a = "), "a text, a number or a substitution is expected at character 5");
    assert_eq!(condition("$a = :nothing"), "nothing is given for :nothing at character 5");
    assert_eq!(condition("$a ? 1"), "a character that means nothing at character 3");
    assert_eq!(condition("$a = \"x"), "a text does not end at character 5");
    assert_eq!(condition("$a = 1 $b"), "nothing is expected here at character 7");
    assert_eq!(condition(""), "a text, a number or a substitution is expected at character 0");
    assert!(condition("$a = 99999999999999999999").contains("64 bits"));
    assert!(condition(&"(".repeat(1_000)).contains("64 deep"));
    assert!(condition(&"NOT ".repeat(1_000)).contains("64 deep"));
    assert!(condition(&" ".repeat(TEXT_BYTES_MAX + 1)).contains("16384 bytes"));
    let pipeline = |text: &str| Pipeline::parse(text, &substitutions()).unwrap_err().to_string();
    let long = |stages: usize| vec!["to_integer($term, $n)"; stages].join(" | ");
    assert_eq!(Pipeline::parse(&long(STAGES_MAX), &substitutions()).unwrap().0.len(), STAGES_MAX);
    assert!(pipeline(&long(STAGES_MAX + 1)).starts_with("a pipeline has more than 64 stages"));
    assert!(pipeline("delim($term, 1, ($a))").starts_with("a text is expected"));
    assert!(pipeline("slice($term, 0, $a)").starts_with("a number of 1 or more is expected"));
    assert!(pipeline("index($term, -1, 1, $a)").starts_with("a number of 0 or more is expected"));
    assert!(pipeline("nothing($a)").starts_with("the name of a stage is expected"));
    assert!(pipeline("regex($a, \"(\", ($b))").starts_with("Invalid term regular expression"));
    assert!(SetExpression::parse("$1 AND $2").is_err() && SetExpression::parse("$x").is_err());
}

fn name() -> impl Strategy<Value = Name> {
    prop_oneof![Just("a"), Just("b_2"), Just("term"), Just("AND")].prop_map(|name| Name(name.to_owned()))
}

fn some_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[ -~]{0,6}", Just("ä\"\\".to_owned())]
}

fn constant() -> impl Strategy<Value = Constant> {
    prop_oneof![some_text().prop_map(Constant::Text), any::<i64>().prop_map(Constant::Number)]
}

fn operand() -> impl Strategy<Value = Operand> {
    prop_oneof![name().prop_map(Operand::Attribute), constant().prop_map(Operand::Constant)]
}

fn comparator() -> impl Strategy<Value = Comparator> {
    prop::sample::select(&Comparator::ALL)
}

fn condition() -> impl Strategy<Value = Condition> {
    let leaf = prop_oneof![
        (operand(), comparator(), operand()).prop_map(|(a, by, b)| Condition::Compare(a, by, b)),
        (operand(), operand(), operand()).prop_map(|(a, b, c)| Condition::Between(a, b, c)),
        (operand(), name()).prop_map(|(a, list)| Condition::InList(a, list)),
        (operand(), prop::collection::vec(operand(), 1..3)).prop_map(|(a, list)| Condition::In(a, list)),
        name().prop_map(Condition::Exists),
        name().prop_map(Condition::NotExists),
        name().prop_map(Condition::Empty),
        (name(), operand()).prop_map(|(a, b)| Condition::BeginsWith(a, b)),
        (name(), operand()).prop_map(|(a, b)| Condition::EndsWith(a, b)),
        (name(), operand()).prop_map(|(a, b)| Condition::Contains(a, b)),
    ];
    leaf.prop_recursive(4, 16, 2, |inner| {
        let two = || (inner.clone().prop_map(Box::new), inner.clone().prop_map(Box::new));
        prop_oneof![
            two().prop_map(|(a, b)| Condition::And(a, b)),
            two().prop_map(|(a, b)| Condition::Or(a, b)),
            inner.clone().prop_map(|a| Condition::Not(Box::new(a))),
        ]
    })
}

fn stage() -> impl Strategy<Value = Stage> {
    let names = || prop::collection::vec(name(), 1..3);
    let regex = prop_oneof![Just("(?P<a>.)"), Just("\\|\"x\"")];
    let regex = regex.prop_map(|text| pipeline::Regex::new(text.to_owned()).unwrap());
    prop_oneof![
        (name(), some_text(), names()).prop_map(|(a, by, to)| Stage::Delim(a, by, to)),
        (names(), some_text(), name()).prop_map(|(a, by, to)| Stage::Join(a, by, to)),
        (name(), some_text(), name()).prop_map(|(a, by, to)| Stage::Split(a, by, to)),
        (name(), 1usize..9, name()).prop_map(|(a, len, to)| Stage::Slice(a, len, to)),
        (name(), 0usize..9, 1usize..9, name()).prop_map(|(a, at, len, to)| Stage::Index(a, at, len, to)),
        (name(), some_text(), some_text()).prop_map(|(a, b, c)| Stage::KvSplit(a, b, c)),
        (name(), regex, names()).prop_map(|(a, regex, to)| Stage::Regex(a, regex, to)),
        (name(), comparator(), prop::collection::vec((constant(), constant()), 1..3), constant(), name())
            .prop_map(|(a, by, pairs, default, to)| Stage::Map(a, by, pairs, default, to)),
        (name(), name()).prop_map(|(a, to)| Stage::ToInteger(a, to)),
        (name(), name()).prop_map(|(a, to)| Stage::ToString(a, to)),
        (operand(), operand(), name()).prop_map(|(a, b, to)| Stage::Add(a, b, to)),
        (operand(), operand(), name()).prop_map(|(a, b, to)| Stage::Subtract(a, b, to)),
    ]
}

fn sets() -> impl Strategy<Value = SetExpression> {
    (0u32..5).prop_map(SetExpression::Query).prop_recursive(4, 16, 2, |inner| {
        let two = || (inner.clone().prop_map(Box::new), inner.clone().prop_map(Box::new));
        prop_oneof![
            two().prop_map(|(a, b)| SetExpression::Union(a, b)),
            two().prop_map(|(a, b)| SetExpression::Intersect(a, b)),
            two().prop_map(|(a, b)| SetExpression::Subtract(a, b)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn what_is_written_reads_as_the_same(
        condition in condition(),
        stages in prop::collection::vec(stage(), 0..4),
        sets in sets(),
        term in "[ -~]{0,12}",
    ) {
        let none = Substitutions::new();
        let again = Condition::parse(&condition.to_string(), &none);
        prop_assert_eq!(again.as_ref(), Ok(&condition), "{}", condition);
        let pipeline = Pipeline(stages);
        prop_assert_eq!(Pipeline::parse(&pipeline.to_string(), &none), Ok(pipeline.clone()), "{}", pipeline);
        prop_assert_eq!(SetExpression::parse(&sets.to_string()), Ok(sets));
        // Whatever it says, it says something of every term.
        let mut attributes = Attributes::new(Bytes::from(term), Bytes::from_static(b"k"));
        pipeline.run(&mut attributes);
        condition.holds(&attributes);
    }

    #[test]
    fn random_text_never_panics(
        words in prop::collection::vec(prop_oneof![
            Just("$a"), Just(":x"), Just("\"t\""), Just("-1"), Just("("), Just(")"), Just(","), Just("|"), Just("="),
            Just("AND"), Just("OR"), Just("NOT"), Just("IN"), Just("BETWEEN"), Just("contains"), Just("delim"),
            Just("UNION"), Just("$1"), Just("\\"), Just("\""), Just("ä"),
        ], 0..20),
    ) {
        let text = words.join(" ");
        let known = substitutions();
        if let Ok(condition) = Condition::parse(&text, &known) {
            prop_assert_eq!(Condition::parse(&condition.to_string(), &known), Ok(condition));
        }
        if let Ok(sets) = SetExpression::parse(&text) {
            prop_assert_eq!(SetExpression::parse(&sets.to_string()), Ok(sets));
        }
        prop_assert!(Pipeline::parse(&text, &known).is_ok() || !text.is_empty());
    }
}
