// The question to the verifier of attested builds, and types that its parts share. Pure.

import type { TrustedRoot } from '../../attest/amd/roots.ts'
import type { Hash } from '../../attest/hash.ts'
import { Malformed } from '../../attest/malformed.ts'
import type { Policy } from '../../attest/policy/policy.ts'
import type { ReadEvidence } from '../../attest/provenance/evidence.ts'
import { type Provenance, sourceTreeName } from '../../attest/provenance/statement.ts'
import type { ByteSource } from '../../attest/verity/root.ts'
import { fromHex } from '../../base/bytes.ts'
import type { Toolchain, ToolchainOptions } from '../../contract/http/build-options.ts'
import type { ReportPins } from '../pins.ts'

/** A result, unpacked: paths below its top-level directory. */
export type ResultFiles = {
  /** Whole: every file whose path is in RESULT_PATHS, except the log. */
  readonly documents: ReadonlyMap<string, Uint8Array>
  /** SHA-256 in hexadecimal of every file. */
  readonly digests: ReadonlyMap<string, string>
}

/** Throws Malformed: it is not there. */
export function documentOf({ documents }: ResultFiles, path: string): Uint8Array {
  const bytes = documents.get(path)
  if (bytes === undefined) throw new Malformed(`there is no ${path}`)
  return bytes
}

export type BuildQuestion = {
  /** The one that was sent with the request, 1 to 16 bytes. */
  readonly nonce: Uint8Array | 'any'
  /** The time to verify for, in milliseconds since 1970; never taken from a clock here. */
  readonly asOf: number
  /** Trusted roots: AMD_ROOTS, and a simulated root (`readSimulatedRoot`) only if the caller chooses to. */
  readonly roots: readonly TrustedRoot[]
  readonly policy: Policy
  /** A caller waives a pin by saying 'any' to it; see pins.ts. */
  readonly pins: ReportPins
  readonly request: AskedRequest
  /** DER of a revocation list, used in place of those in the receipts; undefined: those are used. */
  readonly crl: Uint8Array | undefined
  /** The IGVM file that the VM was launched from. */
  readonly igvm: Uint8Array | 'any'
  /** The image that it booted. */
  readonly image: BootImage | 'any'
  /**
   * True if the caller has built the IGVM file or image, or has its digest from a source other than the service, so
   * that its measurement is expected. If false, it must match but pins nothing, because a host can offer any image
   * that it has booted.
   */
  readonly ownImage: boolean
  /** Native ones where the caller has them: a disk is hashed whole. */
  readonly hashes?: FastHashes
}

/** The client's request. Each field is compared with the host's order; only 'any' leaves one out. */
export type AskedRequest = {
  readonly source: AskedSource | 'any'
  /** As the service writes it: relative, without `.` and a slash at its end; null means the source's root. */
  readonly projectDir: string | null
  /** Null if it is detected. */
  readonly toolchain: Toolchain | null
  /** True if the build must have been done twice; false if the host may choose. */
  readonly reproduce: boolean
  /** Options of one toolchain; null if the request has none. */
  readonly options: ToolchainOptions | null
  /** File name of the archive: a project without a name of its own is called by it. */
  readonly sourceName: string | null | 'any'
  /** SHA-256 of the PEM of authorities that a fetch may trust beside the public ones, in hex; null if none may. */
  readonly fetchCaSha256: string | null
  /** Mirror that may replace the crates registry; null for none. */
  readonly cratesMirror: string | null
  /** 'none': a source with Git LFS pointers, whose content was not built, is no good one. */
  readonly lfsPointers: 'none' | 'any'
  /** 'pinned': if the source pins a compiler, the one that compiled it must be of that version. */
  readonly compiler: 'pinned' | 'any'
}

export type AskedSource =
  /** An archive, by git's tree id of what is in it, in both object formats, hexadecimal. */
  | { readonly kind: 'tree'; readonly sha1: string; readonly sha256: string }
  | {
      readonly kind: 'commit'
      /** 40 hexadecimal digits. */
      readonly commit: string
      readonly url: string | 'any'
      readonly ref: string | null | 'any'
    }

/** The image that a build VM booted, as it was pulled: nothing of it is trusted. */
export type BootImage = {
  /** Exact bytes of the command line, without a NUL. */
  readonly cmdline: Uint8Array
  /** The root disk: data, then dm-verity's hashes. */
  readonly disk: ByteSource
  /** The other launched parts, from which launch digests are computed; null if only an IGVM file states them. */
  readonly boot: BootParts | null
}

export type BootParts = {
  readonly firmware: Uint8Array
  readonly kernel: Uint8Array
  readonly initrd: Uint8Array
  /** Which VMs, as `launchDigests` of the manifest names them: `qemu-kvm/bios/EPYC-v4/2`. */
  readonly shapes: readonly string[]
}

/** Hashes of the runtime, in place of the library's own in JavaScript. `sha256` may reuse its array. */
type FastHashes = { readonly sha256: Hash; readonly sha384: Hash }

/** The result as read, for the parts of the verifier. */
export type ReadResult = {
  readonly files: ResultFiles
  readonly provenance: Provenance | null
  /** SHA-256 of the exact bytes; null when the file is missing. */
  readonly provenanceDigest: Uint8Array | null
  readonly evidence: ReadEvidence | null
}

export type AskedBuild = Pick<BuildQuestion, 'nonce' | 'asOf' | 'roots' | 'policy' | 'pins' | 'crl'>

/** The 32 bytes that the statements call the source's digest; null when the provenance has none. */
export function sourceDigestOf(provenance: Provenance | null): Uint8Array | null {
  const named = provenance?.predicate.buildDefinition.resolvedDependencies.filter(
    dependency => dependency.name === sourceTreeName,
  )
  const [only, ...more] = named ?? []
  if (only === undefined || more.length > 0 || !('sha256' in only.digest)) return null
  return fromHex(only.digest.sha256)
}
