// Carries out orders of the owner (contract/vm/orders/), whichever program of the VM passes them on. Effects: files of
// root, ssh-keygen, and those of the handlers.
//
// Programs of the VM may send anything, as often as they like, and repeat what they have passed on. They cannot read an
// order, change it, or answer instead of this VM.

import { sha256 } from '../../attest/hash.ts'
import type { Decapsulate } from '../../attest/receipt/kem.ts'
import { concat, fromBase64Url, toBase64Url, toHex, utf8 } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { parseJson } from '../../base/json.ts'
import { type Logger, redact } from '../../base/log.ts'
import { createSerial } from '../../base/work/serial.ts'
import { checkValue, matches } from '../../contract/check.ts'
import {
  Order,
  type OrderAnswer,
  type OrderKind,
  type OrderReply,
  orderNamespace,
  SealedOrder,
  SignedOrder,
  signedText,
} from '../../contract/vm/orders/order.ts'
import type { run } from '../../linux/command.ts'
import { ensureDir, type Owner, readTextOrNull, writeFileAtomic } from '../../linux/files.ts'
import { nativeAesGcm } from '../../linux/native-aes-gcm.ts'
import type { ClaimRecord } from '../claim-record.ts'
import type { GuestPaths } from '../paths.ts'

/** `result`: a JSON value. `message`: the wrong field of the body, and the remedy. */
export type OrderOutcome =
  | { readonly ok: true; readonly result: unknown }
  | { readonly ok: false; readonly message: string }
/** Carries out orders of one kind, one at a time. `body` is as the owner signed it; the handler checks it. */
export type OrderHandler = (body: unknown, context: { readonly counter: number }) => Promise<OrderOutcome>
export type OrderHandlers = Readonly<Partial<Record<OrderKind, OrderHandler>>>

type OrdersDeps = {
  readonly paths: Pick<GuestPaths, 'authorizedKeys' | 'ordersDir'>
  readonly owner: Owner
  /** The claim in force, or null. */
  readonly claim: () => ClaimRecord | null
  /** With the keys that statements of this VM name. */
  readonly decapsulate: Decapsulate
  readonly handlers: OrderHandlers
  /** ssh-keygen, without rights: it reads what any program may have sent. */
  readonly keygenArgv: readonly string[]
  readonly run: typeof run
  readonly random: RandomBytes
  readonly clock: Pick<Clock, 'sleep'>
  readonly log: Logger
}

/** Orders that wait or are carried out. */
const waitingMax = 8
/** Before the answer to a bad order, so that a program that sends them takes little of the processor. */
const refusalPauseMs = 1_000
const jsonDepthMax = 16
const verifyBounds = { timeoutMs: 30_000, outputBytesMax: 4_096 } as const
const answerNonceBytes = 12

/** Returns the function that takes one line (SealedOrder) and returns its reply. */
export function createOrders(deps: OrdersDeps): (line: Uint8Array) => Promise<OrderReply> {
  const serial = createSerial()

  const take = async (line: Uint8Array): Promise<OrderReply> => {
    const opened = await openOrder(line, deps.decapsulate).catch(() => null)
    const answer = opened === null ? null : await judge(opened.content, deps)
    if (answer?.ok !== true) await deps.clock.sleep(refusalPauseMs)
    if (opened === null || answer === null) return { refused: notOpened }
    const nonce = deps.random(answerNonceBytes)
    return { sealed: toBase64Url(concat(nonce, opened.cipher.seal(nonce, utf8(JSON.stringify(answer))))) }
  }
  return async line => (serial.size() >= waitingMax ? { refused: tooMany } : await serial.run(() => take(line)))
}

const notOpened =
  'order: not sealed to the key in the current statement of this VM: verify it again, then repeat the order'
const tooMany = 'order: too many orders wait: end the program in the instance that sends them, or try again in a minute'

