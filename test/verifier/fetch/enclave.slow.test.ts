// Goal: a gateway in a VM of its own is verified with its workload.json, and its successor, with new keys, without
// anybody's doing.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import OpenAI from 'openai'
import { EnclaveBench } from '../../../scripts/rigs/enclave/enclave.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import { VerificationError } from '../../../src/verifier/fetch/errors.ts'
import { attestedFetch } from '../../../src/verifier/fetch/node.ts'
import type { AttestedFetchOptions } from '../../../src/verifier/fetch/options.ts'
import { startRelay } from '../../rigs/tls-peers.ts'

const testMs = 120_000
let upstream: TestUpstream
beforeAll(async () => {
  upstream = await startUpstream()
})
afterAll(() => upstream.stop())

const messages = [{ role: 'user' as const, content: 'Hello' }]
const portOf = (url: string) => Number(new URL(url).port)

/** A relying party's expectations of a gateway that this host has launched. */
async function optionsOf(bench: EnclaveBench, vmId: string): Promise<AttestedFetchOptions & { policy: object }> {
  const { measurement } = JSON.parse(bench.engine.launch(vmId).document)
  const policy = { ...strictPolicy(), idKeyDigest: bench.host.operatorKey }
  return {
    url: bench.url(vmId),
    policy: { ...encodePolicy(policy), measurements: [measurement] },
    simulatedRoot: bench.host.rootPem,
    ca: bench.caPem,
    outside: bench.workload.upstreams.map(({ name }) => name),
  }
}

describe('a gateway in a VM', () => {
  // Goal: chat and streams work, the verdict names where prompts go, and the next VM, with new keys, is taken without a
  // gap.
  test(
    'chat, and the next VM',
    async () => {
      await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
      const key = bench.addKey()
      const first = await bench.serve()
      await using relay = await startRelay(portOf(bench.url(first.vmId)))
      const fetch = attestedFetch({ ...(await optionsOf(bench, first.vmId)), url: relay.url })
      const openai = new OpenAI({ apiKey: key, baseURL: `${relay.url}/v1`, fetch, maxRetries: 0 })
      const chat = async () =>
        (await openai.chat.completions.create({ model: 'm', messages })).choices[0]?.message.content
      expect(await chat()).toBe('Grüße 👋 you')
      const evidence = fetch.evidence()
      expect(evidence?.checks.find(check => check.name === 'workload-upstreams')?.reason).toContain('OUTSIDE')
      expect(evidence?.verdict.workload?.upstreams).toHaveLength(1)
      let text = ''
      for await (const chunk of await openai.chat.completions.create({ model: 'm', messages, stream: true })) {
        text += chunk.choices[0]?.delta.content ?? ''
      }
      expect(text).toBe('Grüße 👋 you')
      const second = await bench.serve()
      relay.lead(portOf(bench.url(second.vmId)))
      expect(await chat()).toBe('Grüße 👋 you')
      expect(fetch.evidence()?.keys.mlkem768).not.toEqual(evidence?.keys.mlkem768)
      fetch.close()
    },
    testMs,
  )

  // Goal: its workload.json is pinned by its text, by HOST_DATA or by the operator key, and an allowlist does not do
  // instead.
  test(
    'pins',
    async () => {
      await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
      const { vmId } = await bench.serve()
      const options = await optionsOf(bench, vmId)
      const nobody = { ...options.policy, idKeyDigest: 'any' }
      const failed = async (changes: Partial<AttestedFetchOptions>) => {
        const fetch = attestedFetch({ ...options, ...changes })
        try {
          await fetch.verify()
          return null
        } catch (error) {
          if (error instanceof VerificationError) return error.failed.map(check => check.name)
          throw error
        } finally {
          fetch.close()
        }
      }
      const hostData = toHex(sha256(utf8(bench.workloadText)))
      expect(await failed({})).toBeNull()
      expect(await failed({ policy: nobody, workload: bench.workloadText })).toBeNull()
      expect(await failed({ policy: { ...nobody, hostData } })).toBeNull()
      const other = bench.workloadText.replace('"ownedBy":"', '"ownedBy":"x')
      expect(await failed({ workload: other })).toEqual(expect.arrayContaining(['workload', 'gateway/allowlist']))
      expect(await failed({ policy: { ...nobody, hostData: '07'.repeat(32) } })).toContain('gateway/allowlist')
      const allowlist = JSON.stringify(JSON.parse(bench.workloadText).allowlist)
      expect(await failed({ policy: nobody, allowlist })).toContain('pin-allowlist')
    },
    testMs,
  )
})
