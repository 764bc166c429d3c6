//! The coordinator of a read.
//!
//! 1. Check the names, resolve the quorums, and see that the copies there are can meet them.
//! 2. Read: the head alone where that may be all (`head`, `if_modified`), otherwise head and value at once.
//! 3. Judge the head: absent, unchanged, or an object. Where its value is needed after all, read once more; a
//!    write may come between, so that answer is judged from the start.
//!
//! Not here: read repair and asking other nodes.

use bytes::Bytes;
use object::{Context, HeadView};

use crate::error::Error;
use crate::props::BucketProps;
use crate::quorum::{Needs, Reply};
use crate::request::GetRequest;
use crate::response::{Found, Response};
use crate::turn::{Action, Event, Stored, Turn, Want};

/// A read under way.
#[derive(Debug)]
pub struct Get {
    request: GetRequest,
    if_modified: Option<Context>,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    Reading(Needs),
    Done,
}

impl Get {
    /// The coordinator of `request`.
    pub fn new(request: GetRequest) -> Get {
        Get { request, if_modified: None, state: State::New }
    }

    /// The request.
    pub fn request(&self) -> &GetRequest {
        &self.request
    }

    /// Takes what happened, and says what to do next.
    ///
    /// # Panics
    /// If the event is not one that was asked for.
    pub fn step(&mut self, event: Event, turn: &mut Turn<'_>) -> Action {
        let next = match (&self.state, event) {
            (State::New, Event::Start) => self.on_start(turn),
            (State::Reading(needs), Event::Read(stored)) => {
                let needs = *needs;
                stored.and_then(|stored| self.on_read(stored, needs, turn))
            }
            (state, event) => panic!("a read in state {state:?} was told {event:?}"),
        };
        next.unwrap_or_else(|error| {
            self.state = State::Done;
            Action::Reply(Err(error))
        })
    }

    fn on_start(&mut self, turn: &Turn<'_>) -> Result<Action, Error> {
        let request = &self.request;
        turn.limits.check_names(&request.bucket, &request.key)?;
        let needs = Needs::read(turn.props, request.n_val, (request.r, request.pr), request.node_confirms)?;
        needs.met_by(&[Reply::of_all(needs.n)])?;
        self.if_modified = decode_context(request.if_modified.as_ref())?;
        self.state = State::Reading(needs);
        let head_may_do = request.head || self.if_modified.is_some();
        Ok(Action::Read { want: if head_may_do { Want::Head } else { Want::Value } })
    }

    fn on_read(&mut self, stored: Option<Stored>, needs: Needs, turn: &Turn<'_>) -> Result<Action, Error> {
        needs.met_by(&[Reply::of_all(needs.n)])?;
        let response = match stored {
            None => Response::NotFound { deleted_context: None },
            Some(stored) => match self.judge(stored, turn.props)? {
                Some(response) => response,
                None => return Ok(Action::Read { want: Want::Value }),
            },
        };
        self.state = State::Done;
        Ok(Action::Reply(Ok(response)))
    }

    /// The answer that a stored version makes; `None` if it takes the value.
    fn judge(&self, stored: Stored, props: &BucketProps) -> Result<Option<Response>, Error> {
        let head = view(&stored.head)?;
        if is_absent(&head, props) {
            return Ok(Some(self.on_deleted(&head)));
        }
        if self.if_modified.as_ref().is_some_and(|context| head.is_unmodified(context)) {
            return Ok(Some(Response::Unchanged));
        }
        let value = if self.request.head {
            None
        } else {
            match stored.value {
                None => return Ok(None),
                Some(value) => Some(checked_values(&head, value)?),
            }
        };
        let newest_only = props.shows_newest_only();
        Ok(Some(Response::Found(Found { head: stored.head, value, newest_only })))
    }

    fn on_deleted(&self, head: &HeadView<'_>) -> Response {
        let deleted_context = self.request.deleted_context.then(|| {
            let mut bytes = Vec::with_capacity(head.context().client_len());
            head.context().write_client_bytes(&mut bytes);
            Bytes::from(bytes)
        });
        Response::NotFound { deleted_context }
    }
}

/// Reads a stored head in place; one that cannot be read is damage.
pub(crate) fn view(head: &[u8]) -> Result<HeadView<'_>, Error> {
    HeadView::parse(head).map_err(damaged)
}

/// Stored bytes that make no sense.
pub(crate) fn damaged(error: object::Error) -> Error {
    Error::Damaged(error.to_string())
}

/// Whether readers of a bucket are to be told that there is no object.
pub(crate) fn is_absent(head: &HeadView<'_>, props: &BucketProps) -> bool {
    head.is_tombstone() || (head.sibling_count() > 1 && props.shows_newest_only() && head.newest().deleted)
}

/// The values, which are as long as the head says unless something is damaged.
pub(crate) fn checked_values(head: &HeadView<'_>, values: Bytes) -> Result<Bytes, Error> {
    if head.values_len() != values.len() as u64 {
        let (want, got) = (head.values_len(), values.len());
        return Err(Error::Damaged(format!("values of {got} bytes under a head for {want}")));
    }
    Ok(values)
}

/// A client's context; bytes that no store gave out are the client's error.
pub(crate) fn decode_context(bytes: Option<&Bytes>) -> Result<Option<Context>, Error> {
    // An empty field is no context: some clients send one on a first write.
    let bytes = bytes.filter(|bytes| !bytes.is_empty());
    bytes.map(|bytes| Context::decode(bytes).map_err(|_| Error::BadContext)).transpose()
}
