//! What operators ask: bucket types whole, and the nodes of the cluster. The state of the node is a question to the
//! shell.
//!
//! `docs/api/admin.yaml` describes these paths; it is served as `/admin/openapi.yaml`.

use bytes::Bytes;
use kv::fold::Purge;
use kv::{Bucket, BucketProps, Error, PurgeTask, Request, Response, TypeChange, TypeStatus};
use protocol::http::{Answer, Connection, Head, Method};
use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::{fold, names, props, props_json};

/// The description of what is here.
pub(super) const OPENAPI: &str = include_str!("../../../../docs/api/admin.yaml");

/// A page for operators.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// The state of the node.
    Status,
    /// The nodes of the cluster.
    Members,
    /// The description of these pages.
    OpenApi,
    /// All bucket types.
    Types,
    /// One bucket type.
    Type(Bytes),
    /// Its activation.
    Activate(Bytes),
    /// What the nodes agree on.
    Cluster(ClusterPage),
    /// The node's last backup.
    Backup,
    /// The end of the one that is being made.
    StopBackup,
    /// The node's hash trees.
    Trees(TreesPage),
    /// The compaction of the node's stores.
    Compact,
    /// The groups of consistent bucket types, and the recovery of those of restored nodes.
    Strong(StrongPage),
    /// The members, for Prometheus.
    Targets,
    /// The levels of the log.
    Log,
    /// The slow requests.
    Slow,
    /// The node's last purge.
    Purge,
    /// The end of the one that is under way.
    StopPurge,
    /// Users, groups, sources and grants.
    Security,
    /// The user of the request itself.
    Whoami,
}

/// What is asked about a node's hash trees, which the shell answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreesPage {
    /// How it stands with those of each partition.
    Show,
    /// They are compared with other nodes' now.
    Compare,
    /// They are made anew from what is stored.
    Rebuild,
}

/// A page about the groups of consistent bucket types, which the shell answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrongPage {
    /// The groups of the node.
    Show,
    /// The copies of groups at the node, for a recovery of all nodes.
    Copies,
    /// This restored node goes on, with the groups that were chosen for it.
    Release,
}

/// A request about the compaction of a node's stores by its shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactPage {
    /// The state of the last one.
    Show,
    /// The begin of one.
    Begin,
}

/// What is asked about a node's purges, which the shell makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgePage {
    /// How far the one is that is under way, or how the last one ended.
    Show,
    /// One is begun.
    Begin(Box<PurgeTask>),
    /// The one that is under way is given up.
    Stop,
}

/// What is asked about a node's backups, which the shell makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupPage {
    /// How far the one is that is being made, or how the last one ended.
    Show,
    /// One is begun.
    Begin,
    /// The one that is being made is given up.
    Stop,
}

/// A page about what the nodes of a cluster agree on, which the shell answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterPage {
    /// The members, who owns what, what is staged.
    Show,
    /// What a commit of what is staged would do.
    Plan,
    /// A change is staged.
    Stage,
    /// More partitions are staged.
    ResizeRing,
    /// What is staged is forgotten.
    Clear,
    /// What is staged is carried out.
    Commit,
    /// A member will not be reached for long.
    Down,
    /// A node joins.
    Join,
    /// What is on its way to another owner, and to the node that answers.
    Transfers,
    /// How much copies may take is changed.
    TransferLimit,
    /// What a lost majority may have taken with it, and going on without it.
    Recover,
    /// The stores of members are declared lost.
    DeclareLost,
}

impl ClusterPage {
    /// The page of the rest of a path, below `/admin/cluster`.
    pub(super) fn named(rest: &[u8]) -> Option<ClusterPage> {
        Some(match rest {
            b"" => ClusterPage::Show,
            b"plan" => ClusterPage::Plan,
            b"stage" => ClusterPage::Stage,
            b"resize-ring" => ClusterPage::ResizeRing,
            b"clear" => ClusterPage::Clear,
            b"commit" => ClusterPage::Commit,
            b"down" => ClusterPage::Down,
            b"join" => ClusterPage::Join,
            b"transfers" => ClusterPage::Transfers,
            b"transfer-limit" => ClusterPage::TransferLimit,
            b"recover" => ClusterPage::Recover,
            b"declare-lost" => ClusterPage::DeclareLost,
            _ => return None,
        })
    }
}

