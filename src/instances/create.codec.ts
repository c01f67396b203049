// Parses a create request from untrusted JSON and headers (contract 4.1). Pure.

import { Value } from '@sinclair/typebox/value'
import { utf8 } from '../base/bytes.ts'
import { Fault } from '../base/fault.ts'
import { type EgressPolicy, egressPolicyProblem, egressPolicyText } from '../contract/http/egress-policy.ts'
import { CreateInstance, idempotencyKeyCharsMax } from '../contract/http/instance.ts'
import { parsePublicKey } from './public-key.codec.ts'

export type CreateRequest = {
  /** Normalized. */
  readonly publicKey: string
  /** The text as it was sent, which records return. Default: the normalized one. */
  readonly sentKey?: string
  /** The requested model; null for the default. The service checks whether the model exists. */
  readonly inferenceModel: string | null
  /** Destinations that its programs may reach; null for no restriction inside the VM. */
  readonly egress: EgressPolicy | null
}

/** Parses a request. Fault invalid_request, with `param` if exactly one field is invalid. */
export function parseCreate(body: unknown): CreateRequest {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new Fault('invalid_request', 'The body must be a JSON object.')
  }
  if (!Value.Check(CreateInstance, body)) throw shapeFault(body)
  const { public_key: sentKey, inference_model: inferenceModel = null, egress = null } = body
  const problem = egress === null ? null : egressPolicyProblem(egress)
  if (problem !== null) throw new Fault('invalid_request', `${problem}.`, { param: 'egress' })
  const publicKey = parsePublicKey(sentKey)
  return { publicKey, ...(sentKey === publicKey ? {} : { sentKey }), inferenceModel, egress }
}

/**
 * Returns the bytes with which two bodies under one Idempotency-Key are compared. They depend only on the meaning, not
 * on key order, JSON escapes, white space in the key line, or explicit defaults. An absent model stays absent, so a
 * retry matches after the operator changed the default.
 */
export function canonicalCreate(request: CreateRequest): Uint8Array {
  const { publicKey, inferenceModel, egress } = request
  return utf8(JSON.stringify([publicKey, inferenceModel, ...(egress === null ? [] : [egressPolicyText(egress)])]))
}

/**
 * Returns the Idempotency-Key header, printable ASCII; null if there is none. Rejects a comma before a space, because
 * HTTP joins repeated headers that way. Fault invalid_request, param Idempotency-Key.
 */
export function parseIdempotencyKey(header: string | null): string | null {
  if (header === null) return null
  const refuse = (message: string) => new Fault('invalid_request', message, { param: 'Idempotency-Key' })
  if (header === '') throw refuse('The Idempotency-Key header is empty.')
  if (header.length > idempotencyKeyCharsMax) {
    throw refuse(`The Idempotency-Key header is longer than ${idempotencyKeyCharsMax} characters.`)
  }
  if (!/^[\x20-\x7e]+$/.test(header)) throw refuse('The Idempotency-Key header must be printable ASCII.')
  if (header.includes(', '))
    throw refuse('The Idempotency-Key header must be sent once, without a comma before a space.')
  return header
}

const fieldCharsMax = 64

/** Returns a Fault that names every invalid field once; `param` only if there is exactly one. */
function shapeFault(body: object): Fault {
  const wrong = new Map<string, string>()
  for (const name of Object.getOwnPropertyNames(body)) {
    if (!Object.hasOwn(CreateInstance.properties, name)) wrong.set(name, 'is not known')
  }
  for (const [name, schema] of Object.entries(CreateInstance.properties)) {
    const value: unknown = Object.hasOwn(body, name) ? Reflect.get(body, name) : undefined
    if (value === undefined) {
      if (name === 'public_key') wrong.set(name, 'is missing')
    } else if (!Value.Check(schema, value)) {
      wrong.set(name, complaint(value, schema))
    }
  }
  const names = [...wrong.keys()]
  const [only] = names
  const listed = names.slice(0, 5).map(name => `${shown(name)} ${wrong.get(name)}`)
  const more = names.length > listed.length ? `, and ${names.length - listed.length} more` : ''
  const message = `${listed.join(', ')}${more}`
  // A name that is too long to repeat is useless to a client as `param`.
  const param = names.length === 1 && only !== undefined && only.length <= fieldCharsMax ? { param: only } : {}
  return new Fault('invalid_request', message, param)
}

/** Describes the problem of one value. Quotes only the schema, never the value. */
function complaint(value: unknown, schema: { const?: unknown; maxLength?: number; type?: string }): string {
  if (schema.type === 'object') return egressForm
  if (typeof value !== 'string') return 'must be a string'
  if (typeof schema.const === 'string') return `must be ${JSON.stringify(schema.const)}`
  return `is longer than ${schema.maxLength} characters`
}

const egressForm =
  'must be an object of default ("refuse" or "allow") and allow, a list of at most 64 objects of host and port'

function shown(name: string): string {
  return /^[a-z_]{1,64}$/.test(name) ? name : JSON.stringify(name.slice(0, fieldCharsMax))
}
