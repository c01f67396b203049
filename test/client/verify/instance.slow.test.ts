// strongroom verify instance against a stand-in for service A over real HTTPS, and offline.

import { afterAll, afterEach, describe, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { operatorKey as sampleOperatorKey } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { sampleDocument, sampleGateway } from '../../../scripts/rigs/instances/sample-claim.ts'
import { simulatedAsOf } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { publicIdKey } from '../../../src/attest/launch/id-block-sign.ts'
import { idKeyDigest } from '../../../src/attest/launch/id-block-verify.ts'
import { toBase64Url, toHex } from '../../../src/base/bytes.ts'
import { sampleApiKey, startInstanceApi } from '../../rigs/instances/instance-api.ts'
import {
  ed25519Line,
  makeInstanceAttestation,
  sampleHostKey,
  sampleInstance,
  sampleManifestText,
  sampleNonce,
  samplePublicKey,
} from '../../rigs/instances/instance-attestation.ts'
import { checksOf, commandsIn, expectUsageError, pastedWords, runHere } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-verify-instance-'))
const api = await startInstanceApi(dir)
afterAll(async () => {
  await api[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true })
})
const known = join(dir, 'known_hosts')
afterEach(() => {
  Object.assign(api, { wanted: {}, answer: null })
  api.requests.length = 0
  rmSync(known, { force: true })
})

const { hostname } = sampleInstance
const own = ['--public-key', samplePublicKey]
const sampleSecret = { name: 'TOKEN', host: 'api.github.com', port: 443, header: 'Authorization' }
const line = (...more: string[]) => ['verify', 'instance', hostname, '--known-hosts', known, ...own, ...more]
const online = (...more: string[]) => line('--api', api.url, ...api.options, ...more)

function file(name: string, text: string): string {
  const path = join(dir, name)
  writeFileSync(path, text)
  return path
}

async function verify(argv: string[]) {
  const { code, stdout } = await runHere([...argv, '--json'])
  return { code, document: JSON.parse(stdout) }
}

