// A flood of DNS queries against service A, measured from outside: target, flooder and HTTP client are processes of
// their own, on loopback.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export type FloodTarget = {
  readonly dnsPort: number
  readonly url: string
  readonly key: string
  /** A host name that has an address. */
  readonly name: string
  /** Process with service A and the DNS server. */
  readonly pid: number
}

export type FloodFigures = {
  readonly p99Ms: number
  readonly maxMs: number
  readonly requests: number
  /** Rate of the flooder; 0 without one. */
  readonly packetsPerSecond: number
}

const program = join(import.meta.dir, 'flood-program.ts')
const startTimeoutMs = 30_000

/** Runs `work` against a target that ends with it. */
export async function withFloodTarget<T>(work: (target: FloodTarget) => Promise<T>, mode = 'thread'): Promise<T> {
  const directory = mkdtempSync(join(tmpdir(), 'srt-flood-'))
  const child = start('target', mode, directory)
  try {
    const reader = child.stdout.getReader()
    let text = ''
    while (!text.includes('\n')) {
      const { value, done } = await reader.read()
      if (done) throw new Error('the target ended before it listened')
      text += Buffer.from(value).toString()
    }
    reader.releaseLock()
    return await work({ ...(JSON.parse(text) as Omit<FloodTarget, 'pid'>), pid: child.pid })
  } finally {
    child.kill('SIGKILL')
    await child.exited
    rmSync(directory, { recursive: true, force: true })
  }
}

/** Times of the listing over `durationMs`, with a flood of so many packets beside it; 0 for none. */
export async function measureFlood(
  { dnsPort, url, key }: FloodTarget,
  { packetsPerSecond, durationMs }: { packetsPerSecond: number; durationMs: number },
): Promise<FloodFigures> {
  const flooder = packetsPerSecond === 0 ? null : start('flood', dnsPort, packetsPerSecond, durationMs)
  const client = start('client', url, key, durationMs)
  const [{ timesMs }, flooded] = await Promise.all([
    lineOf<{ timesMs: number[] }>(client),
    flooder === null ? { packetsPerSecond: 0 } : lineOf<{ packetsPerSecond: number }>(flooder),
  ])
  timesMs.sort((a, b) => a - b)
  const at = Math.min(timesMs.length - 1, Math.ceil(timesMs.length * 0.99) - 1)
  return {
    p99Ms: timesMs[at] ?? Number.POSITIVE_INFINITY,
    maxMs: timesMs.at(-1) ?? Number.POSITIVE_INFINITY,
    requests: timesMs.length,
    packetsPerSecond: flooded.packetsPerSecond,
  }
}

function start(...argv: (string | number)[]) {
  return Bun.spawn([process.execPath, program, ...argv.map(String)], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
    timeout: startTimeoutMs * 4,
  })
}

async function lineOf<T>(child: ReturnType<typeof start>): Promise<T> {
  const [text, exitCode] = await Promise.all([child.stdout.text(), child.exited])
  if (exitCode !== 0) throw new Error(`a process of the flood ended with ${child.signalCode ?? exitCode}`)
  return JSON.parse(text) as T
}
