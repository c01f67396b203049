// Goal: a VM carries out an order once, only if a key that logs in has signed it for this boot of this VM, and whatever
// programs of the VM send besides changes nothing.

import { afterAll, beforeEach, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { sampleDocument } from '../../../scripts/rigs/instances/sample-claim.ts'
import { makeReceiptKeys } from '../../../src/attest/receipt/receipt-keys.ts'
import { toBase64Url, utf8 } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { OrderReply } from '../../../src/contract/vm/orders/order.ts'
import type { ClaimRecord } from '../../../src/guest/claim-record.ts'
import { createOrders, type OrderHandlers } from '../../../src/guest/orders/orders.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import { run } from '../../../src/linux/command.ts'
import { nativeKeys } from '../../../src/linux/native-keys.ts'
import {
  certify,
  newOwnerKey,
  type SealedLine,
  sealContent,
  signText,
  textOfOrder,
} from '../../rigs/guest/signed-order.ts'

const dir = mkdtempSync(join(tmpdir(), 'strongroom-orders-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))
const owner = newOwnerKey(dir, 'owner')
const stranger = newOwnerKey(dir, 'stranger')
const { uid, gid } = userInfo()
const receiptKeys = makeReceiptKeys(systemRandom, nativeKeys)
const hostname = 'abcd1234.acme.example.test'
const boot = '11'.repeat(32)
const claim: ClaimRecord = {
  claimId: 'claim-1',
  sha256: 'ab'.repeat(32),
  organization: 'acme',
  name: 'abcd1234',
  hostname,
  sshHostKeyDigest: boot,
  publicKeyDigest: '22'.repeat(32),
  document: sampleDocument({ organization: 'acme', name: 'abcd1234', hostname, publicKey: owner.publicKey }),
}
const good = { version: 1, instance: hostname, boot, counter: 1_000, kind: 'keep', body: { minutes: 5 } }

let root = ''
let paths = guestPaths('')
let done: unknown[] = []
let pauses = 0
beforeEach(() => {
  root = mkdtempSync(join(dir, 'root-'))
  paths = { ...guestPaths(root), authorizedKeys: join(root, 'authorized_keys'), ordersDir: join(root, 'orders') }
  writeFileSync(paths.authorizedKeys, `${owner.publicKey}\n`)
  done = []
  pauses = 0
})

const keep: OrderHandlers = {
  keep: async (body, { counter }) => {
    done.push([body, counter])
    return { ok: true, result: { done: done.length } }
  },
}

function orders({ handlers = keep, claimed = claim as ClaimRecord | null, keygenArgv = ['ssh-keygen'] } = {}) {
  return createOrders({
    paths,
    owner: { uid, gid },
    claim: () => claimed,
    decapsulate: receiptKeys.decapsulate,
    handlers,
    keygenArgv,
    run,
    random: systemRandom,
    clock: {
      sleep: async () => {
        pauses += 1
      },
    },
    log: silentLogger,
  })
}

type Signing = { readonly keyFile?: string; readonly namespace?: string; readonly text?: string }

/** An order as it is in the room of its owner; `changes` may break it. */
async function ordered(
  changes: object = {},
  { keyFile = owner.file, namespace, text }: Signing = {},
): Promise<SealedLine> {
  const order = JSON.stringify({ ...good, ...changes })
  const signature = signText(dir, keyFile, text ?? textOfOrder(order), namespace)
  return await sealContent(JSON.stringify({ order: toBase64Url(utf8(order)), signature }), receiptKeys.publicKeys)
}

const saidBy = async (take: (line: Uint8Array) => Promise<OrderReply>, { line, open }: SealedLine) =>
  open(await take(line))

test('goal: an order is carried out once, and its answer is for its owner alone', async () => {
  const take = orders()
  const first = await ordered()
  const reply = await take(first.line)
  expect(first.open(reply)).toEqual({ ok: true, result: { done: 1 } })
  expect(done).toEqual([[{ minutes: 5 }, 1_000]])
  expect(pauses).toBe(0)
  const other = await ordered({ counter: 1_001 })
  expect(() => other.open(reply)).toThrow()
  // Passed on a second time by a program of the VM, and to an agent that has started again.
  for (const again of [take, orders()]) {
    expect(await saidBy(again, first)).toEqual({
      ok: false,
      message: 'counter: 1000 is not above 1000, of the last accepted order',
      counter: 1_000,
    })
  }
  expect(await saidBy(orders(), other)).toEqual({ ok: true, result: { done: 2 } })
})

test('goal: what is wrong is refused by name, without an effect, and after a pause', async () => {
  const bad: [object, Signing, string][] = [
    [{ version: 2 }, {}, '/version'],
    [{ extra: 1 }, {}, '/extra'],
    [{ kind: 'shell' }, {}, 'kind: the image of this instance takes no shell'],
    [{ kind: 'constructor' }, {}, 'takes no constructor'],
    [{ kind: 'Shell' }, {}, '/kind'],
    [{ counter: 1.5 }, {}, '/counter'],
    [{ counter: 2 ** 53 }, {}, '/counter'],
    [{ instance: 'abcd1234.other.example.test' }, {}, 'instance: '],
    [{ boot: '12'.repeat(32) }, {}, 'boot: '],
    [{ kind: 'egress_policy' }, {}, 'kind: the image of this instance takes no egress_policy'],
    [{}, { keyFile: stranger.file }, 'signature: '],
    [{}, { namespace: 'file' }, 'signature: '],
    [{}, { text: textOfOrder('{}') }, 'signature: '],
    // The order itself instead of its digest.
    [{}, { text: JSON.stringify(good) }, 'signature: '],
    [{ body: { nested: JSON.parse(`${'['.repeat(20)}${']'.repeat(20)}`) } }, {}, 'nested'],
    [{ body: 'x'.repeat(65_536) }, {}, '/order'],
  ]
  const take = orders()
  for (const [changes, signing, word] of bad) {
    const answer = (await saidBy(take, await ordered(changes, signing))) as { ok: boolean; message: string }
    expect(answer.ok).toBe(false)
    expect(answer.message).toContain(word)
  }
  expect(done).toEqual([])
  expect(pauses).toBe(bad.length)
  // None of them has used up the counter.
  expect(await saidBy(take, await ordered({ counter: 1 }))).toEqual({ ok: true, result: { done: 1 } })
})

test('goal: a signature counts by its key: other types do, a certificate of another authority does not', async () => {
  const keys = [
    newOwnerKey(dir, 'rsa', ['-t', 'rsa', '-b', '2048']),
    newOwnerKey(dir, 'ecdsa', ['-t', 'ecdsa', '-b', '384']),
  ]
  writeFileSync(paths.authorizedKeys, keys.map(key => `${key.publicKey}\n`).join(''))
  const take = orders()
  for (const [at, key] of keys.entries()) {
    const answer = await saidBy(take, await ordered({ counter: at + 1 }, { keyFile: key.file }))
    expect(answer).toEqual({ ok: true, result: { done: at + 1 } })
  }
  const notAny = (await saidBy(take, await ordered({ counter: 10 }))) as { message: string }
  expect(notAny.message).toContain('signature: ')
  const certificate = certify(stranger)
  const certified = (await saidBy(take, await ordered({ counter: 11 }, { keyFile: certificate }))) as {
    message: string
  }
  expect(certified.message).toContain('signature: ')
})

test('goal: what is not sealed to this VM is refused unheard', async () => {
  const elsewhere = makeReceiptKeys(systemRandom, nativeKeys)
  const order = JSON.stringify(good)
  const content = JSON.stringify({
    order: toBase64Url(utf8(order)),
    signature: signText(dir, owner.file, textOfOrder(order)),
  })
  const foreign = await sealContent(content, elsewhere.publicKeys)
  const own = await sealContent(content, receiptKeys.publicKeys)
  const cut = Uint8Array.from(own.line)
  cut[cut.length - 10] = cut[cut.length - 10] === 0x41 ? 0x42 : 0x41
  const lines = [
    foreign.line,
    cut,
    utf8('\n'),
    utf8('{}\n'),
    utf8(`${'['.repeat(9_999)}\n`),
    new Uint8Array(99),
    utf8(content),
  ]
  const take = orders()
  for (const line of lines) {
    expect(await take(line)).toEqual({ refused: expect.stringContaining('not sealed to the key') })
  }
  expect(done).toEqual([])
  expect(pauses).toBe(lines.length)
  expect(await saidBy(take, own)).toEqual({ ok: true, result: { done: 1 } })
})

test('goal: many at once wait in a short line, and one after the other is carried out', async () => {
  let running = 0
  let most = 0
  const slow: OrderHandlers = {
    keep: async () => {
      running += 1
      most = Math.max(most, running)
      await Bun.sleep(1)
      running -= 1
      return { ok: true, result: null }
    },
  }
  const take = orders({ handlers: slow })
  const lines = await Promise.all(Array.from({ length: 12 }, (_, at) => ordered({ counter: at + 1 })))
  const replies = await Promise.all(lines.map(({ line }) => take(line)))
  expect(replies.filter(reply => 'refused' in reply)).toHaveLength(4)
  expect(most).toBe(1)
  expect(replies.slice(0, 8).every(reply => 'sealed' in reply)).toBe(true)
})

test('goal: a handler that refuses or fails says so, and has had its one turn', async () => {
  const failing: OrderHandlers = {
    keep: async () => ({ ok: false, message: 'minutes: too many' }),
    idle: async () => {
      throw new Error('no such file')
    },
  }
  const take = orders({ handlers: failing })
  expect(await saidBy(take, await ordered())).toEqual({ ok: false, message: 'keep: minutes: too many' })
  expect(await saidBy(take, await ordered({ counter: 1_001, kind: 'idle' }))).toEqual({
    ok: false,
    message: 'order: no such file',
  })
  expect(readFileSync(join(paths.ordersDir, 'counter'), 'utf8')).toBe('1001')
})

test('goal: without a claim, or without ssh-keygen, no order counts', async () => {
  const unclaimed = (await saidBy(orders({ claimed: null }), await ordered())) as { message: string }
  expect(unclaimed.message).toContain('no claim yet')
  const none = (await saidBy(orders({ keygenArgv: ['/nonexistent'] }), await ordered())) as { message: string }
  expect(none.message).toContain('signature: ')
  expect(done).toEqual([])
})
