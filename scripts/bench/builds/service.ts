// Service C without VMs: how fast it takes a source in, how soon many readers have a line, and how fast a build VM's
// own code hashes and packs what it made. All of it in this one process, readers included. Effects: a local port,
// files in a temporary directory.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemRandom } from '../../../src/base/ids.ts'
import { sha256Of } from '../../../src/builder/digest.ts'
import { writeResult } from '../../../src/builder/exchange.ts'
import { artifactEntry, resultArchive } from '../../../src/builder/result-archive.ts'
import { type BuildsRig, buildLimits, randomNonce, startBuilds } from '../../rigs/build/builds-service.ts'
import { line, type Step } from '../../rigs/build/engine.ts'
import type { Figures } from '../bench-report.ts'
import { percentile, round, type Say } from '../in-netns.ts'

const MiB = 1_048_576
const intakeMiB = 64
const rounds = 3
const readers = 100
const lines = 20

export async function measureService(say: Say): Promise<Figures> {
  say(`takes in ${intakeMiB} MiB, ${rounds} times`)
  const intake = await intakeMiBPerS()
  say(`sends ${lines} lines to ${readers} readers`)
  const { saidMs, spreadMs } = await eventTimes()
  say('hashes and packs an executable')
  const { hash, archive } = await guestRates()
  return {
    intakeMiBPerS: { value: intake, unit: 'MiB/s', aim: null },
    hashMiBPerS: { value: hash, unit: 'MiB/s', aim: null },
    archiveMiBPerS: { value: archive, unit: 'MiB/s', aim: null },
    [`eventTo${readers}ReadersMsP50`]: { value: percentile(saidMs, 50), unit: 'ms', aim: null },
    [`eventTo${readers}ReadersMsP99`]: { value: percentile(saidMs, 99), unit: 'ms', aim: null },
    [`eventFirstToLastOf${readers}MsP50`]: { value: percentile(spreadMs, 50), unit: 'ms', aim: null },
  }
}

/** From the first byte of a POST to its answer: read, decoded, hashed, on disk. Counts bytes of the archive. */
async function intakeMiBPerS(): Promise<number> {
  const bytes = intakeMiB * MiB
  const settings = {
    exchangeBytes: 4 * bytes,
    resultBytesMax: 32 * bytes,
    limits: { ...buildLimits, sourceBytes: bytes },
  }
  await using rig = await startBuilds({ settings, body: { sourceBytesMax: bytes, timeoutMs: 60_000 }, starts: false })
  const data = Buffer.alloc(bytes, systemRandom(MiB)).toString('base64')
  const times: number[] = []
  for (let i = 0; i < rounds; i += 1) {
    const body = Buffer.from(JSON.stringify({ nonce: randomNonce(), source_data: data, source_name: 'a.tar.gz' }))
    const began = performance.now()
    const { status, text } = await rig.send('POST', '/build', {
      bytes: body,
      headers: { 'content-type': 'application/json' },
    })
    times.push(performance.now() - began)
    if (status !== 200) throw new Error(`POST /build: ${status}: ${text}`)
  }
  return round((intakeMiB * 1000) / Math.min(...times))
}

/**
 * For each line, in ms: from the guest's write to the last reader (with the poll interval), and first to last reader.
 */
async function eventTimes(): Promise<{ saidMs: number[]; spreadMs: number[] }> {
  await using rig = await startBuilds()
  const gates = Array.from({ length: lines }, () => Promise.withResolvers<void>())
  const steps = gates.flatMap(({ promise }, i): Step[] => [
    { kind: 'wait', until: promise },
    line('build', lineText(i)),
  ])
  rig.world.script = [line('detect', 'cargo'), { kind: 'vouch', stage: 'dispatch' }, ...steps, neverEnds]
  const id = await rig.submit()
  const leave = new AbortController()
  const seen = new Seen()
  const following = Array.from({ length: readers }, () => follow(rig, id, seen, leave.signal))
  // A reader is there once it has had a line from before.
  await seen.all('cargo')
  const [saidMs, spreadMs]: [number[], number[]] = [[], []]
  for (const [i, gate] of gates.entries()) {
    const began = performance.now()
    gate.resolve()
    const { firstMs, lastMs } = await seen.all(lineText(i))
    saidMs.push(lastMs - began)
    spreadMs.push(lastMs - firstMs)
  }
  leave.abort()
  await Promise.all(following)
  return { saidMs, spreadMs }
}

const lineText = (i: number) => `line ${i} of the build.`
const neverEnds: Step = { kind: 'wait', until: new Promise(() => {}) }

type Times = { readonly firstMs: number; readonly lastMs: number }

/** Lines that each reader has received. */
class Seen {
  readonly #lines = new Map<string, { count: number; firstMs: number; done: PromiseWithResolvers<Times> }>()

  all(text: string): Promise<Times> {
    return this.#line(text).done.promise
  }

  count(text: string): void {
    const progress = this.#line(text)
    const nowMs = performance.now()
    if (progress.count === 0) progress.firstMs = nowMs
    progress.count += 1
    if (progress.count === readers) progress.done.resolve({ firstMs: progress.firstMs, lastMs: nowMs })
  }

  #line(text: string) {
    const known = this.#lines.get(text)
    if (known !== undefined) return known
    const made = { count: 0, firstMs: 0, done: Promise.withResolvers<Times>() }
    this.#lines.set(text, made)
    return made
  }
}

async function follow(rig: BuildsRig, id: string, seen: Seen, signal: AbortSignal): Promise<void> {
  const headers = { authorization: `Bearer ${rig.keys.acme}` }
  try {
    const response = await fetch(`${rig.url()}/build/${id}/events`, { headers, signal })
    if (!response.ok || response.body === null) throw new Error(`events: ${response.status}`)
    const decoder = new TextDecoder()
    let text = ''
    for await (const chunk of response.body) {
      const parts = (text + decoder.decode(chunk, { stream: true })).split('\n')
      text = parts.pop() ?? ''
      for (const part of parts) if (part.startsWith('data: ')) seen.count(String(JSON.parse(part.slice(6)).msg))
    }
  } catch (error) {
    if (!signal.aborted) throw error
  }
}

/** Rates for an executable file, such as a build makes: the running one. */
async function guestRates(): Promise<{ hash: number; archive: number }> {
  const directory = mkdtempSync(join(tmpdir(), `srt-${process.pid}-bench-archive-`))
  try {
    const device = join(directory, 'device')
    writeFileSync(device, '')
    const path = process.execPath
    const sizeBytes = Bun.file(path).size
    const hashMs = await timed(() => sha256Of(path))
    const entry = artifactEntry({ name: 'program', path, sizeBytes, executable: true })
    const archiveMs = await timed(() => writeResult(device, resultArchive('project', [entry])))
    const rate = (ms: number) => round((sizeBytes / MiB / ms) * 1000)
    return { hash: rate(hashMs), archive: rate(archiveMs) }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

/** The best of some: the first one reads from disk. */
async function timed(work: () => Promise<unknown>): Promise<number> {
  const times: number[] = []
  for (let i = 0; i < rounds; i += 1) {
    const began = performance.now()
    await work()
    times.push(performance.now() - began)
  }
  return Math.min(...times)
}
