//! Whoever prepares everything in the beginning and asks for everything in the end. It is a client without a network,
//! and now and then a node: it asks a replica itself what it has of a key.

use super::client::{self, Place};
use super::ending::Phase;
use super::plan::Plan;
use super::{AUDITOR, ONCE, REPLICAS, World};
use crate::check::cluster::Copies;
use crate::check::history::{KeyName, ONCE_TYPE};
use crate::check::siblings::{metadata_of, value_of};
use crate::check::{Verdict, Violation};
use crate::seed::index_below;
use crate::show;
use bytes::Bytes;
use engine::Durability;
use kv::replica::{Answer, Ask, NodeId};
use kv::response::Found;
use kv::stored::Want;
use kv::{BucketProps, Error, GetRequest, Prop, PutRequest, Quorum, Request, Response, TypeChange};
use node::{AskId, PeerMessage};
use object::{Context, Head};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long a question of the auditor may take.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a request for properties may take: the default, as it cannot say.
pub(super) const PROPS_TIMEOUT: Duration = node::shard::TIMEOUT_DEFAULT;
/// Questions of the auditor are numbered from here: no node will ever draw such a number.
const AUDITS_FROM: u64 = 0xA0D1_7000_0000_0000;

/// A node was asked what it has of a key.
#[derive(Clone, Debug)]
pub(super) struct Audit {
    place: Place,
    /// What it was bound to have when it was asked.
    promised: Context,
    /// Whether its copy is compared with others.
    compared: bool,
    /// Whether it is to have none.
    stray: bool,
}

/// What the auditor asked a node for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Read(Place),
    /// The write of a key that nobody has written.
    Load(Place, u64),
    /// The properties of one of many buckets, and a change of such.
    Bucket(u32),
    Edit,
    Props(usize),
    Set(usize),
    /// The creation of the bucket type.
    Create,
    /// Its activation.
    Activate,
}

/// What the auditor asked for and was told.
#[derive(Debug)]
pub(super) struct Auditor {
    /// The examinations under way, by the node and the question's number.
    pub(super) audits: BTreeMap<(usize, u64), Audit>,
    last_audit: u64,
    asked: BTreeMap<u64, (usize, Asked)>,
    /// What was written as a script asks for it: by which number.
    pub(super) loaded: BTreeMap<Place, u64>,
    /// What nodes have said of many buckets.
    pub(super) props: BTreeMap<(usize, u32), Arc<BucketProps>>,
    /// What the replicas of each key had when they were examined.
    pub(super) copies: BTreeMap<Place, Copies>,
    /// What a read of all of them has shown since.
    pub(super) read: BTreeMap<Place, (Option<Found>, Context)>,
    /// Why there is nothing to compare.
    pub(super) failed: Option<String>,
    /// Who was found to have what it is not to have, once all is quiet.
    pub(super) strays: Vec<(usize, Place)>,
}

impl Default for Auditor {
    fn default() -> Auditor {
        Auditor {
            audits: BTreeMap::new(),
            last_audit: AUDITS_FROM,
            asked: BTreeMap::new(),
            loaded: BTreeMap::new(),
            props: BTreeMap::new(),
            copies: BTreeMap::new(),
            read: BTreeMap::new(),
            failed: None,
            strays: Vec::new(),
        }
    }
}

impl Auditor {
    /// The process of a node has died, and will answer nothing.
    pub(super) fn on_death(&mut self, node: usize) {
        self.audits.retain(|(at, _), _| *at != node);
        self.asked.retain(|_, (at, _)| *at != node);
        self.failed = Some(format!("n{node} has died"));
    }

    fn is_setting(&self, node: usize, bucket: usize) -> bool {
        self.asked.values().any(|(at, asked)| *at == node && matches!(asked, Asked::Set(of) if *of == bucket))
    }

    fn is_typing(&self) -> bool {
        self.asked.values().any(|(_, asked)| matches!(asked, Asked::Create | Asked::Activate))
    }

    /// The changes of many buckets that have no answer.
    pub(super) fn editing(&self) -> usize {
        self.asked.values().filter(|(_, asked)| matches!(asked, Asked::Edit)).count()
    }

    /// Whether somebody has not said yet what it knows of a bucket.
    pub(super) fn is_asking_props(&self) -> bool {
        self.asked.values().any(|(_, asked)| matches!(asked, Asked::Bucket(_)))
    }

