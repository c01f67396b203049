// A relying party and an instance: the same attestation document under its owner's expectations and under wrong ones.
// Pure.

import { present } from '../../../src/base/assert.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import {
  AMD_ROOTS,
  allInstancePins,
  type ExpectedGateway,
  type InstancePins,
  type InstanceQuestion,
  parsePolicy,
  readExpectedImage,
  readInstanceHostname,
  readSimulatedRoot,
  strictPolicy,
  verifyInstance,
} from '../../../src/verifier/index.ts'
import { fromBase64Text, type Vectors } from './input.ts'
import { orRefused, type Told, told } from './outcome.ts'

export async function instanceSuite({ instance }: Vectors): Promise<unknown> {
  const { document, hostname } = instance
  const asked = present(readInstanceHostname(hostname), 'NAME.ORGANIZATION.DOMAIN')
  const gateway: ExpectedGateway = {
    policy: parsePolicy(JSON.parse(instance.gatewayPolicy)),
    outside: [],
    unattested: 'none',
  }
  const question: InstanceQuestion = {
    instance: asked,
    nonce: fromBase64Text(instance.nonce),
    asOf: instance.asOf,
    ageMsMax: 60_000,
    roots: [...AMD_ROOTS, readSimulatedRoot(utf8(instance.root))],
    policy: parsePolicy(JSON.parse(instance.policy)),
    pins: allInstancePins,
    crl: undefined,
    publicKey: instance.publicKey,
    image: readExpectedImage(utf8(instance.manifest)),
    gateway,
  }
  const verify = (changes: Partial<InstanceQuestion>, text = document) =>
    verifyInstance(utf8(text), { ...question, ...changes })
  const waived: InstancePins = {
    measurement: 'any',
    'operator-key': 'any',
    gateway: 'any',
    vmpl: 'any',
    crl: 'any',
    tcb: 'any',
  }
  const loose = {
    policy: { ...strictPolicy(), vmpls: 'any' as const },
    image: 'any' as const,
    gateway: { ...gateway, policy: 'any' as const },
  }
  const cases = {
    good: verify({}),
    nonce: verify({ nonce: new Uint8Array(32) }),
    organization: verify({ instance: { ...asked, organization: 'other' } }),
    hostname: verify({ instance: { ...asked, hostname: `x${hostname}` } }),
    ownKey: verify({ publicKey: 'ssh-rsa AAAA' }),
    root: verify({ roots: AMD_ROOTS }),
    late: verify({ asOf: instance.asOf + 3_600_000 }),
    nothingExpected: verify({ nonce: 'any', publicKey: 'any', image: 'any' }),
    nothingPinned: verify(loose),
    waived: verify({ ...loose, pins: waived }),
    image: verify({ image: readExpectedImage(utf8(instance.manifest.replaceAll('a4', 'a0'))) }),
    launch: verify({}, document.replace('a5a5', 'a5a6')),
    authority: verify({}, document.replace(`"${hostname} ssh`, `"@cert-authority ${hostname} ssh`)),
    gateway: verify({ gateway: { ...gateway, policy: strictPolicy() } }),
    prompts: verify({}, document.replace('inference.strongroom.internal', 'inference.strongroom.external')),
    changed: verify({}, document.replace('claim-only', 'everything')),
    twice: verify({}, document.replace('{', '{"schemaVersion":1,')),
    cut: verify({}, document.slice(0, -1)),
  }
  const verdicts: Record<string, Told> = {}
  for (const [name, verdict] of Object.entries(cases)) verdicts[name] = told(await verdict)
  const { simulated, knownHost, xwingPublicKey, launch, hostKey } = await cases.good
  const bad = await cases.nonce
  return {
    verdicts,
    simulated,
    knownHost,
    xwingPublicKey,
    launch,
    hostKey,
    bad: { knownHost: bad.knownHost, xwingPublicKey: bad.xwingPublicKey },
    refused: { manifest: await orRefused(() => readExpectedImage(utf8('{}'))) },
  }
}
