//! The language of queries: whatever reads as an expression is written again as the same, and says something of every
//! term within its bounds.
#![no_main]

use bytes::Bytes;
use kv::query::{
    Attributes, Condition, Constant, JOINED_BYTES_MAX, Name, Pipeline, SetExpression, Substitutions,
    TEXT_BYTES_MAX,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &[u8])| {
    let (text, term) = input;
    let text_of = |text: &str| Constant::Text(text.to_owned());
    let known: Substitutions = [("a", text_of("|")), ("b", text_of("\"\\")), ("c", Constant::Number(-1))]
        .map(|(n, v)| (n.to_owned(), v))
        .into();
    let term = &term[..term.len().min(1024)];
    let mut attributes = Attributes::new(Bytes::copy_from_slice(term), Bytes::from_static(b"key"));
    if let Ok(pipeline) = Pipeline::parse(text, &known) {
        let again = pipeline.to_string();
        assert!(
            again.len() > TEXT_BYTES_MAX
                || Pipeline::parse(&again, &Substitutions::new()) == Ok(pipeline.clone())
        );
        pipeline.run(&mut attributes);
        let long = attributes.text(&Name("a".to_owned())).map_or(0, Bytes::len);
        assert!(long <= JOINED_BYTES_MAX);
    }
    if let Ok(condition) = Condition::parse(text, &known) {
        let again = condition.to_string();
        assert!(
            again.len() > TEXT_BYTES_MAX
                || Condition::parse(&again, &Substitutions::new()) == Ok(condition.clone())
        );
        condition.holds(&attributes);
    }
    if let Ok(sets) = SetExpression::parse(text) {
        assert_eq!(SetExpression::parse(&sets.to_string()), Ok(sets));
    }
});
