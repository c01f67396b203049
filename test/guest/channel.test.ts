import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { makeHostEnd, makePort } from '../../scripts/rigs/guest/agent-port.ts'
import { makeSandbox } from '../../scripts/rigs/guest/root.ts'
import { until } from '../../scripts/rigs/until.ts'
import { systemClock } from '../../src/base/clock.ts'
import { agentLineBytesMax } from '../../src/contract/vm/agent.ts'
import { createChannel, openPort } from '../../src/guest/channel.ts'
import type { ReceivedLine } from '../../src/guest/wire.codec.ts'

const waitMs = 15_000

const line = (text: string): ReceivedLine => ({ kind: 'line', text })
const bytes = (text: string) => new TextEncoder().encode(text)

describe('receiving', () => {
  // Goal: the guest hears every host that connects, one after the other, and needs almost no CPU while there is none.
  test('goes on over many hosts', async () => {
    await using sandbox = await makeSandbox()
    using port = makePort(sandbox)
    const { lines, stop } = listen(port)
    for (let round = 0; round < 20; round += 1) {
      using host = await makeHostEnd(port)
      host.write(`\nround ${round}\n`)
      await until('heard', waitMs, () => lines.length === round + 1)
    }
    expect(lines).toEqual(Array.from({ length: 20 }, (_, round) => line(`round ${round}`)))
    const before = process.cpuUsage()
    const startedMs = performance.now()
    await Bun.sleep(500)
    const { user, system } = process.cpuUsage(before)
    expect((user + system) / 1_000 / (performance.now() - startedMs)).toBeLessThan(0.3)
    await stop()
  })

  // Goal: what one host left unfinished is ended by the empty line that begins the next connection.
  test('does not mix two hosts', async () => {
    await using sandbox = await makeSandbox()
    using port = makePort(sandbox)
    const { lines, stop } = listen(port)
    {
      using host = await makeHostEnd(port)
      host.write('{"half":')
    }
    using host = await makeHostEnd(port)
    host.write('\nwhole\n')
    await until('heard', waitMs, () => lines.length === 2)
    expect(lines).toEqual([line('{"half":'), line('whole')])
    await stop()
  })

  // Goal: a line over the limit is dropped as one, a line of the limit passes, also through a pipe that holds less.
  test('keeps to the limit', async () => {
    await using sandbox = await makeSandbox()
    using port = makePort(sandbox)
    const { lines, stop } = listen(port)
    using host = await makeHostEnd(port)
    const longest = 'é'.repeat(agentLineBytesMax / 2)
    await host.writeAll(bytes(`${longest}x\n${longest}\n`))
    await until('heard', waitMs, () => lines.length === 2)
    expect(lines).toEqual([{ kind: 'dropped', reason: 'overlong' }, line(longest)])
    await stop()
  })
})

describe('lines that take long', () => {
  // Goal: lines that each take this thread long leave most of it to others, and all of them are heard in the end.
  test('are paced by the time that they take', async () => {
    await using sandbox = await makeSandbox()
    using port = makePort(sandbox)
    using host = await makeHostEnd(port)
    const clock = createManualClock()
    const channel = createChannel({ ...port, clock })
    const heard: number[] = []
    const ending = new AbortController()
    const received = channel.receive(() => {
      clock.advance(100)
      heard.push(clock.monotonicMs())
    }, ending.signal)
    const count = 12
    // Longer than what is split into lines at a time.
    await host.writeAll(bytes(`${'x'.repeat(1_500)}\n`.repeat(count)))
    while (heard.length < count) {
      await clock.sleepers(1)
      const [pauseMs = 0] = clock.pending()
      clock.advance(pauseMs)
      await until(
        'more is heard, or it waits again',
        waitMs,
        () => heard.length === count || clock.pending().length > 0,
      )
    }
    // 150 ms are there at first, and 150 ms come with each second.
    const handledBeforeLastMs = 100 * (count - 1)
    expect(heard.at(-1)).toBeGreaterThan(((handledBeforeLastMs - 150) / 150) * 1_000)
    expect(heard.at(-1)).toBeLessThan(10_000)
    ending.abort()
    await received
  })
})

describe('sending', () => {
  // Goal: answers arrive whole and in order, also when together they exceed what the kernel holds.
  test('waits for a slow host', async () => {
    await using sandbox = await makeSandbox()
    using port = makePort(sandbox)
    const channel = createChannel({ ...port, clock: systemClock })
    const { lines, stop } = listen(port, channel)
    using host = await makeHostEnd(port)
    host.write('here\n')
    await until('heard', waitMs, () => lines.length === 1)
    const answers = Array.from({ length: 5 }, (_, at) => `${at}${'x'.repeat(40_000)}`)
    const sent = Promise.all(answers.map(answer => channel.send(bytes(`${answer}\n`))))
    expect(await host.readLines(5)).toEqual(answers)
    expect(await sent).toEqual(Array(5).fill('sent'))
    await stop()
  })

  // Goal: with no host there an answer is given up at once, and one given up half-way does not spoil the next.
  test('gives up on a host that has gone', async () => {
    await using sandbox = await makeSandbox()
    using port = makePort(sandbox)
    const channel = createChannel({ ...port, clock: systemClock })
    const { lines, stop } = listen(port, channel)
    const answer = bytes(`${'x'.repeat(200_000)}\n`)
    expect(await channel.send(answer)).toBe('dropped')
    expect(await Promise.all(Array.from({ length: 65 }, () => channel.send(answer)))).toEqual(Array(65).fill('dropped'))
    using host = await makeHostEnd(port)
    host.write('here\n')
    await until('heard', waitMs, () => lines.length === 1)
    const sent = channel.send(bytes('next\n'))
    const [torn, next] = await host.readLines(2)
    expect(torn).toMatch(/^x+$/)
    expect(next).toBe('next')
    expect(await sent).toBe('sent')
    await stop()
  })
})

describe('the port', () => {
  // Goal: it is found by its name among others, whenever it appears, and its absence is said in time.
  test('is found by name', async () => {
    await using sandbox = await makeSandbox()
    const { paths } = sandbox
    await expect(openPort(paths, { clock: systemClock, waitMs: 50 })).rejects.toThrow(
      'port strongroom.agent.0: not there',
    )
    addPort('vport0p1', 'org.qemu.guest_agent.0')
    const opened = openPort(paths, { clock: systemClock, waitMs: 10_000 })
    addPort('vport1p2', 'strongroom.agent.0')
    const fd = await opened
    expect(fs.readlinkSync(`/proc/self/fd/${fd}`)).toBe(`${paths.devices}/vport1p2`)
    fs.closeSync(fd)

    function addPort(device: string, name: string): void {
      fs.mkdirSync(`${paths.virtioPorts}/${device}`, { recursive: true })
      fs.writeFileSync(`${paths.virtioPorts}/${device}/name`, `${name}\n`)
      fs.writeFileSync(`${paths.devices}/${device}`, '')
    }
  })
})

function listen(port: { readFd: number; writeFd: number }, channel = createChannel({ ...port, clock: systemClock })) {
  const lines: ReceivedLine[] = []
  const ending = new AbortController()
  const received = channel.receive(got => lines.push(got), ending.signal)
  return {
    lines,
    stop: async () => {
      ending.abort()
      await received
    },
  }
}
