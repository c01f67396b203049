import { afterAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Socket } from 'bun'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { toBase64Url } from '../../../src/base/bytes.ts'
import { newUuid } from '../../../src/base/ids.ts'
import { agentLineBytesMax } from '../../../src/contract/vm/agent.ts'
import { type Channel, type ChannelLimits, connectChannel, usualLimits } from '../../../src/host/qemu/agent-channel.ts'

setDefaultTimeout(20_000)
const dir = mkdtempSync(join(tmpdir(), 'channel-test-'))
afterAll(() => rmSync(dir, { recursive: true }))

const key = Buffer.alloc(32, 7).toString('base64')
const hello = {
  protocol: 2,
  version: '1',
  bootId: newUuid(),
  boxKey: key,
  sshHostKey: 'ssh-ed25519 AAAA',
  claimId: null,
  platform: 'none' as const,
}
const network = { address: '10.88.0.5', gateway: '169.254.88.1', mtuBytes: 1500, resolvers: [] }
const sealed = { ephemeralKey: key, nonce: Buffer.alloc(24).toString('base64'), box: 'AA==' }
const claimed = { claimId: 'c', sshHostKey: 'ssh-ed25519 AAAA', key: null }

type Peer = {
  channel: Channel
  closes: string[]
  /** All that the host sent, as lines; the first is the empty one. */
  lines: () => string[]
  say: (text: string) => void
  socket: () => Socket
}

let peers = 0
/** A channel to a stand-in for QEMU and the guest behind it. `reply` gives the text to send for each request. */
async function withPeer(
  use: (peer: Peer) => Promise<void>,
  reply: (id: string, op: string) => string = () => '',
  limits: ChannelLimits = usualLimits,
) {
  peers += 1
  const path = join(dir, String(peers))
  let received = ''
  let client: Socket | undefined
  const listener = Bun.listen({
    unix: path,
    socket: {
      open: socket => {
        client = socket
      },
      data: (socket, bytes) => {
        received += bytes.toString()
        for (const line of bytes.toString().split('\n').filter(Boolean)) {
          const { id, op } = JSON.parse(line)
          socket.write(reply(id, op))
        }
      },
    },
  })
  const closes: string[] = []
  const channel = await connectChannel(path, {
    idPrefix: 'p1',
    timeoutMs: 15_000,
    onClose: reason => closes.push(reason),
    limits,
  })
  await until('the peer has a client', 15_000, () => client !== undefined)
  const socket = () => client as Socket
  try {
    await use({ channel, closes, lines: () => received.split('\n'), say: text => void socket().write(text), socket })
  } finally {
    channel.close()
    listener.stop(true)
  }
}

const line = (value: unknown) => `${JSON.stringify(value)}\n`
const usual = (id: string, op: string) =>
  line({ id, ok: true, ...(op === 'hello' ? { hello } : op === 'claim' ? { claimed } : {}) })

test('goal: each request gets its typed response, after a first empty line, with ids of the prefix', async () => {
  await withPeer(async ({ channel, lines }) => {
    expect(await channel.hello(15_000)).toEqual({ ...hello, protocol: 2 })
    await channel.network(network, 15_000)
    expect(await channel.claim(sealed, 15_000)).toEqual(claimed)
    await channel.shutdown(15_000)
    expect(lines()).toEqual([
      '',
      '{"id":"p1-1","op":"hello"}',
      `{"id":"p1-2","op":"network","network":${JSON.stringify(network)}}`,
      `{"id":"p1-3","op":"claim","sealed":${JSON.stringify(sealed)}}`,
      '{"id":"p1-4","op":"shutdown"}',
      '',
    ])
    expect(channel.ignored()).toEqual({ garbage: 0, overlong: 0, unasked: 0 })
  }, usual)
})

