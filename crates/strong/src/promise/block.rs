//! The bytes that each envelope and each ping carry of promises: `docs/formats/strong.md`.
//!
//! Lives are those of the frame: a block is for one life of the receiver, and another one drops it with its frame.

use base::Monotonic;
use bytes::{BufMut, BytesMut};
use protocol::peer::{Malformed, Reader, put_varint};

/// The version of the encoding that is written, and the only one read.
pub const BLOCK_VERSION: u8 = 1;

/// Bits of the flags.
const ASKS: u8 = 1;
const RELEASED: u8 = 2;
const ECHO: u8 = 4;
const PROMISE: u8 = 8;
const FLAGS: u8 = ASKS | RELEASED | ECHO | PROMISE;

/// One process's word to another about promises between them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// The sender's reading of its clock, taken before the frame is sent.
    pub stamp: Monotonic,
    /// The highest stamp of the receiver's that the sender has heard.
    pub echo: Option<Monotonic>,
    /// The number of the sender's promise to the receiver, and the receiver's stamp that renewed it.
    pub promise: Option<(u64, Monotonic)>,
    /// The sender wants a promise: the loop of each of its shards turned within [`super::TURN_MAX`].
    pub asks: bool,
    /// The sender has given up the leases of all its groups, for the rest of its life.
    pub is_released: bool,
}

impl Block {
    /// Appends its bytes.
    pub fn put(&self, out: &mut BytesMut) {
        let flag = |flag: u8, is_set: bool| if is_set { flag } else { 0 };
        out.put_u8(BLOCK_VERSION);
        out.put_u8(
            flag(ASKS, self.asks)
                | flag(RELEASED, self.is_released)
                | flag(ECHO, self.echo.is_some())
                | flag(PROMISE, self.promise.is_some()),
        );
        out.put_u64_le(self.stamp.0);
        if let Some(echo) = self.echo {
            out.put_u64_le(echo.0);
        }
        if let Some((number, stamp)) = self.promise {
            put_varint(out, number);
            out.put_u64_le(stamp.0);
        }
    }

    /// Reads a block; what follows it is left in `fields`.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(fields: &mut Reader) -> Result<Block, Malformed> {
        if fields.u8()? != BLOCK_VERSION {
            return Err(Malformed("an unknown version of a promise"));
        }
        let flags = fields.u8()?;
        if flags & !FLAGS != 0 {
            return Err(Malformed("unknown flags of a promise"));
        }
        let has = |flag: u8| flags & flag != 0;
        let stamp = Monotonic(fields.u64()?);
        let echo = has(ECHO).then(|| fields.u64().map(Monotonic)).transpose()?;
        let promise = has(PROMISE).then(|| read_promise(fields)).transpose()?;
        Ok(Block { stamp, echo, promise, asks: has(ASKS), is_released: has(RELEASED) })
    }
}

fn read_promise(fields: &mut Reader) -> Result<(u64, Monotonic), Malformed> {
    match fields.varint()? {
        0 => Err(Malformed("a promise without a number")),
        number => Ok((number, Monotonic(fields.u64()?))),
    }
}
