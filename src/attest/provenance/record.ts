// A build VM's record of its one build: the source of all documents in a result (write.ts). Pure.
//
// Digests are lowercase hexadecimal, times are milliseconds since 1970.

import type { FetchedRust, PinnedCompiler } from './compiler.ts'
import type { NetworkPolicy } from './network-policy.ts'

/** A program that took part: what it says of its version, and the SHA-256 of its file. */
export type Tool = { readonly version: string; readonly sha256: string }

/** How cargo, go, npm or pnpm came to the code of a package. */
export const PACKAGE_ORIGINS = [
  /** The builder fetched it, and its checksum or commit is the lock's. */
  'fetched',
  /** A directory or registry within the source stands for the registry; the lock's checksum is not compared. */
  'vendored',
  /** A package of the source itself. */
  'path',
  /** `[patch]` of Cargo replaces the package that a manifest names by it. */
  'patched',
  /** `paths` or `[replace]` of Cargo, or `replace` of go.mod, replaces the package that the lock names by it. */
  'replaced',
] as const
export type PackageOrigin = (typeof PACKAGE_ORIGINS)[number]

/** One package that took part in a build. */
export type LockedPackage =
  | {
      readonly kind: 'crate'
      readonly name: string
      readonly version: string
      readonly origin: PackageOrigin
      /** Whether cargo reported that it compiled the package; false for one that only tests or examples need. */
      readonly compiled: boolean
      readonly from: CratePlace
      /** Package URLs of its dependencies, as cargo resolved them. */
      readonly dependsOn: readonly string[]
    }
  | {
      readonly kind: 'go-module'
      /** Its path, such as `example.org/tool/v2`. */
      readonly name: string
      /** As in go.mod, with `v`; null for a directory of the source. */
      readonly version: string | null
      readonly origin: PackageOrigin
      readonly from: GoPlace
      /** The module whose place it takes, by `replace` of go.mod; null otherwise. */
      readonly replaces: string | null
      /** Package URLs of the modules that its compiled packages import. */
      readonly dependsOn: readonly string[]
    }
  | {
      readonly kind: 'npm-package'
      /** With its scope. */
      readonly name: string
      /** Null for a project without a version. */
      readonly version: string | null
      /** `fetched`, or `path` for the project itself. */
      readonly origin: PackageOrigin
      readonly from: NpmPlace
      /** Whether its own install scripts ran. */
      readonly ranScripts: boolean
      /** Package URLs of its dependencies that were installed. */
      readonly dependsOn: readonly string[]
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
  /** A path of the Nix store from a binary cache. */
  | {
      readonly kind: 'nix-path'
      readonly name: string
      /** Its name in the store, without the store's path. */
      readonly storePath: string
      readonly narSha256: string
      /** Keys of the request (`NAME:BASE64`) whose signature over the path holds. */
      readonly signers: readonly string[]
      /** The content that the path's own name commits to, as Nix writes it; null if only signers vouch for it. */
      readonly contentAddress: string | null
    }

export type GoPlace =
  /** Hash of go.sum (golang.org/x/mod/sumdb/dirhash, Hash1), in hexadecimal. */
  { readonly kind: 'module'; readonly h1: string } | Extract<CratePlace, { kind: 'tree' }>

export type NpmPlace =
  /**
   * A package file, by its SHA-512 of the lock. `bundledIn`: NAME@VERSION of the package whose file this is and that
   * contains this one; null for a file of its own.
   */
  | { readonly kind: 'file'; readonly sha512: string; readonly bundledIn: string | null }
  | Extract<CratePlace, { kind: 'tree' }>

export type CratePlace =
  /** `sha256` of the crate file; `url` of the registry's index, null for crates.io. */
  | { readonly kind: 'registry'; readonly sha256: string; readonly url: string | null }
  /** `commit` of 40 or 64 digits; `url` without `git+`, query and fragment. */
  | { readonly kind: 'git'; readonly url: string; readonly commit: string }
  /** A directory of the source ('' is its root), and its tree id in git's SHA-256 object format. */
  | { readonly kind: 'tree'; readonly path: string; readonly sha256: string }

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
  /** Submodules whose files are in the source: path in it, address and commit (40 digits). */
  readonly submodules: readonly { readonly path: string; readonly url: string; readonly commit: string }[]
  /** Git's tree id of what is on disk: SHA-1, 40 digits. */
  readonly treeSha1: string
  /** The same in git's SHA-256 object format, 64 digits; the statements' `sourceDigest`. SHA-1 alone has collisions. */
  readonly treeSha256: string
  /** Paths of Git LFS pointers, whose content was not built: the first of them, and how many there are. */
  readonly lfsPointers: { readonly count: number; readonly first: readonly string[] }
}

/** The client's own request. */
type BuildRequestRecord = {
  /** Hexadecimal, 1 to 16 bytes. */
  readonly nonce: string
  readonly repoUrl: string | null
  readonly repoRef: string | null
  readonly archive: { readonly name: string | null; readonly sha256: string; readonly sizeBytes: number } | null
  readonly projectDir: string | null
  readonly toolchain: string | null
  readonly reproduce: boolean
  /** Options of one toolchain, as in the order. */
  readonly options: object | null
  /** Findings that the request waives; the build fails on any other. */
  readonly waivers: readonly string[]
  /** SHA-256 of the PEM of authorities that a fetch may trust beside the public ones, and its mirror for crates. */
  readonly fetchCaSha256: string | null
  readonly cratesMirror: string | null
}

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
  /** The toolchain's name, and its programs by their names. */
  readonly tools: { readonly toolchain: string; readonly programs: Readonly<Record<string, Tool>> }
  /** The compiler that the source pins; null if it pins none. */
  readonly pinned: PinnedCompiler | null
  /** The Rust toolchain that was fetched for this build; null if the image's own programs built it. */
  readonly rust: FetchedRust | null
  /** The program that conducted the build: the guest's own. */
  readonly guest: Tool
  readonly command: readonly string[]
  readonly environment: Readonly<Record<string, string>>
  /** The host's whole order (BuildOrder of contract/vm/build-order.ts); the receipt of the dispatch has its digest. */
  readonly order: object
  readonly networkPolicy: NetworkPolicy
  /** `path` is relative to the source. */
  readonly lockFile: { readonly name: string; readonly path: string; readonly sha256: string }
  readonly packages: readonly LockedPackage[]
  /** Package URLs of the packages that the project itself consists of; empty for Nix. */
  readonly members: readonly string[]
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