test('goal: evidence is asked for with nonce and launch, the receipt handed back, and another response refused', async () => {
  const nonce = new Uint8Array(32).fill(5)
  const launch = { measurement: 'ab'.repeat(48), operatorKey: 'cd'.repeat(48) }
  const text = (sizeBytes: number) => toBase64Url(new Uint8Array(sizeBytes))
  const evidence = {
    statement: text(10),
    keys: { ed25519: text(32), mldsa65: text(1952), x25519: text(32), mlkem768: text(1184) },
    signatures: { ed25519: text(64), mldsa65: text(3309) },
    report: null,
  }
  const reply = (id: string, op: string) => line({ id, ok: true, ...(op === 'evidence' ? { evidence } : {}) })
  await withPeer(async ({ channel, lines }) => {
    expect(await channel.evidence(nonce, launch, 15_000)).toEqual(evidence)
    expect((await channel.evidence(nonce, null, 15_000)).report).toBeNull()
    await channel.receipt('{"format":"x"}', 15_000)
    const asked = toBase64Url(nonce)
    expect(lines().slice(1, 4)).toEqual([
      `{"id":"p1-1","op":"evidence","nonce":"${asked}","simulated":${JSON.stringify(launch)}}`,
      `{"id":"p1-2","op":"evidence","nonce":"${asked}","simulated":null}`,
      `{"id":"p1-3","op":"receipt","receipt":"{\\"format\\":\\"x\\"}"}`,
    ])
  }, reply)
  await withPeer(
    async ({ channel }) => {
      expect(await failure(channel.evidence(nonce, launch, 15_000))).toMatchObject({ code: 'channel.refused' })
    },
    id => line({ id, ok: true }),
  )
})

test('goal: a refusal is channel.refused and names the code; so is a response of another kind', async () => {
  await withPeer(
    async ({ channel }) => {
      const refusal = await failure(channel.claim(sealed, 15_000))
      expect(refusal).toMatchObject({ code: 'channel.refused', message: 'bad_claim: does not open' })
      expect(await failure(channel.hello(15_000))).toMatchObject({ code: 'channel.refused' })
    },
    (id, op) =>
      line(op === 'claim' ? { id, ok: false, code: 'bad_claim', message: 'does not open' } : { id, ok: true }),
  )
})

test('goal: garbage, overlong lines, wrong ids and responses in pieces do not disturb the channel', async () => {
  await withPeer(async ({ channel, say, lines }) => {
    const asked = channel.hello(15_000)
    await until('the request is there', 15_000, () => lines().length === 3)
    say('\n\0\u00ff garbage\n{"id":"p1-1"}\n{"id":"p1-1","ok":true,"extra":1}\n')
    say(line({ id: 'p0-1', ok: true, hello }))
    // The guest takes what our end reads, so the long line goes out in parts.
    for (let sent = 0; sent < 3 * agentLineBytesMax; sent += 16_384) {
      say('x'.repeat(16_384))
      await Bun.sleep(1)
    }
    say('\n')
    const whole = usual('p1-1', 'hello')
    say(whole.slice(0, 20))
    await until('the rest is counted', 15_000, () => channel.ignored().overlong === 1)
    say(whole.slice(20))
    expect((await asked).bootId).toBe(hello.bootId)
    expect(channel.ignored()).toEqual({ garbage: 3, overlong: 1, unasked: 1 })
  })
})

test('goal: a late response is channel.timeout, is dropped when it comes, and the next request works', async () => {
  await withPeer(async ({ channel, say, lines }) => {
    expect(await failure(channel.hello(50))).toMatchObject({ code: 'channel.timeout' })
    say(usual('p1-1', 'hello'))
    await until('the late response is dropped', 15_000, () => channel.ignored().unasked === 1)
    const next = channel.hello(15_000)
    await until('the request is there', 15_000, () => lines().length === 4)
    say(usual('p1-2', 'hello'))
    expect((await next).bootId).toBe(hello.bootId)
  })
})

test('goal: when the other end goes, everything that waits is channel.closed, and onClose is called once', async () => {
  await withPeer(async ({ channel, socket, closes }) => {
    const waiting = [failure(channel.hello(10_000)), failure(channel.shutdown(10_000))]
    socket().terminate()
    for (const request of waiting) expect(await request).toMatchObject({ code: 'channel.closed' })
    await until('onClose', 15_000, () => closes.length > 0)
    expect(await failure(channel.hello(15_000))).toMatchObject({ code: 'channel.closed' })
    expect(closes.length).toBe(1)
  })
})

