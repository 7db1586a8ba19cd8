// What a process did to files, out of a trace of strace, and the states in which a power cut may
// have left them: whatever was not synced yet is there, is not, or is torn at a sector.
import { basename } from 'node:path';

/** Calls that change files, or make them durable. */
export const CALLS = ['pwrite64', 'write', 'ftruncate', 'fsync', 'fdatasync', 'unlink'];
/** Whole buffers as hexadecimal, the files of descriptors, and when. */
export const HOW = { more: ['-y', '-xx', '-ttt', '-s', '70000'] };
/** A disk writes one sector or does not. */
const SECTOR = 512;

/** The text in hexadecimal escapes between quotes. */
const bytesOf = (text) => Buffer.from(text.replaceAll('\\x', ''), 'hex');
const named = (text) => basename(bytesOf(text).toString());

function parsed(at, call, text) {
  const [, file] = /^\d+<([^>]*)>/.exec(text) ?? [];
  const [, name] = /^"([^"]*)"/.exec(text) ?? [];
  switch (call) {
    case 'pwrite64': {
      const [, data, , offset] = /"([^"]*)", (\d+), (\d+)/.exec(text);
      return { at, file: named(file), write: bytesOf(data), offset: Number(offset) };
    }
    case 'ftruncate':
      return { at, file: named(file), size: Number(/, (\d+)/.exec(text)[1]) };
    case 'fsync':
    case 'fdatasync':
      return { at, file: named(file), isSync: true };
    case 'unlink':
      return { at, file: named(name), size: 0 };
    default:
      throw new Error(`${call}: an unknown way to change a file`);
  }
}

/** The events of a trace in order: a sync is one when it has returned. */
export function eventsOf(lines) {
  const begun = new Map();
  const events = [];
  for (const line of lines) {
    const [, thread, at, rest] = /^(\d+) +(\d+\.\d+) (.*)$/.exec(line) ?? [];
    if (!thread) continue;
    const [, call, text] = /^(\w+)\((.*)/.exec(rest) ?? [];
    const isUnfinished = rest.endsWith('<unfinished ...>');
    if (call && isUnfinished) begun.set(thread, { call, text });
    const whole = /^<\.\.\. \w+ resumed>/.test(rest) ? begun.get(thread) : call && { call, text };
    if (!whole || isUnfinished || / = -1 /.test(rest)) continue;
    events.push(parsed(Number(at) * 1_000, whole.call, whole.text));
  }
  return events;
}

/** The bytes of files, which grow as a disk does. */
class Files {
  constructor(base) {
    this.files = new Map(base.map(([name, bytes]) => [name, Buffer.from(bytes)]));
  }

  apply({ file, write, offset, size }) {
    const bytes = this.files.get(file) ?? Buffer.alloc(0);
    const end = size ?? Math.max(bytes.length, offset + write.length);
    const more = Buffer.alloc(Math.max(0, end - bytes.length));
    const made = more.length ? Buffer.concat([bytes, more]) : bytes;
    write?.copy(made, offset);
    this.files.set(file, made.subarray(0, end));
  }
}

/** A write of which only the first sector, or all but the first one, is on the disk. */
function torn({ write, offset, ...event }, isHead) {
  const sector = Math.min(SECTOR - (offset % SECTOR), write.length);
  return isHead
    ? { ...event, offset, write: write.subarray(0, sector) }
    : { ...event, offset: offset + sector, write: write.subarray(sector) };
}

/** Which of the changes that were not synced may be on the disk. */
const SURVIVORS = {
  'nothing that was not synced': () => [],
  everything: (pending) => pending,
  'the last change alone': (pending) => pending.slice(-1),
  'the last write to its first sector': (pending) => [
    ...pending.slice(0, -1),
    torn(pending.at(-1), true),
  ],
  'the last write without its first sector': (pending) => [
    ...pending.slice(0, -1),
    torn(pending.at(-1), false),
  ],
};

/** What may survive a power cut after a change. */
function variants(events, at) {
  const [last, next] = [events[at - 1], events[at]];
  if (!last || last.isSync) return ['nothing that was not synced'];
  const whole = ['everything', 'the last change alone'];
  const parts = ['the last write to its first sector', 'the last write without its first sector'];
  const none = !next || next.isSync ? ['nothing that was not synced'] : [];
  return [...none, ...whole, ...(last.write ? parts : [])];
}

/** Each state in which files may be after a power cut: before which instant it was cut, and a
 * function of the bytes of each file. */
export function states(base, events) {
  return Array.from({ length: events.length + 1 }, (_, at) => at).flatMap((at) =>
    variants(events, at).map((survivors) => ({
      what: `${survivors} after ${at} changes`,
      until: events[at]?.at ?? Infinity,
      files: () => materialised(base, events.slice(0, at), SURVIVORS[survivors]),
    })),
  );
}

function materialised(base, events, survivors) {
  const disk = new Files(base);
  let pending = [];
  for (const event of events) {
    if (!event.isSync) {
      pending.push(event);
      continue;
    }
    pending.filter(({ file }) => file === event.file).forEach((change) => disk.apply(change));
    pending = pending.filter(({ file }) => file !== event.file);
  }
  survivors(pending).forEach((change) => disk.apply(change));
  return disk.files;
}
