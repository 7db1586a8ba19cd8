//! The permit of a read, and the read in the one form that the node is sent.

use crate::rpc::json::write_integer;
use crate::rpc::{BlockId, Id, Method, Params};
use alloc::vec::Vec;

/// A read that passed the whole policy. Borrows the request body it was parsed from.
#[derive(Debug)]
pub struct ReadPermit<'a> {
    id: Id<'a>,
    read: Read,
}

/// A permitted read without its request id.
#[derive(Debug)]
pub struct Read {
    method: Method,
    params: Params,
}

impl<'a> ReadPermit<'a> {
    pub(crate) fn new(id: Id<'a>, method: Method, params: Params) -> Self {
        Self { id, read: Read { method, params } }
    }

    /// The client's request id, byte for byte.
    pub fn id(&self) -> Id<'a> {
        self.id
    }

    /// The method, one of the thirteen.
    pub fn method(&self) -> Method {
        self.read.method
    }

    /// The parsed parameters.
    pub fn params(&self) -> &Params {
        &self.read.params
    }

    /// The read without the id.
    pub fn into_read(self) -> Read {
        self.read
    }

    /// Appends the request to the node: this method and these parameters, by name, with `id` in
    /// place of the client's.
    pub fn write_request(&self, id: u64, out: &mut Vec<u8>) {
        self.read.call().write_request(id, out);
    }
}

impl Read {
    /// The method, one of the thirteen.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The parsed parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The call to the node.
    pub fn call(&self) -> ReadCall {
        ReadCall::new(self.method, &self.params)
    }

    /// The call at another block, for a method that takes one.
    pub fn call_at(&self, block: BlockId) -> ReadCall {
        ReadCall::new(self.method, &self.params.at(block))
    }
}

/// The method and parameters of a permitted read in canonical form: equal reads are equal bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadCall(Vec<u8>);

impl ReadCall {
    fn new(method: Method, params: &Params) -> Self {
        // fits a method, two hashes and their names
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(br#""method":""#);
        bytes.extend_from_slice(method.name().as_bytes());
        bytes.extend_from_slice(br#"","params":"#);
        params.write(&mut bytes);
        Self(bytes)
    }

    /// Appends the request to the node, with this id.
    pub fn write_request(&self, id: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        write_integer(id, out);
        out.push(b',');
        out.extend_from_slice(&self.0);
        out.push(b'}');
    }

    /// The canonical bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
