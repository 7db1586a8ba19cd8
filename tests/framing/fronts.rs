//! Real front proxies before the real program: a client's bytes are never read as part of another
//! client's request, and its response reaches no other client.

use std::path::PathBuf;

use crate::client::Response;
use crate::grammar::id_of;
use crate::judges::converse;
use crate::processes::Folder;

/// A front proxy, which uses its connections to the program for all clients.
pub(crate) struct Front {
    pub(crate) name: &'static str,
    socket: PathBuf,
}

impl Front {
    /// All of them, as the configurations of the judges define them.
    pub(crate) fn all(folder: &Folder) -> [Self; 3] {
        ["front-nginx", "front-nginx-streaming", "front-haproxy"].map(|name| Self {
            name,
            socket: folder.file(&format!("{name}.sock")),
        })
    }

    /// One client sends a stream, then another one a request.
    ///
    /// # Errors
    /// One of them got a response that is not its own.
    pub(crate) fn separates(&self, stream: &[u8], index: u64) -> Result<(), String> {
        // chunks may split an id
        let own = format!("\"{}", id_of(index, ""));
        for response in converse(&self.socket, stream) {
            if let Some(id) = result_id(&response)
                && !id.starts_with(&own)
                && !contains(stream, id.as_bytes())
            {
                return Err(format!(
                    "the sender of the stream gets the response to {id}"
                ));
            }
        }
        let id = format!("\"other.{index:x}\"");
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"starknet_chainId","params":[]}}"#);
        let request = format!(
            "POST /rpc HTTP/1.1\r\nHost: edge.test\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        match converse(&self.socket, request.as_bytes()).as_slice() {
            [own] if own.status == 200 && own.id().as_ref() == Some(&id) => Ok(()),
            others => Err(format!("another client gets {others:?}")),
        }
    }
}

/// The id of a response with a result.
fn result_id(response: &Response) -> Option<String> {
    response
        .id()
        .filter(|id| response.status == 200 && id != "null")
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
