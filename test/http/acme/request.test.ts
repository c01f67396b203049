// Goal: a certificate request holds the key, the name and nothing else, signed by that key, as an independent reader
// finds it.

import { expect, test } from 'bun:test'
import { generateKeyPairSync } from 'node:crypto'
import { loadX509 } from '../../../src/attest/x509/runtime.ts'
import { certificateRequest } from '../../../src/http/acme/request.ts'
import { spkiOf } from '../../../src/linux/keys/spki.ts'

const key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'pem', type: 'pkcs8' })
const pem = key.toString()

async function read(name: string | null) {
  const x509 = await loadX509()
  const request = new x509.Pkcs10CertificateRequest(new Uint8Array(certificateRequest(name, pem)))
  const [extension, ...others] = request.extensions
  expect(others).toEqual([])
  expect(new Uint8Array(request.publicKey.rawData)).toEqual(new Uint8Array(spkiOf(pem)))
  expect(await request.verify()).toBe(true)
  const names = extension instanceof x509.SubjectAlternativeNameExtension ? extension.names.toJSON() : []
  return { subject: request.subject, names }
}

test('a request without a name has a subject and no extension', async () => {
  // Goal: only the key counts where no name is wanted.
  expect(await read(null)).toEqual({ subject: 'CN=strongroom', names: [] })
})

test('a request with a name has it as its only alternative name, and no subject', async () => {
  // Goal: the authority certifies this name and no other.
  const name = 'inference.agents.example'
  expect(await read(name)).toEqual({ subject: '', names: [{ type: 'dns', value: name }] })
})

test('the longest DNS name, whose lengths need two octets, is held whole', async () => {
  // Goal: names of any length reach the authority.
  const name = [...['a', 'b', 'c'].map(letter => letter.repeat(63)), 'd'.repeat(61)].join('.')
  expect(name.length).toBe(253)
  expect(await read(name)).toEqual({ subject: '', names: [{ type: 'dns', value: name }] })
})

test('the parts around the key are the bytes that RFC 2986 and RFC 5480 prescribe', () => {
  // Goal: an authority that compares bytes finds the standard's.
  const bytes = Buffer.from(certificateRequest(null, pem)).toString('hex')
  // Version 0, and CN=strongroom as a UTF8String.
  expect(bytes).toContain('02010030153113301106035504030c0a7374726f6e67726f6f6d')
  // No attributes, then ecdsa-with-SHA256 without parameters.
  expect(bytes).toMatch(/a000300a06082a8648ce3d04030203/)
  const named = Buffer.from(certificateRequest('a.b', pem)).toString('hex')
  expect(named).toContain('a021301f06092a864886f70d01090e31123010300e0603551d11040730058203612e62')
})
