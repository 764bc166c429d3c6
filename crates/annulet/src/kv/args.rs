//! Arguments of `kv`. Buckets, keys and values are any bytes that a command line can carry.

use super::props;
use crate::admin::http;
use crate::admin::login::Login;
use crate::failure::Failure;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use client::Quorum;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

/// Where a node serves protocol buffers, if nothing else is said.
const PB_DEFAULT: &str = "127.0.0.1:8087";

/// A variable of older versions, which named that port.
const PB_VARIABLE: &str = "ANNULET_ADDRESS";

/// Any bytes.
pub type Bytes = bytes::Bytes;

/// Operations on objects.
#[derive(clap::Args)]
pub struct Args {
    // It may stand before the command, too; the commands that ask a node have it.
    #[command(flatten)]
    _node: http::NodeAddress,
    /// The operation.
    #[command(subcommand)]
    pub command: Command,
}

/// The operations of `kv`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Write an object's value to standard output. Exit code 1: no such object; 3: the object has siblings.
    Get(Get),
    /// Store a value.
    Put(Put),
    /// Show an object's metadata and context.
    Head(Head),
    /// Delete an object. A missing object is no error.
    Del(Del),
    /// List buckets, or the keys of a bucket. Costly: reads all keys.
    Ls(Ls),
    /// Query an index: find keys of a bucket by their terms.
    Index(Index),
    /// Show and change the properties of a bucket.
    #[command(subcommand)]
    Props(props::Command),
    /// List the bucket types, or show the properties of one.
    Types(props::Types),
}

/// Which node, and which type of bucket.
#[derive(clap::Args)]
pub struct Node {
    #[command(flatten)]
    node: http::Node,
    /// Address of the node's protocol buffers [default: ask the node].
    #[arg(long, value_name = "HOST:PORT", hide = true, value_parser = http::node_address)]
    address: Option<String>,
    /// The bucket's type.
    #[arg(long = "type", value_name = "TYPE")]
    pub bucket_type: Option<String>,
}

impl Node {
    /// Where the node serves protocol buffers: as was said, else as the node says that was named, else the default.
    pub fn protocol_buffers(&self) -> Result<String, Failure> {
        if let Some(address) = self.address.as_ref().filter(|address| !address.is_empty()) {
            return Ok(address.clone());
        }
        if let Some(address) = self.node.named() {
            return self.node.protocol_buffers(address);
        }
        let older = std::env::var(PB_VARIABLE).ok().filter(|address| !address.is_empty());
        Ok(older.unwrap_or_else(|| PB_DEFAULT.to_owned()))
    }

    /// The login.
    pub(crate) fn login(&self) -> Result<Option<Arc<Login>>, Failure> {
        self.node.login()
    }

    /// The bucket's type, if it is not the default one.
    pub fn bucket_type(&self) -> Option<&[u8]> {
        self.bucket_type.as_deref().map(str::as_bytes)
    }
}

/// Arguments of `get`.
#[derive(clap::Args)]
pub struct Get {
    /// The node to ask.
    #[command(flatten)]
    pub node: Node,
    /// The object's bucket.
    #[arg(value_name = "BUCKET", value_parser = BytesParser)]
    pub bucket: Bytes,
    /// The object's key.
    #[arg(value_name = "KEY", value_parser = BytesParser)]
    pub key: Bytes,
    /// Number of the sibling, in the order shown.
    #[arg(long, value_name = "N", conflicts_with = "vtag")]
    pub sibling: Option<usize>,
    /// The sibling with this vtag.
    #[arg(long, value_name = "VTAG")]
    pub vtag: Option<String>,
    /// Show metadata and context on standard error.
    #[arg(long)]
    pub meta: bool,
    /// Replies needed: one, quorum, all, default or a number.
    #[arg(long, value_parser = quorum, default_value = "default", hide_default_value = true)]
    pub r: Quorum,
    /// Replies needed from primaries.
    #[arg(long, value_parser = quorum, default_value = "default", hide_default_value = true)]
    pub pr: Quorum,
}

/// Arguments of `head`.
#[derive(clap::Args)]
pub struct Head {
    /// The node to ask.
    #[command(flatten)]
    pub node: Node,
    /// The object's bucket.
    #[arg(value_name = "BUCKET", value_parser = BytesParser)]
    pub bucket: Bytes,
    /// The object's key.
    #[arg(value_name = "KEY", value_parser = BytesParser)]
    pub key: Bytes,
    /// Replies needed: one, quorum, all, default or a number.
    #[arg(long, value_parser = quorum, default_value = "default", hide_default_value = true)]
    pub r: Quorum,
    /// Replies needed from primaries.
    #[arg(long, value_parser = quorum, default_value = "default", hide_default_value = true)]
    pub pr: Quorum,
}

