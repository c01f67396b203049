// Which test runs when. The suffix of a test's name decides: `name[.slow|.alone|.root|.image].test.ts`.

import { availableParallelism } from 'node:os'

export const PHASES = {
  /** Needs only Bun: no root, network namespace, QEMU or built executable. Also in `bun run check`. */
  unit: {
    ...{ suffix: '.test.ts', lanes: availableParallelism() + 1, filesEach: null, needsBuild: false },
    ...{ timeoutMs: 600_000, testTimeoutMs: 20_000 },
  },
  /** Takes seconds, or starts other runtimes. Many wait: with five lanes two processors were 89 % busy. */
  slow: {
    ...{ suffix: '.slow.test.ts', lanes: 6, filesEach: 8, needsBuild: false },
    ...{ timeoutMs: 2_400_000, testTimeoutMs: 120_000 },
  },
  /** Holds a clock to close bounds (`test/meta/phases.ts`), so only `MOSTLY_WAITING` runs beside it. */
  alone: {
    ...{ suffix: '.alone.test.ts', lanes: 1, filesEach: 1, needsBuild: false },
    ...{ timeoutMs: 900_000, testTimeoutMs: 60_000 },
  },
  /** Needs root, and changes nothing outside of namespaces of its own. Waits more than it computes. */
  root: {
    ...{ suffix: '.root.test.ts', lanes: 3, filesEach: 1, needsBuild: false },
    ...{ timeoutMs: 900_000, testTimeoutMs: 60_000 },
  },
  /**
   * Needs the built executables and images: reads them, builds them, or boots VMs. A file with one VM takes half to two
   * thirds of a processor, so two processors have work for three.
   */
  image: {
    ...{ suffix: '.image.test.ts', lanes: 3, filesEach: 1, needsBuild: true },
    ...{ timeoutMs: 4_200_000, testTimeoutMs: 900_000 },
  },
} as const satisfies Record<string, Phase>

/**
 * Environment of the phases that hold no clock and no size of memory to a bound, and of the check. A process of Bun
 * keeps the memory that it has freed (mimalloc): on a virtual machine giving it back and taking it again was a third to
 * two thirds of the processor time of a test file. The phases `alone` and `image` run programs as they are installed.
 */
export const MEMORY_KEPT: Readonly<Record<string, string>> = { MIMALLOC_PURGE_DELAY: '-1' }

type Phase = {
  /** The end of the names of its tests. */
  readonly suffix: string
  /** Processes that run beside each other. */
  readonly lanes: number
  /**
   * Files of one process, at most. They share its modules, which saves a quarter of the processors' time; memory that
   * they leave makes a long-lived process slow. Null if `bun test` gives the files to its own workers.
   */
  readonly filesEach: number | null
  readonly needsBuild: boolean
  /** For the whole phase. */
  readonly timeoutMs: number
  /** For one test that does not set its own. */
  readonly testTimeoutMs: number
}

export type PhaseName = keyof typeof PHASES

/** In the order in which they run: the quick ones tell first. */
export const PHASE_NAMES = ['unit', 'slow', 'alone', 'root', 'image'] as const satisfies readonly PhaseName[]

/**
 * Beside it the executables and images are built for the phases that need them: neither looks at what the other
 * writes. Not so the slow phase: on a busy machine the probes of the firewall's tests, of 0.7 s, give up.
 */
export const BUILD_BESIDE: PhaseName = 'root'

/**
 * Files that compute for an eighth of their time and allow for the time that others take from them. They run beside
 * the rest of their phase.
 */
export const MOSTLY_WAITING: readonly string[] = [
  'test/enclave-host/hostile-vm.alone.test.ts',
  'test/host/network/nft-watch.alone.test.ts',
  'test/inference/upstream/neighbours.alone.test.ts',
]

/** Files that take minutes, the longest first: they start first, so that no lane ends late for one of them. */
export const STARTS_FIRST: readonly string[] = [
  'test/e2e/instance.image.test.ts',
  'test/e2e/enclave.image.test.ts',
  'test/e2e/owner.image.test.ts',
  'test/e2e/build.image.test.ts',
  'test/e2e/console/whole.image.test.ts',
  'test/e2e/crash.image.test.ts',
  'test/scripts/systemd/strongroom.image.test.ts',
  'test/scripts/package/package.image.test.ts',
  'test/upgrade/file.image.test.ts',
  'test/scripts/image/hostile-host.image.test.ts',
  'test/builds/fleet.slow.test.ts',
  'test/fleet/postgres.slow.test.ts',
  'test/fleet/budgets/budget-leases.slow.test.ts',
  'test/enclave/suite.slow.test.ts',
  'test/enclave/relayed.slow.test.ts',
  'test/inference/gateway/mixed.slow.test.ts',
  'test/fleet/directory/two-hosts.slow.test.ts',
  'test/appliance/fleet/peers.slow.test.ts',
  'test/fleet/directory/faults.slow.test.ts',
  'test/scripts/build/executable.slow.test.ts',
  'test/e2e/fleet/two-hosts.image.test.ts',
]

/** The same files, with those of `STARTS_FIRST` in front. */
export function inOrder(files: readonly string[]): string[] {
  const first = STARTS_FIRST.filter(file => files.includes(file))
  return [...first, ...files.filter(file => !first.includes(file))]
}

/** Queues from which the lanes of a phase take their files: one for all lanes, and one for files that mostly wait. */
export function queuesOf(phase: PhaseName, files: readonly string[]): string[][][] {
  const isWaiting = (file: string) => MOSTLY_WAITING.includes(file)
  const queues = [files.filter(file => !isWaiting(file)), files.filter(isWaiting)]
  return queues.filter(queue => queue.length > 0).map(queue => groupsOf(phase, queue))
}

/**
 * Files of each process of a phase, in the order in which the processes start. Files of one process are of one room, so
 * that they load the same modules; those that take minutes have a process each.
 */
export function groupsOf(phase: PhaseName, files: readonly string[]): string[][] {
  const { filesEach }: Phase = PHASES[phase]
  if (filesEach === null) return files.length === 0 ? [] : [[...files]]
  const groups: string[][] = []
  for (const file of inOrder(files)) {
    const last = groups.at(-1)
    const isFull = last === undefined || last.length >= filesEach || STARTS_FIRST.includes(file)
    if (isFull || STARTS_FIRST.includes(last[0] ?? '') || roomOf(last[0] ?? '') !== roomOf(file)) groups.push([file])
    else last.push(file)
  }
  return groups
}

function roomOf(file: string): string {
  return file.split('/')[1] ?? ''
}

export function phaseOf(file: string): PhaseName {
  return PHASE_NAMES.find(name => name !== 'unit' && file.endsWith(PHASES[name].suffix)) ?? 'unit'
}

/** Test files of the repository whose path holds one of the patterns (all, without patterns), sorted. */
export function testFiles(root: string, patterns: readonly string[] = []): string[] {
  const files = [...new Bun.Glob('test/**/*.test.ts').scanSync({ cwd: root })].sort()
  return patterns.length === 0 ? files : files.filter(file => patterns.some(pattern => file.includes(pattern)))
}
