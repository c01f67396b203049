// Compares the packages of a build with Cargo, Go, npm or pnpm, each with its origin, in statements and SBOM. Pure.

import { parsedJson } from '../../attest/encoding/json.ts'
import { parsed, wellFormed } from '../../attest/malformed.ts'
import { exactly, listOf, optional, partly, type ReadBy, text } from '../../attest/provenance/fields.ts'
import { RESULT_PATHS } from '../../attest/provenance/paths.ts'
import { PACKAGE_ORIGINS, type PackageOrigin } from '../../attest/provenance/record.ts'
import type { Provenance } from '../../attest/provenance/statement.ts'
import { type Check, check, fail, notChecked, pass } from '../../attest/verdict.ts'
import { documentOf, type ResultFiles } from './question.ts'

const name = 'packages'
const namedMax = 8
/** Prefixes of package URLs whose packages have an origin. */
const PREFIXES = ['pkg:cargo/', 'pkg:golang/', 'pkg:npm/'] as const

function hasOrigin(uri: string): boolean {
  return PREFIXES.some(prefix => uri.startsWith(prefix))
}

const slsaForm = partly({
  predicate: partly({
    buildDefinition: partly({
      resolvedDependencies: listOf(
        partly({
          name: text,
          uri: optional(text),
          annotations: optional(partly({ origin: optional(text), path: optional(text) })),
        }),
      ),
    }),
  }),
})
const property = partly({ name: text, value: text })
const sbomForm = partly({
  bomFormat: exactly('CycloneDX'),
  components: listOf(partly({ purl: text, properties: optional(listOf(property)) })),
})

/**
 * Requires one origin per package, the same in both documents; provenance.json must list all except the source's own.
 */
export function packagesCheck(files: ResultFiles, { predicate }: Provenance): Check {
  const wanted = predicate.buildDefinition.resolvedDependencies.filter(({ uri }) => hasOrigin(uri))
  const read = parsed(() => packagesIn(files))
  if (!read.ok) return fail(name, read.reason)
  const { packages, sbom } = read.value
  if (packages.length === 0 && wanted.length === 0) return pass(name, 'none of Cargo, Go, npm or pnpm')
  if (packages.length > 0 && packages.every(({ origin }) => origin === null))
    return notChecked(name, 'this result does not say where its packages came from', false)
  const external = new Set(packages.filter(({ origin }) => origin !== 'path').map(({ uri }) => uri))
  const wantedUris = new Set(wanted.map(({ uri }) => uri))
  const differing = [
    ...packages.filter(({ uri, origin }) => origin === null || sbom.get(uri) !== origin).map(({ uri }) => uri),
    ...[...external].filter(uri => !wantedUris.has(uri)),
    ...[...wantedUris].filter(uri => !external.has(uri)),
  ]
  const reason = `slsa.json, provenance.json and the SBOM differ in ${differing.slice(0, namedMax).join('; ')}`
  return check(name, differing.length === 0, reason, summary(packages))
}

type Package = { readonly uri: string; readonly name: string; readonly origin: PackageOrigin | null }

function packagesIn(files: ResultFiles) {
  const [slsa, sbom] = [documentOf(files, RESULT_PATHS.slsa), documentOf(files, RESULT_PATHS.sbom)]
  const { resolvedDependencies } = slsaForm(parsedJson('slsa.json', slsa), 'slsa.json').predicate.buildDefinition
  const packages = resolvedDependencies.flatMap(dependency => packageOf(dependency) ?? [])
  const { components } = sbomForm(parsedJson('sbom.cdx.json', sbom), 'sbom.cdx.json')
  const origins = components.map(({ purl, properties = [] }) => {
    return [purl, properties.find(property => property.name === 'strongroom:origin')?.value] as const
  })
  return { packages, sbom: new Map(origins) }
}

type Descriptor = ReadBy<typeof slsaForm>['predicate']['buildDefinition']['resolvedDependencies'][number]

function packageOf({ name: called, uri, annotations }: Descriptor): Package | null {
  if (uri === undefined || !hasOrigin(uri)) return null
  const said = annotations?.origin
  if (said === undefined) return { uri, name: called, origin: null }
  const origin = PACKAGE_ORIGINS.find(known => known === said)
  wellFormed(origin !== undefined, `slsa.json: ${uri}: the unknown origin ${JSON.stringify(said)}`)
  // A checksum means that the builder compared it with the fetched file. `replace` of go.mod can name a module, which
  // is fetched; Cargo's can only name a directory.
  const isOther = origin === 'patched' || (origin === 'replaced' && uri.startsWith('pkg:golang/'))
  const isChecked = !uri.includes('?checksum=') || origin === 'fetched' || isOther
  wellFormed(isChecked, `slsa.json: ${uri}: ${origin}, and yet with the checksum of a registry`)
  return { uri, name: called, origin }
}

const MEANINGS: Readonly<Record<PackageOrigin, string>> = {
  fetched: 'fetched and compared with the lock',
  vendored: "vendored in the source, the lock's checksum not compared",
  path: 'of the source itself',
  patched: 'patched by the source',
  replaced: 'replaced by the source',
}

/** Returns counts of all packages, and names of those that a reader of the lock would not expect. */
function summary(packages: readonly Package[]): string {
  const parts = PACKAGE_ORIGINS.flatMap(origin => {
    const found = packages.filter(pkg => pkg.origin === origin)
    if (found.length === 0) return []
    const names = found.slice(0, namedMax).map(({ uri }) => decoded(uri.slice(uri.indexOf('/') + 1)))
    const named = origin === 'patched' || origin === 'replaced' ? `: ${names.join(', ')}` : ''
    return [`${found.length} ${MEANINGS[origin]}${named}`]
  })
  return parts.join('; ')
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
