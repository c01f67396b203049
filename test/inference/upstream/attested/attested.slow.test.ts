// Goal: an upstream that has to show evidence gets no byte of a prompt or key before its evidence is good, and none
// over a connection whose TLS key the evidence does not name. Its evidence is SIMULATED.

import { afterAll, afterEach, beforeEach, expect, test } from 'bun:test'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { clearRig, rigDir } from '../../../../scripts/rigs/gateway/attestation.ts'
import { attestedOptions, startAttestedGateway } from '../../../../scripts/rigs/gateway/attested-gateway.ts'
import { KEY, startHostGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import { startUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../../scripts/rigs/until.ts'
import { decodeResponseReceipt, readCarriedReceipt } from '../../../../src/attest/receipt/response-read.ts'
import { upstreamEvidenceBytesMax } from '../../../../src/attest/tdx/upstream-evidence.ts'
import { systemClock } from '../../../../src/base/clock.ts'
import { systemRandom } from '../../../../src/base/ids.ts'
import { createLogger } from '../../../../src/base/log.ts'
import { makeReceiptKeys } from '../../../../src/inference/attestation/receipt-keys.ts'
import { createResponseSealer } from '../../../../src/inference/attestation/response-sealer.ts'
import type { UpstreamAttestation } from '../../../../src/inference/upstream/attested/attestation.ts'
import { AttestedUpstreams } from '../../../../src/inference/upstream/attested/keeper.ts'
import { verifyUpstream } from '../../../../src/inference/upstream/attested/verify.ts'
import type { UpstreamTarget } from '../../../../src/inference/upstream/target.ts'
import { qeIdentityOf, simulateCollateral, tcbInfoOf } from '../../../rigs/attest/tdx/simulated.ts'
import { startRelayedGateway } from '../../../rigs/gateway/relayed-gateway.ts'
import { startTdxUpstream, type TdxUpstream } from '../../../rigs/gateway/tdx-upstream.ts'

let upstream: TdxUpstream
beforeEach(async () => {
  upstream = await startTdxUpstream()
})
afterEach(async () => await upstream[Symbol.asyncDispose]())
afterAll(clearRig)

const dayMs = 86_400_000
const deps = { clock: systemClock, random: systemRandom }

function targetOf(attestation: Partial<UpstreamAttestation> = {}): UpstreamTarget {
  return target(upstream.url, { ca: upstream.ca, attestation: { ...upstream.attestation, ...attestation } })
}

/** A gateway in front of these, and their keeper, which a test drives by `check`. */
function gatewayOf(...targets: readonly UpstreamTarget[]) {
  const lines: string[] = []
  const log = createLogger({ level: 'debug', sink: line => void lines.push(line), nowMs: systemClock.nowMs })
  const keeper = new AttestedUpstreams({ ...deps, log })
  const followed = targets.map(target => keeper.follow(target))
  const keys = makeReceiptKeys(systemRandom)
  const sealer = createResponseSealer({ keys, ...deps, inside: new Set(), attested: keeper.names })
  const gateway = startHostGateway(followed, {
    limits: { ejectFailures: 1, ejectMs: 20 },
    host: { checkEvidence: name => keeper.check(name), sealer },
  })
  return { keeper, gateway, lines, name: targets[0]?.name ?? '' }
}

async function codeOf(response: Response): Promise<[number, string | null]> {
  const { error } = (await response.json()) as { error?: { code: string } }
  return [response.status, error?.code ?? null]
}

// Goal: 503 with its code before, the completion after; the key of the upstream is not sent before either.
test('no prompt before good evidence', async () => {
  const { keeper, gateway, name } = gatewayOf(targetOf())
  await using _ = gateway
  const before = await gateway.chat()
  expect(before.headers.get('x-should-retry')).toBe('true')
  expect(await codeOf(before)).toEqual([503, 'attestation_unavailable'])
  expect(upstream.seen).toEqual({ nonces: 0, prompts: [] })
  expect(await keeper.check(name)).toBe(true)
  const after = await gateway.chat()
  expect([after.status, upstream.seen.prompts]).toEqual([200, ['Bearer upstream-key-canary']])
})

// Goal: a receipt of such an upstream's response says outside, attested.
test('receipts', async () => {
  const { keeper, gateway, name } = gatewayOf(targetOf())
  await using _ = gateway
  await keeper.check(name)
  const response = await gateway.chat({}, { headers: { 'x-strongroom-receipt': '1' } })
  const { receipt } = readCarriedReceipt(response.headers.get('x-strongroom-receipt') ?? '')
  expect(decodeResponseReceipt(receipt).claim).toMatchObject({ upstream: name, coverage: 'outside-attested' })
})

// Goal: a server with another key, as good for the authorities, gets nothing; with evidence for it, prompts go on.
test('an upstream that changes its TLS key', async () => {
  const { keeper, gateway, name } = gatewayOf(targetOf())
  await using _ = gateway
  await keeper.check(name)
  expect((await gateway.chat()).status).toBe(200)
  upstream.answer = response => void response.writeHead(500).end()
  await upstream.changeKey()
  // The connection that there was has ended; whatever comes next finds the other key.
  const statuses = [await codeOf(await gateway.chat()), await codeOf(await gateway.chat())]
  expect(statuses.map(([status]) => status >= 500)).toEqual([true, true])
  expect(upstream.seen.prompts.length).toBe(1)
  upstream.answer = null
  // The gateway looks again by itself, since requests failed.
  await until('the other key is attested', 60_000, async () => (await gateway.chat()).status === 200)
  expect(upstream.seen.prompts.length).toBe(2)
})

// Goal: a verification that is not good ends what an earlier one was worth, also for connections that are open.
test('evidence that turns bad', async () => {
  const { keeper, gateway, name, lines } = gatewayOf(targetOf())
  await using _ = gateway
  await keeper.check(name)
  expect((await gateway.chat()).status).toBe(200)
  upstream.answer = response => void response.end('{}')
  expect(await keeper.check(name)).toBe(false)
  expect(await codeOf(await gateway.chat())).toEqual([503, 'attestation_unavailable'])
  expect(upstream.seen.prompts.length).toBe(1)
  expect(lines.some(line => line.includes('upstream not attested'))).toBe(true)
})

// Goal: an upstream that serves the model and shows evidence takes over from one that does not.
test('beside one that is attested', async () => {
  await using other = await startTdxUpstream()
  const second = target(other.url, { ca: other.ca, attestation: other.attestation })
  const { keeper, gateway } = gatewayOf(targetOf(), second)
  await using _ = gateway
  await keeper.check(second.name)
  for (let round = 0; round < 4; round += 1) expect((await gateway.chat()).status).toBe(200)
  expect([upstream.seen.prompts.length, other.seen.prompts.length]).toEqual([0, 4])
})

const answered = async (answer: TdxUpstream['answer'], attestation: Partial<UpstreamAttestation> = {}) => {
  upstream.answer = answer
  const wanted = { ...upstream.attestation, ...attestation }
  const found = await verifyUpstream(targetOf(wanted), wanted, deps)
  return found.ok ? 'good' : found.reason
}

// Goal: each way of showing evidence that is not its own, not fresh or not enough is refused by name.
test('evidence that does not count', async () => {
  expect(await answered(null)).toBe('good')
  const old = await upstream.evidence(new Uint8Array(32).fill(7))
  expect(await answered(response => void response.end(old))).toStartWith('report-data: ')
  await using other = await startTdxUpstream()
  const others = async (response: Parameters<NonNullable<TdxUpstream['answer']>>[0], nonce: Uint8Array) =>
    void response.end(await other.evidence(nonce))
  expect(await answered(others)).toStartWith('collateral-form: ')
  const otherKey = new Uint8Array(32).fill(9)
  expect(await answered(async (to, nonce) => void to.end(await upstream.evidence(nonce, otherKey)))).toStartWith(
    'report-data: ',
  )
  const expired = { tcbInfo: tcbInfoOf(upstream.platform.nowMs - 60 * dayMs) }
  expect(
    await answered(async (to, nonce) => void to.end(await upstream.evidence(nonce, undefined, expired))),
  ).toStartWith('tcb-info-time: ')
  const identity = { qeIdentity: qeIdentityOf(upstream.platform.nowMs - 60 * dayMs) }
  expect(
    await answered(async (to, nonce) => void to.end(await upstream.evidence(nonce, undefined, identity))),
  ).toStartWith('qe-identity-time: ')
  expect(await answered(response => void response.end('not json'))).toContain('evidence')
  expect(await answered(response => void response.writeHead(404).end())).toContain('status 404')
  const mrTds = upstream.attestation.policy.replaceAll('02'.repeat(48), '03'.repeat(48))
  expect(mrTds).not.toBe(upstream.attestation.policy)
  expect(await answered(null, { policy: mrTds })).toStartWith('mr-td: ')
  expect(await answered(null, { simulatedRoot: null })).toStartWith('collateral-form: ')
})

// Goal: an endless body is cut at its bound.
test('an endless body', async () => {
  let sentBytes = 0
  const endless: TdxUpstream['answer'] = response => {
    const more = () => {
      while (!response.destroyed && response.write(Buffer.alloc(65_536, 0x20))) sentBytes += 65_536
    }
    response.on('drain', more)
    more()
  }
  expect(await answered(endless)).toContain('larger than')
  expect(sentBytes).toBeLessThan(upstreamEvidenceBytesMax + 64 * 1024 * 1024)
})

// Goal: collateral of the operator's own file is taken in place of what the upstream sends, and read each time.
test('collateral out of a file', async () => {
  const collateralFile = join(rigDir(), 'collateral.json')
  writeFileSync(collateralFile, await simulateCollateral(upstream.platform))
  const bare: TdxUpstream['answer'] = async (response, nonce) => {
    const { collateral: _, ...rest } = JSON.parse(await upstream.evidence(nonce))
    response.end(JSON.stringify(rest))
  }
  expect(await answered(bare)).toContain('it sends no collateral')
  expect(await answered(bare, { collateralFile })).toBe('good')
  writeFileSync(collateralFile, '{}')
  expect(await answered(bare, { collateralFile })).toStartWith('collateral-form: ')
  expect(await answered(bare, { collateralFile: join(rigDir(), 'none') })).toContain('ENOENT')
})

// Goal: authorities and configured keys count for evidence as they do for prompts.
test('the connection of the evidence', async () => {
  const wanted = upstream.attestation
  const of = async (more: Partial<UpstreamTarget>) => {
    const found = await verifyUpstream(
      target(upstream.url, { ca: upstream.ca, attestation: wanted, ...more }),
      wanted,
      deps,
    )
    return found.ok ? 'good' : found.reason
  }
  expect(await of({ spkiSha256: '00'.repeat(32) })).toBe('its key is not pinned')
  expect(await of({ ca: null })).toStartWith('its certificate: ')
})

// Goal: a Strongroom gateway is an attested upstream of another, and prompts reach it; a policy of another image does
// not let it in.
test('snp: another gateway', async () => {
  const model = await startUpstream()
  await using behind = await startAttestedGateway(model)
  const { policy, simulatedRoot, ca } = await attestedOptions()
  const attestation: UpstreamAttestation = {
    kind: 'snp',
    policy: JSON.stringify(policy),
    path: '/attestation',
    intervalMs: 1_800_000,
    collateralFile: null,
    simulatedRoot,
  }
  const of = (more: Partial<UpstreamAttestation>) =>
    target(`${behind.url}/v1`, { ca, key: KEY, attestation: { ...attestation, ...more } })
  const { keeper, gateway, name } = gatewayOf(of({}))
  await using _ = gateway
  expect(await codeOf(await gateway.chat())).toEqual([503, 'attestation_unavailable'])
  expect(await keeper.check(name)).toBe(true)
  expect((await gateway.chat()).status).toBe(200)
  expect(model.seen.length).toBe(1)
  const other = { policy: JSON.stringify({ ...policy, measurements: ['00'.repeat(48)] }) }
  const refused = await verifyUpstream(of(other), { ...attestation, ...other }, deps)
  expect(refused).toMatchObject({
    ok: false,
    check: 'gateway/measurement',
    reason: expect.stringContaining('measurement'),
  })
  const untrusted = await verifyUpstream(of({ simulatedRoot: null }), { ...attestation, simulatedRoot: null }, deps)
  expect(untrusted.ok).toBe(false)
  await model.stop()
})

// Goal: processes that serve clients hold their connections to the attested key as well.
test('several processes', async () => {
  await using gateway = await startRelayedGateway([targetOf()], {
    settings: { ejectMs: 20, ejectFailures: 1 },
  })
  await until('both relays listen', 60_000, () => gateway.counts().running === 2)
  expect(await codeOf(await gateway.chat())).toEqual([503, 'attestation_unavailable'])
  gateway.service.start()
  await until('the upstream is attested', 60_000, async () => (await gateway.chat()).status === 200)
  const before = upstream.seen.prompts.length
  upstream.answer = response => void response.writeHead(500).end()
  await upstream.changeKey()
  for (let round = 0; round < 4; round += 1) expect((await gateway.chat()).status).toBeGreaterThanOrEqual(500)
  expect(upstream.seen.prompts.length).toBe(before)
  upstream.answer = null
  await until('the other key is attested', 60_000, async () => (await gateway.chat()).status === 200)
})
