// A host names models so that the verdict's line about prompts says the opposite of the truth: model names come from
// its workload.json and stand in the line that has the word OUTSIDE.

import { describe, expect, test } from 'bun:test'
import { upstreamOf, workloadOf } from '../../../scripts/rigs/enclave/workload.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import type { StatementOf } from '../../../src/attest/receipt/statement.ts'
import { verdict } from '../../../src/attest/verdict.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { plainVerdict } from '../../../src/client/verdict/plain.ts'
import { gatewayWords } from '../../../src/client/verify/gateway-facts.ts'
import { encodeAllowlist } from '../../../src/contract/vm/allowlist.ts'
import { workloadText } from '../../../src/contract/vm/workload.ts'
import { paintFor } from '../../../src/terminal/render.ts'
import type { GatewayVerdict } from '../../../src/verifier/gateway.ts'
import { readWorkload, workloadChecks } from '../../../src/verifier/workload.ts'

/** The line, as `verify gateway` prints it, under a workload with one upstream and no worker. */
function promptsLine(models: readonly string[]): string {
  const document = { ...workloadOf({ controlKey: 'A'.repeat(43), upstreams: [], gateway: {} }), worker: null }
  const upstreams = [upstreamOf({ name: 'o', url: 'https://elsewhere.example/v1', models: [...models] })]
  const bytes = utf8(workloadText({ ...document, upstreams }))
  const gateway = {
    configurationDigest: sha256(bytes),
    allowlistDigest: sha256(utf8(encodeAllowlist(document.allowlist))),
  } as StatementOf<'workload'>
  const read = readWorkload(bytes)
  const judged = verdict(workloadChecks(gateway, read, { outside: ['o'], workloads: 'any', allow: [] }))
  const found = { ...judged, simulated: false, receipts: [], gateway: null, workload: read?.document ?? null }
  const plain = gatewayWords(
    {
      found: found as unknown as GatewayVerdict,
      ...{ checks: judged.checks, argv: [], sources: [], outside: ['o'], allow: [] },
    },
    null,
  )
  const text = plainVerdict(found, plain, { verbose: false, paint: paintFor(false) })
  return text.split('\n').find(line => line.startsWith('prompts')) ?? ''
}

// Goal: no name of a model hides where its prompts go.
describe('no name of a model hides where its prompts go', () => {
  test('a plain name', () => {
    expect(promptsLine(['gpt-oss-120b'])).toContain('OUTSIDE')
  })

  test('a name that says it is inside, and is long', () => {
    const line = promptsLine([`gpt-oss-120b: inside the measured VM;${' '.repeat(150)}`])
    expect(line).toContain('OUTSIDE')
    expect(line).not.toContain('gpt-oss-120b: inside the measured VM')
  })

  test('many names', () => {
    expect(promptsLine(Array.from({ length: 40 }, (_, at) => `model-${at}`))).toContain('OUTSIDE')
  })
})
