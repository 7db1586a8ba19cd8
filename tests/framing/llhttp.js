// node's HTTP server, whose parser is llhttp, as a judge: reports each request that it reads in a
// field of its response, and refuses what the parser refuses.
//
//   node llhttp.js SOCKET
'use strict';
const http = require('node:http');

const REFUSAL = 'HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n';
const options = { insecureHTTPParser: false, requestTimeout: 0, headersTimeout: 0 };
const server = http.createServer(options);
// a stream ends with the end of the client's output
server.httpAllowHalfOpen = true;
server.keepAliveTimeout = 0;

const hex = (bytes) => bytes.toString('hex');

// Ends a connection whose parser has stopped, once all whole requests are answered.
const finish = (socket) => {
  const isAnswered = socket.requests.every((request) => !request.complete || request.isAnswered);
  if (socket.ending !== undefined && isAnswered && socket.writable) {
    socket.end(socket.ending);
  }
};

server.on('connection', (socket) => {
  socket.requests = [];
  // behind the server's own listener, which reports an incomplete request
  socket.on('end', () => {
    // it reports no errors within a request to upgrade
    const isUnjudged = socket.requests.some(({ complete, headers }) => !complete && headers.upgrade);
    socket.ending ??= isUnjudged ? REFUSAL : '';
    finish(socket);
  });
});

server.on('request', (request, response) => {
  const { socket } = request;
  socket.requests.push(request);
  const pieces = [];
  request.on('data', (piece) => pieces.push(piece));
  request.on('error', () => {}); // reported as clientError
  request.on('end', () => {
    const target = hex(Buffer.from(request.url, 'latin1'));
    const read = `${request.method} ${target}:${hex(Buffer.concat(pieces))}`;
    // behind a request to upgrade, llhttp reads nothing
    const connection = request.headers.upgrade ? { connection: 'close' } : {};
    response.writeHead(200, { 'x-read': read, 'content-length': 0, ...connection });
    response.end(() => {
      request.isAnswered = true;
      finish(socket);
    });
  });
});

server.on('checkExpectation', (request, response) => {
  response.writeHead(417, { 'content-length': 0, connection: 'close' });
  response.end();
});

// a tunnel, which no judge opens
server.on('connect', (request, socket) => {
  socket.ending ??= REFUSAL;
  finish(socket);
});

server.on('clientError', (error, socket) => {
  // where the stream ends within a request, nothing is refused
  const isRefused = error.code?.startsWith('HPE_') && error.code !== 'HPE_INVALID_EOF_STATE';
  socket.ending ??= isRefused ? REFUSAL : '';
  finish(socket);
});

server.listen(process.argv[2]);
