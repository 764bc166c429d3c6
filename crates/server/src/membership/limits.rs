//! How much copies may take, which all nodes agree on: a slot of the state. `docs/formats/membership.md` lists its
//! bytes.

use ::membership::state::{Command, State};
use bytes::{BufMut, Bytes, BytesMut};
use node::Budget;

const SLOT: &[u8] = b"transfer-limit";
const VERSION: u8 = 1;

/// The most transfers at a time that can be asked for: more would only wait for one another.
pub(super) const TRANSFERS_MAX: u32 = 1_000;

/// What is in force.
pub(super) fn of(state: &State) -> Budget {
    // What a later program has put there is its own.
    state.slot(SLOT).and_then(read).unwrap_or_default()
}

/// The command that puts another in force.
pub(super) fn command(state: &State, budget: Budget) -> Command {
    let mut value = BytesMut::new();
    value.put_u8(VERSION);
    value.put_u32_le(budget.sent_max);
    value.put_u32_le(budget.received_max);
    value.put_u64_le(budget.bytes_per_second);
    let name = Bytes::from_static(SLOT);
    Command::Slot { before: state.slot(SLOT).cloned(), name, value: Some(value.freeze()) }
}

fn read(value: &Bytes) -> Option<Budget> {
    let fields: &[u8; 16] = value.strip_prefix(&[VERSION])?.try_into().ok()?;
    let number = |at: usize| u32::from_le_bytes([fields[at], fields[at + 1], fields[at + 2], fields[at + 3]]);
    let bytes_per_second = u64::from(number(8)) | u64::from(number(12)) << 32;
    Some(Budget { sent_max: number(0), received_max: number(4), bytes_per_second })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use ::membership::ClusterId;
    use ring::RingSize;

    #[test]
    fn golden_bytes_of_a_limit() {
        let mut state = State::found(ClusterId(7), RingSize::new(8).unwrap(), "a@h", "h:1", "").unwrap();
        assert_eq!(of(&state), Budget::default());
        let budget = Budget { sent_max: 3, received_max: 0x0102, bytes_per_second: 0x0100_0000_0004 };
        state.apply(&command(&state, budget)).unwrap();
        let bytes = b"\x01\x03\0\0\0\x02\x01\0\0\x04\0\0\0\0\x01\0\0";
        assert_eq!((state.slot(SLOT).map(|it| &it[..]), of(&state)), (Some(&bytes[..]), budget));
        assert_eq!(read(&Bytes::from_static(b"\x02")), None);
        assert_eq!(read(&Bytes::copy_from_slice(&bytes[..9])), None);
    }
}