/// Arguments of `put`.
#[derive(clap::Args)]
pub struct Put {
    /// The node to ask.
    #[command(flatten)]
    pub node: Node,
    /// The object's bucket.
    #[arg(value_name = "BUCKET", value_parser = BytesParser)]
    pub bucket: Bytes,
    /// The object's key.
    #[arg(value_name = "KEY", value_parser = BytesParser)]
    pub key: Bytes,
    /// The value [default: standard input, also for -].
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub value: Option<OsString>,
    /// Media type of the value [default: text/plain if it is UTF-8, otherwise application/octet-stream].
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// Character set of the value.
    #[arg(long, value_name = "NAME")]
    pub charset: Option<String>,
    /// A piece of user metadata; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub meta: Vec<(String, String)>,
    /// An index term; may be given several times.
    #[arg(long, value_name = "FIELD=VALUE", value_parser = pair)]
    pub index: Vec<(String, String)>,
    /// Context of the version that this write replaces, as `kv get --meta` or `kv head` shows it.
    #[arg(long, value_name = "BASE64", value_parser = context)]
    pub vclock: Option<Bytes>,
    /// Show the stored object: its metadata on standard error, its value on standard output.
    #[arg(long)]
    pub return_body: bool,
    /// Fail if the object exists.
    #[arg(long)]
    pub if_none_match: bool,
    /// Replies needed: one, quorum, all, default or a number.
    #[arg(long, value_parser = quorum, default_value = "default", hide_default_value = true)]
    pub w: Quorum,
    /// Replies needed from primaries.
    #[arg(long, value_parser = quorum, default_value = "default", hide_default_value = true)]
    pub pw: Quorum,
    /// Replies needed from replicas that have synced the write.
    #[arg(long, value_parser = quorum, default_value = "default", hide_default_value = true)]
    pub dw: Quorum,
}

/// Arguments of `del`.
#[derive(clap::Args)]
pub struct Del {
    /// The node to ask.
    #[command(flatten)]
    pub node: Node,
    /// The object's bucket.
    #[arg(value_name = "BUCKET", value_parser = BytesParser)]
    pub bucket: Bytes,
    /// The object's key.
    #[arg(value_name = "KEY", value_parser = BytesParser)]
    pub key: Bytes,
    /// Context of the version to delete [default: all versions].
    #[arg(long, value_name = "BASE64", value_parser = context)]
    pub vclock: Option<Bytes>,
}

/// Arguments of `index`.
#[derive(clap::Args)]
pub struct Index {
    /// The node to ask.
    #[command(flatten)]
    pub node: Node,
    /// The bucket to search.
    #[arg(value_name = "BUCKET", value_parser = BytesParser)]
    pub bucket: Bytes,
    /// The field: NAME_bin, NAME_int, $key or $bucket.
    #[arg(value_name = "FIELD", value_parser = BytesParser)]
    pub field: Bytes,
    /// The term, or the first term of a range. Ignored for $bucket.
    #[arg(value_name = "TERM", value_parser = BytesParser, allow_hyphen_values = true)]
    pub term: Bytes,
    /// The last term of a range, included.
    #[arg(value_name = "LAST", value_parser = BytesParser, allow_hyphen_values = true)]
    pub last: Option<Bytes>,
    /// Show the terms of a range, each before its key and a tab.
    #[arg(long)]
    pub terms: bool,
    /// Only terms that match this regular expression; for $key, only keys.
    #[arg(long, value_name = "REGEX", value_parser = BytesParser)]
    pub regex: Option<Bytes>,
    /// Size of a page. If there may be more, standard error shows the option for the next page.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max: Option<u32>,
    /// Continuation of the previous page.
    #[arg(long, value_name = "CONTINUATION", value_parser = BytesParser)]
    pub continuation: Option<Bytes>,
}

/// Arguments of `ls`.
#[derive(clap::Args)]
pub struct Ls {
    /// The node to ask.
    #[command(flatten)]
    pub node: Node,
    /// The bucket to list [default: list the buckets].
    #[arg(value_name = "BUCKET", value_parser = BytesParser)]
    pub bucket: Option<Bytes>,
}

/// An argument's bytes, whatever they are.
pub fn bytes_of(argument: OsString) -> Bytes {
    argument.into_vec().into()
}

/// Takes arguments that are no UTF-8, too.
#[derive(Clone)]
pub struct BytesParser;

impl clap::builder::TypedValueParser for BytesParser {
    type Value = Bytes;

    fn parse_ref(
        &self,
        _command: &clap::Command,
        _argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Bytes, clap::Error> {
        Ok(bytes_of(value.to_owned()))
    }
}

fn quorum(text: &str) -> Result<Quorum, String> {
    match text {
        "default" => Ok(Quorum::Default),
        "one" => Ok(Quorum::One),
        "quorum" => Ok(Quorum::Quorum),
        "all" => Ok(Quorum::All),
        // The largest numbers stand for the words on the wire.
        number => match number.parse::<u16>() {
            Ok(count) => Ok(Quorum::Exactly(count.into())),
            Err(_) => Err("neither one, quorum, all, default, nor a number".to_owned()),
        },
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("there is no = in it")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn context(text: &str) -> Result<Bytes, String> {
    BASE64_STANDARD.decode(text).map(Bytes::from).map_err(|_| "it is not base64".to_owned())
}