describe('a good one', () => {
  test('goal: it has one fact a line, says SIMULATED first, and writes the line', async () => {
    const { code, stdout, stderr } = await runHere(online())
    expect([code, stdout.split('\n').slice(0, -2)]).toEqual([
      0,
      [
        'VERDICT: PASS SIMULATED, no hardware attests this evidence',
        'SIMULATED   no hardware protects this VM: its host can read and change all that is in it; use it for tests alone',
        `you may     log in to ${hostname}, for tests alone`,
        '            its SSH host key SHA256:RXm/ruZ0eTzRXKwi1AQEDynB0VgHQ2ac9KPSFdf/YnA was made inside the VM',
        expect.stringMatching(
          /^ {12}it lets in your SSH key alone: SHA256:baqJQ\S+, named by --public-key or client.toml$/,
        ),
        `runs        image instance, measurement 090909090909…, as named by ${join(dir, 'policy.json')}`,
        'started by  the operator whose key you pinned, 040404040404…',
        'read by     its host and the operator, all of it: a SIMULATED VM has no encrypted memory',
        'prompts     only inside: to https://inference.strongroom.internal:8442/v1, model tiny, in the measured VM c1c1c1c1c1c1…',
        'hardware    none: SIMULATED, in the form of AMD EPYC Genoa with SEV-SNP',
        expect.stringMatching(
          /^ {12}firmware 27, microcode 88: no older than AMD's security fixes known on [0-9-]{10}$/,
        ),
        'not proved  what was done in the instance after it was claimed',
        "            what it may reach: the firewall is the host's, which promises 5.0 GiB to the public Internet",
      ],
    ])
    // Those stand in --verbose and --json.
    expect(stdout).not.toMatch(/VMPL|TCB|CRL|ARK\b|\bpin-/)
    expect(stderr).toBe(`${known}: wrote the line of ${hostname}\n`)
    expect(readFileSync(known, 'utf8')).toBe(`${hostname} ${sampleHostKey}\n`)
  })

  test('goal: the request has a fresh nonce each time, and the key only in its field', async () => {
    await verify(online())
    await verify(online())
    const nonces = api.requests.map(request => /\?nonce=([A-Za-z0-9_-]{43})$/.exec(request.path)?.[1])
    expect([new Set(nonces).size, nonces.includes(undefined)]).toEqual([2, false])
    for (const { path, authorization } of api.requests) {
      expect([path.split('?')[0], authorization]).toEqual([
        `/v1/instances/${sampleInstance.name}/attestation`,
        `Bearer ${sampleApiKey}`,
      ])
      expect(path).not.toContain(sampleApiKey)
    }
  })

  test('goal: programs get every check, the keys and where the line was written', async () => {
    const image = file('manifest.json', sampleManifestText)
    const { code, document } = await verify(
      online('--image', image, '--public-key', file('id.pub', `${samplePublicKey}\n`)),
    )
    expect([code, document.ok, document.simulated, checksOf(document, 'FAIL')]).toEqual([0, true, true, []])
    expect(checksOf(document, 'PASS')).toEqual(expect.arrayContaining(['image', 'own-key', 'receipt/host-key']))
    expect(checksOf(document.receipt, 'PASS')).toContain('signature-mldsa65')
    expect(document.host_key.line).toBe(`${hostname} ${sampleHostKey}`)
    expect(document.xwing_public_key).toHaveLength(Math.ceil((1216 * 4) / 3))
    expect(document.known_hosts).toEqual({ file: known, written: true, replaced: 0, hashed_lines: [] })
  })

  test('goal: --image takes the directory, too, and gives the measurement', async () => {
    file('manifest.json', sampleManifestText)
    const policy = JSON.parse(readFileSync(join(dir, 'policy.json'), 'utf8'))
    const open = file('open-policy.json', JSON.stringify({ ...policy, measurements: 'any' }))
    const { code, document } = await verify([...online('--image', dir), '--policy', open])
    expect([code, checksOf(document, 'PASS').includes('receipt/measurement')]).toEqual([0, true])
    const without = await verify([...online(), '--policy', open])
    expect([without.code, checksOf(without.document, 'FAIL')]).toEqual([6, ['pin-measurement']])
  })

  test('goal: every waiver is repeated, and --verbose names every check', async () => {
    const waivers = ['measurement', 'operator-key', 'gateway', 'vmpl', 'crl', 'tcb'].map(pin => `--any-${pin}`)
    const argv = line('--api', api.url, ...api.options.filter((_, at) => at < 2 || at > 5), ...waivers)
    const { code, stdout } = await runHere(argv)
    expect(code).toBe(0)
    expect(stdout).toContain(
      'not proved  which image runs (accepted any measurement: you asked with --any-measurement)\n',
    )
    for (const flag of waivers) expect(stdout).toContain(`: you asked with ${flag})\n`)
    expect(stdout).toContain('started by  an operator whose key you did not pin, 040404040404…\n')
    const verbose = await runHere(online('--verbose'))
    expect(verbose.stdout).toContain('PASS receipt/claim: 4 checks')
    expect(verbose.stdout).toContain('NOT CHECKED scope: ')
    expect(verbose.stdout).toContain('\nrests on VMPL: 0\n')
    expect(verbose.stdout).toContain('\nrests on root: SIMULATED root ')
  })

  test('goal: it says where prompts go, and a gateway that nothing vouches for passes only by its name', async () => {
    const url = 'https://inference.strongroom.internal:8442/v1'
    const onHost = { kind: 'unattested', why: 'host', ca: null } as const
    const claim = sampleDocument({ ...sampleInstance, publicKey: samplePublicKey }, onHost)
    Object.assign(api, { wanted: { claim } })
    const refused = await runHere(online('--any-gateway'))
    expect(refused.code).toBe(6)
    expect(refused.stdout).toContain('(prompts: OUTSIDE, to the process of a host: prompts go to ')
    const { code, stdout: accepted } = await runHere(pastedWords(commandsIn(refused.stdout)[0]))
    expect(code).toBe(0)
    expect(accepted).toContain(
      `prompts     OUTSIDE, to the process of a host, whose operator can read them: ${url}, model tiny\n`,
    )
    expect(accepted).toContain(
      'what the gateway does with prompts (accepted a gateway that nothing attests (host), by that name)\n',
    )
    const { document } = await verify(online('--unattested-gateway', 'elsewhere'))
    expect(checksOf(document, 'FAIL')).toEqual(['prompts'])
    expect(document.claim.claim.inference.gateway).toEqual(onHost)
  })

  test('goal: workload.json of the gateway is compared with a file, a digest or the policy, and replaces its key', async () => {
    const text = '{"format":"strongroom/workload/v1"}'
    const digest = new Bun.CryptoHasher('sha256').update(text).digest('hex')
    const gateway = { ...sampleGateway, workloads: [digest] }
    Object.assign(api, {
      wanted: { claim: sampleDocument({ ...sampleInstance, publicKey: samplePublicKey }, gateway) },
    })
    const failed = async (...more: string[]) => checksOf((await verify(online(...more))).document, 'FAIL')
    const workload = file('workload.json', text)
    expect(await failed('--gateway-workload', workload)).toEqual([])
    expect(await failed('--gateway-workload', '00'.repeat(32), '--gateway-workload', digest)).toEqual([])
    expect(await failed('--gateway-workload', '00'.repeat(32))).toEqual(['prompts'])
    const named = JSON.parse(readFileSync(join(dir, 'gateway-policy.json'), 'utf8'))
    const policy = (changes: object) => ['--gateway-policy', file('g.json', JSON.stringify({ ...named, ...changes }))]
    expect(await failed(...policy({ hostData: digest, idKeyDigest: 'any' }))).toEqual([])
    expect(await failed(...policy({ hostData: '11'.repeat(32) }))).toEqual(['prompts'])
    const missing = await runHere(online('--gateway-workload', join(dir, 'none.json')))
    expect([missing.code, missing.stderr]).toEqual([2, expect.stringContaining('--gateway-workload')])
  })

  test('goal: a setting of the gateway that shows more to its host passes only by its name', async () => {
    const gateway: typeof sampleGateway = { ...sampleGateway, allow: ['usage-labels', 'kept-responses'] }
    Object.assign(api, {
      wanted: { claim: sampleDocument({ ...sampleInstance, publicKey: samplePublicKey }, gateway) },
    })
    const { document } = await verify(online('--allow', 'usage-labels'))
    expect(checksOf(document, 'FAIL')).toEqual(['prompts'])
    expect(document.failed).toBe('policy')
    const all = await verify(online('--allow', 'usage-labels', '--allow', 'kept-responses'))
    expect(checksOf(all.document, 'FAIL')).toEqual([])
    const unknown = await runHere(online('--allow', 'everything'))
    expect([unknown.code, unknown.stderr]).toEqual([
      2,
      expect.stringContaining('usage-labels, no-padding, kept-responses, traces, host-key'),
    ])
  })

  test('goal: an upstream outside passes only by its name, and without a policy of the gateway nothing does', async () => {
    const gateway = { ...sampleGateway, outside: ['cloud', 'far'] }
    Object.assign(api, {
      wanted: { claim: sampleDocument({ ...sampleInstance, publicKey: samplePublicKey }, gateway) },
    })
    const failed = async (...more: string[]) => checksOf((await verify(online(...more))).document, 'FAIL')
    expect(await failed()).toEqual(['prompts'])
    expect(await failed('--allow-outside', 'cloud')).toEqual(['prompts'])
    expect(await failed('--allow-outside', 'cloud', '--allow-outside', 'far')).toEqual([])
    const open = { ...JSON.parse(readFileSync(join(dir, 'gateway-policy.json'), 'utf8')), idKeyDigest: 'any' }
    const outside = ['--allow-outside', 'cloud', '--allow-outside', 'far']
    const unpinned = [...outside, '--gateway-policy', file('open-gateway.json', JSON.stringify(open))]
    expect(await failed(...unpinned)).toEqual(['pin-gateway'])
    expect(await failed(...unpinned, '--any-gateway')).toEqual([])
    // Another key beside the right one is a pin all the same; a field that would not be looked at is refused.
    const named = JSON.parse(readFileSync(join(dir, 'gateway-policy.json'), 'utf8'))
    const keys = { ...named, idKeyDigest: ['05'.repeat(48), named.idKeyDigest] }
    expect(await failed(...outside, '--gateway-policy', file('keys-gateway.json', JSON.stringify(keys)))).toEqual([])
    const more = file('more-gateway.json', JSON.stringify({ ...named, minimumBuild: 1 }))
    const { code, stderr } = await runHere(online(...outside, '--gateway-policy', more))
    expect([code, stderr]).toEqual([
      2,
      expect.stringContaining('policy.minimumBuild: only measurements, idKeyDigest and hostData'),
    ])
  })

  test('goal: client.toml names the gateway once and for all', async () => {
    const gateway = { ...sampleGateway, outside: ['cloud'] }
    Object.assign(api, {
      wanted: { claim: sampleDocument({ ...sampleInstance, publicKey: samplePublicKey }, gateway) },
    })
    const home = join(dir, 'config')
    mkdirSync(join(home, 'strongroom'), { recursive: true })
    const write = (text: string) => writeFileSync(join(home, 'strongroom/client.toml'), text, { mode: 0o600 })
    const argv = online().filter((text, at, all) => !(text + all[at - 1]).includes('--gateway-policy'))
    const run = () => runHere([...argv, '--json'], { variables: { XDG_CONFIG_HOME: home } })
    const policy = `gateway_policy = ${JSON.stringify(join(dir, 'gateway-policy.json'))}\n`
    write(policy)
    expect(checksOf(JSON.parse((await run()).stdout), 'FAIL')).toEqual(['prompts'])
    write(`${policy}allow_outside = "cloud, far"\n`)
    expect((await run()).code).toBe(0)
    write(`${policy}unattested_gateway = "nobody"\n`)
    expect((await run()).code).toBe(2)
  })

  test('goal: --no-known-hosts writes nothing', async () => {
    const argv = ['verify', 'instance', hostname, '--no-known-hosts', '--api', api.url, ...api.options, ...own]
    const { code, document } = await verify(argv)
    expect([code, document.known_hosts]).toEqual([0, null])
  })
})

