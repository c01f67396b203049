// Goal: what the directory refuses a host's role, it refuses in any wrapping of the statement, and the role can make
// nothing of its own in the database.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { admitHost, asOwner, connect, newFleet } from '../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { messageOf } from '../../src/base/fault.ts'
import type { Postgres } from '../../src/fleet/postgres.ts'
import { filledFleet, outcomeOf } from '../rigs/fleet/filled-fleet.ts'

/** Each is refused by itself, and no less so in the ways below. */
const REFUSED = [
  ["UPDATE instance_addresses SET address = '6.6.6.6' WHERE instance_id = 'a-ready'", /may not write into/],
  ["UPDATE instance_attestations SET document = 'x' WHERE instance_id = 'a-ready'", /may not write into/],
  ["DELETE FROM instance_attestations WHERE instance_id = 'a-ready'", /may not delete from/],
  ["INSERT INTO instance_changes VALUES ('a-ready', 'terminated', 6)", /may not write states/],
  ["UPDATE gateway_keys SET secret_sha256 = sha256('y') WHERE prefix = 'gw-a'", /may not change this of a key/],
  ["UPDATE gateway_keys SET instance_id = NULL WHERE prefix = 'gw-a'", /may not change this of a key/],
  ["UPDATE keys SET secret_sha256 = sha256('y')", /may not update keys so/],
  ["UPDATE instances SET host_id = 'b' WHERE id = 'a-ready'", /may not change this of an instance/],
  ["UPDATE builds SET evidence = 'x' WHERE id = 'a-ok'", /may not change a build of another host/],
  ["UPDATE usage_days SET requests = 0 WHERE host_id = 'a'", /may not write sums of another host/],
  ["UPDATE outboxes SET batch = 9 WHERE host_id = 'a'", /may not update the number/],
] as const
const ALLOWED = "UPDATE instance_addresses SET address = '6.6.6.6' WHERE instance_id = 'b-ready'"

const ownTrigger = (statement: string, security: string, constraint = '') => `
  CREATE TEMP TABLE own (x int) ON COMMIT DROP;
  CREATE FUNCTION pg_temp.deep() RETURNS trigger LANGUAGE plpgsql ${security} AS $f$
    BEGIN ${statement}; RETURN NULL; END $f$;
  CREATE ${constraint === '' ? '' : 'CONSTRAINT'} TRIGGER deep AFTER INSERT ON own ${constraint}
    FOR EACH ROW EXECUTE FUNCTION pg_temp.deep();
  INSERT INTO own VALUES (1);
  ${constraint === '' ? '' : 'SET CONSTRAINTS ALL IMMEDIATE;'}
  DROP TABLE own; DROP FUNCTION pg_temp.deep()`

const DEEP: Readonly<Record<string, (statement: string) => string>> = {
  "a trigger of the host's own": statement => ownTrigger(statement, ''),
  "a trigger with its maker's rights": statement => ownTrigger(statement, 'SECURITY DEFINER'),
  'a trigger that waits for the commit': statement => ownTrigger(statement, '', 'DEFERRABLE INITIALLY DEFERRED'),
  'a trigger two triggers down': statement => `
    CREATE TEMP TABLE outer_one (x int) ON COMMIT DROP;
    CREATE TEMP TABLE inner_one (x int) ON COMMIT DROP;
    CREATE FUNCTION pg_temp.f() RETURNS trigger LANGUAGE plpgsql AS $f$
      BEGIN INSERT INTO inner_one VALUES (1); RETURN NULL; END $f$;
    CREATE FUNCTION pg_temp.g() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN ${statement}; RETURN NULL; END $f$;
    CREATE TRIGGER f AFTER INSERT ON outer_one FOR EACH ROW EXECUTE FUNCTION pg_temp.f();
    CREATE TRIGGER g AFTER INSERT ON inner_one FOR EACH ROW EXECUTE FUNCTION pg_temp.g();
    INSERT INTO outer_one VALUES (1);
    DROP TABLE outer_one, inner_one; DROP FUNCTION pg_temp.f(); DROP FUNCTION pg_temp.g()`,
  'a foreign key between its own tables': statement => `
    CREATE TEMP TABLE parent (x int PRIMARY KEY) ON COMMIT DROP;
    CREATE TEMP TABLE child (x int REFERENCES parent ON DELETE CASCADE) ON COMMIT DROP;
    CREATE FUNCTION pg_temp.f() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN ${statement}; RETURN NULL; END $f$;
    CREATE TRIGGER f AFTER DELETE ON child FOR EACH ROW EXECUTE FUNCTION pg_temp.f();
    INSERT INTO parent VALUES (1); INSERT INTO child VALUES (1); DELETE FROM parent;
    DROP TABLE parent CASCADE; DROP TABLE child; DROP FUNCTION pg_temp.f()`,
  'a rule on a view': statement => `
    CREATE TEMP VIEW seen AS SELECT 1 AS x;
    CREATE RULE r AS ON INSERT TO seen DO INSTEAD ${statement};
    INSERT INTO seen VALUES (1);
    DROP VIEW seen`,
  'a block': statement => `DO $f$ BEGIN ${statement}; END $f$`,
  'a prepared statement': statement => `DEALLOCATE ALL; PREPARE deep AS ${statement}; EXECUTE deep`,
  'an index of its own': statement => `
    CREATE TEMP TABLE own (x int) ON COMMIT DROP;
    CREATE FUNCTION pg_temp.f(x int) RETURNS int LANGUAGE plpgsql AS $f$ BEGIN ${statement}; RETURN 1; END $f$;
    CREATE FUNCTION pg_temp.g(x int) RETURNS int LANGUAGE sql IMMUTABLE AS $f$ SELECT pg_temp.f(x) $f$;
    INSERT INTO own VALUES (1);
    CREATE INDEX ON own (pg_temp.g(x));
    DROP TABLE own; DROP FUNCTION pg_temp.g(int); DROP FUNCTION pg_temp.f(int)`,
}

