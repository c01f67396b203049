// Numbers and structures that go to the kernel by hand, against the headers of the images' own kernel: a C compiler
// prints what those have. Functions of the C library take structures of its own, so its headers are compared too.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { repo } from '../../scripts/rigs/build/image-build.ts'
import {
  fetchPackage,
  IMAGE_RECIPES,
  kernelOf,
  unpackPackage,
  valuesInC,
} from '../../scripts/rigs/guest/kernel-package.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import {
  C_LIBRARY_ROWS,
  KERNEL_ROWS,
  KERNEL_X86_ROWS,
  kernelHead,
  kernelX86Head,
  libraryHead,
  RECORDER_ROWS,
  type Rows,
} from '../rigs/kernel/rows.ts'

const timeoutMs = 300_000
const found = await Promise.all(IMAGE_RECIPES.map(kernelOf))
const headers = found.flatMap(image => (image.headers === null ? [] : [image.headers]))
const [locked] = headers
const fetched =
  locked === undefined || Bun.which('gcc') === null
    ? ({ ok: false, reason: 'comparing layouts with the kernel needs gcc and locked headers' } as const)
    : await fetchPackage(locked)

/** Returns the values in C and ours, each with its file and its expression. */
async function compared(rows: Rows, { options, head }: { readonly options: string[]; readonly head: string[] }) {
  const all = Object.entries(rows).flatMap(([file, of]) => of.map(([expression, ours]) => ({ file, expression, ours })))
  const expressions = [...new Set(all.map(({ expression }) => expression))]
  const values = await valuesInC({ options, head: head.join('\n'), expressions })
  expect(all.length).toBeGreaterThan(0)
  return {
    inC: all.map(({ file, expression }) => `${file}: ${expression} = ${values[expression]}`),
    ours: all.map(({ file, expression, ours }) => `${file}: ${expression} = ${ours}`),
  }
}

describe.skipIf(skipUnless(fetched.ok, fetched.ok ? '' : fetched.reason))('the numbers that go to the kernel', () => {
  const work = mkdtempSync('/tmp/kernel-headers-')
  const include = join(work, 'usr', 'include')
  const system = (machine: string) => ['-isystem', join(include, machine), '-isystem', include]
  beforeAll(async () => {
    const machines = [
      'include/x86_64-linux-gnu',
      'include/aarch64-linux-gnu',
      'lib/linux/uapi/x86',
      'lib/linux/uapi/arm64',
    ]
    const parts = ['include/linux', 'include/asm-generic', 'include/video', ...machines].map(part => `./usr/${part}/*`)
    if (fetched.ok) await unpackPackage(fetched.path, work, parts)
    // The one structure that linux/if.h expects of the C library (sockaddr(3type)).
    await Bun.write(
      join(include, 'sys', 'socket.h'),
      'struct sockaddr { unsigned short sa_family; char sa_data[14]; };',
    )
  }, timeoutMs)
  afterAll(() => rmSync(work, { recursive: true }))

  test('goal: one set of headers does for all images, because their kernels are one, of the version of the headers', () => {
    expect([...new Set(found.map(({ kernel }) => kernel.version))]).toEqual([locked?.version ?? ''])
    expect(new Set(headers.map(({ sha256 }) => sha256)).size).toBe(1)
  })

  // Goal: each is the one of the headers, without those of this machine.
  test.each(['x86_64-linux-gnu', 'aarch64-linux-gnu'])('for %s', async machine => {
    const { inC, ours } = await compared(KERNEL_ROWS, { options: ['-nostdinc', ...system(machine)], head: kernelHead })
    expect(ours).toEqual(inC)
  })

  test('goal: the positions in a bzImage, and in the structures of KVM that a recorded launch is read from', async () => {
    const options = ['-nostdinc', ...system('x86_64-linux-gnu')]
    const { inC, ours } = await compared(KERNEL_X86_ROWS, { options, head: kernelX86Head })
    expect(ours).toEqual(inC)
  })

  test("goal: each number and structure that the recorder of launches has is KVM's", async () => {
    const recorder = join(repo, 'scripts', 'rigs', 'snp', 'recorder.c')
    const own = RECORDER_ROWS.map(([expression]) => expression)
    const kernels = RECORDER_ROWS.map(([, expression]) => expression)
    const ours = await valuesInC({ options: [], head: `#include "${recorder}"`, expressions: own })
    const options = ['-nostdinc', ...system('x86_64-linux-gnu')]
    const inC = await valuesInC({ options, head: kernelX86Head.join('\n'), expressions: kernels })
    expect(RECORDER_ROWS.map(([expression]) => `${expression} = ${ours[expression]}`)).toEqual(
      RECORDER_ROWS.map(([expression, of]) => `${expression} = ${inC[of]}`),
    )
    const constants = [...readFileSync(recorder, 'utf8').matchAll(/\b([A-Z][A-Z0-9_]{2,}) = /g)].map(([, name]) => name)
    // Bounds of the recorder alone.
    const bounds = ['VCPUS_MAX', 'XSAVE_LEGACY_BYTES']
    expect(constants.filter(name => !own.includes(`(unsigned)${name}`))).toEqual(bounds)
    expect(constants.length).toBeGreaterThan(25)
  })

  test('goal: the numbers that the functions of the C library take', async () => {
    const { inC, ours } = await compared(C_LIBRARY_ROWS, { options: ['-D_GNU_SOURCE'], head: libraryHead })
    expect(ours).toEqual(inC)
  })
})

test('goal: no file calls the kernel by hand without a comparison above', () => {
  const files = readdirSync(join(repo, 'src'), { recursive: true, encoding: 'utf8' })
    .filter(file => file.endsWith('.ts'))
    .map(file => `src/${file}`)
  const calling = files.filter(file => /\bfrom 'bun:ffi'|\bioctl\(/.test(readFileSync(join(repo, file), 'utf8')))
  // Numbers of neither: `ffi.ts` only loads, and what sev-guest.ts sends is in its codec.
  const without = ['src/linux/ffi.ts', 'src/guest/report/sev-guest.ts']
  const listed = [...Object.keys(KERNEL_ROWS), ...Object.keys(C_LIBRARY_ROWS)]
  expect(calling.filter(file => !listed.includes(file)).toSorted()).toEqual(without.toSorted())
})
