// Inference provider attestation: the gateway's proof, requested like this VM's endpoint requests it before a prompt.
// Effects: reads the two documents with the gateway's requirements; the network.
//
// The endpoint accepts the gateway that the claim names, and the host wrote the claim; the reader compares these
// lines with a policy file or with their own requirements (strongroom-gateway set).

import { digestsOf } from '../../attest/policy/id-keys.ts'
import type { Policy } from '../../attest/policy/policy.ts'
import { isAllowed, readOutside } from '../../attest/receipt/outside.ts'
import { type Check, check, fail, notChecked, pass } from '../../attest/verdict.ts'
import { toHex } from '../../base/bytes.ts'
import { messageOf } from '../../base/fault.ts'
import type { AttestedGateway } from '../../contract/vm/inference-gateway.ts'
import { readTextOrNull } from '../../linux/files.ts'
import { VerificationError } from '../../verifier/fetch/errors.ts'
import { createAttestedSender } from '../../verifier/fetch/node-sender.ts'
import {
  type AttestedExpectation,
  attestedOptions,
  type Expectation,
  isAttested,
} from '../gateway/expectation.codec.ts'
import { type ExpectationPaths, readExpectation } from '../gateway/expectation-files.ts'
import { drawnKeyOf } from '../gateway/key.ts'
import type { GuestPaths } from '../paths.ts'
import { type Line, lineOf } from './line.ts'

export type GatewayLineQuestion = {
  readonly paths: ExpectationPaths & Pick<GuestPaths, 'gatewayKey'>
  /** SHA-256 of the secret of the gateway key that this VM drew, as in its receipt. Null if there is none. */
  readonly keyDigest: Uint8Array | null
  /** The caller's, for comparison: only its measurements and its operator's key count. */
  readonly policy: Policy
  readonly allowlist: Uint8Array | 'any'
  /** Outside upstreams that the caller accepts. */
  readonly outside: readonly string[]
  /** Settings that show more to the host, or keep content, and that the caller accepts. */
  readonly allow: readonly string[]
  /** PEM of the trusted simulated platform, or null. */
  readonly simulatedRoot: Uint8Array | null
}

const name = 'inference provider attestation'

export async function judgeGateway(question: GatewayLineQuestion): Promise<Line> {
  let expectation: Expectation | null
  try {
    expectation = readExpectation(question.paths)
  } catch (error) {
    return lineOf(name, [fail('expectation', messageOf(error))], '')
  }
  if (expectation === null) {
    return lineOf(name, [notChecked('gateway', 'this instance has no inference gateway', true)], '')
  }
  if (!isAttested(expectation)) return lineOf(name, [notChecked('gateway', unattestedWords(expectation), true)], '')
  const checks = [
    ...(await provedChecks(expectation, question)),
    ...comparedChecks(expectation, question),
    keyCheck(question),
  ]
  return lineOf(name, checks, provedWords(expectation))
}

async function provedChecks(
  expectation: AttestedExpectation,
  { allowlist, simulatedRoot }: GatewayLineQuestion,
): Promise<readonly Check[]> {
  const { host } = expectation.baseUrl
  const { simulatedRoot: named } = expectation.gateway
  if (named !== null && simulatedRoot === null) {
    return [fail('platform-is-hardware', 'SIMULATED: no hardware attests the gateway, and its root is not trusted')]
  }
  try {
    const attested = createAttestedSender({
      ...attestedOptions(expectation),
      ...(named === null || simulatedRoot === null ? {} : { simulatedRoot }),
      allowlist,
    })
    try {
      const { checks } = await attested.verify()
      return [pass('connection', `${host}, over its attested TLS key`), ...checks]
    } finally {
      attested.close()
    }
  } catch (error) {
    if (error instanceof VerificationError) return [pass('connection', host), ...error.checks]
    return [notChecked('attestation', messageOf(error), true)]
  }
}

