// The product's backend, which holds the token: it sends operations, and knows what each response
// must mean for the chain.
import assert from 'node:assert/strict';
import { View } from './relay_wallet.mjs';

export class Backend {
  /** `way`, if present, records what reached the node. */
  constructor(portcullis, way) {
    this.portcullis = portcullis;
    this.view = new View(portcullis);
    this.way = way;
  }

  /** An operation that writes: its transaction succeeded on the chain, too. */
  async written(path, body, headers) {
    const { status, json, text } = await this.portcullis.post(path, body, headers);
    assert.equal(status, 200, text);
    assert.deepEqual([json.ok, json.idempotent], [true, false], text);
    await this.view.succeeded(json.transaction_hash);
    return json;
  }

  /** An operation whose effect is already on the chain, so that it spends no nonce. */
  async already(path, body) {
    const { status, json, text } = await this.nothingSent(() => this.portcullis.post(path, body));
    assert.equal(status, 200, text);
    assert.deepEqual([json.ok, json.transaction_hash, json.idempotent], [true, '', true], text);
    return json;
  }

  /** A refused request: returns the error with all its members. */
  async refused(path, body, status, reason, headers) {
    const send = () => this.portcullis.post(path, body, headers);
    return this.isRefusal(path, await this.nothingSent(send), status, reason);
  }

  /** The same for a transaction that only the node can refuse. */
  async refusedByNode(request, status, reason) {
    const send = () => this.portcullis.post('/rpc', request);
    return this.isRefusal('/rpc', await this.noNonceSpent(send), status, reason);
  }

  isRefusal(path, answer, status, reason) {
    const { json, text, headers } = answer;
    assert.equal(answer.status, status, text);
    const error = path === '/rpc' ? json.error.data : json.error;
    assert.equal(error.reason, reason, text);
    if (path !== '/rpc') assert.equal(json.ok, false);
    assert.ok(!('result' in json) && !('transaction_hash' in json), text);
    assert.equal(error.request_id, headers.get('x-request-id'));
    assert.equal(headers.get('cache-control'), 'no-store');
    return { ...error, headers };
  }

  async noNonceSpent(send) {
    const nonces = await this.view.signers();
    const answer = await send();
    assert.deepEqual(await this.view.signers(), nonces, `a nonce was spent: ${answer.text}`);
    return answer;
  }

  async nothingSent(send) {
    const writes = this.way?.writes.length;
    const answer = await this.noNonceSpent(send);
    assert.equal(this.way?.writes.length, writes, `the node was sent something: ${answer.text}`);
    return answer;
  }
}
