// Whether a file may be upgraded to, judged from what is known of it. Pure.

export const packageName = 'strongroom'

/** The reason why there is no upgrade, and what to do about it. */
export type Refusal = { readonly message: string; readonly remedy: string }

export type Kind = 'executable' | 'package'

const elfMagic = [0x7f, 0x45, 0x4c, 0x46]
/** EI_CLASS of 64 bits, and e_machine of x86-64 (elf(5)). */
const [classAt, class64, machineAt, machineX64] = [4, 2, 18, 62]
/** The first bytes of a Debian package (deb(5)). */
const debMagic = '!<arch>\ndebian-binary'

/** `head`: at least its first 32 bytes. */
export function kindOf(head: Uint8Array): Kind | Refusal {
  if (new TextDecoder('latin1').decode(head.subarray(0, debMagic.length)) === debMagic) return 'package'
  if (!elfMagic.every((byte, at) => head[at] === byte)) {
    return {
      message: 'it is neither a Debian package nor an executable of Linux',
      remedy: 'give the package strongroom_*.deb, or the executable of a release',
    }
  }
  const machine = (head[machineAt] ?? 0) | ((head[machineAt + 1] ?? 0) << 8)
  if (head[classAt] === class64 && machine === machineX64) return 'executable'
  return {
    message: `it is an executable for another architecture (ELF machine ${machine})`,
    remedy: 'give the executable for x86-64 (amd64)',
  }
}

/** Fields of deb-control(5). */
export type PackageFields = { readonly name: string; readonly version: string; readonly architecture: string }

export function packageRefusal({ name, architecture }: PackageFields): Refusal | null {
  if (name !== packageName) {
    return { message: `it is the package ${name}`, remedy: 'give strongroom_*.deb; apt install takes the others' }
  }
  if (architecture === 'amd64') return null
  return { message: `the package is for ${architecture}`, remedy: 'give the package for amd64' }
}

export type Versioned = { readonly version: string; readonly schema: number }

/** The answer of `version --json`; null if that was no strongroom, or one from before `upgrade`. */
export function versionedOf(text: string): Versioned | null {
  try {
    const said: unknown = JSON.parse(text)
    const [version, schema, bun] = ['version', 'schema', 'bun'].map(name => Reflect.get(Object(said), name) as unknown)
    if (typeof version !== 'string' || typeof schema !== 'number' || typeof bun !== 'string') return null
    return Number.isSafeInteger(schema) && schema > 0 ? { version, schema } : null
  } catch {
    return null
  }
}

export type VersionComparison = {
  readonly from: Versioned
  readonly to: Versioned
  /** Schema of the database. */
  readonly schema: number
  /** Below 0: the candidate is older. */
  readonly order: number
  readonly isSame: boolean
}

export function versionRefusal({ from, to, schema, order, isSame }: VersionComparison): Refusal | null {
  if (isSame)
    return { message: `it is the executable that serves already, ${from.version}`, remedy: 'nothing is to be done' }
  if (to.schema < schema) {
    return {
      message: `it is older: it supports schema ${to.schema}, the database has ${schema}`,
      remedy: `to go back, stop the service, put the older executable in its place and run its \`strongroom downgrade\`, which loses what was recorded since (strongroom help upgrade)`,
    }
  }
  if (order >= 0) return null
  return {
    message: `it is older: ${to.version}, and ${from.version} serves`,
    remedy:
      'to go back, stop the service, put the older executable in its place and start it; its schema is the same, so that `strongroom downgrade` is not needed',
  }
}

/** The copy from before, the one that the migration makes, the migration itself, the log. */
const databasesBeside = 4
/** The candidate, the former one, the package, what is unpacked of it. */
const executablesBeside = 4
const roomBeside = 67_108_864

export function roomRefusal({
  databaseBytes,
  executableBytes,
  freeBytes,
  where,
}: {
  readonly databaseBytes: number
  readonly executableBytes: number
  readonly freeBytes: number
  readonly where: string
}): Refusal | null {
  const neededBytes = databaseBytes * databasesBeside + executableBytes * executablesBeside + roomBeside
  if (freeBytes >= neededBytes) return null
  const [free, needed] = [freeBytes, neededBytes].map(bytes => Math.ceil(bytes / 1_048_576))
  return {
    message: `${where} has ${free} MiB free, and the upgrade takes up to ${needed} MiB`,
    remedy:
      'make room on that file system; the newest copies strongroom.db.schema-* beside the database are the way back, older ones may go',
  }
}

/** Packages that apt would have to install besides ours, from its simulation. */
export function missingPackages(simulation: string): string[] {
  const names = [...simulation.matchAll(/^Inst (\S+) /gm)].map(([, name = '']) => name)
  return [...new Set(names)].filter(name => name !== packageName)
}
