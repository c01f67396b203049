// Which files get mutants, which tests run for them, and which mutants are sampled. Pure.

/** A room of `src`, or a part of one. */
export const ROOMS = [
  'attest',
  'verifier',
  'inference/limits',
  'inference/metering',
  'instances',
  'builds',
  'vm',
  'fleet',
  'operator/access',
] as const

/** Rooms whose files all get mutants. In other rooms only files that say that they are pure do. */
const WHOLE = /^src\/(?:attest|.*\/limits|.*\/policy)\//
const PURE_SUFFIX = /\.(?:plan|machine|codec|verify)\.ts$/
const PURE_HEADER = /^(?:\/\/.*\n)*\/\/.*\bPure\b/

export function getsMutants(path: string, source: string): boolean {
  if (!path.endsWith('.ts') || path.endsWith('.d.ts')) return false
  return WHOLE.test(path) || PURE_SUFFIX.test(path) || PURE_HEADER.test(source)
}

const SLOW_SUFFIX = /\.(?:slow|alone|root|image)\.test\.ts$/

/**
 * Returns the tests that can see a fault in `path`: its mirrored test, slow or not, and the unit tests that import it.
 * Without one, the unit tests of the mirrored folder that reach it through other modules; without these, the slow tests
 * that import it, or reach it in that folder.
 * `imports`: for each file of the repository, the paths that it imports.
 */
export function testsFor(path: string, imports: Imports): string[] {
  const mirror = path.replace(/^src\//, 'test/').replace(/\.tsx?$/, '')
  const folder = mirror.slice(0, mirror.lastIndexOf('/') + 1)
  const tests = [...imports.keys()].filter(file => file.endsWith('.test.ts')).toSorted()
  const unit = tests.filter(test => !SLOW_SUFFIX.test(test))
  const slow = tests.filter(test => test.endsWith('.slow.test.ts'))
  const mirrors = [`${mirror}.test.ts`, `${mirror}.slow.test.ts`]
  const isImporting = (test: string) => imports.get(test)?.includes(path) === true
  const isNear = (test: string) => test.startsWith(folder) && reaches(test, path, imports)
  const direct = tests.filter(test => mirrors.includes(test) || (unit.includes(test) && isImporting(test)))
  const choices = [direct, unit.filter(isNear), slow.filter(isImporting), slow.filter(isNear)]
  return choices.find(chosen => chosen.length > 0) ?? []
}

type Imports = ReadonlyMap<string, readonly string[]>

function reaches(from: string, to: string, imports: Imports): boolean {
  const seen = new Set([from])
  // The set grows while it is walked.
  for (const file of seen) for (const next of imports.get(file) ?? []) seen.add(next)
  return seen.has(to)
}

/** Returns the paths that a file imports by a relative path, from the root of the repository. */
export function importsOf(path: string, source: string): string[] {
  const folder = path.slice(0, path.lastIndexOf('/'))
  return [...source.matchAll(/from '(\.{1,2}\/[^']+)'/g)].map(([, target = '']) => resolved(folder, target))
}

function resolved(folder: string, target: string): string {
  const parts = folder.split('/')
  for (const part of target.split('/')) {
    if (part === '..') parts.pop()
    else if (part !== '.') parts.push(part)
  }
  return parts.join('/')
}

/** Returns `count` of the items, evenly likely and always the same for one seed (mulberry32). */
export function sampled<T>(items: readonly T[], count: number, seed: number): T[] {
  let state = seed >>> 0
  const random = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
  const rest = [...items]
  const chosen: T[] = []
  while (chosen.length < count && rest.length > 0) chosen.push(...rest.splice(Math.floor(random() * rest.length), 1))
  return chosen
}
