// Packages of a build in each document: one function for each kind. Pure.
//
// Package URLs follow ECMA-427, percent-encoded. Their qualifiers are those that readers of this service family write
// (confidential-dot-ai/kettle), and `download_url` for a directory of the source.

import type { CratePlace, LockedPackage, NpmPlace } from './record.ts'

type FamilyDigest = { readonly sha256: string } | { readonly sha512: string } | { readonly gitCommit: string }

export type PackageDescription = {
  readonly url: string
  readonly digest: FamilyDigest
  /** Digests in the full statement. Default: those of `digest`. */
  readonly slsaDigest?: Readonly<Record<string, string>>
  readonly slsaAnnotations: Readonly<Record<string, unknown>>
  /** Members beside the digest in provenance.json, in the family's order. */
  readonly familyAnnotations?: {
    readonly drvPath: string
    readonly outputHashMode?: string
    readonly url?: string
  }
  /** False for a package of the source itself, whose files are in the source's tree. */
  readonly isExternal: boolean
  readonly dependsOn?: readonly string[]
  /** Members of its component in the SBOM, beside type, bom-ref, name and purl. */
  readonly component: Readonly<Record<string, unknown>>
}

export function describePackage(pkg: LockedPackage): PackageDescription {
  switch (pkg.kind) {
    case 'crate':
      return describeCrate(pkg)
    case 'go-module':
      return describeModule(pkg)
    case 'npm-package':
      return describeNpm(pkg)
    case 'flake-input':
      return {
        url: packageUrl(pkg),
        digest: { sha256: pkg.narSha256 },
        slsaAnnotations: { reference: pkg.uri },
        isExternal: true,
        component: { hashes: [{ alg: 'SHA-256', content: pkg.narSha256 }] },
      }
    case 'nix-path': {
      const { storePath, signers, contentAddress, narSha256 } = pkg
      return {
        url: packageUrl(pkg),
        digest: { sha256: narSha256 },
        slsaAnnotations: { storePath, signers, contentAddress },
        isExternal: true,
        component: {
          hashes: [{ alg: 'SHA-256', content: narSha256 }],
          properties: signers.map(value => ({ name: 'strongroom:nix:signer', value })),
        },
      }
    }
    case 'nix-fetch':
      return describeNixFetch(pkg)
  }
}

type Of<Kind extends LockedPackage['kind']> = Extract<LockedPackage, { kind: Kind }>

function describeCrate(pkg: Of<'crate'>): PackageDescription {
  const { origin, compiled, from, dependsOn, version } = pkg
  return {
    url: packageUrl(pkg),
    digest: from.kind === 'git' ? { gitCommit: from.commit } : { sha256: from.sha256 },
    slsaAnnotations: { origin, compiled, dependsOn },
    isExternal: origin !== 'path',
    dependsOn,
    component: {
      version,
      ...(compiled ? {} : { scope: 'excluded' }),
      ...(from.kind === 'registry' ? { hashes: [{ alg: 'SHA-256', content: from.sha256 }] } : {}),
      ...(from.kind === 'git' ? { externalReferences: [{ type: 'vcs', url: `git+${from.url}#${from.commit}` }] } : {}),
      properties: [
        { name: 'strongroom:origin', value: origin },
        { name: 'strongroom:compiled', value: String(compiled) },
        ...treeProperty(from),
      ],
    },
  }
}

function describeModule(pkg: Of<'go-module'>): PackageDescription {
  const { origin, from, replaces, dependsOn, version } = pkg
  return {
    url: packageUrl(pkg),
    digest: { sha256: from.kind === 'module' ? from.h1 : from.sha256 },
    // in-toto's digest set defines this name (digest_set.md, `dirHash1`): it covers a list of files, not one file.
    ...(from.kind === 'module' ? { slsaDigest: { dirHash1: from.h1 } } : {}),
    slsaAnnotations: { origin, compiled: true, replaces, dependsOn },
    isExternal: origin !== 'path',
    dependsOn,
    component: {
      ...(version === null ? {} : { version }),
      properties: [
        { name: 'strongroom:origin', value: origin },
        { name: 'strongroom:compiled', value: 'true' },
        ...(from.kind === 'module' ? [{ name: 'strongroom:go:dirHash1', value: from.h1 }] : treeProperty(from)),
      ],
    },
  }
}

