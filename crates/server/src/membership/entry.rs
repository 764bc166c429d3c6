//! How a node comes to its standing when it starts: it has it already, founds a cluster, or joins one.
//!
//! | the data folder has | with `cluster` | with `join` |
//! |---|---|---|
//! | a standing | it goes on | it goes on |
//! | nothing | it founds, alone or with the others of the list | it asks to be admitted |
//! | data of a node alone | it founds, if it is alone in the list and has neither consistent bucket types nor a security policy | refused: its keys would be the others' business |
//! | data of a cluster, without a standing | as above, if that comes to the same node of the same cluster | refused |
//!
//! Several that found a cluster at once need not speak with each other: each comes to the same first state, and the
//! number of the cluster is a hash of it. One that founds alone draws the number, so that no two clusters have the
//! same.
//!
//! A node alone has a log, and no standing. A node that founds or joins a cluster drops it.
//!
//! Left out: what becomes of a newcomer afterwards, which is decided by a plan.

use super::alone;
use super::files::{self, Files, FilesError};
use super::standing::{AsOf, Standing};
use crate::config::{Cluster, Config};
use crate::error::Error;
use crate::peer::{Tls, ask_to_join};
use ::membership::ClusterId;
use ::membership::state::State;
use base::Rng;
use node::Layout;
use node::layout::Owner;
use os::OsRng;
use protocol::peer::{Join, Versions, cluster_fingerprint};
use std::net::SocketAddr;

/// What is known when a node enters.
pub struct Entering<'a> {
    /// What it was told.
    pub config: &'a Config,
    /// Whose its data is; `None` if there is none.
    pub owner: Option<&'a Owner>,
    /// The layout of that data, or of the data to be made.
    pub layout: Layout,
}

/// A node with its standing.
pub struct Entered {
    /// `None` for a node alone that cannot write them.
    pub(super) files: Option<Files>,
    /// Whether it has nobody to agree with.
    pub(super) is_alone: bool,
    /// Which node of which cluster it is.
    pub standing: Standing,
    /// Whether that is yet to be remembered.
    pub(super) is_new: bool,
    /// Where the others reach it; empty for a node alone.
    pub(super) address: String,
}

impl Entered {
    /// What its stores are to remember.
    pub fn owner(&self) -> Owner {
        let (cluster, node) = (self.standing.cluster().0, self.standing.node);
        if self.is_alone { Owner::Alone } else { Owner::Member { cluster, node } }
    }
}

