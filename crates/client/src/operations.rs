//! The requests, one method each.

use bytes::Bytes;
use protocol::frame::FRAME_MAX;
use protocol::messages::*;
use protocol::{Message, Request, codes};

use crate::{Client, Error, QueryOptions, ReadOptions, WriteOptions};

/// An object that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetched {
    /// Its values: more than one after concurrent writes, none for a tombstone.
    pub siblings: Vec<Content>,
    /// Its clock, to send with the write that follows this read.
    pub vclock: Bytes,
}

/// What a put answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The key, if the server invented it.
    pub key: Option<Bytes>,
    /// The object as it is now, if [`WriteOptions::return_body`] asked for it.
    pub object: Option<Fetched>,
}

/// Which terms an index query is about: integers in decimal, for a field that ends in `_int`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Terms {
    /// One.
    Exact(Bytes),
    /// From one to another, both included.
    Range(Bytes, Bytes),
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The node's name.
    pub node: String,
    /// Its version.
    pub version: String,
}

impl Client {
    /// Asks whether the server answers.
    pub fn ping(&mut self) -> Result<(), Error> {
        self.call(&Request::Ping, codes::PING_RESP)
    }

    /// Asks who answers.
    pub fn server_info(&mut self) -> Result<ServerInfo, Error> {
        let info: GetServerInfoResp = self.call(&Request::GetServerInfo, codes::GET_SERVER_INFO_RESP)?;
        let text = |field: Option<Bytes>| String::from_utf8_lossy(&field.unwrap_or_default()).into_owned();
        Ok(ServerInfo { node: text(info.node), version: text(info.server_version) })
    }

    /// Reads an object: `None` if there is none.
    pub fn get(
        &mut self,
        bucket_type: Option<&[u8]>,
        bucket: &[u8],
        key: &[u8],
        options: &ReadOptions,
    ) -> Result<Option<Fetched>, Error> {
        self.fetch(options.apply(get_req(bucket_type, bucket, key)))
    }

    /// As [`Client::get`], with empty values.
    pub fn head(
        &mut self,
        bucket_type: Option<&[u8]>,
        bucket: &[u8],
        key: &[u8],
        options: &ReadOptions,
    ) -> Result<Option<Fetched>, Error> {
        let request = options.apply(get_req(bucket_type, bucket, key));
        self.fetch(GetReq { head: Some(true), ..request })
    }

    /// Writes a value, under a key the server invents if there is none.
    pub fn put(
        &mut self,
        bucket_type: Option<&[u8]>,
        bucket: &[u8],
        key: Option<&[u8]>,
        content: Content,
        options: &WriteOptions,
    ) -> Result<Stored, Error> {
        // Checked before it is encoded: a length field could not hold it.
        if content.encoded_len() > FRAME_MAX {
            return Err(Error::Protocol(format!("a value of {} bytes", content.value.len())));
        }
        let request = options.apply_to_put(PutReq {
            bucket: copy(bucket),
            key: key.map(copy),
            content,
            bucket_type: bucket_type.map(copy),
            ..PutReq::default()
        });
        let PutResp { content, vclock, key } =
            self.call(&Request::Put(Box::new(request)), codes::PUT_RESP)?;
        Ok(Stored { key, object: vclock.map(|vclock| Fetched { siblings: content, vclock }) })
    }

    /// Deletes an object; one that is not there is no error.
    pub fn delete(
        &mut self,
        bucket_type: Option<&[u8]>,
        bucket: &[u8],
        key: &[u8],
        options: &WriteOptions,
    ) -> Result<(), Error> {
        let request = options.apply_to_delete(DelReq {
            bucket: copy(bucket),
            key: copy(key),
            bucket_type: bucket_type.map(copy),
            ..DelReq::default()
        });
        self.call(&Request::Del(request), codes::DEL_RESP)
    }

    /// Lists the buckets of a type that hold objects. Costly: it walks all keys.
    pub fn list_buckets(&mut self, bucket_type: Option<&[u8]>) -> Result<Vec<Bytes>, Error> {
        let request = ListBucketsReq {
            stream: Some(true),
            bucket_type: bucket_type.map(copy),
            ..ListBucketsReq::default()
        };
        let mut answer: ListBucketsResp =
            self.call(&Request::ListBuckets(request), codes::LIST_BUCKETS_RESP)?;
        let mut buckets = answer.buckets;
        while answer.done != Some(true) {
            answer = self.recv(codes::LIST_BUCKETS_RESP)?;
            buckets.append(&mut answer.buckets);
        }
        Ok(buckets)
    }

