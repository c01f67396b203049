// A browser's documents about a passkey (WebAuthn level 3, 5.1: RegistrationResponseJSON and
// AuthenticationResponseJSON), limited to the members that are used. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { Fault } from '../../base/fault.ts'
import { checked } from '../../contract/check.ts'

/** Schema of base64url text of at most `charsMax` characters. */
const Text = (charsMax: number) => Type.String({ pattern: '^[A-Za-z0-9_-]+$', maxLength: charsMax })

/** Schema of a credential id, which has at most 1,023 bytes (4, "Credential ID"). */
const Id = Text(1_364)
const clientDataCharsMax = 8_192
const dataCharsMax = 16_384

const Registration = Type.Object({
  id: Id,
  rawId: Id,
  type: Type.Literal('public-key'),
  response: Type.Object({ clientDataJSON: Text(clientDataCharsMax), attestationObject: Text(dataCharsMax) }),
})
export type Registration = Static<typeof Registration>

const Assertion = Type.Object({
  id: Id,
  rawId: Id,
  type: Type.Literal('public-key'),
  response: Type.Object({
    clientDataJSON: Text(clientDataCharsMax),
    authenticatorData: Text(dataCharsMax),
    signature: Text(dataCharsMax),
    userHandle: Type.Optional(Type.Union([Text(128), Type.Null()])),
  }),
})
export type Assertion = Static<typeof Assertion>

const nameCharsMax = 64
/** Visible characters only: no control characters, no text direction, no line breaks. */
const shownText = /^[^\p{C}\p{Zl}\p{Zp}]+$/u
const NewPasskey = Type.Object({
  name: Type.String({ minLength: 1, maxLength: nameCharsMax }),
  response: Registration,
})
export type NewPasskey = Static<typeof NewPasskey>

/** Reads a new passkey, without unused members. Fault invalid_request. */
export function readNewPasskey(body: unknown): NewPasskey {
  const { name, response } = checked(NewPasskey, body, { what: 'the passkey', code: 'invalid_request' })
  if (!shownText.test(name)) {
    throw new Fault('invalid_request', 'name may not hold control or direction characters.', { param: 'name' })
  }
  const { id, rawId, type, response: made } = response
  const { clientDataJSON, attestationObject } = made
  return { name, response: { id, rawId, type, response: { clientDataJSON, attestationObject } } }
}

/** Reads a log-in, without unused members. Fault invalid_request. */
export function readAssertion(body: unknown): Assertion {
  const asked = Type.Object({ response: Assertion })
  const { response } = checked(asked, body, { what: 'the passkey', code: 'invalid_request' })
  const { id, rawId, type, response: made } = response
  const { clientDataJSON, authenticatorData, signature, userHandle } = made
  return { id, rawId, type, response: { clientDataJSON, authenticatorData, signature, userHandle: userHandle ?? null } }
}
