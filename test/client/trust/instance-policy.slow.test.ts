// Goal: one policy file of an instance, commented by `verify policy init`, has the operator's list of chips, reach,
// secrets and login keys; each of them is compared.

import { afterAll, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chipIdOf, simulatedAsOf } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { publicIdKey } from '../../../src/attest/launch/id-block-sign.ts'
import { idKeyDigest } from '../../../src/attest/launch/id-block-verify.ts'
import { signChipList } from '../../../src/attest/policy/chip-list.ts'
import { toHex } from '../../../src/base/bytes.ts'
import {
  clientFiles,
  ed25519Line,
  makeInstanceAttestation,
  sampleInstance,
  sampleMeasurement,
  samplePublicKey,
} from '../../rigs/instances/instance-attestation.ts'
import { checksOf, runHere } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-one-policy-'))
afterAll(() => rmSync(dir, { recursive: true }))

const keys = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-384' }, true, ['sign', 'verify'])
const operator = await idKeyDigest(await publicIdKey(keys.publicKey))
const keySha256 = 'ab'.repeat(32)
const stated = {
  egress: { allow: [{ host: 'api.github.com', port: 443 }], default: 'refuse' },
  secrets: [{ header: 'Authorization', host: 'api.github.com', name: 'TOKEN', port: 443 }],
  published: [{ name: 'web', port: 3_000 }],
  loginKeys: [samplePublicKey],
}

const file = (name: string, text: string) => {
  writeFileSync(join(dir, name), text)
  return join(dir, name)
}
const listed = async (chipId: Uint8Array) =>
  file('chips.json', await signChipList({ chipIds: [chipId], issuedAtMs: simulatedAsOf.getTime() }, keys))

const { root, gatewayPolicy } = await clientFiles()
const attestation = await makeInstanceAttestation({
  report: { idKeyDigest: operator },
  statement: {
    operatorKey: operator,
    egressPolicy: JSON.stringify(stated.egress),
    secrets: stated.secrets.map(secret => JSON.stringify(secret)),
    published: [JSON.stringify({ keySha256, name: 'web', port: 3_000 })],
  },
})
const argv = [
  ...['verify', 'instance', sampleInstance.hostname, '--no-known-hosts', '--as-of', simulatedAsOf.toISOString()],
  ...['--public-key', samplePublicKey, '--trust-simulated-root', file('root.pem', root), '--json'],
  ...['--document', file('attestation.json', JSON.stringify(attestation))],
  ...['--gateway-policy', file('gateway.json', gatewayPolicy)],
]

/** Returns exit code and results by the verdict, which the file's content decides; `changes` of the stated fields. */
async function judge(commented: string, changes: object = {}) {
  const fields = JSON.stringify({ ...stated, ...changes }, null, 2).slice(1, -1)
  const work = file('work.json', commented.replace(/\n\}\n$/, `,\n  // What its VM states.${fields}}\n`))
  const { code, stdout, stderr } = await runHere([...argv, '--policy', work], { variables: { XDG_CONFIG_HOME: dir } })
  const document = JSON.parse(stdout)
  if (document.checks === undefined) throw new Error(stderr + stdout)
  const failed = [document, document.receipt].flatMap(judged => checksOf(judged, 'FAIL'))
  return { code, failed, passed: checksOf(document, 'PASS') }
}

test('goal: all of them in one file pass, and each that differs fails', async () => {
  const chips = await listed(chipIdOf('genoa'))
  const given = ['--image', toHex(sampleMeasurement), '--operator-key', toHex(operator), '--chips', chips]
  const out = join(dir, 'init.json')
  expect((await runHere(['verify', 'policy', 'init', ...given, '--out', out])).code).toBe(0)
  const commented = readFileSync(out, 'utf8')
  expect(commented).toContain('"list": "chips.json"')
  const good = await judge(commented)
  expect([good.code, good.failed]).toEqual([0, []])
  expect(good.passed).toEqual(expect.arrayContaining(['chip-list', 'login-keys', 'reach', 'secrets', 'published']))
  const changes = { egress: { ...stated.egress, allow: [] }, secrets: [], loginKeys: [ed25519Line(7)] }
  expect(await judge(commented, changes)).toMatchObject({ code: 6, failed: ['login-keys', 'reach', 'secrets'] })
  // A published port is a way out beside the reach, so a file that pins one names the other.
  for (const published of [
    undefined,
    [],
    [{ name: 'web', port: 3_001 }],
    [{ ...stated.published[0], keySha256: 'cd'.repeat(32) }],
  ]) {
    expect(await judge(commented, { published })).toMatchObject({ code: 6, failed: ['published'] })
  }
  expect(await judge(commented, { published: undefined, egress: undefined })).toMatchObject({ code: 0, failed: [] })
  // The operator key of client.toml counts as that of the file.
  const keyless = commented.replace(`"idKeyDigest": "${toHex(operator)}"`, '"idKeyDigest": "any"')
  await expect(judge(keyless)).rejects.toThrow('no operator key is named')
  mkdirSync(join(dir, 'strongroom'))
  file('strongroom/client.toml', `operator_key = "${toHex(operator)}"\n`)
  expect(await judge(keyless)).toMatchObject({ code: 0, failed: [] })
  await listed(new Uint8Array(64).fill(7))
  const moved = await judge(commented)
  expect([moved.code, moved.failed]).toEqual([6, ['receipt/evidence', 'evidence', 'chip-id']])
})

test('goal: the printed schema has the list and these fields', async () => {
  const { properties } = JSON.parse((await runHere(['verify', 'policy-schema', '--json'])).stdout)
  expect(Object.keys(properties)).toEqual(expect.arrayContaining(Object.keys(stated)))
  expect(JSON.stringify(properties.chipIds)).toContain('"list"')
})
