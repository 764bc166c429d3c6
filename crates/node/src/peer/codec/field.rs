//! How things are written that are made of other things.
//!
//! [`record`] writes a struct as its fields, [`variants`] an enum as a tag and the fields of the variant. Both are
//! given names only, once for both directions, and do not compile while one is missing.
//!
//! Invariant: `take` reads exactly what `put` writes. A value ([`Value`]) is the exception: `put` leaves it to the
//! frame, and `take` takes all that is left; so whatever ends with one must be the last field of its message.

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};

/// The most entries a list may have: as many as a client's request can bring. An entry may be a byte on the link and
/// a hundred in memory.
pub(super) const LIST_MAX: usize = 65_536;

/// Something that a body is made of.
pub(super) trait Field: Sized {
    /// Appends it.
    fn put(&self, out: &mut BytesMut);
    /// Takes one off the front.
    fn take(from: &mut Reader) -> Result<Self, Malformed>;
}

/// The value at the end of a body.
pub(super) trait Value: Sized {
    /// Appends what tells whether there is one, if that is not certain.
    fn put_mark(&self, out: &mut BytesMut);
    /// Takes all that is left.
    fn take(from: &mut Reader) -> Result<Self, Malformed>;
}

impl Value for Bytes {
    fn put_mark(&self, _out: &mut BytesMut) {}
    fn take(from: &mut Reader) -> Result<Bytes, Malformed> {
        Ok(from.rest())
    }
}

impl Value for Option<Bytes> {
    fn put_mark(&self, out: &mut BytesMut) {
        self.is_some().put(out);
    }
    fn take(from: &mut Reader) -> Result<Option<Bytes>, Malformed> {
        Ok(if bool::take(from)? { Some(from.rest()) } else { None })
    }
}

/// A struct: its fields in the order given; after a semicolon, its value. What it is `without` is written otherwise,
/// and is taken as its default.
macro_rules! record {
    ($type:ty { $($field:ident),* $(; $value:ident)? } $(without $left_out:ident)?) => {
        impl $crate::peer::codec::field::Field for $type {
            fn put(&self, out: &mut bytes::BytesMut) {
                let Self { $($field,)* $($value,)? $($left_out: _)? } = self;
                $($crate::peer::codec::field::Field::put($field, out);)*
                $($crate::peer::codec::field::Value::put_mark($value, out);)?
            }
            fn take(
                from: &mut protocol::peer::Reader,
            ) -> Result<Self, protocol::peer::Malformed> {
                Ok(Self {
                    $($field: $crate::peer::codec::field::Field::take(from)?,)*
                    $($value: $crate::peer::codec::field::Value::take(from)?,)?
                    $($left_out: Default::default())?
                })
            }
        }
    };
}

/// An enum: a tag, then the variant's fields in the order given (`0: name` for what has no name); after a semicolon,
/// its value.
macro_rules! variants {
    ($type:ident, $unknown:literal {
        $($tag:literal $variant:ident $({ $($field:tt: $name:ident),* $(; $value:ident)? })?,)*
    }) => {
        impl $crate::peer::codec::field::Field for $type {
            fn put(&self, out: &mut bytes::BytesMut) {
                match self {
                    $($type::$variant $({ $($field: $name,)* $($value)? })? => {
                        bytes::BufMut::put_u8(out, $tag);
                        $($($crate::peer::codec::field::Field::put($name, out);)*
                        $($crate::peer::codec::field::Value::put_mark($value, out);)?)?
                    })*
                }
            }
            fn take(
                from: &mut protocol::peer::Reader,
            ) -> Result<Self, protocol::peer::Malformed> {
                Ok(match from.u8()? {
                    $($tag => $type::$variant $({
                        $($field: $crate::peer::codec::field::Field::take(from)?,)*
                        $($value: $crate::peer::codec::field::Value::take(from)?)?
                    })?,)*
                    _ => return Err(protocol::peer::Malformed($unknown)),
                })
            }
        }
    };
}

pub(super) use {record, variants};

impl Field for bool {
    fn put(&self, out: &mut BytesMut) {
        out.put_u8(u8::from(*self));
    }
    fn take(from: &mut Reader) -> Result<bool, Malformed> {
        match from.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag is neither 0 nor 1")),
        }
    }
}

impl Field for u16 {
    fn put(&self, out: &mut BytesMut) {
        out.put_u16_le(*self);
    }
    fn take(from: &mut Reader) -> Result<u16, Malformed> {
        from.u16()
    }
}

impl Field for u32 {
    fn put(&self, out: &mut BytesMut) {
        out.put_u32_le(*self);
    }
    fn take(from: &mut Reader) -> Result<u32, Malformed> {
        from.u32()
    }
}

impl Field for u64 {
    fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(*self);
    }
    fn take(from: &mut Reader) -> Result<u64, Malformed> {
        from.u64()
    }
}

/// A count.
impl Field for usize {
    fn put(&self, out: &mut BytesMut) {
        put_varint(out, *self as u64);
    }
    fn take(from: &mut Reader) -> Result<usize, Malformed> {
        from.count()
    }
}

impl Field for Bytes {
    fn put(&self, out: &mut BytesMut) {
        put_bytes(out, self);
    }
    fn take(from: &mut Reader) -> Result<Bytes, Malformed> {
        from.bytes()
    }
}

impl Field for String {
    fn put(&self, out: &mut BytesMut) {
        put_bytes(out, self.as_bytes());
    }
    fn take(from: &mut Reader) -> Result<String, Malformed> {
        let text = from.bytes()?;
        std::str::from_utf8(&text).map(str::to_owned).map_err(|_| Malformed("a text is not UTF-8"))
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut BytesMut) {
        self.is_some().put(out);
        if let Some(thing) = self {
            thing.put(out);
        }
    }
    fn take(from: &mut Reader) -> Result<Option<T>, Malformed> {
        Ok(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

/// A count, then as many.
impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut BytesMut) {
        self.len().put(out);
        self.iter().for_each(|thing| thing.put(out));
    }
    fn take(from: &mut Reader) -> Result<Vec<T>, Malformed> {
        let count = from.count()?;
        if count > LIST_MAX {
            return Err(Malformed("a list is too long"));
        }
        // Grows as entries are found: the count is only a claim.
        (0..count).map(|_| T::take(from)).collect()
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut BytesMut) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(from: &mut Reader) -> Result<(A, B), Malformed> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

impl<T: Field, E: Field> Field for Result<T, E> {
    fn put(&self, out: &mut BytesMut) {
        self.is_err().put(out);
        match self {
            Ok(thing) => thing.put(out),
            Err(error) => error.put(out),
        }
    }
    fn take(from: &mut Reader) -> Result<Result<T, E>, Malformed> {
        Ok(if bool::take(from)? { Err(E::take(from)?) } else { Ok(T::take(from)?) })
    }
}
