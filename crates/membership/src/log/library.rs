//! The consensus library's own types, made of ours and the other way round.
//!
//! The library keeps its messages in types of protocol buffers. They are never parsed from what a peer or a disk sent:
//! on the wire and in the file are our own encodings ([`super::message`], [`super::file`]), whose readers are bounded.
//! The one thing parsed is a change of the voters that this process encoded itself.
//!
//! The library's numbers of nodes begin at one: ours, and one more.

use bytes::{BufMut, Bytes, BytesMut};
use protobuf::Message as _;
use protocol::peer::{Malformed, Reader};
use raft::eraftpb::{self, ConfChangeType, EntryType, MessageType};
use ring::NodeId;

use super::entry::{Conf, Entry, Payload, Snapshot, VoterChange, entries, number, put_entries};
use crate::state::Command;

/// The library's number of a node.
pub(super) fn id_of(node: NodeId) -> u64 {
    u64::from(node.0) + 1
}

/// The node of the library's number.
pub(super) fn node_of(id: u64) -> Option<NodeId> {
    u16::try_from(id.checked_sub(1)?).ok().map(NodeId)
}

/// Who votes, in the library's words.
pub(super) fn conf_state(conf: &Conf) -> eraftpb::ConfState {
    (conf.voters.iter().copied().map(id_of), conf.learners.iter().copied().map(id_of)).into()
}

/// Who votes, in ours.
pub(super) fn conf_of(state: &eraftpb::ConfState) -> Conf {
    let nodes = |ids: &[u64]| ids.iter().copied().filter_map(node_of).collect();
    Conf { voters: nodes(state.get_voters()), learners: nodes(state.get_learners()) }
}

/// A change of the voters, in the library's words.
pub(super) fn change_of(change: VoterChange) -> eraftpb::ConfChange {
    let (kind, node) = match change {
        VoterChange::Learn(node) => (ConfChangeType::AddLearnerNode, node),
        VoterChange::Vote(node) => (ConfChangeType::AddNode, node),
        VoterChange::Remove(node) => (ConfChangeType::RemoveNode, node),
    };
    let mut library = eraftpb::ConfChange::default();
    library.set_change_type(kind);
    library.node_id = id_of(node);
    library
}

/// An entry, as the library has it.
pub(super) fn entry_of(entry: &Entry) -> eraftpb::Entry {
    let mut library = eraftpb::Entry::default();
    (library.index, library.term) = (entry.index, entry.term);
    match &entry.payload {
        Payload::Nothing => {}
        Payload::Voters(change) => {
            library.set_entry_type(EntryType::EntryConfChange);
            library.data = change_of(*change).write_to_bytes().expect("all fields have a value").into();
        }
        Payload::Command(command) => library.data = data_of(command).into(),
    }
    library
}

/// A command as the data of an entry.
pub(super) fn data_of(command: &Command) -> Vec<u8> {
    let mut out = BytesMut::new();
    command.encode(&mut out);
    out.to_vec()
}

/// An entry that the library made of one of ours, or of a proposal of this process.
///
/// # Panics
/// If it is none.
pub(super) fn entry_from(library: &eraftpb::Entry) -> Entry {
    const OURS: &str = "the library has no entries but ours";
    let payload = match library.get_entry_type() {
        EntryType::EntryNormal if library.data.is_empty() => Payload::Nothing,
        EntryType::EntryNormal => {
            let mut fields = Reader::new(Bytes::copy_from_slice(&library.data));
            Payload::Command(Command::read(&mut fields).expect(OURS))
        }
        EntryType::EntryConfChange => {
            let mut change = eraftpb::ConfChange::default();
            change.merge_from_bytes(&library.data).expect(OURS);
            let node = node_of(change.node_id).expect(OURS);
            Payload::Voters(match change.get_change_type() {
                ConfChangeType::AddLearnerNode => VoterChange::Learn(node),
                ConfChangeType::AddNode => VoterChange::Vote(node),
                ConfChangeType::RemoveNode => VoterChange::Remove(node),
            })
        }
        EntryType::EntryConfChangeV2 => panic!("{OURS}"),
    };
    Entry { index: library.index, term: library.term, payload }
}

