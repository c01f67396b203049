// The suite's input: reads test/vectors, and simulates once what all runtimes then verify. Effects: files, and one
// gateway on a free port.

import { resolve } from 'node:path'
import {
  allowlistText,
  clearRig,
  configurationDigest,
  imageDigest,
  newNonce,
  openRig,
  receiptKeys,
  simulatedHost,
  tlsSpkiDigest,
} from '../../../scripts/rigs/gateway/attestation.ts'
import { ehbpKeys, serverContext } from '../../../scripts/rigs/gateway/ehbp.ts'
import { kinds, sampleReceipt } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { simulatedAsOf, simulatedPlatform } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { PRODUCTS, type Product } from '../../../src/attest/amd/product.ts'
import type { EhbpSuite } from '../../../src/attest/ehbp/client.ts'
import { carriedReceipt } from '../../../src/attest/receipt/response.ts'
import { issueSimulatedCrl } from '../../../src/attest/simulator/certificates.ts'
import { decodeCertificate } from '../../../src/attest/x509/certificate.ts'
import { assert, present } from '../../../src/base/assert.ts'
import { concat, fromBase64Url, fromUtf8, toBase64, utf8 } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createResponseSealer } from '../../../src/inference/attestation/response-sealer.ts'
import {
  clientFiles,
  makeInstanceAttestation,
  sampleInstance,
  sampleManifestText,
  sampleNonce,
  samplePublicKey,
} from '../instances/instance-attestation.ts'
import { sealedPrompt, sealSample } from './encryption-suite.ts'
import type { EncryptedVectors, GatewayVectors, InstanceVectors, SimulatedVectors, SuiteInput } from './input.ts'

const folder = resolve(import.meta.dir, '../../vectors')
const patterns = ['reports/*', 'roots/*', 'launch-digest/*', 'ovmf/*', 'igvm/*', 'id-block/*', 'tpm/*']

/** JSON for `runSuite`. */
export async function suiteInput(): Promise<string> {
  const paths = patterns.flatMap(pattern => [...new Bun.Glob(pattern).scanSync({ cwd: folder })]).sort()
  const files = paths.map(async path => [path, toBase64(await Bun.file(resolve(folder, path)).bytes())])
  const authorities = PRODUCTS.map(async product => [product, await simulatedVectors(product)])
  const receipts = kinds.map(async kind => [kind, JSON.stringify(await sampleReceipt(kind))])
  const input: SuiteInput = {
    files: Object.fromEntries(await Promise.all(files)),
    simulated: {
      authorities: Object.fromEntries(await Promise.all(authorities)),
      receipts: Object.fromEntries(await Promise.all(receipts)),
    },
    gateway: await gatewayVectors(),
    instance: await instanceVectors(),
    encrypted: {
      keys: encryptionKeys(),
      responses: { x25519: await encrypted('x25519'), xwing: await encrypted('xwing') },
    },
  }
  return JSON.stringify(input)
}

async function simulatedVectors(product: Product): Promise<SimulatedVectors> {
  const { authority, vcek, vlek, report } = await simulatedPlatform(product)
  const { ark, ask, asvk } = authority.root
  const crl = async (revoked: readonly Uint8Array[], month = 11) => {
    const at = new Date(Date.UTC(2026, month - 1, 1))
    const entries = revoked.map(der => ({ serial: decodeCertificate(der).serial, at }))
    const nextUpdate = new Date(Date.UTC(2026, month, 1))
    return toBase64(await issueSimulatedCrl(authority, { thisUpdate: at, nextUpdate, revoked: entries }))
  }
  return {
    ark: toBase64(ark),
    ask: toBase64(ask),
    asvk: toBase64(asvk),
    vcek: toBase64(vcek),
    vlek: toBase64(vlek),
    vcekReport: toBase64(await report()),
    vlekReport: toBase64(await report({ signer: 'vlek' })),
    crls: {
      good: await crl([]),
      revokesAsk: await crl([ask]),
      revokesAsvk: await crl([asvk]),
      old: await crl([], 9),
    },
  }
}

/** From a gateway's real endpoint on a simulated platform. */
async function gatewayVectors(): Promise<GatewayVectors> {
  try {
    using rig = await openRig()
    const nonce = newNonce()
    const { body } = await rig.get(`?nonce=${nonce}`)
    const { rootFile, operatorKey, measurementOf } = await simulatedHost()
    return {
      document: body,
      root: await Bun.file(rootFile).text(),
      allowlist: allowlistText,
      nonce: toBase64(present(fromBase64Url(nonce), 'base64url')),
      tlsSpkiDigest: toBase64(tlsSpkiDigest),
      configurationDigest: toBase64(configurationDigest),
      measurement: toBase64(measurementOf(imageDigest)),
      operatorKey: toBase64(operatorKey),
      asOf: systemClock.nowMs(),
      exchange: await sealedExchange(),
    }
  } finally {
    clearRig()
  }
}

async function instanceVectors(): Promise<InstanceVectors> {
  const { root, policy, gatewayPolicy } = await clientFiles()
  return {
    document: JSON.stringify(await makeInstanceAttestation()),
    root,
    policy,
    gatewayPolicy,
    manifest: sampleManifestText,
    hostname: sampleInstance.hostname,
    nonce: toBase64(sampleNonce),
    publicKey: samplePublicKey,
    asOf: simulatedAsOf.getTime(),
  }
}

function encryptionKeys(): EncryptedVectors['keys'] {
  const { x25519, mlkem768 } = ehbpKeys.publicKeys
  return { x25519: toBase64(x25519), mlkem768: toBase64(mlkem768) }
}

/** The server's response, in two frames, to the request that the suite seals. Throws when that does not open. */
async function encrypted(suite: EhbpSuite): Promise<EncryptedVectors['responses'][EhbpSuite]> {
  const request = await sealSample(suite, ehbpKeys.publicKeys)
  const context = await serverContext(request.headers['ehbp-encapsulated-key'])
  const opened = fromUtf8(await context.open(request.body, 65_536))
  assert(opened === sealedPrompt, 'the server opens what the suite seals')
  const sealing = await context.sealResponse(systemRandom(32))
  const frames = [await sealing.seal(utf8('{"text":')), await sealing.seal(utf8('"ja"}'))]
  const sealedHeaders = await sealing.sealHeaders({ 'x-strongroom-receipt': 'abc' })
  return {
    headers: { 'ehbp-response-nonce': sealing.nonce, 'x-strongroom-sealed-headers': sealedHeaders },
    body: toBase64(concat(...frames)),
    firstFrameBytes: frames[0]?.length ?? 0,
  }
}

/**
 * A request and its response, with the receipts that the gateway gives for them when its own worker and when another
 * upstream has answered.
 */
async function sealedExchange(): Promise<GatewayVectors['exchange']> {
  const request = '{"model":"tiny","prompt":"x"}'
  const response = '{"id":"req_1"}'
  const sealer = createResponseSealer({
    keys: receiptKeys(),
    clock: systemClock,
    random: systemRandom,
    inside: new Set(['built-in']),
  })
  const begun = sealer.begin({ id: 'req_1', model: 'tiny', body: utf8(request), keyMadeBy: 'client', owner: 'o1' })
  const receiptOf = async (upstream: string) => {
    const sealing = begun.seal(upstream)
    sealing.update(utf8(response))
    return carriedReceipt(await sealing.finish({ prompt: 3, completion: 4 }), begun.salt)
  }
  return { request, response, receipt: await receiptOf('built-in'), outside: await receiptOf('other') }
}
