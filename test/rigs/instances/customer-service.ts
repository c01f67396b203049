// Service A as a customer meets it: its real HTTP over TLS, a real database, and scripted VMs that attest on the
// simulated platform with the host key of a test's sshd. Effects: free ports, files in the caller's directory.

import { generateKeyPairSync } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { countingRandom, operatorKey, sampleKeys } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { claimedOf, simulatedTrust } from '../../../scripts/rigs/guest/attested-guest.ts'
import { type Appliance, type Changes, startAppliance } from '../../../scripts/rigs/instances/instances-service.ts'
import { noSnapshots } from '../../../scripts/rigs/instances/no-snapshots.ts'
import { sampleClaimText, sampleGateway } from '../../../scripts/rigs/instances/sample-claim.ts'
import { portableSigner } from '../../../src/attest/receipt/hybrid-keys.ts'
import { issueReceipt } from '../../../src/attest/receipt/issue.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { type PublishedFiles, publishedFormat } from '../../../src/contract/http/published.ts'
import { launchText } from '../../../src/contract/vm/launch.ts'
import { openAuthority } from '../../../src/http/authority.ts'
import { toAttestation } from '../../../src/instances/attestation.codec.ts'
import { statedFields } from '../../../src/instances/claim.plan.ts'
import type { ClaimedAs } from '../../../src/instances/evidence.verify.ts'
import { sshKeyDigest } from '../../../src/instances/public-key.codec.ts'
import { storeAttestation } from '../../../src/store/directory/attestation.query.ts'
import { moveInstance } from '../../../src/store/directory/instance.query.ts'
import type { Instance } from '../../../src/store/directory/instance.table.ts'
import type { VmEvidence } from '../../../src/vm/engine.ts'
import {
  clientFiles,
  platformEvidence,
  sampleLaunch,
  sampleManifestText,
  sampleMeasurement,
} from './instance-attestation.ts'

/** The status that the next request for a provisioning instance finds. */
type Fate = 'ready' | 'failed' | 'provisioning'

export type CustomerService = AsyncDisposable & {
  readonly url: string
  readonly appliance: Appliance
  /** SSH host key of the VMs, `ssh-ed25519 AAAA…`. */
  hostKey: string
  fate: Fate
  /** Changes the responses of a host that lies; null for none. */
  lie: ((response: Response, path: string, method: string) => Promise<Response>) | null
  /** Method, path and Idempotency-Key of all requests. */
  readonly requests: { readonly method: string; readonly path: string; readonly idempotencyKey: string | null }[]
  /** Directory as an operator hands it out, and the arguments of `client init` for it, without the address. */
  readonly initOptions: readonly string[]
  /** The document at /.well-known/strongroom. */
  published: PublishedFiles
  /** The key in the claim of instances that become ready from now on; null for that of the create. */
  claimedKey: string | null
  /** Leaves out the policy of egress when it claims a VM. */
  loosens: boolean
}

/** `others`: further routes at its address, such as those of a transparency log. Default: VMs take no snapshots. */
export async function startCustomerService(
  directory: string,
  others: Changes['others'] = [],
  snapshots: Changes['snapshots'] = noSnapshots,
): Promise<CustomerService> {
  const clock = createManualClock(Date.now())
  const claims = new Map<string, ClaimedAs>()
  const policies = new Map<string, string | null>()
  const appliance = await startAppliance({
    clock,
    trust: simulatedTrust,
    others,
    snapshots,
    published: () => JSON.stringify(service.published),
    engine: {
      evidence: async (vmId, nonce) => {
        clock.set(Date.now())
        const claimed = claims.get(vmId)
        if (claimed === undefined) throw new Error(`nothing has claimed ${vmId}`)
        return await evidenceOf(nonce, claimed, policies.get(vmId) ?? null)
      },
      handReceipt: async () => {},
    },
  })
  const deps = { kind: 'clients' as const, stateDir: directory, nowMs: systemClock.nowMs, random: systemRandom }
  const authority = await openAuthority({ ...deps, names: ['localhost'] })
  const pair = await authority.issue(['127.0.0.1'], 1)
  const progress = async (path: string) => {
    const [, name = ''] = /^\/v1\/instances\/([a-z0-9]{8})$/.exec(path) ?? []
    if (name === '' || service.fate === 'provisioning') return
    const instance = orNull(() => appliance.instance(name))
    if (instance === null || instance.status !== 'provisioning') return
    if (instance.vmId !== null) policies.set(instance.vmId, service.loosens ? null : instance.egressPolicy)
    if (service.fate === 'failed') fail(appliance, instance)
    else await makeReady(appliance, instance, { claims, hostKey: service.hostKey, publicKey: service.claimedKey })
  }
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    tls: pair,
    fetch: async (request, server) => {
      const path = new URL(request.url).pathname
      service.requests.push({ method: request.method, path, idempotencyKey: request.headers.get('idempotency-key') })
      await progress(path)
      const response = await appliance.http(request, { address: () => server.requestIP(request)?.address ?? '' })
      return service.lie === null ? response : await service.lie(response, path, request.method)
    },
  })
  const initOptions = await operatorDirectory(directory, { caPem: authority.caPem, key: appliance.keys.acme })
  const service: CustomerService = {
    url: `https://127.0.0.1:${server.port}`,
    appliance,
    hostKey: '',
    claimedKey: null,
    loosens: false,
    fate: 'ready',
    lie: null,
    requests: [],
    published: publishedOf(directory, authority.caPem),
    initOptions,
    [Symbol.asyncDispose]: async () => {
      await server.stop(true)
      await appliance[Symbol.asyncDispose]()
    },
  }
  return service
}

