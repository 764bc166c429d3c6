//! A serializer that keeps the figures of `/metrics` of a value that serializes as the answer of `/stats`.
//!
//! 1. A name is looked up in the table. The value of a name that `/metrics` lacks is passed over, whatever it is.
//! 2. A number or a text goes to its row. The number of a level goes there with the level.
//! 3. The object `peers` has an object for each peer.
//!
//! So each name is declared once, in the struct that `/stats` shows, and a scrape makes no tree of names and values.

use crate::figure::{Figure, Scope};
use crate::reading::{Number, Reading};
use crate::table::FIGURES;
use base::FastMap;
use serde::ser::{self, Impossible, Serialize, SerializeMap, SerializeStruct, Serializer};
use std::fmt;
use std::sync::LazyLock;

/// The name of the object with the peers' figures.
const PEERS: &str = "peers";

/// The rows of `/metrics` with a name of their own in `/stats`, by that name.
static ROWS: LazyLock<FastMap<&'static str, usize>> = LazyLock::new(|| {
    let is_of_metrics = |figure: &Figure| !figure.metric.is_empty() && figure.scope != Scope::Level;
    let rows = FIGURES.iter().enumerate().filter(|(_, figure)| is_of_metrics(figure));
    rows.map(|(row, figure)| (figure.stat, row)).collect()
});

/// The rows of levels.
static LEVEL_ROWS: LazyLock<Vec<usize>> =
    LazyLock::new(|| (0..FIGURES.len()).filter(|&row| FIGURES[row].scope == Scope::Level).collect());

/// Statistics that are not of the form that the table describes.
#[derive(Debug)]
pub struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the figures cannot be read: {}", self.0)
    }
}

impl std::error::Error for Unreadable {}

impl ser::Error for Unreadable {
    fn custom<T: fmt::Display>(message: T) -> Unreadable {
        Unreadable(message.to_string())
    }
}

/// The serializer.
pub(crate) struct Extractor<'r> {
    reading: &'r mut Reading,
    /// The last name.
    name: String,
    /// The place of the value that comes next.
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The object of the node.
    Node,
    /// The object of all peers.
    Peers,
    /// The object of one peer.
    Peer,
    /// A name in an object.
    Name,
    /// A value of this row.
    Row(usize),
    /// A value of this row, of the level in the name.
    LevelRow(usize),
    /// A value of this row, of the last peer.
    PeerRow(usize),
}

impl<'r> Extractor<'r> {
    /// A serializer for the object of a node.
    pub(crate) fn new(reading: &'r mut Reading) -> Extractor<'r> {
        Extractor { reading, name: String::new(), place: Place::Node }
    }

    fn object(&mut self) -> Result<Object<'_, 'r>, Unreadable> {
        let place = self.place;
        match place {
            Place::Node | Place::Peers => {}
            Place::Peer => self.reading.peers.push((self.name.clone(), Vec::new())),
            Place::Name | Place::Row(_) | Place::LevelRow(_) | Place::PeerRow(_) => {
                return Err(self.misplaced());
            }
        }
        Ok(Object { extractor: self, place })
    }

    fn take(&mut self, number: Number) -> Result<(), Unreadable> {
        match self.place {
            Place::Row(row) => self.reading.numbers[row] = Some(number),
            Place::LevelRow(row) => {
                let level = FIGURES[row].level_of(&self.name).ok_or_else(|| self.misplaced())?;
                self.reading.levels.push((row, level.to_owned(), number));
            }
            Place::PeerRow(row) => {
                let peer = self.reading.peers.last_mut().expect("its object has begun");
                peer.1.push((row, number));
            }
            Place::Node | Place::Peers | Place::Peer | Place::Name => return Err(self.misplaced()),
        }
        Ok(())
    }

    fn misplaced(&self) -> Unreadable {
        Unreadable(format!("{:?} is not expected behind the name {:?}", self.place, self.name))
    }
}

/// An object under way.
pub(crate) struct Object<'e, 'r> {
    extractor: &'e mut Extractor<'r>,
    place: Place,
}

impl Object<'_, '_> {
    /// The place of the value behind the last name; `None` if it is passed over.
    fn next(&self) -> Option<Place> {
        let name = &*self.extractor.name;
        let row = || ROWS.get(name).copied();
        match self.place {
            Place::Node if name == PEERS => Some(Place::Peers),
            Place::Node => row().map(Place::Row).or_else(|| level_row(name).map(Place::LevelRow)),
            Place::Peers => Some(Place::Peer),
            _ => row().filter(|&row| FIGURES[row].scope == Scope::Peer).map(Place::PeerRow),
        }
    }
}

fn level_row(name: &str) -> Option<usize> {
    // Most names have no number, and are compared with none.
    let has_number = name.bytes().any(|byte| byte.is_ascii_digit());
    let mut rows = LEVEL_ROWS.iter().copied().filter(|_| has_number);
    rows.find(|&row| FIGURES[row].level_of(name).is_some())
}

impl SerializeMap for Object<'_, '_> {
    type Ok = ();
    type Error = Unreadable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unreadable> {
        self.extractor.place = Place::Name;
        key.serialize(&mut *self.extractor)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unreadable> {
        let Some(place) = self.next() else { return Ok(()) };
        self.extractor.place = place;
        value.serialize(&mut *self.extractor)
    }

    fn end(self) -> Result<(), Unreadable> {
        Ok(())
    }
}

impl SerializeStruct for Object<'_, '_> {
    type Ok = ();
    type Error = Unreadable;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Unreadable> {
        SerializeMap::serialize_entry(self, key, value)
    }

