// Goal: a passkey that a person makes in a session logs this person in again, with no more rights than then; nothing
// else does.

import { expect, test } from 'bun:test'
import { createPrivateKey } from 'node:crypto'
import { loadX509 } from '../../../src/attest/x509/runtime.ts'
import { listAudit } from '../../../src/store/ledger/audit.query.ts'
import { passkeys } from '../../../src/store/ledger/passkey.table.ts'
import { Authenticator, type Misdeed } from '../../rigs/console/authenticator.ts'
import { type ConsoleRig, cookieOf, linkToken, logIn, pageHeaders, startConsole } from '../../rigs/console/console.ts'

const administrators = [
  { uid: 1001, user: 'alice', role: 'operator' as const },
  { uid: 1002, user: 'bob', role: 'auditor' as const },
]

type Rig = Pick<ConsoleRig, 'send' | 'origin' | 'asRoot'>

async function post(
  rig: Rig,
  path: string,
  { body, cookie = '' }: { readonly body: unknown; readonly cookie?: string },
) {
  const headers = pageHeaders(rig.origin, cookie)
  return rig.send(path, { method: 'POST', headers, body: JSON.stringify(body) })
}

async function options(rig: Rig, path: string, cookie = '') {
  return (await (await post(rig, path, { body: {}, cookie })).json()) as never
}

/** A device with a passkey for a person. */
async function enrolled(rig: Rig, asked: Parameters<typeof logIn>[1] = {}, misdeed: Misdeed = {}) {
  const cookie = await logIn(rig, asked)
  const device = new Authenticator(rig.origin)
  const response = device.create(await options(rig, '/api/passkeys/options', cookie), misdeed)
  const made = await post(rig, '/api/passkeys', { body: { name: 'laptop', response }, cookie })
  return { device, cookie, status: made.status, passkey: (await made.json()) as { id: string } }
}

async function logInBy(rig: Rig, device: Authenticator, misdeed: Misdeed = {}) {
  const response = device.get(await options(rig, '/api/session/passkey/options'), misdeed)
  return post(rig, '/api/session/passkey', { body: { response } })
}

test('goal: made in a session it begins another, and the record names the person', async () => {
  await using rig = await startConsole({ administrators })
  const { device, status, passkey } = await enrolled(rig, { as: 'alice' })
  expect([status, passkey]).toMatchObject([201, { actor: 'alice', role: 'operator', rp_id: 'localhost', own: true }])
  const response = await logInBy(rig, device)
  expect(response.status).toBe(201)
  const session = (await response.json()) as object
  expect(session).toMatchObject({ actor: 'alice', role: 'operator', by: 'passkey' })
  const cookie = cookieOf(response)
  expect((await rig.send('/api/operator/organizations', { headers: { cookie } })).status).toBe(200)
  const rows = listAudit(rig.store.ledger.db, { after: null, sinceMs: null, actor: 'alice', limit: 10 })
  expect(rows.map(({ operation, arguments: asked }) => [operation, Reflect.get(asked, 'by') ?? null])).toEqual([
    ['console.login', 'link'],
    ['passkey.add', null],
    ['console.login', 'passkey'],
  ])
})

test('goal: a response of another page, name, purpose or person, or without a proof of who holds it, logs nobody in', async () => {
  await using rig = await startConsole()
  const { device } = await enrolled(rig)
  const misdeeds: Misdeed[] = [
    { origin: 'https://evil.example' },
    { origin: rig.origin.replace('https:', 'http:') },
    { rpId: 'evil.example' },
    { isUserVerified: false },
    { crossOrigin: true },
    { type: 'webauthn.create' },
    { counter: 1 },
    { userHandle: 'AAAA' },
  ]
  for (const misdeed of misdeeds) {
    const response = await logInBy(rig, device, misdeed)
    expect([misdeed, response.status, cookieOf(response)]).toEqual([misdeed, 403, ''])
  }
  expect((await logInBy(rig, device)).status).toBe(201)
})

test('goal: a signature is good once, for the challenge of this daemon alone', async () => {
  await using rig = await startConsole()
  // A counter that stands still, as many devices have: the challenge alone must refuse the second one.
  const still = { counter: 0 }
  const { device } = await enrolled(rig, {}, still)
  const response = device.get(await options(rig, '/api/session/passkey/options'), still)
  const ask = () => post(rig, '/api/session/passkey', { body: { response } })
  expect((await ask()).status).toBe(201)
  expect((await ask()).status).toBe(403)
  const foreign = device.get({ challenge: Buffer.alloc(56).toString('base64url'), rpId: 'localhost' }, still)
  expect((await post(rig, '/api/session/passkey', { body: { response: foreign } })).status).toBe(403)
})