/** Compares the expectation in force with the caller's; the owner's own settings count as expected. */
function comparedChecks(
  { by, gateway }: AttestedExpectation,
  { policy, outside, allow }: GatewayLineQuestion,
): readonly Check[] {
  const { workloads = [], allow: allowed = [] } = gateway
  return [
    policy.measurements === 'any'
      ? checkPin('pin-measurement', by, 'name those that you expect in a --policy')
      : check('pin-measurement', isSubset(gateway.measurements, policy.measurements.map(toHex)), OTHER),
    policy.idKeyDigest === 'any'
      ? checkPin('pin-operator-key', by, 'name the one that you expect in a --policy')
      : check(
          'pin-operator-key',
          digestsOf(policy.idKeyDigest)
            .map(toHex)
            .some(key => key === gateway.operatorKey),
          OTHER,
        ),
    policy.hostData === 'any'
      ? pass('pin-workload', workloadWords(gateway))
      : check('pin-workload', workloads.length > 0 && isSubset(workloads, [toHex(policy.hostData)]), OTHER),
    allowed.every(name => allow.includes(name))
      ? pass('pin-allow', allowed.join(', ') || 'no setting that shows more to the host')
      : checkPin('pin-allow', by, `the gateway may have ${allowed.join(', ')}: allow each with --allow`),
    gateway.outside.length === 0 || gateway.outside.every(entry => isAllowedEntry(outside, entry))
      ? pass('pin-outside', outsideWords(gateway))
      : checkPin('pin-outside', by, `prompts may go to ${gateway.outside.join(', ')}: name each with --allow-outside`),
  ]
}

/** The programs of this VM use the key that it drew: the host has the digest alone. */
function keyCheck({ paths, keyDigest }: GatewayLineQuestion): Check {
  const name = 'gateway-key'
  if (keyDigest === null) return notChecked(name, 'no receipt proves that this VM drew its gateway key', false)
  const inUse = drawnKeyOf(readTextOrNull(paths.gatewayKey)?.trim() ?? '')
  const isDrawn = inUse?.secretSha256 === toHex(keyDigest)
  return check(name, isDrawn, `the key in ${paths.gatewayKey} is not the one that this VM drew`, toHex(keyDigest))
}

const OTHER = 'the gateway may be another one than your policy names'

function isSubset(these: readonly string[], those: readonly string[]): boolean {
  return these.every(text => those.includes(text))
}

function checkPin(pin: string, by: Expectation['by'], advice: string): Check {
  if (by === 'owner') return pass(pin, 'as strongroom-gateway was given it')
  return notChecked(pin, `only the host names what is expected: ${advice}, or set it with strongroom-gateway`, true)
}

function provedWords({ by, baseUrl, gateway }: AttestedExpectation): string {
  const { measurements, operatorKey, simulatedRoot } = gateway
  const words = [
    `${baseUrl.host}, over its attested TLS key, with fresh evidence of ${simulatedRoot === null ? 'hardware' : 'a SIMULATED platform'}`,
    `measurement ${measurements.join(' or ')}`,
    `operator key ${operatorKey ?? 'any'}`,
    workloadWords(gateway),
    outsideWords(gateway),
    by === 'claim' ? 'as the claim names it' : 'as you gave it to strongroom-gateway',
  ]
  return words.join('; ')
}

function isAllowedEntry(allowed: readonly string[], entry: string): boolean {
  const { name, origin } = readOutside(entry)
  return isAllowed(allowed, name, origin)
}

function workloadWords({ workloads }: AttestedGateway): string {
  return workloads === undefined ? 'any workload.json of its operator' : `workload.json ${workloads.join(' or ')}`
}

function outsideWords({ outside }: AttestedGateway): string {
  return outside.length === 0 ? 'no upstream outside of its VM' : `upstreams outside of its VM: ${outside.join(', ')}`
}

function unattestedWords({ baseUrl, gateway }: Expectation): string {
  const why = gateway.kind === 'unattested' ? WHY[gateway.why] : 'no information is available about it'
  return `${baseUrl.host} is not attested: ${why}; its operator can read your prompts`
}

const WHY = {
  host: "it runs in the host's own process",
  'no-worker': 'its VM has no worker of its own, and so no evidence',
  elsewhere: 'it is run elsewhere',
} as const
