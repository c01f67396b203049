// A build VM's record of its one build, from which all documents of a result are written (write.ts). Pure.
//
// Digests are lowercase hexadecimal, times are milliseconds since 1970.

import type { FetchedRust, PinnedCompiler } from './compiler.ts'
import type { NetworkPolicy } from './network-policy.ts'

/** A program used in the build: its version output, and the SHA-256 of its file. */
export type Tool = { readonly version: string; readonly sha256: string }

/** How cargo, go, npm or pnpm obtained the code of a package. */
export const PACKAGE_ORIGINS = [
  /** The builder fetched it, and its checksum or commit matches the lock's. */
  'fetched',
  /** A directory or registry within the source replaces the registry. The lock's checksum is not compared. */
  'vendored',
  /** A package of the source itself. */
  'path',
  /** Cargo's `[patch]` replaces the package named in a manifest. */
  'patched',
  /** Cargo's `paths` or `[replace]`, or `replace` of go.mod, replaces the package named in the lock. */
  'replaced',
] as const
export type PackageOrigin = (typeof PACKAGE_ORIGINS)[number]

/** A package used in a build. */
export type LockedPackage =
  | {
      readonly kind: 'crate'
      readonly name: string
      readonly version: string
      readonly origin: PackageOrigin
      /** Whether cargo reported that it compiled the package; false for a package that only tests or examples need. */
      readonly compiled: boolean
      readonly from: CratePlace
      /** Package URLs of its dependencies, as cargo resolved them. */
      readonly dependsOn: readonly string[]
    }
  | {
      readonly kind: 'go-module'
      /** Module path, such as `example.org/tool/v2`. */
      readonly name: string
      /** Version as in go.mod, with `v`; null for a directory of the source. */
      readonly version: string | null
      readonly origin: PackageOrigin
      readonly from: GoPlace
      /** The module that it replaces, by `replace` of go.mod; null if it replaces none. */
      readonly replaces: string | null
      /** Package URLs of the modules that its compiled packages import. */
      readonly dependsOn: readonly string[]
    }
  | {
      readonly kind: 'npm-package'
      /** Name with its scope. */
      readonly name: string
      /** Null for a project without a version. */
      readonly version: string | null
      /** `fetched`, or `path` for the project itself. */
      readonly origin: PackageOrigin
      readonly from: NpmPlace
      /** Whether its own install scripts ran. */
      readonly ranScripts: boolean
      /** Package URLs of its installed dependencies. */
      readonly dependsOn: readonly string[]
    }
  /**
   * A flake input. `narSha256`: its narHash in hexadecimal. `uri`: the locked reference (`github:owner/name/REVISION`).
   */
  | { readonly kind: 'flake-input'; readonly name: string; readonly uri: string; readonly narSha256: string }
  /** The output of a fixed-output derivation that the build needs. */
  | {
      readonly kind: 'nix-fetch'
      readonly name: string
      /** Name of the .drv file, without the store's path. */
      readonly drvPath: string
      readonly outputHashMode: 'flat' | 'recursive' | 'text' | null
      readonly hash: { readonly algorithm: 'sha256' | 'sha512'; readonly hex: string }
      readonly url: string | null
    }
  /** A path of the Nix store from a binary cache. */
  | {
      readonly kind: 'nix-path'
      readonly name: string
      /** Name in the store, without the store's path. */
      readonly storePath: string
      readonly narSha256: string
      /** Keys of the request (`NAME:BASE64`) with a valid signature over the path. */
      readonly signers: readonly string[]
      /**
       * The content to which the path's own name commits, in Nix's notation; null if the path relies on signatures
       * alone.
       */
      readonly contentAddress: string | null
    }

export type GoPlace =
  /** Hash of go.sum (golang.org/x/mod/sumdb/dirhash, Hash1), in hexadecimal. */
  { readonly kind: 'module'; readonly h1: string } | Extract<CratePlace, { kind: 'tree' }>

export type NpmPlace =
  /**
   * A package file, by its SHA-512 in the lock. `bundledIn`: NAME@VERSION of the package whose file contains this
   * package; null for a file of its own.
   */
  | { readonly kind: 'file'; readonly sha512: string; readonly bundledIn: string | null }
  | Extract<CratePlace, { kind: 'tree' }>

