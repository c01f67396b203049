// A build VM's record of its one build: the source of all documents in a result (write.ts). Pure.
//
// Digests are lowercase hexadecimal, times are milliseconds since 1970.

/** A program that took part: what it says of its version, and the SHA-256 of its file. */
export type Tool = { readonly version: string; readonly sha256: string }

/** One package that the lock file names, as far as it comes from outside of the source. */
export type LockedPackage =
  | {
      readonly kind: 'crate'
      readonly name: string
      readonly version: string
      readonly from:
        | { readonly kind: 'registry'; readonly sha256: string }
        /** `commit` of 40 or 64 digits; `url` without `git+` and without fragment. */
        | { readonly kind: 'git'; readonly url: string; readonly commit: string }
    }
  /** A flake input: `narSha256` is its narHash in hex, `uri` the locked reference (`github:owner/name/REVISION`). */
  | { readonly kind: 'flake-input'; readonly name: string; readonly uri: string; readonly narSha256: string }
  /** The output of a fixed-output derivation that the build needs. */
  | {
      readonly kind: 'nix-fetch'
      readonly name: string
      /** Name of the .drv file in the store, without the store's path. */
      readonly drvPath: string
      readonly outputHashMode: 'flat' | 'recursive' | 'text' | null
      readonly hash: { readonly algorithm: 'sha256' | 'sha512'; readonly hex: string }
      readonly url: string | null
    }

type BuildArtifact = {
  /** As `isArtifactName` of paths.ts wants it. */
  readonly name: string
  readonly sha256: string
  readonly sizeBytes: number
  /** Whether a second build gave the same bytes; null when there was none. */
  readonly reproducible: boolean | null
}

/** The source as the VM found it, whatever the client said of it. */
type BuildSource = {
  /** Address of the repository, without credentials; '' for an archive. */
  readonly uri: string
  /** 40 or 64 digits; null for an archive. */
  readonly commit: string | null
  /** Git's tree id of what is on disk: SHA-1, 40 digits. */
  readonly treeSha1: string
  /** The same in git's SHA-256 object format, 64 digits; the statements' `sourceDigest`. SHA-1 alone has collisions. */
  readonly treeSha256: string
}

/** The client's own request. */
type BuildRequestRecord = {
  /** Hexadecimal, 1 to 16 bytes. */
  readonly nonce: string
  readonly repoUrl: string | null
  readonly repoRef: string | null
  readonly archive: { readonly name: string | null; readonly sha256: string; readonly sizeBytes: number } | null
  readonly projectDir: string | null
  readonly toolchain: 'cargo' | 'nix' | null
  readonly reproduce: boolean
  /** SHA-256 of the PEM of authorities that a fetch may trust beside the public ones, and its mirror for crates. */
  readonly fetchCaSha256: string | null
  readonly cratesMirror: string | null
}

/** `networkPolicy` of both statements and of the provenance. */
export const NETWORK_POLICIES = {
  /** Nothing could be fetched. */
  none: 'none',
  /** Fetch phase: the operator's list of hosts through one proxy. Build phase: no network. */
  fetchOnly: 'fetch-phase-allow-list-then-none',
} as const
type NetworkPolicy = (typeof NETWORK_POLICIES)[keyof typeof NETWORK_POLICIES]

export type BuildRecord = {
  /** UUID. */
  readonly jobId: string
  /** URI. */
  readonly builderId: string
  readonly request: BuildRequestRecord
  readonly source: BuildSource
  /** Name of the top-level directory of the archive and of the SBOM's main component; `isComponent` of paths.ts. */
  readonly project: string
  /** Version of the main package; null where there is none. */
  readonly projectVersion: string | null
  readonly tools:
    | { readonly toolchain: 'cargo'; readonly cargo: Tool; readonly rustc: Tool }
    | { readonly toolchain: 'nix'; readonly nix: Tool }
  /** The program that conducted the build: the guest's own. */
  readonly guest: Tool
  readonly command: readonly string[]
  readonly environment: Readonly<Record<string, string>>
  /** The host's whole order (BuildOrder of contract/vm/build-order.ts); the receipt of the dispatch has its digest. */
  readonly order: object
  readonly networkPolicy: NetworkPolicy
  readonly lockFile: { readonly name: 'Cargo.lock' | 'flake.lock'; readonly sha256: string }
  readonly packages: readonly LockedPackage[]
  /** Nix alone. */
  readonly evaluation: { readonly derivationCount: number; readonly fetchCount: number } | null
  /** The VM's image: name, dm-verity root hash, launch measurement (96 digits). */
  readonly image: { readonly name: string; readonly rootHash: string | null; readonly measurement: string }
  /** SHA-256 of the host's verification summary of that image; null for none. Said by the host. */
  readonly imageSummary: string | null
  readonly startedAtMs: number
  readonly finishedAtMs: number
  readonly artifacts: readonly BuildArtifact[]
  /** Exact bytes of build.log. */
  readonly log: Uint8Array
}