    /// The keys that are being written.
    pub(super) fn loading(&self) -> BTreeSet<Place> {
        let asked = self.asked.values();
        asked
            .filter_map(|(_, asked)| if let Asked::Load(place, _) = asked { Some(*place) } else { None })
            .collect()
    }

    /// Whether some copies have not been seen yet.
    pub(super) fn is_examining(&self) -> bool {
        self.audits.values().any(|audit| audit.compared || audit.stray)
    }

    /// The keys of a bucket that the last reads have found.
    pub(super) fn found(&self, bucket: usize) -> BTreeSet<Bytes> {
        let found = self.read.iter().filter(|((of, _), (found, _))| *of == bucket && found.is_some());
        found.map(|((_, key), _)| super::key_name(*key)).collect()
    }

    /// The keys of a bucket of which the last look at the copies has seen a value that does not end: a fold finds them,
    /// even if a newer tombstone is what readers are shown.
    pub(super) fn held(&self, bucket: usize) -> BTreeSet<Bytes> {
        let is_held = |head: &Bytes| {
            let head = Head::decode(head).expect("it was compared");
            let mut all = head.siblings().iter().map(|sibling| &sibling.metadata);
            all.any(|it| !it.deleted && it.expires_ms.is_none())
        };
        let copies = self.copies.iter().filter(|((of, _), copies)| {
            *of == bucket && copies.of_nodes().any(|(_, head)| head.is_some_and(is_held))
        });
        copies.map(|((_, key), _)| super::key_name(*key)).collect()
    }

    /// Whether some reads have not been answered.
    pub(super) fn is_reading(&self) -> bool {
        self.asked.values().any(|(_, asked)| matches!(asked, Asked::Read(_)))
    }
}

impl World {
    /// Examines all primaries of all keys.
    pub(super) fn examine_all(&mut self) -> Verdict {
        self.auditor.copies.clear();
        for place in self.places() {
            for at in self.primaries(place) {
                self.examine(at, place, true)?;
            }
        }
        Ok(())
    }

    /// Asks all nodes for the keys that they are not to have.
    pub(super) fn examine_strays(&mut self) -> Verdict {
        self.auditor.strays.clear();
        for place in self.places() {
            let primaries = self.primaries(place);
            let living: Vec<usize> = self.living().collect();
            for at in living.into_iter().filter(|at| !primaries.contains(at)) {
                self.ask_replica(
                    at,
                    Audit { place, promised: Context::new(), compared: false, stray: true },
                )?;
            }
        }
        Ok(())
    }

    /// A node has started: whatever it has promised to have is asked for.
    pub(super) fn examine_promises(&mut self, at: usize) -> Verdict {
        if self.plan.options.durability != Durability::Sync {
            return Ok(());
        }
        for place in self.places() {
            if self.primaries(place).contains(&at) {
                self.examine(at, place, false)?;
            }
        }
        Ok(())
    }

    /// Asks a node itself for what it has of a key, as another node would.
    fn examine(&mut self, at: usize, place: Place, compared: bool) -> Verdict {
        let promised = self.checks.promised(at, &name(place));
        if promised.is_none() && !compared {
            return Ok(());
        }
        let promised = promised.unwrap_or_default();
        self.ask_replica(at, Audit { place, promised, compared, stray: false })
    }

    fn ask_replica(&mut self, at: usize, audit: Audit) -> Verdict {
        let (bucket, key) = client::names(audit.place);
        let prefix = self.hosts[at].machine.layout.prefix(&bucket, &key);
        let mut ledger_key = Vec::new();
        object::key::encode_object_key(prefix, &bucket.bucket_type, &bucket.name, &key, &mut ledger_key);
        self.auditor.last_audit += 1;
        let id = self.auditor.last_audit;
        self.auditor.audits.insert((at, id), audit);
        let message = PeerMessage::Ask {
            id: AskId(id),
            ttl_ms: u32::try_from(AUDIT_TIMEOUT.as_millis()).expect("seconds"),
            life: 0,
            key: Bytes::from(ledger_key),
            ask: Ask::Read { want: Want::Head },
        };
        // To a node alone the auditor speaks as a node that it does not know.
        let other = (at + 1) % self.hosts.len().max(2);
        self.checks.on_message(other, at, &message)?;
        self.deliver(at, NodeId(u16::try_from(other).expect("a small number")), message)
    }

