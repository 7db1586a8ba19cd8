// The tables of a store, read and written without the program.
import { execFile } from 'node:child_process';
import { copyFileSync, existsSync, rmSync, writeFileSync } from 'node:fs';
import { promisify } from 'node:util';

const run = promisify(execFile);
/** Far more rows than a test's tables have. */
const ROOM = { maxBuffer: 1 << 28 };

const file = (store) => store.replace(/^sqlite:/, '');
const isFile = (store) => store.startsWith('sqlite:');

const PYTHON_ROWS = `
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.row_factory = sqlite3.Row
print(json.dumps([dict(row) for row in db.execute(sys.argv[2])]))
`;
const PYTHON_SCRIPT = `
import sqlite3, sys
sqlite3.connect(sys.argv[1], isolation_level=None).executescript(open(sys.argv[2]).read())
`;

/** The rows of a query. A SQLite file is read from a copy, so that the log that a crash left behind
 * remains for the program to recover: there must be no writer. */
export async function rows(store, sql) {
  if (isFile(store)) {
    const copy = `${file(store)}.copy`;
    for (const end of ['', '-wal']) {
      rmSync(copy + end, { force: true });
      if (existsSync(file(store) + end)) copyFileSync(file(store) + end, copy + end);
    }
    const { stdout } = await run('python3', ['-c', PYTHON_ROWS, copy, sql], ROOM);
    return JSON.parse(stdout);
  }
  const json = `SELECT coalesce(json_agg(found), '[]') FROM (${sql}) AS found`;
  const { stdout } = await run('psql', ['-qAtX', '-v', 'ON_ERROR_STOP=1', '-c', json, store], ROOM);
  return JSON.parse(stdout);
}

/** Runs statements. */
export async function execute(store, folder, sql) {
  const script = `${folder}/statements.sql`;
  writeFileSync(script, sql);
  const [command, ...args] = isFile(store)
    ? ['python3', '-c', PYTHON_SCRIPT, file(store), script]
    : ['psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-f', script, store];
  await run(command, args, ROOM);
}
