//! An object's stored head: the view and the decoder agree on what is one, and what is one is encoded alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use object::{Context, Head, HeadView};

fuzz_target!(|bytes: &[u8]| {
    let head = Head::decode(bytes);
    assert_eq!(head.is_ok(), HeadView::parse(bytes).is_ok());
    if let Ok(head) = head {
        let mut again = Vec::new();
        head.encode(&mut again);
        assert_eq!(Head::decode(&again).ok(), Some(head));
    }
    if let Ok(context) = Context::decode(bytes) {
        assert_eq!(Context::decode(&context.encode()).ok(), Some(context));
    }
});