/// What an answer depends on beside what the node says.
#[derive(Debug)]
pub(super) struct Asked {
    /// The type that is shown alone.
    only: Option<Bytes>,
    change: Change,
}

/// What is to be done with a type.
#[derive(Clone, Copy, Debug)]
enum Change {
    None,
    Create,
    Update,
    Activate,
}

/// What may be done with a page.
pub(super) fn allowed(page: &Page) -> &'static [Method] {
    match page {
        Page::Status | Page::Members | Page::OpenApi | Page::Types => &[Method::Get, Method::Head],
        Page::Strong(StrongPage::Show | StrongPage::Copies) | Page::Targets => &[Method::Get, Method::Head],
        Page::Strong(StrongPage::Release) => &[Method::Post],
        Page::Trees(TreesPage::Show) => &[Method::Get, Method::Head],
        Page::Type(_) => &[Method::Get, Method::Head, Method::Put, Method::Post],
        Page::Cluster(ClusterPage::Show | ClusterPage::Plan | ClusterPage::Transfers) => {
            &[Method::Get, Method::Head]
        }
        Page::Log | Page::Slow => &[Method::Get, Method::Head, Method::Post],
        Page::Backup | Page::Compact | Page::Purge => &[Method::Get, Method::Head, Method::Post],
        Page::Cluster(ClusterPage::Recover) => &[Method::Get, Method::Head, Method::Post],
        Page::Activate(_) | Page::Cluster(_) | Page::Trees(_) | Page::StopBackup | Page::StopPurge => {
            &[Method::Post]
        }
        Page::Security => &[Method::Post],
        Page::Whoami => &[Method::Get, Method::Head],
    }
}

/// Refuses a change that does not come as JSON. A page of another site can have a browser send nothing of that type
/// without asking this node first, which says no.
pub(super) fn check_content_type(head: &Head) -> Result<(), Fault> {
    if matches!(head.method, Method::Get | Method::Head) {
        return Ok(());
    }
    let mut types = head.all("content-type");
    let essence = types.next().unwrap_or_default().split(|&byte| byte == b';').next().unwrap_or_default();
    if !essence.trim_ascii().eq_ignore_ascii_case(b"application/json") || types.next().is_some() {
        return Err(wrong(415, "a change needs the header Content-Type: application/json"));
    }
    Ok(())
}

/// The node's request for a page about bucket types; `None` if it is about something else.
pub(super) fn request(page: &Page, method: Method, body: &[u8]) -> Result<Option<(Request, Asked)>, Fault> {
    let (request, only, change) = match (page, method) {
        (Page::Members, _) => (Request::ListMembers, None, Change::None),
        (Page::Types, _) => (Request::ListTypes, None, Change::None),
        (Page::Type(name), Method::Put) => {
            let change = TypeChange::Create(read(body)?);
            (Request::ChangeType(name.clone(), change), None, Change::Create)
        }
        (Page::Type(name), Method::Post) => {
            let change = TypeChange::Update(read(body)?);
            (Request::ChangeType(name.clone(), change), None, Change::Update)
        }
        (Page::Type(name), _) => (Request::ListTypes, Some(name.clone()), Change::None),
        (Page::Activate(name), _) => {
            (Request::ChangeType(name.clone(), TypeChange::Activate), None, Change::Activate)
        }
        (Page::Status | Page::OpenApi | Page::Cluster(_) | Page::Trees(_), _)
        | (Page::Strong(_) | Page::Targets | Page::Log | Page::Slow | Page::Security | Page::Whoami, _)
        | (Page::Backup | Page::StopBackup | Page::Compact | Page::Purge | Page::StopPurge, _) => {
            return Ok(None);
        }
    };
    Ok(Some((request, Asked { only, change })))
}

