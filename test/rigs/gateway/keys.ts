// A database with two organizations, for tests of keys, limits and metering: real SQLite in its own directory, a manual
// clock.

import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { newUuid, systemRandom } from '../../../src/base/ids.ts'
import { createLogger } from '../../../src/base/log.ts'
import { NO_RULES } from '../../../src/contract/key-rules.ts'
import { mintGatewayKey } from '../../../src/inference/keys/authenticate.ts'
import { NO_BUDGETS } from '../../../src/inference/metering/budgets.ts'
import type { Caller } from '../../../src/inference/types.ts'
import { openStore } from '../../../src/store/db.ts'
import { insertGatewayKey, type NewGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import { insertInstance } from '../../../src/store/directory/instance.query.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'

export function openLedger() {
  const dir = mkdtempSync(join(tmpdir(), 'strongroom-gateway-'))
  const whole = openStore(join(dir, 'strongroom.db'))
  // Keys and usage are the directory's: its handles are at hand.
  const store = { ...whole, ...whole.directory }
  // Nobody cuts the power here; a disk that others keep busy takes milliseconds for each of thousands of commits.
  store.db.run('PRAGMA synchronous = OFF')
  const clock = createManualClock()
  const logged: string[] = []
  const log = createLogger({ level: 'debug', sink: line => logged.push(line), nowMs: clock.nowMs })
  insertOrganization(store.db, { id: 'o1', slug: 'acme', nowMs: 1 })
  insertOrganization(store.db, { id: 'o2', slug: 'globex', nowMs: 1 })
  return {
    dir,
    store,
    clock,
    log,
    logged,
    addKey: (changes: Partial<NewGatewayKey> = {}): string => {
      const { key, prefix, secretSha256 } = mintGatewayKey(systemRandom)
      insertGatewayKey(store.db, {
        organizationId: 'o1',
        instanceId: null,
        requestsPerMinute: null,
        tokensPerMinute: null,
        concurrencyMax: null,
        expiresAtMs: null,
        nowMs: clock.nowMs(),
        ...changes,
        prefix,
        secretSha256,
      })
      return key
    },
    addInstance: (name: string): string => {
      const id = newUuid()
      insertInstance(store.db, {
        id,
        hostId: store.hostId,
        organizationId: 'o1',
        name,
        hostname: `${name}.acme.agents.example`,
        agent: 'agent',
        publicKey: 'ssh-ed25519 AAAA',
        inferenceMode: 'default_gateway',
        inferenceModel: 'tiny',
        vmId: null,
        nowMs: clock.nowMs(),
      })
      return id
    },
    /** Everything in the directory, database, log of the database and secrets alike. */
    fileBytes: (): Map<string, Buffer> => new Map(readdirSync(dir).map(name => [name, readFileSync(join(dir, name))])),
    [Symbol.dispose]: () => {
      store.close()
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

export type Ledger = ReturnType<typeof openLedger>

export const bearer = (key: string) => new Headers({ authorization: `Bearer ${key}` })
export const prefixOf = (key: string) => key.split('_')[1] ?? ''
export const secretOf = (key: string) => key.split('_')[2] ?? ''

export function callerOf(changes: Partial<Caller> = {}): Caller {
  return {
    keyPrefix: 'aaaaaaaa',
    keyDigest: 'aa'.repeat(32),
    organizationId: 'o1',
    instanceId: null,
    madeBy: 'host',
    requestsPerMinute: 1_000_000,
    tokensPerMinute: 1_000_000_000,
    concurrencyMax: 65_536,
    rules: NO_RULES,
    budgets: NO_BUDGETS,
    ...changes,
  }
}