describe('offline', () => {
  const options = api.options.filter((_, at) => at >= 2 && at < 8)
  const asOf = ['--as-of', simulatedAsOf.toISOString()]
  const saved = async (nonce = sampleNonce) =>
    file('saved.json', JSON.stringify(await makeInstanceAttestation({ nonce })))

  test('goal: a saved document needs no network and no key; with its nonce that is checked, too', async () => {
    const argv = line(...options, ...asOf, '--document', await saved())
    const known = await verify([...argv, '--nonce', toBase64Url(sampleNonce)])
    expect([known.code, checksOf(known.document, 'PASS').includes('attestation-nonce')]).toEqual([0, true])
    const unknown = await verify(argv)
    expect([unknown.code, checksOf(unknown.document, 'NOT CHECKED').includes('attestation-nonce')]).toEqual([0, true])
    expect(api.requests).toEqual([])
  })

  test('goal: another nonce, and a time at which nothing of it is valid, fail', async () => {
    const argv = line(...options, '--document', await saved())
    const replayed = await verify([...argv, ...asOf, '--nonce', toBase64Url(new Uint8Array(32))])
    expect([replayed.code, checksOf(replayed.document, 'FAIL')]).toEqual([1, ['attestation-nonce']])
    const late = await verify([...argv, '--as-of', '2027-01-01'])
    expect([late.code, checksOf(late.document, 'FAIL')]).toEqual([1, ['receipt/evidence']])
    expect(existsSync(known)).toBe(false)
  })
})

