// The system calls that a request makes, and the errors that each of them can have.

/** Calls on the files of a SQLite store. */
const FILE = {
  pwrite64: ['ENOSPC', 'EIO', 'EDQUOT', 'EINTR', 'ENOMEM', 'EFBIG'],
  pread64: ['EIO', 'ENOMEM', 'EACCES', 'EINTR', 'EUCLEAN', 'EBADMSG', 'ETIMEDOUT'],
  fsync: ['EIO', 'ENOSPC', 'EDQUOT', 'EINTR'],
  fdatasync: ['EIO', 'ENOSPC', 'EDQUOT', 'EINTR'],
  ftruncate: ['EIO', 'ENOSPC', 'EINTR'],
  fallocate: ['ENOSPC', 'EIO', 'EINTR'],
  openat: ['EMFILE', 'ENFILE', 'EACCES', 'ENOMEM', 'EROFS', 'EINTR'],
  fcntl: ['ENOLCK', 'EIO', 'EINTR', 'EACCES'],
  newfstatat: ['EIO', 'ENOMEM', 'EACCES'],
  fstat: ['EIO', 'ENOMEM'],
  mmap: ['ENOMEM', 'EACCES'],
  unlink: ['EIO', 'EACCES', 'EROFS'],
};

/** Calls on sockets: of the client, of PostgreSQL, of the node. */
const SOCKET = {
  accept4: ['EMFILE', 'ENFILE', 'ENOMEM', 'ENOBUFS', 'ECONNABORTED', 'EINTR'],
  recvfrom: ['ECONNRESET', 'ENOMEM', 'EINTR', 'ETIMEDOUT'],
  readv: ['ECONNRESET', 'ENOMEM', 'EINTR'],
  sendto: ['ECONNRESET', 'EPIPE', 'ENOBUFS', 'ENOMEM', 'EINTR', 'ETIMEDOUT'],
  writev: ['ECONNRESET', 'EPIPE', 'ENOBUFS', 'EINTR'],
  socket: ['EMFILE', 'ENFILE', 'ENOMEM', 'ENOBUFS', 'EACCES'],
  connect: ['ECONNREFUSED', 'ETIMEDOUT', 'ENETUNREACH', 'EADDRNOTAVAIL', 'EINTR'],
  setsockopt: ['ENOBUFS', 'ENOMEM'],
  getsockopt: ['ENOBUFS', 'ENOMEM'],
  epoll_ctl: ['ENOMEM', 'ENOSPC'],
};

/** Calls on the log. */
const LOG = { write: ['ENOSPC', 'EIO', 'EPIPE', 'EAGAIN', 'EINTR'] };

export const CALLS = { file: FILE, socket: SOCKET, log: LOG };

/** What can happen to a call, as arguments of strace: an error, a kill, or a stall of 7 s. */
export const STALL_MS = 7_000;
export const acts = (site, call) => [
  ...CALLS[site][call].map((error) => ({ fault: 'error', name: error, inject: `error=${error}` })),
  { fault: 'kill', name: 'kill', inject: 'signal=SIGKILL' },
  { fault: 'stall', name: 'stall', inject: `delay_enter=${STALL_MS}ms` },
];