/// What is asked about purges by this method.
pub(super) fn purge_page(method: Method, body: &[u8]) -> Result<PurgePage, Fault> {
    if method != Method::Post {
        return Ok(PurgePage::Show);
    }
    let bad = |text: &str| wrong(400, text);
    let body: Map<String, Value> = serde_json::from_slice(body).map_err(|_| bad("invalid json"))?;
    let known = ["purge", "bucket", "bucket-type", "filter", "per_second"];
    if let Some(unknown) = body.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(bad(&format!("no such field: {unknown}")));
    }
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let purge = text("purge").and_then(Purge::named).ok_or_else(|| bad("purge is to be reap or erase"))?;
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let name = text("bucket").ok_or_else(|| bad("bucket is missing"))?;
    let bucket = Bucket::typed(text("bucket-type").map(bytes), bytes(name));
    let none = Map::new();
    let filter = match body.get("filter") {
        None | Some(Value::Null) => &none,
        Some(filter) => filter.as_object().ok_or_else(|| bad("filter is to be an object"))?,
    };
    let task = PurgeTask::new(purge, bucket);
    let fold = fold::filtered(task.fold, filter).map_err(|fault| bad(&fault.text))?;
    let per_second = match body.get("per_second") {
        None | Some(Value::Null) => None,
        Some(number) => {
            let number = number.as_u64().and_then(|number| u32::try_from(number).ok());
            Some(number.ok_or_else(|| bad("per_second is to be a number"))?)
        }
    };
    Ok(PurgePage::Begin(Box::new(PurgeTask { fold, per_second, ..task })))
}

fn read(body: &[u8]) -> Result<Vec<kv::Prop>, Fault> {
    // A type with nothing but the defaults needs no body.
    if body.is_empty() {
        return Ok(Vec::new());
    }
    props_json::read(body)
        .map_err(|error| error.map_or_else(|| wrong(400, "invalid json"), |it| fault(&it, Change::None)))
}

/// Writes the answer.
pub(super) fn respond(
    asked: &Asked,
    result: Result<Response, Error>,
    connection: Connection,
    out: &mut Vec<u8>,
) {
    let answer = match result {
        Ok(Response::Types(types)) => {
            let mut all = types.iter().map(|(name, status, props)| (name, entry(name, *status, props)));
            match &asked.only {
                None => Ok(json!({ "types": all.map(|(_, entry)| entry).collect::<Vec<_>>() })),
                Some(only) => all
                    .find(|(name, _)| *name == only)
                    .map(|(_, entry)| entry)
                    .ok_or_else(|| fault(&Error::NoType(only.clone()), asked.change)),
            }
        }
        Ok(Response::Members(members)) => {
            let entry =
                |member: &kv::Member| json!({ "name": &*member.name, "here": member.here, "up": member.up });
            Ok(json!({ "members": members.iter().map(entry).collect::<Vec<_>>() }))
        }
        Ok(Response::PropsSet) => return Answer::new(out, connection, 204).empty(),
        Ok(other) => unreachable!("the node was asked for bucket types and answered {other:?}"),
        Err(error) => Err(fault(&error, asked.change)),
    };
    match answer {
        Ok(json) => {
            let mut answer = Answer::new(out, connection, 200);
            answer.header("Content-Type", "application/json");
            answer.body(json.to_string().as_bytes());
        }
        Err(fault) => fault.write(connection, out),
    }
}

fn entry(name: &Bytes, status: TypeStatus, props: &BucketProps) -> Value {
    let mut entry = names::named("name", name);
    entry.insert("status".into(), json!(status.to_string()));
    entry.insert("props".into(), props_json::write(props).into());
    Value::Object(entry)
}

/// What is wrong, in the words of Riak's tool.
fn fault(error: &Error, change: Change) -> Fault {
    match error {
        Error::NoType(_) => wrong(404, "undefined"),
        Error::TypeStatus(TypeStatus::Active) => wrong(409, "already_active"),
        Error::TypeStatus(_) if matches!(change, Change::Activate) => wrong(409, "not_ready"),
        Error::TypeStatus(_) => wrong(409, "not_active"),
        Error::DefaultTypeFixed if matches!(change, Change::Create) => wrong(409, "default_type"),
        Error::DefaultTypeFixed => wrong(409, "no_default_update"),
        Error::InvalidProps(list) => {
            Fault::json(400, &json!({ "error": "invalid properties", "props": props::reasons(list) }))
        }
        other => {
            let Fault { status, text, .. } = Fault::from(other);
            wrong(status, &text)
        }
    }
}