describe('what must not pass', () => {
  // Goal: nothing is written on FAIL; the exit code tells a document that nobody can read.
  test.each<readonly [string, () => void, readonly string[]]>([
    ['another nonce', () => Object.assign(api, { wanted: { nonce: sampleNonce } }), ['attestation-nonce']],
    ['an old statement', () => Object.assign(api, { wanted: { nowMs: Date.now() - 3_600_000 } }), ['receipt/nonce']],
    [
      'another organization',
      () => Object.assign(api, { wanted: { instance: { ...sampleInstance, organization: 'other' } } }),
      ['instance', 'receipt/claim'],
    ],
    ['no document', () => Object.assign(api, { answer: () => Response.json({}) }), ['attestation-format']],
    ['no JSON', () => Object.assign(api, { answer: () => new Response('<html>') }), ['attestation-format']],
  ])('%s', async (_, prepare, failed) => {
    writeFileSync(known, 'other.example ssh-ed25519 AAAA\n')
    prepare()
    const { code, document } = await verify(online())
    const exit = failed.includes('attestation-format') ? 2 : 1
    expect([code, document.ok, document.known_hosts]).toEqual([exit, false, null])
    expect(checksOf(document, 'FAIL')).toEqual([...failed])
    expect([document.host_key?.line ?? null, document.xwing_public_key]).toEqual([null, null])
    expect(readFileSync(known, 'utf8')).toBe('other.example ssh-ed25519 AAAA\n')
  })

  test('goal: a measurement or an operator key that the policy refuses is exit code 6; evidence that is false as well is 1', async () => {
    const policy = JSON.parse(readFileSync(join(dir, 'policy.json'), 'utf8'))
    const judge = async (changes: object) => {
      const wrong = file('wrong-policy.json', JSON.stringify({ ...policy, ...changes }))
      const { code, document } = await verify([...online(), '--policy', wrong])
      return [code, document.failed, checksOf(document, 'FAIL')]
    }
    const other = { measurements: ['ab'.repeat(48)] }
    expect(await judge(other)).toEqual([6, 'policy', ['receipt/evidence', 'receipt/measurement']])
    expect(await judge({ idKeyDigest: 'ab'.repeat(48) })).toEqual([
      6,
      'policy',
      ['receipt/evidence', 'receipt/operator-key'],
    ])
    expect((await judge({ ...other, idKeyDigest: 'ab'.repeat(48) }))[0]).toBe(6)
    const unrooted = (argv: string[]) => argv.filter((text, at) => !(text + argv[at - 1]).includes('trust-sim'))
    const argv = unrooted([...online(), '--policy', file('wrong-policy.json', JSON.stringify({ ...policy, ...other }))])
    const both = await verify(argv)
    expect([both.code, both.document.failed]).toEqual([1, 'evidence'])
    Object.assign(api, { wanted: { nonce: sampleNonce } })
    expect((await judge(other)).slice(0, 2)).toEqual([1, 'evidence'])
  })

  test('goal: simulated evidence without its root, and a key that is not mine', async () => {
    const { code, document } = await verify(
      online().filter((text, at, all) => !(text + all[at - 1]).includes('trust-sim')),
    )
    expect([code, checksOf(document, 'FAIL')]).toEqual([1, ['receipt/evidence']])
    const other = await verify(online('--public-key', file('other.pub', ed25519Line(7))))
    expect([other.code, checksOf(other.document, 'FAIL')]).toEqual([6, ['own-key']])
  })
})