test('goal: requests and their size are bounded', async () => {
  await withPeer(async ({ channel, lines }) => {
    const many = Array.from({ length: 9 }, () => failure(channel.hello(50)))
    const codes = (await Promise.all(many)).map(({ code }) => code)
    expect(codes).toEqual([...Array(8).fill('channel.timeout'), 'channel.refused'])
    // A refused request is not sent.
    await until('the others are sent', 15_000, () => lines().length >= 10)
    expect(lines()).toHaveLength(10)
    const long = { ...sealed, box: 'A'.repeat(agentLineBytesMax) }
    expect(await failure(channel.claim(long, 15_000))).toMatchObject({ code: 'channel.refused' })
  })
})

test('goal: a request sent before the guest opens its port gets its response when it does', async () => {
  const path = join(dir, 'late')
  const asked = connectChannel(path, { idPrefix: 'p', timeoutMs: 15_000, onClose: () => {} })
  // The socket appears only now, and its other end reads later still.
  await Bun.sleep(60)
  let release: (() => void) | undefined
  const listener = Bun.listen({
    unix: path,
    socket: {
      open: socket => {
        socket.pause()
        release = () => socket.resume()
      },
      data: (socket, bytes) => {
        const { id, op } = JSON.parse(bytes.toString())
        socket.write(usual(id, op))
      },
    },
  })
  const channel = await asked
  const response = channel.hello(15_000)
  await until('connected', 15_000, () => release !== undefined)
  release?.()
  expect((await response).protocol).toBe(2)
  channel.close()
  listener.stop(true)
})

test('goal: a guest that floods is read at a bounded rate, and the channel still works', async () => {
  await withPeer(async ({ channel, socket, lines }) => {
    const flood = Buffer.from('{"id":"flood","ok":true}\n'.repeat(20_000))
    let at = 0
    const startedMs = performance.now()
    const asked = channel.hello(15_000)
    await until('the request is there', 15_000, () => lines().length === 3)
    await until('the flood is out', 10_000, () => {
      at += socket().write(flood.subarray(at))
      return at >= flood.length
    })
    socket().write(usual('p1-1', 'hello'))
    expect((await asked).protocol).toBe(2)
    expect(channel.ignored().unasked).toBe(20_000)
    // 480 kB, of which the first 256 KiB pass at once and the rest at 256 KiB a second.
    expect(performance.now() - startedMs).toBeGreaterThan(500)
  })
})

test('goal: short lines, which cost the most for their bytes, are read at a bounded rate, also where many bytes are allowed', async () => {
  await withPeer(
    async ({ channel, socket, lines }) => {
      const startedMs = performance.now()
      const asked = channel.hello(20_000)
      await until('the request is there', 15_000, () => lines().length === 3)
      const flood = Buffer.from(`${'1\n'.repeat(60_000)}${usual('p1-1', 'hello')}`)
      let at = 0
      await until('the flood is out', 10_000, () => {
        at += socket().write(flood.subarray(at))
        return at >= flood.length
      })
      expect((await asked).protocol).toBe(2)
      expect(channel.ignored().garbage).toBe(60_000)
      // 20,000 lines a second; the kernel delivers a full buffer at once, so the pause may come after the flood.
      const again = channel.hello(20_000)
      socket().write(usual('p1-2', 'hello'))
      await again
      expect(performance.now() - startedMs).toBeGreaterThan(1_500)
    },
    () => '',
    { readBytesPerSecondMax: 4_194_304, pendingCountMax: 8 },
  )
})

test('goal: a connection may be allowed more, in bytes and in requests that wait', async () => {
  const limits = { readBytesPerSecondMax: 4_194_304, pendingCountMax: 32 }
  await withPeer(
    async ({ channel, socket, lines }) => {
      const many = Array.from({ length: 33 }, () => failure(channel.hello(50)))
      const codes = (await Promise.all(many)).map(({ code }) => code)
      expect(codes).toEqual([...Array(32).fill('channel.timeout'), 'channel.refused'])
      await until('the requests are there', 15_000, () => lines().length === 34)
      const asked = channel.hello(12_000)
      await until('the request is there', 15_000, () => lines().length === 35)
      // 4 MB: at the usual rate of 256 KiB a second they take fourteen seconds, and what follows comes too late.
      const flood = Buffer.from(`${`${'x'.repeat(100_000)}\n`.repeat(40)}${usual('p1-34', 'hello')}`)
      let at = 0
      await until('the flood is out', 15_000, () => {
        at += socket().write(flood.subarray(at))
        return at >= flood.length
      })
      expect((await asked).protocol).toBe(2)
    },
    () => '',
    limits,
  )
})