export type CratePlace =
  /** `sha256` of the crate file. `url` of the registry's index; null for crates.io. */
  | { readonly kind: 'registry'; readonly sha256: string; readonly url: string | null }
  /** `commit` of 40 or 64 digits. `url` without `git+`, query and fragment. */
  | { readonly kind: 'git'; readonly url: string; readonly commit: string }
  /** A directory of the source ('' is its root), and its tree id in git's SHA-256 object format. */
  | { readonly kind: 'tree'; readonly path: string; readonly sha256: string }

type BuildArtifact = {
  /** Name that satisfies `isArtifactName` of paths.ts. */
  readonly name: string
  readonly sha256: string
  readonly sizeBytes: number
  /** Whether a second build gave the same bytes; null if there was no second build. */
  readonly reproducible: boolean | null
}

/** The source as the VM read it, independent of the client's description. */
type BuildSource = {
  /** Address of the repository, without credentials; '' for an archive. */
  readonly uri: string
  /** Commit of 40 or 64 digits; null for an archive. */
  readonly commit: string | null
  /** Submodules whose files are in the source: path in it, address, and commit of 40 digits. */
  readonly submodules: readonly { readonly path: string; readonly url: string; readonly commit: string }[]
  /** Git's tree id of the files on disk: SHA-1, 40 digits. */
  readonly treeSha1: string
  /**
   * The tree id in git's SHA-256 object format, 64 digits: the statements' `sourceDigest`. SHA-1 alone has collisions.
   */
  readonly treeSha256: string
  /** Git LFS pointers, whose content was not part of the build: their count, and the first paths. */
  readonly lfsPointers: { readonly count: number; readonly first: readonly string[] }
}

/** The client's own request. */
type BuildRequestRecord = {
  /** Nonce of 1 to 16 bytes in hexadecimal. */
  readonly nonce: string
  readonly repoUrl: string | null
  readonly repoRef: string | null
  readonly archive: { readonly name: string | null; readonly sha256: string; readonly sizeBytes: number } | null
  readonly projectDir: string | null
  readonly toolchain: string | null
  readonly reproduce: boolean
  /** Options of one toolchain, as in the order. */
  readonly options: object | null
  /** Findings that the request waives; any other finding fails the build. */
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
  /**
   * Name of the archive's top-level directory and of the SBOM's main component; satisfies `isComponent` of paths.ts.
   */
  readonly project: string
  /** Version of the main package; null if it has none. */
  readonly projectVersion: string | null
  /** The toolchain's name, and its programs by name. */
  readonly tools: { readonly toolchain: string; readonly programs: Readonly<Record<string, Tool>> }
  /** The compiler that the source pins; null if it pins none. */
  readonly pinned: PinnedCompiler | null
  /** The Rust toolchain fetched for this build; null if the image's own programs built it. */
  readonly rust: FetchedRust | null
  /** The guest program that ran the build. */
  readonly guest: Tool
  readonly command: readonly string[]
  readonly environment: Readonly<Record<string, string>>
  /** The host's whole order (BuildOrder of contract/vm/build-order.ts). The dispatch receipt contains its digest. */
  readonly order: object
  readonly networkPolicy: NetworkPolicy
  /** The lock file; `path` is relative to the source. */
  readonly lockFile: { readonly name: string; readonly path: string; readonly sha256: string }
  readonly packages: readonly LockedPackage[]
  /** Package URLs of the project's own packages; empty for Nix. */
  readonly members: readonly string[]
  /** Null except for Nix. */
  readonly evaluation: { readonly derivationCount: number; readonly fetchCount: number } | null
  /** The VM's image: name, dm-verity root hash, launch measurement (96 digits). */
  readonly image: { readonly name: string; readonly rootHash: string | null; readonly measurement: string }
  /** SHA-256 of the host's verification summary of that image; null if it has none. Not verified by the VM. */
  readonly imageSummary: string | null
  readonly startedAtMs: number
  readonly finishedAtMs: number
  readonly artifacts: readonly BuildArtifact[]
  /** Exact bytes of build.log. */
  readonly log: Uint8Array
}
