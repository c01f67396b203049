// The software bill of materials of a build: CycloneDX 1.6 as JSON, of what the lock file names. Pure.
//
// Written here rather than by @cyclonedx/cyclonedx-library, which brings four packages into the measured guest for one JSON object; the tests
// validate ours with that library and its schema.

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

function componentOf(one: LockedPackage): Readonly<Record<string, unknown>> {
  const purl = packageUrl(one)
  const component = { type: 'library', 'bom-ref': purl, name: one.name }
  switch (one.kind) {
    case 'crate': {
      const { from } = one
      const rest =
        from.kind === 'registry'
          ? { hashes: [{ alg: 'SHA-256', content: from.sha256 }] }
          : { externalReferences: [{ type: 'vcs', url: `git+${from.url}#${from.commit}` }] }
      return { ...component, version: one.version, purl, ...rest }
    }
    case 'flake-input':
      return { ...component, purl, hashes: [{ alg: 'SHA-256', content: one.narSha256 }] }
    case 'nix-fetch':
      return {
        ...component,
        purl,
        hashes: [{ alg: one.hash.algorithm === 'sha256' ? 'SHA-256' : 'SHA-512', content: one.hash.hex }],
        ...(one.url === null ? {} : { externalReferences: [{ type: 'distribution', url: one.url }] }),
      }
  }
}

/** The first of each; a `bom-ref` stands once. */
function uniqueBy<T>(list: readonly T[], key: (one: T) => string): T[] {
  return [...new Map(list.toReversed().map(one => [key(one), one])).values()].toReversed()
}