    fn end(self) -> Result<(), Unreadable> {
        Ok(())
    }
}

/// Methods for numbers that are not negative, and for values that no figure has.
macro_rules! take {
    (whole $($method:ident $type:ty),*) => { $(
        fn $method(self, value: $type) -> Result<(), Unreadable> {
            self.take(Number::Whole(value.into()))
        }
    )* };
    (signed $($method:ident $type:ty),*) => { $(
        fn $method(self, value: $type) -> Result<(), Unreadable> {
            self.take(u64::try_from(value).map_or(Number::Part(value as f64), Number::Whole))
        }
    )* };
    (wrong $($method:ident($($type:ty),*) -> $ok:ty),*) => { $(
        fn $method(self, $(_: $type),*) -> Result<$ok, Unreadable> {
            Err(self.misplaced())
        }
    )* };
}

impl<'e, 'r> Serializer for &'e mut Extractor<'r> {
    type Ok = ();
    type Error = Unreadable;
    type SerializeSeq = Impossible<(), Unreadable>;
    type SerializeTuple = Impossible<(), Unreadable>;
    type SerializeTupleStruct = Impossible<(), Unreadable>;
    type SerializeTupleVariant = Impossible<(), Unreadable>;
    type SerializeMap = Object<'e, 'r>;
    type SerializeStruct = Object<'e, 'r>;
    type SerializeStructVariant = Impossible<(), Unreadable>;

    take!(whole serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_u64 u64);
    take!(signed serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64);
    take!(wrong
        serialize_bool(bool) -> (),
        serialize_char(char) -> (),
        serialize_bytes(&[u8]) -> (),
        serialize_unit_struct(&'static str) -> (),
        serialize_unit_variant(&'static str, u32, &'static str) -> (),
        serialize_seq(Option<usize>) -> Self::SerializeSeq,
        serialize_tuple(usize) -> Self::SerializeTuple,
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct,
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant,
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant
    );

    fn serialize_f32(self, value: f32) -> Result<(), Unreadable> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Unreadable> {
        // As in JSON, any other is no value.
        if value.is_finite() { self.take(Number::Part(value)) } else { Ok(()) }
    }

    fn serialize_str(self, text: &str) -> Result<(), Unreadable> {
        match self.place {
            Place::Name => {
                self.name.clear();
                self.name.push_str(text);
            }
            Place::Row(row) => self.reading.texts.push((row, text.to_owned())),
            _ => return Err(self.misplaced()),
        }
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Unreadable> {
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), Unreadable> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Unreadable> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Unreadable> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Unreadable> {
        Err(self.misplaced())
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Object<'e, 'r>, Unreadable> {
        self.object()
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Object<'e, 'r>, Unreadable> {
        self.object()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::reading::{Number, Reading};
    use crate::table::FIGURES;
    use serde_json::json;

    fn row(stat: &str) -> usize {
        FIGURES.iter().position(|figure| figure.stat == stat).unwrap()
    }

    #[test]
    fn each_value_goes_to_its_row() {
        let stats = json!({
            "nodename": "n1@h", "hints": 7, "write_amplification": 1.5, "connections": null, "ring_creation_size": 64,
            "options": { "hints": "9" }, "ring_members": ["n1@h"], "level_2_bytes": 3, "level_2_bytes_more": 9,
            "peers": { "n2@h": { "peer_links_up": 2, "hints": 4 } },
        });
        let reading = Reading::of(&stats, Vec::new()).unwrap();
        let has: Vec<(usize, Number)> =
            reading.numbers.iter().enumerate().filter_map(|(row, number)| Some((row, (*number)?))).collect();
        let mut wanted = [(row("hints"), Number::Whole(7)), (row("write_amplification"), Number::Part(1.5))];
        wanted.sort_by_key(|(row, _)| *row);
        assert_eq!(has, wanted);
        assert_eq!((reading.text(row("nodename")), reading.text(row("annulet_version"))), ("n1@h", ""));
        assert_eq!(reading.levels, [(row("level_N_bytes"), "2".to_owned(), Number::Whole(3))]);
        let links = vec![(row("peer_links_up"), Number::Whole(2))];
        assert_eq!(reading.peers, [("n2@h".to_owned(), links)]);
    }

    #[test]
    fn other_forms_are_refused() {
        for stats in
            [json!([]), json!(1), json!({ "hints": [1] }), json!({ "hints": true }), json!({ "peers": 1 })]
        {
            Reading::of(&stats, Vec::new()).unwrap_err();
        }
    }
}
