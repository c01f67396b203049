// The simulated platform of a host without SEV-SNP: an authority and a chip, created once and stored, with the host's
// own operator key (operator-key.ts). No hardware attests any of it. Effects: <stateDir>/simulator (keys.json, mode
// 0600; root.pem for --trust-simulated-root).

import { generateKeyPair } from 'node:crypto'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { type Static, Type } from '@sinclair/typebox'
import type { Tcb } from '../attest/amd/tcb.ts'
import { toPem } from '../attest/encoding/pem.ts'
import { sha384 } from '../attest/hash.ts'
import type { ReceiptEvidence } from '../attest/receipt/receipt.ts'
import {
  createSimulatedAuthority,
  issueSimulatedCrl,
  issueSimulatedVcek,
  SIMULATED,
  type SimulatedAuthority,
  type SimulatedRoot,
} from '../attest/simulator/certificates.ts'
import {
  exportSimulatedKeys,
  importSimulatedKeys,
  SIMULATED_AUTHORITY_ALGORITHM,
  SIMULATED_VEK_ALGORITHM,
  type SimulatedKeyName,
  type SimulatedKeys,
  type StoredSimulatedKeys,
} from '../attest/simulator/keys.ts'
import { simulateReport } from '../attest/simulator/report.ts'
import { concat, fromBase64, toBase64, toHex, utf8 } from '../base/bytes.ts'
import { Fault, wrapFault } from '../base/fault.ts'
import type { RandomBytes } from '../base/ids.ts'
import { dayMs } from '../base/time.ts'
import { checkedJson } from '../contract/check.ts'
import { ensureDir, readTextOrNull, writeFileAtomic } from '../linux/files.ts'
import { openOperatorKey } from './operator-key.ts'

export type SimulatedHost = {
  /** For a relying party that explicitly trusts the simulation: ARK, ASK and ASVK as PEM. */
  readonly rootFile: string
  /** The same, for this host itself. */
  readonly root: SimulatedRoot
  /** SHA-384 of the operator's ID key. */
  readonly operatorKey: Uint8Array
  /** Returns the launch digest that this platform reports for an image. */
  readonly measurementOf: (imageDigest: Uint8Array) => Uint8Array
  readonly evidence: (launch: {
    readonly measurement: Uint8Array
    readonly reportData: Uint8Array
    readonly hostData: Uint8Array
    /** SHA-384 of the ID key that signed the launch's ID block. Default: this host's own. */
    readonly operatorKey?: Uint8Array
    /** Guest policy. Default: the plain one. */
    readonly policy?: bigint
  }) => Promise<ReceiptEvidence>
}

export type SimulatedHostDeps = {
  readonly stateDir: string
  readonly nowMs: () => number
  readonly random: RandomBytes
  /** Bits of the authorities' RSA keys. AMD's have 4096, which take seconds once; tests use 2048. */
  readonly modulusBits?: 2048 | 4096
}

const authorityDays = 25 * 365
/** Real VCEKs are valid for years, CRLs for months; here both are issued again every day. */
const collateralDays = 30
/** Clocks of verifiers may be behind ours. */
const backdateMs = dayMs
const product = 'genoa'
/** SMT, and ALIAS_CHECK_COMPLETE, as reported by current firmware; AMD 56860 rev 1.58, table 24. */
const platformInfo = 0x21n
const tcb: Tcb = { fmc: null, bootloader: 10, tee: 0, snp: 27, microcode: 88 }

/**
 * Opens or creates the platform of this state directory, with its operator key. Throws Fault internal for file errors.
 */
