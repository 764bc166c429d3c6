//! The siblings of an object that was found, as the protocols show them: all, or the newest.

use kv::Found;
use object::{HeadView, SiblingView, Siblings, Vtag};

/// The siblings to answer.
pub(crate) enum Contents<'a> {
    /// All of them.
    All(Siblings<'a>, &'a [u8]),
    /// The newest alone.
    Newest(Option<Box<SiblingView<'a>>>, &'a [u8]),
}

impl<'a> Contents<'a> {
    /// Those of an object that was found.
    pub fn new(head: &HeadView<'a>, found: &'a Found) -> Contents<'a> {
        let values = found.value.as_deref().unwrap_or_default();
        if found.newest_only && head.sibling_count() > 1 {
            Contents::Newest(Some(Box::new(head.newest())), values)
        } else {
            Contents::All(head.siblings(), values)
        }
    }
}

impl<'a> Iterator for Contents<'a> {
    type Item = Content<'a>;

    fn next(&mut self) -> Option<Content<'a>> {
        match self {
            Contents::All(siblings, values) => Some(Content::new(siblings.next()?, values)),
            Contents::Newest(newest, values) => Some(Content::new(*newest.take()?, values)),
        }
    }
}

/// One sibling with its value.
pub(crate) struct Content<'a> {
    /// What its head says of it.
    pub sibling: SiblingView<'a>,
    /// Its tag.
    pub vtag: Vtag,
    /// Its value; empty if values were left out.
    pub value: &'a [u8],
}

impl<'a> Content<'a> {
    fn new(sibling: SiblingView<'a>, values: &'a [u8]) -> Content<'a> {
        let value = usize::try_from(sibling.value_offset).ok().and_then(|start| {
            let len = usize::try_from(sibling.value_len).ok()?;
            values.get(start..start.checked_add(len)?)
        });
        // Values are as long as the head says, or they were left out and nothing is to be shown.
        Content { vtag: sibling.vtag(), value: value.unwrap_or_default(), sibling }
    }
}
