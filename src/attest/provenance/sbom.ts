// The software bill of materials of a build: CycloneDX 1.6 as JSON, of what the lock file names. Pure.
//
// Written here rather than by @cyclonedx/cyclonedx-library, which brings four packages into the measured guest for one
// JSON object; the tests validate ours with that library and its schema.

import { prettyJson } from './json.ts'
import { packageUrl } from './packages.ts'
import type { BuildRecord, LockedPackage } from './record.ts'

/** Exact bytes of attestations/sbom.cdx.json. */
export function sbomBytes(record: BuildRecord): Uint8Array {
  const { project, projectVersion, jobId, guest } = record
  return prettyJson({
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    serialNumber: `urn:uuid:${jobId}`,
    version: 1,
    metadata: {
      timestamp: new Date(record.finishedAtMs).toISOString(),
      tools: { components: [{ type: 'application', name: 'strongroom', version: guest.version }] },
      component: {
        type: 'application',
        'bom-ref': 'project',
        name: project,
        ...(projectVersion === null ? {} : { version: projectVersion }),
      },
    },
    components: uniqueBy(record.packages, packageUrl).map(componentOf),
  })
}

function componentOf(pkg: LockedPackage): Readonly<Record<string, unknown>> {
  const purl = packageUrl(pkg)
  const component = { type: 'library', 'bom-ref': purl, name: pkg.name }
  switch (pkg.kind) {
    case 'crate': {
      const { from } = pkg
      const rest =
        from.kind === 'registry'
          ? { hashes: [{ alg: 'SHA-256', content: from.sha256 }] }
          : { externalReferences: [{ type: 'vcs', url: `git+${from.url}#${from.commit}` }] }
      return { ...component, version: pkg.version, purl, ...rest }
    }
    case 'flake-input':
      return { ...component, purl, hashes: [{ alg: 'SHA-256', content: pkg.narSha256 }] }
    case 'nix-fetch':
      return {
        ...component,
        purl,
        hashes: [{ alg: pkg.hash.algorithm === 'sha256' ? 'SHA-256' : 'SHA-512', content: pkg.hash.hex }],
        ...(pkg.url === null ? {} : { externalReferences: [{ type: 'distribution', url: pkg.url }] }),
      }
  }
}

/** The first of each; a `bom-ref` stands once. */
function uniqueBy<T>(list: readonly T[], key: (item: T) => string): T[] {
  return [...new Map(list.toReversed().map(item => [key(item), item])).values()].toReversed()
}