/** A host's role tries each in a database whose rights are as `strongroom fleet join` leaves them. */
const GROUND = [
  ['CREATE TEMP TABLE own (x int)', /permission denied to create temporary tables/],
  ['CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$', /permission denied/],
  ['CREATE SCHEMA own', /permission denied for database/],
  ['CREATE TABLE public.own (x int)', /permission denied for schema public/],
  ['CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION strongroom.note_host()', /permission denied/],
  ["SET session_replication_role = 'replica'", /permission denied to set parameter/],
  ['SET ROLE host_a', /permission denied to set role/],
  ['SET SESSION AUTHORIZATION host_a', /permission denied to set session authorization/],
  ["COPY strongroom.clock FROM PROGRAM 'true'", /must be superuser/],
  ['LOCK TABLE strongroom.leases IN SHARE MODE', /permission denied for table leases/],
  ['SELECT FROM strongroom.leases FOR KEY SHARE', /permission denied for table leases/],
  ['SELECT FROM strongroom.clock FOR UPDATE', /permission denied for table clock/],
  [
    "MERGE INTO strongroom.leases l USING (SELECT 'a' AS id) x ON l.host_id = x.id WHEN MATCHED THEN UPDATE SET lost_at = now()",
    /permission denied for table leases/,
  ],
  ['ALTER TABLE strongroom.instances DISABLE TRIGGER ALL', /must be owner/],
] as const

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('a deep statement', () => {
  let server: PostgresServer
  let database: string
  let b: Postgres
  beforeAll(async () => {
    server = await startPostgres()
    database = await filledFleet(server)
    b = await connect(server, await admitHost(database, { id: 'b', name: 'b' }))
  }, 120_000)
  afterAll(async () => {
    await b.close()
    await server[Symbol.asyncDispose]()
  })

  // Goal: a refusal stands however deep the statement is: in a trigger or a function of the host's own, a rule, a
  // cursor, a block, a merge; also where an owner left PostgreSQL's own right to temporary tables in place.
  test.each([...Object.entries(DEEP)])('%s', async (_, wrap) => {
    await asOwner(database, owner =>
      owner.transactPlain(tx =>
        tx.query(`GRANT TEMPORARY ON DATABASE ${new URL(database).pathname.slice(1)} TO host_b`),
      ),
    )
    for (const [statement, is] of REFUSED) {
      const outcome = await outcomeOf(b, wrap(statement))
      expect([statement, outcome]).toEqual([statement, expect.stringMatching(is)])
    }
    expect(await outcomeOf(b, wrap(ALLOWED))).toMatch(/^(done|\[.*\])$/)
  })

  // Goal: it can make nothing of its own in the database, and end no check of its session.
  test('a host has no ground of its own', async () => {
    const fresh = await newFleet(server)
    const url = await admitHost(fresh, { id: 'b', name: 'b' })
    const host = await connect(server, url)
    for (const [statement, is] of GROUND) {
      expect([statement, await host.transactPlain(tx => tx.query(statement)).then(() => 'done', messageOf)]).toEqual([
        statement,
        expect.stringMatching(is),
      ])
    }
    await host.close()
  })
})
