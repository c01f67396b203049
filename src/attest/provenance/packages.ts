// The packages that a lock file names, as package URLs. Pure.
// Package URLs: ECMA-427; the qualifiers are those that the readers of this service family write (confidential-dot-ai/kettle).

import type { LockedPackage } from './record.ts'

/** Package URL of any of them. */
export function packageUrl(one: LockedPackage): string {
  switch (one.kind) {
    case 'crate':
      return one.from.kind === 'registry'
        ? `pkg:cargo/${one.name}@${version(one.version)}?checksum=sha256:${one.from.sha256}`
        : `pkg:cargo/${one.name}@${version(one.version)}?vcs_url=git+${one.from.url.replaceAll('?', '%3F').replaceAll('&', '%26')}@${one.from.commit}`
    case 'flake-input':
      return `pkg:nix-flake/${encodeURIComponent(one.name)}?uri=${encodeURIComponent(one.uri)}`
    case 'nix-fetch':
      return `pkg:nix-fetch/${encodeURIComponent(one.name)}?hash=${one.hash.algorithm}:${one.hash.hex}`
  }
}

/** `+` begins build metadata in a version, and a space in a URL. */
function version(text: string): string {
  return encodeURIComponent(text)
}
