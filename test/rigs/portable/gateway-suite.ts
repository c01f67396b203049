// A relying party and a gateway: the same attestation document under its own expectations and under wrong ones, and one
// response. Pure.

import { utf8 } from '../../../src/base/bytes.ts'
import {
  AMD_ROOTS,
  allPins,
  type GatewayQuestion,
  type GatewayResponse,
  type Pins,
  readAllowlist,
  readSimulatedRoot,
  strictPolicy,
  verifyGateway,
  verifyGatewayResponse,
} from '../../../src/verifier/index.ts'
import { fromBase64Text, type Vectors } from './input.ts'
import { orRefused, type Told, told } from './outcome.ts'

export async function gatewaySuite({ gateway }: Vectors): Promise<unknown> {
  const { document, allowlist, exchange } = gateway
  const question: GatewayQuestion = {
    nonce: fromBase64Text(gateway.nonce),
    asOf: gateway.asOf,
    ageMsMax: 60_000,
    roots: [...AMD_ROOTS, readSimulatedRoot(utf8(gateway.root))],
    policy: {
      ...strictPolicy(),
      measurements: [fromBase64Text(gateway.measurement)],
      idKeyDigest: fromBase64Text(gateway.operatorKey),
    },
    pins: allPins,
    crl: undefined,
    allowlist: readAllowlist(utf8(allowlist)),
    tlsSpkiDigest: fromBase64Text(gateway.tlsSpkiDigest),
    configurationDigest: fromBase64Text(gateway.configurationDigest),
  }
  const verify = (changes: Partial<GatewayQuestion>, text = document) =>
    verifyGateway(utf8(text), { ...question, ...changes })
  const waived: Pins = { measurement: 'any', allowlist: 'any', vmpl: 'any', crl: 'any', tcb: 'any' }
  const otherBytes = new Uint8Array(32).fill(1)
  const cases = {
    good: verify({}),
    nonce: verify({ nonce: otherBytes }),
    tls: verify({ tlsSpkiDigest: otherBytes }),
    configuration: verify({ configurationDigest: otherBytes }),
    allowlist: verify({ allowlist: readAllowlist(utf8(allowlist.replace('--part=2', '--part=7'))) }),
    root: verify({ roots: AMD_ROOTS }),
    late: verify({ asOf: gateway.asOf + 3_600_000 }),
    nothingExpected: verify({ nonce: 'any', allowlist: 'any', tlsSpkiDigest: 'any', configurationDigest: 'any' }),
    nothingPinned: verify({ policy: { ...strictPolicy(), vmpls: 'any' }, allowlist: 'any' }),
    waived: verify({ policy: { ...strictPolicy(), vmpls: 'any' }, allowlist: 'any', pins: waived }),
    changed: verify({}, document.replace('launch-or-admission-only', 'everything')),
    twice: verify({}, document.replace('{', '{"schemaVersion":1,')),
    cut: verify({}, document.slice(0, -1)),
  }
  const verdicts: Record<string, Told> = {}
  for (const [name, verdict] of Object.entries(cases)) verdicts[name] = told(await verdict)
  const good = await cases.good
  const saved: GatewayResponse = {
    request: utf8(exchange.request),
    response: utf8(exchange.response),
    receipt: exchange.receipt,
  }
  const outsider = { ...saved, receipt: exchange.outside }
  const [ours, changed, untrusted, outside, accepted] = await Promise.all([
    verifyGatewayResponse(saved, good),
    verifyGatewayResponse({ ...saved, response: utf8(`${exchange.response} `) }, good),
    verifyGatewayResponse(saved, await cases.root),
    verifyGatewayResponse(outsider, good),
    verifyGatewayResponse(outsider, good, { outside: ['other'] }),
  ])
  return {
    simulated: good.simulated,
    verdicts,
    keys: good.keys,
    gateway: good.gateway,
    responses: {
      good: told(ours),
      changed: told(changed),
      untrusted: told(untrusted),
      outside: told(outside),
      accepted: told(accepted),
    },
    claim: ours.claim,
    refused: { root: await orRefused(() => readSimulatedRoot(utf8('nothing'))) },
  }
}
