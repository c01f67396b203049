// Gateway keys: which are let in, when they stop being let in, and what their use leaves behind.

import { describe, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { eq } from 'drizzle-orm'
import { newUuid, systemRandom } from '../../../src/base/ids.ts'
import { NO_RULES } from '../../../src/contract/key-rules.ts'
import { drawGatewayKey } from '../../../src/guest/gateway/key.ts'
import { mintGatewayKey } from '../../../src/inference/keys/authenticate.ts'
import { createInstanceKeys } from '../../../src/inference/keys/instance-keys.ts'
import { createGatewayAuthenticate, othersSeenMs, type PushedChanges } from '../../../src/inference/keys/stored-keys.ts'
import { createLimiter } from '../../../src/inference/limits/limiter.ts'
import { NO_BUDGETS } from '../../../src/inference/metering/budgets.ts'
import { Metering } from '../../../src/inference/metering/ledger.ts'
import { createCost } from '../../../src/inference/metering/price.ts'
import { createClusterMetrics } from '../../../src/inference/metrics/cluster.ts'
import { createMetrics } from '../../../src/inference/metrics/requests.ts'
import { openStore } from '../../../src/store/db.ts'
import { findGatewayKey, listGatewayKeys, revokeGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import { gatewayKeys } from '../../../src/store/directory/gateway-key.table.ts'
import { instances } from '../../../src/store/directory/instance.table.ts'
import { setOrganizationStatus } from '../../../src/store/directory/organization.query.ts'
import { bearer, type Ledger, openLedger, prefixOf, secretOf } from '../../rigs/gateway/keys.ts'

const digestOf = (key: string) => createHash('sha256').update(secretOf(key)).digest('hex')
const defaults = { requestsPerMinute: 600, tokensPerMinute: 1_000_000, concurrencyMax: 32 }

function authenticator({ store, clock, log }: Ledger, others: PushedChanges | null = null) {
  const authenticate = createGatewayAuthenticate({ db: store.db, clock, log, defaults, others })
  return {
    authenticate,
    outcome: (headers: Headers): string => {
      try {
        return authenticate(headers).keyPrefix
      } catch (error) {
        return `${Reflect.get(Object(error), 'code')}: ${Reflect.get(Object(error), 'message')}`
      }
    },
  }
}

const refused =
  'unauthenticated: The API key is missing, wrong, expired or revoked. Check the key that your program sends, or ask the operator for one.'

/** Authorization headers around a good key that are all no good. */
const BAD_HEADERS: Record<string, (key: string) => string> = {
  'an empty header': () => '',
  'the scheme alone': () => 'Bearer',
  'no scheme': key => key,
  'another scheme': key => `Basic ${btoa(`${key}:`)}`,
  'a scheme that only begins like ours': key => `Bearerx ${key}`,
  'no space': key => `Bearer${key}`,
  'a tab for the space': key => `Bearer\t${key}`,
  'upper case': key => `Bearer ${key.toUpperCase()}`,
  'a character less': key => `Bearer ${key.slice(0, -1)}`,
  'a character more': key => `Bearer ${key}a`,
  'another secret': key => `Bearer ${key.slice(0, -1)}${key.endsWith('a') ? 'b' : 'a'}`,
  'an unknown prefix': key => `Bearer gw_zzzzzzzz_${secretOf(key)}`,
  'a key of service A': key => `Bearer ca_${prefixOf(key)}_${secretOf(key).slice(0, 18)}`,
  'something after the key': key => `Bearer ${key} x`,
  'the key twice': key => `Bearer ${key}, Bearer ${key}`,
  quotes: key => `Bearer "${key}"`,
  'eight kilobytes': () => `Bearer gw_${'a'.repeat(8_000)}`,
}

describe('headers', () => {
  for (const [what, header] of Object.entries(BAD_HEADERS)) {
    // Goal: only the exact form of a known key is accepted; all others get the same refusal.
    test(`${what} is refused`, () => {
      using ledger = openLedger()
      const key = ledger.addKey()
      const { outcome } = authenticator(ledger)
      expect(outcome(new Headers({ authorization: header(key) }))).toBe(refused)
      expect(outcome(bearer(key))).toBe(prefixOf(key))
    })
  }

  test('no header, and spellings of the scheme', () => {
    // Goal: a missing header is refused; the scheme's case and the number of spaces do not matter (RFC 9110 11.4).
    using ledger = openLedger()
    const key = ledger.addKey()
    const { outcome } = authenticator(ledger)
    expect(outcome(new Headers())).toBe(refused)
    for (const scheme of ['Bearer', 'bearer', 'BEARER', 'bEaReR', 'Bearer  ']) {
      expect(outcome(new Headers({ authorization: `${scheme} ${key}` }))).toBe(prefixOf(key))
    }
  })

  test('the caller', () => {
    // Goal: limits are the key's own, or else the configured ones; organization and instance are the key's.
    using ledger = openLedger()
    const instanceId = ledger.addInstance('abcd1234')
    const { authenticate } = authenticator(ledger)
    const own = ledger.addKey({ organizationId: 'o2', requestsPerMinute: 1, tokensPerMinute: 2, concurrencyMax: 3 })
    expect(authenticate(bearer(own))).toEqual({
      keyPrefix: prefixOf(own),
      keyDigest: digestOf(own),
      organizationId: 'o2',
      instanceId: null,
      madeBy: 'host',
      requestsPerMinute: 1,
      tokensPerMinute: 2,
      concurrencyMax: 3,
      rules: NO_RULES,
      budgets: NO_BUDGETS,
    })
    const plain = ledger.addKey({ instanceId })
    expect(authenticate(bearer(plain))).toEqual({
      keyPrefix: prefixOf(plain),
      keyDigest: digestOf(plain),
      organizationId: 'o1',
      instanceId,
      madeBy: 'host',
      ...defaults,
      rules: NO_RULES,
      budgets: NO_BUDGETS,
    })
    const rules = { models: ['tiny'], aliases: [{ name: 'fast', model: 'tiny' }] }
    expect(authenticate(bearer(ledger.addKey(rules))).rules).toEqual(rules)
  })
})

describe('a key that worked a moment ago', () => {
  const ENDINGS: Record<string, (ledger: Ledger, key: string, instanceId: string) => void> = {
    'revoked here': ({ store, clock }, key) =>
      void revokeGatewayKey(store.db, { prefix: prefixOf(key), nowMs: clock.nowMs() }),
    'revoked by another process': ({ dir, clock }, key) => {
      const other = openStore(join(dir, 'strongroom.db'))
      revokeGatewayKey(other.directory.db, { prefix: prefixOf(key), nowMs: clock.nowMs() })
      other.close()
    },
    'suspended with its organization by another process': ({ dir }) => {
      const other = openStore(join(dir, 'strongroom.db'))
      setOrganizationStatus(other.directory.db, { slug: 'acme', status: 'suspended' })
      other.close()
    },
    'of an organization that is suspended': ({ store }) =>
      void setOrganizationStatus(store.db, { slug: 'acme', status: 'suspended' }),
    'of an instance that is deleted': ({ store }, _key, instanceId) =>
      store.db.update(instances).set({ desired: 'absent' }).where(eq(instances.id, instanceId)).run(),
    'gone from the table': ({ store }, key) =>
      store.db
        .delete(gatewayKeys)
        .where(eq(gatewayKeys.prefix, prefixOf(key)))
        .run(),
  }
  for (const [what, end] of Object.entries(ENDINGS)) {
    // Goal: whatever ends a key here ends it for the very next request, what another process does within
    // `othersSeenMs`; and for this key alone.
    test(what, () => {
      using ledger = openLedger()
      const instanceId = ledger.addInstance('abcd1234')
      const key = ledger.addKey({ instanceId })
      const sister = ledger.addKey({ organizationId: 'o2' })
      const { outcome } = authenticator(ledger)
      for (let i = 0; i < 3; i += 1) expect(outcome(bearer(key))).toBe(prefixOf(key))
      end(ledger, key, instanceId)
      if (what.includes('another process')) ledger.clock.advance(othersSeenMs)
      expect(outcome(bearer(key))).toBe(refused)
      expect(outcome(bearer(sister))).toBe(prefixOf(sister))
    })
  }

  test('expiry, to the millisecond', () => {
    // Goal: a key is good until right before its end, and never from then on.
    using ledger = openLedger()
    const key = ledger.addKey({ expiresAtMs: ledger.clock.nowMs() + 1_000 })
    const { outcome } = authenticator(ledger)
    ledger.clock.advance(999)
    expect(outcome(bearer(key))).toBe(prefixOf(key))
    ledger.clock.advance(1)
    expect(outcome(bearer(key))).toBe(refused)
  })

  test('endings by others, back and forth', () => {
    // Goal: each request sees what the other connection has committed, back and forth, once it has been looked at.
    using ledger = openLedger()
    const key = ledger.addKey()
    const { outcome } = authenticator(ledger)
    const other = openStore(join(ledger.dir, 'strongroom.db'))
    for (let i = 0; i < 20; i += 1) {
      setOrganizationStatus(other.directory.db, { slug: 'acme', status: 'suspended' })
      ledger.clock.advance(othersSeenMs)
      expect(outcome(bearer(key))).toBe(refused)
      setOrganizationStatus(other.directory.db, { slug: 'acme', status: 'active' })
      ledger.clock.advance(othersSeenMs)
      expect(outcome(bearer(key))).toBe(prefixOf(key))
    }
    other.close()
  })

  test('ended by others, as another thread pushes it', () => {
    // Goal: a pushed mark that moves ends a key at once; a mark that is no longer read does not delay it beyond
    // `othersSeenMs`, whenever that was noticed; and while marks come and stand still the database is not read.
    using ledger = openLedger()
    const key = ledger.addKey()
    const pushed = { beat: 0, mark: 7 }
    const others = { beat: () => pushed.beat, mark: () => pushed.mark }
    const { outcome } = authenticator(ledger, others)
    const other = openStore(join(ledger.dir, 'strongroom.db'))
    const set = (status: 'active' | 'suspended') => setOrganizationStatus(other.directory.db, { slug: 'acme', status })
    // The first use is noted in the database, so the second request reads the key again.
    for (let i = 0; i < 2; i += 1) expect(outcome(bearer(key))).toBe(prefixOf(key))
    set('suspended')
    // The thread reports that nothing has changed, so nothing is read.
    for (let i = 0; i < 20; i += 1) {
      ledger.clock.advance(othersSeenMs - 1)
      pushed.beat += 1
      expect(outcome(bearer(key))).toBe(prefixOf(key))
    }
    pushed.mark = 8
    pushed.beat += 1
    expect(outcome(bearer(key))).toBe(refused)
    set('active')
    // The last beat came before the change, and is noticed late.
    pushed.beat += 1
    ledger.clock.advance(othersSeenMs)
    expect(outcome(bearer(key))).toBe(prefixOf(key))
    other.close()
  })

  test('a prefix that was unknown', () => {
    // Goal: that a key was absent is not remembered beyond the moment that it is made.
    using ledger = openLedger()
    const { outcome } = authenticator(ledger)
    const minted = mintGatewayKey(systemRandom)
    expect(outcome(bearer(minted.key))).toBe(refused)
    ledger.store.db
      .insert(gatewayKeys)
      .values({
        prefix: minted.prefix,
        organizationId: 'o1',
        secretSha256: Buffer.from(minted.secretSha256),
        createdAtMs: 1,
      })
      .run()
    expect(outcome(bearer(minted.key))).toBe(minted.prefix)
  })
})

test('what is stored is the SHA-256 of the secret', () => {
  // Goal: a key whose hash another implementation made is let in, and minting stores that same hash.
  using ledger = openLedger()
  const [prefix, secret] = ['k0000000', 'abcdefghijklmnopqrstuvwxyz012345']
  const digest = createHash('sha256').update(secret).digest()
  ledger.store.db
    .insert(gatewayKeys)
    .values({ prefix, organizationId: 'o1', secretSha256: digest, createdAtMs: 1 })
    .run()
  expect(authenticator(ledger).outcome(bearer(`gw_${prefix}_${secret}`))).toBe(prefix)
  const minted = mintGatewayKey(systemRandom)
  const expected = createHash('sha256').update(secretOf(minted.key)).digest()
  expect(Buffer.from(minted.secretSha256).equals(expected)).toBe(true)
})

test('last use', () => {
  // Goal: use is recorded immediately, then at most once a minute, and after the clock jumped back; a refused attempt
  // is not recorded.
  using ledger = openLedger()
  const key = ledger.addKey()
  const { outcome } = authenticator(ledger)
  const lastUsed = () => findGatewayKey(ledger.store.db, prefixOf(key))?.lastUsedAtMs ?? null
  const startMs = ledger.clock.nowMs()
  outcome(bearer(`${key.slice(0, -1)}${key.endsWith('a') ? 'b' : 'a'}`))
  expect(lastUsed()).toBe(null)
  outcome(bearer(key))
  expect(lastUsed()).toBe(startMs)
  ledger.clock.advance(59_999)
  outcome(bearer(key))
  expect(lastUsed()).toBe(startMs)
  ledger.clock.advance(1)
  outcome(bearer(key))
  expect(lastUsed()).toBe(startMs + 60_000)
  ledger.clock.set(startMs - 1_000)
  outcome(bearer(key))
  expect(lastUsed()).toBe(startMs - 1_000)
})

test('many unknown prefixes', () => {
  // Goal: guesses fill no memory without end and let nobody in; a good key works among them.
  using ledger = openLedger()
  const key = ledger.addKey()
  const { outcome } = authenticator(ledger)
  for (let i = 0; i < 10_000; i += 1) {
    const guess = `gw_${String(i).padStart(8, '0')}_${secretOf(key)}`
    if (outcome(bearer(guess)) !== refused) throw new Error(`${guess} was let in`)
  }
  expect(outcome(bearer(key))).toBe(prefixOf(key))
})

describe('keys of instances', () => {
  const keysOf = ({ store, clock, log }: Ledger) => createInstanceKeys({ store, clock, log })

  test('that their guests drew', () => {
    // Goal: the host registers a digest once, marks the key as not its own, and lets in the key that the guest drew.
    using ledger = openLedger()
    const instanceId = ledger.addInstance('abcd1234')
    const { key, drawn } = drawGatewayKey(systemRandom)
    expect(key).toBe(`gw_${drawn.prefix}_${secretOf(key)}`)
    keysOf(ledger).registerKey(instanceId, drawn)
    ledger.clock.advance(5)
    // A daemon after a crash.
    keysOf(ledger).registerKey(instanceId, drawn)
    const rows = listGatewayKeys(ledger.store.db, 'o1')
    expect(rows).toMatchObject([{ prefix: prefixOf(key), instanceId, isClientMade: true, revokedAtMs: null }])
    expect(rows[0]?.createdAtMs).toBe(ledger.clock.nowMs() - 5)
    expect(authenticator(ledger).authenticate(bearer(key))).toMatchObject({
      instanceId,
      organizationId: 'o1',
      keyDigest: digestOf(key),
    })
  })

  test('whose prefix is taken', () => {
    // Goal: the claim fails, and neither key becomes the other one's: that of another instance, of the organization,
    // or of the same instance with another secret.
    using ledger = openLedger()
    const [holder, other] = [ledger.addInstance('abcd1234'), ledger.addInstance('efgh5678')]
    const keys = keysOf(ledger)
    const first = drawGatewayKey(systemRandom)
    keys.registerKey(holder, first.drawn)
    const { prefix } = first.drawn
    const forged = { prefix, secretSha256: 'ab'.repeat(32) }
    const refusal = `another gateway key has the prefix ${prefix} that the guest drew`
    expect(() => keys.registerKey(other, first.drawn)).toThrow(refusal)
    expect(() => keys.registerKey(other, forged)).toThrow(refusal)
    expect(() => keys.registerKey(holder, forged)).toThrow(refusal)
    const own = ledger.addKey()
    expect(() => keys.registerKey(holder, { ...forged, prefix: prefixOf(own) })).toThrow('another gateway key')
    const { authenticate } = authenticator(ledger)
    expect(authenticate(bearer(first.key))).toMatchObject({ instanceId: holder, keyDigest: digestOf(first.key) })
    expect(authenticate(bearer(own))).toMatchObject({ instanceId: null, keyDigest: digestOf(own) })
  })

  test('end with the instance, for good', () => {
    // Goal: deletion revokes, repeating it changes nothing, and a purged instance leaves no key that looks like its
    // organization's.
    using ledger = openLedger()
    const { store } = ledger
    const [gone, stays] = [ledger.addInstance('abcd1234'), ledger.addInstance('efgh5678')]
    const keys = keysOf(ledger)
    const [goneKey, staysKey] = [drawGatewayKey(systemRandom), drawGatewayKey(systemRandom)]
    keys.registerKey(gone, goneKey.drawn)
    keys.registerKey(stays, staysKey.drawn)
    store.db.update(instances).set({ desired: 'absent' }).where(eq(instances.id, gone)).run()
    keys.revokeDeleted()
    const revokedAtMs = findGatewayKey(store.db, goneKey.drawn.prefix)?.revokedAtMs
    expect(revokedAtMs).toBe(ledger.clock.nowMs())
    ledger.clock.advance(5)
    keys.revokeDeleted()
    expect(findGatewayKey(store.db, goneKey.drawn.prefix)?.revokedAtMs).toBe(revokedAtMs ?? null)
    expect(() => keys.registerKey(gone, goneKey.drawn)).toThrow('is being deleted')
    expect(() => keys.registerKey(newUuid(), goneKey.drawn)).toThrow('there is no instance')
    store.db.delete(instances).where(eq(instances.id, gone)).run()
    const { outcome } = authenticator(ledger)
    expect(outcome(bearer(goneKey.key))).toBe(refused)
    expect(outcome(bearer(staysKey.key))).toBe(staysKey.drawn.prefix)
  })

  test('that the operator revoked stay revoked', () => {
    // Goal: a claim sent again does not bring a revoked key back.
    using ledger = openLedger()
    const keys = keysOf(ledger)
    const instanceId = ledger.addInstance('abcd1234')
    const { key, drawn } = drawGatewayKey(systemRandom)
    keys.registerKey(instanceId, drawn)
    revokeGatewayKey(ledger.store.db, { prefix: drawn.prefix, nowMs: 7 })
    keys.registerKey(instanceId, drawn)
    expect(authenticator(ledger).outcome(bearer(key))).toBe(refused)
  })
})

test('canary: no secret of a client key is in a log, a file or the metrics', async () => {
  // Goal: after good, bad, limited and failed use, the secrets are nowhere; the same search finds the prefixes.
  using ledger = openLedger()
  const { store, clock, log } = ledger
  const own = ledger.addKey({ requestsPerMinute: 2 })
  const keys = createInstanceKeys({ store, clock, log })
  const instanceId = ledger.addInstance('abcd1234')
  const { key: instance, drawn } = drawGatewayKey(systemRandom)
  keys.registerKey(instanceId, drawn)
  const { authenticate, outcome } = authenticator(ledger)
  const limiter = createLimiter(clock)
  const metering = new Metering({ store, clock, log, cost: createCost([]) })
  const metrics = createMetrics({ models: ['tiny'], upstreams: ['local'], otherFamilies: () => [] })
  for (const key of [own, instance]) {
    const caller = authenticate(bearer(key))
    outcome(bearer(key.replace('gw_', 'ca_')))
    for (let i = 0; i < 4; i += 1) {
      const admitted = limiter.admit(caller, 10)
      if (!admitted.ok) log.warn('refused', { message: admitted.refusal.message, headers: admitted.refusal.headers })
      const tokens = { prompt: 1, completion: 2 }
      const record = { id: `${caller.keyPrefix}-${i}`, atMs: 1, caller, model: key, upstream: 'local', tokens } as const
      if (i > 0) metering.record({ ...record, model: 'tiny', tokensSource: 'reported', outcome: 'completed' })
      metrics.observe({
        operation: 'chat',
        model: key,
        upstream: key,
        status: 200,
        errorCode: key,
        tokens,
        durationMs: 1,
        firstChunkMs: 1,
        queueMs: 1,
      })
    }
    // A record that cannot be written is logged.
    metering.record({
      id: key,
      atMs: 1,
      caller: { ...caller, organizationId: 'nobody' },
      model: key,
      upstream: 'local',
      tokens: { prompt: 1, completion: 2 },
      tokensSource: 'estimated',
      outcome: 'failed',
    })
    metering.flush()
    log.error('a caller that was logged whole', { headers: [...bearer(key)] })
  }
  store.db.update(instances).set({ desired: 'absent' }).where(eq(instances.id, instanceId)).run()
  keys.revokeDeleted()
  const cluster = createClusterMetrics({
    store,
    capacity: { memoryMib: 1, vcpus: 1, addresses: 1 },
  })
  const text = [...ledger.logged, metrics.render(), cluster.render()].join('\n')
  const files = [...ledger.fileBytes().values()]
  for (const key of [own, instance]) {
    expect(text).not.toContain(secretOf(key))
    expect(files.some(bytes => bytes.includes(secretOf(key)))).toBe(false)
    expect(text).toContain(prefixOf(key))
    expect(files.some(bytes => bytes.includes(prefixOf(key)))).toBe(true)
  }
  expect(metrics.render()).not.toContain(prefixOf(own))
})