function describeNpm(pkg: Of<'npm-package'>): PackageDescription {
  const { origin, from, ranScripts, dependsOn, version } = pkg
  const hashes = from.kind === 'file' && from.bundledIn === null ? [{ alg: 'SHA-512', content: from.sha512 }] : []
  const bundledIn = from.kind === 'file' ? from.bundledIn : null
  return {
    url: packageUrl(pkg),
    digest: from.kind === 'file' ? { sha512: from.sha512 } : { sha256: from.sha256 },
    slsaAnnotations: { origin, ranScripts, dependsOn, ...(bundledIn === null ? {} : { bundledIn }) },
    isExternal: origin !== 'path',
    dependsOn,
    component: {
      ...(version === null ? {} : { version }),
      ...(hashes.length === 0 ? {} : { hashes }),
      properties: [
        { name: 'strongroom:origin', value: origin },
        { name: 'strongroom:npm:ranScripts', value: String(ranScripts) },
        ...(bundledIn === null ? [] : [{ name: 'strongroom:npm:bundledIn', value: bundledIn }]),
        ...(from.kind === 'tree' ? treeProperty(from) : []),
      ],
    },
  }
}

function describeNixFetch(pkg: Of<'nix-fetch'>): PackageDescription {
  const { drvPath, outputHashMode, url, hash } = pkg
  return {
    url: packageUrl(pkg),
    digest: hash.algorithm === 'sha256' ? { sha256: hash.hex } : { sha512: hash.hex },
    slsaAnnotations: { drvPath, outputHashMode, url },
    familyAnnotations: {
      drvPath,
      ...(outputHashMode === null ? {} : { outputHashMode }),
      ...(url === null ? {} : { url }),
    },
    isExternal: true,
    component: {
      hashes: [{ alg: hash.algorithm === 'sha256' ? 'SHA-256' : 'SHA-512', content: hash.hex }],
      ...(url === null ? {} : { externalReferences: [{ type: 'distribution', url }] }),
    },
  }
}

function treeProperty(from: CratePlace): { name: string; value: string }[] {
  return from.kind === 'tree' ? [{ name: 'strongroom:source-tree', value: `gitoid:tree:sha256:${from.sha256}` }] : []
}

/** Returns the package URL of a package of any kind. */
export function packageUrl(
  pkg:
    | Pick<Of<'crate'>, 'kind' | 'name' | 'version' | 'from'>
    | Pick<Of<'go-module'>, 'kind' | 'name' | 'version' | 'from'>
    | Pick<Of<'npm-package'>, 'kind' | 'name' | 'version' | 'from'>
    | Of<'flake-input' | 'nix-fetch' | 'nix-path'>,
): string {
  switch (pkg.kind) {
    case 'crate':
      return `pkg:cargo/${pkg.name}@${encoded(pkg.version)}?${qualifiers(pkg.from)}`
    case 'go-module': {
      const { name, version, from } = pkg
      const path = name.split('/').map(encoded).join('/')
      const what = from.kind === 'module' ? `checksum=h1:${from.h1}` : qualifiers(from)
      return `pkg:golang/${path}${version === null ? '' : `@${encoded(version)}`}?${what}`
    }
    case 'npm-package': {
      const { name, version, from } = pkg
      const path = name.split('/').map(encoded).join('/')
      const what = from.kind === 'tree' ? qualifiers(from) : fileQualifier(from)
      return `pkg:npm/${path}${version === null ? '' : `@${encoded(version)}`}?${what}`
    }
    case 'flake-input':
      return `pkg:nix-flake/${encoded(pkg.name)}?uri=${encoded(pkg.uri)}`
    case 'nix-fetch':
      return `pkg:nix-fetch/${encoded(pkg.name)}?hash=${pkg.hash.algorithm}:${pkg.hash.hex}`
    case 'nix-path':
      return `pkg:nix-path/${encoded(pkg.storePath)}?nar=sha256:${pkg.narSha256}`
  }
}

function fileQualifier({ sha512, bundledIn }: Extract<NpmPlace, { kind: 'file' }>): string {
  return bundledIn === null ? `checksum=sha512:${sha512}` : `bundled_in=${encoded(bundledIn)}`
}

/** Includes a registry's checksum only for a package that the builder fetched. */
function qualifiers(from: CratePlace): string {
  switch (from.kind) {
    case 'registry':
      return `checksum=sha256:${from.sha256}${from.url === null ? '' : `&repository_url=${encoded(from.url)}`}`
    case 'git':
      return `vcs_url=${encoded(`git+${from.url}@${from.commit}`)}`
    case 'tree':
      return `download_url=${encoded(`file:${from.path === '' ? '.' : from.path}`)}`
  }
}

/** Percent-encodes everything except letters, digits and `.-_~:`. */
function encoded(text: string): string {
  const byte = (char: string) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`
  return encodeURIComponent(text)
    .replaceAll('%3A', ':')
    .replace(/[!'()*]/g, byte)
}