/** Null if the line has another form. Rejects if the order is sealed to another key. */
async function openOrder(line: Uint8Array, decapsulate: Decapsulate) {
  const sealed = parseJson(line, { depthMax: 1 })
  if (!matches(SealedOrder, sealed)) return null
  const [encapsulated, box] = [fromBase64Url(sealed.encapsulated), fromBase64Url(sealed.sealed)]
  if (encapsulated === null || box === null) return null
  const cipher = nativeAesGcm(await decapsulate('xwing', encapsulated))
  return { cipher, content: await cipher.open(new Uint8Array(answerNonceBytes), box) }
}

async function judge(content: Uint8Array, deps: OrdersDeps): Promise<OrderAnswer> {
  try {
    return await obey(content, deps)
  } catch (error) {
    const reason = redact(messageOf(error))
    deps.log.error('order failed', { reason })
    return refuse(`order: ${reason}`)
  }
}

async function obey(content: Uint8Array, deps: OrdersDeps): Promise<OrderAnswer> {
  const { paths, owner, handlers, log } = deps
  const signed = checkValue(SignedOrder, parseJson(content, { depthMax: 1, what: 'order' }))
  if (!signed.ok) return refuse(`order: ${signed.problem}`)
  const bytes = fromBase64Url(signed.value.order)
  if (bytes === null) return refuse('order: not canonical base64url')
  const read = checkValue(Order, parseJson(bytes, { depthMax: jsonDepthMax, what: 'order' }))
  if (!read.ok) return refuse(`order: ${read.problem}`)
  const { instance, boot, counter, kind, body } = read.value
  const claim = deps.claim()
  if (claim === null) return refuse('order: this VM has no claim yet: wait until the instance is ready')
  if (instance !== claim.hostname) return refuse('instance: the order is for another instance than this one')
  if (boot !== claim.sshHostKeyDigest) return refuse('boot: the order is for another boot: verify the instance again')
  const counterFile = `${paths.ordersDir}/counter`
  const last = Number(readTextOrNull(counterFile) ?? 0)
  if (counter <= last) {
    return { ...refuse(`counter: ${counter} is not above ${last}, of the last accepted order`), counter: last }
  }
  const handler = Object.hasOwn(handlers, kind) ? handlers[kind as OrderKind] : undefined
  if (handler === undefined)
    return refuse(`kind: the image of this instance takes no ${kind}: create one of a newer image`)
  if (!(await isSigned(bytes, signed.value.signature, deps))) return refuse(notSigned)
  // Before the handler: an order has an effect once, even if it fails half-way.
  writeFileAtomic(counterFile, String(counter), { mode: 0o600, owner })
  const outcome = await handler(body, { counter })
  log.info('order', { kind, counter, ok: outcome.ok })
  return outcome.ok ? outcome : refuse(`${kind}: ${outcome.message}`)
}

const notSigned = `signature: not of a key that this instance accepts, in the namespace ${orderNamespace}: sign with a key that logs in`

function refuse(message: string): { readonly ok: false; readonly message: string } {
  return { ok: false, message: message.slice(0, 2_048) }
}

/** Reports whether a key that logs in has signed the order with these bytes. */
async function isSigned(bytes: Uint8Array, signature: string, deps: OrdersDeps): Promise<boolean> {
  const { paths, owner, keygenArgv, run, log } = deps
  const [signers, file] = [`${paths.ordersDir}/allowed_signers`, `${paths.ordersDir}/signature`]
  ensureDir(paths.ordersDir, { mode: 0o755, owner })
  const keys = (readTextOrNull(paths.authorizedKeys) ?? '').split('\n').filter(line => line !== '')
  const lines = keys.map(key => `owner namespaces="${orderNamespace}" ${key}\n`)
  writeFileAtomic(signers, lines.join(''), { mode: 0o644, owner })
  writeFileAtomic(file, signature, { mode: 0o644, owner })
  try {
    const argv = [...keygenArgv, '-Y', 'verify', '-f', signers, '-I', 'owner', '-n', orderNamespace, '-s', file]
    await run(argv, { ...verifyBounds, stdin: signedText(toHex(sha256(bytes))) })
    return true
  } catch (error) {
    log.warn('an order with a bad signature', { reason: redact(messageOf(error)) })
    return false
  }
}
