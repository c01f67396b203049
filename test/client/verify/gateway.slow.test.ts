// strongroom verify gateway against real HTTPS servers: the gateway, a man in the middle, and other servers.

import { afterAll, describe, expect, test } from 'bun:test'
import { workloadOf } from '../../../scripts/rigs/enclave/workload.ts'
import { allowlistText, clearRig, configurationText, receiptKeys } from '../../../scripts/rigs/gateway/attestation.ts'
import { simulatedKeys } from '../../../scripts/rigs/launch/simulated-keys.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { createSimulatedAuthority, issueSimulatedCrl } from '../../../src/attest/simulator/certificates.ts'
import { SIMULATED_AUTHORITY_ALGORITHM } from '../../../src/attest/simulator/keys.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { workloadText } from '../../../src/contract/vm/workload.ts'
import { noEvidenceOnHost } from '../../../src/inference/attestation/attester.ts'
import {
  everything,
  file,
  startGateway,
  startMiddle,
  startOther,
  writeCaFile,
} from '../../rigs/gateway/attested-servers.ts'
import { checksOf, expectUsageError, run, runHere } from '../../rigs/program.ts'

afterAll(clearRig)

const gateway = await startGateway()
afterAll(() => gateway[Symbol.dispose]())
const all = await everything()
const caFile = writeCaFile()
const line = (url: string, ...more: string[]) => ['verify', 'gateway', url, '--ca', caFile, ...more]

async function verify(...argv: string[]) {
  const { code, stdout } = await runHere([...argv, '--json'])
  return { code, document: JSON.parse(stdout) }
}

describe('a good gateway', () => {
  test('passes every line, as a program of its own, with --verbose', async () => {
    // Goal: one line for each thing that the contract wants checked, for each workload, and the verdict says SIMULATED.
    const { code, stdout, stderr } = await run(...line(gateway.url, ...all), '--verbose')
    expect([code, stderr]).toEqual([
      0,
      '--key-file FILE shows whether the host minted your key, so that it can act as you. So does GET /v1/usage: `key_made_by`.\n',
    ])
    const lines = stdout.trimEnd().split('\n')
    const end = lines.findIndex(line => line.startsWith('VERDICT'))
    const names = lines.slice(0, end).map(line => /^(PASS|NOT CHECKED) ([a-z/-]+): /.exec(line)?.slice(1).join(' '))
    const groups = [
      'evidence',
      'tcb-floor',
      'nonce',
      'measurement',
      'operator-key',
      'identity',
      'allowlist',
      'admission',
    ]
    const targets = ['gateway', 'inference-router', 'inference-worker', 'metrics-collector', 'cluster-state-metrics']
    expect(names).toEqual([
      ...['connection', 'tls-certificate', 'attestation-format'].map(pass),
      ...['pin-measurement', 'pin-allowlist', 'pin-vmpl', 'pin-crl', 'pin-tcb'].map(pass),
      ...['attestation-nonce', 'attestation-together', 'tls-binding', 'tcb-floor-age', 'gateway-configuration'].map(
        pass,
      ),
      ...targets.flatMap(target => groups.map(group => pass(`${target}/${group}`))),
      'NOT CHECKED operational-status',
    ])
    expect(lines[end]).toStartWith('VERDICT: PASS SIMULATED, no hardware attests this evidence: 53 passed, 0 failed')
    expect(lines.slice(end + 1).map(line => line.split(':')[0])).toEqual(
      ['root', 'measurement', 'VMPL', 'firmware', 'revocation'].map(label => `rests on ${label}`),
    )
  })

  test('as a document has every check of every receipt', async () => {
    // Goal: programs see what the groups are made of.
    const { code, document } = await verify(...line(gateway.url, ...all))
    expect([code, document.ok, document.simulated, checksOf(document, 'FAIL')]).toEqual([0, true, true, []])
    expect(document.receipts).toHaveLength(5)
    for (const receipt of document.receipts) expect(checksOf(receipt, 'PASS')).toContain('host-data-allowlist')
  })

  test('without expectations says what it did not check', async () => {
    // Goal: nothing that was not pinned is shown as passed.
    const { code, document } = await verify(
      ...line(gateway.url, ...all.slice(0, 2), '--any-measurement', '--any-allowlist'),
    )
    expect(code).toBe(0)
    const open = ['measurement', 'operator-key', 'allowlist', 'admission']
    expect(checksOf(document, 'NOT CHECKED')).toEqual(
      expect.arrayContaining(['gateway-configuration', ...open.map(item => `gateway/${item}`)]),
    )
  })
})

function pass(name: string): string {
  return `PASS ${name}`
}

