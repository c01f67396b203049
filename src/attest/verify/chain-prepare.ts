// The part of verifying a chain that depends on neither time nor report: its certificates and their signatures. Pure.
// ARK → ASK → VCEK, ARK → ASVK → VLEK: AMD 57230.

import { AMD_ROOTS, type TrustedRoot } from '../amd/roots.ts'
import { type DecodedRoot, decodeRoot } from '../amd/trusted-roots.ts'
import type { VekExtensions } from '../amd/vek-extensions.ts'
import type { PemOrDer } from '../encoding/pem.ts'
import { parsed, reasonOf } from '../malformed.ts'
import { type Check, check, fail, notChecked, pass } from '../verdict.ts'
import { type Certificate, commonNameOf, isCertificateAuthority, isSame, keyUsageOf, OID } from '../x509/certificate.ts'
import { algorithmFault, isSignedBy } from '../x509/signature.ts'
import { type Chain, poolOf, selectChain } from './chain-select.ts'
import { type PreparedCrl, prepareCrl } from './revocation.ts'

/** Checks, in this order. If `vek-certificate` or `chain-certificates` fails, there is no chain to judge. */
export const PREPARED_CHECKS = [
  'vek-certificate',
  'chain-certificates',
  'chain-root',
  'chain-algorithms',
  'chain-names',
  'chain-authority',
  'chain-signatures',
] as const

type PreparedCheck = (typeof PREPARED_CHECKS)[number]

export type PreparedChain = {
  /** One check for each of PREPARED_CHECKS, in order. */
  readonly checks: readonly Check[]
  /** Null if there is no chain to judge; one of the first two checks then gives the reason. */
  readonly found: FoundChain | null
}

export type FoundChain = {
  readonly vek: Certificate
  readonly extensions: VekExtensions
  readonly intermediate: Certificate
  readonly ark: Certificate
  /** The trusted root with this ARK; null if there is none. */
  readonly root: DecodedRoot | null
  readonly given: Chain['given']
  readonly crl: PreparedCrl
}

export type ChainInput = {
  /** VCEK or VLEK, possibly a bundle with the rest of its chain. */
  readonly vek: PemOrDer
  /** ASK or ASVK, with or without the ARK, in any order. Default: the intermediates of the trusted roots. */
  readonly chain?: PemOrDer | readonly PemOrDer[] | undefined
  readonly crl?: PemOrDer | undefined
  /** Default: AMD's. */
  readonly roots?: readonly TrustedRoot[] | undefined
}

/**
 * Parses certificates and verifies their signatures. Cache the result, because it makes verifyChain cheap. Never
 * throws.
 */
export async function prepareChain(input: ChainInput): Promise<PreparedChain> {
  const pool = parsed(() => poolOf(input.vek, input.chain))
  if (!pool.ok) return noChain('vek-certificate', pool.reason)
  const { vek, extensions } = pool.value
  if (vek.publicKey.kind !== 'p-384') return noChain('vek-certificate', "the VEK's key is not on P-384")
  let chain: Chain
  try {
    chain = await selectChain(pool.value, (input.roots === undefined ? AMD_ROOTS : input.roots).map(decodeRoot))
  } catch (error) {
    return noChain('chain-certificates', reasonOf(error))
  }
  const found = { vek, extensions, ...chain, crl: await prepareCrl(input.crl, chain.ark) }
  return { found, checks: [passedVek(found), passedChain(found), ...(await judge(found))] }
}

async function judge(found: FoundChain): Promise<Check[]> {
  return [rootCheck(found), algorithmCheck(found), nameCheck(found), authorityCheck(found), await signatureCheck(found)]
}

function rootCheck({ ark, root }: FoundChain): Check {
  if (root === null) return fail('chain-root', `the ARK ${nameOf(ark)} is not one of the trusted roots`)
  if (!root.simulated) return pass('chain-root', `AMD's pinned root for ${root.product}`)
  return pass('chain-root', `SIMULATED root ${nameOf(ark)} for ${root.product}: no hardware attests the keys below it`)
}

function algorithmCheck({ vek, intermediate, ark }: FoundChain): Check {
  const links = [
    ['VEK', vek, intermediate],
    ['intermediate', intermediate, ark],
    ['ARK', ark, ark],
  ] as const
  const faults = links.flatMap(([role, signed, issuer]) => {
    const fault = algorithmFault(signed, issuer)
    return fault === null ? [] : [`${role}: ${fault}`]
  })
  return check('chain-algorithms', faults.length === 0, faults.join('; '), 'RSASSA-PSS with SHA-384')
}