export async function openSimulatedHost(deps: SimulatedHostDeps): Promise<SimulatedHost> {
  const dir = join(deps.stateDir, 'simulator')
  const keysFile = join(dir, 'keys.json')
  const rootFile = join(dir, 'root.pem')
  const { digest: operatorKey } = await openOperatorKey(deps.stateDir)
  ensureDir(dir, { mode: 0o755 })
  let kept = await readKept(keysFile)
  if (kept === null) {
    kept = await makeKept(deps)
    writeFileAtomic(keysFile, await encodeKept(kept), { mode: 0o600 })
  }
  const { authority, chipId } = kept
  const { ark, ask } = authority.root
  // Written on every start, so that verifiers get the root that is in use.
  writeFileAtomic(rootFile, simulatedRootPem(authority.root), { mode: 0o644 })
  const collateral = collateralOf({ authority, chipId, nowMs: deps.nowMs })
  return {
    rootFile,
    root: authority.root,
    operatorKey,
    measurementOf: simulatedMeasurement,
    evidence: async ({ measurement, reportData, hostData, ...launch }) => {
      const [{ vcek, crl }, report] = await Promise.all([
        collateral(),
        simulateReport(
          {
            product,
            version: 3,
            tcb,
            signer: 'vcek',
            chipId,
            reportData,
            measurement,
            hostData,
            report: {
              idKeyDigest: launch.operatorKey ?? operatorKey,
              platformInfo,
              ...(launch.policy === undefined ? {} : { policy: launch.policy }),
            },
          },
          authority.keys.vcek.privateKey,
        ),
      ])
      return { report, vek: vcek, chain: [ask, ark], crl }
    },
  }
}

/** Returns the certificates by which a relying party trusts the simulation: ARK, ASK and ASVK. */
export function simulatedRootPem({ ark, ask, asvk }: SimulatedRoot): string {
  return [ark, ask, asvk].map(der => toPem(der, 'CERTIFICATE')).join('')
}

/** Returns the measurement of a simulated launch of the executable with this digest; anyone can compute it. */
export function simulatedMeasurement(imageDigest: Uint8Array): Uint8Array {
  return sha384(concat(utf8(`${SIMULATED} launch\0`), imageDigest))
}

type Collateral = { readonly vcek: Uint8Array; readonly crl: Uint8Array }

/** Returns the VCEK and the CRL in force, issued at most once a day. */
function collateralOf({
  authority,
  chipId,
  nowMs,
}: {
  readonly authority: SimulatedAuthority
  readonly chipId: Uint8Array
  readonly nowMs: () => number
}): () => Promise<Collateral> {
  let made: { readonly atMs: number; readonly collateral: Promise<Collateral> } | null = null
  const make = async (atMs: number): Promise<Collateral> => {
    const [begin, end] = [wholeSecond(atMs - backdateMs), wholeSecond(atMs + collateralDays * dayMs)]
    const [vcek, crl] = await Promise.all([
      issueSimulatedVcek(authority, { tcb, chipId, validity: { notBefore: begin, notAfter: end } }),
      issueSimulatedCrl(authority, { thisUpdate: begin, nextUpdate: end, revoked: [] }),
    ])
    return { vcek, crl }
  }
  return () => {
    const atMs = nowMs()
    // If the clock was set back, the issued certificates would be valid only in the future.
    if (made === null || Math.abs(atMs - made.atMs) >= dayMs) {
      const collateral = make(atMs)
      made = { atMs, collateral }
      collateral.catch(() => {
        made = null
      })
    }
    return made.collateral
  }
}

type StoredHost = {
  readonly authority: SimulatedAuthority
  readonly chipId: Uint8Array
}

async function makeKept({ nowMs, random, modulusBits = 4096 }: SimulatedHostDeps): Promise<StoredHost> {
  const algorithm = { ...SIMULATED_AUTHORITY_ALGORITHM, modulusLength: modulusBits }
  const authorityKey = () => makeAuthorityKey(algorithm)
  const [ark, ask, asvk] = await Promise.all([authorityKey(), authorityKey(), authorityKey()])
  const [vcek, vlek] = await Promise.all([p384Key(), p384Key()])
  const keys: SimulatedKeys = { ark, ask, asvk, vcek, vlek }
  const atMs = nowMs()
  const validity = {
    notBefore: wholeSecond(atMs - 2 * backdateMs),
    notAfter: wholeSecond(atMs + authorityDays * dayMs),
  }
  const authority = await createSimulatedAuthority(product, keys, validity)
  return { authority, chipId: random(64) }
}

async function p384Key(): Promise<CryptoKeyPair> {
  return await crypto.subtle.generateKey(SIMULATED_VEK_ALGORITHM, true, ['sign', 'verify'])
}

