// Which test runs when. The folder under test/ decides, so nobody has to keep a list.

export const PHASES = {
  /** Needs nothing but Bun: no root, no network namespaces, no QEMU, no built executables. Also part of `bun run check`. */
  unit: { folders: [], serial: false, needsBuild: false, timeoutMs: 300_000, testTimeoutMs: 20_000 },
  /** Changes the kernel's state (namespaces, nftables, loop devices): root, one file at a time. */
  host: { folders: ['test/host/'], serial: true, needsBuild: false, timeoutMs: 600_000, testTimeoutMs: 60_000 },
  /** Reads or builds guest images: minutes of work, the caches and the executables. */
  image: { folders: ['test/image/'], serial: true, needsBuild: true, timeoutMs: 1_200_000, testTimeoutMs: 600_000 },
  /** Boots VMs, without hardware support if need be: one file at a time. */
  e2e: { folders: ['test/e2e/'], serial: true, needsBuild: true, timeoutMs: 2_700_000, testTimeoutMs: 900_000 },
} as const satisfies Record<string, Phase>

type Phase = {
  readonly folders: readonly string[]
  readonly serial: boolean
  readonly needsBuild: boolean
  /** For the whole phase. */
  readonly timeoutMs: number
  /** For one test that does not set its own. */
  readonly testTimeoutMs: number
}

export type PhaseName = keyof typeof PHASES

/** In the order in which they run: the quick ones tell first. */
export const PHASE_NAMES = ['unit', 'host', 'image', 'e2e'] as const satisfies readonly PhaseName[]

export function phaseOf(file: string): PhaseName {
  return PHASE_NAMES.find(name => PHASES[name].folders.some(folder => file.startsWith(folder))) ?? 'unit'
}

/** Test files of the repository whose path holds one of the patterns (all, without patterns), sorted. */
export function testFiles(root: string, patterns: readonly string[] = []): string[] {
  const files = [...new Bun.Glob('test/**/*.test.ts').scanSync({ cwd: root })].sort()
  return patterns.length === 0 ? files : files.filter(file => patterns.some(pattern => file.includes(pattern)))
}
