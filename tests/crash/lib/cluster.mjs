// A PostgreSQL of the test's own, which can crash and restart.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { startPostgres } from './processes.mjs';

const run = promisify(execFile);
const FUNCTIONS = fileURLToPath(new URL('../../lib/postgres.sh', import.meta.url));
const PG_CTL = `
source "$1"
POSTGRES_FOLDER=$2
shift 2
cd "$POSTGRES_FOLDER"
as_postgres "$(find_postgres)/pg_ctl" -D data -l server.log -w -s "$@"
`;

/** Starts it. */
export async function postgres() {
  const server = await startPostgres();
  const [, folder] = /@([^/]+)\//.exec(server.made).map(decodeURIComponent);
  const control = (...args) => run('bash', ['-ec', PG_CTL, 'bash', FUNCTIONS, folder, ...args]);
  const options = `-k ${folder} -c listen_addresses= -c fsync=off -c max_connections=300`;
  return {
    /** Kills all of its processes at once: nothing is written any more. */
    crash: () => control('-m', 'immediate', 'stop'),
    start: () => control('-o', options, 'start'),
    /** The URL of a new database. */
    async database(name) {
      await run('psql', ['-qX', '-c', `CREATE DATABASE ${name}`, server.made]);
      return server.made.replace(/postgres$/, name);
    },
  };
}
