// The software bill of materials of a build: the packages that the toolchain resolved, in CycloneDX 1.6 as JSON. Pure.
//
// Implemented here because @cyclonedx/cyclonedx-library would add four packages to the measured guest for one JSON
// object; the tests validate the output with that library and its schema.

import { canonicalJson, type Plain } from '../../base/canonical-json.ts'
import { rustComponentPrefix, rustManifestName } from './compiler.ts'
import { prettyJson } from './json.ts'
import { describePackage, packageUrl } from './packages.ts'
import type { BuildRecord, LockedPackage } from './record.ts'

/** Returns the exact bytes of attestations/sbom.cdx.json. */
export function sbomBytes(record: BuildRecord): Uint8Array {
  const { project, projectVersion, jobId, guest, members } = record
  const { options } = record.request
  const packages = uniqueBy(record.packages, packageUrl)
  const direct = members.length === 0 ? packages.map(packageUrl) : members
  return prettyJson({
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    serialNumber: `urn:uuid:${jobId}`,
    version: 1,
    metadata: {
      timestamp: new Date(record.finishedAtMs).toISOString(),
      tools: {
        components: [{ type: 'application', name: 'strongroom', version: guest.version }, ...rustComponents(record)],
      },
      component: {
        type: 'application',
        'bom-ref': 'project',
        name: project,
        ...(projectVersion === null ? {} : { version: projectVersion }),
        ...(options === null
          ? {}
          : { properties: [{ name: 'strongroom:options', value: canonicalJson(options as Plain) }] }),
      },
    },
    components: packages.map(componentOf),
    dependencies: [
      { ref: 'project', dependsOn: [...new Set(direct)] },
      ...packages.map(describePackage).map(({ url, dependsOn }) => ({
        ref: url,
        ...(dependsOn === undefined ? {} : { dependsOn: [...new Set(dependsOn)] }),
      })),
    ],
  })
}

/** Returns the manifest and the components of a fetched toolchain. */
function rustComponents({ rust }: BuildRecord): Readonly<Record<string, unknown>>[] {
  if (rust === null) return []
  const { version, manifest, components } = rust
  const all = [
    { ...manifest, name: rustManifestName },
    ...components.map(component => ({ ...component, name: `${rustComponentPrefix}${component.name}` })),
  ]
  return all.map(({ name, uri, sha256 }) => ({
    type: name === rustManifestName ? 'file' : 'application',
    name,
    version,
    hashes: [{ alg: 'SHA-256', content: sha256 }],
    externalReferences: [{ type: 'distribution', url: uri }],
  }))
}

function componentOf(pkg: LockedPackage): Readonly<Record<string, unknown>> {
  const { url, component } = describePackage(pkg)
  return { type: 'library', 'bom-ref': url, name: pkg.name, purl: url, ...component }
}

/** Returns the first item for each key, because a `bom-ref` must be unique. */
function uniqueBy<T>(list: readonly T[], key: (item: T) => string): T[] {
  return [...new Map(list.toReversed().map(item => [key(item), item])).values()].toReversed()
}
