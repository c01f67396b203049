// One who has the IGVM file and the image of a build, and asks about its result; and the ways to change what he asks about.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { writeBuilderImage } from '../../../scripts/rigs/build/image-directory.ts'
import { buildQuestion, resultFiles, type SampleResult, sampleResult } from '../../../scripts/rigs/build/result.ts'
import { measureIgvm } from '../../../src/attest/igvm/measure.ts'
import { prettyJson } from '../../../src/attest/provenance/json.ts'
import { present } from '../../../src/base/assert.ts'
import { fromUtf8, utf8 } from '../../../src/base/bytes.ts'
import { type BuildVerdict, verifyBuild } from '../../../src/verifier/build/build.ts'
import type { BootImage, BuildQuestion } from '../../../src/verifier/build/question.ts'

export type Files = ReadonlyMap<string, Uint8Array>

export type BuildCase = {
  readonly good: SampleResult
  readonly igvm: Uint8Array
  readonly image: Awaited<ReturnType<typeof writeBuilderImage>>
  readonly measurement: Uint8Array
  readonly bootImage: (changes?: { disk?: Uint8Array; cmdline?: string; whole?: boolean }) => BootImage
  readonly ask: (files: Files, changes?: Partial<BuildQuestion>) => Promise<BuildVerdict>
  readonly close: () => void
}

export async function openBuildCase(): Promise<BuildCase> {
  const directory = mkdtempSync(join(tmpdir(), `srt-${process.pid}-build-`))
  const image = await writeBuilderImage(directory)
  const igvm = new Uint8Array(readFileSync(image.igvm))
  const { digest: measurement } = await measureIgvm(igvm, { profile: 'qemu-kvm' })
  const good = await sampleResult({ measurement })
  const file = (name: string) => new Uint8Array(readFileSync(join(directory, name)))
  const bootImage: BuildCase['bootImage'] = (changes = {}) => {
    const disk = changes.disk ?? image.disk
    const parts = { firmware: file('firmware'), kernel: file('kernel'), initrd: file('initrd') }
    return {
      cmdline: utf8(changes.cmdline ?? image.cmdline),
      disk: { read: async (offset, length) => disk.slice(offset, offset + length) },
      boot: changes.whole === true ? { ...parts, shapes: Object.keys(image.manifest.launchDigests) } : null,
    }
  }
  const base = await buildQuestion(good.nonce)
  const policy = { ...base.policy, measurements: 'any' } as const
  const asked = { ...base, policy, ownImage: true, igvm, image: bootImage(), hashes }
  return {
    good,
    igvm,
    image,
    measurement,
    bootImage,
    ask: async (files, changes = {}) => await verifyBuild(resultFiles(files), { ...asked, ...changes }),
    close: () => rmSync(directory, { recursive: true, force: true }),
  }
}

const hashes = {
  sha256: (bytes: Uint8Array) => new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes)),
  sha384: (bytes: Uint8Array) => new Uint8Array(Bun.CryptoHasher.hash('sha384', bytes)),
}

/** Names of the checks that make the verdict bad, in their order. */
export function badChecks({ checks }: BuildVerdict): string[] {
  return checks
    .filter(check => check.outcome === 'fail' || (check.outcome === 'not-checked' && check.required))
    .map(check => check.name)
}

export function reasonOf({ checks }: BuildVerdict, name: string): string {
  return present(
    checks.find(check => check.name === name),
    name,
  ).reason
}

export function withFile(
  files: Files,
  path: string,
  change: (bytes: Uint8Array) => Uint8Array,
): Map<string, Uint8Array> {
  return new Map(files).set(path, change(present(files.get(path), path)))
}

export function withJson(files: Files, path: string, change: (value: never) => void): Map<string, Uint8Array> {
  return withFile(files, path, bytes => {
    const value = JSON.parse(fromUtf8(bytes)) as never
    change(value)
    return prettyJson(value)
  })
}

export function flipped(bytes: Uint8Array, at: number): Uint8Array {
  const copy = bytes.slice()
  copy[at] = (copy[at] ?? 0) ^ 1
  return copy
}