impl Entering<'_> {
    /// A node alone. It goes on with the state of its log, unless it is told other words and nothing rests on the log.
    ///
    /// # Errors
    /// [`Error::Members`] if it has been another; [`Error::Membership`] if its log is damaged, or of a newer program.
    pub fn alone(&self) -> Result<Entered, Error> {
        let has_standing = files::has_standing(&self.config.data);
        match self.owner {
            Some(Owner::Alone) | None if !has_standing => {}
            owner => {
                let has = owner.filter(|owner| **owner != Owner::Alone).map_or("a cluster".to_owned(), told);
                return Err(self.differs(has, "a node alone".to_owned()));
            }
        }
        let name = &*self.config.name;
        let cluster = ClusterId(self.number([name]));
        let fresh = self.found(cluster, &[(name, "")])?;
        let alone = |files, standing, is_new| {
            Ok(Entered { files, is_alone: true, standing, is_new, address: String::new() })
        };
        let mut files = match Files::open(&self.config.data) {
            Ok(files) => files,
            // Nothing can rest on a log that was never made.
            Err(error @ FilesError::Io(..)) if !files::may_have_log(&self.config.data) => {
                tracing::warn!("{error}: this node does not keep its metadata log");
                return alone(None, fresh, true);
            }
            Err(error) => return Err(error.into()),
        };
        match alone::kept(&files)? {
            Some(state)
                if alone::is_needed(&state)
                    || alone::is_as_told(&state, &fresh.state, self.owner.is_some()) =>
            {
                let standing = Standing { state, ..fresh };
                self.check_prefixes(&standing)?;
                alone(Some(files), standing, false)
            }
            _ => {
                files.discard_log()?;
                alone(Some(files), fresh, true)
            }
        }
    }

    /// A node of a cluster, which listens to the others at `here`. Blocks; a node that joins waits for the cluster's
    /// word.
    ///
    /// # Errors
    /// [`Error::Members`] if its data is another's, or lost in part; [`Error::Membership`] if it is not admitted, or
    /// its files cannot be read.
    pub fn member(&self, cluster: &Cluster, here: SocketAddr, tls: &Tls) -> Result<Entered, Error> {
        let address = cluster.reached_at(here).to_string();
        let mut files = Files::open(&self.config.data)?;
        if let Some(standing) = files.read_standing()? {
            self.check(&standing)?;
            return Ok(Entered { files: Some(files), is_alone: false, standing, is_new: false, address });
        }
        let standing = match self.owner {
            None if cluster.members.is_empty() => {
                // A start before this one may have been admitted, and have crashed before it remembered that.
                files.discard_log()?;
                self.join(cluster, &address, tls)?
            }
            None | Some(Owner::Alone) if cluster.members.len() == 1 => {
                if alone::kept(&files)?.as_ref().is_some_and(alone::is_needed) {
                    return Err(Error::Membership(format!(
                        "the data in {} is of a node alone and has consistent bucket types or a security policy: a \
                         cluster does not take them over",
                        self.config.data.display()
                    )));
                }
                files.discard_log()?;
                let number = ClusterId(OsRng::new().next_u64());
                self.found(number, &[(&self.config.name, &address)])?
            }
            None => {
                // Of a node alone that was ended before it had stores.
                if alone::kept(&files)?.is_some() {
                    files.discard_log()?;
                }
                self.found_together(cluster)?
            }
            Some(Owner::Alone) if cluster.members.is_empty() => {
                return Err(Error::Membership(format!(
                    "the data in {} is of a node alone: a node joins a cluster with an empty data folder",
                    self.config.data.display()
                )));
            }
            Some(Owner::Alone) => return Err(self.differs("a node alone".to_owned(), asked(cluster))),
            // Made before standings were remembered.
            Some(Owner::Founder(names)) if files.has_log() || *names == self::names(cluster) => {
                self.found_by(names, cluster)?
            }
            Some(owner @ Owner::Founder(_)) => return Err(self.differs(told(owner), asked(cluster))),
            Some(owner @ Owner::Member { cluster: number, node }) => {
                let standing =
                    (cluster.members.len() > 1).then(|| self.found_together(cluster)).transpose()?;
                let is_same = |it: &Standing| (it.cluster().0, it.node) == (*number, *node);
                standing.filter(is_same).ok_or_else(|| self.lost(owner))?
            }
        };
        Ok(Entered { files: Some(files), is_alone: false, standing, is_new: true, address })
    }

    /// Whether the data is that of the node that the folder says it is.
    fn check(&self, standing: &Standing) -> Result<(), Error> {
        let (name, cluster) = (&*standing.record().member.name, standing.cluster());
        let has = || format!("{name} of the cluster {cluster}");
        if *name != *self.config.name {
            return Err(self.differs(has(), self.config.name.clone()));
        }
        self.check_prefixes(standing)?;
        match self.owner {
            Some(owner @ Owner::Member { cluster: number, node })
                if (*number, *node) != (cluster.0, standing.node) =>
            {
                Err(self.differs(told(owner), has()))
            }
            _ => Ok(()),
        }
    }

    /// Whether the data's keys are ordered as the cluster's.
    fn check_prefixes(&self, standing: &Standing) -> Result<(), Error> {
        if self.owner.is_none() || standing.state.prefixes() == self.layout.prefixes {
            return Ok(());
        }
        Err(Error::Layout {
            data: self.config.data.clone(),
            what: "prefixes",
            has: self.layout.prefixes.partitions().to_string(),
            asked: standing.state.prefixes().partitions().to_string(),
        })
    }

    fn found(&self, cluster: ClusterId, nodes: &[(&str, &str)]) -> Result<Standing, Error> {
        let zone = if nodes.len() == 1 { &*self.config.zone } else { "" };
        let nodes = nodes.iter().map(|(name, address)| (*name, *address, zone));
        let state = State::found_by(cluster, (self.layout.ring_size, self.layout.prefixes), nodes)
            .map_err(|cause| Error::Membership(format!("cannot found a cluster: {cause}")))?;
        let here = state.members().values().find(|record| *record.member.name == *self.config.name);
        let node = here.map(|record| record.member.id);
        let node = node.ok_or_else(|| self.differs("a cluster".to_owned(), self.config.name.clone()))?;
        Ok(Standing { node, as_of: AsOf::default(), state })
    }

    fn found_together(&self, cluster: &Cluster) -> Result<Standing, Error> {
        self.found_by(&names(cluster), cluster)
    }

    /// As those that founded a cluster with these names, which are in order.
    fn found_by(&self, names: &str, cluster: &Cluster) -> Result<Standing, Error> {
        let address = |name: &str| {
            let member = cluster.members.iter().find(|member| member.name == name);
            member.map_or(String::new(), |member| member.address.to_string())
        };
        let nodes: Vec<(&str, String)> = names.split(',').map(|name| (name, address(name))).collect();
        let nodes: Vec<(&str, &str)> = nodes.iter().map(|(name, address)| (*name, &**address)).collect();
        let number = self.number(nodes.iter().map(|(name, _)| *name));
        self.found(ClusterId(number), &nodes)
    }

    /// The number of a cluster that is founded by these.
    fn number<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> u64 {
        let Layout { ring_size, prefixes, .. } = self.layout;
        cluster_fingerprint(ring_size.partitions(), prefixes.partitions(), names)
    }

    fn join(&self, cluster: &Cluster, address: &str, tls: &Tls) -> Result<Standing, Error> {
        let Config { name, zone, weight, .. } = self.config;
        let join = Join {
            versions: Versions::OURS,
            weight: *weight,
            from: name.clone(),
            address: address.to_owned(),
            zone: zone.clone(),
        };
        let standing = ask_to_join(&cluster.join, &join, tls).map_err(Error::Membership)?;
        self.check(&standing)?;
        match self.config.ring_size {
            Some(asked) if asked != standing.state.size() => Err(Error::Membership(format!(
                "the cluster's ring has {} partitions, not {}: leave ring_size out",
                standing.state.size().partitions(),
                asked.partitions()
            ))),
            _ => Ok(standing),
        }
    }

    fn differs(&self, has: String, asked: String) -> Error {
        Error::Members { data: self.config.data.clone(), has, asked }
    }

    fn lost(&self, owner: &Owner) -> Error {
        Error::Membership(format!(
            "the data in {} is of {}, and its folder membership is lost: restore that, or have the node removed and join \
             with an empty data folder",
            self.config.data.display(),
            told(owner)
        ))
    }
}

fn names(cluster: &Cluster) -> String {
    let names: Vec<&str> = cluster.members.iter().map(|member| &*member.name).collect();
    names.join(",")
}

fn asked(cluster: &Cluster) -> String {
    match names(cluster) {
        none if none.is_empty() => "a cluster that it joins".to_owned(),
        names => format!("the cluster {names}"),
    }
}

fn told(owner: &Owner) -> String {
    match owner {
        Owner::Alone => "a node alone".to_owned(),
        Owner::Founder(names) => format!("the cluster {names}"),
        Owner::Member { cluster, node } => format!("node {node} of the cluster {}", ClusterId(*cluster)),
    }
}
