// Sends an order of the owner to an instance that has just been verified (contract/vm/orders/). Effects: processes.
//
// Programs in the instance pass it on. They can drop or delay it, but not read it, change it, or answer it: the answer
// is sealed under the order's own key.

import { encapsulateWith } from '../../attest/receipt/encapsulate.ts'
import { present } from '../../base/assert.ts'
import { fromBase64Url, toBase64Url, toHex, utf8 } from '../../base/bytes.ts'
import { systemClock } from '../../base/clock.ts'
import { parseJson } from '../../base/json.ts'
import { resultOr } from '../../base/result-or.ts'
import { checkValue, matches } from '../../contract/check.ts'
import {
  type Order,
  OrderAnswer,
  type OrderKind,
  OrderReply,
  orderBytesMax,
  orderLineBytesMax,
  orderVersion,
  type SealedOrder,
} from '../../contract/vm/orders/order.ts'
import { nativeAesGcm } from '../../linux/native-aes-gcm.ts'
import { nativeEncapsulation } from '../../linux/native-encapsulation.ts'
import type { Run } from '../../terminal/command.ts'
import { AdvisedFault, InputFault } from '../../terminal/exit.ts'
import { oneLine } from '../../terminal/render.ts'
import { askSsh } from '../instances/openssh.ts'
import type { VerifiedInstance } from '../instances/verified.ts'
import { signOrder } from './sign.ts'

const remoteCommand = 'strongroom-order'
const timeoutMs = 300_000
const nonceBytes = 12
/** X-Wing: ML-KEM-768, then X25519. */
const mlkem768Bytes = 1_184

/**
 * Signs an order, sends it, and returns the answer of the VM. `body`: a JSON value, as the kind requires. Faults:
 * host.command_failed (ssh, ssh-keygen, no answer), invalid_request.
 */
export async function sendOrder(
  run: Run,
  instance: VerifiedInstance,
  kind: OrderKind,
  body: unknown,
): Promise<OrderAnswer> {
  const counter = systemClock.nowMs()
  const answer = await exchange(run, instance, orderOf(instance, { kind, body, counter }))
  // The clock of this machine is behind that of another owner.
  if (answer.ok || answer.counter === undefined || answer.counter <= counter) return answer
  return await exchange(run, instance, orderOf(instance, { kind, body, counter: answer.counter + 1 }))
}

/** Returns the result of an order that was carried out. Throws Fault conflict for another answer. */
export function carriedOut(answer: OrderAnswer): unknown {
  if (answer.ok) return answer.result
  throw new AdvisedFault('conflict', `the instance refuses the order: ${oneLine(answer.message)}`, {
    remedy: 'correct what the message names, then repeat the command',
  })
}

function orderOf({ judged, knownHost }: VerifiedInstance, given: Pick<Order, 'kind' | 'body' | 'counter'>): Uint8Array {
  const hostKey = present(judged.found.hostKey, 'a verified instance has a host key')
  const order: Order = {
    version: orderVersion,
    instance: knownHost.hostname,
    boot: toHex(hostKey.digest),
    ...given,
  }
  const bytes = utf8(JSON.stringify(order))
  if (bytes.length <= orderBytesMax) return bytes
  throw new InputFault(`the order has ${bytes.length} bytes, at most ${orderBytesMax} are taken`, {
    remedy: 'shorten what it contains',
  })
}

async function exchange(run: Run, instance: VerifiedInstance, order: Uint8Array): Promise<OrderAnswer> {
  const xwing = present(instance.judged.found.xwingPublicKey, 'a verified instance has a key')
  const keys = { mlkem768: xwing.slice(0, mlkem768Bytes), x25519: xwing.slice(mlkem768Bytes) }
  const signature = await signOrder(run, order, instance)
  const { sharedSecret, encapsulated } = await encapsulateWith('xwing', keys, nativeEncapsulation)
  const cipher = nativeAesGcm(sharedSecret)
  const content = utf8(JSON.stringify({ order: toBase64Url(order), signature }))
  const sealed: SealedOrder = {
    encapsulated: toBase64Url(encapsulated),
    sealed: toBase64Url(cipher.seal(new Uint8Array(nonceBytes), content)),
  }
  const login = { ...instance, args: [...instance.args, remoteCommand] }
  const input = `${JSON.stringify(sealed)}\n`
  const { stdout, code } = await askSsh(run, login, { input, bytesMax: 2 * orderLineBytesMax, timeoutMs })
  const lines = stdout.split('\n')
  for (const line of lines) {
    const answer = await answerIn(line, cipher.open)
    if (answer !== null) return answer
  }
  const refused = lines.map(refusalIn).find(message => message !== null)
  // Any program in the instance may have written it.
  if (refused !== undefined) return { ok: false, message: `${refused} (the VM does not prove this answer)` }
  throw unanswered(code, instance)
}

type Open = ReturnType<typeof nativeAesGcm>['open']

/** Null for a line that the VM did not write for this order, such as those of the user's profile. */
async function answerIn(line: string, open: Open): Promise<OrderAnswer | null> {
  try {
    const reply = parseJson(utf8(line), { depthMax: 1 })
    if (!matches(OrderReply, reply) || 'refused' in reply) return null
    const sealed = fromBase64Url(reply.sealed)
    if (sealed === null) return null
    const text = await open(sealed.subarray(0, nonceBytes), sealed.subarray(nonceBytes))
    const answer = checkValue(OrderAnswer, parseJson(text, { depthMax: 64 }))
    return answer.ok ? answer.value : null
  } catch {
    return null
  }
}

function refusalIn(line: string): string | null {
  const reply = resultOr(() => parseJson(utf8(line), { depthMax: 1 }), null)
  return matches(OrderReply, reply) && 'refused' in reply ? reply.refused : null
}

/** An order has no end of its own: only its counter, and the boot, make it void. */
const heldBack =
  'repeat the command, or send `strongroom keep`: a program in the instance can hold an order back and deliver it later, until another one is accepted'

function unanswered(code: number, { knownHost: { hostname } }: VerifiedInstance): AdvisedFault {
  if (code === 127) {
    return new AdvisedFault('host.command_failed', `${hostname}: the image of the instance takes no orders`, {
      remedy: 'create an instance of a newer image',
    })
  }
  return new AdvisedFault('host.command_failed', `${hostname}: no answer to the order (exit code ${code} of ssh)`, {
    remedy: `see what ssh wrote above${code === 255 ? '; `strongroom ssh` must log in first' : ''}; then ${heldBack}`,
  })
}
