// A keep-alive connection, to the gateway or to the node itself.
import http from 'node:http';

let lastId = 0;

/** The JSON text of the response, without the id: `"result":…` or `"error":…`. */
function payloadOf(text, id) {
  const start = `{"jsonrpc":"2.0","id":${id},`;
  if (!text.startsWith(start)) throw new Error(`not an answer to ${id}: ${text.slice(0, 200)}`);
  return text.slice(start.length, -1);
}

export class Client {
  constructor(url) {
    this.url = url;
    this.agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  }

  /** Status, `X-Cache` and payload; null when no complete response arrived. */
  async ask(method, params) {
    lastId += 1;
    const id = lastId;
    const body = JSON.stringify({ jsonrpc: '2.0', id, method, params });
    try {
      const { status, cache, text } = await this.#post(body);
      const payload = status === 200 ? payloadOf(text, id) : text;
      return { status, cache, payload };
    } catch (error) {
      if (!error.code) throw error;
      return null;
    }
  }

  /** The result, or an error. */
  async must(method, params) {
    const answer = await this.ask(method, params);
    const { result, error } = answer ? JSON.parse(`{${answer.payload}}`) : {};
    if (result === undefined) throw new Refused(method, params, error);
    return result;
  }

  /** Sends a request and hangs up before the response. */
  leave(method, params) {
    const body = JSON.stringify({ jsonrpc: '2.0', id: 0, method, params });
    const request = http.request(this.url, { method: 'POST', headers: headersFor(body) });
    return new Promise((resolve) => {
      request.once('error', resolve);
      request.once('close', resolve);
      request.once('finish', () => setImmediate(() => request.destroy()));
      request.end(body);
    });
  }

  #post(body) {
    const options = { method: 'POST', agent: this.agent, headers: headersFor(body) };
    return new Promise((resolve, reject) => {
      const request = http.request(this.url, options, (answer) => {
        const chunks = [];
        answer.on('data', (chunk) => chunks.push(chunk));
        answer.once('error', reject);
        answer.once('end', () => {
          const text = Buffer.concat(chunks).toString();
          resolve({ status: answer.statusCode, cache: answer.headers['x-cache'], text });
        });
      });
      request.once('error', reject);
      request.end(body);
    });
  }

  close() {
    this.agent.destroy();
  }
}

/** The node refused a request. */
export class Refused extends Error {
  constructor(method, params, error) {
    super(`${method} ${JSON.stringify(params)}: ${JSON.stringify(error ?? 'no answer')}`);
    this.answered = error !== undefined;
  }
}

function headersFor(body) {
  return { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
}
