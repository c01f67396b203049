// For whom a certificate is, by the names in it; certificates are made by openssl, which asks nobody.

import { afterAll, expect, test } from 'bun:test'
import { X509Certificate } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { certificateNameProblem } from '../../../src/guest/gateway/certificate-name.plan.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-certificate-'))
afterAll(() => rmSync(dir, { recursive: true }))

function certificate(name: string, san: string | null): Uint8Array {
  const [key, cert] = [join(dir, 'key'), join(dir, 'cert')]
  const names = san === null ? [] : ['-addext', `subjectAltName=${san}`]
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2']
  const argv = ['openssl', 'req', '-x509', ...curve, '-keyout', key, '-out', cert, '-subj', `/CN=${name}`, ...names]
  const { exitCode, stderr } = Bun.spawnSync(argv, { stdin: 'ignore', timeout: 20_000 })
  if (exitCode !== 0) throw new Error(String(stderr))
  return new Uint8Array(new X509Certificate(readFileSync(cert)).raw)
}

const loopback = Uint8Array.of(127, 0, 0, 1)
const loopbackV6 = Uint8Array.from([...new Array(15).fill(0), 1])

// Goal: a certificate is for exactly the DNS names and addresses in its subjectAltName; no other kind of name, and no
// common name, counts.
test.each([
  ['DNS:gateway.test', 'gateway.test', true],
  ['DNS:other.test,DNS:GATEWAY.test', 'gateway.test', true],
  ['DNS:gateway.test', 'gateway.test.', true],
  ['DNS:*.gateway.test', 'a.gateway.test', true],
  ['IP:127.0.0.1', loopback, true],
  ['IP:::1', loopbackV6, true],
  [null, 'gateway.test', false],
  ['email:gateway.test@a.test', 'gateway.test', false],
  ['URI:https://gateway.test/', 'gateway.test', false],
  ['otherName:1.2.3.4;UTF8:gateway.test', 'gateway.test', false],
  ['DNS:other.test', 'gateway.test', false],
  ['DNS:gateway.test.evil.test', 'gateway.test', false],
  ['DNS:*.gateway.test', 'gateway.test', false],
  ['DNS:*.gateway.test', 'a.b.gateway.test', false],
  ['DNS:*.test', 'gateway.test', false],
  ['DNS:*', 'gateway.test', false],
  ['DNS:127.0.0.1', loopback, false],
  ['IP:127.0.0.2', loopback, false],
  ['IP:::1', loopback, false],
  ['DNS:gateway.test', loopback, false],
])('%p for %p', (san, host, isFor) => {
  const problem = certificateNameProblem(certificate('gateway.test', san), host)
  if (isFor) expect(problem).toBeNull()
  else expect(problem).toContain('subjectAltName')
})

// Goal: bytes that are no certificate are said to be none, and nothing is thrown.
test('what is no certificate', () => {
  expect(certificateNameProblem(new Uint8Array(40), 'gateway.test')).toContain('certificate')
})
