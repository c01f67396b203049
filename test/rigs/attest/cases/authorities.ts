// Certificates and revocation lists for random cases: good ones, and ones with a fault each that a verifier has to see.
// Made once by the simulator and @peculiar/x509.

import { chipIdOf, simulatedPlatform, vekValidity } from '../../../../scripts/rigs/launch/simulated-platform.ts'
import type { Product } from '../../../../src/attest/amd/product.ts'
import type { Tcb } from '../../../../src/attest/amd/tcb.ts'
import { VEK_OID } from '../../../../src/attest/amd/vek-extensions.ts'
import {
  issueSimulatedVcek,
  issueSimulatedVlek,
  type SimulatedAuthority,
} from '../../../../src/attest/simulator/certificates.ts'
import { OID } from '../../../../src/attest/x509/certificate.ts'
import { loadX509 } from '../../../../src/attest/x509/runtime.ts'
import { AUTHORITY, type Forged, forgeCrl, reissue } from '../forged-chain.ts'
import type { SecondRoot } from '../second/verify.ts'
import type { Random } from './random.ts'

export const asOf = Date.parse('2026-11-20T12:00:00Z')
const dayMs = 86_400_000

export type CaseVek = {
  readonly der: Uint8Array
  readonly kind: 'vcek' | 'vlek'
  readonly tcb: Tcb
  readonly chipId: Uint8Array
}

export type CaseAuthority = {
  readonly product: Product
  readonly root: SecondRoot
  readonly keys: SimulatedAuthority['keys']
  /** Good VEKs first; those from `faultyFrom` on have a fault each. */
  readonly veks: readonly CaseVek[]
  readonly faultyFrom: number
  /** Good chains of both kinds first. */
  readonly chains: {
    readonly good: Record<'vcek' | 'vlek', readonly Uint8Array[][]>
    readonly faulty: readonly Uint8Array[][]
  }
  readonly crls: { readonly good: readonly Uint8Array[]; readonly faulty: readonly Uint8Array[] }
}

export const cspIds = ['csp-a', 'CSP of somebody'] as const

export async function caseAuthority(product: Product, random: Random): Promise<CaseAuthority> {
  const { authority } = await simulatedPlatform(product)
  const { root, keys } = authority
  const level = () => (random.oneIn(8) ? 255 : random.int(200))
  const tcb = (): Tcb => ({
    fmc: product === 'turin' ? level() : null,
    bootloader: level(),
    tee: level(),
    snp: level(),
    microcode: level(),
  })
  const veks: CaseVek[] = []
  for (let i = 0; i < 5; i += 1) {
    const chipId = random.bytes(64)
    if (product === 'turin') chipId.fill(0, 8)
    const wanted = { tcb: tcb(), chipId: i === 0 ? chipIdOf(product) : chipId }
    const der = await issueSimulatedVcek(authority, { ...wanted, validity: vekValidity })
    veks.push({ der, kind: 'vcek', ...wanted })
  }
  for (const cspId of cspIds) {
    const wanted = tcb()
    const der = await issueSimulatedVlek(authority, { tcb: wanted, cspId, validity: vekValidity })
    veks.push({ der, kind: 'vlek', tcb: wanted, chipId: new Uint8Array(64) })
  }
  const faultyFrom = veks.length
  veks.push(...(await faultyVeks(veks, authority)))
  return {
    product,
    root: { product, ark: root.ark, ask: root.ask, asvk: root.asvk },
    keys,
    veks,
    faultyFrom,
    chains: {
      good: {
        vcek: [[], [root.ask], [root.ask, root.ark], [root.ark, root.ask], [root.asvk, root.ask]],
        vlek: [[], [root.asvk], [root.asvk, root.ark], [root.ark, root.ask, root.asvk]],
      },
      faulty: await faultyChains(authority),
    },
    crls: await lists(authority),
  }
}