const Base64 = Type.String()
const KeyPair = Type.Tuple([Base64, Base64], { description: 'PKCS #8 and SubjectPublicKeyInfo' })
/** keys.json: one file for everything, so that no crash separates keys from the certificates that they signed. */
const KeptFile = Type.Object({
  platform: Type.Literal(SIMULATED),
  keys: Type.Object({ ark: KeyPair, ask: KeyPair, asvk: KeyPair, vcek: KeyPair, vlek: KeyPair }),
  /** An operator key of earlier releases, no longer used. */
  idKey: Type.Optional(KeyPair),
  certificates: Type.Object({ ark: Base64, ask: Base64, asvk: Base64 }),
  chipId: Base64,
})
type KeptFile = Static<typeof KeptFile>

async function encodeKept({ authority, chipId }: StoredHost): Promise<string> {
  const keys = await exportSimulatedKeys(authority.keys)
  const { ark, ask, asvk } = authority.root
  const file: KeptFile = {
    platform: SIMULATED,
    keys: mapKeys(keys, encodePair),
    certificates: { ark: toBase64(ark), ask: toBase64(ask), asvk: toBase64(asvk) },
    chipId: toBase64(chipId),
  }
  return `${JSON.stringify(file)}\n`
}

/**
 * Reads the stored platform; null if there is none yet. An unreadable file is never replaced, because verifiers trust
 * its root.
 */
async function readKept(path: string): Promise<StoredHost | null> {
  const text = readTextOrNull(path)
  if (text === null) return null
  try {
    const file = checkedJson(KeptFile, utf8(text), { what: 'keys.json', code: 'internal' })
    const { ark, ask, asvk } = file.certificates
    const root: SimulatedRoot = { product, ark: decode(ark), ask: decode(ask), asvk: decode(asvk) }
    const keys = await importSimulatedKeys(mapKeys(file.keys, decodePair))
    return { authority: { product, root, keys }, chipId: decode(file.chipId) }
  } catch (error) {
    throw wrapFault(error, `read ${path}; restore it, or remove it to get another simulated root`)
  }
}

/** Returns the stored CHIP_ID in hexadecimal; null if there is none yet. Throws Fault internal. */
export function simulatedChipId(stateDir: string): string | null {
  const text = readTextOrNull(join(stateDir, 'simulator', 'keys.json'))
  if (text === null) return null
  return toHex(decode(checkedJson(KeptFile, utf8(text), { what: 'keys.json', code: 'internal' }).chipId))
}

function mapKeys<T, U>(keys: Readonly<Record<SimulatedKeyName, T>>, map: (key: T) => U): Record<SimulatedKeyName, U> {
  const { ark, ask, asvk, vcek, vlek } = keys
  return { ark: map(ark), ask: map(ask), asvk: map(asvk), vcek: map(vcek), vlek: map(vlek) }
}

type StoredPair = StoredSimulatedKeys[SimulatedKeyName]

function encodePair({ pkcs8, spki }: StoredPair): Static<typeof KeyPair> {
  return [toBase64(pkcs8), toBase64(spki)]
}

function decodePair([pkcs8, spki]: Static<typeof KeyPair>): StoredPair {
  return { pkcs8: decode(pkcs8), spki: decode(spki) }
}

function decode(text: string): Uint8Array {
  const bytes = fromBase64(text)
  if (bytes === null) throw new Fault('internal', 'a value is not base64')
  return bytes
}

/** Rounds down, because X.509 times have no fractions. */
function wholeSecond(ms: number): Date {
  return new Date(Math.floor(ms / 1000) * 1000)
}

/**
 * Makes a key with node:crypto, off the event loop: Bun's WebCrypto makes RSA keys on it, half a second each (tried on
 * 1.4.5).
 */
async function makeAuthorityKey(
  algorithm: Omit<typeof SIMULATED_AUTHORITY_ALGORITHM, 'modulusLength'> & { readonly modulusLength: number },
): Promise<CryptoKeyPair> {
  const pair = await promisify(generateKeyPair)('rsa', {
    modulusLength: algorithm.modulusLength,
    publicKeyEncoding: { type: 'spki', format: 'der' },
    privateKeyEncoding: { type: 'pkcs8', format: 'der' },
  })
  const [publicKey, privateKey] = await Promise.all([
    crypto.subtle.importKey('spki', new Uint8Array(pair.publicKey), algorithm, true, ['verify']),
    crypto.subtle.importKey('pkcs8', new Uint8Array(pair.privateKey), algorithm, true, ['sign']),
  ])
  return { publicKey, privateKey }
}
