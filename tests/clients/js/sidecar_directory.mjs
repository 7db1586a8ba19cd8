// Serves DID documents on one loopback port: a directory of did:plc, and the host of a did:web.
// Each account in it has a key of a type that the AT Protocol signs with.
import { once } from 'node:events';
import { createServer } from 'node:http';

/** The document of an account that signs with `keypair`. */
export function documentOf(did, keypair, more = {}) {
  return {
    '@context': ['https://www.w3.org/ns/did/v1', 'https://w3id.org/security/multikey/v1'],
    id: did,
    alsoKnownAs: ['at://somebody.cards.example'],
    verificationMethod: [
      {
        id: `${did}#atproto`,
        type: 'Multikey',
        controller: did,
        publicKeyMultibase: keypair.did().slice('did:key:'.length),
      },
    ],
    service: [
      {
        id: '#atproto_pds',
        type: 'AtprotoPersonalDataServer',
        serviceEndpoint: 'https://pds.cards.example',
      },
    ],
    ...more,
  };
}

export class Directory {
  static async start() {
    const directory = new Directory();
    // `entries` maps paths to documents or statuses; `requested` lists every requested path.
    Object.assign(directory, { entries: new Map(), requested: [] });
    directory.server = createServer((request, response) => directory.answer(request, response));
    directory.server.listen(0, '127.0.0.1');
    await once(directory.server, 'listening');
    directory.port = directory.server.address().port;
    directory.url = `http://127.0.0.1:${directory.port}`;
    directory.webDid = `did:web:localhost%3A${directory.port}`;
    return directory;
  }

  answer({ url }, response) {
    const path = decodeURIComponent(url);
    this.requested.push(path);
    const entry = this.entries.get(path) ?? 404;
    if (typeof entry === 'number') {
      response.writeHead(entry, { location: `${this.url}/elsewhere` }).end('{}');
    } else {
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(entry));
    }
  }

  /** Sets the document or the status that is served for a DID. */
  put(did, entry) {
    this.entries.set(did.startsWith('did:plc:') ? `/${did}` : '/.well-known/did.json', entry);
  }

  end() {
    this.server.closeAllConnections();
    return new Promise((resolve) => this.server.close(resolve));
  }
}