async function faultyVeks(veks: readonly CaseVek[], { keys, root }: SimulatedAuthority): Promise<CaseVek[]> {
  const [vcek, second] = veks
  const vlek = veks.find(({ kind }) => kind === 'vlek')
  if (vcek === undefined || second === undefined || vlek === undefined) throw new Error('no good VEKs')
  const made: CaseVek[] = []
  for (const base of [vcek, vlek]) {
    const { extensions } = await partsOf(base.der)
    const signingKey = base.kind === 'vcek' ? keys.ask.privateKey : keys.asvk.privateKey
    const add = async (changes: Partial<Forged>) => {
      made.push({ ...base, der: await reissue(base.der, { signingKey, ...changes }) })
    }
    const without = (oid: string) => extensions.filter(([other]) => other !== oid)
    const replaced = (oid: string, value: number[]) =>
      [...without(oid), [oid, false, Uint8Array.from(value)]] as Forged['extensions']
    await add({ signingKey: base.kind === 'vcek' ? keys.asvk.privateKey : keys.ask.privateKey })
    await add({
      issuer: await subjectOf(base.kind === 'vcek' ? root.asvk : root.ask),
      signingKey: base.kind === 'vcek' ? keys.asvk.privateKey : keys.ask.privateKey,
    })
    await add({ notBefore: new Date('2025-01-01T00:00:00Z'), notAfter: new Date('2026-01-01T00:00:00Z') })
    await add({ notBefore: new Date('2027-01-01T00:00:00Z') })
    await add({ algorithm: { name: 'RSA-PSS', hash: 'SHA-384', saltLength: 32 } })
    await add({ publicKey: keys.ark.publicKey })
    await add({ extensions: [...extensions, ...AUTHORITY.root] })
    await add({ extensions: [...extensions, ['1.2.3.4', true, Uint8Array.of(5, 0)]] })
    await add({ extensions: [...extensions, ['1.2.3.4', false, Uint8Array.of(5, 0)]] })
    await add({ extensions: replaced(VEK_OID.productName, [0x16, 5, ...Buffer.from('Rome1')]) })
    await add({ extensions: replaced(VEK_OID.productName, [0x16, 8, ...Buffer.from('Genoa-B1')]) })
    await add({ extensions: replaced(VEK_OID.structVersion, [2, 1, 2]) })
    await add({ extensions: replaced(VEK_OID.reserved5, [2, 1, 1]) })
    await add({ extensions: replaced(VEK_OID.snp, [2, 2, 1, 0]) })
    await add({ extensions: without(VEK_OID.microcode) })
    await add({ extensions: without(VEK_OID.hwId).filter(([oid]) => oid !== VEK_OID.cspId) })
    await add({
      extensions: replaced(
        VEK_OID.hwId,
        Array.from({ length: 8 }, (_, at) => at + 1),
      ),
    })
    await add({
      extensions: replaced(
        VEK_OID.hwId,
        Array.from({ length: 32 }, () => 1),
      ),
    })
    made.push({ ...base, der: flipped(base.der, 9) })
    made.push({ ...base, der: base.der.subarray(0, base.der.length - 1) })
  }
  made.push({ ...vcek, chipId: second.chipId })
  return made
}

async function subjectOf(der: Uint8Array): Promise<string> {
  const x509 = await loadX509()
  return new x509.X509Certificate(new Uint8Array(der)).subject
}

async function partsOf(der: Uint8Array): Promise<Pick<Forged, 'extensions'>> {
  const x509 = await loadX509()
  const { extensions } = new x509.X509Certificate(new Uint8Array(der))
  return { extensions: extensions.map(({ type, critical, value }) => [type, critical, new Uint8Array(value)] as const) }
}

