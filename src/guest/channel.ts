// The guest's end of virtio-serial port `strongroom.agent.0`. Effects: one character device.
//
// The driver (Linux drivers/char/virtio_console.c) takes one opener at a time, so one descriptor both reads and writes.
// It is non-blocking: a blocking write would spin in the kernel until the host reads. While the host is not connected,
// read(2) gives 0 at once and poll(2) reports readable, so we poll; while it is connected, epoll wakes us.

import * as fs from 'node:fs'
import { type Clock, onAbort } from '../base/clock.ts'
import { Fault, systemErrorCode, wrapFault } from '../base/fault.ts'
import { createSerial } from '../base/work/serial.ts'
import { TokenBucket } from '../base/work/token-bucket.ts'
import { agentPortName } from '../contract/vm/agent.ts'
import type { GuestPaths } from './paths.ts'
import { LineReader, type ReceivedLine } from './wire.codec.ts'

export type Channel = {
  /** Reads until `signal` ends it. Fault internal when the device fails. */
  readonly receive: (onLine: (line: ReceivedLine) => void, signal: AbortSignal) => Promise<void>
  /** One line with its LF. Dropped if the host has gone or reads nothing for long. Resolves when written or dropped. */
  readonly send: (line: Uint8Array) => Promise<'sent' | 'dropped'>
}

type ChannelDeps = {
  readonly readFd: number
  readonly writeFd: number
  readonly clock: Clock
}

/** The port may appear late, while drivers load. Fault host.unsupported after `waitMs`. */
export async function openPort(
  paths: Pick<GuestPaths, 'virtioPorts' | 'devices'>,
  { clock, waitMs }: { clock: Clock; waitMs: number },
): Promise<number> {
  const untilMs = clock.monotonicMs() + waitMs
  for (;;) {
    const device = findPort(paths)
    if (device !== null) return openDevice(device)
    if (clock.monotonicMs() >= untilMs) throw new Fault('host.unsupported', `port ${agentPortName}: not there`)
    await clock.sleep(portPollMs)
  }
}

const portPollMs = 20
/** Poll interval while the host is disconnected. Short at first, because a restarting daemon is back soon. */
const awayPollMs = 20
const awayPollSlowMs = 100
const awayQuickMs = 10_000
const readBytesMax = 65_536
/**
 * Limits of the host per second: its largest document takes six messages. `handlingMs`: time of this thread, which
 * also serves clients.
 */
const readLimits = { bytes: 4_194_304, lines: 5_000, handlingMs: 150 }
/** Bytes split into lines at a time: short lines cost most per byte. */
const sliceBytes = 1_024
const writePollMs = 10
/** A host that reads nothing for this long has given up on the response. */
const writeStallMs = 10_000
/** Responses that wait to be written. */
const waitingMax = 64

export function createChannel({ readFd, writeFd, clock }: ChannelDeps): Channel {
  const lines = new LineReader()
  const allowed = {
    bytes: new TokenBucket(readLimits.bytes, clock),
    lines: new TokenBucket(readLimits.lines, clock),
    handling: new TokenBucket(readLimits.handlingMs, clock),
  }
  const buffer = new Uint8Array(readBytesMax)
  let hostAway = true
  const sending = createSerial()
  /** A line was cut off: the next one begins with an LF. */
  let torn = false

  const awaitHost = async (deliver: Deliver, signal: AbortSignal): Promise<void> => {
    const sinceMs = clock.monotonicMs()
    while (!signal.aborted) {
      const got = readNow(readFd, buffer)
      hostAway = got === 'away'
      if (got === 'nothing_yet') return
      if (got !== 'away') await deliver(buffer.subarray(0, got))
      else await clock.sleep(clock.monotonicMs() - sinceMs < awayQuickMs ? awayPollMs : awayPollSlowMs, signal)
    }
  }

  const write = async (line: Uint8Array): Promise<'sent' | 'dropped'> => {
    const bytes = torn ? Uint8Array.of(0x0a, ...line) : line
    let at = 0
    let movedMs = clock.monotonicMs()
    while (at < bytes.length) {
      const written = writeNow(writeFd, bytes.subarray(at))
      at += written
      if (written > 0) {
        movedMs = clock.monotonicMs()
        continue
      }
      if (hostAway || clock.monotonicMs() - movedMs >= writeStallMs) {
        torn ||= at > 0
        return 'dropped'
      }
      await clock.sleep(writePollMs)
    }
    torn = false
    return 'sent'
  }

  return {
    receive: async (onLine, signal) => {
      const deliver: Deliver = async bytes => {
        for (let at = 0; at < bytes.length; at += sliceBytes) {
          const slice = bytes.subarray(at, at + sliceBytes)
          const beganMs = clock.monotonicMs()
          const found = lines.push(slice)
          for (const line of found) onLine(line)
          const waitMs = Math.max(
            allowed.bytes.take(slice.length),
            allowed.lines.take(found.length),
            allowed.handling.take(clock.monotonicMs() - beganMs),
          )
          if (waitMs > 0) await clock.sleep(waitMs, signal)
        }
      }
      try {
        while (!signal.aborted) {
          await awaitHost(deliver, signal)
          if (signal.aborted) return
          await readWhileConnected(readFd, deliver, signal)
          // Prevents a hot loop while hosts come and go.
          await clock.sleep(awayPollMs, signal)
        }
      } catch (error) {
        if (!signal.aborted) throw wrapFault(error, 'read the agent port')
      }
    },
    send: async line => (sending.size() >= waitingMax ? 'dropped' : sending.run(() => write(line))),
  }
}

/** Resolves when more may be read. */
type Deliver = (bytes: Uint8Array) => Promise<void>

/** Bun's stream waits in epoll and ends at the first read of 0 bytes (no host). It leaves the descriptor open. */
async function readWhileConnected(fd: number, deliver: Deliver, signal: AbortSignal): Promise<void> {
  const reader = Bun.file(fd).stream().getReader()
  const forget = onAbort(signal, () => void reader.cancel())
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      await deliver(value)
    }
  } finally {
    forget()
    reader.releaseLock()
  }
}

function readNow(fd: number, buffer: Uint8Array): number | 'nothing_yet' | 'away' {
  try {
    return fs.readSync(fd, buffer) || 'away'
  } catch (error) {
    if (systemErrorCode(error) === 'EAGAIN') return 'nothing_yet'
    throw error
  }
}

function writeNow(fd: number, bytes: Uint8Array): number {
  try {
    return fs.writeSync(fd, bytes)
  } catch (error) {
    if (systemErrorCode(error) === 'EAGAIN') return 0
    throw wrapFault(error, 'write the agent port')
  }
}

/** The device of our port. Looked up in sysfs: links below /dev/virtio-ports need udev. */
function findPort(paths: Pick<GuestPaths, 'virtioPorts' | 'devices'>): string | null {
  try {
    for (const port of fs.readdirSync(paths.virtioPorts)) {
      const name = fs.readFileSync(`${paths.virtioPorts}/${port}/name`, 'utf8').trim()
      if (name === agentPortName && fs.existsSync(`${paths.devices}/${port}`)) return `${paths.devices}/${port}`
    }
  } catch {
    // The class, or a port's name, is not there yet.
  }
  return null
}

function openDevice(path: string): number {
  try {
    return fs.openSync(path, fs.constants.O_RDWR | fs.constants.O_NONBLOCK)
  } catch (error) {
    throw wrapFault(error, `open ${path}`)
  }
}
