// Goal: both ends of the channel receive everything, also more than a socket buffers, and learn when the other is gone.

import { expect, test } from 'bun:test'
import { until } from '../../../scripts/rigs/until.ts'
import { Channel } from '../../../src/inference/relay/channel.ts'
import { unixSocketPair } from '../../../src/linux/libc/sockets.ts'

async function pair(onHear: (message: unknown) => void) {
  const made = unixSocketPair()
  if (!made.ok) throw new Error(`errno ${made.errno}`)
  const closed: string[] = []
  const heard: unknown[] = []
  const [channel, other] = await Promise.all([
    Channel.open<unknown, unknown>(made.fds[0], {
      onMessage: onHear,
      onClose: reason => closed.push(`one: ${reason}`),
    }),
    Channel.open<unknown, unknown>(made.fds[1], {
      onMessage: message => heard.push(message),
      onClose: reason => closed.push(`other: ${reason}`),
    }),
  ])
  return { channel, other, closed, heard }
}

test('goal: 64 MB at once, in order', async () => {
  const { channel, other, heard } = await pair(() => {})
  const text = 'x'.repeat(65_536)
  for (let at = 0; at < 1_000; at += 1) channel.send({ at, text })
  await until('all is heard', 20_000, () => heard.length === 1_000)
  expect(heard.every((message, at) => (message as { at: number }).at === at)).toBe(true)
  channel.close()
  other.close()
})

test('goal: what was said before the end is heard, and the end is told once', async () => {
  const { channel, other, closed, heard } = await pair(() => {})
  channel.send('last words')
  channel.close()
  await until('the end is told', 15_000, () => closed.length > 0)
  expect([heard, closed]).toEqual([['last words'], ['other: the other end has closed the channel']])
  other.send('to nobody')
  other.close()
})

test('goal: a message that cannot be worked on closes the channel', async () => {
  const { other, closed } = await pair(() => {
    throw new Error('it makes no sense')
  })
  other.send('nonsense')
  await until('both are closed', 15_000, () => closed.length === 2)
  expect(closed.toSorted()).toEqual(['one: it makes no sense', 'other: the other end has closed the channel'])
})
