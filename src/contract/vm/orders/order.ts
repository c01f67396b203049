// Orders: changes of a running instance that its owner signs. Pure.
//
// Programs in an instance and its owner share a user, so nothing in an SSH session proves the owner. A signature by a
// key that logs in does. An order is sealed to the key agreement pair of a verified statement, so no program that
// passes it on can read it.

import { Base64Url, Closed, Sha256 } from '../../forms.ts'
import { type Static, Type } from '../../type.ts'

/** The namespace of the signature (ssh-keygen(1), -Y sign). */
export const orderNamespace = 'strongroom-order'
export const orderVersion = 1
/** Largest order. */
export const orderBytesMax = 65_536
const signatureCharsMax = 16_384
/** Overhead of AES-256-GCM: the answer's nonce, and the tag. */
const sealBytes = 12 + 16

export const orderKinds = [
  'egress_policy',
  'egress_log',
  'secret_put',
  'secret_remove',
  'keys',
  'idle',
  'keep',
  'snapshot_recipients',
  'snapshot_every',
  'publish',
] as const
export type OrderKind = (typeof orderKinds)[number]

export const Order = Closed({
  version: Type.Literal(orderVersion),
  /** Host name of the instance. */
  instance: Type.String({ maxLength: 253 }),
  /** SHA-256 of the SSH host key, which a VM makes at boot: as in its statement. */
  boot: Sha256,
  /** Greater than that of every order that this boot has accepted. */
  counter: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  /** One of `orderKinds`, or a kind of a later release. */
  kind: Type.String({ pattern: '^[a-z_]{1,32}$' }),
  /** By kind. */
  body: Type.Unknown(),
})
export type Order = Static<typeof Order>

/**
 * Returns the signed text: the SHA-256 of the order's bytes, in hexadecimal. ssh-keygen never reads an order, which may
 * contain a secret.
 */
export function signedText(orderSha256: string): string {
  return `${orderSha256}\n`
}

/** `order`: an Order's JSON text. `signature`: of its `signedText` (PROTOCOL.sshsig, armored). */
export const SignedOrder = Closed({
  order: Base64Url(1, orderBytesMax),
  signature: Type.String({ maxLength: signatureCharsMax }),
})
export type SignedOrder = Static<typeof SignedOrder>

const base64CharsOf = (bytes: number) => Math.ceil((bytes * 4) / 3)
/** JSON escapes the line ends of the signature. */
const signedBytesMax = base64CharsOf(orderBytesMax) + 2 * signatureCharsMax + 64
const encapsulatedBytes = 1_120

/**
 * One line. `sealed`: a SignedOrder's JSON under AES-256-GCM. Its key is the secret that `encapsulated` gives (X-Wing)
 * and seals this order alone, so its nonce is zero.
 */
export const SealedOrder = Closed({
  encapsulated: Base64Url(encapsulatedBytes, encapsulatedBytes),
  sealed: Base64Url(1, signedBytesMax + sealBytes),
})
export type SealedOrder = Static<typeof SealedOrder>

/** Longest line with its LF. */
export const orderLineBytesMax = base64CharsOf(encapsulatedBytes + signedBytesMax + sealBytes) + 64

/** `counter`: that of the last accepted order, for a refused counter. */
export const OrderAnswer = Type.Union([
  Closed({ ok: Type.Literal(true), result: Type.Unknown() }),
  Closed({
    ok: Type.Literal(false),
    message: Type.String({ maxLength: 2_048 }),
    counter: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  }),
])
export type OrderAnswer = Static<typeof OrderAnswer>

/** `sealed`: a random nonce, then an OrderAnswer's JSON under the order's key. `refused`: nothing was opened. */
export const OrderReply = Type.Union([
  Closed({ sealed: Base64Url(1, orderBytesMax + sealBytes) }),
  Closed({ refused: Type.String({ maxLength: 1_024 }) }),
])
export type OrderReply = Static<typeof OrderReply>

/** Fingerprint of an SSH key as ssh-keygen -l prints it. */
export const KeyFingerprint = Type.String({ pattern: '^SHA256:[A-Za-z0-9+/]{43}$' })
/** Keys that log in to one instance. */
export const loginKeysMax = 16

/** Body of `keys`. `add`: an OpenSSH public key line without options. */
export const KeysBody = Type.Union([
  Closed({ add: Type.String({ maxLength: 16_384 }) }),
  Closed({ remove: KeyFingerprint }),
])

const idleMinutesMax = 525_600
/** The idle time; null for none. */
export const IdleMinutes = Type.Union([Type.Integer({ minimum: 1, maximum: idleMinutesMax }), Type.Null()])
/** Body of `idle`: the VM ends after this time without use. Null for no end, also where the host has a time for it. */
export const IdleBody = Closed({ minutes: IdleMinutes })
/** Body of `keep`: no idle time ends the VM before this time is over. */
export const KeepBody = Closed({ minutes: Type.Integer({ minimum: 1, maximum: 43_200 }) })

/** Recipient of age for X25519, or an SSH key of a type that age takes, without a comment. */
export const Recipient = Type.String({
  maxLength: 4_096,
  pattern: '^(age1[02-9ac-hj-np-z]{58}|ssh-(ed25519|rsa) [A-Za-z0-9+/]+={0,2})$',
})
/** Body of `snapshot_recipients`. Empty for the keys that log in alone. */
export const RecipientsBody = Closed({ recipients: Type.Array(Recipient, { maxItems: 16 }) })
/** Body of `snapshot_every`: a snapshot each time this time is over and files have changed. Null for none. */
export const EveryBody = Closed({
  minutes: Type.Union([Type.Integer({ minimum: 15, maximum: 43_200 }), Type.Null()]),
})
