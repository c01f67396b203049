// Goal: one policy file names all that an owner expects of an instance; commands for other evidence refuse its fields,
// and no option is overruled by it.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { type ExpectedStatement, readInstancePolicy } from '../../../src/client/trust/instance-policy.ts'
import { readPolicy, readPolicyFile } from '../../../src/client/trust/trust-options.ts'
import { samplePublicKey } from '../../rigs/instances/instance-attestation.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-instance-policy-'))
afterAll(() => rmSync(dir, { recursive: true }))

const report = encodePolicy({ ...strictPolicy(), idKeyDigest: new Uint8Array(48).fill(7) })
const egress = { default: 'refuse', allow: [{ host: 'github.com', port: 443 }] } as const
const secrets = [{ name: 'TOKEN', host: 'api.github.com', port: 443, header: 'Authorization' }]
const loginKeys = [samplePublicKey]
const none: ExpectedStatement = { egressPolicy: 'any', secrets: 'any', loginKeys: 'any' }
const required = { vmpl: 'required' } as const

function file(document: unknown): string {
  const path = join(dir, 'policy.json')
  writeFileSync(path, typeof document === 'string' ? document : JSON.stringify(document))
  return path
}
const read = async (document: unknown, options: Partial<ExpectedStatement> = {}) =>
  await readInstancePolicy(file(document), required, {}, { ...none, ...options })

test('goal: a file has any of these fields; the policy of the report stays as it is', async () => {
  const { policy, ...stated } = await read({ ...report, egress, secrets, loginKeys })
  expect(stated).toEqual({ egressPolicy: { ...egress, allow: [...egress.allow] }, secrets, loginKeys })
  expect(encodePolicy(policy)).toEqual(report)
  expect(await read(report)).toEqual({ policy, ...none })
  expect((await read({ ...report, secrets: [] })).secrets).toEqual([])
  expect(await readInstancePolicy(undefined, required, {}, none)).toEqual({
    policy: await readPolicy(undefined, required, {}),
    ...none,
  })
})

test('goal: a file names published ports, by any key or one', async () => {
  const published = [
    { name: 'api', port: 3_000 },
    { name: 'web', port: 3_001, keySha256: 'ab'.repeat(32) },
  ]
  expect((await read({ ...report, published })).published).toEqual(published)
  for (const wrong of [{ name: 'Api', port: 3_000 }, { name: 'api', port: 80 }, { name: 'api' }]) {
    await expect(read({ ...report, published: [wrong] })).rejects.toMatchObject({ code: 'invalid_request' })
  }
})

test('goal: an option counts where the file is silent, and both are an error', async () => {
  const options = { egressPolicy: { default: 'allow', allow: [] }, secrets: [], loginKeys } as const
  const { policy: _, ...stated } = await read(report, { ...options, egressPolicy: { default: 'allow', allow: [] } })
  expect(stated).toEqual({ ...options, egressPolicy: { default: 'allow', allow: [] } })
  for (const [option, field, document] of [
    ['egress-policy', 'egress', { egress }],
    ['secrets', 'secrets', { secrets }],
    ['login-keys', 'loginKeys', { loginKeys }],
  ] as const) {
    const both = read({ ...report, ...document }, { ...options, egressPolicy: { default: 'allow', allow: [] } })
    await expect(both).rejects.toMatchObject({
      code: 'invalid_request',
      message: `--${option}: ${join(dir, 'policy.json')} names ${field}, too`,
      remedy: `leave out --${option}, or ${field} in the file`,
    })
  }
})

// Goal: a mistake names its field.
test.each<[string, object]>([
  ['policy: /egress/default: ', { egress: { ...egress, default: 'deny' } }],
  ['policy: /egress/allow/0/x: ', { egress: { default: 'refuse', allow: [{ host: 'github.com', port: 443, x: 1 }] } }],
  ['policy.egress.allow: 192.0.2.1 ', { egress: { default: 'refuse', allow: [{ host: '192.0.2.1', port: 443 }] } }],
  ['policy: /secrets/0/host: ', { secrets: [{ ...secrets[0], host: 'API.github.com' }] }],
  ['policy: /secrets/0/value: ', { secrets: [{ ...secrets[0], value: 'not here' }] }],
  ['policy: /loginKeys: ', { loginKeys: [] }],
  ['policy.loginKeys[1]: ', { loginKeys: [samplePublicKey, 'ssh-ed25519 AAAA'] }],
  ['policy.secret: unknown field; did you mean secrets?', { secret: secrets }],
  ['policy.vmpls[0]: 4 is not an integer from 0 to 3; for example 0', { vmpls: [4], egress }],
])('goal: %s', async (reason, document) => {
  const message = expect.stringContaining(`--policy ${join(dir, 'policy.json')}: ${reason}`)
  await expect(read({ ...report, ...document })).rejects.toMatchObject({ code: 'invalid_request', message })
})

// Goal: JSON of another kind is an error, too.
test.each(['[]', 'null', '7'])('goal: %s is no policy', async text => {
  const message = expect.stringContaining(`policy: ${text} is not an object; for example { "format": `)
  await expect(read(text)).rejects.toMatchObject({ message })
})

// Goal: no command ignores a field that its user expects to be compared.
test.each(Object.entries({ egress, secrets, loginKeys }))('goal: other commands refuse %s', async (field, value) => {
  await expect(readPolicyFile(file({ ...report, [field]: value }), 'gateway-policy')).rejects.toMatchObject({
    code: 'invalid_request',
    message: `--gateway-policy ${join(dir, 'policy.json')}: policy.${field}: only commands for instances compare it`,
    remedy: `leave ${field} out of this file`,
  })
})
