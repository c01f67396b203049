// The host's part of a receipt without hardware: a simulated report over a guest's evidence. Effects: keys, made
// once.

import { simulatedPlatform } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { encodeReceipt } from '../../../src/attest/receipt/receipt.ts'
import { reportDataOf } from '../../../src/attest/receipt/statement.ts'
import { issueSimulatedCrl } from '../../../src/attest/simulator/certificates.ts'
import { fromBase64Url, fromHex } from '../../../src/base/bytes.ts'
import type { GuestEvidence } from '../../../src/contract/vm/agent-responses.ts'

/** Reported launch of each VM. */
export const simulatedLaunch = { measurement: '5a'.repeat(48), operatorKey: '6b'.repeat(48) }

/** Completes a guest's evidence as a host without hardware does. */
export async function vouchFor(evidence: GuestEvidence): Promise<{ receipt: string; rootPem: string }> {
  const platform = await simulatedPlatform('genoa')
  const { root } = platform.authority
  const bytes = (text: string) => fromBase64Url(text) ?? new Uint8Array(0)
  const statement = bytes(evidence.statement)
  const hex = (text: string) => fromHex(text) ?? new Uint8Array(0)
  const report = await platform.report({
    reportData: reportDataOf(statement),
    measurement: hex(simulatedLaunch.measurement),
    hostData: new Uint8Array(32),
    report: { idKeyDigest: hex(simulatedLaunch.operatorKey) },
  })
  const { keys, signatures } = evidence
  const day = 86_400_000
  const crl = await issueSimulatedCrl(platform.authority, {
    thisUpdate: new Date(Date.now() - day),
    nextUpdate: new Date(Date.now() + day),
    revoked: [],
  })
  const receipt = encodeReceipt({
    platform: 'simulated',
    statement,
    keys: {
      ed25519: bytes(keys.ed25519),
      mldsa65: bytes(keys.mldsa65),
      x25519: bytes(keys.x25519),
      mlkem768: bytes(keys.mlkem768),
    },
    signatures: { ed25519: bytes(signatures.ed25519), mldsa65: bytes(signatures.mldsa65) },
    evidence: {
      report,
      vek: platform.vcek,
      chain: [root.ask, root.ark],
      crl,
      ...(evidence.tpm === undefined ? {} : { tpm: bytes(evidence.tpm) }),
    },
  })
  const pem = (der: Uint8Array) =>
    `-----BEGIN CERTIFICATE-----\n${der.toBase64().replace(/.{64}/g, '$&\n').trim()}\n-----END CERTIFICATE-----\n`
  return { receipt: JSON.stringify(receipt), rootPem: pem(root.ark) + pem(root.ask) }
}