    /// Lists the keys of a bucket, in no order, handing each to `on_key` as it arrives. Costly.
    pub fn list_keys(
        &mut self,
        bucket_type: Option<&[u8]>,
        bucket: &[u8],
        mut on_key: impl FnMut(Bytes),
    ) -> Result<(), Error> {
        let request = ListKeysReq {
            bucket: copy(bucket),
            bucket_type: bucket_type.map(copy),
            ..ListKeysReq::default()
        };
        let mut answer: ListKeysResp = self.call(&Request::ListKeys(request), codes::LIST_KEYS_RESP)?;
        loop {
            answer.keys.into_iter().for_each(&mut on_key);
            if answer.done == Some(true) {
                return Ok(());
            }
            answer = self.recv(codes::LIST_KEYS_RESP)?;
        }
    }

    /// Finds the keys that an index has under some terms, in the order of terms and keys, handing each to `on_row` as
    /// it arrives, with its term if [`QueryOptions::return_terms`] asks for those of a range. Fields are `…_bin`,
    /// `…_int`, and `$key` and `$bucket`, which every object has. Answers where the next page begins, if this one is
    /// full.
    pub fn query_index(
        &mut self,
        bucket_type: Option<&[u8]>,
        bucket: &[u8],
        field: &[u8],
        terms: &Terms,
        options: &QueryOptions,
        mut on_row: impl FnMut(Option<Bytes>, Bytes),
    ) -> Result<Option<Bytes>, Error> {
        let request = options.apply(index_req(bucket_type, bucket, field, terms));
        let mut answer: IndexResp = self.call(&Request::Index(Box::new(request)), codes::INDEX_RESP)?;
        let mut place = None;
        loop {
            answer.keys.into_iter().for_each(|key| on_row(None, key));
            answer
                .results
                .into_iter()
                .for_each(|pair| on_row(Some(pair.key), pair.value.unwrap_or_default()));
            place = answer.continuation.or(place);
            if answer.done == Some(true) {
                return Ok(place);
            }
            answer = self.recv(codes::INDEX_RESP)?;
        }
    }

    /// Reads a bucket's properties.
    pub fn get_props(&mut self, bucket_type: Option<&[u8]>, bucket: &[u8]) -> Result<BucketProps, Error> {
        let request = GetBucketReq { bucket: copy(bucket), bucket_type: bucket_type.map(copy) };
        let answer: GetBucketResp = self.call(&Request::GetBucket(request), codes::GET_BUCKET_RESP)?;
        Ok(answer.props)
    }

    /// Changes the properties of a bucket that are there in `props`.
    pub fn set_props(
        &mut self,
        bucket_type: Option<&[u8]>,
        bucket: &[u8],
        props: BucketProps,
    ) -> Result<(), Error> {
        let request = SetBucketReq { bucket: copy(bucket), props, bucket_type: bucket_type.map(copy) };
        self.call(&Request::SetBucket(Box::new(request)), codes::SET_BUCKET_RESP)
    }

    /// Gives a bucket its type's properties again.
    pub fn reset_props(&mut self, bucket_type: Option<&[u8]>, bucket: &[u8]) -> Result<(), Error> {
        let request = ResetBucketReq { bucket: copy(bucket), bucket_type: bucket_type.map(copy) };
        self.call(&Request::ResetBucket(request), codes::RESET_BUCKET_RESP)
    }

    fn fetch(&mut self, request: GetReq) -> Result<Option<Fetched>, Error> {
        let answer: GetResp = self.call(&Request::Get(request), codes::GET_RESP)?;
        Ok(answer.vclock.map(|vclock| Fetched { siblings: answer.content, vclock }))
    }
}

fn index_req(bucket_type: Option<&[u8]>, bucket: &[u8], field: &[u8], terms: &Terms) -> IndexReq {
    let request = IndexReq {
        bucket: copy(bucket),
        index: copy(field),
        bucket_type: bucket_type.map(copy),
        ..IndexReq::default()
    };
    match terms.clone() {
        Terms::Exact(term) => IndexReq { qtype: IndexQueryType::Eq.into(), key: Some(term), ..request },
        Terms::Range(first, last) => IndexReq {
            qtype: IndexQueryType::Range.into(),
            range_min: Some(first),
            range_max: Some(last),
            ..request
        },
    }
}

fn get_req(bucket_type: Option<&[u8]>, bucket: &[u8], key: &[u8]) -> GetReq {
    GetReq { bucket: copy(bucket), key: copy(key), bucket_type: bucket_type.map(copy), ..GetReq::default() }
}

fn copy(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
