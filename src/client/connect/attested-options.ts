// The relying party's expectations of the gateway, from the options shared with `verify gateway`. Effects: reads files.
// Fault invalid_request.

import { BUNDLE_LIMITS } from '../../attest/encoding/pem.ts'
import { encodePolicy } from '../../attest/policy/encode.ts'
import { fail } from '../../attest/verdict.ts'
import { iso, systemClock } from '../../base/clock.ts'
import { InputFault } from '../../terminal/exit.ts'
import { MIB, readOptionalInput } from '../../terminal/input-file.ts'
import type { Sender } from '../../verifier/fetch/endpoint/endpoint.ts'
import { OptionError, VerificationError } from '../../verifier/fetch/errors.ts'
import type { AttestedFetchOptions } from '../../verifier/fetch/options.ts'
import { PINS, pinChecks } from '../../verifier/pins.ts'
import { chipListOf } from '../trust/chip-list.ts'
import { withFlags } from '../trust/pin-options.ts'
import { readTrust, type Trust, type TrustOptions } from '../trust/trust-options.ts'

export type GatewayOptions = TrustOptions & { ca?: string; timeoutMs?: number }

/** Returns the options of the library, and the list of chips, which is read once; null without one. */
export async function readAttestedOptions(url: URL, options: GatewayOptions) {
  const trust = await readTrust(options)
  requirePins(trust)
  const read = (path: string | undefined, param: string, bytesMax = MIB) => readOptionalInput({ path, param, bytesMax })
  const { pins, policy, workload, crl, outside = [], allow = [] } = trust
  const given = {
    allowlist: read(options.allowlist, 'allowlist'),
    configuration: trust.configurationDigest === 'any' ? 'any' : read(options.configuration, 'configuration'),
    simulatedRoot: read(options.trustSimulatedRoot, 'trust-simulated-root', BUNDLE_LIMITS.bytesMax),
    ca: decodeText(read(options.ca, 'ca')),
    workload: workload ?? undefined,
    crl,
    evidenceTimeoutMs: options.timeoutMs,
  }
  const attested: AttestedFetchOptions = {
    ...{ url, policy: encodePolicy(policy), outside, allow },
    pins: Object.fromEntries(PINS.map(pin => [pin, pins[pin]])),
    ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)),
  }
  return { attested, list: chipListOf(policy) }
}

/** Sends while the list counts. Later requests throw VerificationError: its age was compared once, at the start. */
export function sendWhileListed<S extends Pick<Sender, 'send'>>(
  sender: S,
  list: Pick<NonNullable<ReturnType<typeof chipListOf>>, 'path' | 'endsAtMs'> | null,
  nowMs: () => number = systemClock.nowMs,
): S {
  if (list === null) return sender
  const ended = () =>
    `${list.path}: maxAgeDays ended at ${iso(list.endsAtMs)}: get a new list, and start strongroom connect again`
  const send: Sender['send'] = async (to, init) => {
    if (nowMs() > list.endsAtMs) throw new VerificationError('the gateway', [fail('chip-list', ended())])
    return await sender.send(to, init)
  }
  return { ...sender, send }
}

/** Throws if a pin is missing, worded as in `verify gateway`: the library's own messages name its options. */
function requirePins(trust: Trust): void {
  const checks = withFlags(pinChecks(PINS, trust.pins, { ...trust, workloadCount: 0 }))
  const missing = checks.filter(({ outcome }) => outcome === 'fail').map(({ reason }) => reason)
  if (missing.length === 0) return
  throw new InputFault(missing.join('; '), {
    param: 'policy',
    remedy:
      'write a policy with `strongroom verify policy-example --image … --operator-key …`; `strongroom help inference`',
  })
}

function decodeText(bytes: Uint8Array | undefined): string | undefined {
  return bytes === undefined ? undefined : new TextDecoder().decode(bytes)
}

/** Converts the library's rejection of an option to an input error of this command. */
export function asInputFault(error: unknown): unknown {
  if (!(error instanceof OptionError)) return error
  return new InputFault(error.message, { remedy: 'correct the option that the message names', cause: error })
}