describe('service A', () => {
  const refuse = (status: number, headers: Record<string, string> = {}) => {
    const error = { code: 'x', message: 'The words\u001b[2J of the service.' }
    api.answer = () => Response.json({ request_id: 'req_1', correlation_id: null, error }, { status, headers })
  }

  // Goal: each refusal says what to do next, also by its exit code; no raw bytes reach the terminal.
  test.each<readonly [number, number, string, Record<string, string>]>([
    [401, 1, 'use a key of the organization acme that is not revoked', {}],
    [403, 1, 'use a key of the organization acme that is not revoked', {}],
    [404, 4, 'check the name, that the key is of the organization acme', {}],
    [409, 5, 'wait until the status of the instance is ready', {}],
    [429, 1, 'try again in 7 s', { 'retry-after': '7' }],
    [503, 1, 'try again in a minute', {}],
    [500, 1, 'check that --api is service A', {}],
    [302, 1, 'check that --api is service A', { location: 'https://127.0.0.1:1/' }],
  ])('%i', async (status, exitCode, remedy, headers) => {
    refuse(status, headers)
    const { code, stdout, stderr } = await runHere(online())
    expect([code, stdout]).toEqual([exitCode, ''])
    expect(stderr).toContain(`${status}: The words`)
    expect(stderr).toContain(`remedy: ${remedy}`)
    expect(stderr).not.toContain('\u001b')
    expect(stderr).not.toContain(sampleApiKey)
    expect([api.requests.length, existsSync(known)]).toEqual([1, false])
  })

  test('goal: 401 names where the key was read', async () => {
    refuse(401)
    expect((await runHere(online())).stderr).toContain(`the key was read from the file ${join(dir, 'key.txt')}`)
  })

  test('goal: nobody there, one who never answers, and one who never ends', async () => {
    const nobody = await runHere(line('--api', 'https://127.0.0.1:1', ...api.options))
    expect([nobody.code, nobody.stderr.includes('check the address (--api)')]).toEqual([3, true])
    api.answer = () => new Promise(() => {})
    const silent = await runHere(online('--timeout-ms', '300'))
    expect([silent.code, silent.stderr.includes('no response within 300 ms')]).toEqual([3, true])
    api.answer = () => new Response(new Uint8Array(2 * 1024 * 1024))
    const large = await runHere(online())
    expect([large.code, large.stderr.includes('the response is larger than')]).toEqual([3, true])
  })

  test('goal: the key is sent to nobody whose certificate is not good: of a stranger, or for another host', async () => {
    const strange = await runHere(online().filter((text, at, all) => text !== '--ca' && all[at - 1] !== '--ca'))
    expect([strange.code, strange.stderr.includes('the API key was not sent')]).toEqual([3, true])
    const otherDir = mkdtempSync(join(tmpdir(), 'srt-verify-instance-'))
    try {
      await using named = await startInstanceApi(otherDir, ['other.example'])
      const wrong = await runHere(line('--api', named.url, ...api.options, '--ca', named.caFile))
      expect([wrong.code, wrong.stderr.includes('the API key was not sent')]).toEqual([3, true])
      expect(named.requests).toEqual([])
    } finally {
      rmSync(otherDir, { recursive: true })
    }
    expect(api.requests).toEqual([])
  })
})

