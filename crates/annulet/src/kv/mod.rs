//! `annulet kv`: objects of a running node, over its protocol buffers, and properties of its buckets, over HTTP.
//!
//! Standard output carries the data and nothing else; what is said about it goes to standard error.

mod args;
mod props;
mod show;

use crate::failure::{self, FAILED, Failure, SIBLINGS};
use crate::terms;
pub use args::{Args, Command, Get, Head, Index, Ls, Put};
use args::{Bytes, Node, bytes_of};
use client::{Client, Content, Error, QueryOptions, ReadOptions, Terms, Timeouts, WriteOptions};
use protocol::messages::Pair;
use std::io::{self, Read, Write};

/// Carries one command out.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Get(args) => get(&args),
        Command::Put(args) => put(args),
        Command::Head(args) => head(&args),
        Command::Del(args) => del(&args),
        Command::Ls(args) => ls(&args),
        Command::Index(args) => index(args),
        Command::Props(command) => props::run(command),
        Command::Types(args) => props::types(&args),
    }
}

fn get(args: &Get) -> Result<(), Failure> {
    let options = ReadOptions { r: args.r, pr: args.pr, ..ReadOptions::default() };
    let object = connect(&args.node)?.get(args.node.bucket_type(), &args.bucket, &args.key, &options)?;
    let object = object.ok_or_else(notfound)?;
    let mut notes = io::stderr().lock();
    let chosen = match (&args.vtag, args.sibling) {
        (Some(vtag), _) => {
            object.siblings.iter().find(|sibling| sibling.vtag.as_deref() == Some(vtag.as_bytes()))
        }
        (None, Some(number)) => number.checked_sub(1).and_then(|index| object.siblings.get(index)),
        (None, None) if object.siblings.len() > 1 => {
            show::siblings(&mut notes, &object)?;
            return Err(Failure::new(
                SIBLINGS,
                "the object has siblings: choose one by --sibling N or --vtag V",
            ));
        }
        (None, None) => object.siblings.first(),
    };
    let Some(chosen) = chosen else {
        show::siblings(&mut notes, &object)?;
        return Err(Failure::new(FAILED, "there is no such sibling"));
    };
    if args.meta {
        show::metadata(&mut notes, chosen)?;
        show::context(&mut notes, &object)?;
    }
    write_out(&chosen.value)
}

fn put(args: Put) -> Result<(), Failure> {
    let value = match args.value {
        Some(value) if value.as_encoded_bytes() != b"-" => bytes_of(value),
        _ => read_in()?,
    };
    let pair = |(key, value): (String, String)| Pair { key: key.into(), value: Some(value.into()) };
    let content_type = args.content_type.unwrap_or_else(|| guess_type(&value).to_owned());
    let content = Content {
        value,
        content_type: Some(content_type.into()),
        charset: args.charset.map(Into::into),
        usermeta: args.meta.into_iter().map(pair).collect(),
        indexes: args.index.into_iter().map(pair).collect(),
        ..Content::default()
    };
    let options = WriteOptions {
        vclock: args.vclock,
        w: args.w,
        pw: args.pw,
        dw: args.dw,
        return_body: args.return_body,
        if_none_match: args.if_none_match,
        ..WriteOptions::default()
    };
    let mut client = connect(&args.node)?;
    let stored = client.put(args.node.bucket_type(), &args.bucket, Some(&args.key), content, &options)?;
    let Some(object) = stored.object.filter(|_| args.return_body) else { return Ok(()) };
    show::object(&mut io::stderr().lock(), &object)?;
    match &object.siblings[..] {
        [only] => write_out(&only.value),
        _ => Err(Failure::new(SIBLINGS, "the object has siblings now")),
    }
}

fn head(args: &Head) -> Result<(), Failure> {
    let options = ReadOptions { r: args.r, pr: args.pr, ..ReadOptions::default() };
    let object = connect(&args.node)?.head(args.node.bucket_type(), &args.bucket, &args.key, &options)?;
    show::object(&mut io::stdout().lock(), &object.ok_or_else(notfound)?)?;
    Ok(())
}

fn del(args: &args::Del) -> Result<(), Failure> {
    let options = WriteOptions { vclock: args.vclock.clone(), ..WriteOptions::default() };
    connect(&args.node)?.delete(args.node.bucket_type(), &args.bucket, &args.key, &options)?;
    Ok(())
}

fn ls(args: &Ls) -> Result<(), Failure> {
    let mut client = connect(&args.node)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut print = |name: &[u8]| out.write_all(name).and_then(|()| out.write_all(b"\n"));
    let Some(bucket) = &args.bucket else {
        for bucket in client.list_buckets(args.node.bucket_type())? {
            print(&bucket)?;
        }
        return Ok(out.flush()?);
    };
    client.list_keys(args.node.bucket_type(), bucket, |key| {
        if let Err(error) = print(&key) {
            // The rest of the bucket has no reader: hang up rather than wait for all of it.
            std::process::exit(Failure::from(error).code.into());
        }
    })?;
    Ok(out.flush()?)
}

fn index(args: Index) -> Result<(), Failure> {
    let mut client = connect(&args.node)?;
    let terms = match args.last {
        Some(last) => Terms::Range(args.term, last),
        None => Terms::Exact(args.term),
    };
    let options = QueryOptions {
        return_terms: args.terms,
        max_results: args.max,
        continuation: args.continuation,
        term_regex: args.regex,
        ..QueryOptions::default()
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut print = |term: Option<Bytes>, key: &[u8]| {
        if let Some(term) = term {
            out.write_all(&term)?;
            out.write_all(b"\t")?;
        }
        out.write_all(key)?;
        out.write_all(b"\n")
    };
    let bucket_type = args.node.bucket_type();
    let place =
        client.query_index(bucket_type, &args.bucket, &args.field, &terms, &options, |term, key| {
            if let Err(error) = print(term, &key) {
                // The rest has no reader: hang up rather than wait for all of it.
                std::process::exit(Failure::from(error).code.into());
            }
        })?;
    out.flush()?;
    if let Some(place) = place {
        writeln!(io::stderr(), "more: --continuation {}", String::from_utf8_lossy(&place))?;
    }
    Ok(())
}

fn connect(node: &Node) -> Result<Client, Failure> {
    let address = node.protocol_buffers()?;
    let client = Client::connect(&*address, Timeouts::default()).map_err(|error| match error {
        Error::Io(error) => failure::unreachable(&address, &error),
        error => error.into(),
    })?;
    match node.login()? {
        None => Ok(client),
        Some(login) => login.log_in(client, &address),
    }
}

fn notfound() -> Failure {
    Failure::new(FAILED, terms::explained(protocol::errors::NOTFOUND))
}

fn guess_type(value: &[u8]) -> &'static str {
    if std::str::from_utf8(value).is_ok() { "text/plain" } else { "application/octet-stream" }
}

fn write_out(value: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(value)?;
    Ok(out.flush()?)
}

/// Standard input, up to what a frame can carry.
fn read_in() -> Result<Bytes, Failure> {
    let max = protocol::frame::FRAME_MAX;
    let mut value = Vec::new();
    io::stdin().lock().take(max as u64 + 1).read_to_end(&mut value)?;
    if value.len() > max {
        return Err(Failure::new(FAILED, format!("the value is over the limit of {max} bytes")));
    }
    Ok(value.into())
}