    /// What was written to a bucket so far has ended: who is asked for it need not have it any more.
    pub(super) fn forget_promises(&mut self, bucket: usize) {
        let audits = self.auditor.audits.values_mut().filter(|audit| audit.place.0 == bucket);
        audits.for_each(|audit| audit.promised = Context::new());
    }

    /// Takes a node's answer to an examination.
    pub(super) fn on_examined(&mut self, at: usize, audit: Audit, result: Result<Answer, Error>) -> Verdict {
        let head = match result {
            Ok(Answer::Read(stored)) => stored.map(|stored| stored.head),
            other => {
                self.auditor.failed = Some(format!("n{at} was examined and said {other:?}"));
                return Ok(());
            }
        };
        if audit.stray {
            if head.is_some() {
                self.auditor.strays.push((at, audit.place));
            }
            return Ok(());
        }
        self.checks.check_promise(at, &name(audit.place), &audit.promised, head.as_ref())?;
        if audit.compared {
            self.auditor.copies.entry(audit.place).or_default().insert(at, head);
        }
        Ok(())
    }

    /// Reads every key, with all primaries asked.
    pub(super) fn read_all(&mut self) -> Verdict {
        self.auditor.read.clear();
        let living: Vec<usize> = self.living().collect();
        for place in self.places() {
            let all = u32::try_from(self.primaries(place).len()).expect("a small number");
            let at = living[index_below(&mut self.rng, living.len())];
            let (bucket, key) = client::names(place);
            let request = Request::Get(GetRequest {
                r: Quorum::Exactly(all),
                pr: Quorum::Exactly(all),
                deleted_context: true,
                timeout: Some(u32::try_from(AUDIT_TIMEOUT.as_millis()).expect("seconds")),
                ..GetRequest::new(bucket, key)
            });
            self.ask(at, Asked::Read(place), request, AUDIT_TIMEOUT)?;
        }
        Ok(())
    }

    /// Asks a node for the properties of one of many buckets.
    pub(super) fn ask_bucket(&mut self, at: usize, number: u32) -> Verdict {
        let request = Request::GetProps(super::gossip::bucket(number));
        self.ask(at, Asked::Bucket(number), request, PROPS_TIMEOUT)
    }

    /// Has a node change properties.
    pub(super) fn edit_props(&mut self, at: usize, request: Request) -> Verdict {
        self.ask(at, Asked::Edit, request, PROPS_TIMEOUT)
    }

    /// Writes a key, at a node that coordinates it.
    pub(super) fn load(&mut self, at: usize, place: Place) -> Verdict {
        self.numbers += 1;
        let number = self.numbers;
        let (bucket, key) = client::names(place);
        let put = PutRequest::new(bucket, Some(key), metadata_of(number), value_of(number));
        let timeout = Some(u32::try_from(AUDIT_TIMEOUT.as_millis()).expect("seconds"));
        self.ask(at, Asked::Load(place, number), Request::put(PutRequest { timeout, ..put }), AUDIT_TIMEOUT)
    }

    /// Asks a node something, past the network.
    fn ask(&mut self, at: usize, asked: Asked, request: Request, timeout: Duration) -> Verdict {
        let shard = index_below(&mut self.rng, usize::from(self.hosts[at].machine.layout.shards));
        if self.hosts[at].machine.process.as_ref().is_none_or(|process| process.closing[shard]) {
            self.auditor.failed = Some(format!("n{at} does not run"));
            return Ok(());
        }
        self.numbers += 1;
        self.auditor.asked.insert(self.numbers, (at, asked));
        self.on_ask((AUDITOR, self.numbers), (at, shard), request, timeout)
    }

    /// Asks a node for the properties of a bucket.
    pub(super) fn ask_props(&mut self, at: usize, bucket: usize) -> Verdict {
        self.ask(at, Asked::Props(bucket), Request::GetProps(client::bucket(bucket)), PROPS_TIMEOUT)
    }

    /// Whether nobody has the bucket type: in the beginning, or where a crash may take what was acknowledged from one
    /// node after the other.
    fn is_type_lost(&self) -> bool {
        let may_be = self.phase == Phase::Preparation || self.plan.options.durability != Durability::Sync;
        may_be && !self.hosts.iter().any(|host| host.buckets.contains(&ONCE))
    }

