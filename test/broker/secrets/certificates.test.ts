// Goal: programs accept the certificate of the broker for one host, and no other that its authority could have made.

import { expect, test } from 'bun:test'
import { createPublicKey, X509Certificate } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { decodeCertificate, isCertificateAuthority, keyUsageOf } from '../../../src/attest/x509/certificate.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createAuthority } from '../../../src/broker/secrets/authority.ts'
import { certifyHost } from '../../../src/broker/secrets/certificates.ts'

const making = { nowMs: Date.UTC(2026, 10, 30), random: systemRandom }
const dir = mkdtempSync(join(tmpdir(), 'srt-certificates-'))
process.on('exit', () => rmSync(dir, { recursive: true, force: true }))

/** openssl-verify(1) with every check of the standard; what it prints on failure. */
function verify(
  host: string,
  { authority, certificate }: { authority: string; certificate: string },
  atMs = making.nowMs,
): string {
  writeFileSync(join(dir, 'ca.pem'), authority)
  writeFileSync(join(dir, 'leaf.pem'), certificate)
  const at = String(Math.floor(atMs / 1000))
  const argv = [
    '-x509_strict',
    '-purpose',
    'sslserver',
    '-attime',
    at,
    '-verify_hostname',
    host,
    '-CAfile',
    'ca.pem',
    'leaf.pem',
  ]
  const { exitCode, stderr } = Bun.spawnSync(['openssl', 'verify', ...argv], { cwd: dir })
  return exitCode === 0 ? 'OK' : stderr.toString()
}

test('goal: OpenSSL accepts it for its host alone, in any year', () => {
  const long = `${'a'.repeat(60)}.${'b'.repeat(60)}.example`
  for (const host of ['api.github.com', long]) expect(verify(host, certifyHost(host, making))).toBe('OK')
  const made = certifyHost('api.github.com', making)
  for (const host of ['github.com', 'x.api.github.com', 'api.github.com.test']) {
    expect(verify(host, made)).toContain('hostname mismatch')
  }
  // Another authority of the same VM did not sign it.
  expect(verify('api.github.com', { ...made, authority: certifyHost('api.github.com', making).authority })).not.toBe(
    'OK',
  )
  const late = Date.UTC(2052, 0, 1)
  expect(verify('a.test', certifyHost('a.test', { ...making, nowMs: late }), late)).toBe('OK')
  expect(verify('a.test', made, making.nowMs - 300 * 86_400_000)).toContain('hostname mismatch')
  expect(verify('api.github.com', made, making.nowMs + 11 * 366 * 86_400_000)).toContain('expired')
})

test('goal: the authority may certify names of its host alone, and its key is in nothing that is returned', () => {
  const made = certifyHost('api.github.com', making)
  const authority = decodeCertificate(new Uint8Array(new X509Certificate(made.authority).raw))
  const leaf = decodeCertificate(new Uint8Array(new X509Certificate(made.certificate).raw))
  expect([isCertificateAuthority(authority.extensions), isCertificateAuthority(leaf.extensions)]).toEqual([true, false])
  expect(keyUsageOf(authority.extensions)).toEqual({ certSign: true, crlSign: false })
  expect(keyUsageOf(leaf.extensions)).toEqual({ certSign: false, crlSign: false })
  const constraint = authority.extensions.get('2.5.29.30')
  expect([
    constraint?.critical,
    Buffer.from(constraint?.value ?? [])
      .toString('latin1')
      .endsWith('api.github.com'),
  ]).toEqual([true, true])
  const spki = createPublicKey(made.key).export({ format: 'der', type: 'spki' })
  expect(Buffer.from(leaf.publicKey.spki).equals(spki)).toBe(true)
  expect(Object.keys(made)).toEqual(['authority', 'certificate', 'key'])
})

test('goal: hosts keep their certificates while they have secrets; the files name exactly these hosts', () => {
  const directory = join(dir, 'broker')
  writeFileSync(join(dir, 'system.pem'), 'SYSTEM\n')
  const authority = createAuthority({
    ...{ directory, systemRoots: join(dir, 'system.pem'), nowMs: () => making.nowMs, random: systemRandom },
  })
  expect(authority.certificateOf('a.test')).toBeNull()
  authority.certify(['b.test', 'a.test', 'b.test'])
  const first = authority.certificateOf('a.test')
  const own = readFileSync(join(directory, 'authority.pem'), 'utf8')
  expect(own.match(/^# .*$/gm)).toEqual(['# a.test', '# b.test'])
  expect(own).toContain(first?.authority ?? 'none')
  expect(readFileSync(join(directory, 'roots.pem'), 'utf8')).toBe(`SYSTEM\n${own}`)
  authority.certify(['a.test', 'c.test'])
  expect(authority.certificateOf('a.test')).toBe(first)
  expect(authority.certificateOf('b.test')).toBeNull()
  authority.certify([])
  expect(readFileSync(join(directory, 'roots.pem'), 'utf8')).toBe('SYSTEM\n')
  const files = readdirSync(directory).toSorted()
  expect(files).toEqual(['authority.pem', 'roots.pem'])
  expect(files.map(file => statSync(join(directory, file)).mode & 0o777)).toEqual([0o644, 0o644])
  for (const file of files) expect(readFileSync(join(directory, file), 'utf8')).not.toContain('PRIVATE')
})