test('goal: a key that is copied to other devices, or no longer, logs in all the same, also if its counter stays 0', async () => {
  const copied = { isBackupEligible: true, isBackedUp: true, counter: 0 }
  const notYet = { ...copied, isBackedUp: false }
  const impossible = { ...copied, isBackupEligible: false }
  for (const first of [copied, notYet]) {
    await using rig = await startConsole()
    const { device, status } = await enrolled(rig, {}, first)
    expect(status).toBe(201)
    for (const next of [notYet, copied, notYet]) {
      expect([first, next, (await logInBy(rig, device, next)).status]).toEqual([first, next, 201])
    }
    // 6.1.3: what may not be copied has not been.
    expect((await logInBy(rig, device, impossible)).status).toBe(403)
    expect((await logInBy(rig, device, copied)).status).toBe(201)
    // A device that counts must go on counting.
    expect((await logInBy(rig, device, { ...copied, counter: 7 })).status).toBe(201)
    expect((await logInBy(rig, device, copied)).status).toBe(403)
    expect((await enrolled(rig, {}, impossible)).status).toBe(403)
  }
})

test('goal: a challenge to make a passkey is good for its session alone', async () => {
  await using rig = await startConsole({ administrators })
  const [alice, bob] = [await logIn(rig, { as: 'alice' }), await logIn(rig, { as: 'bob' })]
  const device = new Authenticator(rig.origin)
  const ofAlice = device.create(await options(rig, '/api/passkeys/options', alice))
  const made = await post(rig, '/api/passkeys', { body: { name: 'x', response: ofAlice }, cookie: bob })
  expect(made.status).toBe(403)
  for (const misdeed of [{ isUserVerified: false }, { origin: 'https://evil.example' }, { format: 'tpm' }]) {
    const response = device.create(await options(rig, '/api/passkeys/options', alice), misdeed)
    const refused = await post(rig, '/api/passkeys', { body: { name: 'x', response }, cookie: alice })
    expect([misdeed, refused.status]).toEqual([misdeed, 403])
  }
  const unnamed = await post(rig, '/api/passkeys', { body: { name: 'a\u202eb', response: ofAlice }, cookie: alice })
  expect(unnamed.status).toBe(400)
})

test('goal: a device with a certificate of its maker is refused: nobody asked for it, nor asks its hosts about it', async () => {
  await using rig = await startConsole()
  const x509 = await loadX509()
  const keys = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, ['sign', 'verify'])
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: 'C=US, O=Maker, OU=Authenticator Attestation, CN=Device',
    keys,
    signingAlgorithm: { name: 'ECDSA', hash: 'SHA-256' },
    extensions: [new x509.BasicConstraintsExtension(false)],
  })
  const key = createPrivateKey({
    key: Buffer.from(await crypto.subtle.exportKey('pkcs8', keys.privateKey)),
    format: 'der',
    type: 'pkcs8',
  })
  const maker = { certificate: new Uint8Array(certificate.rawData), key }
  expect((await enrolled(rig, {}, { maker })).status).toBe(403)
  expect((await enrolled(rig)).status).toBe(201)
})

test('goal: a passkey of a session with fewer rights gives no more, and one of a person who is gone gives none', async () => {
  await using rig = await startConsole({ administrators })
  const { device } = await enrolled(rig, { as: 'alice', role: 'auditor' })
  expect(await (await logInBy(rig, device)).json()).toMatchObject({ actor: 'alice', role: 'auditor' })
  // As after a start with a configuration that does not name her.
  rig.store.ledger.db.update(passkeys).set({ actor: 'carol' }).run()
  expect((await logInBy(rig, device)).status).toBe(403)
})

test('goal: who removes a passkey ends its sessions; its own anybody may remove, those of others an admin', async () => {
  await using rig = await startConsole({ administrators })
  const alice = await enrolled(rig, { as: 'alice' })
  const bob = await logIn(rig, { as: 'bob' })
  const remove = (cookie: string) =>
    rig.send(`/api/passkeys/${alice.passkey.id}`, { method: 'DELETE', headers: pageHeaders(rig.origin, cookie) })
  expect((await remove(bob)).status).toBe(403)
  const session = cookieOf(await logInBy(rig, alice.device))
  expect((await remove(alice.cookie)).status).toBe(200)
  expect((await rig.send('/api/session', { headers: { cookie: session } })).status).toBe(401)
  expect((await rig.send('/api/session', { headers: { cookie: alice.cookie } })).status).toBe(200)
  expect((await logInBy(rig, alice.device)).status).toBe(403)
  const again = await enrolled(rig, { as: 'alice' })
  expect((await rig.asRoot('DELETE', `/console/passkeys/${again.passkey.id}`)).status).toBe(200)
})

test('goal: an address has no passkeys, and says why', async () => {
  await using rig = await startConsole()
  const token = await linkToken(rig)
  const origin = `https://127.0.0.1:${rig.port}`
  const response = await fetch(`${origin}/api/session`, {
    method: 'POST',
    headers: pageHeaders(origin),
    body: JSON.stringify({ token }),
    tls: { ca: rig.ca },
  })
  const session = (await response.json()) as { passkeys: { rp_id: null; why: string } }
  expect(session.passkeys).toEqual({ rp_id: null, why: expect.stringContaining('127.0.0.1 is an address') })
})
