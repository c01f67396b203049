// The input of the build verifier, and types shared by its parts. Pure.

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

/** An unpacked result. Paths are below its top-level directory. */
export type ResultFiles = {
  /** Complete contents of every file whose path is in RESULT_PATHS, except the log. */
  readonly documents: ReadonlyMap<string, Uint8Array>
  /** SHA-256 of every file, in hexadecimal. */
  readonly digests: ReadonlyMap<string, string>
}

/** Returns a document. Throws Malformed if it is missing. */
export function documentOf({ documents }: ResultFiles, path: string): Uint8Array {
  const bytes = documents.get(path)
  if (bytes === undefined) throw new Malformed(`there is no ${path}`)
  return bytes
}

export type BuildQuestion = {
  /** The nonce that was sent with the request, 1 to 16 bytes. */
  readonly nonce: Uint8Array | 'any'
  /** The time for which to verify, in milliseconds since 1970. The verifier reads no clock. */
  readonly asOf: number
  /** Trusted roots: AMD_ROOTS, and a simulated root (`readSimulatedRoot`) only if the caller chooses to. */
  readonly roots: readonly TrustedRoot[]
  readonly policy: Policy
  /** A caller waives a pin with 'any'; see pins.ts. */
  readonly pins: ReportPins
  readonly request: AskedRequest
  /** Revocation list in DER that replaces those in the receipts; undefined to use those. */
  readonly crl: Uint8Array | undefined
  /** The IGVM file from which the VM was launched. */
  readonly igvm: Uint8Array | 'any'
  /** The image that the VM booted. */
  readonly image: BootImage | 'any'
  /**
   * True if the caller has built the IGVM file or image, or has its digest from a source other than the service, so
   * that its measurement is expected. If false, it must match but pins nothing, because a host can offer any image
   * that it has booted.
   */
  readonly ownImage: boolean
  /** Native hashes, if the caller has them: the whole disk is hashed. */
  readonly hashes?: FastHashes
}

/** The client's request. Each field is compared with the host's order, except those that are 'any'. */
export type AskedRequest = {
  readonly source: AskedSource | 'any'
  /** Directory in the service's form: relative, without `.` and a trailing slash; null for the source's root. */
  readonly projectDir: string | null
  /** Null for automatic detection. */
  readonly toolchain: Toolchain | null
  /** True if the build must have run twice; false if the host may choose. */
  readonly reproduce: boolean
  /** Options of one toolchain; null if the request has none. */
  readonly options: ToolchainOptions | null
  /** File name of the archive, after which a project without a name is named. */
  readonly sourceName: string | null | 'any'
  /**
   * SHA-256 in hexadecimal of the PEM of authorities that a fetch may trust beside the public ones; null if none may.
   */
  readonly fetchCaSha256: string | null
  /** Mirror that may replace the crates registry; null if none may. */
  readonly cratesMirror: string | null
  /** 'none': rejects a source with Git LFS pointers, whose content was not built. */
  readonly lfsPointers: 'none' | 'any'
  /** 'pinned': if the source pins a compiler, it must have been compiled with that version. */
  readonly compiler: 'pinned' | 'any'
}

export type AskedSource =
  /** An archive, by git's tree ids of its contents in both object formats, hexadecimal. */
  | { readonly kind: 'tree'; readonly sha1: string; readonly sha256: string }
  | {
      readonly kind: 'commit'
      /** 40 hexadecimal digits. */
      readonly commit: string
      readonly url: string | 'any'
      readonly ref: string | null | 'any'
    }

/** The image that a build VM booted, as it was pulled. Nothing in it is trusted. */
export type BootImage = {
  /** Exact bytes of the command line, without a NUL. */
  readonly cmdline: Uint8Array
  /** The root disk: data, then dm-verity's hashes. */
  readonly disk: ByteSource
  /** The other launched parts, from which launch digests are computed; null if only an IGVM file contains them. */
  readonly boot: BootParts | null
}

export type BootParts = {
  readonly firmware: Uint8Array
  readonly kernel: Uint8Array
  readonly initrd: Uint8Array
  /** Shapes of VMs, named as in `launchDigests` of the manifest: `qemu-kvm/bios/EPYC-v4/2`. */
  readonly shapes: readonly string[]
}

/** The runtime's hashes, which replace the library's own in JavaScript. `sha256` may reuse its array. */
type FastHashes = { readonly sha256: Hash; readonly sha384: Hash }

/** The parsed result, for the parts of the verifier. */
export type ReadResult = {
  readonly files: ResultFiles
  readonly provenance: Provenance | null
  /** SHA-256 of the exact bytes; null if the file is missing. */
  readonly provenanceDigest: Uint8Array | null
  readonly evidence: ReadEvidence | null
}

export type AskedBuild = Pick<BuildQuestion, 'nonce' | 'asOf' | 'roots' | 'policy' | 'pins' | 'crl'>

/** Returns the 32 bytes of `sourceDigest` in the statements; null if the provenance has none. */
export function sourceDigestOf(provenance: Provenance | null): Uint8Array | null {
  const named = provenance?.predicate.buildDefinition.resolvedDependencies.filter(
    dependency => dependency.name === sourceTreeName,
  )
  const [only, ...more] = named ?? []
  if (only === undefined || more.length > 0 || !('sha256' in only.digest)) return null
  return fromHex(only.digest.sha256)
}