describe('what must not pass', () => {
  test('simulated evidence without its root', async () => {
    // Goal: nobody trusts a simulation by accident.
    const { code, document } = await verify(...line(gateway.url, ...all.slice(2)))
    expect([code, document.ok, checksOf(document, 'FAIL')]).toEqual([
      1,
      false,
      expect.arrayContaining(['gateway/evidence']),
    ])
  })

  test('a server in the middle with a good certificate of its own', async () => {
    // Goal: receipts vouch for the connection that the gateway ends, and for no other; all else is right here.
    using middle = await startMiddle(gateway)
    const { code, document } = await verify(...line(middle.url, ...all))
    expect([code, checksOf(document, 'FAIL')]).toEqual([1, ['tls-binding']])
  })

  test('a certificate of an authority that is not trusted', async () => {
    // Goal: without --ca the local authority is nobody, although the attestation is good.
    const { code, document } = await verify('verify', 'gateway', gateway.url, ...all)
    expect([code, checksOf(document, 'FAIL')]).toEqual([1, ['tls-certificate']])
  })

  test('an answer that was recorded before', async () => {
    // Goal: evidence for another nonce is refused.
    const first = await fetch(`${gateway.url}/attestation?nonce=${'A'.repeat(43)}`, {
      tls: { ca: await Bun.file(caFile).text() },
    })
    const recorded = await first.text()
    using replay = await startOther(({ url }) =>
      url.includes('/attestation') ? new Response(recorded) : new Response('', { status: 404 }),
    )
    const { code, document } = await verify(...line(replay.url, ...all))
    expect([first.status, code, checksOf(document, 'FAIL')]).toEqual([200, 1, ['attestation-nonce', 'tls-binding']])
  })

  test('another configuration', async () => {
    // Goal: upstreams added since the relying party looked are seen, in one line, with both digests.
    const other = file('other-configuration.json', '{"schemaVersion":1,"upstreams":[]}')
    const { code, document } = await verify(...line(gateway.url, ...all, '--configuration', other))
    expect([code, checksOf(document, 'FAIL')]).toEqual([6, ['gateway-configuration']])
    expect(document.configuration_sha256).toBe(new Bun.CryptoHasher('sha256').update(configurationText).digest('hex'))
    const { x25519, mlkem768 } = receiptKeys().publicKeys
    expect(document.encryption_keys).toEqual({ x25519: toHex(x25519), xwing: toHex(mlkem768) + toHex(x25519) })
  })

  test('no configuration', async () => {
    // Goal: an allowlist does not list the upstreams that get prompts; an option accepts any, and the verdict has it.
    const at = all.indexOf('--configuration')
    const rest = all.toSpliced(at, 2)
    const { code, document } = await verify(...line(gateway.url, ...rest))
    expect([code, document.failed, checksOf(document, 'FAIL')]).toEqual([6, 'policy', ['gateway-configuration']])
    const { stdout } = await runHere(line(gateway.url, ...rest))
    expect(stdout).toContain('name it with --configuration, or accept any with --any-configuration')
    const any = await verify(...line(gateway.url, ...rest, '--any-configuration'))
    expect([any.code, checksOf(any.document, 'NOT CHECKED')]).toEqual([
      0,
      expect.arrayContaining(['gateway-configuration']),
    ])
    await expectUsageError(line(gateway.url, ...all, '--any-configuration'), 'contradicts --configuration')
  })

  test('another allowlist', async () => {
    // Goal: digest and admission are compared with the relying party's own file.
    const other = file('other.json', allowlistText.replace('--part=0', '--part=9'))
    const { code, document } = await verify(...line(gateway.url, ...all.with(5, other)))
    expect([code, document.failed, checksOf(document, 'FAIL')]).toEqual([
      6,
      'policy',
      expect.arrayContaining(['gateway/allowlist', 'gateway/admission']),
    ])
    expect(checksOf(document, 'FAIL')).toHaveLength(6)
  })

  test('another workload.json', async () => {
    // Goal: one that the relying party names is its policy; one that the gateway serves and its receipts do not name is
    // no genuine evidence; one that cannot be read is bad input.
    const text = workloadText(workloadOf({ controlKey: 'A'.repeat(43), upstreams: [], gateway: {} }))
    const trusting = all.slice(0, 4)
    const named = await verify(...line(gateway.url, ...trusting, '--workload', file('workload.json', text)))
    expect([named.code, named.document.failed]).toEqual([6, 'policy'])
    expect(checksOf(named.document, 'FAIL')).toEqual(expect.arrayContaining(['workload', 'gateway/allowlist']))
    using lying = await startGateway({ workload: text })
    const served = await verify(...line(lying.url, ...trusting))
    expect([served.code, served.document.failed]).toEqual([1, 'evidence'])
    await expectUsageError(line(gateway.url, '--workload', file('bad-workload.json', '{}')), '--workload')
  })

  test("a revocation list of another authority in the place of the gateway's", async () => {
    // Goal: --crl really replaces the one in the evidence.
    const algorithm = { ...SIMULATED_AUTHORITY_ALGORITHM, modulusLength: 2048 }
    const ark = (await crypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])) as CryptoKeyPair
    const validity = { notBefore: new Date('2026-01-01T00:00:00Z'), notAfter: new Date('2051-01-01T00:00:00Z') }
    const authority = await createSimulatedAuthority('genoa', { ...(await simulatedKeys()), ark }, validity)
    const thisUpdate = new Date(Date.now() - 60_000)
    const nextUpdate = new Date(Date.now() + 3_600_000)
    const crl = file(
      'crl.pem',
      toPem(await issueSimulatedCrl(authority, { thisUpdate, nextUpdate, revoked: [] }), 'X509 CRL'),
    )
    const { code, document } = await verify(...line(gateway.url, ...all, '--crl', crl))
    expect([code, checksOf(document, 'FAIL')]).toEqual([1, expect.arrayContaining(['gateway/evidence'])])
  })

  test('a gateway without evidence', async () => {
    // Goal: 503 is a failed check that names the code, and no crash.
    using none = await startGateway({ origin: noEvidenceOnHost })
    const { code, stdout } = await runHere(line(none.url, ...all))
    expect(code).toBe(2)
    expect(stdout).toContain(
      'because     there is no evidence to read (attestation-format: 503: attestation_unavailable: ',
    )
  })

  // Goal: whatever a server answers, the command ends with a failed check.
  test.each([
    ['no JSON', () => new Response('<html>')],
    ['an empty object', () => Response.json({})],
    ['not found', () => new Response('x', { status: 404 })],
    ['a redirect', () => Response.redirect(gateway.url)],
    ['too much', () => new Response(new Uint8Array(3 * 1024 * 1024))],
    ['a stream in chunks', () => new Response(new Blob(['{', '}']).stream())],
    ['a name twice', () => new Response('{"schemaVersion":1,"schemaVersion":1}')],
    [
      'terminal codes',
      () => new Response(JSON.stringify({ error: { code: '\u001b[2J', message: 'x' } }), { status: 500 }),
    ],
  ])('%s', async (what, answer) => {
    using other = await startOther(answer)
    const { code, stdout } = await runHere(line(other.url, ...all))
    expect([code, stdout.match(/, 1 failed, /)?.length]).toEqual([what === 'too much' ? 3 : 2, 1])
    expect(stdout).not.toContain('\u001b')
  })

  test('nobody there, and one who never answers', async () => {
    // Goal: the command ends by itself, with a failed check.
    const gone = await startOther(() => new Response())
    gone[Symbol.dispose]()
    using silent = await startOther(() => new Promise(() => {}))
    for (const { url } of [gone, silent]) {
      const { code, document } = await verify(...line(url, '--timeout-ms', '500'))
      expect([code, checksOf(document, 'FAIL')]).toEqual([3, ['connection']])
    }
  })
})