async function faultyChains({ root, keys }: SimulatedAuthority): Promise<Uint8Array[][]> {
  const signingKey = keys.ark.privateKey
  const ask = (changes: Partial<Forged>) => reissue(root.ask, { signingKey, ...changes })
  const other = await simulatedPlatform(otherProduct(root.product))
  const plain = [[OID.keyUsage, true, Uint8Array.from([3, 2, 2, 0x04])]] as const
  const noUse = [[OID.basicConstraints, true, Uint8Array.from([0x30, 3, 1, 1, 0xff])]] as const
  return [
    [await ask({ signingKey: keys.ask.privateKey }), root.ark],
    [await ask({ notAfter: new Date('2026-02-01T00:00:00Z') }), root.ark],
    [await ask({ extensions: plain }), root.ark],
    [await ask({ extensions: noUse }), root.ark],
    [
      await ask({ algorithm: { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-384' }, signingKey: await pkcs1(signingKey) }),
      root.ark,
    ],
    [root.ask, await reissue(root.ark, { signingKey })],
    [root.ask, await reissue(root.ark, { signingKey: keys.asvk.privateKey, publicKey: keys.asvk.publicKey })],
    [root.ask, other.authority.root.ark],
    [other.authority.root.ask, other.authority.root.ark],
    [root.asvk],
    [root.ark],
    [root.ask.subarray(0, 300), root.ark],
    [root.ask, flipped(root.ark, 40)],
  ]
}

/** One bit of the byte that stands so far before the end: in the signature. */
function flipped(der: Uint8Array, beforeEnd: number): Uint8Array {
  const at = der.length - beforeEnd
  return der.with(at, (der[at] ?? 0) ^ 1)
}

function otherProduct(product: Product): Product {
  return product === 'genoa' ? 'turin' : 'genoa'
}

/** The same key for another algorithm. */
async function pkcs1(key: CryptoKey): Promise<CryptoKey> {
  const pkcs8 = await crypto.subtle.exportKey('pkcs8', key)
  return await crypto.subtle.importKey('pkcs8', pkcs8, { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-384' }, false, ['sign'])
}

async function lists({ root, keys, product }: SimulatedAuthority): Promise<CaseAuthority['crls']> {
  const x509 = await loadX509()
  const issuer = new x509.X509Certificate(new Uint8Array(root.ark)).subject
  const serialOf = (der: Uint8Array) => new x509.X509Certificate(new Uint8Array(der)).serialNumber
  const list = (changes: Partial<Parameters<typeof forgeCrl>[0]> = {}) =>
    forgeCrl({
      issuer,
      signingKey: keys.ark.privateKey,
      thisUpdate: new Date(asOf - 20 * dayMs),
      nextUpdate: new Date(asOf + 20 * dayMs),
      revoked: ['7f'],
      ...changes,
    })
  const other = await simulatedPlatform(otherProduct(product))
  const good = [
    await list(),
    await list({ thisUpdate: new Date(asOf), nextUpdate: new Date(asOf + dayMs) }),
    await list({ thisUpdate: new Date(asOf - 300 * dayMs), revoked: ['01'] }),
  ]
  const [first] = good
  if (first === undefined) throw new Error('no list')
  const faulty = [
    await list({ nextUpdate: new Date(asOf - 1000) }),
    await list({ thisUpdate: new Date(asOf + 1000) }),
    await list({ revoked: [serialOf(root.ask)] }),
    await list({ revoked: [serialOf(root.asvk), serialOf(root.ark)] }),
    await list({ revoked: [serialOf(root.ark)] }),
    await list({ signingKey: keys.ask.privateKey }),
    await list({ issuer: new x509.X509Certificate(new Uint8Array(other.authority.root.ark)).subject }),
    await list({ extensions: [['2.5.29.27', true, Uint8Array.of(2, 1, 1)]] }),
    await list({ extensions: [['2.5.29.20', true, Uint8Array.of(2, 1, 1)]] }),
    await forgeCrl({ issuer, signingKey: keys.ark.privateKey, thisUpdate: new Date(asOf - dayMs), revoked: ['7f'] }),
    flipped(first, 30),
    first.subarray(0, 100),
  ]
  return { good, faulty }
}