fn wrong(status: u16, text: &str) -> Fault {
    Fault::json(status, &json!({ "error": text }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::route::{Route, route};
    use kv::fold::{Fold, Scope};

    /// The paths of the description, with their methods.
    fn described() -> Vec<(String, Vec<String>)> {
        let mut paths: Vec<(String, Vec<String>)> = Vec::new();
        for line in OPENAPI.lines().skip_while(|line| *line != "paths:").skip(1) {
            let word = line.trim_start().trim_end_matches(':');
            match line.len() - line.trim_start().len() {
                0 => break,
                2 => paths.push((word.to_owned(), Vec::new())),
                4 if word != "parameters" => paths.last_mut().unwrap().1.push(word.to_uppercase()),
                _ => {}
            }
        }
        paths
    }

    #[test]
    fn what_is_to_be_purged() {
        let bucket = || Bucket { bucket_type: Bytes::from("t"), name: Bytes::from("b") };
        let page = purge_page(
            Method::Post,
            br#"{"purge":"erase","bucket":"b","bucket-type":"t","filter":{"key_range":{"start":"a","end":"z"}},"per_second":9}"#,
        );
        let keys = Some(kv::fold::KeySpan { first: Bytes::from("a"), last: Bytes::from("z") });
        let fold = Fold { keys, ..Fold::new(Scope::Bucket(bucket()), kv::fold::Finds::Objects) };
        let task = PurgeTask { purge: Purge::Erase, bucket: bucket(), fold, per_second: Some(9) };
        assert_eq!(page, Ok(PurgePage::Begin(Box::new(task))));
        assert_eq!(purge_page(Method::Get, b""), Ok(PurgePage::Show));
        let reap = purge_page(Method::Post, br#"{"purge":"reap","bucket":"b"}"#);
        let Ok(PurgePage::Begin(task)) = reap else { panic!("{reap:?}") };
        assert_eq!(task.fold, Fold::new(Scope::Bucket(Bucket::untyped("b".into())), kv::fold::Finds::Tombs));
        for bad in [
            "",
            "[]",
            r#"{"purge":"reap"}"#,
            r#"{"purge":"drop","bucket":"b"}"#,
            r#"{"purge":"reap","bucket":"b","filter":1}"#,
            r#"{"purge":"reap","bucket":"b","filter":{"key_range":1}}"#,
            r#"{"purge":"reap","bucket":"b","per_second":-1}"#,
            r#"{"purge":"reap","bucket":"b","filters":{}}"#,
        ] {
            assert_eq!(purge_page(Method::Post, bad.as_bytes()).unwrap_err().status, 400, "{bad}");
        }
    }

    #[test]
    fn the_description_has_what_is_served() {
        let described = described();
        let pages: Vec<Page> = described
            .iter()
            // The pages for balancers are described beside those for operators.
            .filter(|(path, _)| {
                !matches!(route(&path.clone().into()).unwrap(), Some(Route::Ready | Route::Live))
            })
            .map(|(path, methods)| {
                let Some(Route::Admin(page)) = route(&path.replace("{name}", "t").into()).unwrap() else {
                    panic!("{path} is described and not there")
                };
                let mut served: Vec<String> =
                    allowed(&page).iter().map(|method| format!("{method:?}").to_uppercase()).collect();
                served.retain(|method| method != "HEAD");
                assert_eq!(*methods, served, "{path}");
                page
            })
            .collect();
        let name = || Bytes::from("t");
        for page in [
            Page::Status,
            Page::Members,
            Page::OpenApi,
            Page::Types,
            Page::Type(name()),
            Page::Activate(name()),
            Page::Cluster(ClusterPage::Show),
            Page::Cluster(ClusterPage::Plan),
            Page::Cluster(ClusterPage::Stage),
            Page::Cluster(ClusterPage::ResizeRing),
            Page::Cluster(ClusterPage::Clear),
            Page::Cluster(ClusterPage::Commit),
            Page::Cluster(ClusterPage::Down),
            Page::Cluster(ClusterPage::Join),
            Page::Cluster(ClusterPage::Transfers),
            Page::Cluster(ClusterPage::TransferLimit),
            Page::Cluster(ClusterPage::Recover),
            Page::Cluster(ClusterPage::DeclareLost),
            Page::Backup,
            Page::StopBackup,
            Page::Compact,
            Page::Strong(StrongPage::Show),
            Page::Strong(StrongPage::Copies),
            Page::Strong(StrongPage::Release),
            Page::Targets,
            Page::Log,
            Page::Slow,
            Page::Purge,
            Page::StopPurge,
            Page::Security,
            Page::Whoami,
        ] {
            assert!(pages.contains(&page), "{page:?} is there and not described");
        }
    }
}