    fn change_type(&mut self, at: usize, asked: Asked, change: TypeChange) -> Verdict {
        self.ask(at, asked, Request::ChangeType(Bytes::from_static(ONCE_TYPE), change), PROPS_TIMEOUT)
    }

    /// Takes an answer of a node to the auditor.
    pub(super) fn on_audited(&mut self, at: usize, number: u64, result: Result<Response, Error>) -> Verdict {
        let Some((_, asked)) = self.auditor.asked.remove(&number) else { return Ok(()) };
        match (asked, result) {
            (Asked::Read(place), result @ Ok(Response::Found(_) | Response::NotFound { .. })) => {
                let context = show::context(&result).map(|bytes| Context::decode(&bytes));
                let context = context.transpose().map_err(|error| unreadable(place, &error))?;
                let found = if let Ok(Response::Found(found)) = result { Some(found) } else { None };
                self.auditor.read.insert(place, (found, context.unwrap_or_default()));
            }
            (Asked::Props(bucket), Ok(Response::Props(props))) => {
                if is_right(&props, bucket, &self.plan) {
                    self.hosts[at].on_bucket_prepared(bucket, self.plan.buckets());
                } else if !self.auditor.is_setting(at, bucket) {
                    let request = Request::SetProps(client::bucket(bucket), props_of(bucket, &self.plan));
                    return self.ask(at, Asked::Set(bucket), request, PROPS_TIMEOUT);
                }
            }
            // The others hear of the type, as does one that has lost its disk.
            (Asked::Props(ONCE), Err(Error::NoType(_))) => {
                if self.is_type_lost() && !self.auditor.is_typing() {
                    let props = props_of(ONCE, &self.plan);
                    return self.change_type(at, Asked::Create, TypeChange::Create(props));
                }
            }
            (Asked::Create, Ok(_)) => return self.change_type(at, Asked::Activate, TypeChange::Activate),
            // Somebody is not there yet: it is tried again.
            (Asked::Create | Asked::Activate, _) => {}
            (Asked::Load(place, number), Ok(_)) => drop(self.auditor.loaded.insert(place, number)),
            (Asked::Bucket(number), Ok(Response::Props(props))) => {
                self.auditor.props.insert((at, number), props);
            }
            (Asked::Load(..) | Asked::Set(_) | Asked::Edit, _) => {}
            (asked, result) => self.auditor.failed = Some(format!("{asked:?} was answered {result:?}")),
        }
        Ok(())
    }
}

/// The name of a key, as checkers know it.
pub(super) fn name(place: Place) -> KeyName {
    let (bucket, key) = client::names(place);
    KeyName::of(&bucket, &key)
}

fn unreadable(place: Place, error: &object::Error) -> Violation {
    Violation::new("reads return only written values", format!("{}: its context: {error}", name(place)))
}

/// What makes a bucket what it is.
fn props_of(bucket: usize, plan: &Plan) -> Vec<Prop> {
    let kinds = [
        vec![Prop::AllowMult(true)],
        Vec::new(),
        vec![Prop::LastWriteWins(true)],
        vec![Prop::WriteOnce(true)],
    ];
    let mut props = kinds[bucket].clone();
    props.push(Prop::NodeConfirms(plan.node_confirms));
    props.extend((ttl_of(bucket, plan) > 0).then(|| Prop::Ttl(ttl_of(bucket, plan))));
    props
}

fn is_right(props: &BucketProps, bucket: usize, plan: &Plan) -> bool {
    let replicas = usize::try_from(props.n_val) == Ok(REPLICAS);
    let kind = (props.allow_mult, props.last_write_wins) == (bucket == 0 || bucket == ONCE, bucket == 2)
        && props.write_once == (bucket == ONCE);
    replicas && kind && props.node_confirms == plan.node_confirms && props.ttl == ttl_of(bucket, plan)
}

/// For how many seconds the objects of a bucket live; 0 for ever.
fn ttl_of(bucket: usize, plan: &Plan) -> u32 {
    let days = plan.ttl.filter(|(of, _)| *of == bucket).map_or(0, |(_, days)| days);
    days * 86_400
}
