//! Codes of refusals, by which nodes tell each other why a command changes nothing: `docs/formats/membership.md`.

use ring::{MemberState, NodeId};

use super::command::Rejected;
use super::fields::state_code;

impl Rejected {
    /// Its code, from 16 on, and the number in it.
    pub(crate) fn code(&self) -> (u8, u32) {
        use Rejected::*;
        match *self {
            Stale => (16, 0),
            NotMember => (17, 0),
            NameTaken => (18, 0),
            Full => (19, 0),
            State(state) => (20, state_code(state).into()),
            NotJoining => (21, 0),
            NobodyLeft => (22, 0),
            NothingStaged => (23, 0),
            Owners => (24, 0),
            Text => (26, 0),
            Restored { starts } => (27, starts),
            Moving => (28, 0),
            // Both are powers of two.
            Size { has, most } => (29, has.trailing_zeros() << 8 | most.trailing_zeros()),
            Life => (30, 0),
            Unprepared => (31, 0),
            Stores => (32, 0),
            Unregistered(node) => (33, node.0.into()),
            NVal => (34, 0),
            Unfounded => (35, 0),
            Pinned => (36, 0),
            Policy => (37, 0),
        }
    }

    /// The one with this code.
    pub(crate) fn of_code(code: u8, number: u32) -> Option<Self> {
        use Rejected::*;
        Some(match code {
            16 => Stale,
            17 => NotMember,
            18 => NameTaken,
            19 => Full,
            20 => State(MemberState::ALL.into_iter().find(|&state| u32::from(state_code(state)) == number)?),
            21 => NotJoining,
            22 => NobodyLeft,
            23 => NothingStaged,
            24 => Owners,
            26 => Text,
            27 => Restored { starts: number },
            28 => Moving,
            29 if number >> 8 < 32 && number & 0xff < 32 => {
                Size { has: 1 << (number >> 8), most: 1 << (number & 0xff) }
            }
            30 => Life,
            31 => Unprepared,
            32 => Stores,
            33 => Unregistered(NodeId(u16::try_from(number).ok()?)),
            34 => NVal,
            35 => Unfounded,
            36 => Pinned,
            37 => Policy,
            _ => return None,
        })
    }
}
