// Passkeys with the browser's WebAuthn: created in a session, and used to log in. Effects: the authenticator, requests.

import type { SessionDocument } from '../../../contract/admin/console.ts'
import { problemFrom, RequestProblem, requestJson } from './request.ts'

/** Reports whether this browser supports passkeys in the console's format. */
export function hasPasskeys(): boolean {
  return typeof PublicKeyCredential === 'function' && 'parseRequestOptionsFromJSON' in PublicKeyCredential
}

export async function logInByPasskey(): Promise<SessionDocument> {
  const options = await requestJson<PublicKeyCredentialRequestOptionsJSON>('/api/session/passkey/options', {
    method: 'POST',
    body: {},
  })
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options)
  const response = await answered(navigator.credentials.get({ publicKey }))
  return await requestJson<SessionDocument>('/api/session/passkey', { method: 'POST', body: { response } })
}

export async function addPasskey(name: string): Promise<void> {
  const options = await requestJson<PublicKeyCredentialCreationOptionsJSON>('/api/passkeys/options', {
    method: 'POST',
    body: {},
  })
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options)
  const response = await answered(navigator.credentials.create({ publicKey }))
  await requestJson('/api/passkeys', { method: 'POST', body: { name, response } })
}

async function answered(asked: Promise<Credential | null>): Promise<unknown> {
  const credential = await asked.catch((error: unknown) => {
    const isRefused = error instanceof DOMException && error.name === 'NotAllowedError'
    if (!isRefused) throw problemFrom(error)
    throw new RequestProblem({
      code: 'passkey',
      message: 'the passkey was not used: you cancelled, or time ran out',
      status: 0,
    })
  })
  if (credential instanceof PublicKeyCredential) return credential.toJSON()
  throw new RequestProblem({ code: 'passkey', message: 'the browser gave no passkey', status: 0 })
}
