// Goal: a host's database role, with exactly the rights that `strongroom fleet join` gives, acts for that host alone.
// Every table and every function of the schema has its expected outcome here: one without fails the first test.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { admitHost, asOwner, connect } from '../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { messageOf } from '../../src/base/fault.ts'
import type { Postgres, Row } from '../../src/fleet/postgres.ts'
import {
  build,
  day,
  denied,
  filledFleet,
  gatewayKey,
  instance,
  key,
  month,
  outcomeOf,
} from '../rigs/fleet/filled-fleet.ts'

/** The host `b` tries it; `is`: how it ends. A change that is allowed is taken back by the test. */
type Attempt = readonly [sql: string, is: string | RegExp]

const NO_ROWS_OF_OTHERS = /^this host may not /

const TABLES: Readonly<Record<string, readonly Attempt[]>> = {
  // The fleet's own tables: functions alone write them.
  fleet: [['UPDATE fleet SET version = version + 1', denied]],
  migrations: [["INSERT INTO migrations VALUES (99, 99, 'x')", denied]],
  changes: [
    ["INSERT INTO changes (version, table_name, row_key) VALUES (1, 'keys', '{}')", denied],
    ["UPDATE changes SET row = '{}'", denied],
    ['DELETE FROM changes', denied],
  ],
  trimmed: [['UPDATE trimmed SET version = 9', denied]],
  clock: [['UPDATE clock SET served_ms = served_ms + 999999', denied]],
  hosts: [
    ["INSERT INTO hosts (id, name, database_role, joined_ms) VALUES ('x', 'x', 'host_b', 0)", denied],
    ["UPDATE hosts SET database_role = 'host_b' WHERE id = 'a'", denied],
    ["UPDATE hosts SET draining_ms = 5 WHERE id = 'a'", denied],
    ["DELETE FROM hosts WHERE id = 'a'", denied],
  ],
  leases: [
    [
      "INSERT INTO leases SELECT 'b', epoch, renewed_at, served_ms, lost_at, platform, places, report FROM leases",
      denied,
    ],
    ["UPDATE leases SET lost_at = now() WHERE host_id = 'a'", denied],
    ['DELETE FROM leases', denied],
  ],
  peers: [
    ["INSERT INTO peers VALUES ('b', 'x:1', 'x', 'x')", denied],
    ["UPDATE peers SET address = 'x:1'", denied],
    ['DELETE FROM peers', denied],
  ],
  allowances: [['UPDATE allowances SET nano_usd = 0', denied]],
  allowance_entries: [['DELETE FROM allowance_entries', denied]],
  share_members: [['DELETE FROM share_members', denied]],
  shares: [["UPDATE shares SET held = '{0,0,0}'", denied]],
  instance_egress: [['UPDATE instance_egress SET bytes = 0', denied]],
  key_uses: [['DELETE FROM key_uses', denied]],
  gateway_key_uses: [["INSERT INTO gateway_key_uses VALUES ('gw-b', 'b', 5)", denied]],
  host_actions: [
    [
      "INSERT INTO host_actions (at_ms, database_role, action, subject, detail) VALUES (1, 'a', 'x', 'x', '{}')",
      denied,
    ],
    ["UPDATE host_actions SET host_id = 'a'", denied],
    ['DELETE FROM host_actions', denied],
  ],
  // Tables of all hosts: an allowed change is on record with the host that made it.
  organizations: [
    [
      "INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ('p', 'globex', 'active', 1)",
      'organization.added globex by b',
    ],
    [
      "UPDATE organizations SET short_budgets = '{}' WHERE id = 'o'",
      'organization.changed acme by b {"short_budgets": "{}"}',
    ],
    [
      "UPDATE organizations SET budget_tokens = 5 WHERE id = 'o'",
      'organization.changed acme by b {"budget_tokens": 5}',
    ],
    [
      `UPDATE organizations SET quotas = '{"instances":9}' WHERE id = 'o'`,
      'organization.changed acme by b {"quotas": "{\\"instances\\":9}"}',
    ],
    ["UPDATE organizations SET slug = 'other' WHERE id = 'o'", /may not update organizations so/],
    ['DELETE FROM organizations', denied],
  ],
  keys: [
    [key('evil0000'), 'key.added evil0000 by b {"name": null, "scope": "write", "client_made": 0}'],
    ["UPDATE keys SET revoked_at_ms = 9 WHERE prefix = 'mine0000'", 'key.revoked mine0000 by b'],
    ["UPDATE keys SET secret_sha256 = sha256('y') WHERE prefix = 'mine0000'", /may not update keys so/],
    ["UPDATE keys SET client_made = 1 WHERE prefix = 'mine0000'", /may not update keys so/],
    ["UPDATE keys SET name = 'ci' WHERE prefix = 'mine0000'", /may not update keys so/],
    ["UPDATE keys SET prefix = 'evil0000' WHERE prefix = 'mine0000'", /may not update keys so/],
    ['DELETE FROM keys', denied],
  ],
  gateway_keys: [
    [gatewayKey('evil', 'NULL'), 'gateway_key.added evil by b {"name": null, "client_made": 0}'],
    [gatewayKey('evil', "'a-ready'"), /may not add a key for an instance of another host: evil/],
    [gatewayKey('own', "'b-ready'"), 'done'],
    ["UPDATE gateway_keys SET revoked_at_ms = 9 WHERE prefix = 'gw-a'", 'gateway_key.revoked gw-a by b'],
    ["UPDATE gateway_keys SET revoked_at_ms = 9 WHERE prefix = 'gw-b'", 'done'],
    [
      "UPDATE gateway_keys SET short_budgets = '{}' WHERE prefix = 'gw-b'",
      'gateway_key.changed gw-b by b {"short_budgets": "{}"}',
    ],
    [
      "UPDATE gateway_keys SET budget_tokens = 5 WHERE prefix = 'gw-b'",
      'gateway_key.changed gw-b by b {"budget_tokens": 5}',
    ],
    ["UPDATE gateway_keys SET secret_sha256 = sha256('y') WHERE prefix = 'gw000000'", /may not change this of a key/],
    ["UPDATE gateway_keys SET name = 'ci' WHERE prefix = 'gw000000'", /may not change this of a key/],
    // It would become a key of the organization without a line on record.
    ["UPDATE gateway_keys SET instance_id = NULL WHERE prefix = 'gw-b'", /may not change this of a key/],
    ['DELETE FROM gateway_keys', /may not delete a key that is kept/],
  ],
  idempotency: [
    // A host that answers a repeated create of any organization could make up what it says.
    ["INSERT INTO idempotency VALUES ('o', 'k', sha256('x'), 202, '{}', 5)", /may not keep a response of which no/],
    [`INSERT INTO idempotency VALUES ('o', 'k', sha256('x'), 202, '{"name":"a-ready"}', 5)`, /may not keep a response/],
    [`INSERT INTO idempotency VALUES ('q', 'k', sha256('x'), 202, '{"name":"b-ready"}', 5)`, /may not keep a response/],
    [`INSERT INTO idempotency VALUES ('o', 'k', sha256('x'), 202, '{"name":"b-ready"}', 5)`, 'done'],
    [
      `WITH made AS (${instance('x', 'a')} RETURNING name)
       INSERT INTO idempotency SELECT 'o', 'k', sha256('x'), 202, jsonb_build_object('name', name), 5 FROM made`,
      'instance.added x by b {"host": "a"}',
    ],
    ["UPDATE idempotency SET response_data = '[]' WHERE key = 'new'", /may not forget a response/],
    ["UPDATE idempotency SET response_data = '[]' WHERE key = 'old'", /may not keep a response of which no/],
    [`UPDATE idempotency SET response_data = '{"name":"b-ready"}' WHERE key = 'old'`, 'done'],
    ["DELETE FROM idempotency WHERE key = 'new'", /may not forget a response/],
    ["DELETE FROM idempotency WHERE key = 'old'", 'done'],
  ],
  // Tables whose rows belong to one host each.
  instances: [
    [instance('x', 'a'), 'instance.added x by b {"host": "a"}'],
    [instance('x', 'a', "'present', 'ready'"), /may not add such an instance to another host: x/],
    [instance('x', 'lost'), /may not add such an instance to another host: x/],
    [instance('x', 'nowhere'), /may not add such an instance to another host: x/],
    [instance('x', 'b', "'present', 'ready'"), 'done'],
    [
      `INSERT INTO instances (id, host_id, organization_id, name, hostname, desired, status, agent, public_key, inference_mode,
         inference_model, created_at_ms, changed_at_ms, egress_policy)
       VALUES ('x', 'a', 'o', 'x', 'x', 'present', 'provisioning', 'a', 'k', 'm', 'm', 5, 5, '{}')`,
      /has an egress policy, and its host knows schema/,
    ],
    [
      "UPDATE instances SET egress_policy = '{}' WHERE id = 'b-new'",
      /the egress policy of instance b-new does not change/,
    ],
    ["UPDATE instances SET host_id = 'b', attempt = 2 WHERE id = 'a-new'", /may not take an instance from its host/],
    ["UPDATE instances SET host_id = 'b' WHERE id = 'a-new'", /may not change this of an instance/],
    [
      "UPDATE instances SET host_id = 'b', attempt = 2 WHERE id = 'lost-new'",
      'instance.moved lost-new by b {"host": "b", "before": "lost"}',
    ],
    ["UPDATE instances SET host_id = 'b', attempt = 2 WHERE id = 'lost-ready'", /may not give this instance/],
    [
      "UPDATE instances SET host_id = 'a', attempt = 2 WHERE id = 'b-new'",
      'instance.moved b-new by b {"host": "a", "before": "b"}',
    ],
    ["UPDATE instances SET host_id = 'a', attempt = 3 WHERE id = 'b-new'", /may not change this of an instance/],
    ["UPDATE instances SET status = 'failed', failure_code = 'host_lost' WHERE id = 'a-ready'", NO_ROWS_OF_OTHERS],
    ["UPDATE instances SET status = 'failed', failure_code = 'host_lost' WHERE id = 'lost-ready'", 'done'],
    ["UPDATE instances SET status = 'failed', failure_code = 'boot_failed' WHERE id = 'lost-ready'", NO_ROWS_OF_OTHERS],
    ["UPDATE instances SET status = 'terminated', desired = 'absent' WHERE id = 'a-ready'", NO_ROWS_OF_OTHERS],
    [
      "UPDATE instances SET status = 'terminating', desired = 'absent' WHERE id = 'a-ready'",
      'instance.deleted a-ready by b {"host": "a"}',
    ],
    ["UPDATE instances SET egress_bytes = 5 WHERE id = 'a-ready'", NO_ROWS_OF_OTHERS],
    ["UPDATE instances SET egress_bytes = 5 WHERE id = 'b-ready'", 'done'],
    ["UPDATE instances SET ready_at_ms = 5 WHERE id = 'a-ready'", NO_ROWS_OF_OTHERS],
    ["UPDATE instances SET public_key = 'mine' WHERE id = 'a-ready'", /may not change this of an instance/],
    ["UPDATE instances SET public_key = 'mine' WHERE id = 'b-ready'", /may not change this of an instance/],
    ["UPDATE instances SET status = 'provisioning' WHERE id = 'b-ready'", /may not change this of an instance/],
    ["DELETE FROM instances WHERE id = 'a-ready'", /may not delete an instance that is kept: a-ready/],
    ["DELETE FROM instances WHERE id = 'a-kept'", /may not delete an instance that is kept: a-kept/],
    ["DELETE FROM instances WHERE id = 'b-ready'", /may not delete an instance that is kept: b-ready/],
    ["DELETE FROM instances WHERE id = 'a-old'", 'done'],
  ],
  instance_changes: [
    ["INSERT INTO instance_changes VALUES ('a-ready', 'ready', 5)", /may not write states/],
    ["INSERT INTO instance_changes VALUES ('a-ready', 'terminated', 5)", /may not write states/],
    ["INSERT INTO instance_changes VALUES ('b-ready', 'ready', 5)", 'done'],
    ["UPDATE instance_changes SET at_ms = 1 WHERE instance_id = 'b-ready'", denied],
    ["DELETE FROM instance_changes WHERE instance_id = 'a-ready'", /may not delete states/],
    ["DELETE FROM instance_changes WHERE instance_id = 'a-old'", 'done'],
  ],
  instance_attestations: [
    [
      "INSERT INTO instance_attestations VALUES ('a-new', 'n', 's', 5, '{}')",
      /may not write into instance_attestations/,
    ],
    ["UPDATE instance_attestations SET document = '[]' WHERE instance_id = 'a-ready'", /may not write into/],
    ["UPDATE instance_attestations SET document = '[]' WHERE instance_id = 'b-ready'", 'done'],
    ["DELETE FROM instance_attestations WHERE instance_id = 'a-ready'", /may not delete from instance_attestations/],
    ["DELETE FROM instance_attestations WHERE instance_id = 'a-old'", 'done'],
  ],
  instance_addresses: [
    ["INSERT INTO instance_addresses VALUES ('a-new', '10.9.9.9')", /may not write into instance_addresses/],
    ["UPDATE instance_addresses SET address = '10.9.9.9' WHERE instance_id = 'a-ready'", /may not write into/],
    ["UPDATE instance_addresses SET address = '10.9.9.9' WHERE instance_id = 'b-ready'", 'done'],
    ["DELETE FROM instance_addresses WHERE instance_id = 'a-ready'", /may not delete from instance_addresses/],
  ],
  usage_months: [
    [month('nowhere'), /may not write sums of another host/],
    ["UPDATE usage_months SET requests = 0 WHERE host_id = 'a'", /may not write sums of another host/],
    ["UPDATE usage_months SET requests = 10 WHERE host_id = 'b'", 'done'],
    // The number is the transaction's, whatever a host writes: otherwise others would not read the sum.
    [
      `WITH made AS (UPDATE usage_months SET requests = 11, reported = '5' WHERE host_id = 'b' RETURNING reported)
       SELECT bool_and(reported = pg_current_xact_id()) AS is FROM made`,
      '[{"is":true}]',
    ],
    ["DELETE FROM usage_months WHERE host_id = 'a'", /may not delete sums that are kept/],
    ["DELETE FROM usage_months WHERE host_id = 'a' AND month = '2020-01'", /may not delete sums that are kept/],
    ["DELETE FROM usage_months WHERE host_id = 'b' AND month = '2020-01'", 'done'],
    ["DELETE FROM usage_months WHERE host_id = 'gone' AND month = '2020-01'", 'done'],
    ["DELETE FROM usage_months WHERE host_id = 'gone' AND month > '2020-01'", /may not delete sums that are kept/],
  ],
  usage_days: [
    [day('nowhere'), /may not write sums of another host/],
    ["UPDATE usage_days SET requests = 0 WHERE host_id = 'a'", /may not write sums of another host/],
    ["UPDATE usage_days SET host_id = 'a2' WHERE host_id = 'b'", /may not write sums of another host/],
    ["DELETE FROM usage_days WHERE host_id = 'a'", /may not delete sums that are kept/],
    ["DELETE FROM usage_days WHERE host_id = 'a' AND day = '2020-01-01'", /may not delete sums that are kept/],
    ["DELETE FROM usage_days WHERE host_id = 'b' AND day = '2020-01-01'", 'done'],
  ],
  builds: [
    [build('x', 'a', 'queued'), /may not add a build to another host: x/],
    [build('x', 'b', 'queued'), 'done'],
    [
      "UPDATE builds SET state = 'ok', result_sha256 = 'x' WHERE id = 'a-running'",
      /may not change a build of another host/,
    ],
    ["UPDATE builds SET host_id = 'b', claims = 1 WHERE id = 'a-running'", /may not change a build of another host/],
    ["UPDATE builds SET evidence = 'x' WHERE id = 'a-ok'", /may not change a build of another host/],
    ["UPDATE builds SET state = 'failed', error_type = 'internal' WHERE id = 'a-running'", NO_ROWS_OF_OTHERS],
    ["UPDATE builds SET state = 'failed', error_type = 'internal' WHERE id = 'lost-running'", 'done'],
    [
      "UPDATE builds SET state = 'cancelled', error_type = 'cancelled' WHERE id = 'a-running'",
      'build.cancelled a-running by b {"host": "a"}',
    ],
    ["UPDATE builds SET host_id = 'b', claims = 1, state = 'starting' WHERE id = 'a-queued'", 'done'],
    ["UPDATE builds SET host_id = 'b', claims = 1, state = 'starting' WHERE id = 'lost-queued'", NO_ROWS_OF_OTHERS],
    ["UPDATE builds SET source_sha256 = 'x' WHERE id = 'b-queued'", /may not change this of a build/],
    ["UPDATE builds SET nix = '{}' WHERE id = 'b-queued'", /may not change this of a build/],
    ["UPDATE builds SET waivers = '[]' WHERE id = 'b-queued'", /may not change this of a build/],
    ["UPDATE builds SET state = 'running' WHERE id = 'b-ok'", /may not change this of a build/],
    ["DELETE FROM builds WHERE id = 'a-ok'", /may not delete a build of another host/],
  ],
  build_nonces: [
    ["INSERT INTO build_nonces VALUES ('o', 'x', 'a-running')", /may not insert nonces of another host's builds/],
    ["INSERT INTO build_nonces VALUES ('o', 'x', 'b-running')", 'done'],
    ["UPDATE build_nonces SET build_id = 'b-running'", denied],
    ["DELETE FROM build_nonces WHERE build_id = 'a-running'", /may not delete nonces of another host's builds/],
  ],
  build_reservations: [
    ["INSERT INTO build_reservations VALUES ('x', 'a', 'o', 5)", /may not insert reservations of another host/],
    ["UPDATE build_reservations SET host_id = 'b'", denied],
    ["DELETE FROM build_reservations WHERE host_id = 'a'", /may not delete reservations of another host/],
    ["DELETE FROM build_reservations WHERE host_id = 'b'", 'done'],
  ],
  outboxes: [
    ["INSERT INTO outboxes VALUES ('c', 9)", /may not insert the number of another host's reports/],
    ["UPDATE outboxes SET batch = 999 WHERE host_id = 'a'", /may not update the number of another host's reports/],
    ["UPDATE outboxes SET batch = 8 WHERE host_id = 'b'", 'done'],
    ['DELETE FROM outboxes', denied],
  ],
}

/** Results that `b` gets by each function that its role may call; all others are denied. */
const FUNCTIONS: Readonly<Record<string, readonly Attempt[]>> = {
  begin_change: [['SELECT version > 0 AS is FROM begin_change(false)', '[{"is":true}]']],
  timeline: [['SELECT timeline() > 0 AS is', '[{"is":true}]']],
  is_judged: [['SELECT is_judged() AS is', '[{"is":true}]']],
  renew_lease: [
    ["SELECT is_member AS is FROM renew_lease('a', 60000, 'tcg', 1, '{}')", '[{"is":false}]'],
    ["SELECT is_member AS is FROM renew_lease('b', 60000, 'tcg', 1, '{}')", '[{"is":true}]'],
    ["SELECT is_member AS is FROM renew_lease('a', 60000, 'tcg', 1, '{}', 'p')", '[{"is":false}]'],
    ["SELECT is_member AS is FROM renew_lease('b', 60000, 'tcg', 1, '{}', 'p')", '[{"is":true}]'],
  ],
  end_stuck_changes: [['SELECT end_stuck_changes() AS is', '[{"is":0}]']],
  report_samples: [
    [`SELECT report_samples('a', '[]', '[]', '[]')`, /may not report samples of another host: a/],
    // It writes nothing for instances of others.
    [
      `SELECT report_samples('b', '[{"id": "a-ready", "bytes": 9, "at_ms": 9}]', '[]', '[]')::text AS is`,
      '[{"is":""}]',
    ],
  ],
  // However short the silence that it gives: ten seconds at least.
  mark_lost: [["SELECT mark_lost('a', 0) AS is", '[{"is":false}]']],
  set_draining: [["SELECT set_draining('a', 5) AS is", 'host.drained a by b']],
  publish_peer: [
    ["SELECT publish_peer('a', 'evil:1', 'x') AS is", '[{"is":false}]'],
    ["SELECT publish_peer('b', 'own:1', 'x') AS is", /not one certificate/],
  ],
  lease_allowance: [
    ["SELECT nano_usd AS is FROM lease_allowance('a', 'o', '', '2026-11', 0, 0, 1, 1, 1, 1)", '[{"is":null}]'],
    ["SELECT nano_usd > 0 AS is FROM lease_allowance('b', 'o', '', '2026-11', 0, 0, 1, 1, 1, 1)", '[{"is":true}]'],
  ],
  return_allowance: [["SELECT return_allowance('a', 'o', '', '2026-11', 0, 0)::text AS is", '[{"is":""}]']],
  enter_allowances: [["SELECT enter_allowances('a', '[]', true) AS is", '[{"is":null}]']],
  renew_shares: [["SELECT * FROM renew_shares('a', 'm', 1, 1, '[]')", /no member of the fleet/]],
  end_shares: [["SELECT end_shares('a', NULL, 'm')::text AS is", '[{"is":""}]']],
}

const DENIED = [
  ...['allowances_are_known', 'begin_attempt', 'block_of', 'changed_columns', 'der_content', 'der_end'],
  ...['end_left_key', 'grown_share', 'is_silent', 'sample_time', 'used_by_hosts'],
  ...[
    'guard_build_claim',
    'guard_build_nix',
    'guard_build_nonces',
    'guard_build_reservations',
    'guard_builds',
    'guard_egress_policy',
    'guard_gateway_keys',
    'guard_idempotency',
  ],
  ...['guard_instance_changes', 'guard_instances', 'guard_keys', 'guard_of_instance', 'guard_organizations'],
  ...['guard_outboxes', 'guard_usage', 'has_instance', 'is_away', 'is_kept_instance', 'is_own', 'is_owner'],
  ...['join_host', 'key_of', 'month_beside', 'note_action', 'note_host', 'now_ms', 'number_sum', 'open_allowances'],
  ...['options_of_nix', 'rebind_host', 'record_change', 'refuse', 'refuse_shared_role', 'schema_of_build'],
  ...['served_now', 'share_rest_ms', 'status_rank'],
  ...['taken_by_others', 'takes_instances', 'tick', 'trim_changes'],
]

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('another host', () => {
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

  const namesOf = async (sql: string) => (await b.query<Row>(sql)).map(row => String(row.name))

  // Goal: nothing is added to the schema without an expectation here.
  test('every table and every function has its expectation', async () => {
    expect(await namesOf("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'strongroom' ORDER BY 1")).toEqual(
      Object.keys(TABLES).sort(),
    )
    const functions = `SELECT DISTINCT p.proname::text COLLATE "C" AS name FROM pg_proc p
      WHERE p.pronamespace = 'strongroom'::regnamespace ORDER BY 1`
    expect(await namesOf(functions)).toEqual([...Object.keys(FUNCTIONS), ...DENIED].sort())
    const views = "SELECT viewname AS name FROM pg_views WHERE schemaname = 'strongroom'"
    expect(await namesOf(views)).toEqual(['host_states'])
  })

  // Goal: each statement and each function ends as it is written down above.
  test.each([...Object.values(TABLES), ...Object.values(FUNCTIONS)].flat())('%s', async (statement, is) => {
    const outcome = await outcomeOf(b, statement)
    if (typeof is === 'string') expect(outcome).toBe(is)
    else expect(outcome).toMatch(is)
  })

  // Goal: a host's role has no other way into the schema.
  test('all other functions are denied, and so is the view', async () => {
    const calls = await b.query<{ name: string; call: string }>(
      `SELECT p.proname::text AS name, p.proname || '(' || array_to_string(ARRAY(
         SELECT 'NULL::' || t::regtype FROM unnest(p.proargtypes) AS t), ', ') || ')' AS call
       FROM pg_proc p WHERE p.pronamespace = 'strongroom'::regnamespace AND p.proname = ANY($1)`,
      [DENIED],
    )
    expect(calls.map(({ name }) => name).sort()).toEqual([...DENIED].sort())
    for (const { call } of calls) expect([call, await outcomeOf(b, `SELECT ${call}`)]).toEqual([call, denied])
    expect(await outcomeOf(b, "UPDATE host_states SET draining_ms = 1 WHERE id = 'a'")).toMatch(
      /denied|cannot update view/,
    )
    for (const statement of [
      'CREATE TABLE strongroom.mine (id text)',
      'TRUNCATE keys',
      'ALTER TABLE keys DISABLE TRIGGER ALL',
    ]) {
      expect([statement, await outcomeOf(b, statement)]).toEqual([statement, denied])
    }
  })

  // Goal: other hosts see its actions for all, with its name, whatever its session says.
  test('what a host did is read on every host', async () => {
    const evil = await connect(server, await admitHost(database, { id: 'b', name: 'b' }))
    await evil.transact(async tx => {
      await tx.query("SET LOCAL strongroom.host = 'a'")
      await tx.query(key('seen0000'))
    })
    const a = await connect(server, await admitHost(database, { id: 'a', name: 'a' }))
    const line = "SELECT action, subject, host_name, organization_id FROM host_actions WHERE subject = 'seen0000'"
    expect(await a.query(line)).toEqual([
      { action: 'key.added', subject: 'seen0000', host_name: 'b', organization_id: 'o' },
    ])
    await evil.close()
    await a.close()
  })

  // Goal: a change has the version of the counter that the transaction holds, so that no host misses it.
  test('no change without the counter', async () => {
    const forged = (setting: string) =>
      b
        .transactPlain(async tx => {
          await tx.query(`SELECT set_config('strongroom.version', '${setting}', true)`)
          await tx.query(key('forged00'))
        })
        .then(() => 'written', messageOf)
    for (const setting of ['1', '999999', '']) expect(await forged(setting)).toMatch(/change only after SELECT/)
    const [before] = await b.query<{ version: number }>('SELECT version FROM fleet')
    await b.transact(async tx => {
      await tx.query("SELECT set_config('strongroom.version', '1', true)")
      await tx.query("UPDATE instances SET egress_bytes = 77 WHERE id = 'b-ready'")
    })
    const [made] = await b.query<{ version: number }>('SELECT max(version) AS version FROM changes')
    expect(made?.version).toBe((before?.version ?? 0) + 1)
  })

  // Goal: keys of an instance whose record goes are revoked with it: they become nobody's without a line.
  test('a key is not left over from an instance', async () => {
    await b.transact(async tx => {
      await tx.query(instance('b-gone', 'b', "'absent', 'terminated'"))
      await tx.query(gatewayKey('leftover', "'b-gone'"))
      await tx.query("UPDATE instances SET terminated_at_ms = 5 WHERE id = 'b-gone'")
    })
    await b.transact(tx => tx.query("DELETE FROM instances WHERE id = 'b-gone'"))
    const left = "SELECT instance_id, revoked_at_ms IS NULL AS is_good FROM gateway_keys WHERE prefix = 'leftover'"
    expect(await b.query(left)).toEqual([{ instance_id: null, is_good: false }])
  })

  // Goal: a role that was taken away from its host, or whose host was removed, changes nothing more.
  test('a role without a host', async () => {
    const c = await connect(server, await admitHost(database, { id: 'c', name: 'c' }))
    await asOwner(database, owner => owner.transact(tx => tx.query("DELETE FROM hosts WHERE id = 'c'")))
    expect(await c.transact(tx => tx.query(key('late0000'))).then(() => 'written', messageOf)).toMatch(
      /may not change the directory as a role of no host/,
    )
    expect(await c.query("SELECT mark_lost('a', 0)").then(() => 'marked', messageOf)).toMatch(/role of no host/)
    await c.close()
  })
})
