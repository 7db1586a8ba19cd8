// Another process on a SQLite store, which uses the file as `store import` does.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

/** The log is moved to the tables by the commit after this many pages. */
const CHECKPOINT = 1_000;

/** Opens a file for each line of its input, as a process of its own would. */
const HELPER = `
import json, sqlite3, sys

def write(db, count):
    db.execute('PRAGMA wal_autocheckpoint = 0')
    db.execute('PRAGMA synchronous = OFF')
    version = db.execute('PRAGMA user_version').fetchone()[0]
    for number in range(count):
        db.execute(f'PRAGMA user_version = {version + number + 1}')

def rows(db, sql):
    db.row_factory = sqlite3.Row
    return [dict(row) for row in db.execute(sql)]

for line in sys.stdin:
    number, file, act, argument = json.loads(line)
    db = sqlite3.connect(file, isolation_level=None, timeout=30)
    try:
        answer = {'made': {'write': write, 'rows': rows}[act](db, argument)}
    except sqlite3.Error as error:
        answer = {'failed': str(error)}
    db.close()
    print(json.dumps({'number': number, **answer}), flush=True)
`;

/** The helper, and the orders that it has not answered. */
class Helper {
  constructor() {
    this.pending = new Map();
    this.child = spawn('python3', ['-c', HELPER], { stdio: ['pipe', 'pipe', 'inherit'] });
    createInterface({ input: this.child.stdout }).on('line', (line) => {
      const { number, made, failed } = JSON.parse(line);
      const { resolve, reject } = this.pending.get(number);
      this.pending.delete(number);
      if (failed) reject(new Error(failed));
      else resolve(made);
    });
    // it ends with its input
    this.child.unref();
    for (const stream of [this.child.stdin, this.child.stdout]) stream.unref();
  }

  order(store, act, argument) {
    orders += 1;
    const made = new Promise((resolve, reject) => this.pending.set(orders, { resolve, reject }));
    this.child.stdin.write(`${JSON.stringify([orders, file(store), act, argument])}\n`);
    return made;
  }
}

let orders = 0;
let helper;
const order = (...args) => (helper ??= new Helper()).order(...args);

const file = (store) => store.replace(/^sqlite:/, '');

/** The files of a SQLite store. */
export const files = (store) => ['', '-wal', '-shm', '-journal'].map((end) => file(store) + end);

/** Writes, so that the next request of the program finds nothing of the file in its memory. */
export const makeCold = (store) => order(store, 'write', 1);

/** Writes so much that the next commit of the program moves the log to the tables. */
export const fillLog = (store) => order(store, 'write', CHECKPOINT);

/** The rows of a query, on a file that no process has open. */
export const rowsOf = (store, sql) => order(store, 'rows', sql);
