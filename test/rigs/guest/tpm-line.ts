// The line of strongroom-verify about the TPM that a host gives to a VM, and the quotes behind it,
// as the login user sees them. Effects: runs commands in the VM.

import { expect } from 'bun:test'
import { decodeReceipt } from '../../../src/attest/receipt/receipt.ts'
import { reportDataOf } from '../../../src/attest/receipt/statement.ts'
import { decodeTpmEvidence, verifyTpmEvidence } from '../../../src/attest/tpm/evidence.ts'
import { fromBase64Url, toBase64Url } from '../../../src/base/bytes.ts'

/** Standard output of a command of the login user. */
export type Prints = (command: string) => Promise<string>

/** A line of `strongroom-verify --json`. */
export type VerifierLine = {
  readonly name: string
  readonly outcome: string
  readonly reason: string
  readonly checks: readonly { readonly name: string; readonly outcome: string }[]
}

/** All is good but the host, which runs this TPM. */
export function expectHostsTpm(line: VerifierLine | undefined): void {
  expect(line).toMatchObject({ name: 'TPM measurements', outcome: 'fail' })
  expect(line?.reason).toBe(
    'vtpm:host-untrusted: the host runs this TPM and controls its answers, so it proves nothing; quote signature, its key, nonce, PCR values, log and measured command line are good',
  )
  expect(line?.checks.map(({ name, outcome }) => `${outcome} ${name}`)).toEqual([
    'fail vtpm-binding',
    'pass tpm-quote-signature',
    'pass tpm-quote-format',
    'pass tpm-quote-nonce',
    'pass tpm-quote-pcrs',
    'pass vtpm-attestation-key',
    'pass tpm-event-log',
    'pass tpm-measured',
  ])
}

/** The agent's quote over a nonce of ours, and the claim receipt's quote over its statement, are for these alone. */
export async function expectBoundQuotes(prints: Prints): Promise<void> {
  const nonce = new Uint8Array(32).fill(0x11)
  const reply = await prints(
    `printf '%s\\n' ${toBase64Url(nonce)} | timeout 60 python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect("/run/strongroom/tpm.sock")
s.sendall(sys.stdin.buffer.read())
print(s.makefile().readline())'`,
  )
  const fresh = fromBase64Url(JSON.parse(reply).evidence) ?? new Uint8Array(0)
  expect(await faultsOver(fresh, nonce)).toEqual(['vtpm-binding', 'vtpm-attestation-key'])
  expect(await faultsOver(fresh, new Uint8Array(32).fill(0x12))).toEqual([
    'vtpm-binding',
    'tpm-quote-nonce',
    'vtpm-attestation-key',
  ])
  const receipt = decodeReceipt(await prints('cat /run/strongroom/receipt.json'))
  const kept = receipt.evidence.tpm ?? new Uint8Array(0)
  expect(await faultsOver(kept, reportDataOf(receipt.statement))).toEqual(['vtpm-binding', 'vtpm-attestation-key'])
  expect(await faultsOver(kept, nonce)).toEqual(['vtpm-binding', 'tpm-quote-nonce', 'vtpm-attestation-key'])
}

async function faultsOver(evidence: Uint8Array, nonce: Uint8Array): Promise<string[]> {
  const binding = async () => Promise.reject(new Error('there is no SVSM'))
  const read = decodeTpmEvidence(evidence)
  const { checks } = await verifyTpmEvidence(read, { nonce, measured: 'any', binding, activate: 'offline' })
  return checks.filter(check => check.outcome !== 'pass').map(check => check.name)
}
