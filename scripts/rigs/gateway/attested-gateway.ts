// A gateway as a relying party meets it: HTTPS, simulated evidence for its TLS key, an upstream behind it. Can be
// restarted with new keys. Effects: files, free ports.

import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { type Authority, openAuthority } from '../../../src/http/authority.ts'
import { makeReceiptKeys } from '../../../src/inference/attestation/receipt-keys.ts'
import { createResponseSealer } from '../../../src/inference/attestation/response-sealer.ts'
import { createOwnEncryption } from '../../../src/inference/encryption/encryption.ts'
import type { Authenticate } from '../../../src/inference/types.ts'
import { spkiDigestOf } from '../../../src/linux/keys/spki.ts'
import { allowlistText, configurationText, imageDigest, openRig, rigDir, simulatedHost } from './attestation.ts'
import { startHostGateway, type TestGateway, target } from './server.ts'
import type { TestUpstream } from './upstream-server.ts'

export type AttestedGateway = AsyncDisposable & {
  readonly url: string
  readonly port: number
  readonly gateway: TestGateway
  readonly pair: Certified
  readonly tlsSpkiDigest: Uint8Array
  /** How often it was asked for evidence. */
  readonly nonceCount: () => number
  /** Requests that came encrypted. */
  readonly encryptedCount: () => number
  /** `METHOD /path` of every request. */
  readonly seen: string[]
}

export type Certified = { readonly cert: string; readonly key: string }

let authority: Promise<Authority> | null = null

/** One for all servers of this process, with small keys. */
export function serverAuthority(): Promise<Authority> {
  authority ??= openAuthority({
    kind: 'clients',
    stateDir: rigDir(),
    names: ['localhost'],
    nowMs: systemClock.nowMs,
    random: systemRandom,
  })
  return authority
}

type AttestedGatewayOptions = {
  readonly pair?: Certified
  readonly corsOrigins?: readonly string[]
  readonly authenticate?: Authenticate
}

/** With new receipt keys, and a new TLS key unless there is a `pair`. */
export async function startAttestedGateway(
  upstream: TestUpstream,
  options: AttestedGatewayOptions = {},
): Promise<AttestedGateway> {
  const pair = options.pair ?? (await (await serverAuthority()).issue(['127.0.0.1'], 1))
  const keys = makeReceiptKeys(systemRandom)
  const tlsSpkiDigest = spkiDigestOf(pair.cert)
  const rig = await openRig({ keys, tlsSpkiDigest })
  let nonceCount = 0
  const seen: string[] = []
  const encryption = createOwnEncryption({ keys, random: systemRandom, clock: systemClock })
  const gateway = startHostGateway([target(upstream.url)], {
    limits: { corsOrigins: [...(options.corsOrigins ?? [])] },
    host: {
      encryption,
      sealer: createResponseSealer({ keys, clock: systemClock, random: systemRandom, inside: new Set() }),
      ...(options.authenticate === undefined ? {} : { authenticate: options.authenticate }),
      attestation: (request, address) => {
        nonceCount += 1
        return rig.endpoint(request, address())
      },
    },
  })
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    tls: { cert: pair.cert, key: pair.key },
    development: false,
    idleTimeout: 60,
    fetch: (request, bun) => {
      seen.push(`${request.method} ${new URL(request.url).pathname}`)
      return gateway.gateway.fetch(request, () => bun.requestIP(request)?.address ?? '')
    },
  })
  return {
    url: `https://127.0.0.1:${server.port}`,
    port: server.port ?? 0,
    gateway,
    pair,
    tlsSpkiDigest,
    nonceCount: () => nonceCount,
    encryptedCount: () => encryption.counts.xwing.decrypted,
    seen,
    [Symbol.asyncDispose]: async () => {
      await server.stop(true)
      await gateway[Symbol.asyncDispose]()
      rig[Symbol.dispose]()
    },
  }
}

/** Options of a relying party that expects exactly this gateway, without its address; JSON for another process. */
export async function attestedOptions() {
  const { rootFile, operatorKey, measurementOf } = await simulatedHost()
  return {
    policy: encodePolicy({ ...strictPolicy(), measurements: [measurementOf(imageDigest)], idKeyDigest: operatorKey }),
    allowlist: allowlistText,
    configuration: configurationText,
    simulatedRoot: await Bun.file(rootFile).text(),
    ca: (await serverAuthority()).caPem,
  }
}
