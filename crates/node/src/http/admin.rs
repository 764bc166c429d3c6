//! What operators ask: bucket types whole, and the nodes of the cluster. The state of the node is a question to the
//! shell.
//!
//! `docs/api/admin.yaml` describes these paths; it is served as `/admin/openapi.yaml`.

use bytes::Bytes;
use kv::{BucketProps, Error, Request, Response, TypeChange, TypeStatus};
use protocol::http::{Answer, Connection, Method};
use serde_json::{Value, json};

use super::fault::Fault;
use super::{props, props_json};

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
        Page::Status | Page::Members | Page::OpenApi | Page::Types | Page::Trees(TreesPage::Show) => {
            &[Method::Get, Method::Head]
        }
        Page::Type(_) => &[Method::Get, Method::Head, Method::Put, Method::Post],
        Page::Cluster(ClusterPage::Show | ClusterPage::Plan | ClusterPage::Transfers) => {
            &[Method::Get, Method::Head]
        }
        Page::Backup => &[Method::Get, Method::Head, Method::Post],
        Page::Cluster(ClusterPage::Recover) => &[Method::Get, Method::Head, Method::Post],
        Page::Activate(_) | Page::Cluster(_) | Page::StopBackup | Page::Trees(_) => &[Method::Post],
    }
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
        (
            Page::Status
            | Page::OpenApi
            | Page::Cluster(_)
            | Page::Backup
            | Page::StopBackup
            | Page::Trees(_),
            _,
        ) => {
            return Ok(None);
        }
    };
    Ok(Some((request, Asked { only, change })))
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
    json!({
        "name": String::from_utf8_lossy(name),
        "status": status.to_string(),
        "props": props_json::write(props),
    })
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
    fn the_description_has_what_is_served() {
        let described = described();
        let pages: Vec<Page> = described
            .iter()
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
            Page::Backup,
            Page::StopBackup,
        ] {
            assert!(pages.contains(&page), "{page:?} is there and not described");
        }
    }
}