/// A snapshot, as the library has it.
pub(super) fn snapshot_of(snapshot: &Snapshot) -> eraftpb::Snapshot {
    let mut library = eraftpb::Snapshot::default();
    let metadata = library.mut_metadata();
    (metadata.index, metadata.term) = (snapshot.index, snapshot.term);
    metadata.set_conf_state(conf_state(&snapshot.conf));
    library.data = snapshot.state.to_vec().into();
    library
}

/// A snapshot of the library.
pub(super) fn snapshot_from(library: &eraftpb::Snapshot) -> Snapshot {
    let metadata = library.get_metadata();
    Snapshot {
        index: metadata.index,
        term: metadata.term,
        conf: conf_of(metadata.get_conf_state()),
        state: Bytes::copy_from_slice(&library.data),
    }
}

/// The kinds of messages that go from node to node; the others are the library's talk with itself, and are not sent.
const KINDS: [MessageType; 9] = [
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgSnapshot,
];

/// Whether a leader sends it.
pub(super) fn is_leaders(message: &eraftpb::Message) -> bool {
    let kind = message.get_msg_type();
    matches!(kind, MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot)
}

/// Whether it goes from node to node.
pub(super) fn is_sent(message: &eraftpb::Message) -> bool {
    KINDS.contains(&message.get_msg_type())
}

/// Appends a message's bytes. Who sends it and to whom is known otherwise.
///
/// # Panics
/// If it is none that [is sent](is_sent).
pub(super) fn put_message(out: &mut BytesMut, message: &eraftpb::Message) {
    let kind = KINDS.iter().position(|kind| *kind == message.get_msg_type()).expect("a kind that is sent");
    out.put_u8(u8::try_from(kind).expect("there are nine"));
    let eraftpb::Message { term, log_term, index, commit, commit_term, reject_hint, .. } = *message;
    [term, log_term, index, commit, commit_term, reject_hint].into_iter().for_each(|it| out.put_u64_le(it));
    out.put_u8(message.reject.into());
    match message.get_msg_type() {
        MessageType::MsgAppend => {
            let entries: Vec<Entry> = message.get_entries().iter().map(entry_from).collect();
            put_entries(out, &entries);
        }
        MessageType::MsgSnapshot => snapshot_from(message.get_snapshot()).put(out),
        _ => {}
    }
}

/// A message, checked as far as it can be without knowing the log: [`super::consensus`] checks the rest.
pub(super) fn read_message(fields: &mut Reader) -> Result<eraftpb::Message, Malformed> {
    let mut message = eraftpb::Message::default();
    let kind = KINDS.get(usize::from(fields.u8()?)).ok_or(Malformed("an unknown kind of message"))?;
    message.set_msg_type(*kind);
    (message.term, message.log_term, message.index) = (number(fields)?, number(fields)?, number(fields)?);
    message.commit = number(fields)?;
    message.commit_term = number(fields)?;
    message.reject_hint = number(fields)?;
    if message.term == 0 {
        return Err(Malformed("a message of no term"));
    }
    message.reject = fields.u8()? != 0;
    match kind {
        MessageType::MsgAppend => {
            let entries = entries(fields)?;
            let (first, last) = (entries.first(), entries.last());
            // The library says term 0 of what it does not have, and would take that for agreement.
            if (message.index == 0) != (message.log_term == 0)
                || first
                    .is_some_and(|first| first.index != message.index + 1 || first.term < message.log_term)
                || last.is_some_and(|last| last.term > message.term)
            {
                return Err(Malformed("entries that do not follow"));
            }
            message.set_entries(entries.iter().map(entry_of).collect());
        }
        MessageType::MsgSnapshot => {
            let snapshot = Snapshot::read(fields)?;
            if snapshot.term > message.term
                || snapshot.term == 0
                || snapshot.index == 0
                || snapshot.conf.voters.is_empty()
            {
                return Err(Malformed("a snapshot of no history"));
            }
            message.set_snapshot(snapshot_of(&snapshot));
        }
        _ => {}
    }
    Ok(message)
}
