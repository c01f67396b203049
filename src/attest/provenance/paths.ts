// Paths in a build's result archive. Pure.
//
// The archive has one top-level directory, named after the project, with exactly these files. Other verifiers of this
// family (confidential-dot-ai/kettle) read only `provenance.json` and `evidence.json`; the provenance's byproducts bind
// the others by digest.

/** Relative to the top-level directory. */
export const RESULT_PATHS = {
  artifacts: 'artifacts',
  provenance: 'provenance.json',
  evidence: 'evidence.json',
  slsa: 'attestations/slsa.json',
  dsse: 'attestations/slsa.dsse.json',
  bundle: 'attestations/bundle.sigstore.json',
  sbom: 'attestations/sbom.cdx.json',
  log: 'build.log',
} as const satisfies Record<string, string>

/** Files that the provenance's byproducts bind, in their order there. A byproduct's name is the file's path. */
export const BYPRODUCTS = ['slsa', 'dsse', 'bundle', 'sbom', 'log'] as const satisfies (keyof typeof RESULT_PATHS)[]
export type Byproduct = (typeof BYPRODUCTS)[number]

/** Returns the path of an artifact below the top-level directory. */
export function artifactPath(name: string): string {
  return `${RESULT_PATHS.artifacts}/${name}`
}

const nameCharsMax = 1024
const componentCharsMax = 255
const depthMax = 16
/** Printable ASCII without characters that some system uses as a separator, a drive or a pattern. */
const componentPattern = /^[\x20-\x7e]+$/
const refusedChars = /[/\\:*?"<>|]/

/**
 * Reports whether an artifact may have this name: a relative path of plain names. Other verifiers of the family find
 * only names without `/`. The caller must reject names that differ only in case.
 */
export function isArtifactName(name: string): boolean {
  const components = name.split('/')
  return name.length <= nameCharsMax && components.length <= depthMax && components.every(isComponent)
}

/** Reports whether a name is a single component, as the top-level directory must be. */
export function isComponent(name: string): boolean {
  return (
    name.length <= componentCharsMax &&
    componentPattern.test(name) &&
    !refusedChars.test(name) &&
    name !== '.' &&
    name !== '..' &&
    name === name.trim()
  )
}
