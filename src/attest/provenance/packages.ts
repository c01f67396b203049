// The packages that a lock file names, as package URLs. Pure. Package URLs: ECMA-427; the qualifiers are those that the
// readers of this service family write (confidential-dot-ai/kettle).

import type { LockedPackage } from './record.ts'

/** Package URL of any of them. */
export function packageUrl(pkg: LockedPackage): string {
  switch (pkg.kind) {
    case 'crate':
      return pkg.from.kind === 'registry'
        ? `pkg:cargo/${pkg.name}@${version(pkg.version)}?checksum=sha256:${pkg.from.sha256}`
        : `pkg:cargo/${pkg.name}@${version(pkg.version)}?vcs_url=git+${pkg.from.url.replaceAll('?', '%3F').replaceAll('&', '%26')}@${pkg.from.commit}`
    case 'flake-input':
      return `pkg:nix-flake/${encodeURIComponent(pkg.name)}?uri=${encodeURIComponent(pkg.uri)}`
    case 'nix-fetch':
      return `pkg:nix-fetch/${encodeURIComponent(pkg.name)}?hash=${pkg.hash.algorithm}:${pkg.hash.hex}`
  }
}

/** `+` begins build metadata in a version, and a space in a URL. */
function version(text: string): string {
  return encodeURIComponent(text)
}