/** Checks that each certificate names the next as issuer, and that the root's ASK issued a VCEK or its ASVK a VLEK. */
function nameCheck({ vek, extensions, intermediate, ark, root }: FoundChain): Check {
  const refuse = (reason: string) => fail('chain-names', reason)
  if (!isSame(vek.issuer, intermediate.subject)) return refuse("the VEK's issuer is not the intermediate")
  if (!isSame(intermediate.issuer, ark.subject)) return refuse("the intermediate's issuer is not the ARK")
  if (!isSame(ark.issuer, ark.subject)) return refuse('the ARK is not issued by itself')
  if (root === null) return refuse('the ARK is not a trusted root, so the names of its intermediates are not known')
  const { kind } = extensions.holder
  const expected = kind === 'vcek' ? root.ask : root.asvk
  if (expected === null) return refuse('the trusted root names no ASVK, so it certifies no VLEK')
  const isRole = isSame(intermediate.subject, expected.subject)
  return check(
    'chain-names',
    isRole,
    `a ${kind.toUpperCase()} is issued by ${nameOf(expected)}, not by ${nameOf(intermediate)}`,
    `${nameOf(vek)}, issued by ${nameOf(intermediate)}, issued by ${nameOf(ark)}`,
  )
}

/**
 * Checks that each authority may sign what it signed (RFC 5280 4.2.1.3 and 4.2.1.9), and that no critical extension is
 * unknown.
 */
function authorityCheck({ vek, intermediate, ark }: FoundChain): Check {
  try {
    const faults = [
      ...(isIssuer(ark) && keyUsageOf(ark.extensions)?.crlSign ? [] : ['the ARK may not sign certificates and CRLs']),
      ...(isIssuer(intermediate) ? [] : ['the intermediate may not sign certificates']),
      ...(isCertificateAuthority(vek.extensions) ? ['the VEK is a certificate authority'] : []),
      ...[vek, intermediate, ark].flatMap(unknownCritical),
    ]
    return check('chain-authority', faults.length === 0, faults.join('; '))
  } catch (error) {
    return fail('chain-authority', reasonOf(error))
  }
}

function isIssuer({ extensions }: Certificate): boolean {
  return isCertificateAuthority(extensions) && keyUsageOf(extensions)?.certSign === true
}

function unknownCritical({ subject, extensions }: Certificate): string[] {
  const understood: readonly string[] = [OID.basicConstraints, OID.keyUsage]
  const unknown = [...extensions].filter(([oid, extension]) => extension.critical && !understood.includes(oid))
  return unknown.map(([oid]) => `${commonNameOf(subject)}: critical extension ${oid} is unknown`)
}

async function signatureCheck({ vek, intermediate, ark }: FoundChain): Promise<Check> {
  const links = [
    ["the VEK's signature is not the intermediate's", vek, intermediate],
    ["the intermediate's signature is not the ARK's", intermediate, ark],
    ['the ARK is not signed by itself', ark, ark],
  ] as const
  const results = await Promise.all(links.map(([, signed, issuer]) => isSignedBy(signed, issuer)))
  const faults = links.flatMap(([fault], at) => (results[at] === true ? [] : [fault]))
  return check('chain-signatures', faults.length === 0, faults.join('; '))
}

function passedVek({ vek, extensions }: FoundChain): Check {
  return pass('vek-certificate', `${nameOf(vek)} for ${extensions.productName}`)
}

function passedChain({ intermediate, ark, given }: FoundChain): Check {
  return pass('chain-certificates', `${nameOf(intermediate)}, ${nameOf(ark)}${BUILT_IN[given]}`)
}

const BUILT_IN = {
  both: '',
  intermediate: "; the ARK is the trusted root's own, none was given",
  none: "; both are the trusted root's own, none was given",
} as const satisfies Record<Chain['given'], string>

/** Returns the checks if no chain could be built: the named check fails, and later ones are not made. */
function noChain(name: PreparedCheck, reason: string): PreparedChain {
  const at = PREPARED_CHECKS.indexOf(name)
  const checks = PREPARED_CHECKS.map((kind, i) => {
    if (i < at) return pass(kind)
    return i === at ? fail(kind, reason) : notChecked(kind, `${name} failed`, true)
  })
  return { checks, found: null }
}

function nameOf({ subject }: Certificate): string {
  try {
    return commonNameOf(subject)
  } catch {
    return '(unreadable name)'
  }
}
