// Attestations of instances for tests: real claim receipts over a simulated platform, with any part changed.

import { countingRandom, operatorKey, sampleKeys } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { sampleDocument, sampleFields, sampleGateway } from '../../../scripts/rigs/instances/sample-claim.ts'
import {
  chipIdOf,
  SIMULATED_TCBS,
  simulatedAsOf,
  simulatedPlatform,
} from '../../../scripts/rigs/launch/simulated-platform.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { type Policy, strictPolicy } from '../../../src/attest/policy/policy.ts'
import { portableSigner } from '../../../src/attest/receipt/hybrid-keys.ts'
import { issueReceipt } from '../../../src/attest/receipt/issue.ts'
import type { StatementFields } from '../../../src/attest/receipt/new-statement.ts'
import type { Receipt, ReceiptEvidence } from '../../../src/attest/receipt/receipt.ts'
import { issueSimulatedCrl, issueSimulatedVcek } from '../../../src/attest/simulator/certificates.ts'
import type { SimulatedReport } from '../../../src/attest/simulator/report.ts'
import { present } from '../../../src/base/assert.ts'
import { concat, fromBase64, fromHex, toBase64, toBase64Url, toHex, utf8 } from '../../../src/base/bytes.ts'
import type { InstanceAttestation } from '../../../src/contract/http/instance-attestation.ts'
import { type ClaimDocument, claimText } from '../../../src/contract/vm/claim-document.ts'
import { type LaunchDocument, launchFormat, launchText } from '../../../src/contract/vm/launch.ts'
import type { InstanceIdentity, InstanceQuestion } from '../../../src/verifier/instance.ts'
import { allInstancePins } from '../../../src/verifier/instance-pins.ts'
import { type ExpectedImage, readExpectedImage } from '../../../src/verifier/launch.ts'

export const sampleInstance: InstanceIdentity = {
  name: 'k3v9x2ma',
  organization: 'acme',
  hostname: 'k3v9x2ma.acme.agents.example',
}
export const sampleNonce = Uint8Array.from({ length: 32 }, (_, at) => 255 - at)
export const sampleHostKey = ed25519Line(1)
export const samplePublicKey = `${ed25519Line(2)} owner@example`
export const sampleMeasurement = new Uint8Array(48).fill(9)

/** A key line, of a point that nobody has the secret of. */
export function ed25519Line(fill: number): string {
  const length = (bytes: number) => Uint8Array.of(0, 0, 0, bytes)
  const type = utf8('ssh-ed25519')
  const blob = concat(length(type.length), type, length(32), new Uint8Array(32).fill(fill))
  return `ssh-ed25519 ${toBase64(blob)}`
}

export const sampleLaunch: LaunchDocument = {
  format: launchFormat,
  image: { name: 'instance', rootHash: 'a1'.repeat(32), inputsSha256: 'a2'.repeat(32) },
  vehicle: 'ovmf',
  firmwareSha256: 'a3'.repeat(32),
  kernelSha256: 'a4'.repeat(32),
  initrdSha256: 'a5'.repeat(32),
  cmdlineSha256: 'a6'.repeat(32),
  vcpus: 2,
  vcpuType: 'EPYC-v4',
  memoryMib: 2048,
  policy: '0x30000',
  measurement: toHex(sampleMeasurement),
}

/** manifest.json of the image that the sample launch is of. */
export const sampleManifestText = JSON.stringify({
  schemaVersion: 1,
  name: 'instance',
  inputsSha256: 'a2'.repeat(32),
  rootHash: 'a1'.repeat(32),
  files: {
    firmware: { path: 'firmware.fd', sha256: 'a3'.repeat(32), sizeBytes: 1 },
    root: { path: 'root.img', sha256: 'a7'.repeat(32), sizeBytes: 1 },
    kernel: { path: 'kernel', sha256: 'a4'.repeat(32), sizeBytes: 1 },
    initrd: { path: 'initrd', sha256: 'a5'.repeat(32), sizeBytes: 1 },
    cmdline: { path: 'cmdline', sha256: 'a6'.repeat(32), sizeBytes: 1 },
  },
  agent: { name: 'opencode', version: '1' },
  kernelVersion: '6.1',
  launchDigests: { 'qemu-kvm/bios/EPYC-v4/1': 'bb'.repeat(48), 'qemu-kvm/bios/EPYC-v4/2': toHex(sampleMeasurement) },
})

export function sampleImage(): ExpectedImage {
  return readExpectedImage(utf8(sampleManifestText))
}

export type WantedAttestation = {
  readonly instance?: InstanceIdentity
  readonly nonce?: Uint8Array
  /** When it is made; the platform's certificates and revocation list are made to be valid then. */
  readonly nowMs?: number
  /** `ssh-ed25519 AAAA…`. */
  readonly hostKey?: string
  readonly publicKey?: string
  /** The text itself where it is no document's. */
  readonly launch?: LaunchDocument | string
  /** Claim that the guest states; the document shows it too, unless `shownClaim` differs. */
  readonly claim?: ClaimDocument
  readonly shownClaim?: string
  /** Report of the hardware, where it differs from the launch document. */
  readonly report?: SimulatedReport['report']
  readonly hostData?: Uint8Array
  /** Fields of the statement that are not what the document says; `kind` makes another receipt of it. */
  readonly statement?: Readonly<Record<string, unknown>>
}

