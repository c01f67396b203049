// Manifests and OCSP responses that a relying party saved, each with its checks. Pure. Never throws.

import { Malformed, parsed } from '../malformed.ts'
import { type Check, check, fail, notChecked, pass, verdict } from '../verdict.ts'
import { checkChain, decodeChain } from './chain.ts'
import { decodeOcsp, type OcspResponse } from './ocsp.ts'
import { portableP384 } from './portable-p384.ts'
import { checkRevocation, type RevocationQuestion } from './revocation.ts'
import { decodeRim, type ReadSignedXml, type Rim } from './rim.ts'
import type { DecodedRoots } from './roots.ts'
import { isSignedByKeyOf } from './signature.ts'

export type JudgedRim = {
  /** Null unless every check passed. */
  readonly rim: Rim | null
  readonly simulated: boolean
  readonly checks: readonly Check[]
}

export type RimQuestion = Omit<RevocationQuestion, 'responses'> & {
  readonly readSignedXml: ReadSignedXml
  readonly roots: DecodedRoots
  readonly responses: readonly OcspResponse[]
}

const AFTER_FORMAT = ['gpu-rim-signature', 'gpu-rim-contents-format', 'gpu-rim-ocsp'] as const

export function judgeRim(bytes: Uint8Array, question: RimQuestion): JudgedRim {
  const read = parsed(() => {
    const xml = question.readSignedXml(bytes)
    return { xml, certificates: decodeChain(xml.certificates, 'RIM') }
  })
  if (!read.ok) {
    const skipped = AFTER_FORMAT.map(name => notChecked(name, 'the manifest cannot be read', true))
    return { rim: null, simulated: false, checks: [fail('gpu-rim-format', read.reason), ...skipped] }
  }
  const { xml, certificates } = read.value
  const { checks, chain } = checkChain('gpu-rim', {
    certificates,
    roots: question.roots.rim,
    asOfMs: question.asOfMs,
    verify: portableP384,
  })
  const signer = certificates[0]
  const root = parsed(() =>
    xml.verify((signed, signature) => signer !== undefined && isSignedByKeyOf(signer, signed, signature, portableP384)),
  )
  const decoded = parsed(() => {
    if (!root.ok) throw new Malformed('the signature is not good')
    return decodeRim(root.value)
  })
  const [signatureName, contentsName, ocspName] = AFTER_FORMAT
  const all = [
    pass('gpu-rim-format'),
    ...checks,
    check(signatureName, root.ok, root.ok ? '' : root.reason),
    root.ok
      ? check(contentsName, decoded.ok, decoded.ok ? '' : decoded.reason)
      : notChecked(contentsName, 'the signature is not good', true),
    checkRevocation(ocspName, { ...question, chain, from: 0 }),
  ]
  const rim = decoded.ok && verdict(all).ok ? decoded.value : null
  return { rim, simulated: chain?.simulated === true, checks: all }
}

/** Returns the readable responses, and a failed check for each of the others. */
export function readResponses(files: readonly Uint8Array[]): {
  readonly responses: readonly OcspResponse[]
  readonly checks: readonly Check[]
} {
  const read = files.map(bytes => parsed(() => decodeOcsp(bytes)))
  return {
    responses: read.flatMap(response => (response.ok ? [response.value] : [])),
    checks: read.flatMap((response, at) => (response.ok ? [] : [fail(`ocsp-${at}/gpu-ocsp-format`, response.reason)])),
  }
}
