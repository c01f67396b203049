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
 * Returns the unit tests that can see a fault in `path`: the mirrored one, and those that import the file themselves.
 * `imports`: for each test file, the source paths that it imports.
 */
export function testsFor(path: string, imports: ReadonlyMap<string, readonly string[]>): string[] {
  const mirror = path.replace(/^src\//, 'test/').replace(/\.tsx?$/, '.test.ts')
  return [...imports]
    .filter(([test, sources]) => !SLOW_SUFFIX.test(test) && (test === mirror || sources.includes(path)))
    .map(([test]) => test)
    .toSorted()
}

/** Returns the paths that a test file imports by a relative path, from the root of the repository. */
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