/** As `GET /v1/instances/{name}/attestation` has it in `data`. */
export async function makeInstanceAttestation(wanted: WantedAttestation = {}): Promise<InstanceAttestation> {
  const instance = wanted.instance ?? sampleInstance
  const nonce = wanted.nonce ?? sampleNonce
  const hostKey = wanted.hostKey ?? sampleHostKey
  const publicKey = wanted.publicKey ?? samplePublicKey
  const launch = wanted.launch ?? sampleLaunch
  const text = typeof launch === 'string' ? launch : launchText(launch)
  const claim = wanted.claim ?? sampleDocument({ ...instance, publicKey })
  const fields = {
    kind: 'claim',
    nonce,
    operatorKey,
    ...instance,
    image: { name: sampleLaunch.image.name, measurement: sampleMeasurement },
    sshHostKeyDigest: keyDigest(hostKey),
    publicKeyDigest: keyDigest(publicKey),
    ...sampleFields(claim),
    loginKeys: null,
    egressPolicy: null,
    secrets: null,
    published: null,
    ...wanted.statement,
  }
  const receipt = await issueReceipt({
    // Tests make statements that are wrong, too; issueReceipt checks each field's form.
    fields: fields as unknown as StatementFields,
    publicKeys: sampleKeys().publicKeys,
    sign: portableSigner(sampleKeys().secretKeys, countingRandom(70)),
    evidenceSource: reportData => platformEvidence(reportData, text, wanted),
    platform: 'simulated',
    nowMs: wanted.nowMs ?? simulatedAsOf.getTime(),
  })
  return {
    schemaVersion: 1,
    scope: 'claim-only',
    ...instance,
    nonce: toBase64Url(nonce),
    known_hosts: `${instance.hostname} ${hostKey}`,
    public_key: publicKey,
    launch: text,
    claim: wanted.shownClaim ?? claimText(claim),
    receipt: mutable(receipt),
  }
}

function mutable(receipt: Receipt): InstanceAttestation['receipt'] {
  return JSON.parse(JSON.stringify(receipt))
}

function keyDigest(line: string): Uint8Array {
  return sha256(present(fromBase64(line.split(' ')[1] ?? ''), 'base64 in the key line'))
}

/** Evidence of the simulated platform; `text`: its launch document. */
export async function platformEvidence(
  reportData: Uint8Array,
  text: string,
  wanted: WantedAttestation = {},
): Promise<ReceiptEvidence> {
  const { authority, report } = await simulatedPlatform('genoa')
  const nowMs = wanted.nowMs ?? simulatedAsOf.getTime()
  const day = (by: number) => new Date(Math.floor(nowMs / 1000) * 1000 + by * 86_400_000)
  const [vek, crl, signed] = await Promise.all([
    issueSimulatedVcek(authority, {
      tcb: SIMULATED_TCBS.genoa,
      chipId: chipIdOf('genoa'),
      validity: { notBefore: day(-1), notAfter: day(1) },
    }),
    issueSimulatedCrl(authority, { thisUpdate: day(-1), nextUpdate: day(1), revoked: [] }),
    report({
      reportData,
      measurement: sampleMeasurement,
      hostData: wanted.hostData ?? sha256(utf8(text)),
      // SMT, and ALIAS_CHECK_COMPLETE, which the floors ask for.
      report: { idKeyDigest: operatorKey, platformInfo: 0x21n, ...wanted.report },
    }),
  ])
  return { report: signed, vek, chain: [authority.root.ask, authority.root.ark], crl }
}

/** Measurement and operator key of the samples. */
export function samplePolicy(): Policy {
  const measurement = present(fromHex(sampleLaunch.measurement), 'hexadecimal')
  return { ...strictPolicy(), measurements: [measurement], idKeyDigest: operatorKey }
}

/** The owner's policy for the gateway in the samples' claim. */
export const sampleGatewayPolicy: Policy = {
  ...strictPolicy(),
  measurements: sampleGateway.measurements.map(hex => present(fromHex(hex), 'hexadecimal')),
  idKeyDigest: present(fromHex(sampleGateway.operatorKey ?? ''), 'hexadecimal'),
}

/** Question of an owner that trusts the simulation and knows all of it. */
export async function instanceQuestion(changes: Partial<InstanceQuestion> = {}): Promise<InstanceQuestion> {
  const { authority } = await simulatedPlatform('genoa')
  return {
    instance: sampleInstance,
    nonce: sampleNonce,
    asOf: simulatedAsOf.getTime(),
    ageMsMax: 60_000,
    roots: [authority.root],
    policy: samplePolicy(),
    pins: allInstancePins,
    crl: undefined,
    publicKey: samplePublicKey,
    image: sampleImage(),
    gateway: { policy: sampleGatewayPolicy, outside: [], unattested: 'none' },
    ...changes,
  }
}

/** The files that a client names: root and policies. */
export async function clientFiles(): Promise<Record<'root' | 'policy' | 'gatewayPolicy', string>> {
  const { ark, ask, asvk } = (await simulatedPlatform('genoa')).authority.root
  return {
    root: [ark, ask, asvk].map(der => toPem(der, 'CERTIFICATE')).join(''),
    policy: JSON.stringify(encodePolicy(samplePolicy())),
    gatewayPolicy: JSON.stringify(encodePolicy(sampleGatewayPolicy)),
  }
}