test('a saved document', async () => {
  // Goal: what a page has saved is judged without a network, by its nonce; nothing vouches for a connection then.
  const nonce = Buffer.alloc(32, 7).toString('base64url')
  const response = await fetch(`${gateway.url}/attestation?nonce=${nonce}`, { tls: { rejectUnauthorized: false } })
  const saved = ['verify', 'gateway', '--document', file('saved.json', await response.text()), ...all]
  const good = await verify(...saved, '--nonce', nonce)
  expect([good.code, checksOf(good.document, 'FAIL')]).toEqual([0, []])
  expect(checksOf(good.document, 'NOT CHECKED')).toEqual(['tls-binding', 'operational-status'])
  expect(checksOf(good.document, 'PASS')).not.toContain('connection')
  const other = await verify(...saved, '--nonce', Buffer.alloc(32, 8).toString('base64url'))
  expect(checksOf(other.document, 'FAIL')).toEqual(['attestation-nonce'])
  const late = await verify(...saved, '--nonce', nonce, '--as-of', '2090-01-01')
  expect(checksOf(late.document, 'FAIL')).not.toEqual([])
  await expectUsageError([...saved, gateway.url], 'both are there')
  await expectUsageError(['verify', 'gateway', ...all], 'none is there')
  await expectUsageError(line(gateway.url, '--nonce', nonce), '--nonce is for a saved --document')
  // Goal: an option without an effect is refused, rather than taken for one that was heeded.
  await expectUsageError([...saved, '--ca', 'ca.pem'], '--ca is for a connection, and a saved --document needs none')
  await expectUsageError([...saved, '--timeout-ms', '500'], '--timeout-ms is for a connection')
})

test('goal: bad input is refused with exit code 2', async () => {
  const urls = [
    'http://127.0.0.1:1',
    '127.0.0.1:1',
    'https://u:p@127.0.0.1:1',
    'https://127.0.0.1:1/v1',
    'https://a/?x',
  ]
  for (const url of urls) await expectUsageError(['verify', 'gateway', url], 'It must be https://HOST:PORT')
  const bad = file('bad.json', '{"schemaVersion":2}')
  await expectUsageError(line(gateway.url, '--allowlist', bad), '--allowlist')
  await expectUsageError(line(gateway.url, '--policy', bad), '--policy')
  await expectUsageError(line(gateway.url, '--crl', bad), '--crl')
  await expectUsageError(line(gateway.url, '--trust-simulated-root', bad), '--trust-simulated-root')
  await expectUsageError(['verify', 'gateway', gateway.url, '--ca', '/nonexistent'], '--ca /nonexistent')
})