async function operatorDirectory(directory: string, { caPem, key }: { caPem: string; key: string }): Promise<string[]> {
  const files = join(directory, 'operator')
  mkdirSync(join(files, 'instance'), { recursive: true })
  mkdirSync(join(files, 'inference'))
  const manifest = JSON.parse(sampleManifestText)
  const gateway = { ...manifest, name: 'inference', launchDigests: { 'qemu-kvm/bios/EPYC-v4/2': 'c1'.repeat(48) } }
  writeFileSync(join(files, 'ca.pem'), caPem)
  writeFileSync(join(files, 'instance/manifest.json'), sampleManifestText)
  writeFileSync(join(files, 'inference/manifest.json'), JSON.stringify(gateway))
  writeFileSync(join(files, 'root.pem'), (await clientFiles()).root)
  const keyFile = join(directory, 'key.txt')
  writeFileSync(keyFile, `${key}\n`, { mode: 0o600 })
  return [
    ...['--files', files, '--operator-key', toHex(operatorKey), '--key-file', keyFile],
    ...['--trust-simulated-root', join(files, 'root.pem')],
  ]
}

/** The host's document about itself: the operator's files, and some key. */
function publishedOf(directory: string, ca: string): PublishedFiles {
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' })
  const manifest = (image: string) => readFileSync(join(directory, 'operator', image, 'manifest.json'), 'utf8')
  return {
    format: publishedFormat,
    ca,
    operator_key: publicKey.export({ format: 'pem', type: 'spki' }).toString(),
    images: { instance: manifest('instance'), inference: manifest('inference'), builder: null },
  }
}

function orNull<T>(work: () => T): T | null {
  try {
    return work()
  } catch {
    return null
  }
}

function fail({ store, clock }: Appliance, { id }: Instance): void {
  const nowMs = clock.nowMs()
  store.transact(tx => {
    moveInstance(tx, {
      id,
      from: 'provisioning',
      to: 'failed',
      nowMs,
      failureCode: 'boot_timeout',
      failureMessage: 'x',
    })
  })
}

type Claiming = { readonly claims: Map<string, ClaimedAs>; readonly hostKey: string; readonly publicKey: string | null }

/** As the reconciler leaves it. */
async function makeReady({ store, clock }: Appliance, instance: Instance, claiming: Claiming): Promise<void> {
  const { claims, hostKey } = claiming
  const { id, name, hostname } = instance
  const publicKey = claiming.publicKey ?? instance.publicKey
  const owner = { organization: 'acme', name, hostname, publicKey }
  const gateway = { ...sampleGateway, operatorKey: toHex(operatorKey) }
  const claimed = { ...claimedOf(owner), claim: sampleClaimText(owner, gateway), sshHostKey: hostKey }
  claims.set(String(instance.vmId), claimed)
  const nonce = new Uint8Array(32).fill(1)
  const document = toAttestation(await evidenceOf(nonce, claimed, instance.egressPolicy), { nonce, claimed })
  const nowMs = clock.nowMs()
  store.transact(tx => {
    moveInstance(tx, { id, from: 'provisioning', to: 'ready', nowMs, readyAtMs: nowMs })
    storeAttestation(tx, {
      instanceId: id,
      nonce: document.nonce,
      sshHostKey: hostKey,
      attestedAtMs: nowMs,
      document: JSON.stringify(document),
    })
  })
}

async function evidenceOf(nonce: Uint8Array, claimed: ClaimedAs, egressPolicy: string | null): Promise<VmEvidence> {
  const nowMs = Date.now()
  const launch = launchText(sampleLaunch)
  const receipt = await issueReceipt({
    fields: {
      kind: 'claim',
      nonce,
      operatorKey,
      image: { name: sampleLaunch.image.name, measurement: sampleMeasurement },
      organization: claimed.organization,
      name: claimed.name,
      hostname: claimed.hostname,
      sshHostKeyDigest: sshKeyDigest(claimed.sshHostKey),
      publicKeyDigest: sshKeyDigest(claimed.publicKey),
      ...statedFields(claimed.claim),
      loginKeys: null,
      egressPolicy,
      secrets: null,
      published: null,
    },
    publicKeys: sampleKeys().publicKeys,
    sign: portableSigner(sampleKeys().secretKeys, countingRandom(50)),
    evidenceSource: reportData => platformEvidence(reportData, launch, { nowMs }),
    platform: 'simulated',
    nowMs,
  })
  return { receipt, launch, operatorKey, simulated: true }
}