test('goal: policy-example makes the policy of an image and an operator, and an instance passes by it', async () => {
  const argv = ['verify', 'policy-example', '--image', file('manifest.json', sampleManifestText)]
  const operatorKey = ['--operator-key', toHex(sampleOperatorKey)]
  const { code, stdout } = await runHere([...argv, ...operatorKey])
  const { measurements, idKeyDigest, platformInfo } = JSON.parse(stdout)
  expect([code, measurements.length, idKeyDigest, platformInfo.aliasCheck]).toEqual([
    ...[0, 2, toHex(sampleOperatorKey), 'required'],
  ])
  const passed = await verify([...online(), '--policy', file('example.json', stdout)])
  expect([passed.code, checksOf(passed.document, 'FAIL')]).toEqual([0, []])
  await expectUsageError([...argv, '--operator-key', '00'], '--operator-key 00: there is no such file')
  await expectUsageError([...argv, '--operator-key', join(dir, 'policy.json')], '--operator-key')
})

test('goal: one policy file also pins reach, secrets and login keys', async () => {
  const egress = { allow: [{ host: 'github.com', port: 443 }], default: 'refuse' }
  const policy = { ...JSON.parse(readFileSync(join(dir, 'policy.json'), 'utf8')), egress, secrets: [] }
  const judge = async (changes: object) => {
    const named = file('named.json', JSON.stringify({ ...policy, loginKeys: [samplePublicKey], ...changes }))
    const { code, document } = await verify([...online(), '--policy', named])
    return [code, ...checksOf(document, 'FAIL')]
  }
  Object.assign(api, { wanted: { statement: { egressPolicy: JSON.stringify(egress) } } })
  expect(await judge({})).toEqual([0])
  const changes = { egress: { ...egress, allow: [] }, loginKeys: [ed25519Line(7)], secrets: [sampleSecret] }
  expect(await judge(changes)).toEqual([6, 'login-keys', 'reach', 'secrets'])
})

test('goal: policy-example computes the digest of the key that an operator publishes', async () => {
  const curve = { name: 'ECDSA', namedCurve: 'P-384' }
  const { publicKey } = await crypto.subtle.generateKey(curve, true, ['sign', 'verify'])
  const pem = toPem(new Uint8Array(await crypto.subtle.exportKey('spki', publicKey)), 'PUBLIC KEY')
  const { code, stdout } = await runHere(['verify', 'policy-example', '--operator-key', file('key.pub.pem', pem)])
  const digest = toHex(await idKeyDigest(await publicIdKey(publicKey)))
  expect([code, JSON.parse(stdout).idKeyDigest]).toEqual([0, digest])
})

test('goal: bad input is refused with exit code 2', async () => {
  for (const wrong of ['k3v9x2ma', 'k3v9x2ma.acme', 'K3V9X2MA.acme.x', 'https://k3v9x2ma.acme.x']) {
    await expectUsageError(['verify', 'instance', wrong], 'It must be NAME.ORGANIZATION.DOMAIN')
  }
  await expectUsageError(line('--api', 'http://x'), 'It must be https://HOST:PORT')
  await expectUsageError(line('--nonce', 'x'), '43 characters')
  await expectUsageError(line('--nonce', toBase64Url(sampleNonce)), '--nonce is that of a saved --document')
  await expectUsageError(line(), 'an API key is needed')
  await expectUsageError(line('--key-file', file('bad-key.txt', 'gw_x')), 'no API key')
  await expectUsageError(line('--image', file('bad.json', '{}')), '--image')
  await expectUsageError(line('--document', '/nonexistent'), '--document /nonexistent')
  for (const [name, value] of [
    ['--ca', 'ca.pem'],
    ['--timeout-ms', '500'],
    ['--api', 'https://a.example:8441'],
    ['--key-file', 'key.txt'],
  ] as const) {
    const message = `${name} is for a connection, and a saved --document needs none`
    await expectUsageError(line('--document', 'saved.json', name, value), message)
  }
  await expectUsageError(['verify', 'instance', hostname], 'there is no HOME')
})
