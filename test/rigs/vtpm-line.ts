// Command lines of `strongroom verify vtpm` and their answers: changed files, checks that fail. For tests.

import { expect } from 'bun:test'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Malformed } from '../../src/attest/malformed.ts'
import { checksOf, runHere, vectors } from './program.ts'

let dir: string | null = null

export function clearVtpmFiles(): void {
  if (dir !== null) rmSync(dir, { recursive: true })
  dir = null
}

export function file(name: string, content: string | Uint8Array): string {
  const path = pathOf(name)
  writeFileSync(path, content)
  return path
}

export function directory(name: string): string {
  const path = pathOf(name)
  mkdirSync(path)
  return path
}

function pathOf(name: string): string {
  dir ??= mkdtempSync(join(tmpdir(), 'srt-vtpm-'))
  return join(dir, name)
}

export function requireBytes(value: Uint8Array | null): Uint8Array {
  if (value === null) throw new Error('a vector is not encoded as it should be')
  return value
}

export function flipped(bytes: Uint8Array, at: number): Uint8Array {
  return bytes.with(at, (bytes[at] ?? 0) ^ 1)
}

/** Options and their values; an option of null is left out, and one of true has none. */
export type Line = Readonly<Record<string, string | readonly string[] | true | null>>

export function argvOf(line: Line): string[] {
  return [
    ...['verify', 'vtpm'],
    ...Object.entries(line).flatMap(([name, value]) => {
      if (value === null) return []
      return value === true ? [`--${name}`] : [value].flat().flatMap(item => [`--${name}`, item])
    }),
  ]
}

export type Answer = { readonly code: number; readonly document: Record<string, unknown>; readonly failed: string[] }

const EXITS: Readonly<Record<string, number>> = { evidence: 1, input: 2, policy: 6 }

export async function verify(line: Line): Promise<Answer> {
  const { code, stdout, stderr } = await runHere([...argvOf(line), '--json'])
  const document = JSON.parse(stdout)
  expect([stderr, code]).toEqual(['', document.failed === null ? 0 : (EXITS[document.failed] ?? -1)])
  return { code, document, failed: checksOf(document, 'FAIL') }
}

export function reasonOf({ document }: Answer, name: string): string | undefined {
  return (document.checks as { name: string; reason: string }[]).find(check => check.name === name)?.reason
}

/** Bad, by these failed checks alone; what hangs on them is not checked, and so not good either. */
export async function expectFailed(line: Line, failed: readonly string[]): Promise<Answer> {
  const answer = await verify(line)
  expect([answer.document.ok, answer.failed]).toEqual([false, [...failed]])
  return answer
}

/** A bundle, and the line that it passes with. */
export type WholeBundle = { readonly bytes: Uint8Array; readonly line: Line }

const mutationCount = Number(process.env.STRONGROOM_VTPM_MUTATIONS ?? 900)

/**
 * Random changes of the bytes end as Malformed, with the same parts, or in a verdict that refuses them. A verdict takes
 * milliseconds: a sixth of the changes gets one, and with STRONGROOM_VTPM_MUTATIONS=100000 each gets one, for minutes.
 */
export async function refuseMutations(
  wholes: readonly WholeBundle[],
  partsOf: (bytes: Uint8Array) => unknown,
  draw: (count: number) => number,
): Promise<void> {
  const judgedMax = mutationCount > 900 ? mutationCount : mutationCount / 6
  const parts = wholes.map(({ bytes }) => partsOf(bytes))
  const counts = { refused: 0, judged: 0 }
  for (let round = 0; round < mutationCount; round += 1) {
    const place = round % wholes.length
    const { bytes, line } = wholes[place] as WholeBundle
    const changed = bytes.with(draw(bytes.length), draw(256))
    let isSame: boolean
    try {
      isSame = Bun.deepEquals(partsOf(changed), parts[place])
    } catch (error) {
      expect(error).toBeInstanceOf(Malformed)
      counts.refused += 1
      continue
    }
    if (isSame || counts.judged >= judgedMax) continue
    counts.judged += 1
    const { code } = await runHere(argvOf({ ...line, evidence: file('changed.json', changed) }))
    expect([round, code]).not.toEqual([round, 0])
  }
  expect([counts.refused > 20, counts.judged > 20]).toEqual([true, true])
}

export type Event = {
  readonly pcr: number
  readonly type: string
  readonly digest: string
  readonly data: string | null
}

export function eventsOf({ document }: Answer): readonly Event[] {
  return (document.event_log as { events: Event[] }).events
}

export const logs = join(vectors, 'tpm')
export const ubuntuLog = join(logs, 'ubuntu-2404-amd-sevsnp.bin')
export const logged: Record<string, string> = JSON.parse(readFileSync(join(logs, 'expected-pcrs.json'), 'utf8'))[
  'ubuntu-2404-amd-sevsnp.bin'
].expected_pcrs.sha256
