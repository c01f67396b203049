// A host that holds the control key, mints keys and signs freely, against the real enclave and clients that verified
// it before.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { EnclaveBench } from '../../../scripts/rigs/enclave/enclave.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { decodeResponseReceipt } from '../../../src/attest/receipt/response-read.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { setGatewayKeyTerms } from '../../../src/store/directory/gateway-key.query.ts'
import { gatewayKeys } from '../../../src/store/directory/gateway-key.table.ts'
import { prefixOf } from '../../rigs/gateway/keys.ts'

const testMs = 120_000
let upstream: TestUpstream
beforeAll(async () => {
  upstream = await startUpstream()
})
afterAll(() => upstream.stop())

function chat(bench: EnclaveBench, vmId: string, key: string, asked: { model: string; receipt?: string }) {
  const { model, receipt } = asked
  return fetch(`${bench.url(vmId)}/v1/chat/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      ...(receipt === undefined ? {} : { 'x-strongroom-receipt': receipt }),
    },
    body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }] }),
    tls: { ca: bench.caPem },
  })
}

test(
  'goal: no alias that the host signs leads a model that workload.json calls inside to an upstream outside, under whatever name',
  async () => {
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    const key = bench.addKey()
    const { vmId, session } = await bench.serve()
    expect((await chat(bench, vmId, key, { model: 'w' })).status).toBe(200)
    const before = upstream.seen.length
    const terms = { requestsPerMinute: null, tokensPerMinute: null, concurrencyMax: null, expiresAtMs: null }
    const aliases = [
      { name: 'w', model: 'm' },
      { name: 'private', model: 'm' },
      { name: 'm', model: 'w' },
      { name: 'mine', model: 'w' },
    ]
    setGatewayKeyTerms(bench.store.directory.db, prefixOf(key), {
      ...terms,
      models: null,
      aliases,
      budgetNanoUsd: null,
      budgetTokens: null,
      shortBudgets: null,
    })
    session.pushControl()
    await until('the aliases are in force', 60_000, () => session.status?.revision === bench.control.current().revision)
    const answers = await Promise.all(
      ['w', 'private', 'mine'].map(async model => {
        const answer = await chat(bench, vmId, key, { model })
        return [answer.status, ((await answer.json()) as { model?: string }).model]
      }),
    )
    expect(answers).toEqual([
      [200, 'w'],
      [404, undefined],
      [200, 'w'],
    ])
    expect(upstream.seen.length).toBe(before)
  },
  testMs,
)

test(
  'goal: a host that mints keys and knows the ids of requests reads no kept receipt, and one that it has all the same confirms no guess',
  async () => {
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    const key = bench.addKey()
    const { vmId, session } = await bench.serve()
    const answer = await chat(bench, vmId, key, { model: 'm', receipt: 'keep' })
    const request = utf8(JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hello' }] }))
    await answer.text()
    // The host's record of the request: a row of usage.
    await until('the row is booked', 60_000, () => bench.rows.length > 0)
    const id = bench.rows.at(-1)?.id ?? ''
    expect(answer.headers.get('x-request-id')).toBe(id)
    const receiptBy = async (by: string) => {
      const found = await fetch(`${bench.url(vmId)}/v1/receipts/${id}`, {
        headers: { authorization: `Bearer ${by}` },
        tls: { ca: bench.caPem },
      })
      return { status: found.status, text: await found.text() }
    }
    const inForce = async () => {
      session.pushControl()
      await until('the keys are in force', 60_000, () => session.status?.revision === bench.control.current().revision)
    }
    const minted = bench.addKey()
    await inForce()
    expect((await receiptBy(minted)).status).toBe(404)
    // Another secret under the very prefix, while the VM keeps the receipt.
    const { db } = bench.store.directory
    const forged = `gw_${prefixOf(key)}_${'z'.repeat(32)}`
    db.update(gatewayKeys)
      .set({ secretSha256: Buffer.from(createHash('sha256').update('z'.repeat(32)).digest()) })
      .run()
    await inForce()
    expect((await receiptBy(forged)).status).toBe(404)
    db.update(gatewayKeys)
      .set({
        secretSha256: Buffer.from(
          createHash('sha256')
            .update(key.split('_')[2] ?? '')
            .digest(),
        ),
      })
      .run()
    await inForce()
    const own = await receiptBy(key)
    expect(own.status).toBe(200)
    // A host that kept a copy of the key gets this far. The salt was in the response alone.
    const { claim } = decodeResponseReceipt(own.text)
    expect(claim.requestDigest).not.toEqual(sha256(request))
    expect(own.text).not.toContain(answer.headers.get('x-strongroom-receipt-salt') ?? 'none')
  },
  testMs,
)
