// Goal: a verdict says by what an upstream outside is attested, and that is not enough: the relying party allows it.

import { expect, test } from 'bun:test'
import { rootHash } from '../../scripts/rigs/enclave/workload.ts'
import { target } from '../../scripts/rigs/gateway/server.ts'
import { composeWorkloadText } from '../../src/appliance/workload.ts'
import { carriedReceipt } from '../../src/attest/receipt/response.ts'
import { verifyResponse } from '../../src/attest/receipt/response-verify.ts'
import type { StatementOf } from '../../src/attest/receipt/statement.ts'
import { fromHex, utf8 } from '../../src/base/bytes.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { makeReceiptKeys } from '../../src/inference/attestation/receipt-keys.ts'
import { createResponseSealer } from '../../src/inference/attestation/response-sealer.ts'
import { readWorkload, workloadChecks } from '../../src/verifier/workload.ts'

const policy = '{"x":1}'
const by = `attested by tdx under policy ${new Bun.CryptoHasher('sha256').update(policy).digest('hex')}`
const far = target('https://far.example/v1', {
  name: 'far',
  attestation: {
    kind: 'tdx',
    policy,
    path: '/attestation',
    intervalMs: 1000,
    collateralFile: null,
    simulatedRoot: null,
  },
})
const parsedConfig = parseConfig('', 'test.toml')
if (!parsedConfig.ok) throw new Error('the default configuration')
const file = { path: 'file', sha256: rootHash, sizeBytes: 1 }
const text = composeWorkloadText({
  gpus: null,
  config: parsedConfig.config,
  manifest: {
    schemaVersion: 1,
    name: 'inference',
    inputsSha256: rootHash,
    rootHash,
    kernelVersion: '6',
    launchDigests: {},
    files: { firmware: file, root: file, kernel: file, initrd: file, cmdline: file },
    gateway: { sha256: rootHash, command: ['strongroom-enclave', 'serve'] },
  },
  upstreams: [far],
  model: null,
  controlKey: 'A'.repeat(43),
  allowlist: null,
})

test('goal: the line of prompts', () => {
  const workload = readWorkload(utf8(text))
  if (workload === null || workload.document === null) throw new Error('a workload')
  const digest = fromHex(new Bun.CryptoHasher('sha256').update(text).digest('hex')) ?? new Uint8Array()
  const gateway = { configurationDigest: digest, allowlistDigest: workload.allowlist.digest } as StatementOf<'workload'>
  const lineOf = (outside: readonly string[]) =>
    workloadChecks(gateway, workload, { outside, workloads: 'any', allow: [] }).find(
      ({ name }) => name === 'workload-upstreams',
    )
  expect(lineOf([])).toMatchObject({ outcome: 'fail', reason: expect.stringContaining(`OUTSIDE, ${by}`) })
  expect(lineOf([])?.reason).toContain("only the gateway's policy covers far")
  expect(lineOf(['far'])).toMatchObject({ outcome: 'pass', reason: expect.stringContaining(`OUTSIDE, ${by}`) })
})

test('goal: the line of a response, and a claim of evidence that workload.json does not ask for', async () => {
  const keys = makeReceiptKeys(systemRandom)
  const sealer = createResponseSealer({
    keys,
    clock: systemClock,
    random: systemRandom,
    inside: new Set(),
    attested: new Set(['far']),
  })
  const request = utf8('{}')
  const { salt, seal } = sealer.begin({ id: 'r', model: 'm', body: request, keyMadeBy: 'client', owner: 'o' })
  const sealing = seal('far')
  sealing.update(request)
  const receipt = carriedReceipt(await sealing.finish({ prompt: 1, completion: 1 }), salt)
  const lineOf = async (outside: readonly string[], attestedBy?: ReadonlyMap<string, string>) => {
    const question = { keys: keys.publicKeys, request, response: request, outside }
    const { checks } = await verifyResponse(receipt, {
      ...question,
      ...(attestedBy === undefined ? {} : { attestedBy }),
    })
    return checks.find(({ name }) => name === 'response-upstream')
  }
  const words = new Map([['far', 'by tdx under policy aa']])
  expect(await lineOf([], words)).toMatchObject({
    outcome: 'fail',
    reason: expect.stringContaining('attested by tdx under policy aa: only the gateway'),
  })
  expect(await lineOf(['far'], words)).toMatchObject({
    outcome: 'not-checked',
    reason: expect.stringContaining('attested by tdx under policy aa: the caller allowed'),
  })
  expect(await lineOf(['far'])).toMatchObject({ reason: expect.stringContaining('attested by evidence of its own') })
  expect(await lineOf(['far'], new Map())).toMatchObject({ outcome: 'fail' })
})
