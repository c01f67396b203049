// HTTPS servers for tests of `verify gateway`: the real attestation endpoint, a man in the middle, and any other.
// Effects: files, free ports.

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  allowlistText,
  configurationText,
  imageDigest,
  openRig,
  type RigOptions,
  rigDir,
  simulatedHost,
} from '../../../scripts/rigs/gateway/attestation.ts'
import { strictPolicy } from '../../../src/attest/index.ts'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { openAuthority } from '../../../src/http/authority.ts'
import { spkiDigestOf } from '../../../src/linux/keys/spki.ts'

const authority = await openAuthority({
  kind: 'clients',
  stateDir: rigDir(),
  names: ['localhost'],
  nowMs: systemClock.nowMs,
  random: systemRandom,
})

type Handle = (request: Request) => Response | Promise<Response>

export type GatewayServer = Disposable & { readonly url: string }

/** `workload`: text of workload.json, where it serves one. */
export type ServedOptions = Pick<RigOptions, 'origin' | 'configurationDigest' | 'gpus'> & {
  readonly workload?: string
  /** Answers requests for anything but evidence. */
  readonly other?: Handle
}

/** The endpoint, with a certificate of its own whose key the receipts name. */
export async function startGateway({ workload, other, ...options }: ServedOptions = {}): Promise<GatewayServer> {
  const pair = await authority.issue(['127.0.0.1'], 1)
  const rig = await openRig({ ...options, tlsSpkiDigest: spkiDigestOf(pair.cert) })
  const server = serve(pair, request => {
    const { pathname } = new URL(request.url)
    if (workload !== undefined && pathname === '/workload.json') return new Response(workload)
    return other === undefined || pathname === '/attestation' ? rig.endpoint(request) : other(request)
  })
  return {
    url: server.url,
    [Symbol.dispose]: () => {
      server[Symbol.dispose]()
      rig[Symbol.dispose]()
    },
  }
}

/** Any server, with another key in a certificate that is as good as the gateway's. */
export async function startOther(handle: Handle): Promise<GatewayServer> {
  return serve(await authority.issue(['127.0.0.1'], 1), handle)
}

/** A server between client and gateway that forwards every request. */
export async function startMiddle(gateway: GatewayServer): Promise<GatewayServer> {
  return await startOther(async request => {
    const { pathname, search } = new URL(request.url)
    return await fetch(`${gateway.url}${pathname}${search}`, { tls: { ca: authority.caPem } })
  })
}

function serve(pair: { cert: string; key: string }, handle: Handle) {
  const server = Bun.serve({ hostname: '127.0.0.1', port: 0, tls: pair, fetch: handle })
  return { url: `https://127.0.0.1:${server.port}`, [Symbol.dispose]: () => void server.stop(true) }
}

export function file(name: string, content: string | Uint8Array): string {
  const path = join(rigDir(), name)
  writeFileSync(path, content)
  return path
}

/** Written anew: another test file of this process may have cleared the rig since. */
export function writeCaFile(): string {
  return file('ca-of-servers.pem', authority.caPem)
}

/** Options of a relying party that trusts the simulated root and expects exactly this gateway. */
export async function everything(): Promise<string[]> {
  const { rootFile, operatorKey, measurementOf } = await simulatedHost()
  const policy = { ...strictPolicy(), measurements: [measurementOf(imageDigest)], idKeyDigest: operatorKey }
  return [
    ...['--trust-simulated-root', rootFile, '--policy', file('policy.json', JSON.stringify(encodePolicy(policy)))],
    ...['--allowlist', file('allowlist.json', allowlistText)],
    ...['--configuration', file('configuration.json', configurationText)],
  ]
}
