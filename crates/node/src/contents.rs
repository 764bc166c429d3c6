//! The siblings of an object that was found, as the protocols show them: all, or the newest.
//!
//! Several stand in Riak's order (`riak_object:compare/2`): bytewise by value, then by metadata. Where values were left
//! out, metadata alone decides. An object of one sibling, the common case, allocates nothing.

use std::cmp::Ordering;
use std::vec::IntoIter;

use kv::Found;
use object::{HeadView, SiblingView, Siblings, Vtag};

/// The siblings to answer.
pub(crate) enum Contents<'a> {
    /// The only one.
    Single(Siblings<'a>, &'a [u8]),
    /// All of several, in order.
    Several(IntoIter<Content<'a>>),
    /// The newest alone.
    Newest(Option<Box<SiblingView<'a>>>, &'a [u8]),
}

impl<'a> Contents<'a> {
    /// Those of an object that was found.
    pub fn new(head: &HeadView<'a>, found: &'a Found) -> Contents<'a> {
        let values = found.value.as_deref().unwrap_or_default();
        if found.newest_only && head.sibling_count() > 1 {
            Contents::Newest(Some(Box::new(head.newest())), values)
        } else if head.sibling_count() > 1 {
            let mut all: Vec<Content<'a>> =
                head.siblings().map(|sibling| Content::new(sibling, values)).collect();
            all.sort_by(Content::order);
            Contents::Several(all.into_iter())
        } else {
            Contents::Single(head.siblings(), values)
        }
    }
}

impl<'a> Iterator for Contents<'a> {
    type Item = Content<'a>;

    fn next(&mut self) -> Option<Content<'a>> {
        match self {
            Contents::Single(siblings, values) => Some(Content::new(siblings.next()?, values)),
            Contents::Several(all) => all.next(),
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

    /// Riak's order: by value, by the number of metadata entries, and by these in the order of their names there:
    /// links, tombstone, last modification, the client's pairs, vtag, and the rest.
    fn order(&self, other: &Content<'_>) -> Ordering {
        let (one, two) = (&self.sibling, &other.sibling);
        let links = |it: &SiblingView<'_>| {
            it.links
                .clone()
                .map(|link| [link.bucket, link.key, link.tag].map(<[u8]>::to_vec))
                .collect::<Vec<_>>()
        };
        let pairs = |it: &SiblingView<'_>| {
            let pairs = it.user_meta.clone();
            pairs.map(|pair| (pair.key.to_vec(), pair.value.map(<[u8]>::to_vec))).collect::<Vec<_>>()
        };

        let by_value = self.value.cmp(other.value);
        by_value
            .then_with(|| metadata_len(one).cmp(&metadata_len(two)))
            .then_with(|| links(one).cmp(&links(two)))
            .then_with(|| one.deleted.cmp(&two.deleted))
            .then_with(|| one.last_modified.cmp(&two.last_modified))
            .then_with(|| pairs(one).cmp(&pairs(two)))
            .then_with(|| self.vtag.as_ref().cmp(other.vtag.as_ref()))
    }
}

/// The number of entries that Riak's metadata has of a sibling, those that all have left out.
fn metadata_len(sibling: &SiblingView<'_>) -> usize {
    let present = [
        sibling.deleted,
        sibling.content_type.is_some(),
        sibling.charset.is_some(),
        sibling.content_encoding.is_some(),
        sibling.links.len() > 0,
        sibling.user_meta.len() > 0,
        sibling.indexes.len() > 0,
    ];
    present.into_iter().filter(|is_present| *is_present).count()
}
